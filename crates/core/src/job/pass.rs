//! One pass of `decide`: what it was given, and the decision as it grows.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    Action, CheckpointRecord, Condition, ConditionStatus, ConditionType, Decision, Event,
    EventKind, EventReason, GangStep, JobStatus, Observed, ObservedPod, PodPhase, PreflightState,
    Progress, ProgressRecord, Removal, SeenGang, checkpoint, conditions, fabric, in_place,
    messages, mutant,
    roster::{self, Contact, Roster},
};
use crate::{
    ledger::{OpenSpan, Phase, Scene},
    reason::{Code, Reason, StoredReason},
    spec::{Compat, Job},
};

/// How soon a stale view is checked again.
pub(super) const STALE_RETRY: Duration = Duration::from_secs(1);
/// How soon actions are checked again where no watch event shows their effect.
const RECHECK: Duration = Duration::from_secs(30);
/// How soon a job is decided on again whose output should have been read meanwhile.
const READ_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) job: &'a Job,
    pub(super) observed: &'a Observed,
    pub(super) now: Timestamp,
    /// `now` in whole seconds: what Kubernetes stores of a time.
    pub(super) stamp: Timestamp,
    pub(super) status: JobStatus,
    pub(super) actions: Vec<Action>,
    events: Vec<Event>,
    reasons: Vec<Reason>,
    wake_at: Option<Timestamp>,
    /// What follows for the supervisors of the gang.
    pub(super) gang: Option<Box<GangStep>>,
    /// When the failure that is handled was seen, where it was held since.
    pub(super) failed_at: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(job: &'a Job, observed: &'a Observed, now: Timestamp) -> Self {
        Self {
            job,
            observed,
            now,
            stamp: Timestamp::from_second(now.as_second()).unwrap_or(now),
            status: observed.status.clone(),
            actions: Vec::new(),
            events: Vec::new(),
            reasons: Vec::new(),
            wake_at: None,
            gang: None,
            failed_at: None,
        }
    }

    /// Adds a reason.
    pub(super) fn say(&mut self, reason: Reason) {
        if !mutant::is(mutant::Mutant::WaitsInSilence) {
            self.reasons.push(reason);
        }
    }

    /// Adds an event.
    pub(super) fn emit(&mut self, kind: EventKind, reason: EventReason, message: String) {
        self.events.push(Event {
            kind,
            reason: reason.of(self.job.kind),
            message,
        });
    }

    /// Asks for a pass at `at`, if that is still to come.
    pub(super) fn wake(&mut self, at: Timestamp) {
        if at > self.now {
            self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Asks for a pass in `after`.
    pub(super) fn wake_in(&mut self, after: Duration) {
        self.wake(self.now.checked_add(after).unwrap_or(Timestamp::MAX));
    }

    /// Sets a condition that is true.
    pub(super) fn hold(&mut self, kind: ConditionType, message: String) {
        self.set(kind, ConditionStatus::True, kind.name(), message);
    }

    pub(super) fn set(
        &mut self,
        kind: ConditionType,
        status: ConditionStatus,
        word: &str,
        message: String,
    ) {
        let change = (kind, status, word);
        conditions::set(
            &mut self.status.conditions,
            self.job.kind,
            change,
            message,
            self.stamp,
        );
    }

    pub(super) fn holds(&self, kind: ConditionType) -> bool {
        conditions::holds(&self.status.conditions, kind)
    }

    pub(super) fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        conditions::find(&self.status.conditions, kind)
    }

    pub(super) fn contact(&self, pod: &ObservedPod) -> Contact {
        roster::contact(self.job, self.observed, pod, self.now)
    }

    /// Deletes `pod`: once with its grace period, and by force once its node is lost.
    pub(super) fn remove(&mut self, pod: &ObservedPod) {
        let removal = match self.contact(pod) {
            Contact::Lost => Removal::Forced,
            contact => {
                if let Contact::LostAt(at) = contact {
                    self.wake(at);
                }
                if pod.deleted_at.is_some() {
                    return;
                }
                Removal::Graceful
            }
        };
        self.actions.push(Action::DeletePod {
            slot: pod.slot,
            uid: pod.uid.clone(),
            removal,
        });
    }

    /// The first pass of a job notes that it was seen.
    pub(super) fn note_created(&mut self) {
        if self.status.conditions.is_empty() {
            self.hold(ConditionType::Created, messages::created(self.job));
        }
    }

    /// The first pass that may have pods starts the clock and the first attempt.
    pub(super) fn start(&mut self) {
        self.status.start_time.get_or_insert(self.stamp);
        if self.status.trainyard.attempt == 0 {
            self.next_attempt();
            in_place::note_unsupervised(self);
        }
    }

    /// Begins the next attempt. Pods of the one before are stale from here on.
    pub(super) fn next_attempt(&mut self) {
        self.next_attempt_in_place();
        let record = &mut self.status.trainyard;
        record.barrier = None;
        record.gang = record.gang.next_attempt();
        record.fabric = fabric::next(
            self.job.settings.fabric.as_ref(),
            record.fabric.take(),
            &self.observed.fabric,
        );
        record.preflight = record.preflight.take().map(PreflightState::next_attempt);
        let supervised = matches!(self.observed.gang, SeenGang::Here(_));
        record.pod_template = supervised.then(|| in_place::template_digest(self.job));
    }

    /// Begins the next attempt in the pods of the one before, with what those have: nodes, fabric, template.
    pub(super) fn next_attempt_in_place(&mut self) {
        // A silent node of the attempt that ends keeps the next one waiting for nothing.
        self.reasons
            .retain(|reason| reason.code() != Code::NodeSilent);
        let record = &mut self.status.trainyard;
        let seen = self.observed.progress;
        let seen = seen.filter(|seen| seen.attempt == record.attempt);
        let kept = record.attempt_progress().map(|kept| kept.step);
        // A program that prints every hundredth step has saved some that it did not print.
        let saved = record.checkpoint.as_ref();
        let saved = saved.and_then(|saved| saved.saved_by(record.attempt));
        let saved = saved.map(|saved| saved.step);
        if let Some(step) = seen.map(|seen| seen.step).max(kept).max(saved) {
            record.ledger.reached(step);
        }
        record.attempt += 1;
        record.hold = None;
        record.formed = false;
        record.replicas = self.job.replicas();
        // What an initializer fetched stays on its volume.
        record.succeeded.retain(|role, _| role.is_initializer());
        // The pod of an initializer outlives the attempt, and is paid for once.
        let pods = self.observed.pods.iter();
        let initializers = pods.filter(|pod| pod.slot.role.is_initializer());
        let kept: BTreeSet<&str> = initializers.map(|pod| pod.uid.as_str()).collect();
        record.dismissed.retain(|uid| kept.contains(uid.as_str()));
        record.restarts.clear();
        record.last_ends.clear();
        record.retry_at = None;
        // Whatever began it, an attempt is the restart that was asked for by then.
        if !mutant::is(mutant::Mutant::ForgetsRestart) {
            record.restart.clone_from(&self.job.settings.restart);
        }
    }

    /// Remembers which pods ended well and which are gone, and counts.
    pub(super) fn remember(&mut self, roster: &Roster<'_>) {
        let record = &mut self.status.trainyard;
        let reruns = self.job.settings.compat.contains(&Compat::RerunSucceeded)
            || mutant::is(mutant::Mutant::RerunsSucceeded);
        if reruns {
            record.succeeded.clear();
        }
        for pod in &roster.notable {
            // A program that a barrier stops may end with 0 without having finished.
            if pod.phase == PodPhase::Succeeded && record.barrier.is_none() {
                record
                    .succeeded
                    .entry(pod.slot.role)
                    .or_default()
                    .insert(pod.slot.index);
            }
        }
        if !record.dismissed.is_empty() || !record.restarts.is_empty() {
            let pods = self.observed.pods.iter();
            let there: BTreeSet<&str> = pods.map(|pod| pod.uid.as_str()).collect();
            record.dismissed.retain(|uid| there.contains(uid.as_str()));
            record
                .restarts
                .retain(|uid, _| there.contains(uid.as_str()));
        }
        self.count(roster);
    }

    pub(super) fn count(&mut self, roster: &Roster<'_>) {
        self.status.replica_statuses = roster.counts(self.job, &self.status.trainyard);
    }

    /// Books the time up to now and says what the time from now on is spent on.
    pub(super) fn account_time(&mut self, roster: &Roster<'_>) {
        let record = &self.status.trainyard;
        let spent = record.spent;
        let restarted = record.attempt > 1
            && spent.user + spent.platform + spent.infrastructure + spent.preemption > 0;
        let mut scene = Scene::new(restarted, super::elastic::enough(self.job));
        for role in self.job.roles.keys() {
            scene.run(roster.healthy(*role));
        }
        for pod in &roster.notable {
            scene.pod(pod);
        }
        if roster
            .missing
            .iter()
            .any(|slot| !record.has_succeeded(*slot))
        {
            scene.missing();
        }
        let progress = self.progress();
        let open = record.ledger.open;
        let open = open.filter(|open| {
            // An earlier version took pods that run for training.
            let reported = progress.is_some() || record.attempt_progress().is_some();
            reported && open.attempt == record.attempt
        });
        let redone_until = record.redone_until();
        let mut turn = scene.phase(
            progress.as_ref(),
            open.map(|open| open.phase),
            redone_until,
            self.job.settings.hang_after,
        );
        let measured = record.checkpoint.as_ref();
        if turn.phase == Phase::Saving && measured.is_some_and(CheckpointRecord::measures_saves) {
            // A save in the background is no stall; the store shows how long that was.
            turn.phase = training(progress.map(|progress| progress.step), redone_until);
        }
        self.spend_time_since(turn.since.unwrap_or(self.now), turn.phase);
        if let Some(at) = turn.turns_at {
            // What was read last may be older than this: then the silence is over or not, and only the next reading shows it.
            let soon = self.now.checked_add(READ_AGAIN).unwrap_or(at);
            self.wake(if at > self.now { at } else { soon });
        }
    }

    /// Books that the attempt trained since its first step, however much later that was read, and however soon it ended.
    pub(super) fn book_first_step(&mut self) {
        let record = &self.status.trainyard;
        let Some(progress) = self.progress() else {
            return;
        };
        // A short attempt may have ended before anybody saw that its pods run. One whose steps are known already may
        // create a pod again.
        let unknown = record.attempt_progress().is_none();
        let is_before = |open: OpenSpan| {
            let before = open.phase == Phase::Starting || unknown && open.phase.precedes_training();
            open.attempt == record.attempt && before
        };
        if !record.ledger.open.is_some_and(is_before) {
            return;
        }
        let phase = training(Some(progress.step), record.redone_until());
        self.spend_time_since(progress.first_at, phase);
    }

    /// How far the training of this attempt is.
    fn progress(&self) -> Option<Progress> {
        let attempt = self.status.trainyard.attempt;
        self.observed
            .progress
            .filter(|seen| seen.attempt == attempt)
    }

    pub(super) fn spend_time_on(&mut self, phase: Phase) {
        self.spend_time_since(self.now, phase);
    }

    /// A phase that began before it was noticed takes its time back from the open span.
    fn spend_time_since(&mut self, since: Timestamp, phase: Phase) {
        let record = &mut self.status.trainyard;
        let since = since.min(self.now);
        record.ledger.enter(record.attempt, phase, since);
    }

    /// Keeps how far the training is, where that is worth a write.
    fn record_progress(&mut self) {
        let Some(progress) = self.observed.progress else {
            return;
        };
        let newer = ProgressRecord::from(&progress);
        let kept = self.status.trainyard.progress.as_ref();
        if kept == Some(&newer) || kept.is_some_and(|kept| kept.attempt > newer.attempt) {
            return;
        }
        let due_at = kept.map(ProgressRecord::due_at);
        let due = kept.is_none_or(|kept| kept.is_outdated_by(&newer))
            || due_at.is_some_and(|at| at <= self.now)
            || self.status != self.observed.status;
        if due {
            self.status.trainyard.progress = Some(newer);
        } else if let Some(at) = due_at {
            self.wake(at);
        }
    }

    pub(super) fn finish(mut self) -> Decision {
        if !self.actions.is_empty() {
            // No event follows an action that was lost.
            self.wake_in(RECHECK);
        }
        let ended = conditions::ended(&self.observed.status.conditions);
        if ended && !self.observed.being_deleted {
            // The last save of a job is often seen only after its end.
            checkpoint::note(&mut self);
        }
        let untouched = self.reasons.first().is_some_and(|reason| {
            matches!(
                reason.code(),
                Code::ManagedElsewhere | Code::StaleView | Code::BeingDeleted
            )
        });
        if !ended && !untouched {
            let waiting = !conditions::ended(&self.status.conditions);
            let reason = self.reasons.first().filter(|_| waiting);
            self.status.trainyard.waiting = reason.map(StoredReason::from);
            self.record_progress();
            checkpoint::settle(&mut self);
            if self.status != self.observed.status {
                self.status.trainyard.seen = self.observed.version;
            }
        }
        Decision {
            actions: self.actions,
            status: self.status,
            events: self.events,
            reasons: self.reasons,
            wake_at: self.wake_at,
            gang: self.gang,
        }
    }
}

/// What training a step is: again, where an earlier attempt has trained it.
fn training(step: Option<u64>, redone_until: Option<u64>) -> Phase {
    match (step, redone_until) {
        (Some(step), Some(until)) if step <= until => Phase::Redoing,
        _ => Phase::Training,
    }
}
