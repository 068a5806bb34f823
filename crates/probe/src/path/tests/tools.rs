//! External programs in a gang, with scripts in their place: what they print, and how they fail.

use std::path::Path;

use tempfile::TempDir;
use trainyard_core::probe::tools::{Collective, Port, perftest};

use super::{
    super::{
        message::{Measure, Part, RdmaPart, Side},
        socket::Binding,
        stream::Session,
        tools,
    },
    *,
};
use crate::{program::tests::stand_in, read::tests::node::Node};

/// A client of `ib_write_bw`, which alone prints a rate; its last word is the address.
fn rate(gigabits: &str) -> String {
    format!(
        "for last; do :; done\ncase $last in *.*.*.*) ;; *) exit 0 ;; esac\n\
         echo ' #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]'\n\
         echo ' 65536      1000           0.00               {gigabits}               0.74'"
    )
}

fn reduced(gigabytes: &str, wrong: &str) -> String {
    format!("echo '# Out of bounds values : {wrong}'\necho '# Avg bus bandwidth    : {gigabytes}'")
}

/// A folder with a program of each kind, where there is one.
fn folder(perftest: Option<&str>, nccl: Option<&str>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, body) in [("ib_write_bw", perftest), ("all_reduce_perf", nccl)] {
        if let Some(body) = body {
            stand_in(folder.path(), name, body);
        }
    }
    folder
}

/// A member on a node with two GPUs and two RDMA ports, with these programs.
fn member(node: &str, root: &Path, programs: &Path) -> Settings {
    let mut settings = settings(node);
    settings.needs = Needs {
        asked_by: Some("PyTorchJob `llama`, Worker".to_owned()),
        transport: Some("roce".to_owned()),
        gid_index: Some(3),
        gpus: Some(2),
        bandwidth_gbps: Some(800),
        ..Needs::default()
    };
    settings.root = root.to_owned();
    settings.programs = vec![programs.to_owned()];
    settings
}

fn conducted(root: &Path, programs: &[(&str, &TempDir)]) -> Report {
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let (own, folder) = programs[0];
    let (address, leader) = started(member(own, root, folder.path()), &names);
    let peers: Vec<_> = programs[1..]
        .iter()
        .map(|(name, folder)| {
            let settings = member(name, root, folder.path());
            thread::spawn(move || join(&settings, address))
        })
        .collect();
    let report = leader.join().unwrap().report;
    for peer in peers {
        peer.join().unwrap().unwrap();
    }
    report
}

fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    // Few, so that they are read within the limit also by a busy machine.
    Node::below(root.path(), 2);
    root
}

#[test]
fn a_gang_measures_with_the_programs_of_its_image() {
    let root = tree();
    let good = folder(Some(&rate("390.10")), Some(&reduced("479.7", "0 OK")));
    let bad = folder(Some(&rate("40.00")), Some(&reduced("479.7", "12 FAILED")));
    let report = conducted(root.path(), &[("a", &good), ("b", &good), ("c", &bad)]);
    for name in ["a", "b"] {
        let rdma = check(&report, name, "rdma-bandwidth");
        assert_eq!(rdma.outcome, Outcome::Pass, "{rdma:?}");
        assert_eq!(rdma.found, "390.1 Gb/s at best, with 2 others");
        assert_eq!(rdma.subject, "mlx5_0/1");
        let gpus = check(&report, name, "gpu-collective");
        assert_eq!(
            (gpus.outcome, gpus.found.as_str()),
            (Outcome::Pass, "479.7 GB/s on each link")
        );
    }
    let rdma = check(&report, "c", "rdma-bandwidth");
    assert_eq!(rdma.outcome, Outcome::Fail, "{rdma:?}");
    let gpus = check(&report, "c", "gpu-collective");
    assert_eq!(
        (gpus.outcome, gpus.found.as_str()),
        (Outcome::Fail, "12 wrong values")
    );
    assert_eq!(check(&report, "c", "joined").outcome, Outcome::Pass);
    let shared: Vec<_> = report
        .shared
        .iter()
        .filter(|check| check.name == "rdma-bandwidth")
        .collect();
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert_eq!(
        shared[0].needed,
        "0.7 of 400 Gb/s, the share of one of 2 ports"
    );
}

