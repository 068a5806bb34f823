//! The agent of an `MPIJob`: real workers on loopback addresses, a real `mpirun`.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says why and ends"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use pem::Pem;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use trainyard_core::launch::agent::{SERVER_NAME, file};

/// Every wait ends after this.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(10);
const NOBODY: u32 = 65_534;

/// The folder in which the program is installed, as in a pod.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = open_folder();
        for _ in 0..2 {
            let done = Command::new(env!("CARGO_BIN_EXE_trainyard"))
                .args(["agent", "install"])
                .arg(folder.path())
                .status();
            assert!(done.unwrap().success(), "installing again does no harm");
        }
        folder
    });
    folder.path()
}

/// A folder that every user may read.
pub(crate) fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// One job: its identity, its attempt, its port.
struct Harness {
    folder: tempfile::TempDir,
    attempt: u32,
    port: u16,
    user: Option<u32>,
}

impl Harness {
    fn new() -> Self {
        let folder = open_folder();
        write_identity(folder.path());
        // Two workers have the same port at different addresses; it is free on all of them now.
        let port = TcpListener::bind("0.0.0.0:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Self {
            folder,
            attempt: 1,
            port,
            user: None,
        }
    }

    /// Another pod of the same job, in another attempt.
    fn in_attempt(&self, attempt: u32) -> Self {
        let folder = open_folder();
        for name in [file::AUTHORITY, file::CERTIFICATE, file::KEY] {
            fs::copy(self.folder.path().join(name), folder.path().join(name)).unwrap();
        }
        Self {
            folder,
            attempt,
            ..*self
        }
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("TRAINYARD_ATTEMPT", self.attempt.to_string())
            .env("TRAINYARD_AGENT_IDENTITY", self.folder.path())
            .env("TRAINYARD_AGENT_WAIT", "20")
            .env("TRAINYARD_AGENT_LISTEN", format!("0.0.0.0:{}", self.port));
        if let Some(user) = self.user {
            command.uid(user).gid(user).current_dir("/");
        }
        command
    }

    /// A worker at 127.0.0.`number`, with `beside` running beside it.
    fn worker(&self, number: u8, beside: &[&str]) -> Worker {
        let mut child = self
            .command(installed().join("trainyard"))
            .env(
                "TRAINYARD_AGENT_LISTEN",
                format!("127.0.0.{number}:{}", self.port),
            )
            .args(["agent", "serve"])
            .args(if beside.is_empty() { &[][..] } else { &["--"] })
            .args(beside)
            // As in a pod, which has a /tmp of its own: two daemons of Open MPI that share a host name and a folder for
            // their session remove each other's files.
            .env("TMPDIR", self.scratch(&number.to_string()))
            // What a test leaves behind must not hold the output of the tests open.
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut worker = Worker { child, log };
        let mut line = String::new();
        worker.log.read_line(&mut line).unwrap();
        let want = format!(
            "trainyard: ready for commands of attempt {} on port {}\n",
            self.attempt, self.port
        );
        assert_eq!(line, want);
        worker
    }

    /// A folder for temporary files that every user may write to.
    fn scratch(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        folder
    }

    /// The remote shell, asked to run `line` at 127.0.0.`number`.
    fn shell(&self, number: u8, line: &str) -> Command {
        let mut command = self.command(installed().join("rsh"));
        command
            .arg(format!("127.0.0.{number}"))
            .arg(line)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, number: u8, line: &str) -> Output {
        self.shell(number, line).output().unwrap()
    }
}

/// A worker that is killed with the value.
struct Worker {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Worker {
    fn terminate(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        self.child.wait().unwrap().code()
    }

