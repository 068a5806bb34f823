//! Pages of the list of jobs: filtered, sorted, counted and cut.

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::Timestamp;
use trainyard_core::view::rows::RowState;
use trainyard_web::{JobsAsk, Problem, ProblemCode};

use super::{problem, unknown};
use crate::clean;

/// Most rows of a page.
const ROWS_MAX: usize = 200;
/// What rows can be sorted by.
const SORTS: [&str; 11] = [
    "startedAt",
    "endedAt",
    "job",
    "namespace",
    "kind",
    "state",
    "ranks",
    "accelerators",
    "attempt",
    "step",
    "trainedRatio",
];

/// What of a job the list is filtered and sorted by.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Listed<'a> {
    pub(in super::super) id: &'a str,
    pub(in super::super) job: &'a str,
    pub(in super::super) namespace: &'a str,
    pub(in super::super) kind: &'a str,
    pub(in super::super) state: RowState,
    pub(in super::super) line: &'a str,
    pub(in super::super) ranks: u32,
    pub(in super::super) accelerators: Option<u32>,
    pub(in super::super) attempt: u32,
    pub(in super::super) step: Option<u64>,
    pub(in super::super) trained_ratio: Option<f64>,
    pub(in super::super) started_at: Timestamp,
    pub(in super::super) ended_at: Option<Timestamp>,
    /// Whether it stands before others where nothing is asked for.
    pub(in super::super) live: bool,
}

/// A page of the list.
#[derive(Debug)]
pub(in super::super) struct Page<T> {
    pub(in super::super) shown: Vec<T>,
    pub(in super::super) counts: BTreeMap<&'static str, usize>,
    pub(in super::super) total: usize,
    pub(in super::super) cursor: Option<String>,
}

/// The page that is asked for, of all jobs.
pub(in super::super) fn page<T>(
    mut listed: Vec<T>,
    of: impl Fn(&T) -> Listed<'_>,
    ask: &JobsAsk,
) -> Result<Page<T>, Problem> {
    let order = Order::of(ask.sort.as_deref())?;
    let state = ask.state.as_deref().map(state_called).transpose()?;
    let text = ask.text.as_deref().map(str::to_lowercase);
    listed.retain(|it| matches(ask, text.as_deref(), &of(it)));
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for it in &listed {
        *counts.entry(of(it).state.name()).or_default() += 1;
    }
    listed.retain(|it| state.is_none_or(|state| of(it).state == state));
    listed.sort_by(|one, other| order.compare(&of(one), &of(other)));
    let total = listed.len();
    let begin = begin(&listed, &of, ask.cursor.as_deref())?;
    let limit = usize::try_from(ask.limit).unwrap_or(ROWS_MAX);
    let next = begin.saturating_add(limit.clamp(1, ROWS_MAX));
    let last = listed.get(next.saturating_sub(1)).filter(|_| next < total);
    let cursor = last.map(|last| format!("{next}.{}", of(last).id));
    listed.truncate(next);
    listed.drain(..begin.min(listed.len()));
    Ok(Page {
        shown: listed,
        counts,
        total,
        cursor,
    })
}

/// Whether a row is asked for, but for its state.
fn matches(ask: &JobsAsk, text: Option<&str>, it: &Listed<'_>) -> bool {
    let is = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    let has_text = text.is_none_or(|text| {
        let mut places = [it.job, it.namespace, it.line].into_iter();
        places.any(|place| place.to_lowercase().contains(text))
    });
    has_text && is(&ask.namespace, it.namespace) && is(&ask.kind, it.kind)
}

fn state_called(name: &str) -> Result<RowState, Problem> {
    let mut states = RowState::ALL.into_iter();
    let found = states.find(|state| state.name() == name);
    found.ok_or_else(|| unknown("state", name, &RowState::ALL.map(RowState::name)))
}

/// Where a page begins: behind the row that ended the one before, wherever that is by now.
fn begin<T>(
    listed: &[T],
    of: &impl Fn(&T) -> Listed<'_>,
    cursor: Option<&str>,
) -> Result<usize, Problem> {
    let Some(cursor) = cursor else {
        return Ok(0);
    };
    let parts = cursor.split_once('.');
    let parts = parts.and_then(|(place, id)| Some((place.parse::<usize>().ok()?, id)));
    let Some((place, id)) = parts else {
        let message = format!("`{}` is not a cursor of this list", clean::text(cursor));
        let hint = "ask for the first page, without a cursor";
        return Err(problem(ProblemCode::BadRequest, message, hint));
    };
    let known = listed.iter().position(|it| of(it).id == id);
    Ok(known.map_or(place, |known| known + 1).min(listed.len()))
}

/// How rows are sorted: running first and then newest, where nothing is asked for.
struct Order {
    by: Option<&'static str>,
    descending: bool,
}

impl Order {
    fn of(sort: Option<&str>) -> Result<Self, Problem> {
        let Some(sort) = sort else {
            return Ok(Self {
                by: None,
                descending: false,
            });
        };
        let (name, descending) = match sort.strip_prefix('-') {
            Some(name) => (name, true),
            None => (sort, false),
        };
        let by = SORTS.into_iter().find(|known| *known == name);
        let by = by.ok_or_else(|| unknown("column to sort by", &clean::text(name), &SORTS))?;
        Ok(Self {
            by: Some(by),
            descending,
        })
    }

    fn compare(&self, one: &Listed<'_>, other: &Listed<'_>) -> Ordering {
        let newest = || {
            let key = |it: &Listed<'_>| (it.live, it.started_at);
            let order = key(other).cmp(&key(one));
            order.then_with(|| one.id.cmp(other.id))
        };
        let Some(by) = self.by else {
            return newest();
        };
        let ratio = |it: &Listed<'_>| it.trained_ratio.unwrap_or(-1.0);
        let order = match by {
            "startedAt" => one.started_at.cmp(&other.started_at),
            "endedAt" => one.ended_at.cmp(&other.ended_at),
            "job" => one.job.cmp(other.job),
            "namespace" => one.namespace.cmp(other.namespace),
            "kind" => one.kind.cmp(other.kind),
            "state" => one.state.cmp(&other.state),
            "ranks" => one.ranks.cmp(&other.ranks),
            "accelerators" => one.accelerators.cmp(&other.accelerators),
            "attempt" => one.attempt.cmp(&other.attempt),
            "step" => one.step.cmp(&other.step),
            _ => ratio(one).total_cmp(&ratio(other)),
        };
        let order = if self.descending {
            order.reverse()
        } else {
            order
        };
        order.then_with(newest)
    }
}
