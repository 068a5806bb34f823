//! Where the time of runs went: of one job, or of all runs of a machine or namespace.
//!
//! Owns the sums over runs, by phase and by account, and what is named in them: the biggest losses and the failures that cost most. What one run lost, and
//! what would help, is [`super::losses`]'. Does not read a run and does not draw.
//!
//! Invariant: without a begin of the window, the sums are those of the ledgers, to the millisecond. With one, a run's time in the window is its phases and
//! [`Report::not_placed`] together: time whose order nobody observed, where the window begins inside it. Every millisecond of a phase but training and
//! suspension is on exactly one account.

mod charge;
#[cfg(test)]
mod tests;
mod window;

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use serde::Serialize;

pub use self::charge::Charge;
use super::{
    VERSION,
    losses::{self, LOSSES_MAX, Loss, Losses, PhaseTime, WouldWin},
    rows::RowState,
};
use crate::{
    chronicle::{Chronicle, TEXT_CHARS},
    ledger::{Phase, PhaseMillis},
};

/// Runs that are listed, those that lost most time.
pub const RUNS_MAX: usize = 100;
/// Failures that are listed, those that cost most time.
pub const FAILURES_MAX: usize = 10;

const HOUR: i64 = 3_600_000;

/// One run, as it goes in.
#[derive(Clone, Copy, Debug)]
pub struct RunTime<'a> {
    /// Its id.
    pub id: &'a str,
    /// The name of its job.
    pub job: &'a str,
    /// Its state.
    pub state: RowState,
    /// What happened to it.
    pub chronicle: &'a Chronicle,
    /// How many accelerators it asks for, where that is known.
    pub accelerators: Option<u32>,
    /// Until when something is known of it.
    pub until: Timestamp,
}

/// Where the time went. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The form of this document.
    pub version: u32,
    /// The begin of the window; absent where all time counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// The end of the window.
    pub until: i64,
    /// Runs with time in the window.
    pub run_count: u64,
    /// Runs among them that have not ended.
    pub live: u64,
    /// Their time, in milliseconds: that of all phases, and [`Self::not_placed`].
    pub wall: u64,
    /// By phase, training first, then most first.
    pub phases: Vec<PhaseTime>,
    /// Time of runs that began before the window, in an order that nobody observed: its phase is not known.
    pub not_placed: u64,
    /// Runs whose number of accelerators is not known: their time has no accelerator time.
    pub unknown_accelerators: u64,
    /// The effective training time ratio.
    pub ettr: EttrOf,
    /// On whose account the time went that did not train, in the order of [`Charge`].
    pub accounts: Vec<AccountTime>,
    /// What cost most, at most [`LOSSES_MAX`].
    pub losses: Vec<RunsLoss>,
    /// Failures of attempts.
    pub failures: Failures,
    /// The runs, at most [`RUNS_MAX`]: those that lost most first.
    pub runs: Vec<RunRow>,
    /// Runs that there was no room for.
    pub runs_left_out: u64,
}

/// The effective training time ratio: training over all time but suspension, over all runs that reported a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EttrOf {
    /// Over the whole window; absent where no run reported a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Ratio>,
    /// Over the hour before [`Report::until`]; absent where no such run was meant to train then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_hour: Option<Ratio>,
    /// Runs that reported no step: they are in no ratio.
    pub runs_without_step: u64,
    /// The time of those, in milliseconds.
    pub millis_without_step: u64,
}

/// A ratio that may only be known within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ratio {
    /// It is at least this.
    pub at_least: f64,
    /// And at most this: the same where all phases are known.
    pub at_most: f64,
}

/// The time on one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountTime {
    /// The account.
    pub account: Charge,
    /// Attempts that failed on it.
    pub failures: u64,
    /// How long.
    pub millis: u64,
    /// The same times accelerators.
    pub gpu_millis: u64,
}

/// A loss over all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunsLoss {
    /// The phase.
    pub phase: Phase,
    /// How long.
    pub millis: u64,
    /// The same times accelerators.
    pub gpu_millis: u64,
    /// What it is.
    pub why: &'static str,
    /// The run that lost most in it.
    pub most: LossOf,
}

