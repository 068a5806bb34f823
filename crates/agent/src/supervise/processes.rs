//! The processes below this one: every child, and every orphan that they leave.
//!
//! Invariant: this process adopts orphans, as the first of its container or as a subreaper. So a process without children has no descendants
//! either, and that it has none is known from one call, without a race against processes that fork.

use std::{collections::BTreeMap, fs, io};

use nix::{
    sys::{
        prctl,
        signal::{Signal, kill, killpg},
    },
    unistd::Pid,
};
use rustix::process::{Resource, Rlimit, WaitOptions, WaitStatus, prlimit, wait};
use trainyard_core::barrier::ProgramExit;

/// Processes that are looked at in one walk, at most: far more than a node runs.
const MOST_PROCESSES: usize = 1 << 20;

/// A descendant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descendant {
    pid: i32,
    group: i32,
}

/// Processes that were reaped.
#[derive(Debug)]
pub(crate) struct Reaped {
    /// How each of them ended.
    pub(crate) ended: Vec<(Pid, ProgramExit)>,
    /// Nothing is left: neither children nor descendants.
    pub(crate) alone: bool,
}

/// From here on orphans of children become children of this process.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    prctl::set_child_subreaper(true)?;
    Ok(())
}

/// Reaps every child that has ended.
pub(crate) fn reap() -> Reaped {
    let mut ended = Vec::new();
    let alone = loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(exit) = exit_of(status) {
                    ended.push((Pid::from_raw(pid.as_raw_pid()), exit));
                }
            }
            Err(rustix::io::Errno::CHILD) => break true,
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => break false,
        }
    };
    Reaped { ended, alone }
}

/// How a process ended; signals that have no name, such as real-time ones, count as any other.
fn exit_of(status: WaitStatus) -> Option<ProgramExit> {
    if let Some(signal) = status.terminating_signal() {
        return Some(ProgramExit {
            code: 128 + signal,
            signal: Some(signal),
        });
    }
    let code = status.exit_status()?;
    Some(ProgramExit { code, signal: None })
}

/// Sends `signal` to the group that `leader` began, where any process of it is left. The number of a group without processes may
/// be given to another one, so it is not used before it was seen.
pub(crate) fn signal_group(leader: Pid, signal: Signal) {
    let group = leader.as_raw();
    if descendants().iter().any(|one| one.group == group) {
        // It may end in this moment.
        killpg(leader, signal).ok();
    }
}

/// Sends `signal` to every descendant.
pub(crate) fn signal_all(signal: Signal) {
    for one in descendants() {
        kill(Pid::from_raw(one.pid), signal).ok();
    }
}

/// Aborts every descendant, stopped ones too, so that programs which print stacks on SIGABRT do. They write no core files: that of a
/// large program takes minutes and fills the disk. Only from here on, so that a program that crashes by itself still writes one.
pub(crate) fn abort_all() {
    for one in descendants() {
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        if let Some(pid) = rustix::process::Pid::from_raw(one.pid) {
            // A process of another user is not allowed to be changed, and is aborted all the same.
            prlimit(Some(pid), Resource::Core, none).ok();
        }
        let pid = Pid::from_raw(one.pid);
        kill(pid, Signal::SIGCONT).ok();
        kill(pid, Signal::SIGABRT).ok();
    }
}

/// All processes below this one, zombies included.
fn descendants() -> Vec<Descendant> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut children: BTreeMap<i32, Vec<Descendant>> = BTreeMap::new();
    for entry in entries.flatten().take(MOST_PROCESSES) {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
            continue;
        };
        if let Some((parent, group)) = parent_and_group(&stat) {
            let one = Descendant { pid, group };
            children.entry(parent).or_default().push(one);
        }
    }
    let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    let mut found = children.remove(&own).unwrap_or_default();
    let mut at = 0;
    while let Some(one) = found.get(at) {
        // Each is removed once, so a walk ends even where numbers were used again while it ran.
        found.extend(children.remove(&one.pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// Parent and group in `/proc/P/stat`. The name of a program is in parentheses and may hold anything.
fn parent_and_group(stat: &[u8]) -> Option<(i32, i32)> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_any_name() {
        let cases = [
            ("7 (sh) S 1 7 7 0 -1", Some((1, 7))),
            ("7 (a) b) S 12 7 0", Some((12, 7))),
            ("7 (sh) S", None),
        ];
        for (stat, want) in cases {
            assert_eq!(parent_and_group(stat.as_bytes()), want);
        }
        assert_eq!(parent_and_group(b"7 (\xff) Z 3 4"), Some((3, 4)));
    }
}
