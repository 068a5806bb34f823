//! Whether an attempt still trains: hangs, NaN, slow ranks.
//!
//! Owns what follows from signs of life. Does not gather any: host, supervisor and simulation report [`Signal`]s and gather
//! what a look asks for. Reads no lines (that is [`crate::progress`]), ends no attempt (that is `job`).
//!
//! # Flow
//!
//! [`Watch::begin`] when the processes of an attempt run: a job in a queue or one that pulls its image is not watched.
//! [`Watch::hear`] for every signal. [`Watch::look`] at once after `begin`, whenever `hear` returns `true`, and at
//! [`Outlook::wake_at`].
//!
//! The watch learns how often the job shows progress ([`Rhythm`]). When it shows none for much longer, the watch asks for
//! evidence from outside and accuses nobody. Then it names the rank that differs from the others, or says that none does.
//! `stall` has the table of how long that takes.
//!
//! # Guarantees
//!
//! - Time is an argument, and the same signals give the same bytes.
//! - Memory is bounded: at most 4 KiB for a rank, whatever it reports.
//! - Nothing is called a hang before `hang-floor`, before `first-step-within` where no step was reported, or while bytes move
//!   at the rate of a save or a phase that was said may last.
//! - Evidence is asked for at most once in 400 ms, less often the longer a silence lasts, at most [`LOOKS_MOST`] times.
//! - Time in which nobody looked, because the adapter was stopped or its clock stepped forward, is no silence.
//! - `act` is set only where the finding is sure, or after `hang-after`.
//!
//! # Caveats
//!
//! A program that neither says that it evaluates nor moves bytes is silent. Bytes excuse three hours: two unannounced evaluations
//! of two hours with no line between them are called a hang. One rank that sleeps longer than `hang-floor` while
//! all others wait in a collective cannot be distinguished from a hang.

mod apart;
mod collective;
mod finding;
mod heartbeat;
mod judge;
mod numbers;
mod rank;
pub mod ras;
mod rhythm;
mod signal;
mod slow;
mod stall;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

use std::{collections::BTreeSet, time::Duration};

pub use self::{
    collective::{Collective, Missed, MissedCollective, PendingCollective},
    finding::{Ask, Cause, Finding, Others, Outlook},
    heartbeat::{HEARTBEAT_BYTES, Heartbeat},
    rhythm::Rhythm,
    signal::{Gpu, Phase, ProcessState, Signal, Stack, Step, Usage},
    stall::LOOKS_MOST,
    words::RESTART_LABELS,
};
use self::{rank::Rank, slow::Pace};
use crate::{
    diagnose::Confidence,
    mutant::{self, Mutant},
    spec::{JobSettings, OnNan, WatchMode},
};

/// Most ranks of a job that are watched; signals of later ones are ignored.
const MAX_RANKS: u32 = 1 << 17;
/// A phase that was said lasts at least this long: lines of steps before it may arrive after it.
const LATE: Duration = Duration::from_secs(2);
/// Two lines without a number that are closer are one line that was printed twice.
const LINES_APART: Duration = Duration::from_millis(10);
/// Rising steps that are not new after which a bar has begun again.
const RISING: u32 = 16;
/// A phase that is said again within this time has not begun again.
const REPEATED: Duration = Duration::from_mins(1);
/// How often a phase may begin again without a step between.
const REPEATS: u32 = 4;
/// How much later than promised a look may be and still count as time that was watched.
const LOOK_LATE: Duration = Duration::from_secs(1);
/// The longest notice: one that is further away excuses no silence.
const NOTICE_MOST: Duration = Duration::from_hours(2);

/// What the annotations of a job say about its watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What may follow from a finding.
    pub mode: WatchMode,
    /// The longest silence where steps are not longer themselves.
    pub hang_after: Duration,
    /// The shortest silence that may be called a hang.
    pub hang_floor: Duration,
    /// How long the first step may take.
    pub first_step_within: Duration,
    /// What follows from a loss that stays NaN.
    pub on_nan: OnNan,
}

impl From<&JobSettings> for Settings {
    fn from(settings: &JobSettings) -> Self {
        Self {
            mode: settings.watch,
            hang_after: settings.hang_after.unwrap_or(JobSettings::HANG_AFTER),
            hang_floor: settings.hang_floor,
            first_step_within: settings.first_step_within,
            on_nan: settings.on_nan,
        }
    }
}

