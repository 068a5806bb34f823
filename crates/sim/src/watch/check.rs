//! What must hold of a watch, checked after every look against the truth.

use std::time::Duration;

use trainyard_core::{
    diagnose::Confidence,
    spec::{OnNan, WatchMode},
    watch::{Ask, Cause, Finding, LOOKS_MOST, Outlook, Signal, Step},
};

use super::{
    bounds,
    coverage::{Coverage, Mark},
    draw::{After, Ending, Plan},
    job::Hang,
};
use crate::violation::{Verdict, ensure};

/// Two requests for evidence are at least this far apart.
const ASKS_APART: Duration = Duration::from_millis(400);
/// Replies that a conclusion needs; that a process is stopped needs one less.
const LOOKS_LEAST: u32 = 3;
/// Steps of every rank after which ranks are compared.
const SLOW_STEPS: u32 = 20;
/// And how long after that a slow one must be found: looks are at most a minute apart.
const SLOW_TIME: Duration = Duration::from_secs(65);
/// What is kept of a rank and of a job, as text: a text that a rank reports is cut.
const RANK_TEXT: usize = 4 << 10;
const JOB_TEXT: usize = 32 << 10;

/// What is known of one rank's lines.
#[derive(Clone, Debug, Default)]
struct Lines {
    last_step: Option<u64>,
    /// Losses in a row that are NaN, and the step of the first.
    nan: (u32, Option<u64>),
    /// Lines of different steps.
    steps: u32,
}

/// The step of a loss, where lines have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FirstNan(Option<u64>);

/// The checker of one attempt. Times are those of the adapter's clock.
#[derive(Debug)]
pub(super) struct Check {
    ranks: Vec<Lines>,
    /// The last step.
    progress_at: Duration,
    /// Lines that begin or end a phase: each may begin a silence of its own.
    phases: u32,
    /// Requests since then, and the last one.
    asks: u32,
    asked_at: Option<Duration>,
    /// Replies with usage, stacks or both since then.
    replies: u32,
    /// Whether something was found that is not sure.
    doubtful: bool,
    /// When every rank had reported as many steps as are compared.
    comparable_at: Option<Duration>,
    stragglers: Vec<u32>,
    /// The first step of two NaN losses in a row, once there were.
    nan_due: Option<FirstNan>,
    nan_found: bool,
    /// When the hang was found for sure.
    pub(super) found: Option<Duration>,
    /// Whether the attempt is ended.
    pub(super) ended: bool,
}

