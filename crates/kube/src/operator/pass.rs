//! One pass over one job: observe, decide, write the status, emit events, act.
//!
//! Owns the order of these steps and what becomes of their failures. What is decided is
//! `trainyard_core::job`'s.
//!
//! Invariant: nothing is done before the status that remembers it is written; a status is written
//! only on top of the one that was observed.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinError;
use tracing::{Instrument as _, Span, debug, error, field::Empty, info, info_span, warn};
use trainyard_core::{
    job::{
        self, Action, Autoscaler, Event, EventKind, EventReason, JobStatus, Refusal, Unreadable,
    },
    launch::{self, StartPoint},
    reason::{Reason, StoredReason},
    spec::{Job, Kind},
};

use super::{Operator, fabrics::fitted};
use crate::{
    act::Actor,
    api::CallError,
    clock,
    event::Draft,
    key::JobKey,
    metrics::JobInfo,
    path::job_path,
    poison::{Judgement, Mark, panic_message},
    queue::Outcome,
    state::Scaler,
    store::TrainApi,
    trace,
    view::{Bare, JobView},
};

/// A job that has changed meanwhile is requeued after this, if its watch event does not come before. It
/// is not a failure of the job, so there is no backoff.
const CONFLICT: Duration = Duration::from_millis(500);
/// A job with a refused object is requeued after this, with backoff.
const REFUSED_FIRST: Duration = Duration::from_secs(2);

impl Operator {
    /// Looks at the job of `key` once.
    pub(crate) async fn pass(&self, key: &JobKey) -> Outcome {
        let began = Instant::now();
        let Some(view) = self.state.store().job(key) else {
            self.state.forget(key);
            self.poison.forget(key);
            self.listening.forget(key);
            self.reports.forget(key);
            self.flights.forget(key);
            self.events.forget(key);
            self.gangs.forget(key);
            {
                let mut store = self.state.store();
                store.fleet.queue.forget(&key.gang());
                store.forget_groups(key);
                store.forget_fabrics(key);
                store.forget_runtimes(key);
            }
            self.notify_wait_queue();
            self.caller.metrics.forget(key);
            if let Some(shadow) = &self.shadow {
                shadow.forget(key);
            }
            return Outcome::Gone;
        };
        let span = info_span!(
            target: trace::TARGET, "pass", job = %key, attempt = Empty, outcome = Empty,
        );
        let mark = Mark::new(key, &view);
        match self.poison.judge(&mark, &view) {
            Judgement::Clear => {}
            Judgement::Released => {
                info!(job = %key, "The job has been edited and is processed again");
                self.caller.metrics.set_aside(key, false);
                self.state.remember(key, |memory| memory.set_aside = None);
            }
            Judgement::SetAside(sentence) => return self.set_aside(key, &view, &sentence).await,
        }
        let wait = |wake| {
            if self.gangs.is_in_barrier(key) {
                Outcome::DoneQuickly(wake)
            } else {
                Outcome::Done(wake)
            }
        };
        let look = self.poison.watch(&mark, Box::pin(self.look(key, &view)));
        let looked = look.instrument(span.clone()).await;
        let (name, outcome) = match looked {
            Ok(wake) => ("done", wait(wake)),
            // It may lead again before it is known that it did not; no other watch event of the job would come.
            Err(CallError::Deposed) => (
                "deposed",
                Outcome::Done(Some(tokio::time::Instant::now() + CONFLICT)),
            ),
            // The job has changed meanwhile, and its watch event will come.
            Err(error) if error.is_conflict() || error.is_not_found() => {
                debug!(job = %key, %error, "The job has changed meanwhile");
                (
                    "conflict",
                    wait(Some(tokio::time::Instant::now() + CONFLICT)),
                )
            }
            Err(error) => {
                warn!(job = %key, %error, "Pass failed; retrying");
                ("failed", Outcome::Failed)
            }
        };
        span.record("outcome", name);
        self.caller.metrics.passed(name, began.elapsed());
        outcome
    }

    /// Counts a pass that panicked; the job is tried again later, or set aside.
    pub(crate) fn pass_panicked(&self, key: &JobKey, error: JoinError) {
        let Ok(payload) = error.try_into_panic() else {
            return;
        };
        let message = panic_message(payload.as_ref());
        error!(job = %key, panic = message, "Pass over the job panicked");
        self.caller.metrics.panicked();
        if let Some(view) = self.state.store().job(key) {
            self.poison.panicked(&Mark::new(key, &view), &view, message);
        }
    }

