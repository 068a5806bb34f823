//! Passes what ranks write to the doctor, for a verdict on the first failure of each attempt.
//!
//! Owns which output is read and when a verdict is concluded. What lines mean is
//! [`trainyard_core::diagnose`]'s.
//!
//! Invariants: what is kept is bounded by ranks and rules, and the time that a flood of output takes by
//! [`READ_PER_SECOND`]; the end of a flood is read before anything is concluded from it. What a pod writes after it got the
//! signal to end is not read: it is about the end, and not about its cause.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use trainyard_core::{
    chronicle::KeptVerdict,
    diagnose::{Doctor, Known, Rules, SourceId, TransportSeen, VerdictSummary},
    job::ReportedTransports,
    progress::UserRules,
};

use super::{Engine, table::Key};

/// Bytes of all ranks that are read completely per second: ten times what 128 busy ranks write, and a small share
/// of one core.
const READ_PER_SECOND: usize = 16 << 20;
/// Of a piece beyond that, only this much is read, at its end, and that is held until there is time for it: what a rank
/// writes before it fails is the last that it writes.
const READ_TAIL: usize = 64 << 10;

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
pub(super) struct LogSource<'a> {
    pub(super) key: Key,
    pub(super) attempt: u32,
    pub(super) pod: &'a str,
    pub(super) container: usize,
    pub(super) name: &'a str,
}