impl Check {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            ranks: vec![Lines::default(); plan.job.ranks as usize],
            progress_at: Duration::ZERO,
            phases: phases(plan),
            asks: 0,
            asked_at: None,
            replies: 0,
            doubtful: false,
            comparable_at: None,
            stragglers: Vec::new(),
            nan_due: None,
            nan_found: false,
            found: None,
            ended: false,
        }
    }

    /// A step arrives; whether it is `progress`: a line that arrives twice is not.
    pub(super) fn take_step(
        &mut self,
        now: Duration,
        rank: u32,
        step: &Step,
        progress: bool,
        coverage: &mut Coverage,
    ) {
        self.take_loss(rank, step);
        if self.comparable_at.is_none() && self.ranks.iter().all(|rank| rank.steps >= SLOW_STEPS) {
            self.comparable_at = Some(now);
        }
        if !progress {
            return;
        }
        self.progress_at = now;
        if self.asks > 0 {
            coverage.mark(Mark::SuspectedAndTrained);
        }
        if std::mem::take(&mut self.doubtful) {
            coverage.mark(Mark::Refuted);
        }
        (self.asks, self.replies) = (0, 0);
    }

    fn take_loss(&mut self, rank: u32, step: &Step) {
        let lines = &mut self.ranks[rank as usize];
        // A line that arrives twice is one.
        if step.step.is_some() && step.step == lines.last_step {
            return;
        }
        lines.last_step = step.step;
        lines.steps += 1;
        if step.loss.is_none_or(f64::is_finite) {
            lines.nan = (0, None);
            return;
        }
        if lines.nan.0 == 0 {
            lines.nan.1 = step.step;
        }
        lines.nan.0 += 1;
        if lines.nan.0 == 2 {
            self.nan_due.get_or_insert(FirstNan(lines.nan.1));
        }
    }

    /// Evidence arrives.
    pub(super) fn take_reply(&mut self) {
        self.replies += 1;
    }

    /// After a look at `now`, which is `truth` without the steps of the clock.
    pub(super) fn look(
        &mut self,
        plan: &Plan,
        now: Duration,
        truth: Duration,
        outlook: &Outlook,
        coverage: &mut Coverage,
    ) -> Verdict {
        ensure!(
            "a look names a later time",
            outlook.wake_at.is_none_or(|at| at > now),
            "{:?} at {now:?}",
            outlook.wake_at
        );
        self.check_asks(plan, now, outlook, coverage)?;
        for finding in &outlook.findings {
            self.check_finding(plan, now, truth, finding, coverage)?;
        }
        let due = self
            .nan_due
            .filter(|_| plan.settings.mode != WatchMode::Off);
        ensure!(
            "NaN is found with its second value",
            due.is_none() || self.nan_found,
            "since step {due:?}"
        );
        Ok(())
    }

    fn check_asks(
        &mut self,
        plan: &Plan,
        now: Duration,
        outlook: &Outlook,
        coverage: &mut Coverage,
    ) -> Verdict {
        if outlook.ask.is_empty() {
            return Ok(());
        }
        ensure!(
            "nothing is asked of a job that is not watched",
            plan.settings.mode != WatchMode::Off,
            "{:?}",
            outlook.ask
        );
        if !outlook.ask.contains(&Ask::Usage) {
            return Ok(());
        }
        let silent = now.saturating_sub(self.progress_at);
        ensure!(
            "evidence is asked for in silence",
            silent >= plan.settings.hang_floor / 2,
            "{silent:?} after the last step"
        );
        let apart = self.asked_at.map(|at| now.saturating_sub(at));
        ensure!(
            "evidence is asked for at intervals",
            apart.is_none_or(|apart| apart >= ASKS_APART),
            "{apart:?} apart"
        );
        self.asked_at = Some(now);
        self.asks += 1;
        if self.asks == LOOKS_MOST {
            coverage.mark(Mark::AskedMost);
        }
        // The longer a silence lasts the less often, down to once a minute; a phase begins a count of its own.
        let minutes = u32::try_from(silent.as_secs() / 60).unwrap_or(u32::MAX);
        let most = (minutes + 64).min(LOOKS_MOST) * (1 + self.phases);
        ensure!(
            "evidence is asked for a bounded number of times",
            self.asks <= most,
            "{} times in {silent:?}",
            self.asks
        );
        Ok(())
    }

    fn check_finding(
        &mut self,
        plan: &Plan,
        now: Duration,
        truth: Duration,
        finding: &Finding,
        coverage: &mut Coverage,
    ) -> Verdict {
        let mode = plan.settings.mode;
        ensure!(
            "a job that is not watched has no findings",
            mode != WatchMode::Off,
            "{finding:?}"
        );
        ensure!(
            "only a job that may be ended is",
            mode == WatchMode::Act || !finding.act,
            "{finding:?}"
        );
        match &finding.cause {
            Cause::NanLoss { step, .. } => {
                let due = self.nan_due;
                ensure!(
                    "NaN is true",
                    due == Some(FirstNan(*step)),
                    "{finding:?}, not {due:?}"
                );
                ensure!(
                    "NaN ends a job that says so",
                    finding.act
                        == (mode == WatchMode::Act && plan.settings.on_nan != OnNan::Report),
                    "{finding:?}"
                );
                self.nan_found = true;
                coverage.mark(Mark::Nan);
                if finding.act {
                    self.ended = true;
                    coverage.mark(Mark::NanActed);
                }
            }
            Cause::Straggler { .. } => {
                ensure!(
                    "a slow rank is slow",
                    !finding.act && plan.slow.is_some_and(|slow| finding.ranks == [slow]),
                    "{finding:?}, not {:?}",
                    plan.slow
                );
                self.stragglers.extend(&finding.ranks);
                coverage.mark(Mark::Straggler);
            }
            Cause::LossSpike { .. } | Cause::JobSlower { .. } => {
                ensure!("only reports are made of it", !finding.act, "{finding:?}");
            }
            _ => self.check_hang(plan, now, truth, finding, coverage)?,
        }
        Ok(())
    }

    fn check_hang(
        &mut self,
        plan: &Plan,
        now: Duration,
        truth: Duration,
        finding: &Finding,
        coverage: &mut Coverage,
    ) -> Verdict {
        let silent = now.saturating_sub(self.progress_at);
        let settings = &plan.settings;
        ensure!(
            "no hang before the floor",
            silent >= settings.hang_floor && finding.silent_for >= settings.hang_floor,
            "{silent:?} after the last step: {finding:?}"
        );
        let hang = plan.job.hang_at(truth);
        let sure = finding.act
            || settings.mode == WatchMode::Report && finding.confidence >= Confidence::Medium;
        if !sure {
            self.doubtful = true;
            return Ok(());
        }
        ensure!(
            "a job that makes progress is never ended",
            hang.is_some() || !finding.act,
            "{truth:?}: {finding:?}"
        );
        if finding.act && finding.confidence < Confidence::High {
            ensure!(
                "doubt waits for `hang-after`",
                silent >= bounds::doubtful_from(plan),
                "{silent:?}: {finding:?}"
            );
        }
        if finding.confidence == Confidence::High {
            ensure!(
                "a sure finding has evidence",
                self.replies >= LOOKS_LEAST - u32::from(finding.cause == Cause::HangStopped),
                "{} replies: {finding:?}",
                self.replies
            );
        }
        let (Some((_, hang)), Ending::Hangs { after, .. }) = (hang, plan.ending) else {
            return Ok(());
        };
        if let Some(ranks) = bounds::named(plan, hang, after).filter(|_| finding.act) {
            ensure!(
                "the right rank is named",
                finding.ranks == ranks,
                "{hang:?}: {finding:?}"
            );
        }
        if self.found.is_none() {
            self.found = Some(truth);
            coverage.mark(match after {
                _ if !finding.act => Mark::Reported,
                After::Nothing => Mark::FoundBeforeFirstStep,
                After::Said(_) => Mark::FoundInPhase,
                _ if matches!(hang, Hang::Helper(_)) => Mark::FoundBehindBytes,
                _ if finding.confidence == Confidence::High => Mark::FoundSure,
                _ => Mark::FoundAtCeiling,
            });
        }
        self.ended |= finding.act;
        Ok(())
    }

    /// When the attempt is over: what should have been found by then, and how much is kept.
    pub(super) fn end(&self, plan: &Plan, kept: Option<usize>) -> Verdict {
        if let Some(slow) = plan.slow.filter(|_| plan.settings.mode != WatchMode::Off) {
            let since = self.comparable_at;
            let due = since.is_some_and(|at| self.progress_at.saturating_sub(at) >= SLOW_TIME);
            ensure!(
                "a slow rank is found",
                !(due && self.stragglers.is_empty()),
                "rank {slow}"
            );
        }
        let most = self.ranks.len() * RANK_TEXT + JOB_TEXT;
        ensure!(
            "memory is bounded",
            kept.is_none_or(|kept| kept <= most),
            "{kept:?} of {most}"
        );
        Ok(())
    }
}

/// How many lines of the attempt are no steps.
fn phases(plan: &Plan) -> u32 {
    let phases = plan.lines.iter();
    let phases = phases.filter(|line| !matches!(line.signal, Signal::Step(_)));
    u32::try_from(phases.count()).unwrap_or(u32::MAX)
}
