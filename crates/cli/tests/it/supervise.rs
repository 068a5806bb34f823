//! Supervisors of a gang: real processes on loopback addresses, an operator that the test plays.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says why and ends"
)]

mod gang;
mod hang;
mod inspect;
mod operator;
mod peers;
mod plain;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trainyard_core::{
    launch::supervise::{OperatorAddress, SuperviseSettings, SupervisedRanks, SupervisedWatch},
    spec::{OnNan, Role, Slot, WatchMode},
};

use crate::agent::{open_folder, write_identity};

const JOB: &str = "job-uid";
const TOKEN: &str = "token-of-the-leader";
/// Every wait ends after this. Ranks that take steps together start some processes for each, which takes long beside other tests.
const PATIENCE: Duration = Duration::from_mins(4);
const LOOK: Duration = Duration::from_millis(10);

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(LOOK);
    }
}

/// Whether a process of that number is there and no zombie.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ");
    state.is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// A loopback address that no other gang of this run has, so that nobody takes its port before the leader listens.
fn own_address() -> std::net::SocketAddr {
    static GANGS: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
    let number = GANGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    ([127, high | 0x80, low, number], 28_023).into()
}

fn send_signal(name: &str, pid: u32) {
    let sent = Command::new("kill").arg(name).arg(pid.to_string()).status();
    assert!(sent.unwrap().success(), "kill {name} {pid}");
}

/// One gang: a folder with its identity, and the address of its leader.
struct Gang {
    folder: tempfile::TempDir,
    /// The address of its leader.
    address: std::net::SocketAddr,
    operator: Option<String>,
    count: u32,
    watch: SupervisedWatch,
    hold_ms: u64,
}

impl Gang {
    fn new(count: u32) -> Self {
        let folder = open_folder();
        write_identity(folder.path());
        operator::write_token(&folder.path().join("token"), TOKEN);
        Self {
            address: own_address(),
            folder,
            operator: None,
            count,
            watch: SupervisedWatch {
                mode: WatchMode::Act,
                hang_after_ms: 600_000,
                hang_floor_ms: 30_000,
                first_step_within_ms: 1_800_000,
                on_nan: OnNan::Report,
            },
            hold_ms: 30_000,
        }
    }

    fn slots(&self) -> Vec<Slot> {
        (0..self.count).map(worker).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder that the supervisor of the pod `index` shares with its program.
    fn run_folder(&self, index: u32) -> PathBuf {
        self.path(&format!("run-{index}"))
    }

    fn settings(&self, index: u32) -> SuperviseSettings {
        fs::create_dir_all(self.run_folder(index)).unwrap();
        let file = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let operator = OperatorAddress {
            // A port that nobody listens on, where there is no operator.
            address: self.operator.clone().unwrap_or("127.0.0.1:9".to_owned()),
            server_name: trainyard_core::launch::agent::SERVER_NAME.to_owned(),
            authority: file("ca.crt"),
            token: file("token"),
        };
        SuperviseSettings {
            run: self.run_folder(index).to_str().map(str::to_owned),
            last_words: None,
            job: JOB.to_owned(),
            slot: worker(index),
            waits: false,
            exits_on_success: true,
            identity: self.folder.path().to_str().unwrap().to_owned(),
            leader: self.address.to_string(),
            operator: (index == 0).then_some(operator),
            start_within_ms: 900_000,
            stop_grace_ms: 5_000,
            ranks: SupervisedRanks {
                first: index,
                count: 1,
                all: self.count,
            },
            network: false,
            evidence: None,
            watch: self.watch,
        }
    }

    /// Starts the supervisor of the pod `index` with a shell that runs `script`.
    fn start(&self, index: u32, script: &str) -> Supervised {
        self.start_with(index, script, &self.settings(index))
    }

    fn start_with(&self, index: u32, script: &str, settings: &SuperviseSettings) -> Supervised {
        let text = serde_json::to_string(settings).unwrap();
        let mut command = supervise(&["sh", "-c", script]);
        command
            .env("TRAINYARD_SUPERVISE", text)
            .env("TRAINYARD_POD_UID", format!("uid-{index}"))
            .env("TRAINYARD_ATTEMPT", "1")
            .env("TRAINYARD_SUPERVISE_LISTEN", self.address.to_string())
            .env("TRAINYARD_SUPERVISE_HOLD_MS", self.hold_ms.to_string());
        Supervised::start(command, self.folder.path(), &format!("pod-{index}"))
    }
}

fn supervise(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    command.args(["supervise", "--"]).args(words);
    command
}

/// A supervisor that ends with the value, and what it and its program print.
struct Supervised {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Supervised {
    fn start(mut command: Command, folder: &Path, name: &str) -> Self {
        let out = folder.join(format!("{name}.out"));
        let err = folder.join(format!("{name}.err"));
        let child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Self { child, out, err }
    }

    fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// The number behind `word` in the last line of its output that begins with it.
    fn number(&self, word: &str) -> Option<u32> {
        let out = self.out();
        let line = out.lines().rev().find_map(|line| line.strip_prefix(word))?;
        line.trim().parse().ok()
    }

    /// Waits for its end.
    fn code(&mut self) -> Option<i32> {
        let mut code = None;
        until("the supervisor ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.and_then(|code| code.code())
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        // It passes this on to its program, which would outlive it otherwise.
        drop(
            Command::new("kill")
                .arg(self.child.id().to_string())
                .status(),
        );
        let end = Instant::now() + Duration::from_secs(5);
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < end {
            thread::sleep(LOOK);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
