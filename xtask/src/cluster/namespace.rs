//! The namespaces that a cluster lives in: processes, mounts and network of its own.
//!
//! Process 1 of them is `pause`. When it ends, however it ends, the kernel ends every process that
//! it holds, shims and pods too; with the last of them the mounts and the network are gone. So
//! taking a cluster down is ending one process, and nothing has to be undone in order.
//!
//! Invariant: process 1 carries the folder of its cluster as an argument from its first moment, so
//! it is found by looking at what runs. No file that could be stale says where it is. Programs that
//! work for the cluster outside of its namespaces carry it as a variable, which their children
//! inherit, so that they are found although whoever started them was killed.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{state::State, wait};
use crate::{Failure, cache::cannot, process::Process};

/// What process 1 does before it becomes `pause`. Addresses lie on the loopback device, which needs
/// no device that a kernel may lack; pods reach them through their bridges.
const INIT: &str = r#"
set -eu
mark=$1 ready=$2 pause=$3
shift 3
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/netns /run/lock
ip link set lo up
for address in "$@"; do ip address add "$address/32" dev lo; done
echo 1 >/proc/sys/net/ipv4/ip_forward
: >"$ready"
exec "$pause" "$mark"
"#;

/// The variable that a helper carries.
const HELPS: &str = "TRAINYARD_CLUSTER_HELPER";

/// The limit on making namespaces and on their end, both of which take well under a second.
const LIMIT: Duration = Duration::from_mins(1);

/// Namespaces that are there.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// Their process 1, as the caller sees it.
    init: Process,
}

impl Namespaces {
    /// Those of the cluster, if it has any.
    pub(super) fn find(state: &State) -> Option<Self> {
        marked_processes(state)
            .into_iter()
            .find(|process| process.is_first_of_namespace() && process.program_name() == "pause")
            .map(|init| Self { init })
    }

    /// Makes them; the cluster must have none.
    pub(super) fn make(state: &State, addresses: &[&str]) -> Result<Self, Failure> {
        let ready = state.file("namespaces");
        let log_path = state.log("namespaces");
        let log = File::create(&log_path).map_err(cannot("make", &log_path))?;
        let copy = log.try_clone().map_err(cannot("use", &log_path))?;
        drop(fs::remove_file(&ready));
        let mut child = Command::new("setsid")
            .args(["unshare", "--net", "--mount", "--pid"])
            .args(["--propagation", "private"])
            .args(["--fork", "--kill-child=KILL"])
            .args(["sh", "-c", INIT, "sh"])
            .arg(mark(state))
            .arg(&ready)
            .arg(state.program("pause"))
            .args(addresses)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            .spawn()
            .map_err(|error| {
                Failure::CouldNotRun(format!(
                    "cannot start `setsid unshare`: {error}\n\nhint: Debian has both in \
                     `util-linux`"
                ))
            })?;
        let mut made = None;
        let outcome = wait::until("the namespaces", LIMIT, || {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(Failure::CouldNotRun(format!(
                    "cannot make the namespaces of the cluster, which only root can: {status}{}",
                    state.log_tail("namespaces")
                )));
            }
            if ready.exists() {
                made = Self::find(state);
            }
            Ok(made.is_some())
        });
        if let Err(failure) = outcome {
            end(state)?;
            return Err(failure);
        }
        made.ok_or_else(|| Failure::CouldNotRun("the namespaces are not there".to_owned()))
    }

    /// `program` inside, in `folder`.
    pub(super) fn command(&self, folder: &Path, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--net", "--mount", "--pid", "--target"])
            .arg(self.init.pid.to_string())
            // Entering the mounts leads to their root.
            .args(["sh", "-c", r#"cd "$0" && exec "$@""#])
            .arg(folder)
            .arg(program);
        command
    }

    /// Every process in them but those of pods, which have namespaces of their own.
    pub(super) fn processes(&self) -> Vec<Process> {
        let own = self.init.namespace();
        Process::all()
            .into_iter()
            .filter(|process| own.is_some() && process.namespace() == own)
            .collect()
    }

    /// Their process 1 and all that it holds, those of pods too.
    pub(super) fn everything(&self) -> Vec<Process> {
        let mut left = Process::all();
        let mut found = vec![self.init.clone()];
        let mut at = 0;
        while let Some(pid) = found.get(at).map(|process| process.pid) {
            let (children, others) = left
                .into_iter()
                .partition(|process| process.parent() == Some(pid));
            found.extend::<Vec<Process>>(children);
            left = others;
            at += 1;
        }
        found
    }

    /// Kills process 1.
    pub(super) fn kill_first(&self) {
        self.init.kill("KILL");
    }

    /// Seconds since they were made.
    pub(super) fn age(&self) -> Option<Duration> {
        self.init.age()
    }
}

/// `program` outside of the namespaces, to be ended with the cluster.
///
/// The caller holds the lock of the cluster, and so does its child until it has become `program`:
/// whoever has the lock next sees the variable.
pub(super) fn helper(state: &State, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env(HELPS, state.folder());
    command
}

/// Ends the namespaces of the cluster, finished or not, all that they hold, and its helpers.
pub(super) fn end(state: &State) -> Result<(), Failure> {
    wait::until("the end of the cluster's processes", LIMIT, || {
        let left = marked_processes(state);
        for process in &left {
            process.kill("KILL");
        }
        Ok(left.is_empty())
    })
}

/// Every process that makes or holds namespaces of the cluster, and its helpers.
fn marked_processes(state: &State) -> Vec<Process> {
    let mark = mark(state);
    Process::all()
        .into_iter()
        .filter(|process| process.arguments.contains(&mark) || is_helper(state, process))
        .collect()
}

/// Whether the process works for the cluster, by itself or for a helper.
pub(super) fn is_helper(state: &State, process: &Process) -> bool {
    process.has_variable(&format!("{HELPS}={}", state.folder().display()))
}

fn mark(state: &State) -> String {
    format!("trainyard-cluster={}", state.folder().display())
}
