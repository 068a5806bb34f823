//! How far the training of each job is: the end of the log of the pod that reports steps, read now and then.
//!
//! Owns the reads and what they found. Which pod of which job is read, and when, is `trainyard_core::progress::rota`'s; what
//! lines mean is `trainyard_core::progress`'s; what follows is `trainyard_core::job`'s.
//!
//! ```text
//! pass ─enroll─▶ rota ─order─▶ read (bounded) ─▶ lines on a thread of their own ─▶ track ─▶ metrics, next pass
//!                                        what pods send by themselves (`push`) ─────┘
//! ```
//!
//! Invariants: no pass waits for a log but the one that sees a pod of its job ended, and that for 3 s at most. What is read for one attempt of one job changes nothing of another: a read whose attempt is
//! over is dropped. The operator's thread searches no lines. All bounds of [`rota`] hold.

pub(super) mod lines;
mod sent;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kube::core::subresource::LogParams;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};
use tracing::{debug, info};
use trainyard_core::{
    job::{self, Event, EventKind, Observed, ObservedPod, PodPhase, PodUid},
    progress::{
        Track,
        rota::{self, Enrolled, Failure, Next, Order, Outcome, PodToRead, Rota, Unknown},
    },
    spec::{Job, Role},
};

use self::lines::AttemptProgress;
use super::{Operator, consult::container, pass::is_managed_elsewhere};
use crate::{api::CallError, clock, feed::Sight, key::JobKey, path::object_path};

/// What is known of the progress of all jobs.
#[derive(Debug)]
pub(crate) struct Reports {
    /// The times of the rota are counted from here.
    began: Instant,
    state: Mutex<State>,
    /// A job was enrolled, or a read has ended.
    changed: Notify,
    /// Lines are searched on a thread of their own, one log at a time: no job waits for it.
    searches: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    rota: Rota<JobKey>,
    jobs: BTreeMap<JobKey, Followed>,
}

/// One attempt whose logs are read.
#[derive(Debug)]
struct Followed {
    uid: String,
    attempt: u32,
    /// Its pods that run, as the last pass saw them.
    pods: Vec<PodToRead>,
    /// The container that trains, by role.
    containers: BTreeMap<Role, String>,
    attempt_progress: AttemptProgress,
    /// When each pod was last read, and the time stamp of its last line that was read.
    read: BTreeMap<PodUid, LastRead>,
    /// Lines until then are of earlier attempts, where the attempt began in the pods of the one before.
    since: Option<Timestamp>,
    /// Until when the output of the pod that reports is known.
    known_until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Timestamp,
    line: Option<Timestamp>,
}

/// One read that is to be made.
#[derive(Debug)]
struct Read {
    key: JobKey,
    order: Order,
    /// The incarnation of the pod.
    pod: PodUid,
    /// Its name.
    name: String,
    container: Option<String>,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::default(),
            changed: Notify::new(),
            searches: Semaphore::new(1),
        }
    }
}

impl Reports {
    pub(crate) fn forget(&self, key: &JobKey) {
        let mut state = self.state();
        state.rota.drop_job(key);
        state.jobs.remove(key);
    }

    /// Forgets all jobs: another operator reads their logs. Reads that are under way find no job to report to.
    pub(crate) fn forget_all(&self) {
        let mut state = self.state();
        state.rota.drop_all();
        state.jobs.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.began)
    }
}

impl Operator {
    /// Adds how far the training is, and has the job's logs read from now on, or no more.
    pub(crate) fn add_progress(&self, key: &JobKey, uid: &str, job: &Job, observed: &mut Observed) {
        if !self.knows_progress() {
            return;
        }
        let attempt = observed.status.trainyard.attempt;
        let now = self.reports.now();
        let mut guard = self.reports.state();
        let state = &mut *guard;
        if !is_open(job, observed) {
            state.rota.drop_job(key);
            // What was read last is still true in the pass that ends the job.
            if job::has_ended(&observed.status) {
                state.jobs.remove(key);
            }
        }
        let known = state.jobs.get_mut(key);
        if let Some(followed) = known.filter(|followed| followed.is_of(uid, attempt)) {
            observed.progress = followed.progress();
        }
        if !is_open(job, observed) {
            return;
        }
        let pods = observed.pods.iter().filter(|pod| runs(pod, attempt));
        let pods: Vec<PodToRead> = pods.map(to_read).collect();
        let followed = state.jobs.get(key);
        let known = followed.is_some_and(|followed| followed.is_of(uid, attempt))
            || state.rota.is_enrolled(key, uid, attempt);
        if pods.is_empty() && !known {
            // Nothing to read yet.
            return;
        }
        let enrolled = Enrolled {
            namespace: &key.namespace,
            uid,
            attempt,
        };
        let since = observed.status.trainyard.in_place_since();
        state.follow(key, enrolled, pods, job, observed, since);
        if self.reads_progress() {
            state.rota.enroll(key, enrolled, now);
        }
        drop(guard);
        self.reports.changed.notify_one();
    }