/// The watch over one attempt.
#[derive(Clone, Debug)]
pub struct Watch {
    settings: Settings,
    ranks: Vec<Rank>,
    rhythm: Rhythm,
    /// The adapter's clock, the latest that was seen: one that goes back does no harm.
    clock: Duration,
    /// The time of `clock` in which nobody looked: the adapter was stopped, or its clock stepped forward. Silence in it shows
    /// nothing, since the programs may have been stopped as well.
    away: Duration,
    /// `clock` without that time. All times below are of this kind.
    now: Duration,
    /// Whether a step of this attempt was reported.
    started: bool,
    best_step: Option<u64>,
    unnumbered: Option<Unnumbered>,
    /// The last sign of progress.
    progress_at: Duration,
    /// The same by the adapter's clock.
    progress_clock: Duration,
    /// Whether that was a step.
    after_step: bool,
    /// The number of the silence since then.
    silence: u32,
    said: Option<Said>,
    /// Bytes that moved at the rate of work, in this silence.
    worked: Option<Worked>,
    /// Until when the attempt is expected to be stopped from outside.
    excused_until: Duration,
    suspicion: Option<judge::Suspicion>,
    /// When the last look said that the next one is due, by the adapter's clock.
    promised: Option<Duration>,
    pending: Vec<Finding>,
    /// The labels of what is reported once.
    found: BTreeSet<&'static str>,
    stragglers: BTreeSet<u32>,
    pace: Pace,
    compare: judge::Compare,
}

/// Steps without a number.
#[derive(Clone, Copy, Debug)]
struct Unnumbered {
    /// The rank whose lines are counted.
    rank: u32,
    /// When it reported the last one.
    last: Duration,
    /// Whether the job did something other than train since then.
    mixed: bool,
}

/// Bytes that move at the rate of work.
#[derive(Clone, Copy, Debug)]
struct Worked {
    first: Duration,
    last: Duration,
    /// The rank that moved them last.
    rank: u32,
    /// Whether a later sample of that rank shows that they stopped.
    stopped: bool,
}

/// A phase that a rank said it is in.
#[derive(Clone, Copy, Debug)]
struct Said {
    rank: u32,
    phase: Phase,
    at: Duration,
    /// When it was said last.
    last_at: Duration,
    /// How often it was said to begin again without a step between.
    repeats: u32,
    /// Whether any step was reported since.
    stepped: bool,
    /// New steps that were reported since, those that may be late not counted.
    steps: u32,
    /// Steps in a row that are not new, each higher than the one before: a bar that began again.
    rising: u32,
    last_step: Option<u64>,
}

impl Watch {
    /// Begins with the processes of an attempt of `ranks` ranks.
    pub fn begin(settings: Settings, ranks: u32, now: Duration) -> Self {
        Self::begin_with(settings, ranks, now, Rhythm::default())
    }

    /// The same, where an earlier attempt of the job has shown its rhythm.
    pub fn begin_with(settings: Settings, ranks: u32, now: Duration, rhythm: Rhythm) -> Self {
        let ranks = if settings.mode == WatchMode::Off {
            0
        } else {
            ranks.min(MAX_RANKS)
        };
        Self {
            settings,
            ranks: (0..ranks).map(|_| Rank::default()).collect(),
            rhythm,
            clock: now,
            away: Duration::ZERO,
            now,
            started: false,
            best_step: None,
            unnumbered: None,
            progress_at: now,
            progress_clock: now,
            after_step: false,
            silence: 1,
            said: None,
            worked: None,
            excused_until: Duration::ZERO,
            suspicion: None,
            promised: None,
            pending: Vec::new(),
            found: BTreeSet::new(),
            stragglers: BTreeSet::new(),
            pace: Pace::default(),
            compare: judge::Compare::default(),
        }
    }

    /// The rhythm that was learned, for the next attempt.
    pub fn rhythm(&self) -> &Rhythm {
        &self.rhythm
    }

    /// The last step that was reported, the highest of all ranks.
    pub fn best_step(&self) -> Option<u64> {
        self.best_step
    }

