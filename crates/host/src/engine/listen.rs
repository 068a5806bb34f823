//! What ranks write, as the doctor hears it: a verdict on the first failure of each attempt.
//!
//! Owns what is heard and when that is concluded from. What lines mean is
//! [`trainyard_core::diagnose`]'s.
//!
//! Invariants: what is kept is bounded by ranks and rules, and the time that a flood of output takes by
//! [`HEARD_PER_SECOND`]; the end of a flood is read before anything is concluded from it. What a pod writes after it got the
//! signal to end is not read: it is about the end, and not about its cause.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use trainyard_core::{
    diagnose::{Doctor, End, Known, Rules, SourceId, TransportSeen, VerdictSummary},
    job::{Exit, TransportsTold},
    progress::UserRules,
};

use super::{
    Engine,
    table::{Entry, Key},
};
use crate::Ranks;

/// Bytes of all ranks that are heard whole in a second: ten times what 128 busy ranks write, and a small share
/// of one core.
const HEARD_PER_SECOND: usize = 16 << 20;
/// Of a piece beyond that, only this much is read, at its end, and that is held until there is time for it: what a rank
/// writes before it fails is the last that it writes.
const HEARD_TAIL: usize = 64 << 10;

/// What of a piece is read.
enum Part<'a> {
    All,
    /// Its end, now.
    End(&'a [u8]),
    /// Its end, if nothing follows it before there is time.
    Later(&'a [u8]),
}

/// One log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice<'a> {
    pub(super) key: Key,
    pub(super) attempt: u32,
    pub(super) pod: &'a str,
    pub(super) container: usize,
    pub(super) name: &'a str,
}

/// Hears the ranks of one attempt.
#[derive(Debug)]
pub(super) struct Listener {
    rules: Option<Arc<Rules>>,
    attempt: u32,
    /// Whether each pod is heard for itself, because it restarts alone.
    by_pod: bool,
    /// One for all pods, or for each.
    doctors: BTreeMap<Option<Key>, Doctor>,
    sources: BTreeMap<(Key, usize), SourceId>,
    /// The end of what a flood wrote to a log, until it is read.
    held: BTreeMap<(Key, usize), Vec<u8>>,
    /// Bytes that may be heard whole, as of `since`.
    left: usize,
    since: Instant,
    /// How much mattered, and how much of it was about transports, when that was last asked.
    asked: (u64, u64),
    /// How much mattered when it was last concluded.
    concluded: Option<(u32, u64)>,
}

impl Listener {
    pub(super) fn new(now: Instant, by_pod: bool, rules: Option<Arc<Rules>>) -> Self {
        Self {
            rules,
            attempt: 0,
            by_pod,
            doctors: BTreeMap::new(),
            sources: BTreeMap::new(),
            held: BTreeMap::new(),
            left: HEARD_PER_SECOND,
            since: now,
            asked: (0, 0),
            concluded: None,
        }
    }

    /// How a user's rules read progress.
    pub(super) fn progress_rules(&self) -> Option<&Arc<UserRules>> {
        self.rules.as_deref().map(Rules::progress)
    }

    /// Hears whole lines of one log, that of `rank` where it is one rank's.
    pub(super) fn hear(
        &mut self,
        voice: Voice<'_>,
        rank: impl FnOnce() -> Option<u32>,
        bytes: &[u8],
        now: Instant,
    ) {
        if voice.attempt < self.attempt || bytes.is_empty() {
            return;
        }
        if voice.attempt > self.attempt {
            self.attempt = voice.attempt;
            self.doctors.clear();
            self.sources.clear();
            self.held.clear();
            self.asked = (0, 0);
        }
        let part = self.afford(bytes, now);
        let whose = self.by_pod.then_some(voice.key);
        let rules = &mut self.rules;
        let doctor = self
            .doctors
            .entry(whose)
            .or_insert_with(|| new_doctor(rules));
        let place = (voice.key, voice.container);
        let source = *self.sources.entry(place).or_insert_with(|| {
            let source = doctor.source(&format!("{}/{}", voice.pod, voice.name));
            doctor.belongs_to(source, rank(), Some(voice.pod));
            source
        });
        match part {
            Part::All => {
                if let Some(held) = self.held.remove(&place) {
                    doctor.bytes(source, &held);
                }
                doctor.bytes(source, bytes);
            }
            Part::End(end) => {
                // What is held is older than this end.
                self.held.remove(&place);
                doctor.bytes(source, end);
            }
            Part::Later(end) => {
                let held = self.held.entry(place).or_default();
                held.clear();
                held.extend_from_slice(end);
            }
        }
    }