#[test]
fn missing_program_is_reported_not_failed() {
    let root = tree();
    let empty = folder(None, None);
    let report = conducted(root.path(), &[("a", &empty), ("b", &empty)]);
    for (name, package) in [
        ("rdma-bandwidth", "perftest"),
        ("gpu-collective", "nccl-tests"),
    ] {
        let result = check(&report, "a", name);
        assert_eq!(
            (result.outcome, result.found.as_str()),
            (Outcome::NotApplicable, "not measured")
        );
        assert!(
            result.needed.contains(&format!("install `{package}`")),
            "{}",
            result.needed
        );
    }
}

#[test]
fn serving_side_reports_its_error() {
    let root = tree();
    let good = folder(
        Some("echo \"Couldn't connect to 127.0.0.1:1\" >&2; exit 1"),
        Some(&reduced("479.7", "0 OK")),
    );
    let bad = folder(
        Some("echo \" Couldn't get context for the device\" >&2; exit 1"),
        Some("echo 'gpu-0: Test CUDA failure common.cu:9 out of memory'; exit 2"),
    );
    let report = conducted(root.path(), &[("a", &good), ("b", &bad)]);
    let shared = report
        .shared
        .iter()
        .find(|check| check.name == "rdma-bandwidth")
        .unwrap();
    assert_eq!(shared.outcome, Outcome::Fail);
    assert_eq!(
        shared.found,
        "nothing between any two nodes; b: `ib_write_bw` ended with exit code 1: Couldn't get context for the device"
    );
    let gpus = check(&report, "b", "gpu-collective");
    assert_eq!(gpus.outcome, Outcome::Fail, "{gpus:?}");
    assert!(
        gpus.found
            .ends_with("Test CUDA failure common.cu:9 out of memory"),
        "{gpus:?}"
    );
}

/// Both sides of a pair, each with its own programs, within `limit`.
fn pair(programs: [&TempDir; 2], limit: Duration) -> [Side; 2] {
    let binding = Binding::default();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listeners[1].local_addr().unwrap();
    let folders = programs.map(|folder| vec![folder.path().to_owned()]);
    let side = |index: usize, to: Option<SocketAddr>| {
        let session = Session {
            binding: &binding,
            listener: &listeners[index],
            token: "secret",
            measure: Duration::from_millis(50),
            patience: Duration::from_secs(20),
        };
        let own = RdmaPart {
            port: Port {
                device: "mlx5_0".to_owned(),
                number: 1,
                gid_index: Some(3),
                of: 1,
            },
            seconds: 1,
        };
        let part = Part {
            id: 1,
            to,
            limit,
            measure: Measure::Rdma(own.clone()),
        };
        tools::rdma(&session, &folders[index], &part, &own)
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| side(1, None));
        let first = side(0, Some(address));
        [first, second.join().unwrap()]
    })
}

#[test]
fn a_server_that_takes_a_moment_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("tried");
    // The first try is refused, as when the other side's program does not listen yet.
    let body = format!(
        "case \"$*\" in *127.0.0.1) [ -e {mark} ] || {{ : > {mark}; echo \"Couldn't connect to x\" >&2; exit 1; }} ;; esac\n{}",
        rate("100.00"),
        mark = mark.display(),
    );
    stand_in(folder.path(), perftest::PROGRAM, &body);
    let [first, second] = pair([&folder, &folder], Duration::from_mins(1));
    assert_eq!(
        (first.rate, second.rate),
        (Some(100e9), Some(100e9)),
        "{first:?} {second:?}"
    );
    assert!(mark.exists());
}

#[test]
fn a_program_that_hangs_is_a_result() {
    let good = folder(Some(&rate("100.00")), None);
    let hangs = folder(Some("exec sleep 1000"), Some("exec sleep 1000"));
    let [first, second] = pair([&hangs, &good], Duration::from_millis(1_500));
    let why = first.trouble.unwrap();
    assert!(
        why.starts_with("`ib_write_bw` did not end within "),
        "{why}"
    );
    assert_eq!((first.rate, second.rate), (None, None));
    let within = Duration::from_secs(1);
    let found = tools::collective(&[hangs.path().to_owned()], 8, within);
    let want = "`all_reduce_perf` did not end within 1 s";
    assert_eq!(found, Collective::Troubled(want.to_owned()));
}
