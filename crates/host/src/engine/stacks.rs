//! Another terminal asks what the ranks do right now.
//!
//! The engine reads it, because it is an ancestor of every process of the run: under Yama only ancestors may. A thread of its
//! own reads and answers, so that output never waits for it; one at a time.

use std::{
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use trainyard_core::job::PodPhase;

use super::{Engine, remote::no_such_rank};
use crate::{
    Ranks, channel,
    remote::Answer,
    stacks::{MissingRank, PodToRead, ToRead, read as read_stacks},
};

/// Held while stacks are read.
#[derive(Debug)]
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn take(taken: &Arc<AtomicBool>) -> Option<Self> {
        let was_taken = taken.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| Self(Arc::clone(taken)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Engine<'_> {
    /// Reads the stacks of `only` these ranks, or of all, and answers the client `id`.
    pub(super) fn answer_stacks(&mut self, id: u64, only: Vec<u32>, native: bool) {
        let begun = self
            .stacks_to_read(only, native)
            .and_then(|to_read| self.begin_reading(id, to_read));
        if let Err(message) = begun {
            self.remote.answer(id, &Answer::Refused { message });
        }
    }

    pub(super) fn stacks_to_read(&self, only: Vec<u32>, native: bool) -> Result<ToRead, String> {
        let job = &self.job.name;
        let (ranks, replicas) = (Ranks::of(self.job), self.job.replicas());
        let rank_count = ranks.count(&replicas);
        let entries = self.pods.entries.iter();
        let running: Vec<PodToRead> = entries
            .filter(|(_, entry)| entry.phase == PodPhase::Running)
            .filter_map(|(_, entry)| {
                Some(PodToRead {
                    name: entry.name.clone(),
                    first: entry.pid?,
                    ranks: ranks.of_pod(&replicas, entry.slot),
                })
            })
            .collect();
        if running.is_empty() {
            return Err(format!("job `{job}` has no running pods now"));
        }
        let numbered = |rank| {
            let held = running.iter().filter_map(|pod| pod.ranks.clone());
            held.into_iter().any(|held| held.contains(&rank))
        };
        let missing: Vec<MissingRank> = (0..rank_count)
            .filter(|rank| !numbered(*rank))
            .map(|rank| MissingRank {
                rank,
                reason: match ranks.pod_of(&replicas, rank) {
                    Some(slot) => format!("pod `{}` is not running", self.job.pod_name(slot)),
                    None => "its pod is not running".to_owned(),
                },
            })
            .collect();
        if let Some(unknown) = only.iter().find(|rank| **rank >= rank_count) {
            return Err(no_such_rank(self.job, *unknown));
        }
        Ok(ToRead {
            attempt: self.stored.status.trainyard.attempt,
            rank_count,
            pods: running,
            missing,
            only,
            native,
        })
    }

    fn begin_reading(&self, id: u64, to_read: ToRead) -> Result<(), String> {
        let turn = Turn::take(self.remote.reading())
            .ok_or("the stacks of this run are being read for another terminal; try again")?;
        let failed = |error: std::io::Error| format!("cannot read stacks: {error}");
        let Some(socket) = self.remote.socket_of(id) else {
            return Ok(());
        };
        let socket = socket.try_clone().map_err(failed)?;
        let thread = thread::Builder::new().name("stacks".to_owned());
        let started = thread.spawn(move || {
            let memory = channel::to_memory(&read_stacks(to_read));
            // The next terminal may ask as soon as this one has its answer.
            drop(turn);
            let answered = memory
                .and_then(|memory| channel::send(&socket, &Answer::Stacks, &[memory.as_raw_fd()]));
            // The terminal may be gone.
            drop(answered);
        });
        started.map(drop).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reads_at_a_time() {
        let taken = Arc::default();
        let turn = Turn::take(&taken).unwrap();
        assert!(Turn::take(&taken).is_none());
        drop(turn);
        assert!(Turn::take(&taken).is_some());
    }
}
