//! One job in a list: its state, the sentence that is shown with it, and its last day.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::{
    State,
    strip::{By, StripAsk, strip},
};
use crate::{
    account::Account,
    chronicle::Chronicle,
    diagnose::VerdictSummary,
    job::{ConditionStatus, ConditionType, JobStatus, Spent},
    ledger::Phase,
    reason::Code,
    resources::Resources,
    spec::Job,
};

/// Cells of the last day.
pub const CELLS: u32 = 48;
/// Longest sentence of a row, in characters.
pub const LINE_CHARS: usize = 400;

const DAY: i64 = 24 * 3_600_000;

/// The state of a job in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RowState {
    /// Its pods run.
    Running,
    /// It waits for a queue, nodes, containers or images.
    Waiting,
    /// It runs, and reports no step.
    Stalled,
    /// An attempt ended, and the next is not up.
    Restarting,
    /// It is suspended.
    Suspended,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// What ran it ended without a report.
    Unknown,
}

impl RowState {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Running,
        Self::Waiting,
        Self::Stalled,
        Self::Restarting,
        Self::Suspended,
        Self::Succeeded,
        Self::Failed,
        Self::Stopped,
        Self::Unknown,
    ];

    /// Its name in documents and queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stalled => "stalled",
            Self::Restarting => "restarting",
            Self::Suspended => "suspended",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }
}

/// How a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Succeeded,
    /// Badly.
    Failed,
    /// Somebody stopped it.
    Stopped,
}

/// The state of a run that is over as `ending` says, or that something still runs where `live`.
pub fn state(ending: Option<Ending>, live: bool, status: &JobStatus) -> RowState {
    let holds = |kind: ConditionType| {
        let mut conditions = status.conditions.iter();
        conditions.any(|it| it.kind == kind && it.status == ConditionStatus::True)
    };
    match ending {
        Some(Ending::Succeeded) => return RowState::Succeeded,
        Some(Ending::Failed) => return RowState::Failed,
        Some(Ending::Stopped) => return RowState::Stopped,
        None if !live => return RowState::Unknown,
        None => {}
    }
    if holds(ConditionType::Succeeded) {
        return RowState::Succeeded;
    }
    if holds(ConditionType::Failed) {
        return RowState::Failed;
    }
    match status.trainyard.ledger.open.map(|open| open.phase) {
        Some(Phase::Training | Phase::Starting | Phase::Saving | Phase::Redoing | Phase::Other) => {
            RowState::Running
        }
        Some(Phase::Queued | Phase::Placing | Phase::Creating | Phase::Pulling) | None => {
            RowState::Waiting
        }
        Some(Phase::Stalled) => RowState::Stalled,
        Some(Phase::Restarting) => RowState::Restarting,
        Some(Phase::Suspended) => RowState::Suspended,
    }
}

/// The sentence of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is about.
    pub kind: LineKind,
    /// The sentence.
    pub text: String,
}

/// What the sentence of a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LineKind {
    /// What the job waits for.
    Waiting,
    /// What was concluded about its last failure.
    Verdict,
    /// Its last failure.
    Failure,
    /// How long no step came.
    Stalled,
}

/// The sentence that is shown with a job: why it does not train, where it does not. `verdict` is the newest one, `message` how the run ended in the
/// words of its last condition.
pub fn line(
    state: RowState,
    status: &JobStatus,
    verdict: Option<&VerdictSummary>,
    message: Option<&str>,
    now: Timestamp,
) -> Option<Line> {
    let of = |kind: LineKind, text: &str| {
        let text: String = text.chars().take(LINE_CHARS).collect();
        (!text.trim().is_empty()).then_some(Line { kind, text })
    };
    let record = &status.trainyard;
    let failure = || {
        let last = record.last_failure.as_ref();
        let verdict = verdict.or_else(|| last?.verdict.as_ref());
        let of_verdict = verdict.and_then(|it| of(LineKind::Verdict, &it.headline()));
        let of_last = || {
            let last = last?;
            of(
                LineKind::Failure,
                &format!("pod `{}`: {}", last.pod, last.message),
            )
        };
        of_verdict.or_else(of_last)
    };
    match state {
        RowState::Waiting | RowState::Suspended => {
            let waiting = record.waiting.as_ref();
            let waiting = waiting.filter(|it| it.code != Code::Training)?;
            of(LineKind::Waiting, &waiting.message)
        }
        RowState::Stalled => of(LineKind::Stalled, &record.stall(now)?),
        RowState::Restarting => failure(),
        RowState::Failed => failure().or_else(|| of(LineKind::Failure, message?)),
        RowState::Unknown => of(
            LineKind::Failure,
            "its engine ended without a report; no process of it is left",
        ),
        RowState::Running | RowState::Succeeded | RowState::Stopped => None,
    }
}

