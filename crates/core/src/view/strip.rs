//! Pods and ranks over time: one row for each pod or group of pods, one cell for each piece of time.
//!
//! A cell shows `failed` where anything in it failed, else `stalled`, else the state that took most of it. Where the window has few changes, rows are
//! exact and their runs are milliseconds. Equal rows are sent once. Where the answer would be too long, its cells are wider.
//!
//! The work is that of the changes in the window and of the cells: a pod that does what its job does costs nothing.

mod raster;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use self::raster::{Grid, Segment, base_segments, overlay};
use super::{State, VERSION};
use crate::{
    chronicle::{Chronicle, Failure, Lane},
    spec::Slot,
};

/// Most cells of a row.
pub const COLUMNS_MAX: u32 = 2_000;
/// Most rows.
pub const ROWS_MAX: u32 = 512;
/// Most runs of all rows together.
pub const RUNS_MAX: usize = 65_536;
/// Most marks.
pub const MARKS_MAX: usize = 1_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripAsk {
    /// The first moment, in Unix milliseconds.
    pub from: i64,
    /// The end.
    pub to: i64,
    /// Cells of a row, at most [`COLUMNS_MAX`].
    pub columns: u32,
    /// Rows, at most [`ROWS_MAX`].
    pub rows: u32,
    /// What is a row.
    pub by: By,
}

/// What is a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A pod, in the order of ranks; neighbours together where there are more pods than rows.
    Rank,
    /// All pods of a node, as seated at the end of the window.
    Node,
}

/// A strip.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Strip {
    /// The form of this document.
    pub version: u32,
    /// The first moment.
    pub from: i64,
    /// The end.
    pub to: i64,
    /// Cells of a row.
    pub columns: u32,
    /// How long a cell is; the last one may be shorter.
    pub bucket_millis: u64,
    /// The names of the states, by number.
    pub states: Vec<&'static str>,
    /// Runs of equal cells as pairs: how many cells (milliseconds, where `exact`), and the number of the state. Each row once.
    pub rows: Vec<Vec<u64>>,
    /// Which of `rows` each row is.
    pub of: Vec<u32>,
    /// What each row is.
    pub labels: Vec<Label>,
    /// The job itself, in the form of a row.
    pub job: Vec<u64>,
    /// Single moments, failures first.
    pub marks: Vec<Mark>,
    /// How many marks there was no room for.
    pub marks_left_out: usize,
    /// Whether runs are milliseconds.
    pub exact: bool,
    /// How many cells of different rows hold more than one state.
    pub mixed: u64,
}

/// What a row is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Label {
    /// The first rank, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The last rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// The first pod, as role and index.
    pub pod: String,
    /// How many pods.
    pub pods: usize,
    /// The node, where all its pods were on the same one at the end of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A single moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// When.
    pub t: i64,
    /// What.
    pub kind: MarkKind,
    /// The row; nothing where it is about the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// The first rank of the pod, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The attempt; for a checkpoint the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
}

/// What a mark is about. The first are the last to be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MarkKind {
    /// A failure of this attempt.
    Failed,
    /// An attempt began.
    Attempt,
    /// A pod is on another node.
    Swapped,
    /// A checkpoint is complete.
    Saved,
}

/// What differs from the job in one lane: its own states, and its failures.
type Own = (Vec<Segment>, Vec<(i64, i64)>);

/// One row before it is drawn: the lanes in it, by which of the different lanes each is.
struct Group<'a> {
    lanes: Vec<(&'a Slot, &'a Lane)>,
    own: Vec<usize>,
}