    /// Reports a job that is set aside, once. Nothing of the job is read for that: reading it may be what harms.
    async fn set_aside(&self, key: &JobKey, view: &JobView, sentence: &str) -> Outcome {
        self.caller.metrics.set_aside(key, true);
        self.release_unused_seats(key);
        if self.state.memory(key).set_aside.as_deref() == Some(sentence) {
            return Outcome::Done(None);
        }
        error!(job = %key, sentence, "The job is set aside");
        let written = match set_aside_patch(&view.status, sentence) {
            Some(operations) => {
                let path = job_path(key);
                self.caller
                    .patch_status(&path, &key.name, &operations)
                    .await
            }
            None => Ok(()),
        };
        match written {
            Err(CallError::Deposed) => return Outcome::Done(None),
            Err(error) if !error.is_refusal() && !error.is_not_found() => {
                warn!(job = %key, %error, "Cannot write that the job is set aside; retrying");
                return Outcome::Failed;
            }
            Ok(()) | Err(_) => {}
        }
        let event = Event {
            kind: EventKind::Warning,
            reason: "JobSetAside".to_owned(),
            message: sentence.to_owned(),
        };
        self.emit_event(key, &view.metadata.uid, 0, &event);
        let sentence = Some(sentence.to_owned());
        self.state
            .remember(key, |memory| memory.set_aside = sentence);
        Outcome::Done(None)
    }

    async fn look(
        &self,
        key: &JobKey,
        view: &JobView,
    ) -> Result<Option<tokio::time::Instant>, CallError> {
        #[cfg(test)]
        crate::poison::trip(view);
        let (job, runtime) = match self.read_job(key, view).await? {
            Ok(read) => read,
            Err(again) => return Ok(again),
        };
        let (mut observed, mut on_fabric) = match self.observe(key, view, &job) {
            Ok(observed) => observed,
            Err(why) => {
                if !is_managed_elsewhere(&job) {
                    self.report_unreadable_status(key, view, &why);
                }
                return Ok(None);
            }
        };
        self.status_is_readable(key);
        let uid = &view.metadata.uid;
        if self.read_last_lines(key, uid, &job, &observed).await
            && let Ok(again) = self.observe(key, view, &job)
        {
            (observed, on_fabric) = again;
        }
        if self.shadow.is_none() && self.consult(key, uid, &job, &mut observed).await {
            // A log took its time, and the job went on meanwhile.
            let verdict = observed.verdict.take();
            let judged = std::mem::take(&mut observed.judged);
            if let Ok(again) = self.observe(key, view, &job) {
                (observed, on_fabric) = again;
            }
            (observed.verdict, observed.judged) = (verdict, judged);
        }
        self.recall(key, &job, &mut observed).await?;
        let listens = match self.shadow {
            None => self.listen(key, uid, &job, &mut observed),
            Some(_) => None,
        };
        self.add_progress(key, uid, &job, &mut observed);
        let now = clock::now();
        let decision = job::decide(&job, &observed, now);
        let attempt = decision.status.trainyard.attempt;
        if attempt != observed.status.trainyard.attempt {
            self.begin_progress_of(key, uid, attempt);
        }
        if decision.status.trainyard.fabric != observed.status.trainyard.fabric {
            on_fabric = fitted(&job, &decision.status, &observed.fabric);
        }
        Span::current().record("attempt", attempt);
        debug!(
            job = %key,
            reason = decision.reasons.first().map_or_else(String::new, Reason::to_string),
            actions = decision.actions.len(),
            "Decided"
        );
        if let Some(shadow) = &self.shadow {
            return self
                .compare_in_shadow(shadow, key, view, &job, &observed, &decision)
                .await;
        }
        let mut delayed_until = None;
        if decision.status != observed.status {
            delayed_until = self.delay_progress_write(key, &observed.status, &decision);
            if delayed_until.is_none() {
                self.write_status(
                    key,
                    view,
                    Some(&job),
                    &observed.status,
                    &decision.status,
                    now,
                )
                .await?;
                if key.kind == Kind::Train && *self.state.store().train_api() != TrainApi::Served {
                    return Ok(None);
                }
            }
        }
        let creates =
            |action: &Action| matches!(action, Action::CreatePod { .. } | Action::ApplyShared(_));
        if let Some(runtime) = runtime.filter(|_| decision.actions.iter().any(creates))
            && let Some(refusal) = self.pin_runtime(key, uid, &runtime).await?
        {
            return Ok(self.after(key, view, vec![refusal]));
        }
        self.keep_gang(key, uid, &decision);
        let trust = self.renew_trust(key, &job, &observed).await;
        for event in &decision.events {
            info!(job = %key, reason = event.reason, sentence = event.message, "Event");
            self.emit_event(key, uid, attempt, event);
        }
        if job::has_ended(&observed.status) {
            self.events.forget(key);
        } else {
            self.events.put_exits(key, uid, &job, &observed.pods);
        }
        let metrics = &self.caller.metrics;
        metrics.progress.checkpoint(key, &decision.status);
        let label = |name: &str| view.metadata.label(name).map(str::to_owned);
        let info = JobInfo::of(key, label, &job);
        // Whoever leads reports it: a pass that ends later would leave what nobody removes.
        if *self.leads.borrow() && !is_managed_elsewhere(&job) {
            metrics.live.put(key, info, &job, &decision.status);
        }
        let push = self.push_of(key, view, &job, &decision);
        let cluster = self.cluster_now();
        let actor = Actor {
            caller: &self.caller,
            state: &self.state,
            events: &self.events,
            key,
            job: on_fabric.as_ref().unwrap_or(&job),
            uid,
            cluster: &cluster,
            push: push.as_ref(),
            start: StartPoint::on_cluster(&decision.status.trainyard, attempt),
            began: !observed.pods.is_empty(),
        };
        let mut refusals = actor.prepare_preflight(&decision.actions).await?;
        for action in decision.actions.iter().filter(|_| refusals.is_empty()) {
            if let Action::StartPreflight { round, seats } = action {
                self.start_preflight(key, uid, actor.job, &decision.status, *round, seats);
            }
        }
        refusals.extend(actor.carry_out(&decision.actions, attempt).await?);
        for action in &decision.actions {
            if let Action::EndPreflight { round } = action {
                self.end_preflight(key, uid, *round);
            }
        }
        self.notify_wait_queue();
        let wake = self.after(key, view, refusals);
        let asked = decision.wake_at.map(|at| {
            // The moment after, never the one before.
            let wait = at.duration_since(now) + jiff::SignedDuration::from_millis(1);
            tokio::time::Instant::now() + Duration::try_from(wait).unwrap_or_default()
        });
        let waits = [wake, delayed_until, listens, trust];
        Ok(asked.into_iter().chain(waits.into_iter().flatten()).min())
    }

