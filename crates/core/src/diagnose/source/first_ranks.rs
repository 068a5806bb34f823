//! Which processes report that they are rank 0.
//!
//! Lightning names the rank of each process and the size of its world. Started without a launcher, every pod makes a
//! world of its own, and every one has a rank 0.
//!
//! nccl-tests names them, too: its header names every rank with process and host. With MPI there is one rank 0; without it, each
//! process that `mpirun` started prints a header of its own, and every one has a rank 0.

use std::collections::BTreeSet;

use super::{lossy, numbers};

/// Processes that are rank 0 of the same run.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct FirstRanks {
    processes: BTreeSet<(String, u32)>,
    /// The line on which a second one appeared.
    second: Option<u64>,
    failure_line: u64,
    /// Lines on which Lightning names rank 0 of a world of several, since the last failure; of the last, its number
    /// and that size.
    lightning: u32,
    lightning_line: Option<(u64, u32)>,
}

impl FirstRanks {
    /// Whether more than one process is.
    pub(in crate::diagnose) fn is_several(&self) -> bool {
        self.second.is_some()
    }

    /// Where that shows.
    pub(in crate::diagnose) fn line(&self) -> Option<u64> {
        self.second
    }

    /// Where Lightning names rank 0 of a world of several: how often, the line, and the size.
    pub(in crate::diagnose) fn of_lightning(&self) -> Option<(u32, u64, u32)> {
        let (line, size) = self.lightning_line?;
        Some((self.lightning, line, size))
    }

    /// Notes one line near the beginning of a log.
    pub(super) fn note(&mut self, text: &[u8], number: u64, failure_line: u64) {
        // Results, or a failure, stand between this run and the next.
        let results = memchr::memmem::find(text, b"busbw").is_some();
        if results || self.failure_line != failure_line {
            self.processes.clear();
            self.lightning = 0;
            self.failure_line = failure_line;
        }
        if let Some(size) = lightning_world(text) {
            self.lightning += 1;
            self.lightning_line = Some((number, size));
        }
        if let Some((0, process)) = row(text)
            && self.processes.insert(process)
            && self.processes.len() > 1
        {
            self.second.get_or_insert(number);
        }
    }
}

/// Rank, host and process of `#  Rank  0 Group  0 Pid  27255 on  node-1 device  0 [0x42] NVIDIA H100`.
fn row(text: &[u8]) -> Option<(u32, (String, u32))> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"#").unwrap_or(text);
    let rest = text.trim_ascii_start().strip_prefix(b"Rank ")?;
    let mut words = rest
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(lossy);
    let number = |word: String| numbers(&word).first().copied();
    let rank = number(words.next()?)?;
    if words.by_ref().take(3).all(|word| word != "Pid") {
        return None;
    }
    let process = number(words.next()?)?;
    let host = words.by_ref().nth(1)?;
    (words.next()? == "device").then_some((rank, (host, process)))
}

/// The size of the world in `Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4`, where it is above one.
fn lightning_world(text: &[u8]) -> Option<u32> {
    let rank = b"GLOBAL_RANK: 0, MEMBER: 1/";
    let at = memchr::memmem::find(text, rank)?;
    let size = lossy(text.get(at + rank.len()..)?);
    let size = numbers(size.split_whitespace().next()?).first().copied()?;
    (size > 1).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(lines: &[&str]) -> bool {
        let mut ranks = FirstRanks::default();
        for (number, line) in (1..).zip(lines) {
            ranks.note(line.as_bytes(), number, 0);
        }
        ranks.is_several()
    }

    #[test]
    fn one_first_rank_in_a_run() {
        let first = "#   Rank  0 Pid   1320 on node-1 device  0 [0x00] Tesla V100-SXM2-16GB";
        let other = "#  Rank  0 Group  0 Pid   2066 on   node-2 device  0 [0x1a] NVIDIA H100";
        let second = "#  Rank  1 Group  0 Pid   2066 on   node-2 device  0 [0x1a] NVIDIA H100";
        let results = "#  size  count  type  redop  time   algbw   busbw  error";
        assert!(several(&[first, other]));
        assert!(several(&["# Using devices", other, first]));
        assert!(!several(&[first, second]));
        assert!(!several(&[first, results, other]));
        assert!(!several(&[first, first]));
        assert!(!several(&["Rank 0: 5 on 3", "Rank 0 Pid x"]));
    }

    #[test]
    fn a_failure_ends_a_run() {
        let mut ranks = FirstRanks::default();
        let row = |process| format!("#  Rank  0 Pid  {process} on node-1 device  0 [0x42] x");
        ranks.note(row(7).as_bytes(), 1, 0);
        ranks.note(row(9).as_bytes(), 5, 3);
        assert!(!ranks.is_several());
        assert_eq!(ranks.line(), None);
        ranks.note(row(11).as_bytes(), 6, 3);
        assert_eq!(ranks.line(), Some(6));
    }
}