    /// Reads what is held of all logs.
    fn read_held(&mut self) {
        for (place, held) in std::mem::take(&mut self.held) {
            let whose = self.by_pod.then_some(place.0);
            if let (Some(doctor), Some(source)) =
                (self.doctors.get_mut(&whose), self.sources.get(&place))
            {
                doctor.bytes(*source, &held);
            }
        }
    }

    /// What of `bytes` there is time for.
    fn afford<'a>(&mut self, bytes: &'a [u8], now: Instant) -> Part<'a> {
        let passed = now.saturating_duration_since(self.since);
        let micros = passed.min(Duration::from_secs(1)).as_micros();
        let earned = usize::try_from(micros).unwrap_or(0) * (HEARD_PER_SECOND / 1_000_000);
        self.since = now;
        self.left = (self.left + earned).min(HEARD_PER_SECOND);
        if bytes.len() <= self.left {
            self.left -= bytes.len();
            return Part::All;
        }
        let tail = bytes.get(bytes.len().saturating_sub(HEARD_TAIL)..);
        let tail = tail.unwrap_or_default();
        let line = tail.iter().position(|byte| *byte == b'\n');
        let end = tail.get(line.map_or(0, |newline| newline + 1)..);
        let end = end.unwrap_or_default();
        if end.len() <= self.left {
            self.left -= end.len();
            Part::End(end)
        } else {
            Part::Later(end)
        }
    }

    /// Whether ranks have told more of what they talk over since this was last asked.
    pub(super) fn has_transport_news(&mut self) -> bool {
        let (noticed, told) = self.asked;
        self.asked.0 = self.noticed();
        if self.asked.0 == noticed {
            return false;
        }
        self.asked.1 = self.doctors.values().map(Doctor::transport_lines).sum();
        self.asked.1 != told
    }

    /// What ranks told that they talk over.
    pub(super) fn transports(&self) -> Option<TransportsTold> {
        let doctors = self.doctors.values();
        let ranks: Vec<TransportSeen> = doctors.flat_map(Doctor::transports).collect();
        (!ranks.is_empty()).then_some(TransportsTold {
            attempt: self.attempt,
            ranks,
        })
    }

    /// Whether something that matters was heard in `attempt` since this was last asked.
    fn has_news(&mut self, attempt: u32) -> bool {
        self.read_held();
        let now = Some((attempt, self.noticed()));
        std::mem::replace(&mut self.concluded, now) != now
    }

    fn noticed(&self) -> u64 {
        self.doctors.values().map(Doctor::noticed).sum()
    }

    /// Whether each pod is heard for itself.
    pub(super) fn is_by_pod(&self) -> bool {
        self.by_pod
    }

    /// Forgets what a pod wrote: its container starts again.
    pub(super) fn forget(&mut self, key: Key) {
        self.held.retain(|(whose, _), _| *whose != key);
        if self.doctors.remove(&Some(key)).is_some() {
            self.sources.retain(|(whose, _), _| *whose != key);
        }
    }

    /// What follows from how pods ended and from what ranks wrote, where they wrote anything.
    fn conclude(&mut self, attempt: u32, known: Vec<Known>) -> Option<VerdictSummary> {
        self.conclude_of(None, attempt, known)
    }

    /// The same of one pod that restarts alone, since its container started last.
    pub(super) fn conclude_end(
        &mut self,
        key: Key,
        attempt: u32,
        known: Option<Known>,
    ) -> Option<VerdictSummary> {
        self.conclude_of(Some(key), attempt, known.into_iter().collect())
    }

    fn conclude_of(
        &mut self,
        whose: Option<Key>,
        attempt: u32,
        known: Vec<Known>,
    ) -> Option<VerdictSummary> {
        self.read_held();
        let heard = self.doctors.iter().filter(|_| self.attempt == attempt);
        let heard = heard.filter(|(key, _)| whose.is_none() || **key == whose);
        let mut heard = heard.map(|(_, doctor)| doctor.clone());
        let mut doctor = match heard.next() {
            Some(first) => first,
            None if known.is_empty() => return None,
            None => new_doctor(&mut self.rules),
        };
        for other in heard {
            doctor.absorb(other);
        }
        for known in known {
            doctor.know(known);
        }
        // A last line without its end counts, and more may come after it.
        doctor.finish().summary(attempt)
    }
}

