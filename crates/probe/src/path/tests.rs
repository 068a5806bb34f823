//! The protocol over the loopback device: members that behave, and members that do not. What nodes
//! are slow cannot be tested here; `tests/hosts` has links for that.

mod tools;

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use trainyard_core::probe::{Check, Outcome, Report, VolumeNeeds};

use super::{
    leader::run_leader_on,
    limit::Limit,
    message::{Answer, Hello, Request, VERSION, same_token},
    *,
};

fn settings(node: &str) -> Settings {
    Settings {
        needs: Needs::default(),
        node: node.to_owned(),
        token: "secret".to_owned(),
        root: PathBuf::from("/nowhere"),
        timeout: Duration::from_mins(1),
        measure: Duration::from_millis(50),
        programs: Vec::new(),
    }
}

/// A leader that waits for `names`, the first of which is its own.
fn started(settings: Settings, names: &[&str]) -> (SocketAddr, JoinHandle<Conducted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let conduct = Conduct {
        gang: names.len(),
        nodes: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Conduct::default()
    };
    let leader = thread::spawn(move || run_leader_on(listener, &settings, &conduct));
    (address, leader)
}

fn check<'a>(report: &'a Report, node: &str, name: &str) -> &'a Check {
    let checks = &report.nodes[node].checks;
    let found = checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("{node} has no {name}: {checks:?}"))
}

/// A member that says hello, answers as many requests as `answers` says, and then does `last`.
fn odd(
    address: SocketAddr,
    node: &'static str,
    answers: usize,
    last: fn(&TcpStream),
) -> JoinHandle<()> {
    thread::spawn(move || {
        let stream = TcpStream::connect(address).unwrap();
        let limit = Limit::after(Duration::from_secs(30));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hello = Hello {
            version: VERSION,
            token: "secret".to_owned(),
            node: node.to_owned(),
            address: None,
            port: listener.local_addr().unwrap().port(),
            trouble: None,
        };
        frame::write(&stream, &hello, limit).unwrap();
        for _ in 0..answers {
            let answer = match frame::read(&stream, frame::LARGEST, limit).unwrap() {
                Request::Read => Answer::Read(Box::default()),
                Request::Clock => Answer::Clock(0),
                Request::Measure(_) => Answer::Pair(message::Side::default()),
                other => panic!("unexpected {other:?}"),
            };
            frame::write(&stream, &answer, limit).unwrap();
        }
        last(&stream);
    })
}

#[test]
fn members_measure_together() {
    let folder = tempfile::tempdir().unwrap();
    let with_volume = |node: &str| {
        let mut settings = settings(node);
        settings.needs.volumes = Some(vec![VolumeNeeds {
            path: Some(folder.path().to_str().unwrap().to_owned()),
            ..VolumeNeeds::default()
        }]);
        settings
    };
    let names = ["a", "b", "c", "d", "e"];
    let (address, leader) = started(with_volume("a"), &names);
    let peers: Vec<_> = names[1..]
        .iter()
        .map(|name| {
            let settings = with_volume(name);
            thread::spawn(move || join(&settings, address))
        })
        .collect();
    let conducted = leader.join().unwrap();
    for peer in peers {
        peer.join().unwrap().unwrap();
    }
    assert_eq!(conducted.joined, 5);
    let report = conducted.report;
    assert_eq!(
        report.nodes.keys().collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>()
    );
    for name in names {
        assert_eq!(check(&report, name, "joined").outcome, Outcome::Pass);
        assert_eq!(check(&report, name, "volume-shared").outcome, Outcome::Pass);
        let bandwidth = check(&report, name, "path-bandwidth");
        assert!(!bandwidth.found.starts_with("0 "), "{bandwidth:?}");
        assert_eq!(check(&report, name, "clock-skew").outcome, Outcome::Pass);
    }
    let gang = report
        .shared
        .iter()
        .find(|check| check.name == "gang-bandwidth")
        .unwrap();
    assert!(gang.found.contains("nodes in a ring"), "{gang:?}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "every file is removed"
    );
}

