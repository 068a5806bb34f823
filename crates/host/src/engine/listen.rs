//! What ranks write, as the doctor hears it: a verdict on the first failure of each attempt.
//!
//! Owns what is heard and when that is concluded from. What lines mean is
//! [`trainyard_core::diagnose`]'s.
//!
//! Invariants: what is kept is bounded by ranks and rules, and the time that a flood of output takes by
//! [`HEARD_PER_SECOND`]. What a pod writes after it was told to end is not heard: it tells of the end,
//! and not of its cause.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use trainyard_core::{
    diagnose::{Doctor, Rules, SourceId, VerdictSummary},
    job::TransportsTold,
};

use super::{Engine, table::Key};

/// Bytes of all ranks that are heard whole in a second: ten times what 128 busy ranks write, and a small share
/// of one core.
const HEARD_PER_SECOND: usize = 16 << 20;
/// Of a piece beyond that, only this much is heard, at its end: what a rank writes before it fails is the
/// last that it writes.
const HEARD_TAIL: usize = 64 << 10;

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
    doctor: Option<Doctor>,
    sources: BTreeMap<(Key, usize), SourceId>,
    /// Bytes that may be heard whole, as of `since`.
    left: usize,
    since: Instant,
    /// How much mattered, and how much of it was about transports, when that was last asked.
    asked: (u64, u64),
    /// How much mattered when it was last concluded.
    concluded: Option<(u32, u64)>,
}

impl Listener {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rules: None,
            attempt: 0,
            doctor: None,
            sources: BTreeMap::new(),
            left: HEARD_PER_SECOND,
            since: now,
            asked: (0, 0),
            concluded: None,
        }
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
            self.doctor = None;
            self.sources.clear();
            self.asked = (0, 0);
        }
        let heard = self.afford(bytes, now);
        let rules = &mut self.rules;
        let doctor = self.doctor.get_or_insert_with(|| {
            let rules = rules.get_or_insert_with(|| Arc::new(Rules::builtin()));
            Doctor::new(Arc::clone(rules))
        });
        let place = (voice.key, voice.container);
        let source = *self.sources.entry(place).or_insert_with(|| {
            let source = doctor.source(&format!("{}/{}", voice.pod, voice.name));
            doctor.belongs_to(source, rank(), Some(voice.pod));
            source
        });
        doctor.bytes(source, heard);
    }

    /// What of `bytes` there is time for.
    fn afford<'a>(&mut self, bytes: &'a [u8], now: Instant) -> &'a [u8] {
        let passed = now.saturating_duration_since(self.since);
        let micros = passed.min(Duration::from_secs(1)).as_micros();
        let earned = usize::try_from(micros).unwrap_or(0) * (HEARD_PER_SECOND / 1_000_000);
        self.since = now;
        self.left = (self.left + earned).min(HEARD_PER_SECOND);
        if bytes.len() <= self.left {
            self.left -= bytes.len();
            return bytes;
        }
        let tail = bytes.get(bytes.len().saturating_sub(HEARD_TAIL)..);
        let tail = tail.unwrap_or_default();
        let line = tail.iter().position(|byte| *byte == b'\n');
        tail.get(line.map_or(0, |newline| newline + 1)..)
            .unwrap_or_default()
    }

    /// Whether ranks have told more of what they talk over since this was last asked.
    pub(super) fn has_transport_news(&mut self) -> bool {
        let Some(doctor) = &self.doctor else {
            return false;
        };
        let (noticed, told) = self.asked;
        self.asked.0 = doctor.noticed();
        if self.asked.0 == noticed {
            return false;
        }
        self.asked.1 = doctor.transport_lines();
        self.asked.1 != told
    }

    /// What ranks told that they talk over.
    pub(super) fn transports(&self) -> Option<TransportsTold> {
        let doctor = self.doctor.as_ref()?;
        let ranks = doctor.transports();
        (!ranks.is_empty()).then_some(TransportsTold {
            attempt: self.attempt,
            ranks,
        })
    }

    /// Whether something that matters was heard in `attempt` since this was last asked.
    fn has_news(&mut self, attempt: u32) -> bool {
        let noticed = self.doctor.as_ref().map_or(0, Doctor::noticed);
        let now = Some((attempt, noticed));
        std::mem::replace(&mut self.concluded, now) != now
    }

    fn conclude(&self, attempt: u32) -> Option<VerdictSummary> {
        let doctor = self.doctor.as_ref().filter(|_| self.attempt == attempt)?;
        // A last line without its end counts, and more may come after it.
        doctor.clone().finish().summary(attempt)
    }
}

impl Engine<'_> {
    /// Concludes why the attempt failed, before that is answered. A failure on purpose needs no doctor.
    pub(super) fn conclude(&mut self) {
        let attempt = self.status.trainyard.attempt;
        let failed = self.failures.last();
        let fails =
            failed.is_some_and(|failed| failed.attempt == attempt && failed.injected.is_none());
        if !fails || self.has_ended() {
            return;
        }
        self.read_last_words();
        if !self.listener.has_news(attempt) {
            return;
        }
        let verdict = self.listener.conclude(attempt);
        self.note_verdict(verdict);
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::job::Account;

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
        let mut listener = Listener::new(now);
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let block = line.repeat(10_000);
        for _ in 0..20 {
            hear(&mut listener, 1, &block, now);
        }
        assert!(listener.left < block.len(), "the flood was heard whole");
        let last = [block, TRACE.into()].concat();
        hear(&mut listener, 1, &last, now);
        let verdict = listener.conclude(1).expect("a verdict");
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
        let mut listener = Listener::new(now);
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
        let mut listener = Listener::new(now);
        hear(&mut listener, 1, TRACE.as_bytes(), now);
        assert!(listener.conclude(1).is_some());
        hear(&mut listener, 2, b"step 1 loss 2.0\n", now);
        assert_eq!(listener.conclude(1), None);
        hear(&mut listener, 1, TRACE.as_bytes(), now);
        assert_eq!(listener.conclude(2), None, "what is late is not heard");
    }

    #[test]
    fn a_last_line_without_its_end_counts() {
        let now = Instant::now();
        let mut listener = Listener::new(now);
        hear(&mut listener, 1, TRACE.trim_end().as_bytes(), now);
        assert!(listener.has_news(1));
        assert!(listener.conclude(1).is_some());
    }
}
