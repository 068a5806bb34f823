//! What the ranks of a job that runs talk over: the beginning of their logs, and the end of those that are longer, read until they
//! have told.
//!
//! Owns which logs are read, when, and the bounds. Who wants to know and what follows is `trainyard_core::job`'s, what lines
//! mean `trainyard_core::diagnose`'s.
//!
//! Invariants: no pass waits for a log, so no job is slowed. At most [`AT_ONCE`] logs of all jobs are read at once, [`BYTES`]
//! at the beginning of each and [`TAIL_BYTES`] at its end, of [`PODS`] pods of a job; after [`PATIENCE`] a read is given up, and [`LISTENS`] after the first one nobody
//! listens any more in that attempt. Nothing is read once every rank has told. The operator's thread searches no lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::core::subresource::LogParams;
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tracing::debug;
use trainyard_core::{
    diagnose::TransportSeen,
    job::{
        self, ConditionStatus, ConditionType, Observed, ObservedPod, PodPhase, PodUid,
        TransportsTold,
    },
    spec::Job,
};

use crate::{act::object_path, consult::container, key::JobKey, operator::Operator};

/// Logs that are read at once, of all jobs.
const AT_ONCE: usize = 4;
/// One read takes at most this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes at the beginning of a log that are read. Eight ranks with `NCCL_DEBUG=INFO` write less than half of it until
/// they train.
const BYTES: usize = 1 << 20;
/// A program that writes more than that before its ranks meet has told nothing at the beginning. From then on so many of the
/// last lines are read…
const TAIL_LINES: i64 = 1_024;
/// …and of them at most so many bytes.
const TAIL_BYTES: usize = 256 << 10;
/// Pods of one job whose logs are read.
const PODS: usize = 1_024;
/// Logs that have not told are read again after this, twice as long each time…
const AGAIN: Duration = Duration::from_secs(2);
/// …up to this…
const AGAIN_MOST: Duration = Duration::from_mins(1);
/// …and for so long in all. Loading data and weights before the first collective takes minutes.
const LISTENS: Duration = Duration::from_mins(15);

/// What was heard of the jobs that are listened to.
#[derive(Debug)]
pub(crate) struct Listening {
    turns: Semaphore,
    /// Lines are searched on a thread of their own, one log at a time: a MiB takes 0.1 s, in which no job must wait.
    searches: Semaphore,
    jobs: Mutex<BTreeMap<JobKey, Heard>>,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(AT_ONCE),
            searches: Semaphore::new(1),
            jobs: Mutex::default(),
        }
    }
}

/// What was heard of one attempt.
#[derive(Debug)]
struct Heard {
    /// The job's own identity: another of the same name has told nothing.
    uid: String,
    attempt: u32,
    began: Instant,
    rounds: u32,
    next: Instant,
    /// Whether logs are being read.
    reading: bool,
    pods: BTreeMap<PodUid, Vec<TransportSeen>>,
    /// Pods whose beginning was read as far as it ever is, and told nothing: their end is read.
    full: BTreeSet<PodUid>,
    /// Pods whose logs tell no more.
    done: BTreeSet<PodUid>,
}

/// What one log told.
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
    /// Its end, behind a beginning that told nothing.
    End,
}

/// What a pass does about listening.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing; news will come, or nobody listens any more.
    Rest,
    /// It looks again then.
    At(Instant),
    /// It reads now.
    Now,
}

impl Heard {
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
            // What was told once has left the end since.
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

    fn told(&self) -> Option<TransportsTold> {
        let ranks: Vec<TransportSeen> = self.pods.values().flatten().cloned().collect();
        (!ranks.is_empty()).then_some(TransportsTold {
            attempt: self.attempt,
            ranks,
        })
    }
}

