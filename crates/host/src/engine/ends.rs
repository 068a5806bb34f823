//! Ends of pods that restart alone: what the doctor says about each, before its container starts again.
//!
//! Invariant: a container that ended is not started again before it was decided that it should be, so a job that ends
//! because a retry does not help has tried once.

use trainyard_core::{
    job::{self, JudgedEnd, Observed},
    spec::Job,
};

use super::Engine;
use crate::wire::Order;

impl Engine<'_> {
    /// What the doctor says about the ends that the next decision on `job` answers.
    pub(super) fn judge_ends(&mut self, job: &Job, observed: &Observed) -> Vec<JudgedEnd> {
        let pods = job::unjudged_ends(job, observed).into_iter();
        let judged = pods.filter_map(|pod| {
            let (key, _) = self.pods.with_uid(&pod.uid)?;
            self.read_pipes(key);
            let entry = self.pods.get(key)?;
            // An injected failure needs no doctor.
            let verdict = if entry.injected.is_some() {
                None
            } else {
                let known = entry.known_end(self.job);
                self.listener.conclude_end(key, entry.attempt, known)
            };
            self.failures
                .set_verdict_on_end(&entry.name, entry.attempt, verdict.clone());
            Some(JudgedEnd {
                uid: pod.uid.clone(),
                ends: pod.ends,
                verdict,
            })
        });
        judged.collect()
    }

    /// Starts the containers again that ended in place, unless the job has ended with them.
    pub(super) fn start_again(&mut self) {
        for (key, container) in std::mem::take(&mut self.pods.to_start_again) {
            if self.stored.has_ended() {
                continue;
            }
            if container == self.pods.training_container(key, self.job.kind) {
                self.listener.forget(key);
                if let Some(entry) = self.pods.get_mut(key) {
                    entry.injected = None;
                }
            }
            self.pods.order(key, &Order::Again { container }, &[]);
        }
    }
}
