//! Which pod of which job has its log read next, and when.
//!
//! Owns the decisions of an adapter that cannot see what pods print as they print it: the order of jobs, the pod of each job,
//! how much of a log is read, and what follows from a read that failed. It reads nothing and has no clock.
//!
//! # Flow
//!
//! ```text
//! enroll(job) ─▶ next(now) ─▶ choose(job, its running pods) ─▶ read by the adapter ─▶ report(what came of it)
//! ```
//!
//! # Guarantees
//!
//! - At most [`READS_A_SECOND`] reads begin in any second, and at most [`AT_ONCE`] are under way.
//! - A job has one read at a time, of one pod. Namespaces take turns, and within one the job that waits longest is next.
//! - A node that does not respond has at most [`PER_NODE`] reads, then a pause that doubles: jobs elsewhere do not wait for it.
//! - The memory is bounded by the number of jobs and of nodes in trouble.

mod candidates;
mod nodes;
#[cfg(test)]
mod tests;
mod window;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use self::{nodes::Nodes, window::Window};
use crate::spec::Slot;

pub use candidates::PodToRead;

/// Reads that begin in any second, of all jobs.
pub const READS_A_SECOND: u32 = 20;
/// Reads that are under way at any time, of all jobs…
pub const AT_ONCE: usize = 24;
/// …and of the pods of one node.
pub const PER_NODE: usize = 2;
/// Bytes of one read.
pub const BYTES: usize = 256 << 10;
/// A read that takes longer is abandoned.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Time between the beginnings of two reads. A little more than a twentieth of a second, so that a second never has one more.
const GAP: Duration = Duration::from_millis(52);
/// A job whose pod sends its steps is read when none has come for so long: several times what clients wait between two.
const UNSENT: Duration = Duration::from_secs(30);
/// A job that reports is read again after this, where the rate allows it.
const EVERY: Duration = Duration::from_secs(8);
/// A job whose reporting pod is not known yet…
const EVERY_AT_FIRST: Duration = Duration::from_secs(2);
/// …for this long…
const AT_FIRST: Duration = Duration::from_mins(1);
/// …and one that has reported nothing for [`SILENT_LONG`].
const EVERY_SILENT: Duration = Duration::from_secs(30);
const SILENT_LONG: Duration = Duration::from_mins(10);
/// The reporting pod is searched again after so long without a step. A save or an evaluation takes less.
const FIND_REPORTER_AFTER: Duration = Duration::from_mins(5);
/// A job whose logs may not be read is tried again after this.
const EVERY_DENIED: Duration = Duration::from_mins(5);
/// A job whose pod is on a busy node is checked again after this.
const NODE_BUSY: Duration = Duration::from_secs(1);
/// Reads in a row that fail before a job's progress is called unknown. A refusal is believed at once.
const FAILURES: u32 = 5;
/// The last read of an attempt, whose end waits for it, begins within this time or not at all…
pub const LAST_READ_WITHIN: Duration = Duration::from_secs(1);
/// …and takes at most this long.
pub const LAST_READ_PATIENCE: Duration = Duration::from_secs(2);
/// Pods of an attempt that are read at its end where none has reported.
const LAST_READS: u8 = 2;
/// The pauses of all reads after the API server asked for one.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The jobs whose logs are read. Times are counted from any fixed moment, on a clock that never steps back.
#[derive(Clone, Debug)]
pub struct Rota<K> {
    jobs: BTreeMap<K, Turn>,
    /// The jobs that are not being read now, by namespace and the time at which they are due.
    waiting: BTreeMap<String, Waiting<K>>,
    nodes: Nodes,
    under_way: usize,
    /// No read begins before this.
    not_before: Duration,
    /// Pauses in a row that the API server asked for.
    pauses: u32,
    /// Counts turns of namespaces.
    turns: u64,
}

#[derive(Clone, Debug)]
struct Waiting<K> {
    due: BTreeSet<(Duration, K)>,
    /// The turn that the namespace had last.
    turn: u64,
}

/// One attempt of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enrolled<'a> {
    /// The job's namespace.
    pub namespace: &'a str,
    /// Its identity: another job of the same name has another.
    pub uid: &'a str,
    /// The attempt that runs.
    pub attempt: u32,
}