/// What one run lost in a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LossOf {
    /// The id of the run.
    pub run: String,
    /// Its job.
    pub job: String,
    /// How long.
    pub millis: u64,
    /// The attempt that lost most, where that is most of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What would help there, where that follows from what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_win: Option<WouldWin>,
}

/// Failures of attempts, and the time until the next attempt trained what was new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failures {
    /// Attempts that failed in the window.
    pub count: u64,
    /// What failures cost in it, those before it included.
    pub millis: u64,
    /// The same times accelerators.
    pub gpu_millis: u64,
    /// Those that cost most, at most [`FAILURES_MAX`].
    pub costliest: Vec<FailureCost>,
}

/// What one failure cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureCost {
    /// The id of the run.
    pub run: String,
    /// Its job.
    pub job: String,
    /// The attempt that failed.
    pub attempt: u32,
    /// When.
    pub at: i64,
    /// On whose account.
    pub account: Charge,
    /// Why: the label of the verdict, else the message of the pod that failed first.
    pub why: String,
    /// How long the next attempt did not train what was new.
    pub millis: u64,
    /// The same times accelerators.
    pub gpu_millis: u64,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRow {
    /// Its id.
    pub run: String,
    /// Its job.
    pub job: String,
    /// Its state.
    pub state: RowState,
    /// Its time in the window.
    pub wall: u64,
    /// How much of it trained.
    pub training: u64,
    /// How much of it was lost: neither training nor suspended.
    pub lost: u64,
    /// ETTR; absent where it reported no step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ettr: Option<Ratio>,
    /// Accelerator time; absent where the number of accelerators is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_millis: Option<u64>,
    /// Its attempts that failed in the window.
    pub failures: u64,
}

/// Sums over runs that are added one by one.
#[derive(Debug)]
pub struct Tally {
    since: Option<i64>,
    now: Timestamp,
    run_count: u64,
    live: u64,
    unknown_accelerators: u64,
    not_placed: u64,
    phases: BTreeMap<Phase, (u64, u64)>,
    all: Trained,
    last_hour: Trained,
    without_step: (u64, u64),
    accounts: BTreeMap<Charge, (u64, u64, u64)>,
    most: BTreeMap<Phase, LossOf>,
    costliest: Vec<FailureCost>,
    runs: Vec<RunRow>,
}

/// What a ratio is made of.
#[derive(Clone, Copy, Debug, Default)]
struct Trained {
    training: u64,
    meant: u64,
    /// Of an unknown phase.
    not_placed: u64,
}

impl Trained {
    fn add(&mut self, sums: &PhaseMillis, not_placed: u64) {
        for (phase, millis) in sums {
            if *phase == Phase::Training {
                self.training = self.training.saturating_add(*millis);
            }
            if *phase != Phase::Suspended {
                self.meant = self.meant.saturating_add(*millis);
            }
        }
        self.not_placed = self.not_placed.saturating_add(not_placed);
    }

    /// Nothing where no time is known to be meant for training.
    fn ratio(self) -> Option<Ratio> {
        let whole = self.meant.saturating_add(self.not_placed);
        let most = self.training.saturating_add(self.not_placed);
        (self.meant > 0).then(|| Ratio {
            at_least: real(self.training) / real(whole),
            at_most: real(most) / real(whole),
        })
    }
}