    /// Until when a status that changes only the progress is not written, soon after the one before.
    fn delay_progress_write(
        &self,
        key: &JobKey,
        before: &JobStatus,
        decision: &job::Decision,
    ) -> Option<tokio::time::Instant> {
        let next = self.state.memory(key).wrote_at? + job::PROGRESS_EVERY;
        (next > tokio::time::Instant::now() && job::may_wait(before, decision)).then_some(next)
    }

    /// What is to be seen of a job now, and the job with what its fabric adds, where it is on one.
    fn observe(
        &self,
        key: &JobKey,
        view: &JobView,
        job: &Job,
    ) -> Result<(job::Observed, Option<Job>), Unreadable> {
        let mut observed = self.state.store().observe(key, view, job)?;
        observed.fabric = self.seen_fabric(key, job);
        let on_fabric = fitted(job, &observed.status, &observed.fabric);
        let launched = on_fabric.as_ref().unwrap_or(job);
        observed.seating = self.seating(key, view, launched, &observed.status);
        observed.grouping = self.grouping(key, view, launched);
        let uid = &view.metadata.uid;
        observed.preflight =
            self.seen_preflight(key, uid, launched, &observed.status, &observed.seating);
        observed.gang = self.seen_gang(key, view, job, &observed);
        Ok((observed, on_fabric))
    }

    /// Adds what only this operator remembers.
    async fn recall(
        &self,
        key: &JobKey,
        job: &Job,
        observed: &mut job::Observed,
    ) -> Result<(), CallError> {
        let memory = self.state.memory(key);
        observed.shared = memory.shared;
        observed.refusals = memory.refusals;
        observed.autoscaler = self.autoscaler(key, job, memory.autoscaler).await?;
        Ok(())
    }

