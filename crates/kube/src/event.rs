//! Events on jobs: folded, bounded, and written beside the passes.
//!
//! # Flow
//! A pass puts what it has to report and continues. [`Events::write_all`] creates the Event, or raises the `count` of the one
//! that is there. The name of an Event is a hash of the job's uid, type, reason, attempt and message, so an operator that was
//! restarted finds the Event of the one before it.
//!
//! # Bounds
//! - [`mod@fold`] bounds the Events of a gang.
//! - An Event is written at most once in [`EVERY`]; what is repeated meanwhile is counted and written together.
//! - At most [`JOB_MOST`] Events of a job and [`MOST`] in all are written in that time; further ones are dropped.
//! - A write that fails is tried [`TRIES`] times; one that is refused, once.
//!
//! # Caveats
//! Events are best effort: nobody waits for them, and nothing is decided by them. A `count` may be too low after a restart of the
//! operator, and too high where the answer of the API server to a raised `count` was lost.

mod fold;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::Notify, time::Instant};
use tracing::debug;
use trainyard_core::{
    job::{EventKind, ObservedPod},
    spec::Job,
};

pub(crate) use self::fold::{Draft, PodChange, PodEvent, fold};
use crate::{
    api::{CallError, Caller},
    clock,
    key::JobKey,
    path::stored_as,
};

/// An Event is written at most this often.
const EVERY: Duration = Duration::from_secs(10);
/// Events of one job that are written in that time.
const JOB_MOST: usize = 48;
/// Events of all jobs that are written in that time.
const MOST: usize = 20_000;
/// How often a write is tried that fails.
const TRIES: u32 = 3;
/// Writes that are under way at once.
const AT_ONCE: usize = 8;

/// The Events that are to be written, and those written lately.
#[derive(Debug)]
pub(crate) struct Events {
    shelf: Mutex<Shelf>,
    changed: Notify,
    /// This process, as `reportingInstance`.
    instance: String,
}

#[derive(Debug, Default)]
struct Shelf {
    entries: BTreeMap<Id, Entry>,
    /// The ends of containers of running jobs that were reported: the pod and the number of the end.
    ends: BTreeMap<JobKey, BTreeSet<(String, u32)>>,
}

type Id = (JobKey, String);

/// One Event.
#[derive(Clone, Debug)]
struct Entry {
    uid: String,
    /// Its count is what is not written yet.
    draft: Draft,
    first: Timestamp,
    last: Timestamp,
    /// The count that is stored, once that is known.
    stored: Option<u32>,
    failures: u32,
    /// Not written before.
    due: Instant,
}

/// What an answer says of an Event that is stored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredEvent {
    count: Option<u32>,
    first_timestamp: Option<Timestamp>,
    reporting_instance: Option<String>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            shelf: Mutex::default(),
            changed: Notify::new(),
            instance: format!("trainyard-{:016x}", RandomState::new().hash_one(0_u8)),
        }
    }
}

impl Events {
    /// Has an Event written on the job `key`, or counted.
    pub(crate) fn put(&self, key: &JobKey, uid: &str, draft: Draft) {
        let now = clock::now();
        if self.shelf().put(key, uid, draft, now, Instant::now()) {
            self.changed.notify_one();
        } else {
            debug!(job = %key, "Too many events; dropped one");
        }
    }

