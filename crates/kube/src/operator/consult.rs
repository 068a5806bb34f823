//! Why a rank failed: the end of its log, read before its pod goes, and what the doctor makes of it.
//!
//! Owns the reading of that log, and its bounds. Which pod's it is and what follows from it is `trainyard_core::job`'s, what
//! lines mean `trainyard_core::diagnose`'s.
//!
//! Invariants: at most [`AT_ONCE`] logs are read at once, [`NAMESPACE_AT_ONCE`] of one namespace; a job waits for one at most [`PATIENCE`], once in an
//! attempt (for a few at once after each end of pods that restart alone), and holds no other job up. If logs cannot be read, no job waits for them: after
//! [`FAILURES`] in a row none of that namespace is asked for during [`PAUSE`]. Logs of one namespace that cannot be read cost no other one its verdicts.

mod ends;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::core::subresource::LogParams;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};
use tracing::debug;
use trainyard_core::{
    diagnose::{Doctor, Known, Report, Rules, TransportSeen},
    job::{self, Exit, Observed, ObservedPod, PodPhase},
    spec::Job,
};

use crate::{
    api::{CallError, Caller},
    keep::{self, Kept},
    key::JobKey,
    log_turns::{self, Turns},
    operator::{Operator, progress::lines},
    path::object_path,
    state::Concluded,
};

/// Logs that are read at once; the passes that wait for them take turns from other jobs.
const AT_ONCE: usize = log_turns::VERDICTS_AT_ONCE;
/// Of these, those of one namespace: its nodes may respond slowly. A failure that finds no turn stays without its log, and many clusters have all
/// their jobs in one namespace.
const NAMESPACE_AT_ONCE: usize = 8;
/// Both tries together take at most this long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lines at the end of a log that are read: the exceptions of several ranks, and the summary of a launcher
/// behind them.
const LINES: i64 = 256;
/// Bytes of them that are read at most. Container runtimes cut lines at 16 KiB, so the last is among them.
const BYTES: usize = 4 << 20;
/// How long is waited for all of those of one job.
const PATIENCE_FOR_OTHERS: Duration = Duration::from_secs(10);
/// Bytes of one of them that are read at most.
const BYTES_OF_OTHER: usize = 256 << 10;
/// After so many failures in a row no log is asked for…
const FAILURES: u32 = 3;
/// …for this long.
const PAUSE: Duration = Duration::from_mins(1);

/// What is remembered of reading logs.
#[derive(Debug)]
pub(crate) struct Consultation {
    turns: Semaphore,
    turns_of_others: Turns,
    namespaces: Mutex<BTreeMap<String, Namespace>>,
}

/// What is remembered of the logs of one namespace, while there is anything.
#[derive(Debug, Default)]
struct Namespace {
    reading: usize,
    trouble: Trouble,
}

/// The turn of a log of a namespace, until it is dropped.
struct Turn<'a> {
    of: &'a Consultation,
    namespace: &'a str,
    _all: SemaphorePermit<'a>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut namespaces = self.of.namespaces();
        if let Some(namespace) = namespaces.get_mut(self.namespace) {
            namespace.reading = namespace.reading.saturating_sub(1);
        }
        let now = Instant::now();
        namespaces.retain(|_, it| it.reading > 0 || it.trouble.matters(now));
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    in_a_row: u32,
    last: Option<Instant>,
}

impl Trouble {
    /// Whether it is worth asking.
    fn allows(self, now: Instant) -> bool {
        let over = |last| now.saturating_duration_since(last) >= PAUSE;
        self.in_a_row < FAILURES || self.last.is_none_or(over)
    }

    /// Whether anything of it is still to be known.
    fn matters(self, now: Instant) -> bool {
        let over = |last| now.saturating_duration_since(last) >= PAUSE;
        !self.last.is_none_or(over)
    }

    fn note(&mut self, answered: bool, now: Instant) {
        *self = if answered {
            Self::default()
        } else {
            Self {
                in_a_row: self.in_a_row.saturating_add(1),
                last: Some(now),
            }
        };
    }
}

impl Default for Consultation {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(AT_ONCE),
            turns_of_others: Turns::of_others(),
            namespaces: Mutex::default(),
        }
    }
}

