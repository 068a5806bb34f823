//! Exit codes and signals in words.

/// A signal that ends processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number, as Linux has it on x86 and Arm.
    pub number: i32,
    /// Its name, such as `SIGKILL`.
    pub name: &'static str,
    /// What it means; empty where the name says it all.
    pub meaning: &'static str,
}

const fn signal(number: i32, name: &'static str, meaning: &'static str) -> Signal {
    Signal {
        number,
        name,
        meaning,
    }
}

/// The signals that end processes.
pub const SIGNALS: &[Signal] = &[
    signal(1, "SIGHUP", ""),
    signal(2, "SIGINT", ""),
    signal(3, "SIGQUIT", ""),
    signal(4, "SIGILL", "illegal instruction"),
    signal(5, "SIGTRAP", ""),
    signal(6, "SIGABRT", "abort"),
    signal(7, "SIGBUS", "bus error, often a full `/dev/shm`"),
    signal(8, "SIGFPE", "arithmetic error"),
    signal(9, "SIGKILL", ""),
    signal(10, "SIGUSR1", ""),
    signal(11, "SIGSEGV", "invalid memory access"),
    signal(12, "SIGUSR2", ""),
    signal(13, "SIGPIPE", "broken pipe"),
    signal(14, "SIGALRM", ""),
    signal(15, "SIGTERM", ""),
    signal(24, "SIGXCPU", "limit on processor time"),
    signal(25, "SIGXFSZ", "limit on file size"),
    signal(31, "SIGSYS", "forbidden system call"),
];

/// The signal that `code` stands for where it is 128 + n.
pub fn signal_of(code: i32) -> Option<&'static Signal> {
    SIGNALS.iter().find(|signal| signal.number + 128 == code)
}

/// How a container ended, from its code alone.
pub fn words(code: i32, out_of_memory: bool) -> String {
    if out_of_memory {
        return format!("ran out of memory (exit code {code})");
    }
    match signal_of(code) {
        Some(signal) => format!(
            "exit code {code} (128 + signal {}, {})",
            signal.number, signal.name
        ),
        None => format!("exit code {code}{}", meaning_of_code(code)),
    }
}

/// What shells mean by a code.
fn meaning_of_code(code: i32) -> &'static str {
    match code {
        126 => " (the command is not executable)",
        127 => " (the command was not found)",
        _ => "",
    }
}
