use std::process::{Child, Command};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use trainyard_profile::kineto::{Detail, Extent};

use super::*;

/// A daemon in folders of its own.
fn daemon(root: &Path) -> Daemon {
    let folders = Folders {
        sockets: root.join("s"),
        traces: root.join("traces"),
    };
    Daemon::start_in(folders).unwrap()
}

/// A short path, as sockets need it.
fn root() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("ty")
        .tempdir_in("/tmp")
        .unwrap()
}

/// A client in this process: its messages are those that `PyTorch` 2.15 sends.
struct Client {
    socket: UnixDatagram,
    daemon: PathBuf,
}

impl Client {
    fn new(daemon: &Daemon, name: &str) -> Self {
        let folder = &daemon.folders().sockets;
        let socket = UnixDatagram::bind(folder.join(format!("dynoconfigclient{name}"))).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            socket,
            daemon: folder.join(SOCKET),
        }
    }

    fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, &self.daemon).unwrap();
    }

    fn receive(&self) -> (String, String) {
        let mut bytes = [0; 8192];
        let (length, _) = self.socket.recv_from(&mut bytes).unwrap();
        let size = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(size, (length - 40) as u64);
        let kind = String::from_utf8_lossy(&bytes[8..40])
            .trim_end_matches('\0')
            .to_owned();
        (
            kind,
            String::from_utf8_lossy(&bytes[40..length]).into_owned(),
        )
    }

    /// Asks for work; the configuration.
    fn ask(&self, kinds: i32) -> String {
        self.send(&request(kinds, &[std::process::id()]));
        let (kind, text) = self.receive();
        assert_eq!(kind, "req");
        text
    }
}

fn request(kinds: i32, pids: &[u32]) -> Vec<u8> {
    let mut payload = kinds.to_le_bytes().to_vec();
    payload.extend(u32::try_from(pids.len()).unwrap().to_le_bytes());
    payload.extend(0_i64.to_le_bytes());
    payload.extend(pids.iter().flat_map(|pid| pid.to_le_bytes()));
    let mut bytes = (payload.len() as u64).to_le_bytes().to_vec();
    bytes.extend(b"req");
    bytes.resize(40, 0);
    bytes.extend(payload);
    bytes
}

/// An order for these processes as ranks 0, 1, …; the other end of its terminal.
fn begin(daemon: &Daemon, pids: &[u32], timeout_seconds: u32) -> OwnedFd {
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap();
    let order = Order {
        recording: Recording {
            ranks: Vec::new(),
            extent: Extent::Steps {
                count: 5,
                round_up: 20,
            },
            detail: Detail::Plain,
            timeout_seconds,
        },
        attempt: 1,
        pods: Vec::new(),
        known: (0_u32..)
            .zip(pids)
            .map(|(rank, pid)| RankProcess {
                rank,
                pod: "j-worker-0".to_owned(),
                pid: *pid,
            })
            .collect(),
        missing: Vec::new(),
        socket: theirs,
    };
    daemon.order(order).unwrap();
    ours
}