    /// Reads the log of a pod that has ended, before its job is decided on: the last step and the last loss stand at its end. It
    /// takes at most [`rota::LAST_READ_WITHIN`] and [`rota::LAST_READ_PATIENCE`]; whether anything was read for.
    pub(crate) async fn read_last_lines(
        &self,
        key: &JobKey,
        uid: &str,
        job: &Job,
        observed: &Observed,
    ) -> bool {
        let mut read_any = false;
        while let Some((read, at)) = self.last_read(key, uid, job, observed) {
            read_any = true;
            tokio::time::sleep_until(self.reports.began + at).await;
            let began = clock::now();
            let log = tokio::time::timeout(rota::LAST_READ_PATIENCE, self.read_log(&read));
            let outcome = match log.await {
                Ok(Ok(bytes)) => self.take_log(&read, bytes, began).await,
                Ok(Err(failure)) => Outcome::Failed(failure),
                Err(_) => Outcome::Failed(Failure::Unreachable),
            };
            self.caller.metrics.progress.read(outcome);
            let now = self.reports.now();
            {
                let mut state = self.reports.state();
                state.rota.report(key, &read.order, outcome, now);
            }
            self.reports.changed.notify_one();
        }
        read_any
    }

    /// The next read of a pod that has ended, and when it may begin.
    fn last_read(
        &self,
        key: &JobKey,
        uid: &str,
        job: &Job,
        observed: &Observed,
    ) -> Option<(Read, Duration)> {
        let attempt = observed.status.trainyard.attempt;
        if !self.reads_progress() || !is_open(job, observed) {
            return None;
        }
        let ended = observed.pods.iter().filter(|pod| {
            let silent = pod
                .node
                .as_ref()
                .map(|node| observed.nodes.contains_key(node));
            pod.attempt == attempt && pod.exit.is_some() && has_ended(pod) && silent != Some(true)
        });
        let ended: Vec<PodToRead> = ended.map(to_read).collect();
        if ended.is_empty() {
            return None;
        }
        let now = self.reports.now();
        let mut guard = self.reports.state();
        let state = &mut *guard;
        // A job may end before anybody has seen it run.
        let enrolled = Enrolled {
            namespace: &key.namespace,
            uid,
            attempt,
        };
        let running = observed.pods.iter().filter(|pod| runs(pod, attempt));
        let running = running.map(to_read).collect();
        let since = observed.status.trainyard.in_place_since();
        state.follow(key, enrolled, running, job, observed, since);
        state.rota.enroll(key, enrolled, now);
        let (order, at) = state.rota.choose_last(key, &ended, now)?;
        let pod = ended.into_iter().find(|pod| pod.slot == order.slot);
        let pod = pod.map(|pod| pod.uid).unwrap_or_default();
        let followed = state.jobs.get(key);
        let container = followed.and_then(|it| it.containers.get(&order.slot.role).cloned());
        let Some(name) = self.state.store().pod_called(key, &pod) else {
            let gone = Outcome::Failed(Failure::Gone);
            state.rota.report(key, &order, gone, now);
            return None;
        };
        let read = Read {
            key: key.clone(),
            order,
            pod,
            name,
            container,
        };
        Some((read, at))
    }

    /// Another attempt begins: whatever is read for the one before may be of the next one, which has pods of the same names.
    pub(crate) fn begin_progress_of(&self, key: &JobKey, uid: &str, attempt: u32) {
        let now = self.reports.now();
        let mut state = self.reports.state();
        if state.jobs.remove(key).is_some() && self.reads_progress() {
            let enrolled = Enrolled {
                namespace: &key.namespace,
                uid,
                attempt,
            };
            // The pod that reported is remembered.
            state.rota.enroll(key, enrolled, now);
        }
    }

