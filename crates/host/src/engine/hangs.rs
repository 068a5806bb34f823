//! Watches the attempt that runs: feeds [`Watch`] with what ranks print and with evidence from outside, and ends an attempt
//! that it finds hung.
//!
//! Owns when a watch begins and ends, and what follows from its findings here. What is a hang, and which rank it is, is
//! [`trainyard_core::watch`]'s.
//!
//! Invariant: an attempt is ended at most once, by the end of a rank that the finding names, so that the gang restarts as after
//! any other failure and the failure budgets stay exact.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use trainyard_core::{
    diagnose::VerdictSummary,
    job::PodPhase,
    progress::Reading,
    spec::{Job, Slot, WatchMode},
    watch::{Ask, Finding, Gpu, Heartbeat, Outlook, Rhythm, Settings, Signal, Watch},
};
use trainyard_probe::evidence::{GpuPower, PowerSample, Ras};

use super::{Engine, table::Key};
use crate::{
    HostError, Ranks,
    looker::{Evidence, Looker, PodProcesses},
    wire::Order,
};

/// How often the power of GPUs is taken.
const POWER_EVERY: Duration = Duration::from_secs(5);

/// The watch over the attempt that runs.
#[derive(Debug)]
pub(super) struct Hangs {
    settings: Settings,
    looker: Option<Looker>,
    attempt: u32,
    watch: Option<Watch>,
    /// When the attempt began.
    began: Instant,
    /// What earlier attempts have shown.
    rhythm: Rhythm,
    /// When to look next.
    look_at: Option<Instant>,
    /// The rank for which each pod prints.
    ranks: BTreeMap<Slot, u32>,
    /// The pod that each rank was seen in.
    pods: BTreeMap<u32, Key>,
    /// An attempt is ended once.
    ended: bool,
    /// The power of GPUs, and when it is taken next.
    power: Option<(GpuPower, Instant)>,
}

impl Hangs {
    pub(super) fn new(
        settings: Settings,
        ras: Option<Ras>,
        now: Instant,
    ) -> Result<Self, HostError> {
        let is_watched = settings.mode != WatchMode::Off;
        Ok(Self {
            settings,
            looker: is_watched.then(|| Looker::start(ras)).transpose()?,
            attempt: 0,
            watch: None,
            began: now,
            rhythm: Rhythm::default(),
            look_at: None,
            ranks: BTreeMap::new(),
            pods: BTreeMap::new(),
            ended: false,
            power: None,
        })
    }

    /// Takes the power of GPUs from here on.
    pub(super) fn watch_power(&mut self, power: Option<GpuPower>, now: Instant) {
        let watched = power.filter(|_| self.looker.is_some());
        self.power = watched.map(|power| (power, now));
    }

    pub(super) fn looker(&self) -> Option<&Looker> {
        self.looker.as_ref()
    }

    /// When to look next.
    pub(super) fn due(&self) -> Option<Instant> {
        let power = self.power.as_ref().map(|(_, at)| *at);
        [self.look_at, power].into_iter().flatten().min()
    }

    /// All processes of `attempt` run.
    fn begin(&mut self, job: &Job, attempt: u32, now: Instant) {
        if attempt <= self.attempt || self.looker.is_none() {
            return;
        }
        if let Some(before) = &self.watch {
            self.rhythm = before.rhythm().clone();
        }
        let rhythm = self.rhythm.clone();
        let (ranks, replicas) = (Ranks::of(job), job.replicas());
        let first = |slot| Some((slot, *ranks.of_pod(&replicas, slot)?.start()));
        self.ranks = job.slots().filter_map(first).collect();
        self.attempt = attempt;
        self.began = now;
        self.watch = Some(Watch::begin_with(
            self.settings,
            ranks.count(&replicas),
            Duration::ZERO,
            rhythm,
        ));
        self.pods.clear();
        self.ended = false;
        self.look_at = Some(now);
    }

    /// Takes a signal of a rank.
    fn hear(&mut self, attempt: u32, rank: u32, signal: Signal, now: Instant) {
        let since = now.saturating_duration_since(self.began);
        let watch = self.watch.as_mut().filter(|_| attempt == self.attempt);
        if watch.is_some_and(|watch| watch.hear(since, rank, signal)) {
            self.look_at = Some(now);
        }
    }

    /// Takes what a stream of a pod wrote.
    pub(super) fn take_output(
        &mut self,
        slot: Slot,
        attempt: u32,
        is_output: bool,
        readings: &[Reading],
    ) {
        if attempt != self.attempt || !is_output && readings.is_empty() {
            return;
        }
        let now = Instant::now();
        // The launcher of an `MPIJob` prints what its ranks do.
        let rank = self.ranks.get(&slot).copied().unwrap_or(0);
        if is_output {
            self.hear(attempt, rank, Signal::Output, now);
        }
        for signal in readings.iter().flat_map(Signal::from_reading) {
            self.hear(attempt, rank, signal, now);
        }
    }

    /// Takes a heartbeat of a rank, or of the first of a pod.
    pub(super) fn take_beat(
        &mut self,
        slot: Slot,
        attempt: u32,
        rank: Option<u32>,
        beat: &Heartbeat,
        before: Option<&Heartbeat>,
    ) {
        let rank = rank.or_else(|| self.ranks.get(&slot).copied());
        let now = Instant::now();
        for signal in beat.signals(before) {
            self.hear(attempt, rank.unwrap_or(0), signal, now);
        }
    }

    /// Looks, where it is time; what came of it.
    fn look(&mut self, now: Instant) -> Option<Outlook> {
        self.look_at.filter(|at| *at <= now)?;
        let since = now.saturating_duration_since(self.began);
        let outlook = self.watch.as_mut()?.look(since);
        self.look_at = outlook.wake_at.map(|at| self.began + at);
        Some(outlook)
    }
}

