//! Where the time of a step goes: in each rank, across ranks, and what to do about it.
//!
//! Flow: [`Summary::of`] for each trace, which may then be dropped, and [`report`] over all of them.

mod across;
mod findings;
mod gaps;
mod rank;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod tops;

use serde::Serialize;

pub use self::{
    across::{Across, Clocks, RankWait, SlowRank},
    findings::{Finding, Label},
    rank::{Copies, IdleCauses, RankValues, Summary},
    text::{page, time},
    tops::Top,
};

/// What the traces of a job show.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of this form; fields are only ever added.
    pub version: u32,
    /// What costs most, the largest loss first; never empty.
    pub findings: Vec<Finding>,
    /// The values of each rank, by rank.
    pub ranks: Vec<RankValues>,
    /// What only shows across ranks; nothing with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub across: Option<Across>,
}

/// What follows from the traces of all ranks that were read.
pub fn report(mut summaries: Vec<Summary>) -> Report {
    summaries.sort_by_key(|summary| summary.values.rank);
    let across = across::of(&summaries);
    let ranks: Vec<RankValues> = summaries.into_iter().map(|it| it.values).collect();
    let findings = findings::of(&ranks, across.as_ref());
    Report {
        version: 1,
        findings,
        ranks,
        across,
    }
}

/// How the clock of each rank differs from that of the lowest rank, in nanoseconds, and the wall-clock time of time 0 of its
/// trace: what is added to a time of its trace so that all ranks have one clock. Nothing for ranks whose clock is unknown.
pub fn clock_offsets(summaries: &[Summary]) -> Vec<Option<i64>> {
    across::offsets(summaries)
}
