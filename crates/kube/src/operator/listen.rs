//! Reads the transports of the ranks of a running job from the beginning of their logs, or of what the attempt has added to them, and from the
//! end of longer ones, until all ranks have reported.
//!
//! Owns which logs are read, when, and the bounds. Who wants to know and what follows is `trainyard_core::job`'s, what lines
//! mean `trainyard_core::diagnose`'s.
//!
//! Invariants: no pass waits for a log, so no job is slowed. Few logs of all jobs are read at once, and fewer of one namespace (`log_turns`), [`BYTES`]
//! at the beginning of each and [`TAIL_BYTES`] at its end, of [`PODS`] pods of a job; after [`PATIENCE`] a read times out, and [`LISTENS`] after the first one the operator
//! stops reading in that attempt. No log is read once every rank has reported. The operator's thread searches no lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kube::core::subresource::LogParams;
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tracing::debug;
use trainyard_core::{
    diagnose::TransportSeen,
    job::{
        self, ConditionStatus, ConditionType, Observed, ObservedPod, PodPhase, PodUid,
        ReportedTransports,
    },
    spec::Job,
};

use super::{
    Operator,
    consult::{container, params_since, transports, written_since},
};
use crate::{key::JobKey, log_turns::Turns, path::object_path};

/// One read takes at most this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes at the beginning of a log that are read. Eight ranks with `NCCL_DEBUG=INFO` write less than half of it until
/// they train.
const BYTES: usize = 1 << 20;
/// A program that writes more than that before its ranks meet has reported nothing at the beginning. From then on so many of the
/// last lines are read…
const TAIL_LINES: i64 = 1_024;
/// …and of them at most so many bytes.
const TAIL_BYTES: usize = 256 << 10;
/// Pods of one job whose logs are read.
const PODS: usize = 1_024;
/// Logs without a report are read again after this, twice as long each time…
const AGAIN: Duration = Duration::from_secs(2);
/// …up to this…
const AGAIN_MOST: Duration = Duration::from_mins(1);
/// …and for so long in all. Loading data and weights before the first collective takes minutes.
const LISTENS: Duration = Duration::from_mins(15);

/// What was read of the jobs whose transports are wanted.
#[derive(Debug)]
pub(crate) struct Listening {
    turns: Turns,
    /// Lines are searched on a thread of their own, one log at a time: a MiB takes 0.1 s, in which no job must wait.
    searches: Semaphore,
    jobs: Mutex<BTreeMap<JobKey, AttemptLogs>>,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            turns: Turns::of_transports(),
            searches: Semaphore::new(1),
            jobs: Mutex::default(),
        }
    }
}

/// What the logs of one attempt said so far.
#[derive(Debug)]
struct AttemptLogs {
    /// The job's own identity: another job of the same name has reported nothing.
    uid: String,
    attempt: u32,
    began: Instant,
    rounds: u32,
    next: Instant,
    /// Whether logs are being read.
    reading: bool,
    pods: BTreeMap<PodUid, Vec<TransportSeen>>,
    /// Pods whose beginning was read as far as it ever is, without a report: their end is read.
    full: BTreeSet<PodUid>,
    /// Pods whose logs are not read again.
    done: BTreeSet<PodUid>,
}

/// What one log said.
#[derive(Debug)]
struct Read {
    uid: PodUid,
    ranks: Vec<TransportSeen>,
    /// Nothing will be added to the log any more.
    ended: bool,
    part: Part,
}

/// Which part of a log was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All of it, as far as it was written.
    All,
    /// Its beginning; there is more.
    Beginning,
    /// Its end, after a beginning without a report.
    End,
}

/// What a pass does about reading transports.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing: a watch event will come, or logs are no longer read.
    Rest,
    /// It checks again then.
    At(Instant),
    /// It reads now.
    Now,
}

impl AttemptLogs {
    fn new(uid: &str, attempt: u32, now: Instant) -> Self {
        Self {
            uid: uid.to_owned(),
            attempt,
            began: now,
            rounds: 0,
            next: now,
            reading: false,
            pods: BTreeMap::new(),
            full: BTreeSet::new(),
            done: BTreeSet::new(),
        }
    }

