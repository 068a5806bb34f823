//! What pods send about their progress, beside what is read of their logs.

use trainyard_core::{
    progress::{
        Reading,
        rota::{Enrolled, PodToRead},
    },
    spec::Role,
};

use super::LastRead;
use crate::{clock, key::JobKey, operator::Operator};

impl Operator {
    /// Takes what a pod of a job sent about the attempt that runs; whether that was a new step. Nothing where the pod is not of that
    /// attempt, or does not run. `pod` and `owner` are the identities of the pod and of its owner.
    pub(crate) async fn take_sent(
        &self,
        key: &JobKey,
        (pod, owner): (&str, &str),
        reading: &Reading,
    ) -> Option<bool> {
        // A search of the log that is under way knows nothing of what comes now.
        let _search = self.reports.searches.acquire().await.ok()?;
        let at = clock::now();
        let mut guard = self.reports.state();
        let state = &mut *guard;
        let followed = state.jobs.get_mut(key)?;
        // The batch Job of a launcher stands for its pod.
        let sender =
            |it: &&PodToRead| it.uid == pod || it.slot.role == Role::Launcher && it.uid == owner;
        let PodToRead { uid, slot, .. } = followed.pods.iter().find(sender)?.clone();
        let is_step = followed.attempt_progress.take_sent(slot, reading, at);
        // What it prints may say more than an update without a step.
        if reading.step.is_some() && followed.attempt_progress.speaks(slot) {
            followed.known_until = followed.known_until.max(Some(at));
            // What it printed so far is not news any more.
            let line = Some(at);
            followed.read.insert(uid, LastRead { at, line });
            let of = Enrolled {
                namespace: &key.namespace,
                uid: &followed.uid,
                attempt: followed.attempt,
            };
            state.rota.sent(key, of, slot, self.reports.now());
        }
        let track = followed.attempt_progress.track().clone();
        drop(guard);
        self.caller.metrics.progress.of(key, &track);
        if is_step {
            self.enqueue_job(key.clone());
        }
        Some(is_step)
    }
}
