//! The namespaces of a pod: users, mounts, processes, host name, IPC.
//!
//! The user namespace maps this user to itself, so files keep their owner and programs see who
//! runs them. Root needs none.

use std::{fs, io};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid},
};

/// A step that the kernel refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) step: &'static str,
    pub(super) source: io::Error,
}

/// Makes the namespaces. The next process that is forked is the first of the pid namespace.
pub(super) fn isolate() -> Result<(), Refused> {
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    // Root in a container may lack the right; it can still have a user namespace.
    if geteuid().is_root() && unshare(own).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(own | CloneFlags::CLONE_NEWUSER).map_err(|errno| Refused {
        step: "unshare",
        source: errno.into(),
    })?;
    let map = |step, path: &str, line: String| {
        fs::write(path, line).map_err(|source| Refused { step, source })
    };
    // An ordinary user may map its group only after giving up the right to drop groups.
    map("setgroups", "/proc/self/setgroups", "deny".to_owned())?;
    map("gid_map", "/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    map("uid_map", "/proc/self/uid_map", format!("{uid} {uid} 1"))
}