    fn is_of(&self, uid: &str, attempt: u32) -> bool {
        self.uid == uid && self.attempt == attempt
    }

    fn turn(&self, now: Instant) -> Turn {
        let over = now.saturating_duration_since(self.began) >= LISTENS;
        if self.reading || over {
            Turn::Rest
        } else if now < self.next {
            Turn::At(self.next)
        } else {
            Turn::Now
        }
    }

    fn note(&mut self, read: Read) {
        let Read {
            uid,
            mut ranks,
            ended,
            part,
        } = read;
        let before = self.pods.get(&uid);
        if part == Part::End {
            // What was logged once may no longer be in the end that is read.
            ranks = joined(before.map(Vec::as_slice).unwrap_or_default(), ranks);
        }
        let spoke = ranks.iter().any(|rank| !rank.transports.is_empty());
        // All ranks of a pod come up together: what has not changed since the last round will not.
        let settled = spoke && (part == Part::Beginning || before == Some(&ranks));
        if settled || ended && part != Part::Beginning {
            self.done.insert(uid.clone());
        } else if part == Part::Beginning {
            self.full.insert(uid.clone());
        }
        self.pods.insert(uid, ranks);
    }

    fn end_round(&mut self, now: Instant) {
        let wait = AGAIN * 2u32.pow(self.rounds.min(8));
        self.rounds += 1;
        self.next = now + wait.min(AGAIN_MOST);
        self.reading = false;
    }

    fn transports(&self) -> Option<ReportedTransports> {
        let ranks: Vec<TransportSeen> = self.pods.values().flatten().cloned().collect();
        (!ranks.is_empty()).then_some(ReportedTransports {
            attempt: self.attempt,
            ranks,
        })
    }
}

/// What the same pod reported before and now, by rank.
fn joined(before: &[TransportSeen], now: Vec<TransportSeen>) -> Vec<TransportSeen> {
    let mut all = before.to_vec();
    for rank in now {
        let known = all.iter_mut().find(|known| known.rank == rank.rank);
        match known {
            Some(known) => {
                known.transports.extend(rank.transports);
                known.world = rank.world.or(known.world);
                known.host = known.host.take().or(rank.host);
            }
            None => all.push(rank),
        }
    }
    all
}

impl Listening {
    pub(crate) fn forget(&self, key: &JobKey) {
        self.jobs().remove(key);
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobKey, AttemptLogs>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what was read of that attempt, if it is still the current one.
    fn with(
        &self,
        key: &JobKey,
        (uid, attempt): (&str, u32),
        change: impl FnOnce(&mut AttemptLogs),
    ) {
        let mut jobs = self.jobs();
        if let Some(attempt_logs) = jobs
            .get_mut(key)
            .filter(|attempt_logs| attempt_logs.is_of(uid, attempt))
        {
            change(attempt_logs);
        }
    }
}

/// A log to read.
#[derive(Debug)]
struct Log {
    uid: PodUid,
    pod: String,
    container: Option<String>,
    /// Whether the program has ended, so that nothing will be added.
    ended: bool,
    /// Whether its end is read, because its beginning had no report.
    end: bool,
    /// What was written before this is of earlier attempts, which the same pod ran.
    since: Option<Timestamp>,
}

impl Operator {
    /// Adds the transports that ranks reported, if the job asks for them, and has their logs read. It returns when to
    /// look again.
    pub(crate) fn listen(
        &self,
        key: &JobKey,
        uid: &str,
        job: &Job,
        observed: &mut Observed,
    ) -> Option<Instant> {
        if !is_open(job, observed) {
            self.listening.forget(key);
            return None;
        }
        let attempt = observed.status.trainyard.attempt;
        let mut pods = observed.pods.iter().filter(|pod| has_log(pod, attempt));
        let now = Instant::now();
        let mut jobs = self.listening.jobs();
        let known = jobs
            .get(key)
            .is_some_and(|attempt_logs| attempt_logs.is_of(uid, attempt));
        if !known {
            jobs.remove(key);
            // The time to listen begins when the first rank runs.
            pods.clone().next()?;
        }
        let attempt_logs = jobs
            .entry(key.clone())
            .or_insert_with(|| AttemptLogs::new(uid, attempt, now));
        match attempt_logs.turn(now) {
            Turn::Now => {
                let since = observed.status.trainyard.in_place_since();
                let store = self.state.store();
                let logs: Vec<Log> = pods
                    .by_ref()
                    .take(PODS)
                    .filter(|pod| !attempt_logs.done.contains(&pod.uid))
                    .filter_map(|pod| {
                        Some(Log {
                            uid: pod.uid.clone(),
                            pod: store.pod_called(key, &pod.uid)?,
                            container: container(job, pod).map(str::to_owned),
                            ended: pod.phase != PodPhase::Running,
                            end: attempt_logs.full.contains(&pod.uid),
                            since,
                        })
                    })
                    .collect();
                observed.transports = attempt_logs.transports();
                if !logs.is_empty() {
                    attempt_logs.reading = true;
                    let round = self
                        .clone()
                        .read_round(key.clone(), uid.to_owned(), attempt, logs);
                    tokio::spawn(round);
                }
                None
            }
            turn => {
                observed.transports = attempt_logs.transports();
                match turn {
                    Turn::At(next) => Some(next),
                    _ => None,
                }
            }
        }
    }

