//! Node assignment: who waits, and when the wait queue is processed.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tracing::{info, warn};
use trainyard_core::{
    fleet::waits_for_seats,
    job::{self, JobStatus, Seating},
    spec::{Job, Kind},
};

use super::{Operator, Selector};
use crate::{
    clock,
    feed::Scope,
    key::{JobKey, KUEUE_QUEUE, OPERATOR_LABEL},
    view::{JobView, PriorityView, RoomView},
};

/// Gangs that are created together are placed together.
const GATHER: Duration = Duration::from_millis(5);
/// The wait queue is processed this often even without a watch event: timeouts pass.
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// Processing the wait queue takes at most one part in this many of the operator's time.
const SHARE: u32 = 4;

impl Operator {
    /// Whether this operator assigns nodes at all.
    pub(crate) fn places(&self) -> bool {
        self.options.placement && self.options.nodes && !self.options.shadow
    }

    /// What the gang of a job may do.
    pub(crate) fn seating(
        &self,
        key: &JobKey,
        view: &JobView,
        job: &Job,
        status: &JobStatus,
    ) -> Seating {
        if !self.places() {
            return Seating::Open;
        }
        let mut store = self.state.store();
        let queued = view.metadata.label(KUEUE_QUEUE).is_some();
        if job::has_ended(status) || !waits_for_seats(job, &self.cluster, queued) {
            store.fleet.queue.forget(&key.gang());
            return Seating::Open;
        }
        store.seating(key, view, job, status, &self.cluster)
    }

    /// Has the wait queue processed, if something has changed there.
    pub(crate) fn notify_wait_queue(&self) {
        if self.state.store().fleet.queue.take_placement_due() {
            self.wait_queue_changed.notify_one();
        }
    }

    /// Takes a job that is not processed any more off the wait queue, and releases the nodes that no pod of it is on.
    pub(super) fn release_unused_seats(&self, key: &JobKey) {
        self.state
            .store()
            .fleet
            .queue
            .release_unused_seats(&key.gang());
        self.notify_wait_queue();
    }

    pub(super) fn start_room_feeds(&self, tasks: &mut JoinSet<()>) {
        // The pods of jobs have a feed of their own; where that sees one namespace only, the others are
        // seen here.
        let labels = match &self.options.namespace {
            None => Some(not_of_jobs()),
            Some(_) => None,
        };
        let selector = Selector {
            labels,
            fields: Some("status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!=".to_owned()),
        };
        let path = "/api/v1/pods".to_owned();
        let all = Scope::Everything;
        self.feed::<RoomView>(tasks, path, selector, all.clone(), |state, news| {
            state.store().update_room(news);
            Vec::new()
        });
        let path = "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned();
        self.feed::<PriorityView>(tasks, path, None, all, |state, news| {
            state.store().update_priorities(news);
            Vec::new()
        });
    }

    /// Processes the wait queue whenever something has changed; never returns.
    pub(super) async fn process_wait_queue(&self) {
        let mut leads = self.leads.clone();
        loop {
            drop(tokio::time::timeout(AT_LEAST_EVERY, self.wait_queue_changed.notified()).await);
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            if !self.sees() {
                continue;
            }
            tokio::time::sleep(GATHER).await;
            let began = Instant::now();
            let (looked, waiting) = {
                let mut store = self.state.store();
                store.drop_claims_without_job();
                (
                    store.fleet.queue.place(clock::now()),
                    store.fleet.queue.waiting(),
                )
            };
            let took = began.elapsed();
            self.caller.metrics.placed(took, waiting);
            let scope = self.options.preemption;
            for gang in &looked.out_of_scope {
                self.caller.metrics.preemption_refused();
                info!(job = %gang, %scope, "Preemption is out of scope");
            }
            for warning in &looked.warnings {
                warn!(warning, "Topology labels are inconsistent");
            }
            for gang in &looked.seated {
                info!(job = %gang, ?took, waiting, "Assigned nodes to the gang");
            }
            let changed = looked.seated.iter().chain(&looked.changed);
            self.queue.enqueue_all(changed.map(JobKey::of_gang));
            tokio::time::sleep(took * (SHARE - 1)).await;
        }
    }
}

/// Selects every pod that the watch of job pods does not take in. Whoever makes a pod chooses its labels: one that names
/// a controller that is none of ours must not be hidden from both watches.
fn not_of_jobs() -> String {
    let controllers: Vec<&str> = Kind::READ.into_iter().map(Kind::controller).collect();
    format!("{OPERATOR_LABEL} notin ({})", controllers.join(","))
}