    /// Has the ends of training containers reported that were not yet, in the order of time. A pod that is being deleted is left
    /// out: the deletion ended it.
    pub(crate) fn put_exits(&self, key: &JobKey, uid: &str, job: &Job, pods: &[ObservedPod]) {
        let ended = || pods.iter().filter_map(|pod| Some((pod, pod.exit?)));
        let seen = ended().map(|(pod, _)| (pod.uid.clone(), pod.ends));
        let seen: BTreeSet<_> = seen.collect();
        let reported = self.shelf().ends.insert(key.clone(), seen);
        let is_new = |pod: &ObservedPod| {
            let reported = reported.as_ref();
            pod.deleted_at.is_none()
                && !reported.is_some_and(|ends| ends.contains(&(pod.uid.clone(), pod.ends)))
        };
        let mut new: Vec<_> = ended().filter(|(pod, _)| is_new(pod)).collect();
        new.sort_by_key(|(pod, exit)| (exit.at.is_none(), exit.at, pod.slot));
        let exits = new.iter().map(|(pod, exit)| PodEvent {
            change: PodChange::Exited,
            attempt: pod.attempt,
            text: format!(
                "{}.{} exited with code {}",
                key.namespace,
                job.pod_name(pod.slot),
                exit.code
            ),
        });
        let exits: Vec<_> = exits.collect();
        for mut draft in fold(job.total_replicas(), &exits) {
            draft.may_be_counted = reported.is_none();
            self.put(key, uid, draft);
        }
    }

    /// The job is gone, or has ended.
    pub(crate) fn forget(&self, key: &JobKey) {
        self.shelf().ends.remove(key);
    }

    /// Another operator leads and reports ends meanwhile: those that are seen later may be counted already.
    pub(crate) fn forget_all(&self) {
        self.shelf().ends.clear();
    }

    /// Writes Events as they are put; never returns.
    pub(crate) async fn write_all(&self, caller: &Caller) {
        loop {
            let (due, next) = self.shelf().take_due(Instant::now());
            if due.is_empty() {
                let wait = async {
                    match next {
                        Some(next) => tokio::time::sleep_until(next).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = wait => {}
                }
                continue;
            }
            self.write(caller, due).await;
        }
    }

    /// Writes what is left, without waiting for anything.
    pub(crate) async fn flush(&self, caller: &Caller) {
        let (left, _) = self.shelf().take_due(Instant::now() + EVERY);
        self.write(caller, left).await;
    }

    async fn write(&self, caller: &Caller, entries: Vec<(Id, Entry)>) {
        stream::iter(entries)
            .for_each_concurrent(AT_ONCE, |(id, entry)| async move {
                let result = self.write_one(caller, &id, &entry).await;
                if let Err(error) = &result {
                    debug!(job = %id.0, %error, reason = entry.draft.reason, "Cannot write an event");
                }
                self.shelf().written(&id, &entry, result, Instant::now());
            })
            .await;
    }

    /// Creates the Event, or raises its count; returns the count that is stored then.
    async fn write_one(
        &self,
        caller: &Caller,
        (key, id): &Id,
        entry: &Entry,
    ) -> Result<u32, CallError> {
        let path = format!("/api/v1/namespaces/{}/events", key.namespace);
        let name = name(key, id);
        let new = entry.draft.count;
        if let Some(stored) = entry.stored {
            let total = stored.saturating_add(new);
            match self.recount(caller, &path, &name, entry, total).await {
                // It has expired.
                Err(error) if error.is_not_found() => {}
                done => return done,
            }
        }
        let object = self.object(key, &name, entry);
        match caller.create::<StoredEvent>(&path, &object).await {
            Ok(_) => return Ok(new),
            Err(error) if error.is_taken() => {}
            Err(error) => return Err(error),
        }
        // The operator has no right to read Events. A patch returns what is stored.
        let change = json!({"lastTimestamp": stamp(entry.last)});
        let there = caller.merge::<StoredEvent>(&path, &name, &change).await?;
        let stored = there.count.unwrap_or(1);
        let is_this = there.reporting_instance.as_ref() == Some(&self.instance)
            && there.first_timestamp.map(stamp) == Some(stamp(entry.first));
        let total = if is_this {
            // The answer to an earlier try was lost.
            new
        } else if entry.draft.may_be_counted {
            stored.max(new)
        } else {
            stored.saturating_add(new)
        };
        if total == stored {
            return Ok(stored);
        }
        self.recount(caller, &path, &name, entry, total).await
    }

    async fn recount(
        &self,
        caller: &Caller,
        path: &str,
        name: &str,
        entry: &Entry,
        total: u32,
    ) -> Result<u32, CallError> {
        let change = json!({
            "count": total,
            "lastTimestamp": stamp(entry.last),
            "message": entry.draft.message(total),
        });
        let written = caller.merge::<StoredEvent>(path, name, &change).await;
        written.map(|_| total)
    }

    fn object(&self, key: &JobKey, name: &str, entry: &Entry) -> serde_json::Value {
        let draft = &entry.draft;
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": &*key.namespace},
            "involvedObject": {
                "apiVersion": stored_as(key.kind).api_version(),
                "kind": key.kind.name(),
                "name": &*key.name,
                "namespace": &*key.namespace,
                "uid": entry.uid,
            },
            "reason": draft.reason,
            "message": draft.message(draft.count),
            "type": match draft.kind {
                EventKind::Normal => "Normal",
                EventKind::Warning => "Warning",
            },
            "source": {"component": key.kind.controller()},
            "reportingComponent": key.kind.controller(),
            "reportingInstance": self.instance,
            "firstTimestamp": stamp(entry.first),
            "lastTimestamp": stamp(entry.last),
            "count": draft.count,
        })
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Whether there was place for it.
    fn put(&mut self, key: &JobKey, uid: &str, draft: Draft, now: Timestamp, at: Instant) -> bool {
        let id = (key.clone(), draft.id(uid));
        if let Some(there) = self.entries.get_mut(&id) {
            if there.draft.count == 0 {
                there.first = now;
            }
            there.last = now;
            there.draft.add(draft);
            return true;
        }
        let of_job = self.entries.range((key.clone(), String::new())..);
        let of_job = of_job.take_while(|((other, _), _)| other == key).count();
        if of_job >= JOB_MOST || self.entries.len() >= MOST {
            return false;
        }
        let uid = uid.to_owned();
        let entry = Entry {
            uid,
            draft,
            first: now,
            last: now,
            stored: None,
            failures: 0,
            due: at,
        };
        self.entries.insert(id, entry);
        true
    }

