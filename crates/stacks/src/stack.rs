//! The stack of one thread as callers get it: plain values without an address.

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// The file as Python was given it: a path, or a name such as `<string>`.
    pub file: String,
    /// The qualified name from `CPython` 3.11 on, the plain name before.
    pub function: String,
    /// The line; absent for instructions that belong to none.
    pub line: Option<u32>,
}

/// The Python stack of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadStack {
    /// What `threading.get_ident()` returns in this thread; 0 for a thread that was not read because the number of reads was
    /// used up.
    pub thread_id: u64,
    /// Its number below `/proc/PID/task`, as this process sees it; absent where it is not known (threads other than the
    /// main one before `CPython` 3.11).
    pub task: Option<u32>,
    /// The name that the kernel has for it.
    pub name: Option<String>,
    /// Whether it is the thread that Python was started in.
    pub main: bool,
    /// Whether it held the global interpreter lock when it was read.
    pub holds_gil: Option<bool>,
    /// The calls, innermost first.
    pub frames: Vec<Frame>,
    /// Whether calls further out were left off, because there are more than [`crate::python::MOST_FRAMES`] or because the
    /// number of reads was used up.
    pub truncated: bool,
    /// Whether the stack changed during every attempt to read it, so that its frames may be of two moments.
    pub torn: bool,
}
