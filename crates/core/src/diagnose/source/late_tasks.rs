//! Tasks and ranks that a coordinator (JAX, TensorFlow, Horovod) reports late or gone, in lines of their own below its
//! message.

use std::collections::BTreeSet;

use super::{MAX_NAMES, lossy, numbers};

/// What introduces a list.
const HEADS: [&[u8]; 7] = [
    b"issing ranks:",
    b"talled ranks:",
    b"imed out task names",
    b"tasks are unhealthy",
    b"tasks have crashed",
    b"asks that have not reached the barrier",
    b"in coordination service: UNAVAILABLE: Task",
];

/// Tasks that were named.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct LateTasks {
    /// Whether the next lines are a list.
    listed: bool,
    pub(in crate::diagnose) tasks: BTreeSet<u32>,
}

impl LateTasks {
    /// Notes one line. Horovod's `1: [tensor]` below a heading is read as a line of rank 1.
    pub(super) fn note(&mut self, text: &[u8], rank: Option<u32>) {
        // Most lines are in no list and have no colon at their end.
        let begins = text.contains(&b':')
            && (text.ends_with(b":") || memchr::memmem::find(text, b"task").is_some());
        let head = HEADS
            .iter()
            .filter(|_| begins)
            .find_map(|head| memchr::memmem::find(text, head));
        let list = match head {
            Some(at) => text.get(at..).unwrap_or_default(),
            None if self.listed && text.trim_ascii_start().starts_with(b"/job:") => text,
            None if self.listed && self.tasks.len() < MAX_NAMES && ranked(text).is_some() => {
                // The rank before it is that of the process which reports the list.
                self.tasks.extend(ranked(text));
                return;
            }
            None if self.listed && text.starts_with(b"[") && self.tasks.len() < MAX_NAMES => {
                self.tasks.extend(rank);
                return;
            }
            None => {
                self.listed = false;
                return;
            }
        };
        self.listed = true;
        for part in lossy(list).split("/task:").skip(1) {
            let end = part.find(|letter: char| !letter.is_ascii_digit());
            let task = numbers(part.split_at(end.unwrap_or(part.len())).0);
            if self.tasks.len() < MAX_NAMES {
                self.tasks.extend(task);
            }
        }
    }
}

/// The rank of `2: [tensor]`.
fn ranked(text: &[u8]) -> Option<u32> {
    let colon = memchr::memchr(b':', text)?;
    let rest = text.get(colon + 1..)?;
    let number = std::str::from_utf8(text.get(..colon)?).ok()?;
    rest.starts_with(b" [").then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_below_a_message() {
        let mut late = LateTasks::default();
        let lines = [
            "/job:jax_worker/replica:0/task:9",
            "DEADLINE_EXCEEDED: Barrier timed out. The first task at the barrier: /job:jax_worker/replica:0/task:0. \
             Some timed out task names:",
            "/job:jax_worker/replica:0/task:5",
            "/job:jax_worker/replica:0/task:6",
            "",
            "/job:jax_worker/replica:0/task:7",
            "The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/replica:0/task:1",
        ];
        for line in lines {
            late.note(line.as_bytes(), None);
        }
        assert_eq!(late.tasks, [1, 5, 6].into());
        let mut late = LateTasks::default();
        late.note(b"[gradients/dense]", Some(4));
        late.note(b"Missing ranks:", None);
        late.note(b"[gradients/dense, gradients/bias]", Some(2));
        assert_eq!(late.tasks, [2].into());
        let mut late = LateTasks::default();
        let lost = "/job:jax_worker/replica:0/task:3 has been set to ERROR in coordination service: UNAVAILABLE: \
                    Task /job:jax_worker/replica:0/task:3 heartbeat timeout.";
        late.note(lost.as_bytes(), None);
        assert_eq!(late.tasks, [3].into());
        let mut late = LateTasks::default();
        late.note(b"Missing ranks:", Some(0));
        late.note(b"3: [gradients/dense, gradients/bias]", Some(0));
        assert_eq!(late.tasks, [3].into(), "rank 0 reports it");
    }
}