    /// Reads logs as long as this operator leads.
    pub(crate) async fn read_progress(self) {
        let mut leads = self.leads();
        let mut sight = self.sight();
        loop {
            if leads.wait_for(|leads| *leads).await.is_err()
                || sight.wait_for(Sight::is_clear).await.is_err()
            {
                return;
            }
            let next = self.reports.state().rota.next(self.reports.now());
            match next {
                Next::Job(key) => {
                    if let Some(read) = self.next_read(key) {
                        tokio::spawn(self.clone().read_and_take(read));
                    }
                }
                Next::At(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(self.reports.began + at) => {}
                        () = self.reports.changed.notified() => {}
                    }
                }
                Next::Idle => self.reports.changed.notified().await,
            }
        }
    }

    /// The read of a job whose turn has come.
    fn next_read(&self, key: JobKey) -> Option<Read> {
        let now = self.reports.now();
        let mut guard = self.reports.state();
        let state = &mut *guard;
        let followed = state.jobs.get(&key);
        let pods = followed.map_or(&[][..], |followed| followed.pods.as_slice());
        let order = state.rota.choose(&key, pods, now)?;
        let followed = followed?;
        let pod = followed.pods.iter().find(|pod| pod.slot == order.slot);
        let pod = pod.map(|pod| pod.uid.clone());
        let container = followed.containers.get(&order.slot.role).cloned();
        let found = pod.and_then(|pod| {
            let name = self.state.store().pod_called(&key, &pod)?;
            Some((pod, name))
        });
        let Some((pod, name)) = found else {
            let gone = Outcome::Failed(Failure::Gone);
            state.rota.report(&key, &order, gone, now);
            return None;
        };
        Some(Read {
            key,
            order,
            pod,
            name,
            container,
        })
    }

    /// Reads the end of a log and applies its progress.
    async fn read_and_take(self, read: Read) {
        let began = clock::now();
        let answer = self.read_log(&read).await;
        let outcome = match answer {
            Ok(bytes) => self.take_log(&read, bytes, began).await,
            Err(failure) => Outcome::Failed(failure),
        };
        self.caller.metrics.progress.read(outcome);
        let Read { key, order, .. } = &read;
        let unknown = {
            let mut state = self.reports.state();
            state.rota.report(key, order, outcome, self.reports.now())
        };
        self.reports.changed.notify_one();
        if let Some(unknown) = unknown {
            self.emit_progress_unknown(key, order, unknown);
        }
    }

    async fn read_log(&self, read: &Read) -> Result<Vec<u8>, Failure> {
        let params = LogParams {
            container: read.container.clone(),
            tail_lines: Some(read.order.lines.into()),
            limit_bytes: i64::try_from(rota::BYTES).ok(),
            timestamps: true,
            ..LogParams::default()
        };
        let path = object_path(&read.key.namespace, "pods");
        let log = self.caller.log(&path, &read.name, &params, rota::BYTES);
        match tokio::time::timeout(rota::PATIENCE, log).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => {
                debug!(job = %read.key, pod = read.name, %error, "Cannot read the log of a pod");
                Err(failure(&error))
            }
            Err(_) => Err(Failure::Unreachable),
        }
    }

    /// Searches the lines of a log, and keeps what they report if their attempt still runs.
    async fn take_log(&self, read: &Read, bytes: Vec<u8>, began: Timestamp) -> Outcome {
        let Read {
            key, order, pod, ..
        } = read;
        // One log at a time: what two reads of a job find is applied one after the other.
        let Ok(_search) = self.reports.searches.acquire().await else {
            return Outcome::Failed(Failure::Unreachable);
        };
        let (attempt_progress, last, since) = {
            let state = self.reports.state();
            let followed = state.jobs.get(key);
            match followed.filter(|followed| followed.is_of(&order.uid, order.attempt)) {
                Some(followed) => (
                    followed.attempt_progress.clone(),
                    followed.read.get(pod).copied(),
                    followed.since,
                ),
                None => return Outcome::Read(rota::Found::default()),
            }
        };
        let piece = lines::Piece {
            pod: pod.clone(),
            slot: order.slot,
            lines: order.lines,
            after: last.and_then(|last| last.line).max(since),
            earliest: last.map(|last| last.at),
            latest: clock::now(),
        };
        let search = tokio::task::spawn_blocking(move || attempt_progress.search(&piece, &bytes));
        let Ok(searched) = search.await else {
            return Outcome::Failed(Failure::Gone);
        };
        let mut state = self.reports.state();
        let followed = state.jobs.get_mut(key);
        let Some(followed) = followed.filter(|it| it.is_of(&order.uid, order.attempt)) else {
            return Outcome::Read(rota::Found::default());
        };
        let speaks = searched.attempt_progress.speaks(order.slot);
        let line = searched.last_line.or(last.and_then(|last| last.line));
        followed.attempt_progress = searched.attempt_progress;
        let read_now = LastRead {
            at: last.map_or(began, |last| last.at.max(began)),
            line,
        };
        followed.read.insert(pod.clone(), read_now);
        if speaks {
            // Of a log whose end was cut off, only what came is known.
            let until = if searched.found.cut {
                line.map(|line| line.min(began))
            } else {
                Some(began)
            };
            followed.known_until = followed.known_until.max(until);
        }
        let track = followed.attempt_progress.track().clone();
        drop(state);
        self.caller.metrics.progress.of(key, &track);
        if speaks && track.step.is_some() {
            self.enqueue_job(key.clone());
        }
        Outcome::Read(searched.found)
    }

    /// Reports once why the progress of a job is not known.
    fn emit_progress_unknown(&self, key: &JobKey, order: &Order, unknown: Unknown) {
        let view = self.state.store().job(key);
        if view.is_none_or(|view| view.metadata.uid != order.uid) {
            return;
        }
        let message = format!("progress is unknown: {}", unknown.sentence());
        info!(job = %key, sentence = message, "Event");
        let event = Event {
            kind: EventKind::Warning,
            reason: "ProgressUnknown".to_owned(),
            message,
        };
        self.emit_event(key, &order.uid, order.attempt, &event);
    }
}

