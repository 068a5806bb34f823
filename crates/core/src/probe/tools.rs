//! External programs that measure what ours cannot: RDMA, and the GPUs of one pod together.
//!
//! Owns the words that they are called with, the reading of what they print, which device and which GPUs they are
//! called for, and the checks that follow. Where they are found and how they are run is an adapter's.
//!
//! Invariant: a missing program is reported and is not a fault of the node. What it prints is taken for a number
//! only where its own heading says which number it is.

mod choice;
mod collective;
pub mod nccl;
pub mod perftest;

pub use choice::{Port, Unmeasured, gpus, port};
pub use collective::{Collective, collectives};

use std::fmt;

use thiserror::Error;

/// Characters of a line of theirs that are passed on.
const WORDS: usize = 200;

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit code; without one where a signal ended it.
    Exited(Option<i32>),
    /// It was ended after so many milliseconds.
    Hung(u64),
    /// It was stopped, since the other side of a pair had finished.
    Dismissed,
    /// It could not be started, and why.
    NotStarted(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(Some(0)) => f.write_str("printed no result"),
            Self::Exited(Some(code)) => write!(f, "ended with exit code {code}"),
            Self::Exited(None) => f.write_str("was ended by a signal"),
            Self::Hung(millis) => write!(f, "did not end within {} s", millis / 1000),
            Self::Dismissed => f.write_str("was stopped because the other side had finished"),
            Self::NotStarted(why) => write!(f, "cannot be started: {why}"),
        }
    }
}

/// Why a program gave no number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{program}` {ending}{}", .said.as_ref().map(|said| format!(": {said}")).unwrap_or_default())]
pub struct ProgramError {
    /// The program.
    pub program: &'static str,
    /// How it ended.
    pub ending: Ending,
    /// The line of its output that shows what went wrong.
    pub said: Option<String>,
}

/// The result of running a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote to stdout.
    pub output: String,
    /// What it wrote to stderr.
    pub errors: String,
}

impl Ran {
    /// Why `program` gave no number, in its own words where it has some.
    pub fn error(&self, program: &'static str) -> ProgramError {
        ProgramError {
            program,
            ending: self.ending.clone(),
            said: self.error_line(),
        }
    }

    /// The first line that shows what went wrong: one that mentions a failure, else any on stderr.
    fn error_line(&self) -> Option<String> {
        let lines = || self.errors.lines().chain(self.output.lines());
        let own = self.errors.lines().find(|line| !is_noise(line));
        let line = lines().find(|line| mentions_failure(line)).or(own)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(words.join(" ").chars().take(WORDS).collect())
    }
}

/// Whether a line does not describe a failure.
fn is_noise(line: &str) -> bool {
    line.trim().is_empty() || line.to_ascii_lowercase().contains("warning")
}

fn mentions_failure(line: &str) -> bool {
    const WORDS: [&str; 10] = [
        "fail",
        "error",
        "unable",
        "couldn't",
        "can't",
        "cannot",
        "not found",
        "invalid",
        "nccl warn",
        "not supported",
    ];
    let lower = line.to_ascii_lowercase();
    // The footer of a run that went well, and the settings of one that begins.
    let is_report = lower.trim_start().starts_with('#') && !lower.contains("error:");
    !is_noise(line) && !is_report && WORDS.iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_error_line_is_reported() {
        let ran = |ending: Ending, output: &str, errors: &str| Ran {
            ending,
            output: output.to_owned(),
            errors: errors.to_owned(),
        };
        let cases = [
            (
                "an exit code and words",
                ran(
                    Ending::Exited(Some(1)),
                    "",
                    "libx: Warning: couldn't load a driver\n\n IB  device mlx5_9 not found\n Unable to go on\n",
                ),
                "`tool` ended with exit code 1: IB device mlx5_9 not found",
            ),
            (
                "words on stdout",
                ran(
                    Ending::Exited(Some(3)),
                    "# nThread 1 nGpus 8\nn0: Test NCCL failure common.cu:954 'unhandled cuda error'\n",
                    "",
                ),
                "`tool` ended with exit code 3: n0: Test NCCL failure common.cu:954 'unhandled cuda error'",
            ),
            (
                "no words",
                ran(Ending::Exited(Some(2)), "", "\n"),
                "`tool` ended with exit code 2",
            ),
            (
                "a signal",
                ran(Ending::Exited(None), "", "bad: oh\n"),
                "`tool` was ended by a signal: bad: oh",
            ),
            (
                "a hang",
                ran(Ending::Hung(11_400), "waiting\n", ""),
                "`tool` did not end within 11 s",
            ),
            (
                "not started",
                ran(Ending::NotStarted("permission denied".to_owned()), "", ""),
                "`tool` cannot be started: permission denied",
            ),
            (
                "well, and nothing to read",
                ran(Ending::Exited(Some(0)), "hello\n", ""),
                "`tool` printed no result",
            ),
        ];
        for (name, ran, want) in cases {
            assert_eq!(ran.error("tool").to_string(), want, "{name}");
        }
        let long = ran(Ending::Exited(Some(1)), "", &"error ".repeat(1000));
        assert!(long.error("tool").to_string().chars().count() < 2 * WORDS);
    }
}