impl Operator {
    /// Adds what the doctor says about the failure that the next decision answers, where there is one; whether a log
    /// was asked for, which takes time.
    pub(crate) async fn consult(
        &self,
        key: &JobKey,
        uid: &str,
        job: &Job,
        observed: &mut Observed,
    ) -> bool {
        let attempt = observed.status.trainyard.attempt;
        let Some(failed) = job::failed_first(job, observed) else {
            return self.consult_ends(key, uid, job, observed).await;
        };
        let known = self.state.memory(key).verdict;
        if let Some(known) = known.filter(|known| known.is_of(uid, attempt)) {
            observed.verdict = known.verdict;
            return false;
        }
        let Some(pod) = self.state.store().pod_called(key, &failed.uid) else {
            return false;
        };
        let asked = Asked {
            namespace: &key.namespace,
            pod: &pod,
            container: container(job, failed),
            previous: false,
            since: observed.status.trainyard.in_place_since(),
        };
        // Their pods go when the attempt does, so they are read meanwhile.
        self.keep_others(key, uid, attempt, self.others(key, job, observed, failed));
        let ends = ends_of(job, observed, failed, &pod);
        let verdict = match self.consultation.log(&self.caller, asked).await {
            Ok(log) => {
                let report = report(&pod, failed, ends, &log);
                let first = report.verdicts.first();
                let cause_line = first.and_then(|first| Some(first.evidence.first()?.line));
                let container = asked.container.unwrap_or_default();
                let name = format!("{pod}/{container}");
                let kept = Kept {
                    attempt,
                    first: Some((name, keep::excerpt(&log, cause_line))),
                    others: Vec::new(),
                };
                self.keep(key, uid, kept);
                report.summary(attempt)
            }
            Err(reason) => {
                debug!(job = %key, pod, reason, "No log of the failed pod");
                // How its pods ended is known all the same, and of supervised ones the last line.
                let line = self.state.store().last_line(key, &failed.uid, attempt);
                let line = line.unwrap_or_default();
                let report = report(&pod, failed, ends, line.as_bytes());
                report.summary(attempt)
            }
        };
        self.state.remember(key, |memory| {
            memory.verdict = Some(Concluded {
                uid: uid.to_owned(),
                attempt,
                verdict: verdict.clone(),
            });
        });
        observed.verdict = verdict;
        true
    }

    /// The pods beside the one that failed first whose logs are kept: those that failed, too, before the rest.
    fn others(
        &self,
        key: &JobKey,
        job: &Job,
        observed: &Observed,
        failed: &ObservedPod,
    ) -> Vec<Other> {
        let mut pods: Vec<&ObservedPod> = observed
            .pods
            .iter()
            .filter(|pod| {
                let started = pod.phase != PodPhase::Pending;
                started && pod.attempt == failed.attempt && pod.uid != failed.uid
            })
            .collect();
        pods.sort_by_key(|pod| (pod.phase != PodPhase::Failed, pod.slot));
        let since = observed.status.trainyard.in_place_since();
        let store = self.state.store();
        let others = pods.into_iter().filter_map(|pod| {
            Some(Other {
                pod: store.pod_called(key, &pod.uid)?,
                container: container(job, pod).map(str::to_owned),
                since,
            })
        });
        others.take(keep::OTHERS).collect()
    }

    /// Keeps what is left of the logs of `others`, in a task of its own.
    fn keep_others(&self, key: &JobKey, uid: &str, attempt: u32, others: Vec<Other>) {
        if others.is_empty() {
            return;
        }
        let (this, key, uid) = (self.clone(), key.clone(), uid.to_owned());
        tokio::spawn(async move {
            let read = stream::iter(others)
                .map(|other| this.consultation.excerpt(&this.caller, &key, other))
                .buffer_unordered(log_turns::NAMESPACE_AT_ONCE)
                .filter_map(|kept| async move { kept });
            let mut kept: Vec<(String, String)> = Vec::new();
            let all = read.for_each(|one| {
                kept.push(one);
                async {}
            });
            // What came in time is kept.
            drop(tokio::time::timeout(PATIENCE_FOR_OTHERS, all).await);
            if !kept.is_empty() {
                let kept = Kept {
                    attempt,
                    first: None,
                    others: kept,
                };
                this.put_kept_or_log(&key, &uid, &kept).await;
            }
        });
    }
}

/// A pod beside the one that failed first.
#[derive(Debug)]
struct Other {
    pod: String,
    container: Option<String>,
    /// What was written before this is of earlier attempts.
    since: Option<Timestamp>,
}

