//! What took most time, by name.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rank::Copies;
use crate::{
    intervals::Interval,
    number::quantile,
    trace::{NameId, RowKind, Span, Trace},
};

/// Names of each list.
const LISTED: usize = 20;

/// Everything of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    /// As the trace names it.
    pub name: String,
    /// How many.
    pub count: u64,
    /// How long they took together.
    pub total_ns: u64,
    /// How long one took on average.
    pub mean_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
}

/// Kernels that began in the window.
pub(crate) fn kernels(trace: &Trace, window: Interval) -> Vec<Top> {
    let rows = trace.rows.iter();
    let rows = rows.filter(|row| row.kind != RowKind::Memory && is_inside(row.start, window));
    listed(trace, rows.map(|row| (row.name, row.duration)))
}

/// Operators that began in the window, without the operators inside them.
pub(crate) fn operators(trace: &Trace, window: Interval) -> Vec<Top> {
    let spans = trace
        .operators
        .iter()
        .filter(|span| is_inside(span.start, window));
    let mut spans: Vec<&Span> = spans.collect();
    // An operator begins before those inside it, or at the same time and is longer.
    spans.sort_unstable_by_key(|span| (span.thread, span.start, u64::MAX - span.duration));
    let mut own: Vec<(NameId, u64)> = Vec::with_capacity(spans.len());
    // Thread, end and index into `own` of those that are not at their end.
    let mut open: Vec<(u32, u64, usize)> = Vec::new();
    for span in spans {
        while let Some((thread, end, _)) = open.last() {
            if *thread == span.thread && span.start < *end {
                break;
            }
            open.pop();
        }
        let outer = open.last().and_then(|(_, _, index)| own.get_mut(*index));
        if let Some(outer) = outer {
            outer.1 = outer.1.saturating_sub(span.duration);
        }
        own.push((span.name, span.duration));
        open.push((span.thread, span.start + span.duration, own.len() - 1));
    }
    listed(trace, own.into_iter())
}

/// Copies and memsets that began in the window.
pub(crate) fn copies(trace: &Trace, window: Interval) -> Vec<Copies> {
    let mut sums = BTreeMap::<NameId, (u64, u64)>::new();
    for row in &trace.rows {
        if row.kind == RowKind::Memory && is_inside(row.start, window) {
            let sum = sums.entry(row.name).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(row.duration);
        }
    }
    let copies = sums.into_iter().map(|(name, (count, total_ns))| Copies {
        name: trace.name(name).to_owned(),
        count,
        total_ns,
        bytes: trace.copied_bytes.get(&name).copied().unwrap_or(0),
    });
    let mut copies: Vec<Copies> = copies.collect();
    copies.sort_by(|one, two| {
        two.total_ns
            .cmp(&one.total_ns)
            .then(one.name.cmp(&two.name))
    });
    copies.truncate(LISTED);
    copies
}

fn is_inside(start: u64, window: Interval) -> bool {
    (window.0..window.1).contains(&start)
}

fn listed(trace: &Trace, times: impl Iterator<Item = (NameId, u64)>) -> Vec<Top> {
    let mut all: Vec<(NameId, u64)> = times.collect();
    all.sort_unstable();
    let mut tops: Vec<Top> = Vec::new();
    for same in all.chunk_by(|one, two| one.0 == two.0) {
        let Some((name, _)) = same.first() else {
            continue;
        };
        let mut durations: Vec<u64> = same.iter().map(|(_, duration)| *duration).collect();
        let total_ns = durations
            .iter()
            .fold(0, |sum: u64, it| sum.saturating_add(*it));
        let count = durations.len() as u64;
        tops.push(Top {
            name: trace.name(*name).to_owned(),
            count,
            total_ns,
            mean_ns: total_ns / count.max(1),
            p99_ns: quantile(&mut durations, 99, 100),
        });
    }
    tops.sort_by(|one, two| {
        two.total_ns
            .cmp(&one.total_ns)
            .then(one.name.cmp(&two.name))
    });
    tops.truncate(LISTED);
    tops
}
