//! The namespaces of a pod: users, mounts, processes, host name, IPC.
//!
//! The user namespace maps this user to itself, so files keep their owner and programs see who
//! runs them. Root needs none.

use std::{ffi::c_long, fs, io};

use nix::{
    errno::Errno,
    libc,
    sched::CloneFlags,
    unistd::{Gid, Pid, Uid, getegid, geteuid},
};

use crate::wire::Report;

/// A step that the kernel refused.
#[derive(Debug)]
pub(super) struct Refused {
    step: &'static str,
    source: io::Error,
}

impl Refused {
    pub(super) fn report(&self) -> Report {
        Report::NotIsolated {
            step: self.step.to_owned(),
            reason: self.source.to_string(),
        }
    }

    pub(super) fn reason(&self) -> &io::Error {
        &self.source
    }

    /// Whether there were too few processes or too little memory left, whatever they are for.
    pub(super) fn is_shortage(&self) -> bool {
        let code = self.source.raw_os_error();
        [Errno::EAGAIN, Errno::ENOMEM]
            .map(|errno| Some(errno as i32))
            .contains(&code)
    }
}

/// Which of the two processes this is.
pub(super) enum Side {
    Parent(Pid),
    /// The first process of the new namespaces, and whether it is someone in them.
    Child(Result<(), Refused>),
}

/// Forks a first process of new namespaces.
pub(super) fn fork() -> Result<Side, Refused> {
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC;
    let (uid, gid) = (geteuid(), getegid());
    // Root in a container may lack the right; it can still have a user namespace.
    if uid.is_root()
        && let Ok(child) = clone(own)
    {
        return Ok(child.map_or(Side::Child(Ok(())), Side::Parent));
    }
    match clone(own | CloneFlags::CLONE_NEWUSER) {
        Ok(Some(child)) => Ok(Side::Parent(child)),
        Ok(None) => Ok(Side::Child(map(uid, gid))),
        Err(errno) => Err(Refused {
            step: "clone",
            source: errno.into(),
        }),
    }
}

/// Maps this user and group of the machine to themselves.
fn map(uid: Uid, gid: Gid) -> Result<(), Refused> {
    let map = |step, path: &str, line: String| {
        fs::write(path, line).map_err(|source| Refused { step, source })
    };
    // An ordinary user may map its group only after giving up the right to drop groups.
    map("setgroups", "/proc/self/setgroups", "deny".to_owned())?;
    map("gid_map", "/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    map("uid_map", "/proc/self/uid_map", format!("{uid} {uid} 1"))
}

/// As `fork`, with namespaces for the child; `None` in the child.
///
/// `fork` and `unshare` do the same with one process more for each pod: who unshares the pid
/// namespace is not in it.
#[expect(
    unsafe_code,
    reason = "no function of a library forks a child into namespaces and continues from here in it"
)]
fn clone(namespaces: CloneFlags) -> Result<Option<Pid>, Errno> {
    let flags = c_long::from(namespaces.bits() | libc::SIGCHLD);
    let none: c_long = 0;
    // SAFETY: this process has one thread, so the child may do whatever the parent could. Without
    // a stack of its own, and without `CLONE_VM`, the child has a copy of all memory, as after
    // `fork`; the pointers that are null are for flags that are not given.
    let number = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    let number = Errno::result(number)?;
    let child = libc::pid_t::try_from(number).unwrap_or_default();
    Ok((child != 0).then(|| Pid::from_raw(child)))
}
