//! One attempt as the watch sees it: lines as they arrive, evidence that is asked for, a clock that steps.

use std::{collections::VecDeque, time::Duration};

use trainyard_core::{
    spec::WatchMode,
    watch::{Ask, Collective, Outlook, Rhythm, Signal, Watch},
};

use super::{
    bounds::{self, Known},
    check::Check,
    coverage::{Coverage, Mark},
    draw::{Ending, Evidence, Plan},
    job::Hang,
};
use crate::{
    dice::Dice,
    trace::Trace,
    violation::{Verdict, ensure},
};

/// Events of one attempt: more is a watch that does not let its adapter rest.
const EVENTS_MOST: u64 = 400_000;

/// What became of an attempt.
pub(super) struct Run {
    pub(super) verdict: Verdict,
    pub(super) rhythm: Rhythm,
    pub(super) known: Known,
    pub(super) events: u64,
}

/// Evidence on its way: when it arrives, and what it says of which rank.
type Reply = (Duration, Vec<(u32, Signal)>);

/// One attempt under a watch.
pub(super) struct Adapter<'a> {
    plan: &'a Plan,
    watch: Watch,
    check: Check,
    known: Known,
    coverage: &'a mut Coverage,
    trace: &'a mut Trace,
    dice: Dice,
    /// What the clock has gained on the truth.
    offset: Duration,
    now: Duration,
    wake: Option<Duration>,
    replies: VecDeque<Reply>,
    next_line: usize,
    next_clock_step: usize,
    next_chatter: Option<Duration>,
    events: u64,
}

/// What happens next.
enum Next {
    Line,
    ClockStep,
    Reply,
    Chatter,
    Wake,
}