    /// What it logged, once it has ended.
    fn log(mut self) -> String {
        self.child.kill().unwrap();
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn write_identity(folder: &Path) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let key = KeyPair::generate().unwrap();
    let certificate = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let mut leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
    leaf.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
    let write = |name: &str, tag: &str, der: &[u8]| {
        fs::write(folder.join(name), pem::encode(&Pem::new(tag, der))).unwrap();
    };
    write(file::AUTHORITY, "CERTIFICATE", certificate.der());
    write(file::CERTIFICATE, "CERTIFICATE", leaf.der());
    write(file::KEY, "PRIVATE KEY", leaf_key.serialized_der());
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(LOOK);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a process of that number is there and no zombie.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn is_root() -> bool {
    fs::metadata("/proc/self")
        .map(|me| std::os::unix::fs::MetadataExt::uid(&me))
        .unwrap()
        == 0
}

#[test]
fn a_command_has_its_streams_and_its_code() {
    let harness = Harness::new();
    let _worker = harness.worker(2, &[]);
    let cases: [(&str, &str, &str, i32); 5] = [
        ("echo out; echo err >&2; exit 3", "out\n", "err\n", 3),
        ("printf '%s|' \"a b\" c", "a b|c|", "", 0),
        ("echo attempt $TRAINYARD_ATTEMPT", "attempt 1\n", "", 0),
        ("kill -TERM $$", "", "", 143),
        // What is left in the background does not hold up the answer, as Open MPI's daemons do not.
        ("sleep 60 & echo left", "left\n", "", 0),
    ];
    for (line, stdout, stderr, code) in cases {
        let output = harness.run(2, line);
        assert_eq!(
            (text(&output.stdout).as_str(), text(&output.stderr).as_str()),
            (stdout, stderr),
            "{line}"
        );
        assert_eq!(output.status.code(), Some(code), "{line}");
    }
    let output = harness
        .shell(2, "exec true")
        .arg("-o")
        .arg("with more words")
        .output();
    assert_eq!(output.unwrap().status.code(), Some(0));
}

#[test]
fn streams_of_any_size_pass_both_ways() {
    let harness = Harness::new();
    let _worker = harness.worker(2, &[]);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut child = harness
        .shell(2, "cat; cat /dev/null")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn({
        let sent = sent.clone();
        move || stdin.write_all(&sent).unwrap()
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(
        output.stdout == sent,
        "{} bytes came back",
        output.stdout.len()
    );
    // A command that reads nothing does not hold up whoever sends to it.
    let mut child = harness
        .shell(2, "exec <&-; echo done")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(&sent).is_ok());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "done\n");
    writer.join().unwrap();
}

#[test]
fn strangers_and_other_attempts_are_refused() {
    let harness = Harness::new();
    let worker = harness.worker(2, &[]);

    let mut stranger = Harness::new();
    stranger.port = harness.port;
    let output = stranger
        .shell(2, "echo ran")
        .env("TRAINYARD_AGENT_WAIT", "0")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(
        said.contains("the other side is not a pod of this job"),
        "{said}"
    );

    // The launcher of a newer attempt waits for the pod that takes this one's place.
    let newer = harness.in_attempt(2);
    let output = newer
        .shell(2, "echo ran")
        .env("TRAINYARD_AGENT_WAIT", "0")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(255));
    let said = text(&output.stderr);
    let want = "this worker is part of attempt 1, the command comes from attempt 2";
    assert!(said.contains(want) && said.contains("tried for"), "{said}");
    drop(worker.log());

    // The launcher of an older attempt is refused at once.
    let worker = newer.worker(2, &[]);
    let output = harness.run(2, "echo ran");
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(text(&output.stdout), "");
    let want = "trainyard: cannot run a command on `127.0.0.2`: this worker is part of attempt 2, \
                the command comes from attempt 1\n";
    assert_eq!(text(&output.stderr), want);
    let log = worker.log();
    assert!(
        log.contains("was refused: this worker is part of attempt 2"),
        "{log}"
    );
}

#[test]
fn client_without_tls_is_harmless() {
    let harness = Harness::new();
    let worker = harness.worker(2, &[]);
    let address = format!("127.0.0.2:{}", harness.port);
    // A probe of the port leaves no trace.
    drop(TcpStream::connect(&address).unwrap());
    let mut socket = TcpStream::connect(&address).unwrap();
    socket.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // It is hung up on, whether in order or not.
    drop(socket.read_to_end(&mut answer));
    assert!(answer.len() < 16, "{answer:?}");
    assert_eq!(harness.run(2, "echo still here").stdout, b"still here\n");
    let log = worker.log();
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn silent_connections_do_not_keep_commands_out() {
    let harness = Harness::new();
    let _worker = harness.worker(2, &[]);
    let address = format!("127.0.0.2:{}", harness.port);
    let took = || {
        let began = Instant::now();
        assert_eq!(harness.run(2, "echo still here").stdout, b"still here\n");
        began.elapsed()
    };
    let quiet = took();
    let flood: Vec<TcpStream> = (0..700)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    // Silent ones are hung up on after 10 s at the latest; nobody waits for that. A machine with much else to do takes long for both.
    let flooded = took();
    assert!(
        flooded < Duration::from_secs(8) + 8 * quiet,
        "{quiet:?} {flooded:?}"
    );
    drop(flood);
}

#[test]
fn the_remote_shell_waits_for_its_worker() {
    let harness = Harness::new();
    let child = harness.shell(2, "echo at last").spawn().unwrap();
    // It looks for its worker in vain, whether before or after its first try.
    until("it runs", || lives(&child.id().to_string()));
    let _worker = harness.worker(2, &[]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "at last\n",
        "{}",
        text(&output.stderr)
    );

    let output = harness
        .shell(9, "echo never")
        .env("TRAINYARD_AGENT_WAIT", "0")
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(255));
    let said = text(&output.stderr);
    assert!(said.contains("cannot connect to `127.0.0.9`"), "{said}");
}

#[test]
fn killed_remote_shell_leaves_no_processes() {
    let harness = Harness::new();
    let _worker = harness.worker(2, &[]);
    // One in the group, one that left it and has lost its parent.
    let line = "echo $$; setsid sh -c 'echo $$; exec sleep 600' & sleep 0.1; (setsid sh -c 'echo $$; \
                trap \"\" TERM; while :; do sleep 1; done' &); sleep 600";
    let mut child = harness.shell(2, line).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pids: Vec<String> = lines.take(3).map(Result::unwrap).collect();
    assert!(pids.iter().all(|pid| lives(pid)), "{pids:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    until("all its processes are gone", || {
        !pids.iter().any(|pid| Path::new("/proc").join(pid).exists())
    });
    assert_eq!(harness.run(2, "echo goes on").stdout, b"goes on\n");
}

#[test]
fn worker_exit_ends_its_other_processes() {
    let harness = Harness::new();
    let mut worker = harness.worker(2, &["sh", "-c", "exit 7"]);
    assert_eq!(worker.child.wait().unwrap().code(), Some(7));
    drop(worker);

    let mut worker = harness.worker(2, &["sleep", "600"]);
    let mut child = harness.shell(2, "echo $$; exec sleep 600").spawn().unwrap();
    let mut pid = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut pid)
        .unwrap();
    assert_eq!(worker.terminate(), Some(143));
    assert!(!lives(&pid), "{pid}");
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(143 | 255)), "{code:?}");
}