/// Draws `chronicle` as it is at `now`. Limits are applied to what is asked for; a window without time is one millisecond long, and none reaches beyond
/// what a [`Timestamp`] can be.
pub fn strip(chronicle: &Chronicle, ask: &StripAsk, now: Timestamp) -> Strip {
    let columns = ask.columns.clamp(1, COLUMNS_MAX);
    let (least, most) = (Timestamp::MIN, Timestamp::MAX);
    let clamp = |at: i64| at.clamp(least.as_millisecond(), most.as_millisecond());
    // The end of time has no millisecond behind it.
    let from = clamp(ask.from).min(most.as_millisecond() - 1);
    let to = clamp(ask.to).max(from + 1);
    let base = base_segments(chronicle, from, to, now);
    let until = chronicle.until(now).unwrap_or(from);
    let mut by_slot: BTreeMap<Slot, Vec<&Failure>> = BTreeMap::new();
    for failure in &chronicle.failures {
        if let Some(slot) = failure.slot {
            by_slot.entry(slot).or_default().push(failure);
        }
    }
    let mut known: BTreeMap<Own, usize> = BTreeMap::new();
    let groups = groups(chronicle, ask, to, &mut |slot, lane| {
        let failures = by_slot.get(&slot).into_iter().flatten().copied();
        let own = (
            own_states(lane, from, to, until),
            clipped(failures, from, to),
        );
        let next = known.len();
        *known.entry(own).or_insert(next)
    });
    let mut owns: Vec<&Own> = known.keys().collect();
    owns.sort_by_key(|own| known[*own]);
    let all: Vec<(i64, i64)> = clipped(chronicle.failures.iter(), from, to);
    let changes = base.len()
        + all.len()
        + owns
            .iter()
            .map(|own| 2 * own.0.len() + own.1.len())
            .sum::<usize>();
    let single = groups.iter().all(|group| group.lanes.len() == 1);
    let mut strip = Strip {
        version: VERSION,
        from,
        to,
        columns,
        bucket_millis: 1,
        states: State::ALL.iter().map(|state| state.name()).collect(),
        rows: Vec::new(),
        of: Vec::new(),
        labels: groups.iter().map(|group| label(group, to)).collect(),
        job: Vec::new(),
        marks: Vec::new(),
        marks_left_out: 0,
        exact: single && changes <= columns as usize,
        mixed: 0,
    };
    marks(&mut strip, chronicle, &groups);
    if strip.exact {
        let row = |own: &Own| exact_row(&base, own, from, to);
        strip.job = row(&(Vec::new(), all.clone()));
        let rows: Vec<Vec<u64>> = owns.iter().map(|own| row(own)).collect();
        let of = groups.iter().filter_map(|group| group.own.first());
        send(&mut strip, of.map(|own| rows[*own].clone()).collect());
        if runs(&strip) <= RUNS_MAX {
            return strip;
        }
        strip.exact = false;
    }
    loop {
        let grid = Grid::new(from, to, strip.columns);
        draw(&mut strip, &grid, &base, &owns, &groups, &all);
        if runs(&strip) <= RUNS_MAX || strip.columns == 1 {
            return strip;
        }
        strip.columns = (strip.columns / 2).max(1);
    }
}

/// How many runs all rows have together.
fn runs(strip: &Strip) -> usize {
    strip.rows.iter().map(|row| row.len() / 2).sum()
}

/// Draws all rows on `grid`.
fn draw(
    strip: &mut Strip,
    grid: &Grid,
    base: &[Segment],
    owns: &[&Own],
    groups: &[Group<'_>],
    all: &[(i64, i64)],
) {
    strip.columns = u32::try_from(grid.cells()).unwrap_or(COLUMNS_MAX);
    strip.bucket_millis = grid.bucket();
    let plain = grid.cells_of(base, &[], 0..grid.cells());
    let cells: Vec<Vec<u8>> = owns
        .iter()
        .map(|own| grid.lane(&plain, base, &own.0, &own.1))
        .collect();
    let mut job = plain;
    grid.mark_failed(&mut job, all);
    strip.mixed = raster::mixed(&job);
    strip.job = raster::runs(&job);
    let mut together: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    let mut drawn: Vec<Vec<u64>> = Vec::new();
    let mut order = Vec::with_capacity(groups.len());
    for group in groups {
        let mut own = group.own.clone();
        own.sort_unstable();
        let row = *together.entry(own).or_insert_with_key(|own| {
            let members: Vec<&[u8]> = own.iter().map(|at| cells[*at].as_slice()).collect();
            let row = raster::worst(&members, grid.cells());
            strip.mixed += raster::mixed(&row);
            drawn.push(raster::runs(&row));
            drawn.len() - 1
        });
        order.push(row);
    }
    send(
        strip,
        order.into_iter().map(|row| drawn[row].clone()).collect(),
    );
}

/// Puts each different row into the strip once.
fn send(strip: &mut Strip, rows: Vec<Vec<u64>>) {
    strip.rows.clear();
    strip.of.clear();
    let mut known: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
    for row in rows {
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let at = *known.entry(row).or_insert_with_key(|row| {
            strip.rows.push(row.clone());
            next
        });
        strip.of.push(at);
    }
}

/// The rows: lanes in order, several in one where there are more than rows.
fn groups<'a>(
    chronicle: &'a Chronicle,
    ask: &StripAsk,
    to: i64,
    own: &mut impl FnMut(Slot, &Lane) -> usize,
) -> Vec<Group<'a>> {
    let rows = ask.rows.clamp(1, ROWS_MAX) as usize;
    let mut lanes: Vec<(&Slot, &Lane)> = chronicle.lanes.iter().collect();
    lanes.sort_by_key(|(slot, lane)| (lane.first_rank.is_none(), lane.first_rank, **slot));
    let parts: Vec<Vec<(&Slot, &Lane)>> = match ask.by {
        By::Rank => lanes.into_iter().map(|lane| vec![lane]).collect(),
        By::Node => {
            let mut nodes: BTreeMap<Option<&str>, Vec<(&Slot, &Lane)>> = BTreeMap::new();
            for lane in lanes {
                nodes.entry(lane.1.node_at(to)).or_default().push(lane);
            }
            nodes.into_values().collect()
        }
    };
    let each = parts.len().div_ceil(rows).max(1);
    let groups = parts.chunks(each).map(|parts| {
        let lanes: Vec<(&Slot, &Lane)> = parts.iter().flatten().copied().collect();
        let own = lanes.iter().map(|(slot, lane)| own(**slot, lane)).collect();
        Group { lanes, own }
    });
    groups.collect()
}

