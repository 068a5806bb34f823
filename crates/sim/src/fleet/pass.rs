//! One pass over one job: observe, decide, write the status on top of the one observed, act.

use std::rc::Rc;

use trainyard_core::{
    fleet::{GangPod, GangRevision, waits_for_seats},
    gang::GangKey,
    job::{self, Action, Decision, JobStatus, Observed, PodPhase, Seating},
    launch::Cluster,
};

use super::{
    World,
    coverage::Mark,
    invariants::{self, Pass},
    jobs::StoredJob,
    operator::Operator,
    pods::StoredPod,
    world::Happening,
};

/// A job that has changed meanwhile is processed again after this.
const CONFLICT: i64 = 500;

impl Operator {
    /// What is to be seen of a job.
    fn observe(&mut self, key: &GangKey, view: &StoredJob, now: jiff::Timestamp) -> Observed {
        let pods = self.view.pods.values();
        let pods: Vec<&StoredPod> = pods.filter(|pod| pod.owner == view.uid).collect();
        let mut observed = Observed {
            version: self.view.version,
            status: JobStatus::clone(&view.status),
            being_deleted: view.being_deleted,
            pods: pods.iter().map(|pod| pod.shown.clone()).collect(),
            services: view.services.clone(),
            nodes: self.view.sick_nodes(pods.into_iter()),
            ..Observed::default()
        };
        observed.seating = self.seating(key, view, now);
        observed.preflight = self.seen_preflight(key, view, &observed.seating, now);
        observed
    }

    fn seating(&mut self, key: &GangKey, view: &StoredJob, now: jiff::Timestamp) -> Seating {
        let cluster = Cluster::default();
        if job::has_ended(&view.status) || !waits_for_seats(&view.job, &cluster, false) {
            self.fleet.queue.forget(key);
            return Seating::Open;
        }
        let record = &view.status.trainyard;
        let revision = GangRevision {
            generation: view.generation,
            created: view.created,
            attempt: record.attempt,
            released: record.released,
            runs_since: job::runs_since(&view.status),
            saved_at: job::saved_at(&view.status),
        };
        let pods = self.view.pods.iter();
        let pods = pods.filter(|(_, pod)| pod.owner == view.uid);
        let gang_pods = pods.map(|(name, pod)| GangPod {
            name: &name.name,
            phase: pod.shown.phase,
            attempt: pod.shown.attempt,
            leaving: pod.shown.deleted_at.is_some(),
            node: pod.shown.node.as_deref(),
            tied: pod.tied.as_deref(),
            priority: pod.priority,
            never_preempts: false,
            requests: (pod.shown.node.is_none() && pod.shown.phase == PodPhase::Pending)
                .then_some(&pod.requests),
        });
        self.fleet
            .queue
            .seating(&view.job, revision, &cluster, gang_pods, now)
    }
}

impl World {
    pub(super) fn want_pass(&mut self, number: usize, key: &GangKey, delay: i64) {
        let operator = &mut self.operators[number];
        if operator.busy.contains_key(key) {
            operator.again.insert(key.clone());
        } else if operator.due.insert(key.clone()) {
            self.after(delay, Happening::Pass(number, key.clone()));
        }
    }

    pub(super) fn wake(&mut self, number: usize, key: &GangKey, wake: u64) {
        if self.leader == Some(number) && self.operators[number].wakes.get(key) == Some(&wake) {
            self.want_pass(number, key, 0);
        }
    }

    fn set_wake(&mut self, number: usize, key: &GangKey, delay: i64) {
        let wakes = &mut self.operators[number].wakes;
        let wake = wakes.entry(key.clone()).or_default();
        *wake += 1;
        let happening = Happening::Wake(number, key.clone(), *wake);
        self.after(delay, happening);
    }

    pub(super) fn pass(&mut self, number: usize, key: &GangKey) {
        let now = self.timestamp();
        let operator = &mut self.operators[number];
        operator.due.remove(key);
        if !operator.alive || self.leader != Some(number) {
            return;
        }
        if operator.busy.contains_key(key) {
            operator.again.insert(key.clone());
            return;
        }
        let Some(view) = operator.view.jobs.get(key).cloned() else {
            operator.fleet.queue.forget(key);
            operator.flights.forget(key);
            operator.facts.forget(key);
            self.look_at_queue(number);
            return;
        };
        let observed = operator.observe(key, &view, now);
        let decision = job::decide(&view.job, &observed, now);
        let pass = Pass {
            key,
            view: &view,
            observed: &observed,
            decision: &decision,
            now,
        };
        let verdict = invariants::check_pass(&pass, &mut self.operators[number]);
        self.judge(verdict);
        self.note_pass(number, key, &observed, &decision);
        if let Some(at) = decision.wake_at {
            self.set_wake(number, key, self.until(at));
        }
        if self.crashes(number, Mark::CrashedBeforeActions) {
            return;
        }
        if decision.status != observed.status && !self.write_status(number, key, &view, &decision) {
            self.coverage.mark(Mark::Conflict);
            self.set_wake(number, key, CONFLICT);
            return;
        }
        if self.crashes(number, Mark::CrashedBeforeActions) {
            return;
        }
        self.begin_actions(number, key, &view, decision.actions);
    }

    /// Writes the status on top of the job that was observed; whether it was written.
    fn write_status(
        &mut self,
        number: usize,
        key: &GangKey,
        view: &StoredJob,
        decision: &Decision,
    ) -> bool {
        let stored = self.jobs.get_mut(key);
        let Some(stored) = stored.filter(|stored| stored.version == view.version) else {
            return false;
        };
        let had_ended = job::has_ended(&stored.status);
        stored.status = Rc::new(decision.status.clone());
        self.job_changed(key);
        if let Some(stored) = self.jobs.get(key).cloned() {
            if !had_ended && job::has_ended(&stored.status) {
                let succeeded = invariants::has_succeeded(&stored.status);
                let mark = if succeeded {
                    Mark::Succeeded
                } else {
                    Mark::Failed
                };
                self.coverage.mark(mark);
            }
            self.operators[number].view.jobs.insert(key.clone(), stored);
        }
        true
    }

    fn note_pass(
        &mut self,
        number: usize,
        key: &GangKey,
        observed: &Observed,
        decision: &Decision,
    ) {
        let reason = decision.reasons.first();
        let mut inboxes = self.operators[number].view.inbox.iter();
        if inboxes.any(|inbox| !inbox.is_empty()) {
            self.coverage.mark(Mark::OldView);
        }
        let record = &decision.status.trainyard;
        if record.gang.has_run() && !observed.status.trainyard.gang.has_run() {
            self.coverage.mark(Mark::RanWhole);
        }
        for action in &decision.actions {
            if matches!(action, Action::ReleaseSeats { .. }) {
                self.coverage.mark(Mark::GivenBack);
            }
        }
        self.trace.digest(format_args!("{decision:?}"));
        self.trace.note(
            self.now,
            format_args!(
                "oper {number}  {key} attempt {} {:?}: {}; {:?}",
                record.attempt,
                observed.seating,
                reason.map_or_else(String::new, ToString::to_string),
                decision.actions,
            ),
        );
    }
}