fn answer(terminal: &OwnedFd) -> Recorded {
    let (answer, descriptors) = channel::receive::<Answer>(terminal).unwrap().unwrap();
    assert!(matches!(answer, Answer::Profile), "{answer:?}");
    channel::from_memory(descriptors.into_iter().next().unwrap()).unwrap()
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

#[test]
fn a_client_records_and_the_terminal_gets_its_file() {
    let root = root();
    let daemon = daemon(root.path());
    let client = Client::new(&daemon, "a");
    assert_eq!(client.ask(2), "", "nobody asked for a trace");
    let terminal = begin(&daemon, &[std::process::id()], 60);
    let text = loop {
        // The order is taken between two messages.
        let text = client.ask(2);
        if !text.is_empty() {
            break text;
        }
    };
    let traces = &daemon.folders().traces;
    let want = format!(
        "ACTIVITIES_LOG_FILE={}\nREQUEST_TRACE_ID=1\nPROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=20\nACTIVITIES_ITERATIONS=6\n",
        traces.join("request-1-rank-0.json").display()
    );
    assert_eq!(text, want);
    assert_eq!(client.ask(2), "", "work is given once");
    assert_eq!(client.ask(1), "", "it is busy");
    let file = traces.join("request-1-rank-0_77.json");
    fs::write(file.with_extension("json.tmp"), "{}").unwrap();
    fs::rename(file.with_extension("json.tmp"), &file).unwrap();
    let recorded = answer(&terminal);
    assert_eq!(recorded.missing, []);
    assert_eq!(
        (recorded.traces[0].rank, &recorded.traces[0].path),
        (0, &file)
    );
}

#[test]
fn strangers_and_damaged_messages_get_no_work() {
    let root = root();
    let daemon = daemon(root.path());
    let mut other = sleeper();
    let terminal = begin(&daemon, &[other.id()], 60);
    let client = Client::new(&daemon, "a");
    // It claims to be the rank, and the kernel knows better.
    client.send(&request(2, &[other.id()]));
    assert_eq!(client.receive(), ("req".to_owned(), String::new()));
    for damaged in [
        Vec::new(),
        vec![0; 39],
        [request(2, &[1]), vec![0]].concat(),
        [vec![0xff; 8], b"req".to_vec(), vec![0; 29]].concat(),
        request(2, &[1; 500]),
        vec![0; 9000],
    ] {
        client.send(&damaged);
    }
    // None of them was answered: the next answer is that to a registration.
    let mut context = 16_u64.to_le_bytes().to_vec();
    context.extend(b"ctxt");
    context.resize(56, 0);
    client.send(&context);
    assert_eq!(client.receive().0, "ctxt");
    other.kill().unwrap();
    other.wait().unwrap();
    let recorded = answer(&terminal);
    assert_eq!(
        recorded.missing[0].reason,
        "its process ended before its trace was written"
    );
}

#[test]
fn a_client_that_is_gone_costs_nothing() {
    let root = root();
    let daemon = daemon(root.path());
    let gone = Client::new(&daemon, "gone");
    gone.send(&request(2, &[std::process::id()]));
    drop(gone);
    fs::remove_file(daemon.folders().sockets.join("dynoconfigclientgone")).unwrap();
    let client = Client::new(&daemon, "a");
    assert_eq!(client.ask(2), "");
}

#[test]
fn one_recording_at_a_time_and_none_waits_forever() {
    let root = root();
    let daemon = daemon(root.path());
    let terminal = begin(&daemon, &[std::process::id()], 0);
    let recorded = answer(&terminal);
    assert!(
        recorded.missing[0].reason.contains("did not ask for work"),
        "{recorded:?}"
    );
    let _open = begin(&daemon, &[std::process::id()], 600);
    let (_, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .unwrap();
    let order = Order {
        recording: Recording {
            ranks: Vec::new(),
            extent: Extent::Seconds(1),
            detail: Detail::Plain,
            timeout_seconds: 1,
        },
        attempt: 1,
        pods: Vec::new(),
        known: Vec::new(),
        missing: Vec::new(),
        socket: theirs,
    };
    let refused = daemon.order(order).unwrap_err();
    assert!(refused.contains("another terminal"), "{refused}");
}

#[test]
fn folders_of_engines_that_are_gone_are_removed() {
    let root = root();
    let mut child = sleeper();
    let lives = root.path().join(format!("{PREFIX}{}", child.id()));
    // Beyond the largest process id of Linux.
    let gone = root.path().join(format!("{PREFIX}4194305"));
    let other = root.path().join("trainyard-kineto-x");
    for folder in [&lives, &gone, &other] {
        fs::create_dir(folder).unwrap();
    }
    sweep(root.path());
    assert_eq!(
        (lives.exists(), gone.exists(), other.exists()),
        (true, false, true)
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn sockets_in_a_long_path_are_refused() {
    let root = root();
    let folders = Folders {
        sockets: root.path().join("x".repeat(60)),
        traces: root.path().join("traces"),
    };
    let error = Daemon::start_in(folders).unwrap_err();
    assert!(error.to_string().contains("at most 54"), "{error}");
}