#[test]
fn lost_member_is_reported_others_continue() {
    type Case = (&'static str, usize, fn(&TcpStream));
    let cases: [Case; 4] = [
        ("dead-at-once", 0, |_| {}),
        ("dead-later", 1, |_| {}),
        ("nonsense", 1, |stream| {
            use std::io::Write;
            let mut stream = stream;
            stream.write_all(&[0xff; 64]).unwrap();
        }),
        // It keeps the connection until the leader gives it up.
        ("silent", 1, |stream| {
            use std::io::Read;
            let mut stream = stream;
            let mut bytes = [0; 1024];
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }),
    ];
    for (name, answers, last) in cases {
        let (address, leader) = started(settings("a"), &["a", "b", name]);
        let peer = thread::spawn(move || join(&settings("b"), address));
        let odd = odd(address, name, answers, last);
        let report = leader.join().unwrap().report;
        peer.join().unwrap().unwrap();
        odd.join().unwrap();
        assert_eq!(
            check(&report, "a", "joined").outcome,
            Outcome::Pass,
            "{name}"
        );
        assert_eq!(
            check(&report, "b", "joined").outcome,
            Outcome::Pass,
            "{name}"
        );
        let lost = check(&report, name, "joined");
        assert_eq!(lost.outcome, Outcome::Fail, "{name}");
        assert!(
            lost.found.starts_with("was lost: its answer: "),
            "{name}: {}",
            lost.found
        );
    }
}

/// A member that answers every measurement as late as one may whose partner died: it waited to be connected to, on a busy machine.
fn late(address: SocketAddr, node: &'static str) -> JoinHandle<()> {
    odd(address, node, 6, |stream| {
        let limit = Limit::after(Duration::from_secs(30));
        let settings = settings("late");
        while let Ok(request) = frame::read(stream, frame::LARGEST, limit) {
            let answer = match request {
                Request::Measure(_) => {
                    let busy = Duration::from_millis(400);
                    thread::sleep(settings.measure + settings.patience() + busy);
                    Answer::Pair(message::Side::default())
                }
                Request::Goodbye => Answer::Goodbye,
                _ => Answer::Clock(0),
            };
            frame::write(stream, &answer, limit).unwrap();
        }
    })
}

#[test]
fn partner_of_a_dead_member_is_not_lost() {
    let (address, leader) = started(settings("a"), &["a", "dead", "late"]);
    // It dies after it measured with `a`, so that it is `late` who waits for it.
    let dead = odd(address, "dead", 7, |_| {});
    let late = late(address, "late");
    let report = leader.join().unwrap().report;
    dead.join().unwrap();
    late.join().unwrap();
    assert_eq!(check(&report, "dead", "joined").outcome, Outcome::Fail);
    let joined = check(&report, "late", "joined");
    assert_eq!(joined.outcome, Outcome::Pass, "{joined:?}");
}

#[test]
fn wrong_token_cannot_join() {
    let mut quick = settings("a");
    quick.timeout = Duration::from_secs(4);
    let (address, leader) = started(quick, &["a", "b"]);
    let mut stranger = settings("b");
    stranger.token = "another".to_owned();
    let outcome = join(&stranger, address);
    assert!(
        matches!(outcome, Err(PeerError::Lost { .. })),
        "{outcome:?}"
    );
    let conducted = leader.join().unwrap();
    assert_eq!(conducted.joined, 1);
    assert_eq!(
        check(&conducted.report, "b", "joined").found,
        "did not join"
    );
    let shown = serde_json::to_string(&conducted.report).unwrap();
    assert!(!shown.contains("secret"), "{shown}");
}

/// Pods of two versions meet where a tag was moved to another image: none of them waits for its limit.
#[test]
fn another_version_is_refused() {
    let hello = |version: u32| Hello {
        version,
        token: "secret".to_owned(),
        node: "b".to_owned(),
        address: None,
        port: 1,
        trouble: None,
    };
    let limit = Limit::after(Duration::from_secs(30));
    let mut quick = settings("a");
    quick.timeout = Duration::from_secs(4);
    let (address, leader) = started(quick, &["a", "b"]);
    let old = TcpStream::connect(address).unwrap();
    frame::write(&old, &hello(VERSION - 1), limit).unwrap();
    let answer: Request = frame::read(&old, frame::LARGEST, limit).unwrap();
    let Request::Refused(why) = answer else {
        panic!("{answer:?}");
    };
    let (theirs, ours) = (VERSION - 1, VERSION);
    let want = format!("it speaks version {theirs} of the protocol, the leader version {ours}");
    assert_eq!(why, want);
    assert_eq!(leader.join().unwrap().joined, 1);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let leader = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        frame::write(&stream, &Request::Refused(why), limit).unwrap();
        stream
    });
    let refused = join(&settings("b"), address).unwrap_err().to_string();
    assert_eq!(
        refused,
        format!("the leader at `{address}` refused this pod: {want}")
    );
    drop(leader.join().unwrap());
}

#[test]
fn missing_leader_times_out() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut settings = settings("b");
    settings.timeout = Duration::from_secs(1);
    let start = Instant::now();
    let outcome = join(&settings, address);
    assert!(
        matches!(outcome, Err(PeerError::Reach { .. })),
        "{outcome:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn missing_interface_fails_its_node_only() {
    let (address, leader) = started(settings("a"), &["a", "b", "c"]);
    let mut without = settings("c");
    without.needs.interface = Some("net77".to_owned());
    let peers =
        [settings("b"), without].map(|settings| thread::spawn(move || join(&settings, address)));
    let report = leader.join().unwrap().report;
    for peer in peers {
        peer.join().unwrap().unwrap();
    }
    let bandwidth = check(&report, "c", "path-bandwidth");
    assert_eq!(bandwidth.outcome, Outcome::Fail);
    assert_eq!(bandwidth.found, "not measured: no interface `net77`");
    assert_ne!(check(&report, "a", "path-bandwidth").outcome, Outcome::Fail);
}

#[test]
fn tokens_are_the_same_or_not() {
    for (own, other, same) in [
        ("ab", "ab", true),
        ("ab", "aB", false),
        ("ab", "abc", false),
        ("", "", false),
    ] {
        assert_eq!(same_token(own, other), same, "{own} {other}");
    }
}
