//! Why a process could not be read, as a value that a caller can act on.

use std::io;

/// Why a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It ended before or while it was read.
    #[error("process {pid} does not exist: it has ended")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// The pid belongs to another process than the one that was opened.
    #[error("pid {pid} was reused: another process has it since the first read")]
    Reused {
        /// The process.
        pid: u32,
    },
    /// The kernel refuses: another user, not an ancestor, or not dumpable.
    #[error(
        "reading `{file}` of process {pid} was refused: it needs the same user and permission to trace it"
    )]
    Refused {
        /// The process.
        pid: u32,
        /// Which file of `/proc/PID`.
        file: &'static str,
    },
    /// A file of `/proc/PID` could not be read.
    #[error("cannot read `{file}` of process {pid}")]
    Read {
        /// The process.
        pid: u32,
        /// Which file of `/proc/PID`.
        file: &'static str,
        /// What the kernel reported.
        #[source]
        source: io::Error,
    },
    /// A file of `/proc/PID` does not have the documented form.
    #[error("`{file}` of process {pid} has an unknown form")]
    Form {
        /// The process.
        pid: u32,
        /// Which file of `/proc/PID`.
        file: &'static str,
    },
    /// No mapped program or library is a Python interpreter.
    #[error("process {pid} is not a Python process: no mapped file defines `_PyRuntime`")]
    NotPython {
        /// The process.
        pid: u32,
    },
    /// Python is mapped, but has no interpreter: it starts or ends.
    #[error("Python of process {pid} has no interpreter yet, or no more")]
    NotStarted {
        /// The process.
        pid: u32,
    },
    /// A version whose layout is not known.
    #[error(
        "process {pid} runs {found}, expected CPython 3.9 to 3.14 with a global interpreter lock"
    )]
    Version {
        /// The process.
        pid: u32,
        /// What was found.
        found: String,
    },
    /// The runtime of the process makes no sense.
    #[error("the Python runtime of process {pid} cannot be read: {what}")]
    Runtime {
        /// The process.
        pid: u32,
        /// What was tried.
        what: &'static str,
    },
}

impl Error {
    /// The error for a file of `/proc/PID` that could not be opened or read.
    pub(crate) fn from_io(pid: u32, file: &'static str, source: io::Error) -> Self {
        // ESRCH is what a read of `/proc/PID/*` returns when the process ends between open and read.
        const NO_SUCH_PROCESS: i32 = nix::errno::Errno::ESRCH as i32;
        match (source.kind(), source.raw_os_error()) {
            (io::ErrorKind::NotFound, _) | (_, Some(NO_SUCH_PROCESS)) => Self::Gone { pid },
            (io::ErrorKind::PermissionDenied, _) => Self::Refused { pid, file },
            _ => Self::Read { pid, file, source },
        }
    }
}