/// Reads the output of the ranks of one attempt.
#[derive(Debug)]
pub(super) struct Listener {
    rules: Option<Arc<Rules>>,
    attempt: u32,
    /// Whether each pod has its own doctor, because it restarts alone.
    by_pod: bool,
    /// One for all pods, or for each.
    doctors: BTreeMap<Option<Key>, Doctor>,
    sources: BTreeMap<(Key, usize), SourceId>,
    /// The end of what a flood wrote to a log, until it is read.
    held: BTreeMap<(Key, usize), Vec<u8>>,
    /// Bytes that may be read completely, as of `since`.
    left: usize,
    since: Instant,
    /// How much mattered, and how much of it was about transports, when that was last asked.
    asked: (u64, u64),
    /// How much mattered when it was last concluded.
    concluded: Option<(u32, u64)>,
    /// The last verdict, with what it rests on, until it is asked for.
    kept: Option<KeptVerdict>,
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
            left: READ_PER_SECOND,
            since: now,
            asked: (0, 0),
            concluded: None,
            kept: None,
        }
    }

    /// The last verdict with what it rests on, where there is one since the last call.
    pub(super) fn take_kept(&mut self) -> Option<KeptVerdict> {
        self.kept.take()
    }

    /// The rules that logs are read with.
    pub(super) fn rules(&mut self) -> Arc<Rules> {
        Arc::clone(known_rules(&mut self.rules))
    }

    /// How a user's rules read progress.
    pub(super) fn progress_rules(&self) -> Option<&Arc<UserRules>> {
        self.rules.as_deref().map(Rules::progress)
    }

    /// Reads whole lines of one log, that of `rank` where it is one rank's.
    pub(super) fn read(
        &mut self,
        log: LogSource<'_>,
        rank: impl FnOnce() -> Option<u32>,
        bytes: &[u8],
        now: Instant,
    ) {
        if log.attempt < self.attempt || bytes.is_empty() {
            return;
        }
        if log.attempt > self.attempt {
            self.attempt = log.attempt;
            self.doctors.clear();
            self.sources.clear();
            self.held.clear();
            self.asked = (0, 0);
        }
        let part = self.part_to_read(bytes, now);
        let pod = self.by_pod.then_some(log.key);
        let rules = &mut self.rules;
        let doctor = self.doctors.entry(pod).or_insert_with(|| new_doctor(rules));
        let place = (log.key, log.container);
        let source = *self.sources.entry(place).or_insert_with(|| {
            let source = doctor.source(&format!("{}/{}", log.pod, log.name));
            doctor.set_rank_and_node(source, rank(), Some(log.pod));
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
            let pod = self.by_pod.then_some(place.0);
            if let (Some(doctor), Some(source)) =
                (self.doctors.get_mut(&pod), self.sources.get(&place))
            {
                doctor.bytes(*source, &held);
            }
        }
    }

    /// What of `bytes` there is time for.
    fn part_to_read<'a>(&mut self, bytes: &'a [u8], now: Instant) -> Part<'a> {
        let passed = now.saturating_duration_since(self.since);
        let micros = passed.min(Duration::from_secs(1)).as_micros();
        let earned = usize::try_from(micros).unwrap_or(0) * (READ_PER_SECOND / 1_000_000);
        self.since = now;
        self.left = (self.left + earned).min(READ_PER_SECOND);
        if bytes.len() <= self.left {
            self.left -= bytes.len();
            return Part::All;
        }
        let tail = bytes.get(bytes.len().saturating_sub(READ_TAIL)..);
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

    /// Whether ranks reported more about their transports since the last call.
    pub(super) fn has_transport_news(&mut self) -> bool {
        let (noticed, reported) = self.asked;
        self.asked.0 = self.noticed();
        if self.asked.0 == noticed {
            return false;
        }
        self.asked.1 = self.doctors.values().map(Doctor::transport_lines).sum();
        self.asked.1 != reported
    }

    /// The transports that ranks reported.
    pub(super) fn transports(&self) -> Option<ReportedTransports> {
        let doctors = self.doctors.values();
        let ranks: Vec<TransportSeen> = doctors.flat_map(Doctor::transports).collect();
        (!ranks.is_empty()).then_some(ReportedTransports {
            attempt: self.attempt,
            ranks,
        })
    }

    /// Whether a line that matters was read in `attempt` since the last call.
    fn has_new_lines(&mut self, attempt: u32) -> bool {
        self.read_held();
        let now = Some((attempt, self.noticed()));
        std::mem::replace(&mut self.concluded, now) != now
    }

    fn noticed(&self) -> u64 {
        self.doctors.values().map(Doctor::noticed).sum()
    }

    /// Whether each pod has its own doctor.
    pub(super) fn is_by_pod(&self) -> bool {
        self.by_pod
    }

    /// Forgets what a pod wrote: its container starts again.
    pub(super) fn forget(&mut self, key: Key) {
        self.held.retain(|(pod, _), _| *pod != key);
        if self.doctors.remove(&Some(key)).is_some() {
            self.sources.retain(|(pod, _), _| *pod != key);
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
        pod: Option<Key>,
        attempt: u32,
        known: Vec<Known>,
    ) -> Option<VerdictSummary> {
        self.read_held();
        let doctors = self.doctors.iter().filter(|_| self.attempt == attempt);
        let doctors = doctors.filter(|(key, _)| pod.is_none() || **key == pod);
        let mut doctors = doctors.map(|(_, doctor)| doctor.clone());
        let mut doctor = match doctors.next() {
            Some(first) => first,
            None if known.is_empty() => return None,
            None => new_doctor(&mut self.rules),
        };
        for other in doctors {
            doctor.absorb(other);
        }
        for known in known {
            doctor.add_known_end(known);
        }
        // A last line without its end counts, and more may come after it.
        let report = doctor.finish();
        let summary = report.summary(attempt)?;
        let decisive = report.verdicts.first();
        self.kept = decisive.map(|verdict| KeptVerdict::of(verdict, summary.clone()));
        Some(summary)
    }
}

fn new_doctor(rules: &mut Option<Arc<Rules>>) -> Doctor {
    Doctor::new(Arc::clone(known_rules(rules)))
}

/// Read once, with the first line that needs them.
fn known_rules(rules: &mut Option<Arc<Rules>>) -> &Arc<Rules> {
    rules.get_or_insert_with(|| Arc::new(Rules::builtin()))
}