/// What is known of a job's reads.
#[derive(Clone, Debug)]
struct Turn {
    namespace: String,
    uid: String,
    attempt: u32,
    /// When it is read next; nothing while it is read.
    due: Option<Duration>,
    began: Duration,
    /// The pod that reported steps last, in this attempt or an earlier one.
    reporter: Option<Slot>,
    /// When it reported last in this attempt.
    reported: Option<Duration>,
    /// Pods tried in the present search for the reporter.
    tried: u32,
    window: Window,
    failures: u32,
    /// Why its progress was last called unknown.
    unknown: Option<Unknown>,
    /// Reads of pods that have ended.
    last_reads: u8,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<K> {
    /// The turn of this job has come.
    Job(K),
    /// Nothing before then.
    At(Duration),
    /// Nothing until a job is enrolled or a read ends.
    Idle,
}

/// A read to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The attempt it is made for.
    pub uid: String,
    /// The attempt it is made for.
    pub attempt: u32,
    /// The pod.
    pub slot: Slot,
    /// Its node, where it is known.
    pub node: Option<String>,
    /// Lines at the end of its log.
    pub lines: u32,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The log was read.
    Read(Found),
    /// It could not be read.
    Failed(Failure),
}

/// What a read found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// A step that was not read before.
    pub step: bool,
    /// As many lines as were asked for, all of them new: some before them were not read.
    pub full: bool,
    /// As many bytes as were asked for: the newest lines were not read.
    pub cut: bool,
}

/// Why a log could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The API server says that it may not be read.
    Denied,
    /// There is no such log, or not yet.
    Gone,
    /// The API server asks for a pause; how long, where it says so.
    Busy(Option<Duration>),
    /// The node did not respond in time, or not at all.
    Unreachable,
}

/// Why the progress of a job is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The operator may not read logs.
    Denied,
    /// The pods have no logs.
    Gone,
    /// Nodes do not respond.
    Unreachable,
}

impl Unknown {
    /// The reason in a sentence, without what it is the reason of.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Denied => {
                "the operator may not read pod logs (`get` on `pods/log` is missing in this namespace)"
            }
            Self::Gone => "the pods have no log that could be read",
            Self::Unreachable => {
                "the logs could not be read: the API server or the node did not respond"
            }
        }
    }
}

impl<K> Default for Rota<K> {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            nodes: Nodes::default(),
            under_way: 0,
            not_before: Duration::ZERO,
            pauses: 0,
            turns: 0,
        }
    }
}

impl<K: Ord + Clone> Rota<K> {
    /// Has the logs of a job read from now on. Of another attempt nothing is known but the pod that reported last.
    pub fn enroll(&mut self, key: &K, job: Enrolled<'_>, now: Duration) {
        let mut reporter = None;
        if let Some(turn) = self.jobs.get(key) {
            if turn.uid == job.uid && turn.attempt == job.attempt {
                return;
            }
            reporter = turn.reporter.filter(|_| turn.uid == job.uid);
            self.drop_job(key);
        }
        let turn = Turn {
            namespace: job.namespace.to_owned(),
            uid: job.uid.to_owned(),
            attempt: job.attempt,
            due: None,
            began: now,
            reporter,
            reported: None,
            tried: 0,
            window: Window::default(),
            failures: 0,
            unknown: None,
            last_reads: 0,
        };
        self.jobs.insert(key.clone(), turn);
        self.put(key, now);
    }

    /// Has its logs read no more. A read that is under way is reported all the same.
    pub fn drop_job(&mut self, key: &K) {
        let Some(turn) = self.jobs.remove(key) else {
            return;
        };
        if let Some(waiting) = self.waiting.get_mut(&turn.namespace) {
            if let Some(due) = turn.due {
                waiting.due.remove(&(due, key.clone()));
            }
            if waiting.due.is_empty() {
                self.waiting.remove(&turn.namespace);
            }
        }
    }