#[test]
fn orphans_are_reaped() {
    let harness = Harness::new();
    let worker = harness.worker(2, &[]);
    let children = PathBuf::from(format!("/proc/{0}/task/{0}/children", worker.child.id()));
    for _ in 0..20 {
        harness.run(2, "(sleep 0.01 &)");
    }
    until("no child is left", || {
        fs::read_to_string(&children).is_ok_and(|list| list.trim().is_empty())
    });
}

#[test]
fn words_that_describe_no_pod_are_refused() {
    let output = Command::new(installed().join("ssh"))
        .args(["w-0", "true"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert_eq!(
        text(&output.stderr),
        "error: the variable `TRAINYARD_ATTEMPT` is not set, so this is not a pod of an `MPIJob`\n"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_trainyard"))
        .args(["agent", "dance"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("unknown command `dance` of `agent`; expected `install`, `serve` or `rsh`"),
        "{said}"
    );
}

#[test]
fn mpirun_starts_its_ranks_through_the_agent() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("SKIPPED: no `mpirun` on this machine; install Open MPI to run this test");
        return;
    }
    let users: &[Option<u32>] = if is_root() {
        &[None, Some(NOBODY)]
    } else {
        &[None]
    };
    for user in users {
        let harness = Harness {
            user: *user,
            ..Harness::new()
        };
        let folder = harness.folder.path();
        // Open MPI takes a loopback address for its own machine, so hosts have names here and the
        // script finds their addresses, as the cluster's DNS would.
        fs::write(folder.join("hostfile"), "w-2 slots=2\nw-3 slots=1\n").unwrap();
        let script = folder.join("rsh");
        let shell = installed().join("rsh");
        let lines = format!(
            "#!/bin/sh\nhost=$1; shift\nexec {} 127.0.0.${{host#w-}} \"$@\"\n",
            shell.display()
        );
        fs::write(&script, lines).unwrap();
        let _workers = [2, 3].map(|number| harness.worker(number, &[]));
        let output = harness
            .command("mpirun")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            // Read, not run: a program that this process wrote may be open still in a child that another test is just
            // starting, and is busy then.
            .env(
                "OMPI_MCA_plm_rsh_agent",
                format!("/bin/sh {}", script.display()),
            )
            .env("TMPDIR", harness.scratch("launcher"))
            .env("HOME", "/tmp")
            .args(["-np", "3", "--hostfile"])
            .arg(folder.join("hostfile"))
            .args([
                "sh",
                "-c",
                "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE",
            ])
            .output()
            .unwrap();
        let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        let want = ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"];
        assert_eq!(lines, want, "user {user:?}: {}", text(&output.stderr));
        assert!(output.status.success());
    }
}