    /// What is to be written now, and when to look again. Forgets what was written long enough ago.
    fn take_due(&mut self, now: Instant) -> (Vec<(Id, Entry)>, Option<Instant>) {
        self.entries
            .retain(|_, entry| entry.draft.count > 0 || entry.due > now);
        let mut due = Vec::new();
        let mut next = None;
        for (id, entry) in &mut self.entries {
            if entry.due > now || entry.draft.count == 0 {
                next = next.min(Some(entry.due)).or(Some(entry.due));
                continue;
            }
            due.push((id.clone(), entry.clone()));
            entry.draft.count = 0;
            entry.due = now + EVERY;
        }
        (due, next)
    }

    /// Remembers what became of a write.
    fn written(&mut self, id: &Id, sent: &Entry, result: Result<u32, CallError>, now: Instant) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.due = now + EVERY;
        match result {
            Ok(stored) => {
                entry.stored = Some(stored);
                entry.failures = 0;
            }
            Err(error) if entry.failures + 1 < TRIES && may_be_retried(&error) => {
                entry.failures += 1;
                entry.first = sent.first;
                entry.draft.count = entry.draft.count.saturating_add(sent.draft.count);
            }
            Err(_) => drop(self.entries.remove(id)),
        }
    }
}

/// Whether a later try may go better. An operator that does not lead leaves it to the one that does.
fn may_be_retried(error: &CallError) -> bool {
    !error.is_refusal() && !error.is_not_found() && !matches!(error, CallError::Deposed)
}

/// The name of the Event: names are at most 253 characters.
fn name(key: &JobKey, id: &str) -> String {
    let job: String = key.name.chars().take(200).collect();
    format!("{job}.{id}")
}

fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
