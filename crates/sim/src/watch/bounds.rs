//! What the rules promise, computed from the settings and the truth and never from the watch: whether a hang can be distinguished from
//! work, and how long after it began it must be found.

use std::time::Duration;

use trainyard_core::watch::{Phase, Signal};

use super::{
    draw::{After, Evidence, Plan},
    job::Hang,
};

/// The most of a step of the clock that counts as time: looks are at most a minute apart.
pub(super) const CLOCK_COUNTS: Duration = Duration::from_secs(62);
/// How long bytes that move excuse a silence.
const BYTES_EXCUSE: Duration = Duration::from_hours(3);
/// A phase that is said again within this time has not begun again.
const REPEATED: Duration = Duration::from_mins(1);

/// What the lines that arrived have shown, over all attempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The longest time between two steps.
    step_gap: Duration,
    /// The longest time between any two lines.
    line_gap: Duration,
    last_step: Option<Duration>,
    last_line: Option<Duration>,
    /// The last step of each rank.
    steps: Vec<Option<u64>>,
    /// The last step without a number of each rank, and what steps of the clock add since.
    unnumbered: Vec<Option<(Duration, Duration)>>,
    /// What steps of the clock add to the time since the last line, and since the last step.
    clock: Duration,
    step_clock: Duration,
    /// Phases of this attempt.
    phases: u32,
}

impl Known {
    /// The next attempt begins.
    pub(super) fn begin(&mut self, ranks: u32) {
        self.steps = vec![None; ranks as usize];
        self.unnumbered = vec![None; ranks as usize];
        (self.last_step, self.last_line) = (None, Some(Duration::ZERO));
        (self.clock, self.step_clock) = (Duration::ZERO, Duration::ZERO);
        self.phases = 0;
    }

    pub(super) fn take_clock_step(&mut self, by: Duration) {
        let by = by.min(CLOCK_COUNTS);
        self.clock += by;
        self.step_clock += by;
        for (_, clock) in self.unnumbered.iter_mut().flatten() {
            *clock += by;
        }
    }

    /// Takes a line; whether it is a sign of progress.
    pub(super) fn take_line(&mut self, at: Duration, rank: u32, signal: &Signal) -> bool {
        if let Signal::Step(step) = signal {
            let last = &mut self.steps[rank as usize];
            if step.step.is_some() && *last == step.step {
                return false;
            }
            *last = step.step.or(*last);
            let since = self.last_step.replace(at).unwrap_or(at);
            let clock = std::mem::take(&mut self.step_clock);
            let mut gap = at.saturating_sub(since) + clock;
            // Without numbers, lines of one rank are steps, and those of others may be of the same step.
            if step.step.is_none() {
                let last = self.unnumbered[rank as usize].replace((at, Duration::ZERO));
                let own = last.map(|(last, clock)| at.saturating_sub(last) + clock);
                gap = gap.max(own.unwrap_or_default());
            }
            self.step_gap = self.step_gap.max(gap);
        } else {
            self.phases += 1;
        }
        let since = self.last_line.replace(at).unwrap_or(at);
        let gap = at.saturating_sub(since) + self.clock;
        self.line_gap = self.line_gap.max(gap);
        self.clock = Duration::ZERO;
        true
    }
}

/// A silence of this length is found whatever the evidence, if anything is.
fn ceiling(plan: &Plan, known: &Known) -> Duration {
    let settings = &plan.settings;
    let gaps = known.step_gap * 3;
    settings.hang_after.max(gaps).max(settings.hang_floor)
}

/// The rank that a finding must name, where evidence shows it.
pub(super) fn named(plan: &Plan, hang: Hang, after: After) -> Option<Vec<u32>> {
    let complete = matches!(plan.evidence, Evidence::Full | Evidence::Late);
    let shows = complete || matches!(hang, Hang::Stopped(_)) && plan.evidence.has_usage();
    // Collectives are counted once in a silence, which may be before the hang.
    if !shows || matches!(hang, Hang::Behind(_)) && after != After::Steps {
        return None;
    }
    // The only rank needs no comparison.
    let alone = (plan.job.ranks == 1).then_some(0);
    Some(hang.culprit().or(alone).into_iter().collect())
}