    /// Takes a signal of `rank`; whether a look is due now. Signals of unknown ranks are ignored.
    pub fn hear(&mut self, now: Duration, rank: u32, signal: Signal) -> bool {
        self.take_time(now);
        let (now, silence) = (self.now, self.silence);
        let suspected = self.suspicion.is_some();
        let Some(of) = self.ranks.get_mut(rank as usize) else {
            return false;
        };
        match signal {
            Signal::Step(step) => return self.take_step(rank, step),
            Signal::Beat { phase, step } => return self.take_beat(rank, phase, step),
            Signal::Done { phase } => {
                of.take_output(silence, now);
                return self.end_phase(rank, Some(phase));
            }
            Signal::Output => {
                of.take_output(silence, now);
                if mutant::is(Mutant::OutputIsProgress) {
                    return self.progress(false);
                }
            }
            Signal::Usage(usage) => {
                let works = of.take_usage(silence, now, usage);
                self.take_work(rank, works);
            }
            Signal::Gpu(gpu) => of.take_gpu(silence, now, gpu, suspected),
            Signal::Collective(began) => of.take_collective(silence, now, began),
            Signal::Stack(stack) => of.take_stack(silence, now, stack),
            Signal::Ended => {
                of.ended = true;
                return suspected;
            }
            Signal::Notice { deadline } => {
                let most = now.saturating_add(NOTICE_MOST);
                let deadline = deadline.saturating_sub(self.away).min(most);
                self.excused_until = self.excused_until.max(deadline);
            }
        }
        false
    }

    /// Takes the time of the adapter's clock.
    fn take_time(&mut self, clock: Duration) {
        self.clock = self.clock.max(clock);
        if let Some(promised) = &mut self.promised {
            let late = self.clock.saturating_sub(*promised);
            if late > LOOK_LATE && !mutant::is(Mutant::CountsAbsence) {
                self.away = self.away.saturating_add(late.saturating_sub(LOOK_LATE));
                *promised = self.clock;
            }
        }
        self.now = self.now.max(self.clock.saturating_sub(self.away));
    }

    /// Takes whether a sample of `rank` shows work; `None` where it says nothing about it.
    fn take_work(&mut self, rank: u32, works: Option<bool>) {
        let now = self.now;
        match (works, &mut self.worked) {
            (Some(true), _) if mutant::is(Mutant::ForgetsBytes) => {}
            (Some(true), worked) => {
                if let Some(unnumbered) = &mut self.unnumbered {
                    unnumbered.mixed = true;
                }
                let first = worked.map_or(now, |worked| worked.first);
                *worked = Some(Worked {
                    first,
                    last: now,
                    rank,
                    stopped: false,
                });
            }
            (Some(false), Some(worked)) if worked.rank == rank => worked.stopped = true,
            _ => {}
        }
    }

    fn take_step(&mut self, rank: u32, step: Step) -> bool {
        let (now, silence) = (self.now, self.silence);
        let Some(of) = self.ranks.get_mut(rank as usize) else {
            return false;
        };
        let cause = of.numbers.take(&step);
        // A line that arrives twice is no step.
        if step.step.is_some() && of.step == step.step {
            of.take_output(silence, now);
            return false;
        }
        of.step = step.step.or(of.step);
        let full = step.step_time.is_some_and(|time| of.step_times.take(time));
        let full = full && self.compare.is_due(now);
        if let Some(cause) = cause {
            self.take_cause(rank, cause);
        }
        let new = match step.step {
            Some(step) => self.best_step < Some(step),
            None => self.is_next_unnumbered(rank),
        };
        self.best_step = self.best_step.max(step.step);
        if let Some(number) = step.step.filter(|_| new) {
            self.take_pace(number);
        }
        let was_silent = self.progress(new && step.step.is_some());
        self.after_step = true;
        self.started = true;
        self.end_phase_by_step(step.step, new);
        was_silent || full || !self.pending.is_empty() || self.is_due_earlier()
    }

    /// Whether a line of `rank` without a number is another step. Only the lines of the first rank that prints such are
    /// counted: all ranks may print one for the same step, and one may print it twice.
    fn is_next_unnumbered(&mut self, rank: u32) -> bool {
        let now = self.now;
        let Some(of) = &mut self.unnumbered else {
            self.unnumbered = Some(Unnumbered {
                rank,
                last: now,
                mixed: false,
            });
            return true;
        };
        let gap = now.saturating_sub(of.last);
        if of.rank != rank || gap < LINES_APART {
            return false;
        }
        of.last = now;
        if !std::mem::take(&mut of.mixed) && self.started {
            self.rhythm.note(Phase::Train, gap);
            self.rhythm.count_step();
        }
        true
    }

    /// Steps soon after the beginning of a phase do not end it, because their lines may be late, nor does a single one, nor
    /// do a few that are not new: they may have arrived before.
    fn end_phase_by_step(&mut self, step: Option<u64>, new: bool) {
        let Some(said) = &mut self.said else {
            return;
        };
        said.stepped = true;
        if self.now.saturating_sub(said.at) < LATE {
            return;
        }
        if new {
            said.steps = said.steps.saturating_add(1);
        } else if step > said.last_step {
            said.rising = said.rising.saturating_add(1);
        } else {
            said.rising = 0;
        }
        said.last_step = step;
        if said.steps >= 2 || said.rising >= RISING {
            self.said = None;
        }
    }