fn new_doctor(rules: &mut Option<Arc<Rules>>) -> Doctor {
    let rules = rules.get_or_insert_with(|| Arc::new(Rules::builtin()));
    Doctor::new(Arc::clone(rules))
}

impl Engine<'_> {
    /// Concludes why the attempt failed, before that is answered. A failure on purpose needs no doctor.
    pub(super) fn conclude(&mut self) {
        let attempt = self.status.trainyard.attempt;
        let failed = self.failures.last();
        let fails =
            failed.is_some_and(|failed| failed.attempt == attempt && failed.injected.is_none());
        // What a pod that restarts alone wrote before is forgotten then.
        let late = self.listener.is_by_pod() && !self.untold.is_news();
        if !fails || late || self.has_ended() {
            return;
        }
        self.read_last_words();
        if !self.listener.has_news(attempt) {
            return;
        }
        let known = self.known(attempt);
        let verdict = self.listener.conclude(attempt, known);
        self.note_verdict(verdict);
    }

    /// How pods of `attempt` ended by themselves.
    fn known(&self, attempt: u32) -> Vec<Known> {
        let ended = self.pods.values().filter(|entry| entry.attempt == attempt);
        let ended = ended.filter_map(|entry| self.known_end(entry, entry.exit.or(entry.last_end)?));
        ended.collect()
    }

    /// How the pod of `entry` ended, where it failed by itself.
    pub(super) fn known_end(&self, entry: &Entry, exit: Exit) -> Option<Known> {
        let by_itself = exit.code != 0 && entry.deleted_at.is_none();
        let known = Known {
            pod: entry.name.clone(),
            rank: Ranks::of(self.job).only_of_pod(&self.job.replicas(), entry.slot),
            // As the source of its lines has it: here all pods are on one node.
            node: Some(entry.name.clone()),
            end: End::of_exit(exit.code, exit.out_of_memory),
            at: exit.at,
            memory_limit: None,
            on_purpose: entry.injected.clone(),
        };
        by_itself.then(|| known.limited_by(self.job, entry.slot.role))
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::{diagnose::Confidence, job::Account};

    use super::*;

    const TRACE: &str = "Traceback (most recent call last):\n  File \"/app/train.py\", line 7, in main\n    \
                         rate = config['rate']\nKeyError: 'rate'\n";

    fn voice(attempt: u32) -> Voice<'static> {
        Voice {
            key: 1,
            attempt,
            pod: "j-worker-0",
            container: 0,
            name: "pytorch",
        }
    }

    fn hear(listener: &mut Listener, attempt: u32, bytes: &[u8], now: Instant) {
        listener.hear(voice(attempt), || Some(1), bytes, now);
    }

    #[test]
    fn a_flood_does_not_hide_the_last_words() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let block = line.repeat(10_000);
        for _ in 0..40 {
            hear(&mut listener, 1, &block, now);
        }
        assert!(listener.left < block.len(), "the flood was heard whole");
        assert!(!listener.held.is_empty(), "its end waits");
        let last = [block, TRACE.into()].concat();
        hear(&mut listener, 1, &last, now);
        let verdict = listener.conclude(1, Vec::new()).expect("a verdict");
        assert_eq!(verdict.label, "user_code_error");
        assert_eq!(verdict.ranks, [1]);
        assert_eq!(verdict.account, Account::User);
        assert_eq!(
            verdict.place.as_deref(),
            Some("KeyError at File \"/app/train.py\", line 7, in main")
        );
    }

    #[test]
    fn what_ranks_talk_over_is_heard_of_this_attempt() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        assert_eq!(listener.transports(), None);
        let line =
            b"node-1:42:99 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/Socket/0\n";
        hear(&mut listener, 1, line, now);
        assert!(listener.has_transport_news());
        let told = listener.transports().expect("it was told");
        assert_eq!((told.attempt, told.ranks.len()), (1, 1));
        assert_eq!(told.ranks[0].rank, Some(1));
        assert_eq!(told.ranks[0].source, "j-worker-0/pytorch");
        assert_eq!(told.ranks[0].transports, ["NET/Socket".to_owned()].into());
        assert!(!listener.has_transport_news(), "that is known");
        hear(&mut listener, 2, b"hello\n", now);
        assert_eq!(listener.transports(), None);
    }

    #[test]
    fn attempts_do_not_hear_each_other() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        hear(&mut listener, 1, TRACE.as_bytes(), now);
        assert!(listener.conclude(1, Vec::new()).is_some());
        hear(&mut listener, 2, b"step 1 loss 2.0\n", now);
        assert_eq!(listener.conclude(1, Vec::new()), None);
        hear(&mut listener, 1, TRACE.as_bytes(), now);
        assert_eq!(
            listener.conclude(2, Vec::new()),
            None,
            "what is late is not heard"
        );
    }

    #[test]
    fn a_silent_pod_that_ran_out_of_memory_is_the_cause() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        let known = |pod: &str, end| Known {
            pod: pod.to_owned(),
            rank: None,
            node: None,
            end,
            at: None,
            memory_limit: Some("1Gi".to_owned()),
            on_purpose: None,
        };
        let memory = || vec![known("j-worker-1", End::OutOfMemory(137))];
        let verdict = listener.conclude(1, memory()).expect("a verdict");
        assert_eq!(verdict.label, "host_oom_killed");
        let lost = b"RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:4711\n";
        hear(&mut listener, 1, lost, now);
        let mut ends = memory();
        ends.push(known("j-worker-0", End::Exit(1)));
        let verdict = listener.conclude(1, ends).expect("a verdict");
        assert_eq!(verdict.label, "host_oom_killed", "{verdict:?}");
        assert!(verdict.sentence.contains("`j-worker-1`"), "{verdict:?}");
        assert!(verdict.sentence.contains("limit of 1Gi"), "{verdict:?}");
        assert_eq!(verdict.confidence, Confidence::High);
    }

    #[test]
    fn pods_that_restart_alone_are_heard_one_by_one() {
        let now = Instant::now();
        let mut listener = Listener::new(now, true, None);
        let other = Voice {
            key: 2,
            pod: "j-worker-1",
            ..voice(1)
        };
        hear(&mut listener, 1, TRACE.as_bytes(), now);
        listener.hear(other, || Some(2), b"step 1 loss 2.0\n", now);
        assert!(listener.conclude_end(1, 1, None).is_some());
        assert_eq!(listener.conclude_end(2, 1, None), None);
        listener.forget(1);
        assert_eq!(listener.conclude_end(1, 1, None), None, "it starts again");
        hear(&mut listener, 1, TRACE.as_bytes(), now);
        assert!(listener.conclude_end(1, 1, None).is_some());
    }

    #[test]
    fn a_last_line_without_its_end_counts() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        hear(&mut listener, 1, TRACE.trim_end().as_bytes(), now);
        assert!(listener.has_news(1));
        assert!(listener.conclude(1, Vec::new()).is_some());
    }
}