/// What the job did in its last day, or in all its time where that is less: cells with the number of their state and their length in milliseconds.
pub fn day(chronicle: &Chronicle, now: Timestamp) -> Vec<(u8, u64)> {
    let (Some(began), Some(to)) = (chronicle.began, chronicle.until(now)) else {
        return Vec::new();
    };
    let from = began.max(to.saturating_sub(DAY));
    if to <= from {
        return Vec::new();
    }
    let ask = StripAsk {
        from,
        to,
        columns: CELLS,
        rows: 1,
        by: By::Rank,
    };
    let drawn = strip(chronicle, &ask, now);
    let length = u64::try_from(to - from).unwrap_or(0);
    if drawn.exact {
        return exact_cells(&drawn.job, length);
    }
    let each = drawn.bucket_millis.max(1);
    let mut left = length;
    let mut cells = Vec::new();
    for run in drawn.job.chunks_exact(2) {
        for _ in 0..run[0] {
            let millis = each.min(left);
            left -= millis;
            cells.push((number(run[1]), millis));
        }
    }
    cells.truncate(CELLS as usize);
    cells
}

/// Cells of equal length from runs of milliseconds: a cell has its worst state, else the one that took most of it.
fn exact_cells(runs: &[u64], length: u64) -> Vec<(u8, u64)> {
    let cells = u64::from(CELLS).min(length.max(1));
    let (mut found, mut at, mut run, mut left) = (Vec::new(), 0_u64, 0_usize, 0_u64);
    for cell in 0..cells {
        let end = length * (cell + 1) / cells;
        let (begin, mut most, mut worst) = (at, (State::Nothing.number(), 0), None);
        while at < end {
            if left == 0 {
                let Some(millis) = runs.get(run) else { break };
                (left, run) = (*millis, run + 2);
                continue;
            }
            let state = number(runs.get(run - 1).copied().unwrap_or(0));
            let part = left.min(end - at);
            (at, left) = (at + part, left - part);
            if [State::Failed.number(), State::Stalled.number()].contains(&state) {
                worst = worst.max(Some(state));
            }
            if part > most.1 {
                most = (state, part);
            }
        }
        found.push((worst.unwrap_or(most.0), end - begin));
        at = end;
    }
    found
}

fn number(state: u64) -> u8 {
    u8::try_from(state).unwrap_or(State::Other.number())
}

/// One job in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The id of its last run.
    pub id: String,
    /// Its name.
    pub job: String,
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its state.
    pub state: RowState,
    /// How many ranks it has.
    pub ranks: u32,
    /// How many accelerators it asks for, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<u32>,
    /// Its last attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// The most attempts that its failure budget allows, where every account has a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
    /// Failure budget used, by account.
    pub spent: Spent,
    /// Its step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The number of steps after which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Its last day; see [`day`].
    pub day: Vec<(u8, u64)>,
    /// Share of the wall time spent training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trained_ratio: Option<f64>,
    /// The sentence that is shown with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// What that is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_kind: Option<LineKind>,
    /// When the run began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Whether something still runs it.
    pub live: bool,
}

/// How many accelerators all pods of `job` ask for.
pub fn accelerators(job: &Job) -> u32 {
    let of_role = job.roles.values().map(|role| {
        let spec = role.template.spec.as_ref();
        let of_pod = spec.map(Resources::of_pod).unwrap_or_default();
        let each = u32::try_from(of_pod.accelerators()).unwrap_or(0);
        each.saturating_mul(role.replicas)
    });
    of_role.fold(0, u32::saturating_add)
}

/// The most attempts that limits of failures allow; nothing where an account has none.
pub fn attempts_max(limits: &BTreeMap<Account, u32>) -> Option<u32> {
    let mut limits = Account::ALL.iter().map(|account| limits.get(account));
    limits.try_fold(1_u32, |sum, limit| Some(sum.saturating_add(*limit?)))
}