    /// Whether the next look is due before the time that the last one gave.
    fn is_due_earlier(&self) -> bool {
        let due = self.progress_at.max(self.excused_until);
        let due = due.saturating_add(self.limits().suspect);
        let due = due.saturating_add(self.away);
        self.promised.is_none_or(|promised| due < promised)
    }

    fn take_beat(&mut self, rank: u32, phase: Option<Phase>, step: Option<u64>) -> bool {
        let mut due = false;
        let reported = self.ranks.get(rank as usize).and_then(|of| of.step);
        if step.is_some() && step != reported {
            due |= self.take_step(
                rank,
                Step {
                    step,
                    ..Step::default()
                },
            );
        }
        let (now, silence) = (self.now, self.silence);
        if let Some(of) = self.ranks.get_mut(rank as usize) {
            of.take_output(silence, now);
        }
        match phase {
            None => {}
            Some(Phase::Train | Phase::Start) => due |= self.end_phase(rank, None),
            Some(phase) => due |= self.begin_phase(rank, phase),
        }
        due
    }

    /// Whether that ends a suspicion.
    fn begin_phase(&mut self, rank: u32, phase: Phase) -> bool {
        let now = self.now;
        let mut repeats = 0;
        if let Some(said) = &mut self.said
            && said.phase == phase
            && !said.stepped
        {
            // The same phase again is a heartbeat. After a while it may be the next phase of its kind, if all lines between
            // were lost, but not again and again.
            let again = now.saturating_sub(std::mem::replace(&mut said.last_at, now));
            if again < REPEATED || said.repeats >= REPEATS {
                return false;
            }
            repeats = said.repeats + 1;
        }
        let was_silent = self.progress(false);
        if let Some(unnumbered) = &mut self.unnumbered {
            unnumbered.mixed = true;
        }
        self.said = Some(Said {
            rank,
            phase,
            at: now,
            last_at: now,
            repeats,
            stepped: false,
            steps: 0,
            rising: 0,
            last_step: None,
        });
        was_silent
    }

    /// Only the rank that began a phase ends it; whether that ends a suspicion.
    fn end_phase(&mut self, rank: u32, phase: Option<Phase>) -> bool {
        let ends = self
            .said
            .is_some_and(|said| said.rank == rank && phase.is_none_or(|phase| phase == said.phase));
        if !ends {
            return false;
        }
        let was_silent = self.progress(false);
        self.said = None;
        was_silent || self.is_due_earlier()
    }

    /// The job made progress, with a `new` step or otherwise; whether that ends a suspicion.
    fn progress(&mut self, new: bool) -> bool {
        let gap = self.now.saturating_sub(self.progress_at);
        let phase = match self.said {
            _ if !self.started => Some(Phase::Start),
            Some(said) => Some(said.phase),
            // A save that nobody announced: the next one may take as long, and bytes will excuse it, too.
            None => self.worked.is_none().then_some(Phase::Train),
        };
        if let Some(phase) = phase {
            self.rhythm.note(phase, gap);
            // From a phase to a step is less than a step.
            if new && phase == Phase::Train && self.after_step {
                self.rhythm.count_step();
            }
        }
        self.progress_at = self.now;
        self.progress_clock = self.clock;
        self.after_step = false;
        self.silence = self.silence.wrapping_add(1);
        self.worked = None;
        self.suspicion.take().is_some()
    }

    fn take_cause(&mut self, rank: u32, cause: Cause) {
        let acts = self.settings.mode == WatchMode::Act && self.settings.on_nan != OnNan::Report;
        let (confidence, act) = match cause {
            Cause::NanLoss { .. } => (Confidence::High, acts),
            _ => (Confidence::Low, false),
        };
        let mut finding = Finding::new(cause, Some(rank), confidence);
        finding.act = act;
        self.report_once(finding);
    }

    fn take_pace(&mut self, step: u64) {
        if let Some(percent) = self.pace.take(self.now, step) {
            let cause = Cause::JobSlower { percent };
            self.report_once(Finding::new(cause, None, Confidence::Low));
        }
    }

    fn report_once(&mut self, mut finding: Finding) {
        if self.found.insert(finding.cause.label()) {
            finding.since = self.clock;
            self.pending.push(finding);
        }
    }
}
