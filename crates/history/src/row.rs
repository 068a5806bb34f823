//! Which rows a fact becomes: pure, so that a table of cases tests it.

use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;
use serde_json::Value;
use trainyard_core::{
    chronicle::{BOOKED_MAX, Booked, EvidenceLine, Fact, TEXT_CHARS, What},
    ledger::Phase,
    view::State,
};

/// One day, in milliseconds.
pub(crate) const DAY: i64 = 86_400_000;
/// The last millisecond that a day can be named for.
pub(crate) const LAST: i64 = 253_402_207_200_000;
/// A span that is longer is no fact but a mistake: it would make a row for each of its days.
const DAYS_MAX: i64 = 3_660;

/// Accelerators of one run that are counted: sums over all runs and days must fit 64 bits, whatever a job file asks for.
pub(crate) const ACCELERATORS_MAX: i64 = 1_000_000;

/// A row, or a change of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    /// The time of the run is counted again from here.
    Began,
    /// Time that is accounted for.
    Span(Span),
    /// From now on time goes to a phase.
    Phase { attempt: u32, phase: &'static str },
    /// An attempt began.
    Attempt { n: u32 },
    /// A pod changed.
    Pod {
        attempt: u32,
        slot: String,
        state: String,
    },
    /// A pod has a node.
    Seat {
        attempt: u32,
        slot: String,
        first_rank: Option<u32>,
        ranks: u32,
        node: String,
    },
    /// An attempt failed.
    Failed {
        n: u32,
        pod: String,
        slot: Option<String>,
        account: Option<String>,
        message: String,
        step: Option<i64>,
    },
    /// What was concluded about an attempt.
    Verdict(Box<Verdict>),
    /// A checkpoint is complete.
    Checkpoint {
        attempt: Option<u32>,
        step: i64,
        bytes: i64,
        stall: Option<i64>,
        write: Option<i64>,
    },
    /// A slot left a node.
    Left {
        attempt: u32,
        node: String,
        detail: String,
    },
    /// Something else that people read.
    Event {
        kind: &'static str,
        attempt: Option<u32>,
        sentence: String,
    },
    /// The run ended.
    Ended { outcome: String },
}

/// Time that is accounted for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) parts: Vec<Booked>,
    /// Its parts are in order.
    pub(crate) exact: bool,
    /// Nobody observed it.
    pub(crate) is_gap: bool,
}

/// What was concluded about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) attempt: u32,
    pub(crate) account: String,
    pub(crate) label: String,
    pub(crate) fingerprint: Option<String>,
    pub(crate) confidence: String,
    pub(crate) sentence: String,
    pub(crate) rank: Option<u32>,
    pub(crate) nodes: Vec<String>,
    /// As JSON, without the lines that it rests on.
    pub(crate) json: String,
    /// The lines that it rests on: they come from logs, and are kept for less time.
    pub(crate) evidence: Vec<EvidenceLine>,
}

/// A part of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DayPart {
    pub(crate) day: String,
    pub(crate) phase: Phase,
    pub(crate) ms: i64,
}

