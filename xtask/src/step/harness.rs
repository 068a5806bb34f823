//! Test commands, and the counts that the test harness prints.

use std::{process::Command, time::Duration};

use super::stream_within;
use crate::Failure;

/// The limit on one command of a suite, so that one that never ends does not cost the table of the others. The longest takes a
/// third of this on two shared cores.
pub(crate) const LIMIT: Duration = Duration::from_mins(30);

/// Runs a test command; no test at all is a failure.
pub(crate) fn counted(command: &mut Command) -> Result<String, Failure> {
    let mut tally = Tally::default();
    let outcome = stream_within(command, LIMIT, |line| tally.read(line));
    match outcome {
        Err(Failure::Failed(message)) => {
            Err(Failure::Failed(format!("{}; {message}", tally.words())))
        }
        Err(other) => Err(other),
        Ok(()) if tally.passed == 0 => Err(Failure::Failed("no test ran".to_owned())),
        Ok(()) => Ok(tally.words()),
    }
}

/// Counts of the test harness, summed over its binaries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Tally {
    /// Adds the counts of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            let Some((number, word)) = count.split_once(' ') else {
                continue;
            };
            let number: u32 = number.parse().unwrap_or(0);
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    fn words(&self) -> String {
        let mut words = vec![format!("{} tests", self.passed + self.failed)];
        if self.failed > 0 {
            words.push(format!("{} failed", self.failed));
        }
        if self.ignored > 0 {
            words.push(format!("{} ignored", self.ignored));
        }
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_over_binaries() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            tally.read(line);
        }
        assert_eq!(
            tally,
            Tally {
                passed: 4,
                failed: 2,
                ignored: 1
            }
        );
        assert_eq!(tally.words(), "6 tests, 2 failed, 1 ignored");
    }
}
