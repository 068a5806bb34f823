//! Ends of pods that restart alone: what the doctor says about each, before its container starts again.
//!
//! Invariant: a container that ended is not started again before it was decided that it should be, so a job that ends
//! because a retry does not help has tried once.

use trainyard_core::{
    diagnose::Known,
    job::{self, JudgedEnd, Observed},
    spec::Job,
};

use super::{Engine, table::Key};
use crate::wire::Order;

impl Engine<'_> {
    /// What the doctor says about the ends that the next decision on `job` answers.
    pub(super) fn judge_ends(&mut self, job: &Job, observed: &Observed) -> Vec<JudgedEnd> {
        let pods = job::unjudged_ends(job, observed);
        pods.into_iter()
            .filter_map(|pod| {
                let mut entries = self.pods.iter();
                let (key, entry) = entries.find(|(_, entry)| entry.uid == pod.uid)?;
                let (key, name, attempt) = (*key, entry.name.clone(), entry.attempt);
                let on_purpose = entry.injected.is_some();
                self.read_pipes(key);
                let known = self.known_of(key);
                // An injected failure needs no doctor.
                let verdict = if on_purpose {
                    None
                } else {
                    self.listener.conclude_end(key, attempt, known)
                };
                self.note_verdict_on_end(&name, attempt, verdict.clone());
                Some(JudgedEnd {
                    uid: pod.uid.clone(),
                    ends: pod.ends,
                    verdict,
                })
            })
            .collect()
    }

    fn known_of(&self, key: Key) -> Option<Known> {
        let entry = self.pods.get(&key)?;
        self.known_end(entry, entry.exit.or(entry.last_end)?)
    }

    /// A container of a pod ended and starts again once that was decided.
    pub(super) fn ended_in_place(&mut self, key: Key, container: String) {
        self.to_start_again.push((key, container));
    }

    /// Starts the containers again that ended in place, unless the job has ended with them.
    pub(super) fn start_again(&mut self) {
        for (key, container) in std::mem::take(&mut self.to_start_again) {
            if self.has_ended() {
                continue;
            }
            if container == self.training_container(key) {
                self.listener.forget(key);
                if let Some(entry) = self.pods.get_mut(&key) {
                    entry.injected = None;
                }
            }
            self.order(key, &Order::Again { container }, &[]);
        }
    }
}