impl<'a> Adapter<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        rhythm: Rhythm,
        mut known: Known,
        coverage: &'a mut Coverage,
        trace: &'a mut Trace,
    ) -> Self {
        known.begin(plan.job.ranks);
        Self {
            watch: Watch::begin_with(plan.settings, plan.job.ranks, Duration::ZERO, rhythm),
            check: Check::new(plan),
            known,
            coverage,
            trace,
            dice: plan.dice.clone(),
            offset: Duration::ZERO,
            now: Duration::ZERO,
            wake: Some(Duration::ZERO),
            replies: VecDeque::new(),
            next_line: 0,
            next_clock_step: 0,
            next_chatter: plan.chatter.map(|(_, every)| every),
            events: 0,
            plan,
        }
    }

    pub(super) fn run(mut self) -> Run {
        let verdict = self.play();
        Run {
            verdict,
            rhythm: self.watch.rhythm().clone(),
            known: self.known,
            events: self.events,
        }
    }

    fn play(&mut self) -> Verdict {
        loop {
            let until = self.until();
            let Some((at, next)) = self.next().filter(|(at, _)| *at <= until) else {
                self.now = until;
                break;
            };
            self.now = self.now.max(at);
            self.events += 1;
            ensure!(
                "the adapter comes to rest",
                self.events < EVENTS_MOST,
                "{} events",
                self.events
            );
            self.happen(&next)?;
            if self.check.ended || self.check.found.is_some() {
                break;
            }
        }
        self.finish()
    }

    /// How long the attempt is watched, in true time.
    fn until(&self) -> Duration {
        match self.plan.ending {
            // Lines that are still on their way are not waited for: the ranks have ended.
            Ending::Finishes | Ending::Computes => self.plan.job.end(),
            Ending::Hangs { .. } => match self.hang_limit() {
                Some(limit) => limit,
                None => self.last_line().max(self.hang_began()) + self.plan.watch_for,
            },
        }
    }

    fn last_line(&self) -> Duration {
        let last = self.plan.lines.last();
        last.map_or(Duration::ZERO, |line| line.at)
    }

    fn hang_began(&self) -> Duration {
        let began = self.plan.job.hang_at(Duration::from_hours(900));
        began.map_or(Duration::ZERO, |(began, _)| began)
    }

    /// When the hang must be found at the latest; nothing before all lines have arrived, or where it cannot be.
    fn hang_limit(&self) -> Option<Duration> {
        let Ending::Hangs { hang, after } = self.plan.ending else {
            return None;
        };
        if self.plan.settings.mode == WatchMode::Off || self.next_line < self.plan.lines.len() {
            return None;
        }
        let within = bounds::within(self.plan, &self.known, hang, after)?;
        Some(self.last_line().max(self.hang_began()) + within)
    }

    fn next(&self) -> Option<(Duration, Next)> {
        let line = self.plan.lines.get(self.next_line);
        let step = self.plan.clock_steps.get(self.next_clock_step);
        let wake = self.wake.map(|at| at.saturating_sub(self.offset));
        let lag = |at: Duration| at.max(self.now) + self.plan.lag;
        let all = [
            line.map(|line| (line.at, Next::Line)),
            step.map(|(at, _)| (*at, Next::ClockStep)),
            self.replies.front().map(|(at, _)| (*at, Next::Reply)),
            self.next_chatter.map(|at| (at, Next::Chatter)),
            wake.map(|at| (lag(at), Next::Wake)),
        ];
        all.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The adapter's clock.
    fn clock(&self) -> Duration {
        self.now + self.offset
    }

    fn happen(&mut self, next: &Next) -> Verdict {
        let plan = self.plan;
        let mut due = false;
        match next {
            Next::Line => {
                let line = &plan.lines[self.next_line];
                self.next_line += 1;
                let progress = self.known.take_line(self.now, line.rank, &line.signal);
                let clock = self.clock();
                let coverage = &mut *self.coverage;
                if let Signal::Step(step) = &line.signal {
                    self.check
                        .take_step(clock, line.rank, step, progress, coverage);
                }
                self.note(format_args!("rank {}: {:?}", line.rank, line.signal));
                due = self.watch.hear(clock, line.rank, line.signal.clone());
            }
            Next::ClockStep => {
                let (_, by) = plan.clock_steps[self.next_clock_step];
                self.next_clock_step += 1;
                self.offset += by;
                self.known.take_clock_step(by);
                self.coverage.mark(Mark::ClockStepped);
                self.note(format_args!("the clock steps by {by:?}"));
            }
            Next::Reply => {
                let (_, signals) = self.replies.pop_front().unwrap_or_default();
                if !signals.is_empty() {
                    self.check.take_reply();
                }
                for (rank, signal) in signals {
                    self.note(format_args!("rank {rank}: {signal:?}"));
                    self.watch.hear(self.clock(), rank, signal);
                }
                // As the engine does.
                due = true;
            }
            Next::Chatter => {
                if let Some((rank, every)) = plan.chatter {
                    self.next_chatter = Some(self.now + every);
                    let stopped = plan.job.hang_at(self.now);
                    let stopped = stopped.is_some_and(|(_, hang)| hang == Hang::Stopped(rank));
                    if !stopped {
                        due = self.watch.hear(self.clock(), rank, Signal::Output);
                    }
                }
            }
            Next::Wake => due = true,
        }
        if due { self.look() } else { Ok(()) }
    }

    fn look(&mut self) -> Verdict {
        let clock = self.clock();
        let outlook = self.watch.look(clock);
        self.wake = outlook.wake_at;
        for finding in &outlook.findings {
            self.note(format_args!(
                "found, act {}: {}",
                finding.act,
                finding.sentence()
            ));
        }
        if !outlook.ask.is_empty() {
            self.note(format_args!("asks for {:?}", outlook.ask));
        }
        self.ask(&outlook);
        let coverage = &mut *self.coverage;
        self.check
            .look(self.plan, clock, self.now, &outlook, coverage)
    }

    /// Gathers what is asked for. It arrives in the order in which it was asked for.
    fn ask(&mut self, outlook: &Outlook) {
        if outlook.ask.is_empty() {
            return;
        }
        let evidence = self.plan.evidence;
        let most = if evidence == Evidence::Late {
            3_000
        } else {
            200
        };
        let delay = Duration::from_millis(10 + u64::from(self.dice.below(most)));
        let mut at = self.now + delay;
        if let Some((last, _)) = self.replies.back() {
            at = at.max(*last);
        }
        if evidence == Evidence::Late && self.next_line < self.plan.lines.len() {
            self.coverage.mark(Mark::LateEvidence);
        }
        let mut signals = Vec::new();
        for rank in 0..self.plan.job.ranks {
            for ask in &outlook.ask {
                if let Some(signal) = self.sample(rank, *ask) {
                    if evidence == Evidence::Lossy && self.dice.chance(30) {
                        self.coverage.mark(Mark::MissingEvidence);
                    } else {
                        signals.push((rank, signal));
                    }
                }
            }
        }
        self.replies.push_back((at, signals));
    }

    fn sample(&self, rank: u32, ask: Ask) -> Option<Signal> {
        let (job, evidence) = (&self.plan.job, self.plan.evidence);
        match ask {
            Ask::Usage if evidence.has_usage() => Some(Signal::Usage(job.usage(rank, self.now))),
            Ask::Stacks if evidence.has_stacks() => Some(Signal::Stack(job.stack(rank, self.now))),
            Ask::Collectives if evidence != Evidence::Nothing => {
                let sequence = job.sequence(rank, self.now)?;
                Some(Signal::Collective(Collective::numbered(sequence)))
            }
            _ => None,
        }
    }

    /// What must have come of it.
    fn finish(&mut self) -> Verdict {
        if self.plan.settings.mode == WatchMode::Off {
            self.coverage.mark(Mark::Off);
        }
        if !self.check.ended && self.check.found.is_none() {
            if let Some(limit) = self.hang_limit() {
                ensure!(
                    "a hang is found in time",
                    self.now < limit,
                    "not by {limit:?}: {:?}",
                    self.plan.ending
                );
            }
            self.coverage.mark(match self.plan.ending {
                Ending::Finishes => Mark::Finished,
                _ => Mark::LeftAlone,
            });
        }
        if self.plan.ending == Ending::Finishes {
            for rank in 0..self.plan.job.ranks {
                self.watch.hear(self.clock(), rank, Signal::Ended);
            }
            let outlook = self.watch.look(self.clock());
            ensure!(
                "an attempt that ended is not watched",
                outlook.ask.is_empty() && outlook.wake_at.is_none(),
                "{outlook:?}"
            );
        }
        let long = self.plan.job.long_names;
        let kept = long.then(|| format!("{:?}", self.watch).len());
        self.check.end(self.plan, kept)
    }

    fn note(&mut self, words: std::fmt::Arguments<'_>) {
        let now = i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX);
        self.trace.note(now, words);
    }
}