    /// Forgets all jobs. Reads that are under way still count until they are reported.
    pub fn drop_all(&mut self) {
        self.jobs.clear();
        self.waiting.clear();
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether this attempt is the one whose logs are read.
    pub fn is_enrolled(&self, key: &K, uid: &str, attempt: u32) -> bool {
        let turn = self.jobs.get(key);
        turn.is_some_and(|turn| turn.uid == uid && turn.attempt == attempt)
    }

    /// The job whose turn has come at `now`. Its turn is over with [`Rota::choose`].
    pub fn next(&self, now: Duration) -> Next<K> {
        if self.under_way >= AT_ONCE {
            // The end of a read is what is waited for.
            return Next::Idle;
        }
        let first = self
            .waiting
            .values()
            .filter_map(|waiting| waiting.due.first());
        let Some(earliest) = first.map(|(due, _)| *due).min() else {
            return Next::Idle;
        };
        let at = earliest.max(self.not_before);
        if at > now {
            return Next::At(at);
        }
        let due = self.waiting.values().filter_map(|waiting| {
            let (due, key) = waiting.due.first().filter(|(due, _)| *due <= now)?;
            Some((waiting.turn, *due, key))
        });
        match due.min() {
            Some((_, _, key)) => Next::Job(key.clone()),
            None => Next::Idle,
        }
    }

    /// The read to be made for a job whose turn it is, of one of `pods`, which run. None where there is nothing to read now;
    /// then the job is checked again later.
    pub fn choose(&mut self, key: &K, pods: &[PodToRead], now: Duration) -> Option<Order> {
        let turn = self.jobs.get_mut(key)?;
        let namespace = turn.namespace.clone();
        let silent = now.saturating_sub(turn.reported.unwrap_or(turn.began));
        let learned = turn
            .reporter
            .filter(|_| turn.reported.is_some() && silent < FIND_REPORTER_AFTER)
            .and_then(|slot| pods.iter().find(|pod| pod.slot == slot));
        let tried = turn.tried;
        let pod = if let Some(pod) = learned {
            turn.tried = 0;
            pod
        } else {
            turn.tried = turn.tried.saturating_add(1);
            let Some(pod) = candidates::candidate(pods, turn.reporter, tried) else {
                let later = now + turn.every(now);
                self.put(key, later);
                return None;
            };
            pod
        };
        let order = Order {
            uid: turn.uid.clone(),
            attempt: turn.attempt,
            slot: pod.slot,
            node: pod.node.clone(),
            lines: turn.window.lines(),
        };
        let free_at = self.nodes.free_at(pod.node.as_deref(), now);
        if free_at > now {
            self.put(key, free_at);
            return None;
        }
        self.take(key);
        self.turns += 1;
        if let Some(waiting) = self.waiting.get_mut(&namespace) {
            waiting.turn = self.turns;
        }
        self.nodes.begin(order.node.as_deref());
        self.under_way += 1;
        self.not_before = now + GAP;
        Some(order)
    }

    /// The last read of an attempt, of one of `pods`, which have ended, and when it may begin: the pod that reports, or one that is
    /// likely to. Nothing where that was read, or where the rate leaves no room within [`LAST_READ_WITHIN`].
    pub fn choose_last(
        &mut self,
        key: &K,
        pods: &[PodToRead],
        now: Duration,
    ) -> Option<(Order, Duration)> {
        let turn = self.jobs.get_mut(key)?;
        let at = self.not_before.max(now);
        if at > now + LAST_READ_WITHIN || self.under_way >= AT_ONCE {
            return None;
        }
        let pod = match turn.reporter.filter(|_| turn.reported.is_some()) {
            Some(_) if turn.last_reads > 0 => None,
            Some(slot) => pods.iter().find(|pod| pod.slot == slot),
            None if turn.last_reads < LAST_READS => {
                candidates::candidate(pods, turn.reporter, turn.last_reads.into())
            }
            None => None,
        }?;
        if self.nodes.free_at(pod.node.as_deref(), now) > now {
            return None;
        }
        turn.last_reads += 1;
        let order = Order {
            uid: turn.uid.clone(),
            attempt: turn.attempt,
            slot: pod.slot,
            node: pod.node.clone(),
            lines: turn.window.lines(),
        };
        self.nodes.begin(order.node.as_deref());
        self.under_way += 1;
        self.not_before = at + GAP;
        Some((order, at))
    }

    /// Applies the outcome of a read. Returns why the progress of the job is unknown, once for each attempt and reason.
    pub fn report(
        &mut self,
        key: &K,
        order: &Order,
        outcome: Outcome,
        now: Duration,
    ) -> Option<Unknown> {
        self.under_way = self.under_way.saturating_sub(1);
        let unreachable = outcome == Outcome::Failed(Failure::Unreachable);
        self.nodes.end(order.node.as_deref(), unreachable, now);
        if let Outcome::Failed(Failure::Busy(asked)) = outcome {
            let wait = PAUSES.0 * 2_u32.pow(self.pauses.min(5));
            let wait = asked.unwrap_or(wait).clamp(PAUSES.0, PAUSES.1);
            self.pauses = self.pauses.saturating_add(1);
            self.not_before = self.not_before.max(now + wait);
        } else {
            self.pauses = 0;
        }
        let turn = self
            .jobs
            .get_mut(key)
            .filter(|turn| turn.uid == order.uid && turn.attempt == order.attempt)?;
        let mut every = turn.every(now);
        let mut unknown = None;
        match outcome {
            Outcome::Read(found) => {
                turn.failures = 0;
                turn.unknown = None;
                turn.window.adapt(found);
                if found.step {
                    turn.reporter = Some(order.slot);
                    turn.reported = Some(now);
                    every = EVERY;
                }
            }
            // It says nothing about the job.
            Outcome::Failed(Failure::Busy(_)) => {}
            Outcome::Failed(failure) => {
                turn.failures = turn.failures.saturating_add(1);
                let (why, after) = match failure {
                    Failure::Denied => (Unknown::Denied, 1),
                    Failure::Gone => (Unknown::Gone, FAILURES),
                    Failure::Busy(_) | Failure::Unreachable => (Unknown::Unreachable, FAILURES),
                };
                if failure == Failure::Denied {
                    every = EVERY_DENIED;
                }
                if turn.failures >= after && turn.unknown != Some(why) {
                    turn.unknown = Some(why);
                    unknown = Some(why);
                }
            }
        }
        if turn.due.is_none() {
            self.put(key, now + every);
        }
        unknown
    }

    /// A pod of an attempt has sent a step by itself: its log need not be read now.
    pub fn sent(&mut self, key: &K, job: Enrolled<'_>, slot: Slot, now: Duration) {
        if !self.is_enrolled(key, job.uid, job.attempt) {
            return;
        }
        let Some(turn) = self.jobs.get_mut(key) else {
            return;
        };
        turn.reporter = Some(slot);
        turn.reported = Some(now);
        turn.failures = 0;
        turn.unknown = None;
        // One whose log is being read is due again when that is done.
        if turn.due.is_some() {
            self.put(key, now + UNSENT);
        }
    }

    /// Makes a job due at `at`.
    fn put(&mut self, key: &K, at: Duration) {
        self.take(key);
        let Some(turn) = self.jobs.get_mut(key) else {
            return;
        };
        turn.due = Some(at);
        let turns = self.turns;
        let waiting = self.waiting.entry(turn.namespace.clone());
        let waiting = waiting.or_insert_with(|| Waiting {
            due: BTreeSet::new(),
            turn: turns,
        });
        waiting.due.insert((at, key.clone()));
    }

    /// Takes a job off the list of those that wait. Its namespace stays, so that it keeps its turn.
    fn take(&mut self, key: &K) {
        let Some(turn) = self.jobs.get_mut(key) else {
            return;
        };
        if let Some(due) = turn.due.take()
            && let Some(waiting) = self.waiting.get_mut(&turn.namespace)
        {
            waiting.due.remove(&(due, key.clone()));
        }
    }
}

impl Turn {
    /// How long after a read the next one is due.
    fn every(&self, now: Duration) -> Duration {
        let since = now.saturating_sub(self.reported.unwrap_or(self.began));
        match self.reported {
            Some(_) if since < FIND_REPORTER_AFTER => EVERY,
            None if since < AT_FIRST => EVERY_AT_FIRST,
            _ if since < SILENT_LONG => EVERY,
            _ => EVERY_SILENT,
        }
    }
}