    /// The stored autoscaler of the job; read once.
    async fn autoscaler(
        &self,
        key: &JobKey,
        job: &Job,
        known: Scaler,
    ) -> Result<Autoscaler, CallError> {
        let wanted = launch::autoscaler(job);
        let known = match known {
            Scaler::Unknown if wanted.is_some() => {
                let path = format!(
                    "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
                    key.namespace
                );
                let found = match self.caller.get::<Bare>(&path, &key.name).await {
                    Ok(found)
                        if found.metadata.owner() == job.uid.as_deref().unwrap_or_default() =>
                    {
                        Scaler::Found(found.metadata.uid)
                    }
                    // One of somebody else is not the job's: creating the job's own finds it and says whose it is.
                    Ok(_) => Scaler::Missing,
                    Err(error) if error.is_not_found() => Scaler::Missing,
                    Err(error) => return Err(error),
                };
                self.state
                    .remember(key, |memory| memory.autoscaler = found.clone());
                found
            }
            known => known,
        };
        Ok(match known {
            Scaler::Unknown | Scaler::Missing => Autoscaler::Missing,
            // In shadow it is compared, field by field, and not created again.
            Scaler::Found(_) if self.shadow.is_some() => Autoscaler::Current,
            Scaler::Made { spec, .. } if wanted.is_some_and(|wanted| wanted.spec == *spec) => {
                Autoscaler::Current
            }
            Scaler::Found(_) | Scaler::Made { .. } => Autoscaler::Outdated,
        })
    }

    pub(super) async fn write_status(
        &self,
        key: &JobKey,
        view: &JobView,
        job: Option<&Job>,
        before: &JobStatus,
        after: &JobStatus,
        now: Timestamp,
    ) -> Result<(), CallError> {
        let (path, version) = (job_path(key), view.metadata.resource_version);
        let written: JobView = if key.kind == Kind::Train {
            let status = job::stored_train_status(job, after, &view.stored_status());
            let written: JobView = self
                .caller
                .replace_status(&path, &key.name, version, &status)
                .await?;
            if written.stored_status().get("trainyard").is_none() {
                self.note_pruned_record(key);
            }
            written
        } else {
            self.caller
                .replace_status(&path, &key.name, version, after)
                .await?
        };
        self.caller.metrics.changed(key, before, after, now);
        self.state.remember(key, |memory| {
            memory.wrote_at = Some(tokio::time::Instant::now());
        });
        self.state.store().remember_job(key, written);
        Ok(())
    }

    /// Keeps what was refused for the next pass, emits one event, and returns when to retry.
    fn after(
        &self,
        key: &JobKey,
        view: &JobView,
        refusals: Vec<Refusal>,
    ) -> Option<tokio::time::Instant> {
        let first = refusals.first().cloned();
        let (new, wait) = self.state.refused(key, refusals, REFUSED_FIRST);
        let first = first?;
        if new {
            warn!(job = %key, tried = first.tried, sentence = first.message, "Refused");
            let event = Event {
                kind: EventKind::Warning,
                reason: EventReason::Refused.of(key.kind),
                message: first.reason(0).to_string(),
            };
            self.emit_event(key, &view.metadata.uid, 0, &event);
        }
        Some(tokio::time::Instant::now() + wait)
    }

    /// Has an event written on the job, or counted where it is there already; nothing waits for it.
    pub(crate) fn emit_event(&self, key: &JobKey, uid: &str, attempt: u32, event: &Event) {
        self.events.put(key, uid, Draft::of(event, attempt));
    }
}

/// The change of a stored status that says why the job is set aside. A status that is not an object, or in which our part
/// is none, is left as it is.
fn set_aside_patch(status: &str, sentence: &str) -> Option<Value> {
    let why = sentence.to_owned();
    let reason = json!(StoredReason::from(&Reason::SetAside { why }));
    let stored: Value = serde_json::from_str(status).unwrap_or_default();
    let (path, value) = match (&stored, stored.get("trainyard")) {
        (Value::Null, _) => ("/status", json!({"trainyard": {"waiting": reason}})),
        (Value::Object(_), None) => ("/status/trainyard", json!({"waiting": reason})),
        (_, Some(Value::Object(_))) => ("/status/trainyard/waiting", reason),
        _ => return None,
    };
    Some(json!([{"op": "add", "path": path, "value": value}]))
}

pub(crate) fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.run_policy.managed_by.as_deref();
    manager.is_some_and(|manager| manager != job.kind.own_manager())
}