impl State {
    /// Remembers the pods of an attempt that run; of another attempt nothing else is known.
    fn follow(
        &mut self,
        key: &JobKey,
        of: Enrolled<'_>,
        pods: Vec<PodToRead>,
        job: &Job,
        observed: &Observed,
        since: Option<Timestamp>,
    ) {
        let containers = containers(job, observed);
        match self.jobs.get_mut(key) {
            Some(followed) if followed.is_of(of.uid, of.attempt) => {
                let there = |pod: &PodUid| observed.pods.iter().any(|other| other.uid == *pod);
                if followed.read.len() > observed.pods.len() {
                    followed.read.retain(|pod, _| there(pod));
                }
                followed.pods = pods;
                followed.containers = containers;
            }
            _ => {
                let followed = Followed {
                    uid: of.uid.to_owned(),
                    attempt: of.attempt,
                    pods,
                    containers,
                    attempt_progress: AttemptProgress::default(),
                    read: BTreeMap::new(),
                    since,
                    known_until: None,
                };
                self.jobs.insert(key.clone(), followed);
            }
        }
    }
}

impl Followed {
    fn is_of(&self, uid: &str, attempt: u32) -> bool {
        self.uid == uid && self.attempt == attempt
    }

    fn progress(&self) -> Option<job::Progress> {
        let track: &Track = self.attempt_progress.track();
        track.progress(self.attempt, self.known_until?)
    }
}

/// Whether somebody may train for this job.
fn is_open(job: &Job, observed: &Observed) -> bool {
    !observed.being_deleted
        && !job.run_policy.suspend
        && !job::has_ended(&observed.status)
        && !is_managed_elsewhere(job)
        && observed.status.trainyard.attempt > 0
}

fn runs(pod: &ObservedPod, attempt: u32) -> bool {
    pod.attempt == attempt && pod.deleted_at.is_none() && pod.phase == PodPhase::Running
}

fn has_ended(pod: &ObservedPod) -> bool {
    matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

fn to_read(pod: &ObservedPod) -> PodToRead {
    PodToRead {
        uid: pod.uid.clone(),
        slot: pod.slot,
        node: pod.node.clone(),
    }
}

/// The container that trains, of each role.
fn containers(job: &Job, observed: &Observed) -> BTreeMap<Role, String> {
    let mut containers = BTreeMap::new();
    for pod in &observed.pods {
        if let std::collections::btree_map::Entry::Vacant(entry) = containers.entry(pod.slot.role)
            && let Some(name) = container(job, pod)
        {
            entry.insert(name.to_owned());
        }
    }
    containers
}

/// What an answer means for the reads to come.
fn failure(error: &CallError) -> Failure {
    match error.code() {
        Some(401 | 403) => Failure::Denied,
        Some(400 | 404) => Failure::Gone,
        Some(429) => Failure::Busy(error.retry_after()),
        _ => Failure::Unreachable,
    }
}