/// What a lane shows by itself in the window.
fn own_states(lane: &Lane, from: i64, to: i64, until: i64) -> Vec<Segment> {
    let first = lane
        .turns
        .partition_point(|turn| turn.at <= from)
        .saturating_sub(1);
    let mut own = Vec::new();
    for (at, turn) in lane.turns.iter().enumerate().skip(first) {
        if turn.at >= to {
            break;
        }
        let end = lane.turns.get(at + 1).map_or(until, |next| next.at);
        let (begin, end) = (turn.at.max(from), end.min(until).min(to));
        if let Some(state) = State::of_pod(turn.state).filter(|_| begin < end) {
            own.push(Segment {
                from: begin,
                to: end,
                state,
            });
        }
    }
    own
}

/// The failures in the window, both ends included: one at its very end is shown in its last cell.
fn clipped<'a>(failures: impl Iterator<Item = &'a Failure>, from: i64, to: i64) -> Vec<(i64, i64)> {
    let inside = failures.filter(|failure| failure.until >= from && failure.at <= to);
    let clip = |at: i64| at.clamp(from, to - 1);
    inside
        .map(|failure| (clip(failure.at), clip(failure.until)))
        .collect()
}

/// A row in milliseconds. A failure takes at least one.
fn exact_row(base: &[Segment], own: &Own, from: i64, to: i64) -> Vec<u64> {
    let mut states: Vec<Segment> = Vec::new();
    overlay(base, &own.0, from, to, &mut |segment| states.push(segment));
    let mut failed: Vec<Segment> = Vec::new();
    for (at, until) in &own.1 {
        let end = until + 1;
        match failed.last_mut().filter(|last| last.to >= *at) {
            Some(last) => last.to = last.to.max(end),
            None => failed.push(Segment {
                from: *at,
                to: end,
                state: State::Failed,
            }),
        }
    }
    let mut runs: Vec<u64> = Vec::new();
    overlay(&states, &failed, from, to, &mut |segment| {
        raster::push_run(&mut runs, segment.millis(), segment.state.number());
    });
    runs
}

fn label(group: &Group<'_>, to: i64) -> Label {
    let ranks = || {
        group
            .lanes
            .iter()
            .filter_map(|(_, lane)| Some((lane.first_rank?, lane.ranks.max(1))))
    };
    let mut nodes = group.lanes.iter().map(|(_, lane)| lane.node_at(to));
    let node = nodes.next().flatten();
    Label {
        from: ranks().map(|(first, _)| first).min(),
        to: ranks()
            .map(|(first, count)| first.saturating_add(count - 1))
            .max(),
        pod: group
            .lanes
            .first()
            .map(|(slot, _)| slot.to_string())
            .unwrap_or_default(),
        pods: group.lanes.len(),
        node: node
            .filter(|node| nodes.all(|other| other == Some(*node)))
            .map(str::to_owned),
    }
}

fn marks(strip: &mut Strip, chronicle: &Chronicle, groups: &[Group<'_>]) {
    let mut rows: BTreeMap<Slot, (u32, Option<u32>)> = BTreeMap::new();
    for (row, group) in (0_u32..).zip(groups) {
        rows.extend(
            group
                .lanes
                .iter()
                .map(|(slot, lane)| (**slot, (row, lane.first_rank))),
        );
    }
    let mark = |t: i64, kind: MarkKind, slot: Option<Slot>, n: u64| {
        let place = slot.and_then(|slot| rows.get(&slot));
        Mark {
            t,
            kind,
            row: place.map(|(row, _)| *row),
            rank: place.and_then(|(_, rank)| *rank),
            n: Some(n),
        }
    };
    let (from, to) = (strip.from, strip.to);
    let failed = chronicle
        .failures
        .iter()
        .filter(|it| it.until >= from && it.at <= to);
    let failed = failed.map(|it| {
        mark(
            it.at.max(from),
            MarkKind::Failed,
            it.slot,
            it.attempt.into(),
        )
    });
    let attempts = chronicle
        .attempts
        .iter()
        .map(|(at, n)| mark(*at, MarkKind::Attempt, None, (*n).into()));
    let swaps = chronicle.swaps.iter();
    let swaps =
        swaps.map(|(at, it)| mark(*at, MarkKind::Swapped, Some(it.slot), it.attempt.into()));
    let saves = chronicle
        .saves
        .iter()
        .map(|(at, it)| mark(*at, MarkKind::Saved, None, it.step));
    let all = failed.chain(attempts).chain(swaps).chain(saves);
    let mut marks: Vec<Mark> = all.filter(|mark| (from..=to).contains(&mark.t)).collect();
    marks.sort_by_key(|mark| (mark.kind, mark.t, mark.row));
    strip.marks_left_out = marks.len().saturating_sub(MARKS_MAX);
    marks.truncate(MARKS_MAX);
    strip.marks = marks;
}
