//! The processes of a worker: every one that is started here, and every orphan they leave.
//!
//! One thread waits for all of them, so that none stays a zombie: the agent is the first process of its
//! container. A command's processes are found by a mark in their environment, also after they left
//! its group and lost their parent.
//!
//! Invariant: a process is reaped under the lock and taken off the table with it, so a number in the
//! table is never that of another process.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, PipeReader, PipeWriter, Write as _},
    os::unix::process::CommandExt as _,
    process::{self, Child, Command},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, kill, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::Pid,
};

/// The variable that marks what a command started.
const MARK: &str = "TRAINYARD_COMMAND";
/// Between SIGTERM and SIGKILL, for a command whose remote shell is gone.
const GRACE: Duration = Duration::from_secs(3);
/// Looks for what is left of a command, at most, and the time between two.
const SWEEPS: u32 = 50;
const SWEEP_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(crate) struct Children {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    running: BTreeMap<i32, Entry>,
    /// Commands started so far.
    count: u64,
}

#[derive(Debug)]
struct Entry {
    code: mpsc::Sender<i32>,
    wake: PipeWriter,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its streams.
    pub(crate) child: Child,
    /// Becomes readable when it has ended.
    pub(crate) wake: PipeReader,
    code: mpsc::Receiver<i32>,
    pid: Pid,
    mark: String,
}

impl Started {
    /// Its code, once it has ended.
    pub(crate) fn code(&self) -> Option<i32> {
        self.code.try_recv().ok()
    }
}

impl Children {
    /// Starts to wait for processes.
    pub(crate) fn adopt() -> io::Result<Arc<Self>> {
        prctl::set_child_subreaper(true)?;
        let children = Arc::new(Self::default());
        let reaper = Arc::clone(&children);
        thread::Builder::new()
            .name("reaper".to_owned())
            .spawn(move || reaper.reap_loop())?;
        Ok(children)
    }

    /// Starts `command` in a group of its own.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Started> {
        let (wake, waker) = io::pipe()?;
        let (sender, code) = mpsc::channel();
        // The table is held until it knows the process, however soon that ends.
        let mut table = self.table();
        table.count += 1;
        let mark = format!("{}-{}", process::id(), table.count);
        let child = command.env(MARK, &mark).process_group(0).spawn()?;
        let number = i32::try_from(child.id()).unwrap_or(i32::MAX);
        table.running.insert(
            number,
            Entry {
                code: sender,
                wake: waker,
            },
        );
        self.changed.notify_all();
        Ok(Started {
            child,
            wake,
            code,
            pid: Pid::from_raw(number),
            mark,
        })
    }

    /// Processes that were started and have not ended.
    pub(crate) fn running(&self) -> usize {
        self.table().running.len()
    }

    /// Ends a command and everything that it started.
    pub(crate) fn abort(&self, started: &Started) {
        self.signal(started, Signal::SIGTERM);
        // An error means that it has ended, which was reported before.
        started.code.recv_timeout(GRACE).ok();
        self.signal(started, Signal::SIGKILL);
        sweep(&started.mark);
    }

    /// Ends everything: asks first, and waits for at most `grace`.
    pub(crate) fn end_all(&self, grace: Duration) {
        let table = self.table();
        for pid in table.running.keys() {
            // One that has ended meanwhile is on the table until it is reaped.
            killpg(Pid::from_raw(*pid), Signal::SIGTERM).ok();
        }
        let waited = self
            .changed
            .wait_timeout_while(table, grace, |table| !table.running.is_empty());
        drop(waited);
        sweep(&format!("{}-", process::id()));
    }

    fn signal(&self, started: &Started, signal: Signal) {
        let table = self.table();
        if table.running.contains_key(&started.pid.as_raw()) {
            killpg(started.pid, signal).ok();
        }
    }

    fn reap_loop(&self) {
        loop {
            // Seen only, not reaped: until the lock is held, the number must stay taken.
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Ok(status) => {
                    if let Some(pid) = status.pid() {
                        self.reap(pid);
                    }
                }
                Err(Errno::ECHILD) => {
                    let table = self.table();
                    let idle = |table: &mut Table| table.running.is_empty();
                    drop(self.changed.wait_while(table, idle));
                }
                Err(_) => {}
            }
        }
    }

    fn reap(&self, pid: Pid) {
        let mut table = self.table();
        let code = match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => code,
            Ok(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
            _ => return,
        };
        if let Some(mut entry) = table.running.remove(&pid.as_raw()) {
            // The receiver may be gone.
            entry.code.send(code).ok();
            entry.wake.write_all(&[0]).ok();
        }
        self.changed.notify_all();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills every process whose mark begins with `mark`, until none is found.
fn sweep(mark: &str) {
    for _ in 0..SWEEPS {
        let found = marked(mark);
        if found.is_empty() {
            return;
        }
        for pid in found {
            kill(pid, Signal::SIGKILL).ok();
        }
        thread::sleep(SWEEP_EVERY);
    }
}

/// The processes with that mark; zombies have none any more.
fn marked(mark: &str) -> Vec<Pid> {
    let whole = format!("{MARK}={mark}");
    let is_marked = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| {
            if mark.ends_with('-') {
                variable.starts_with(whole.as_bytes())
            } else {
                variable == whole.as_bytes()
            }
        })
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_marked(*pid))
        .map(Pid::from_raw)
        .collect()
}