impl Tally {
    /// Sums of the time from `since`, or of all time, until `now`.
    pub fn new(since: Option<Timestamp>, now: Timestamp) -> Self {
        Self {
            since: since.map(Timestamp::as_millisecond),
            now,
            run_count: 0,
            live: 0,
            unknown_accelerators: 0,
            not_placed: 0,
            phases: BTreeMap::new(),
            all: Trained::default(),
            last_hour: Trained::default(),
            without_step: (0, 0),
            accounts: BTreeMap::new(),
            most: BTreeMap::new(),
            costliest: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Adds a run; says whether it has time in the window.
    pub fn add(&mut self, run: &RunTime<'_>) -> bool {
        let from = self.since.unwrap_or(i64::MIN);
        if run.until.as_millisecond() < from {
            return false;
        }
        let (inside, not_placed) = window::clip(run.chronicle, from, i64::MAX, run.until);
        let accelerators = run.accelerators.unwrap_or(0);
        let losses = losses::losses(&inside, accelerators, run.until);
        let has_step = run
            .chronicle
            .totals(run.until)
            .keys()
            .any(|phase| phase.follows_step());
        let wall = losses.wall.saturating_add(not_placed);
        let totals = inside.totals(run.until);
        let mut trained = Trained::default();
        trained.add(&totals, not_placed);
        if has_step {
            self.all.add(&totals, not_placed);
            self.add_last_hour(run);
        } else {
            add(&mut self.without_step.0, 1);
            add(&mut self.without_step.1, wall);
        }
        self.run_count += 1;
        self.live += u64::from(run.chronicle.ended.is_none() && is_live(run.state));
        self.unknown_accelerators += u64::from(run.accelerators.is_none());
        add(&mut self.not_placed, not_placed);
        self.add_phases(run, &losses);
        let failures = self.add_accounts(run, &inside, accelerators, from);
        let gpu_millis = losses
            .phases
            .iter()
            .fold(0_u64, |sum, it| sum.saturating_add(it.gpu_millis));
        let is_lost = |phase: Phase| !matches!(phase, Phase::Training | Phase::Suspended);
        let lost = totals.iter().filter(|(phase, _)| is_lost(**phase));
        self.add_row(RunRow {
            run: short(run.id),
            job: short(run.job),
            state: run.state,
            wall,
            training: trained.training,
            lost: lost.fold(0_u64, |sum, (_, millis)| sum.saturating_add(*millis)),
            ettr: trained.ratio().filter(|_| has_step),
            gpu_millis: run.accelerators.map(|_| gpu_millis),
            failures,
        });
        true
    }

    /// The sums so far.
    pub fn report(mut self) -> Report {
        self.sort_runs();
        let mut phases: Vec<PhaseTime> = self
            .phases
            .iter()
            .map(|(phase, (millis, gpu_millis))| PhaseTime {
                phase: *phase,
                millis: *millis,
                gpu_millis: *gpu_millis,
            })
            .collect();
        phases.sort_by_key(|it| (it.phase != Phase::Training, Reverse(it.millis), it.phase));
        let known = phases
            .iter()
            .fold(0_u64, |sum, it| sum.saturating_add(it.millis));
        let lost = phases
            .iter()
            .filter(|it| !matches!(it.phase, Phase::Training | Phase::Suspended));
        let losses = lost.filter_map(|it| {
            Some(RunsLoss {
                phase: it.phase,
                millis: it.millis,
                gpu_millis: it.gpu_millis,
                why: losses::why(it.phase),
                most: self.most.get(&it.phase)?.clone(),
            })
        });
        let losses = losses.take(LOSSES_MAX).collect();
        let listed = u64::try_from(self.runs.len()).unwrap_or(u64::MAX);
        Report {
            version: VERSION,
            since: self.since,
            until: self.now.as_millisecond(),
            run_count: self.run_count,
            live: self.live,
            wall: known.saturating_add(self.not_placed),
            phases,
            not_placed: self.not_placed,
            unknown_accelerators: self.unknown_accelerators,
            ettr: EttrOf {
                all: self.all.ratio(),
                last_hour: self.last_hour.ratio(),
                runs_without_step: self.without_step.0,
                millis_without_step: self.without_step.1,
            },
            failures: self.failures(),
            accounts: self
                .accounts
                .into_iter()
                .map(|(account, (failures, millis, gpu_millis))| AccountTime {
                    account,
                    failures,
                    millis,
                    gpu_millis,
                })
                .collect(),
            losses,
            runs_left_out: self.run_count.saturating_sub(listed),
            runs: self.runs,
        }
    }

    fn failures(&mut self) -> Failures {
        let mut failures = Failures::default();
        for (account, (count, millis, gpu_millis)) in &self.accounts {
            add(&mut failures.count, *count);
            if *account != Charge::NoFailure {
                add(&mut failures.millis, *millis);
                add(&mut failures.gpu_millis, *gpu_millis);
            }
        }
        failures.costliest = std::mem::take(&mut self.costliest);
        failures
    }

    /// Adds what of a run lies in the hour before now, whenever it ended.
    fn add_last_hour(&mut self, run: &RunTime<'_>) {
        let to = self.now.as_millisecond();
        let (hour, not_placed) =
            window::clip(run.chronicle, to.saturating_sub(HOUR), to, run.until);
        // An open span ends now, also where the clock of what is known is ahead.
        self.last_hour
            .add(&hour.totals(run.until.min(self.now)), not_placed);
    }

    fn add_phases(&mut self, run: &RunTime<'_>, losses: &Losses) {
        for it in &losses.phases {
            let sum = self.phases.entry(it.phase).or_default();
            add(&mut sum.0, it.millis);
            add(&mut sum.1, it.gpu_millis);
            let most = self.most.get(&it.phase);
            if most.is_none_or(|most| most.millis < it.millis) {
                let loss: Option<&Loss> = losses.losses.iter().find(|of| of.phase == it.phase);
                let most = LossOf {
                    run: short(run.id),
                    job: short(run.job),
                    millis: it.millis,
                    attempt: loss.and_then(|loss| loss.attempt),
                    would_win: loss.and_then(|loss| loss.would_win.clone()),
                };
                self.most.insert(it.phase, most);
            }
        }
    }

    /// Adds what is on whose account; says how many attempts failed in the window.
    fn add_accounts(
        &mut self,
        run: &RunTime<'_>,
        inside: &Chronicle,
        accelerators: u32,
        from: i64,
    ) -> u64 {
        let charged = charge::charges(run.chronicle, inside, run.until);
        let mut count = 0;
        for failure in &charged.failures {
            if failure.at >= from {
                count += 1;
                add(&mut self.accounts.entry(failure.account).or_default().0, 1);
            }
        }
        for (key, millis) in &charged.sums {
            let gpu_millis = losses::gpu_millis(key.phase, *millis, accelerators);
            let sum = self.accounts.entry(key.account).or_default();
            add(&mut sum.1, *millis);
            add(&mut sum.2, gpu_millis);
        }
        for failure in charged.failures {
            let of_it = charged
                .sums
                .iter()
                .filter(|(key, _)| key.failed == Some(failure.attempt));
            let (mut millis, mut gpu_millis) = (0, 0);
            for (key, part) in of_it {
                add(&mut millis, *part);
                let part = losses::gpu_millis(key.phase, *part, accelerators);
                add(&mut gpu_millis, part);
            }
            if millis > 0 {
                self.add_costly(FailureCost {
                    run: short(run.id),
                    job: short(run.job),
                    attempt: failure.attempt,
                    at: failure.at,
                    account: failure.account,
                    why: short(failure.why),
                    millis,
                    gpu_millis,
                });
            }
        }
        count
    }

    fn add_costly(&mut self, cost: FailureCost) {
        let key = |it: &FailureCost| (Reverse(it.millis), it.at, it.run.clone(), it.attempt);
        self.costliest.push(cost);
        self.costliest.sort_by_key(key);
        self.costliest.truncate(FAILURES_MAX);
    }

    fn add_row(&mut self, row: RunRow) {
        self.runs.push(row);
        // Twice as many before they are sorted, so that a long list costs little.
        if self.runs.len() >= 2 * RUNS_MAX {
            self.sort_runs();
        }
    }

    fn sort_runs(&mut self) {
        self.runs.sort_by(|one, other| {
            (Reverse(one.lost), &one.run).cmp(&(Reverse(other.lost), &other.run))
        });
        self.runs.truncate(RUNS_MAX);
    }
}

fn is_live(state: RowState) -> bool {
    !matches!(
        state,
        RowState::Succeeded | RowState::Failed | RowState::Stopped | RowState::Unknown
    )
}

fn short(text: &str) -> String {
    text.chars().take(TEXT_CHARS).collect()
}

/// Times that may come from a file.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a fleet fit a double for a share"
)]
fn real(millis: u64) -> f64 {
    millis as f64
}