impl Engine<'_> {
    /// A pod runs: the watch begins with the last of its attempt.
    pub(super) fn watch_attempt(&mut self, attempt: u32) {
        let of_attempt = || {
            let entries = self.pods.entries.values();
            entries.filter(|entry| entry.attempt == attempt)
        };
        let all = u32::try_from(of_attempt().count()).unwrap_or(u32::MAX);
        let run = of_attempt().all(|entry| entry.phase == PodPhase::Running);
        if run && all >= self.job.total_replicas() {
            self.hangs.begin(self.job, attempt, Instant::now());
        }
    }

    /// Takes the evidence that was asked for.
    pub(super) fn take_evidence(&mut self) {
        while let Some(evidence) = self.hangs.looker().and_then(Looker::next) {
            let now = Instant::now();
            let Evidence { attempt, ranks } = evidence;
            for rank in ranks {
                self.hangs.pods.insert(rank.rank, rank.key);
                for signal in rank.signals {
                    self.hangs.hear(attempt, rank.rank, signal, now);
                }
            }
            if attempt == self.hangs.attempt {
                self.hangs.look_at = Some(now);
            }
        }
    }

    /// Takes the power of the GPUs of each rank, where it is time.
    fn take_power(&mut self, now: Instant) {
        let samples = match &mut self.hangs.power {
            Some((power, at)) if *at <= now => {
                *at = now + POWER_EVERY;
                power.take()
            }
            _ => return,
        };
        let (ranks, replicas) = (Ranks::of(self.job), self.job.replicas());
        let attempt = self.hangs.attempt;
        for slot in self.job.slots() {
            let devices = self.site.gpus().of_pod(slot);
            let own: Vec<&PowerSample> = devices
                .iter()
                .filter_map(|name| samples.iter().find(|sample| sample.is_named(name)))
                .collect();
            let Some(held) = ranks.of_pod(&replicas, slot) else {
                continue;
            };
            for (at, rank) in held.clone().enumerate() {
                // One GPU for each rank, or one for all of them.
                let one = if own.len() == held.clone().count() {
                    own.get(at)
                } else {
                    own.first().filter(|_| own.len() == 1)
                };
                if let Some(sample) = one {
                    let gpu = Gpu {
                        milliwatts: sample.milliwatts,
                        limit_milliwatts: sample.limit_milliwatts,
                    };
                    self.hangs.hear(attempt, rank, Signal::Gpu(gpu), now);
                }
            }
        }
    }

    /// Looks whether the attempt still trains, where it is time.
    pub(super) fn look_for_hangs(&mut self, now: Instant) {
        self.take_power(now);
        let Some(outlook) = self.hangs.look(now) else {
            return;
        };
        if !outlook.ask.is_empty() {
            self.ask_for_evidence(&outlook.ask);
        }
        for finding in outlook.findings {
            self.answer(&finding);
        }
    }

    fn ask_for_evidence(&mut self, ask: &[Ask]) {
        let (ranks, replicas) = (Ranks::of(self.job), self.job.replicas());
        let entries = self.pods.entries.iter();
        let running = entries.filter(|(_, entry)| {
            entry.attempt == self.hangs.attempt && entry.phase == PodPhase::Running
        });
        let pods = running.filter_map(|(key, entry)| {
            Some(PodProcesses {
                key: *key,
                first: entry.pid?,
                ranks: ranks.of_pod(&replicas, entry.slot),
                flight: self.site.surroundings.flight_prefix(&entry.uid),
            })
        });
        let (pods, count) = (pods.collect(), ranks.count(&replicas));
        let attempt = self.hangs.attempt;
        if let Some(looker) = &mut self.hangs.looker {
            looker.ask(attempt, count, pods, ask);
        }
    }

    /// Reports a finding, and ends the attempt where it is to be acted upon.
    fn answer(&mut self, finding: &Finding) {
        let attempt = self.hangs.attempt;
        let is_current = attempt == self.stored.status.trainyard.attempt;
        if !is_current || self.hangs.ended || self.stored.has_ended() {
            return;
        }
        let verdict = finding.verdict(attempt, &self.listener.rules());
        let pods = self.pods_of(finding);
        if finding.act && !pods.is_empty() {
            self.end_for(verdict, &pods);
            return;
        }
        self.outlet.note(format!(
            "{}; {} confidence; refuted by: {}",
            verdict.headline(),
            verdict.confidence.word(),
            finding.cause.refuted_by()
        ));
    }

    /// The pods that a finding names; where it names none, the first that runs.
    fn pods_of(&self, finding: &Finding) -> Vec<Key> {
        let (ranks, replicas) = (Ranks::of(self.job), self.job.replicas());
        let named: &[u32] = if finding.ranks.is_empty() {
            &[0]
        } else {
            &finding.ranks
        };
        let pods = named.iter().filter_map(|rank| {
            let seen = self.hangs.pods.get(rank).copied();
            seen.or_else(|| self.pods.running(ranks.pod_of(&replicas, *rank)?))
        });
        let mut pods: Vec<Key> = pods
            .filter(|key| self.pods.get(*key).is_some_and(|entry| !entry.has_ended()))
            .collect();
        pods.sort_unstable();
        pods.dedup();
        pods
    }

    /// Ends the programs of `pods` at once: one that hangs does not answer a request to end.
    fn end_for(&mut self, verdict: VerdictSummary, pods: &[Key]) {
        self.hangs.ended = true;
        self.failures.expect(verdict);
        for key in pods {
            let container = self.pods.training_container(*key, self.job.kind);
            let order = Order::Kill {
                container,
                code: None,
            };
            self.pods.order(*key, &order, &[]);
        }
    }
}