impl Engine<'_> {
    /// Concludes why the attempt failed, before that is answered. An injected failure needs no doctor.
    pub(super) fn conclude(&mut self) {
        let attempt = self.stored.status.trainyard.attempt;
        let failed = self.failures.last();
        let fails = failed.is_some_and(|failed| {
            // What the watch found is why the rank was ended; its log does not have it.
            failed.attempt == attempt
                && failed.injected.is_none()
                && !self.failures.is_expected(attempt)
        });
        // What a pod that restarts alone wrote before is forgotten then.
        let late = self.listener.is_by_pod() && !self.failures.is_unreported();
        if !fails || late || self.stored.has_ended() {
            return;
        }
        self.read_failed_pod_output();
        if !self.listener.has_new_lines(attempt) {
            return;
        }
        let known = self.pods.known_ends(attempt, self.job);
        let verdict = self.listener.conclude(attempt, known);
        self.failures.set_verdict(verdict);
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::{
        diagnose::{Confidence, End},
        job::Account,
    };

    use super::*;

    const TRACE: &str = "Traceback (most recent call last):\n  File \"/app/train.py\", line 7, in main\n    \
                         rate = config['rate']\nKeyError: 'rate'\n";

    fn log(attempt: u32) -> LogSource<'static> {
        LogSource {
            key: 1,
            attempt,
            pod: "j-worker-0",
            container: 0,
            name: "pytorch",
        }
    }

    fn read(listener: &mut Listener, attempt: u32, bytes: &[u8], now: Instant) {
        listener.read(log(attempt), || Some(1), bytes, now);
    }

    #[test]
    fn a_flood_does_not_hide_the_last_words() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let block = line.repeat(10_000);
        for _ in 0..40 {
            read(&mut listener, 1, &block, now);
        }
        assert!(listener.left < block.len(), "the whole flood was read");
        assert!(!listener.held.is_empty(), "its end waits");
        let last = [block, TRACE.into()].concat();
        read(&mut listener, 1, &last, now);
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
    fn transports_of_this_attempt_only() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        assert_eq!(listener.transports(), None);
        let line =
            b"node-1:42:99 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/Socket/0\n";
        read(&mut listener, 1, line, now);
        assert!(listener.has_transport_news());
        let seen = listener.transports().expect("it was reported");
        assert_eq!((seen.attempt, seen.ranks.len()), (1, 1));
        assert_eq!(seen.ranks[0].rank, Some(1));
        assert_eq!(seen.ranks[0].source, "j-worker-0/pytorch");
        assert_eq!(seen.ranks[0].transports, ["NET/Socket".to_owned()].into());
        assert!(!listener.has_transport_news(), "that is known");
        read(&mut listener, 2, b"hello\n", now);
        assert_eq!(listener.transports(), None);
    }

    #[test]
    fn late_output_of_old_attempt_ignored() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        read(&mut listener, 1, TRACE.as_bytes(), now);
        assert!(listener.conclude(1, Vec::new()).is_some());
        read(&mut listener, 2, b"step 1 loss 2.0\n", now);
        assert_eq!(listener.conclude(1, Vec::new()), None);
        read(&mut listener, 1, TRACE.as_bytes(), now);
        assert_eq!(
            listener.conclude(2, Vec::new()),
            None,
            "late output is ignored"
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
        read(&mut listener, 1, lost, now);
        let mut ends = memory();
        ends.push(known("j-worker-0", End::Exit(1)));
        let verdict = listener.conclude(1, ends).expect("a verdict");
        assert_eq!(verdict.label, "host_oom_killed", "{verdict:?}");
        assert!(verdict.sentence.contains("`j-worker-1`"), "{verdict:?}");
        assert!(verdict.sentence.contains("limit of 1Gi"), "{verdict:?}");
        assert_eq!(verdict.confidence, Confidence::High);
    }

    #[test]
    fn pods_that_restart_alone_read_separately() {
        let now = Instant::now();
        let mut listener = Listener::new(now, true, None);
        let other = LogSource {
            key: 2,
            pod: "j-worker-1",
            ..log(1)
        };
        read(&mut listener, 1, TRACE.as_bytes(), now);
        listener.read(other, || Some(2), b"step 1 loss 2.0\n", now);
        assert!(listener.conclude_end(1, 1, None).is_some());
        assert_eq!(listener.conclude_end(2, 1, None), None);
        listener.forget(1);
        assert_eq!(listener.conclude_end(1, 1, None), None, "it starts again");
        read(&mut listener, 1, TRACE.as_bytes(), now);
        assert!(listener.conclude_end(1, 1, None).is_some());
    }

    #[test]
    fn a_last_line_without_its_end_counts() {
        let now = Instant::now();
        let mut listener = Listener::new(now, false, None);
        read(&mut listener, 1, TRACE.trim_end().as_bytes(), now);
        assert!(listener.has_new_lines(1));
        assert!(listener.conclude(1, Vec::new()).is_some());
    }
}