    /// Reads the logs, and enqueues the job.
    async fn read_round(self, key: JobKey, uid: String, attempt: u32, logs: Vec<Log>) {
        let mut reads = JoinSet::new();
        let count = logs.len();
        for log in logs {
            let (this, namespace) = (self.clone(), key.namespace.clone());
            reads.spawn(async move { this.read_attempt_log(&namespace, log).await });
        }
        while let Some(read) = reads.join_next().await {
            if let Ok(Some(read)) = read {
                self.listening.with(&key, (&uid, attempt), |attempt_logs| {
                    attempt_logs.note(read);
                });
            }
        }
        debug!(job = %key, attempt, count, "Read the transports of ranks");
        self.listening.with(&key, (&uid, attempt), |attempt_logs| {
            attempt_logs.end_round(Instant::now());
        });
        self.enqueue_job(key);
    }

    async fn read_attempt_log(&self, namespace: &str, log: Log) -> Option<Read> {
        let _turn = self.listening.turns.next(namespace).await?;
        let (tail_lines, most) = if log.end {
            (Some(TAIL_LINES), TAIL_BYTES)
        } else {
            (None, BYTES)
        };
        let params = LogParams {
            container: log.container,
            tail_lines,
            limit_bytes: i64::try_from(most).ok(),
            ..params_since(log.since)
        };
        let path = object_path(namespace, "pods");
        let read = self.caller.log(&path, &log.pod, &params, most);
        let bytes = match tokio::time::timeout(PATIENCE, read).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                debug!(pod = log.pod, %error, "Cannot read the log of a pod");
                return None;
            }
            Err(_) => return None,
        };
        let part = match (log.end, bytes.len() >= most) {
            (true, _) => Part::End,
            (false, true) => Part::Beginning,
            (false, false) => Part::All,
        };
        let bytes = written_since(bytes, log.since);
        let _search = self.listening.searches.acquire().await.ok()?;
        let pod = log.pod;
        let search = tokio::task::spawn_blocking(move || transports(&pod, &bytes));
        Some(Read {
            uid: log.uid,
            ranks: search.await.ok()?,
            ended: log.ended,
            part,
        })
    }
}

/// Whether the job asks for the transports of its ranks and they are not known yet.
fn is_open(job: &Job, observed: &Observed) -> bool {
    let status = &observed.status;
    let known = status.conditions.iter().any(|condition| {
        condition.kind == ConditionType::TransportVerified
            && condition.status == ConditionStatus::True
    });
    job::asks_for_transport(job)
        && !known
        && !observed.being_deleted
        && !job.run_policy.suspend
        && !job::has_ended(status)
}