/// The rows of a fact; nothing where it needs none. The error says that it is not one that can be true.
pub(crate) fn of(fact: &Fact) -> Result<Option<Row>, Refused> {
    if !(0..=LAST).contains(&fact.at) || i64::try_from(fact.seq).is_err() {
        return Err(Refused);
    }
    Ok(Some(match &fact.what {
        What::Began => Row::Began,
        What::Span {
            from,
            to,
            attempt,
            phase,
        } => {
            let whole = Booked {
                attempt: Some(*attempt),
                phase: *phase,
                millis: to.saturating_sub(*from).try_into().unwrap_or(0),
            };
            span(*from, *to, vec![whole], true, false)?
        }
        What::Merged { from, to, booked } => span(*from, *to, booked.clone(), false, false)?,
        What::Unseen { from, to, booked } => span(*from, *to, booked.clone(), false, true)?,
        What::Phase { attempt, phase } => Row::Phase {
            attempt: *attempt,
            phase: name(*phase),
        },
        What::Attempt { attempt } => Row::Attempt { n: *attempt },
        What::Pod {
            attempt,
            slot,
            state,
        } => Row::Pod {
            attempt: *attempt,
            slot: slot.to_string(),
            state: word(state),
        },
        What::Seated {
            attempt,
            slot,
            first_rank,
            ranks,
            node,
        } => Row::Seat {
            attempt: *attempt,
            slot: slot.to_string(),
            first_rank: *first_rank,
            ranks: *ranks,
            node: short(node),
        },
        What::Swapped(swap) => Row::Left {
            attempt: swap.attempt,
            node: short(&swap.from),
            detail: short(&format!("{} moved to `{}`", swap.slot, swap.to)),
        },
        What::Failed(it) => Row::Failed {
            n: it.attempt,
            pod: short(&it.pod),
            slot: it.slot.map(|slot| slot.to_string()),
            account: it.account.as_ref().map(word),
            message: short(&it.message),
            step: it.step.and_then(|step| step.try_into().ok()),
        },
        What::Verdict(it) => {
            let summary = &it.summary;
            let mut kept = (**it).clone();
            kept.evidence.clear();
            Row::Verdict(Box::new(Verdict {
                attempt: summary.attempt,
                account: word(&summary.account),
                label: short(&summary.label),
                fingerprint: summary.digest(),
                confidence: word(&summary.confidence),
                sentence: short(&summary.sentence),
                rank: summary.ranks.first().copied(),
                nodes: summary
                    .nodes
                    .iter()
                    .take(NODES_MAX)
                    .map(|it| short(it))
                    .collect(),
                json: serde_json::to_string(&kept).unwrap_or_default(),
                evidence: it.evidence.clone(),
            }))
        }
        What::Saved(it) => Row::Checkpoint {
            attempt: it.attempt,
            step: whole(it.step)?,
            bytes: whole(it.bytes)?,
            stall: it.stall_millis.map(whole).transpose()?,
            write: it.write_millis.map(whole).transpose()?,
        },
        What::Waiting(it) => Row::Event {
            kind: "waiting",
            attempt: None,
            sentence: match &it.code {
                Some(code) => short(&format!("{code}: {}", it.message)),
                None => return Ok(None),
            },
        },
        What::Ended { outcome } => Row::Ended {
            outcome: word(outcome),
        },
        // Numbers are the run's own; sums of budgets are in its attempts; what compaction says is for whoever reads one file.
        What::Point { .. }
        | What::Spent(_)
        | What::Failures { .. }
        | What::Compacted { .. }
        | What::LeftOut(_)
        | What::Other => return Ok(None),
    }))
}

/// Nodes of one verdict that get a row.
const NODES_MAX: usize = 64;

/// A fact that cannot be true: a time before 1970 or after 9999, a span of more than ten years, parts that do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

fn span(from: i64, to: i64, parts: Vec<Booked>, exact: bool, is_gap: bool) -> Result<Row, Refused> {
    let length = to.checked_sub(from).ok_or(Refused)?;
    let fits = (0..=LAST).contains(&from)
        && (0..=LAST).contains(&to)
        && (0..=DAYS_MAX * DAY).contains(&length)
        && parts.len() <= BOOKED_MAX.saturating_mul(2);
    let sum = (parts.iter()).try_fold(0_u64, |sum, part| sum.checked_add(part.millis));
    if !fits || sum != u64::try_from(length).ok() {
        return Err(Refused);
    }
    Ok(Row::Span(Span {
        from,
        to,
        parts,
        exact,
        is_gap,
    }))
}

/// The days that a span is counted on. Parts whose order nobody observed are counted one after the other as the ledger lists them: the sums of each phase,
/// and of each day, are exact; only which phase lies on which side of a midnight is not known.
pub(crate) fn days(span: &Span) -> Vec<DayPart> {
    let mut days: Vec<DayPart> = Vec::new();
    let mut at = span.from;
    for part in &span.parts {
        let mut left = i64::try_from(part.millis).unwrap_or(0);
        while left > 0 {
            let midnight = (at.div_euclid(DAY) + 1).saturating_mul(DAY);
            let ms = left.min(midnight - at);
            days.push(DayPart {
                day: day(at),
                phase: part.phase,
                ms,
            });
            at += ms;
            left -= ms;
        }
    }
    days
}

/// The day of a time, in UTC.
pub(crate) fn day(at: i64) -> String {
    let at = Timestamp::from_millisecond(at).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::UTC).date().to_string()
}

/// Accelerator time of a phase: as on the job page, a job that waits for nodes or is suspended holds none.
pub(crate) fn gpu_ms(phase: Phase, ms: i64, accelerators: i64) -> i64 {
    if matches!(phase, Phase::Queued | Phase::Placing | Phase::Suspended) {
        return 0;
    }
    ms.saturating_mul(accelerators.clamp(0, ACCELERATORS_MAX))
}

/// The name of a phase in tables.
pub(crate) fn name(phase: Phase) -> &'static str {
    State::from(phase).name()
}

/// The phase with that name.
pub(crate) fn phase(of: &str) -> Phase {
    let known = Phase::ALL.into_iter();
    known
        .into_iter()
        .find(|phase| name(*phase) == of)
        .unwrap_or(Phase::Other)
}

/// A value of an enum as JSON names it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}

fn whole(number: u64) -> Result<i64, Refused> {
    number.try_into().map_err(|_| Refused)
}

/// The beginning of a text.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests;