/// What the same pod told before and now, by rank.
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

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobKey, Heard>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what was heard of that attempt, if it is still the one that is listened to.
    fn with(&self, key: &JobKey, (uid, attempt): (&str, u32), change: impl FnOnce(&mut Heard)) {
        let mut jobs = self.jobs();
        if let Some(heard) = jobs.get_mut(key).filter(|heard| heard.is_of(uid, attempt)) {
            change(heard);
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
    /// Whether its end is read, because its beginning told nothing.
    end: bool,
}

impl Operator {
    /// Adds what ranks told that they talk over, where somebody wants to know, and has their logs read. It says when to
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
        let mut pods = observed.pods.iter().filter(|pod| is_heard(pod, attempt));
        let now = Instant::now();
        let mut jobs = self.listening.jobs();
        let known = jobs.get(key).is_some_and(|heard| heard.is_of(uid, attempt));
        if !known {
            jobs.remove(key);
            // The time to listen begins when the first rank runs.
            pods.clone().next()?;
        }
        let heard = jobs
            .entry(key.clone())
            .or_insert_with(|| Heard::new(uid, attempt, now));
        match heard.turn(now) {
            Turn::Now => {
                let store = self.state.store();
                let logs: Vec<Log> = pods
                    .by_ref()
                    .take(PODS)
                    .filter(|pod| !heard.done.contains(&pod.uid))
                    .filter_map(|pod| {
                        Some(Log {
                            uid: pod.uid.clone(),
                            pod: store.pod_called(key, &pod.uid)?,
                            container: container(job, pod).map(str::to_owned),
                            ended: pod.phase != PodPhase::Running,
                            end: heard.full.contains(&pod.uid),
                        })
                    })
                    .collect();
                observed.transports = heard.told();
                if !logs.is_empty() {
                    heard.reading = true;
                    let round = self
                        .clone()
                        .read_round(key.clone(), uid.to_owned(), attempt, logs);
                    tokio::spawn(round);
                }
                None
            }
            turn => {
                observed.transports = heard.told();
                match turn {
                    Turn::At(next) => Some(next),
                    _ => None,
                }
            }
        }
    }

    /// Reads the logs, and has the job looked at.
    async fn read_round(self, key: JobKey, uid: String, attempt: u32, logs: Vec<Log>) {
        let mut reads = JoinSet::new();
        let count = logs.len();
        for log in logs {
            let (this, namespace) = (self.clone(), key.namespace.clone());
            reads.spawn(async move { this.hear_log(&namespace, log).await });
        }
        while let Some(read) = reads.join_next().await {
            if let Ok(Some(read)) = read {
                self.listening
                    .with(&key, (&uid, attempt), |heard| heard.note(read));
            }
        }
        debug!(job = %key, attempt, count, "read what ranks talk over");
        self.listening.with(&key, (&uid, attempt), |heard| {
            heard.end_round(Instant::now());
        });
        self.look_soon(key);
    }

    async fn hear_log(&self, namespace: &str, log: Log) -> Option<Read> {
        let _turn = self.listening.turns.acquire().await.ok()?;
        let (tail_lines, most) = if log.end {
            (Some(TAIL_LINES), TAIL_BYTES)
        } else {
            (None, BYTES)
        };
        let params = LogParams {
            container: log.container,
            tail_lines,
            limit_bytes: i64::try_from(most).ok(),
            ..LogParams::default()
        };
        let path = object_path(namespace, "pods");
        let read = self.caller.log(&path, &log.pod, &params, most);
        let bytes = match tokio::time::timeout(PATIENCE, read).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                debug!(pod = log.pod, %error, "cannot hear a pod");
                return None;
            }
            Err(_) => return None,
        };
        let part = match (log.end, bytes.len() >= most) {
            (true, _) => Part::End,
            (false, true) => Part::Beginning,
            (false, false) => Part::All,
        };
        let _search = self.listening.searches.acquire().await.ok()?;
        let (consultation, pod) = (Arc::clone(&self.consultation), log.pod);
        let search = tokio::task::spawn_blocking(move || consultation.transports(&pod, &bytes));
        Some(Read {
            uid: log.uid,
            ranks: search.await.ok()?,
            ended: log.ended,
            part,
        })
    }
}

/// Whether somebody wants to know what the ranks of this attempt talk over and it is not known yet.
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

fn is_heard(pod: &ObservedPod, attempt: u32) -> bool {
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
    fn a_job_is_listened_to_less_and_less_often_and_not_for_ever() {
        let began = Instant::now();
        let mut heard = Heard::new("u", 1, began);
        let mut now = began;
        let mut rounds = 0;
        loop {
            match heard.turn(now) {
                Turn::Now => {
                    heard.reading = true;
                    assert_eq!(heard.turn(now), Turn::Rest, "one round at a time");
                    heard.end_round(now);
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
    fn a_log_is_not_read_again_once_its_ranks_have_told() {
        use Part::{All, Beginning, End};
        // What was read in which round; which part is read next, if any; how many ranks have told.
        type Case<'a> = (&'a str, Vec<Read>, Option<Part>, usize);
        let none: &[TransportSeen] = &[];
        let one: &[TransportSeen] = &[rank(0, &["NET/IB"])];
        let two: &[TransportSeen] = &[rank(0, &["NET/IB"]), rank(1, &["NET/IB"])];
        let cases: [Case<'_>; 11] = [
            (
                "nothing told",
                vec![read(All, false, none), read(All, false, none)],
                Some(All),
                0,
            ),
            ("told once", vec![read(All, false, one)], Some(All), 1),
            (
                "told twice the same",
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
                "a long beginning told",
                vec![read(Beginning, false, one)],
                None,
                1,
            ),
            (
                "a long beginning told nothing",
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
                "an end that told, and has moved on",
                vec![
                    read(Beginning, false, none),
                    read(End, false, one),
                    read(End, false, none),
                ],
                None,
                1,
            ),
            (
                "two ends that told of one rank each",
                vec![
                    read(Beginning, false, none),
                    read(End, false, &[rank(1, &["NET/IB"])]),
                    read(End, false, one),
                ],
                Some(End),
                2,
            ),
        ];
        for (name, reads, next, told) in cases {
            let mut heard = Heard::new("u", 1, Instant::now());
            for read in reads {
                heard.note(read);
            }
            let is_next = match (heard.done.contains("a"), heard.full.contains("a")) {
                (true, _) => None,
                (false, true) => Some(End),
                (false, false) => Some(All),
            };
            assert_eq!(is_next, next, "{name}");
            let ranks = heard.told().map_or(0, |told| told.ranks.len());
            assert_eq!(ranks, told, "{name}");
        }
    }

    #[test]
    fn what_another_job_of_the_same_name_told_is_not_heard() {
        let heard = Heard::new("u", 1, Instant::now());
        assert!(heard.is_of("u", 1));
        assert!(!heard.is_of("u", 2));
        assert!(!heard.is_of("v", 1), "made again under the same name");
    }
}