fn has_log(pod: &ObservedPod, attempt: u32) -> bool {
    pod.attempt == attempt
        && pod.deleted_at.is_none()
        && matches!(
            pod.phase,
            PodPhase::Running | PodPhase::Succeeded | PodPhase::Failed
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, transports: &[&str]) -> TransportSeen {
        TransportSeen {
            rank: Some(rank),
            transports: transports.iter().map(|name| (*name).to_owned()).collect(),
            ..TransportSeen::default()
        }
    }

    fn read(part: Part, ended: bool, ranks: &[TransportSeen]) -> Read {
        Read {
            uid: "a".to_owned(),
            ranks: ranks.to_vec(),
            ended,
            part,
        }
    }

    #[test]
    fn log_reads_back_off_and_stop() {
        let began = Instant::now();
        let mut attempt_logs = AttemptLogs::new("u", 1, began);
        let mut now = began;
        let mut rounds = 0;
        loop {
            match attempt_logs.turn(now) {
                Turn::Now => {
                    attempt_logs.reading = true;
                    assert_eq!(attempt_logs.turn(now), Turn::Rest, "one round at a time");
                    attempt_logs.end_round(now);
                    rounds += 1;
                }
                Turn::At(next) => {
                    assert!(next > now && next - now <= AGAIN_MOST);
                    now = next;
                }
                Turn::Rest => break,
            }
        }
        assert!((10..30).contains(&rounds), "{rounds} rounds");
        assert!(now - began >= LISTENS && now - began < LISTENS + AGAIN_MOST);
    }

    #[test]
    fn log_is_not_read_again_after_its_ranks_reported() {
        use Part::{All, Beginning, End};
        // What was read in which round; which part is read next, if any; how many ranks have reported.
        type Case<'a> = (&'a str, Vec<Read>, Option<Part>, usize);
        let none: &[TransportSeen] = &[];
        let one: &[TransportSeen] = &[rank(0, &["NET/IB"])];
        let two: &[TransportSeen] = &[rank(0, &["NET/IB"]), rank(1, &["NET/IB"])];
        let cases: [Case<'_>; 11] = [
            (
                "nothing reported",
                vec![read(All, false, none), read(All, false, none)],
                Some(All),
                0,
            ),
            ("reported once", vec![read(All, false, one)], Some(All), 1),
            (
                "reported twice the same",
                vec![read(All, false, one), read(All, false, one)],
                None,
                1,
            ),
            (
                "another rank of the pod",
                vec![read(All, false, one), read(All, false, two)],
                Some(All),
                2,
            ),
            ("no more will come", vec![read(All, true, none)], None, 0),
            (
                "a long beginning with a report",
                vec![read(Beginning, false, one)],
                None,
                1,
            ),
            (
                "a long beginning without a report",
                vec![read(Beginning, false, none)],
                Some(End),
                0,
            ),
            (
                "a long log that has ended",
                vec![read(Beginning, true, none)],
                Some(End),
                0,
            ),
            (
                "and its end",
                vec![read(Beginning, true, none), read(End, true, one)],
                None,
                1,
            ),
            (
                "an end with a report, and has moved on",
                vec![
                    read(Beginning, false, none),
                    read(End, false, one),
                    read(End, false, none),
                ],
                None,
                1,
            ),
            (
                "two ends with a report of one rank each",
                vec![
                    read(Beginning, false, none),
                    read(End, false, &[rank(1, &["NET/IB"])]),
                    read(End, false, one),
                ],
                Some(End),
                2,
            ),
        ];
        for (name, reads, next, reported) in cases {
            let mut attempt_logs = AttemptLogs::new("u", 1, Instant::now());
            for read in reads {
                attempt_logs.note(read);
            }
            let is_next = match (
                attempt_logs.done.contains("a"),
                attempt_logs.full.contains("a"),
            ) {
                (true, _) => None,
                (false, true) => Some(End),
                (false, false) => Some(All),
            };
            assert_eq!(is_next, next, "{name}");
            let ranks = attempt_logs
                .transports()
                .map_or(0, |found| found.ranks.len());
            assert_eq!(ranks, reported, "{name}");
        }
    }

    #[test]
    fn logs_of_a_recreated_job_are_not_used() {
        let attempt_logs = AttemptLogs::new("u", 1, Instant::now());
        assert!(attempt_logs.is_of("u", 1));
        assert!(!attempt_logs.is_of("u", 2));
        assert!(
            !attempt_logs.is_of("v", 1),
            "made again under the same name"
        );
    }
}