/// The log that is asked for.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    namespace: &'a str,
    pod: &'a str,
    container: Option<&'a str>,
    /// Whether that of the container before the one that runs is meant.
    previous: bool,
    /// What was written before this is of earlier attempts.
    since: Option<Timestamp>,
}

impl Consultation {
    /// The end of a log, or why it cannot be had now.
    async fn log(&self, caller: &Caller, asked: Asked<'_>) -> Result<Vec<u8>, String> {
        let _turn = self.turn(asked.namespace)?;
        let path = object_path(asked.namespace, "pods");
        let params = LogParams {
            container: asked.container.map(str::to_owned),
            previous: asked.previous,
            tail_lines: Some(LINES),
            limit_bytes: i64::try_from(BYTES).ok(),
            ..params_since(asked.since)
        };
        let tries = async {
            match caller.log(&path, asked.pod, &params, BYTES).await {
                Err(error) if !is_answer(&error) => {
                    caller.log(&path, asked.pod, &params, BYTES).await
                }
                done => done,
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, tries).await;
        let answered = match &outcome {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => is_answer(error),
            Err(_) => false,
        };
        if let Some(namespace) = self.namespaces().get_mut(asked.namespace) {
            namespace.trouble.note(answered, Instant::now());
        }
        match outcome {
            Ok(Ok(log)) => Ok(written_since(log, asked.since)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("it did not come within {} s", PATIENCE.as_secs())),
        }
    }

    /// The name of a pod, and what is kept of its log, where it can be had.
    async fn excerpt(
        &self,
        caller: &Caller,
        key: &JobKey,
        other: Other,
    ) -> Option<(String, String)> {
        let _turn = self.turns_of_others.next(&key.namespace).await?;
        let params = LogParams {
            container: other.container,
            tail_lines: Some(LINES),
            limit_bytes: i64::try_from(BYTES_OF_OTHER).ok(),
            ..params_since(other.since)
        };
        let path = object_path(&key.namespace, "pods");
        let log = caller.log(&path, &other.pod, &params, BYTES_OF_OTHER).await;
        let log = written_since(log.ok()?, other.since);
        if log.is_empty() {
            return None;
        }
        let mut doctor = doctor();
        let source = doctor.source(&other.pod);
        doctor.bytes(source, &log);
        let report = doctor.finish();
        let first = report.verdicts.first();
        let cause_line = first.and_then(|first| Some(first.evidence.first()?.line));
        Some((other.pod, keep::excerpt_of_other(&log, cause_line)))
    }

    /// The turn of a log of `namespace`, or why it has none now.
    fn turn<'a>(&'a self, namespace: &'a str) -> Result<Turn<'a>, String> {
        let all = self.turns.try_acquire();
        let all = all.map_err(|_| format!("{AT_ONCE} other logs are being read, the maximum"))?;
        let mut namespaces = self.namespaces();
        let own = namespaces.entry(namespace.to_owned()).or_default();
        if !own.trouble.allows(Instant::now()) {
            return Err(format!(
                "the last logs of namespace `{namespace}` could not be read"
            ));
        }
        if own.reading >= NAMESPACE_AT_ONCE {
            return Err(format!(
                "{NAMESPACE_AT_ONCE} other logs of namespace `{namespace}` are being read, the maximum"
            ));
        }
        own.reading += 1;
        drop(namespaces);
        Ok(Turn {
            of: self,
            namespace,
            _all: all,
        })
    }

    fn namespaces(&self) -> MutexGuard<'_, BTreeMap<String, Namespace>> {
        self.namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(pod: &str, failed: &ObservedPod, known: Vec<Known>, log: &[u8]) -> Report {
    let mut doctor = doctor();
    for known in known {
        doctor.add_known_end(known);
    }
    let source = doctor.source(pod);
    doctor.set_rank_and_node(source, None, failed.node.as_deref());
    doctor.bytes(source, log);
    doctor.finish()
}

/// The transports that ranks reported in the log of `pod`.
pub(crate) fn transports(pod: &str, log: &[u8]) -> Vec<TransportSeen> {
    let mut doctor = doctor();
    let source = doctor.source(pod);
    doctor.bytes(source, log);
    doctor.transports()
}

fn doctor() -> Doctor {
    Doctor::new(Arc::clone(Rules::shared()))
}

/// How the pods of the attempt ended; that of `failed` is called `name`.
fn ends_of(job: &Job, observed: &Observed, failed: &ObservedPod, name: &str) -> Vec<Known> {
    let of_attempt = observed
        .pods
        .iter()
        .filter(|pod| pod.attempt == failed.attempt);
    let known = of_attempt.filter_map(|pod| {
        let name = if pod.uid == failed.uid {
            name.to_owned()
        } else {
            job.pod_name(pod.slot)
        };
        let node = pod.node.as_ref().and_then(|node| observed.nodes.get(node));
        let known = Known::of_pod(pod, name, node.copied())?;
        Some(known.limited_by(job, pod.slot.role))
    });
    // A program that ended under its supervisor: its container runs.
    let programs = job::failed_programs(observed).into_iter();
    let ended = programs.filter_map(|(pod, ended)| {
        if pod.exit.is_some() {
            return None;
        }
        let program = ObservedPod {
            phase: PodPhase::Failed,
            exit: Some(Exit {
                code: ended.exit.container_code(),
                out_of_memory: false,
                at: None,
            }),
            ..pod.clone()
        };
        let known = Known::of_pod(&program, job.pod_name(pod.slot), None)?;
        Some(known.limited_by(job, pod.slot.role))
    });
    known.chain(ended).collect()
}

/// What to ask for, where what was written before `since` is of earlier attempts: lines with their times, from that second on.
pub(crate) fn params_since(since: Option<Timestamp>) -> LogParams {
    LogParams {
        timestamps: since.is_some(),
        // Whole seconds are asked for, and the nearest one may be later.
        since_time: since.and_then(|since| Timestamp::from_second(since.as_second()).ok()),
        ..LogParams::default()
    }
}

/// The lines of a log that were written after `since`, without their time stamps; all of them where there is no such time.
pub(crate) fn written_since(log: Vec<u8>, since: Option<Timestamp>) -> Vec<u8> {
    let Some(since) = since else {
        return log;
    };
    let mut kept = Vec::new();
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        for (stamp, part) in lines::parts(line) {
            if stamp > since {
                kept.extend_from_slice(part);
            }
        }
    }
    kept
}

/// Whether the API server itself said no, at once: there is no such log.
fn is_answer(error: &CallError) -> bool {
    error.is_not_found() || error.is_refusal()
}

/// The container that trains; the only one where it has another name.
pub(crate) fn container<'a>(job: &'a Job, failed: &ObservedPod) -> Option<&'a str> {
    let template = &job.roles.get(&failed.slot.role)?.template;
    let containers = &template.spec.as_ref()?.containers;
    let named = containers
        .iter()
        .find(|container| container.name == job.kind.container());
    let chosen = named.or(containers.first())?;
    Some(&chosen.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_of_a_recreated_job_is_not_used() {
        let concluded = Concluded {
            uid: "u".to_owned(),
            attempt: 1,
            verdict: None,
        };
        assert!(concluded.is_of("u", 1));
        assert!(!concluded.is_of("u", 2));
        assert!(!concluded.is_of("v", 1), "made again under the same name");
    }

    #[test]
    fn lines_of_earlier_attempts_are_left_out() {
        let log = b"2026-01-02T03:04:05.000000000Z old\n2026-01-02T03:04:06.500000000Z new\nnot stamped\n\
            2026-01-02T03:04:07.000000000Z last";
        let since: Timestamp = "2026-01-02T03:04:06.400Z".parse().unwrap();
        assert_eq!(written_since(log.to_vec(), Some(since)), b"new\nlast");
        assert_eq!(written_since(log.to_vec(), None), log);
        let params = params_since(Some(since));
        let second = "2026-01-02T03:04:06Z".parse().unwrap();
        assert_eq!((params.timestamps, params.since_time), (true, Some(second)));
        let params = params_since(None);
        assert_eq!((params.timestamps, params.since_time), (false, None));
    }

    #[test]
    fn logs_that_cannot_be_had_are_not_asked_for() {
        let start = Instant::now();
        let mut trouble = Trouble::default();
        for _ in 0..FAILURES {
            assert!(trouble.allows(start));
            trouble.note(false, start);
        }
        assert!(!trouble.allows(start), "nobody waits for the fourth");
        let later = start + PAUSE;
        assert!(trouble.allows(later), "one tries again");
        trouble.note(false, later);
        assert!(!trouble.allows(later));
        trouble.note(true, later);
        assert!(trouble.allows(later));
    }
}