/// Whether evidence leaves no doubt, so that the hang is found before `hang-after`.
fn is_sure(plan: &Plan, hang: Hang, after: After) -> bool {
    let complete = matches!(plan.evidence, Evidence::Full | Evidence::Late);
    match hang {
        Hang::Stopped(_) => complete || plan.evidence == Evidence::NoStacks,
        Hang::Behind(_) if after != After::Steps => false,
        Hang::Sleeps(_) | Hang::Behind(_) => {
            complete && plan.job.ranks > 1 && plan.chatter.is_none()
        }
        _ => false,
    }
}

/// Whether what can be seen of the hang differs from a program that works.
fn is_findable(plan: &Plan, hang: Hang) -> bool {
    let culprit = hang.culprit();
    let (stacks, usage) = (plan.evidence.has_stacks(), plan.evidence.has_usage());
    if matches!(hang, Hang::Stopped(_)) && usage {
        return true;
    }
    let prints = |is: &dyn Fn(u32) -> bool| {
        let stopped = matches!(hang, Hang::Stopped(_));
        plan.chatter
            .is_some_and(|(rank, _)| is(rank) && !(stopped && culprit == Some(rank)))
    };
    let is_culprit = |rank: u32| culprit == Some(rank);
    // Ranks that spin are known to wait only where stacks show it.
    let spins = usage && !stacks && plan.job.spin > 0;
    let waits = plan.job.ranks > u32::from(culprit.is_some()) && hang != Hang::AllSleep;
    let others_move = prints(&|rank| !is_culprit(rank)) || spins && waits;
    let culprit_moves = prints(&is_culprit)
        || match hang {
            Hang::Busy(_) => usage && !stacks,
            Hang::Helper(_) => usage,
            Hang::Behind(_) => spins,
            _ => false,
        };
    if !others_move && !culprit_moves {
        return true;
    }
    let apart = culprit.is_some() && plan.job.ranks > 1;
    match hang {
        Hang::Behind(_) => false,
        _ if !apart => false,
        _ if stacks => {
            let busy = matches!(hang, Hang::Busy(_)) && usage;
            !(culprit_moves || busy) || !others_move
        }
        Hang::DiskWait(_) => plan.chatter.is_none(),
        Hang::Sleeps(_) => plan.chatter.is_none() && plan.job.ranks > 2,
        _ => false,
    }
}

/// How long after the last line, or after its beginning, the hang must be found at the latest; `None` where nothing shows that it is one.
pub(super) fn within(plan: &Plan, known: &Known, hang: Hang, after: After) -> Option<Duration> {
    let settings = &plan.settings;
    // Lines of the first steps may all be lost.
    let after = if known.last_step.is_none() {
        After::Nothing
    } else {
        after
    };
    let sure = is_sure(plan, hang, after);
    if !is_findable(plan, hang) || after == After::Nothing && !sure {
        return None;
    }
    let ceiling = ceiling(plan, known);
    let first = settings.first_step_within.max(settings.hang_floor);
    let patience = settings.hang_floor.max(known.step_gap * 3);
    let longest = (known.line_gap + REPEATED) * 3;
    let base = match after {
        After::Nothing if known.phases == 0 => first,
        After::Nothing => (longest.max(first) + first).max(ceiling),
        After::Steps if sure => patience,
        After::Steps => ceiling,
        After::Said(phase) => {
            let allowance = match phase {
                Phase::Save => Duration::from_mins(30),
                _ => Duration::from_hours(2),
            };
            (allowance.max(longest) + patience).max(ceiling)
        }
        After::Training => {
            let phase = Duration::from_hours(2).max(longest).max(first);
            phase + patience.max(first) + ceiling
        }
    };
    let mut within = base;
    if matches!(hang, Hang::Helper(_)) && plan.evidence.has_usage() {
        within += BYTES_EXCUSE + base;
    }
    let evidence = match plan.evidence {
        Evidence::Late => Duration::from_secs(15),
        Evidence::Lossy => Duration::from_mins(10),
        // It may be on its way for so long.
        Evidence::Nothing => Duration::from_secs(12),
        _ => Duration::ZERO,
    };
    // The next look after that moment, and how late the adapter is.
    let look = (base / 8).clamp(Duration::from_secs(1), Duration::from_secs(61));
    Some(within + look + evidence + plan.lag * 8)
}

/// The shortest silence that may be ended where evidence leaves doubt.
pub(super) fn doubtful_from(plan: &Plan) -> Duration {
    plan.settings.hang_after.max(plan.settings.hang_floor)
}
