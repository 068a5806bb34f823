//! From pieces of time to cells.

use std::ops::Range;

use jiff::Timestamp;

use crate::{
    chronicle::{Booked, Chronicle, Content, Stretch},
    view::State,
};

/// Marks a cell that holds more than one state.
const MIXED: u8 = 0x80;

/// A piece of time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) state: State,
}

impl Segment {
    pub(super) fn millis(self) -> u64 {
        u64::try_from(self.to.saturating_sub(self.from)).unwrap_or(0)
    }
}

/// What the job does from `from` to `to`, without a gap.
pub(super) fn base_segments(
    chronicle: &Chronicle,
    from: i64,
    to: i64,
    now: Timestamp,
) -> Vec<Segment> {
    let open = chronicle.open.map(|open| Segment {
        from: open.since.as_millisecond(),
        to: open.since.max(now).as_millisecond(),
        state: open.phase.into(),
    });
    let first = chronicle
        .stretches
        .partition_point(|stretch| stretch.to <= from);
    let closed = chronicle.stretches.iter().skip(first);
    let closed = closed
        .take_while(|stretch| stretch.from < to)
        .map(|stretch| Segment {
            from: stretch.from,
            to: stretch.to,
            state: shown(stretch),
        });
    let mut segments: Vec<Segment> = Vec::new();
    let mut end = from;
    for segment in closed.chain(open) {
        let (begin, stop) = (segment.from.max(end), segment.to.min(to));
        if begin >= stop {
            continue;
        }
        fill(&mut segments, end, begin);
        segments.push(Segment {
            from: begin,
            to: stop,
            state: segment.state,
        });
        end = stop;
    }
    fill(&mut segments, end, to);
    segments
}

fn fill(segments: &mut Vec<Segment>, from: i64, to: i64) {
    if from < to {
        segments.push(Segment {
            from,
            to,
            state: State::Nothing,
        });
    }
}

/// The state of a stretch: of merged spans the one that took most.
fn shown(stretch: &Stretch) -> State {
    match &stretch.content {
        Content::Phase { phase, .. } => (*phase).into(),
        Content::NotObserved(_) => State::NotObserved,
        Content::Merged(booked) => {
            let mut sums = [0_u64; State::ALL.len()];
            for Booked { phase, millis, .. } in booked {
                sums[usize::from(State::from(*phase).number())] += millis;
            }
            State::ALL[most(&sums)]
        }
    }
}

/// The first of the largest.
fn most(sums: &[u64; State::ALL.len()]) -> usize {
    let largest = sums
        .iter()
        .enumerate()
        .max_by_key(|(at, sum)| (**sum, std::cmp::Reverse(*at)));
    largest.map_or(0, |(at, _)| at)
}

/// Calls `each` for the pieces of `base` from `from` to `to`, with `over` in front of them. Both are in order; `base` has no gap there.
pub(super) fn overlay(
    base: &[Segment],
    over: &[Segment],
    from: i64,
    to: i64,
    each: &mut impl FnMut(Segment),
) {
    let mut below = base.partition_point(|segment| segment.to <= from);
    let mut above = over.partition_point(|segment| segment.to <= from);
    let mut at = from;
    while at < to {
        while over.get(above).is_some_and(|segment| segment.to <= at) {
            above += 1;
        }
        while base.get(below).is_some_and(|segment| segment.to <= at) {
            below += 1;
        }
        let (end, state) = match (over.get(above), base.get(below)) {
            (Some(over), _) if over.from <= at => (over.to, over.state),
            (Some(over), Some(base)) => (base.to.min(over.from), base.state),
            (None, Some(base)) => (base.to, base.state),
            (Some(over), None) => (over.from, State::Nothing),
            (None, None) => (to, State::Nothing),
        };
        let end = end.min(to);
        each(Segment {
            from: at,
            to: end,
            state,
        });
        at = end;
    }
}

/// A window in cells of equal length.
pub(super) struct Grid {
    from: i64,
    to: i64,
    bucket: i64,
    cells: usize,
}

impl Grid {
    pub(super) fn new(from: i64, to: i64, columns: u32) -> Self {
        let length = to.saturating_sub(from).max(1);
        let columns = i64::from(columns.max(1));
        let bucket = (length / columns + i64::from(length % columns > 0)).max(1);
        let cells = length / bucket + i64::from(length % bucket > 0);
        Self {
            from,
            to,
            bucket,
            cells: usize::try_from(cells).unwrap_or(1),
        }
    }

    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    pub(super) fn bucket(&self) -> u64 {
        u64::try_from(self.bucket).unwrap_or(1)
    }

    /// The cell of a moment of the window.
    pub(super) fn cell(&self, at: i64) -> usize {
        let cell = at.saturating_sub(self.from).max(0) / self.bucket;
        usize::try_from(cell).unwrap_or(0).min(self.cells - 1)
    }

    fn begin(&self, cell: usize) -> i64 {
        let cell = i64::try_from(cell).unwrap_or(i64::MAX);
        self.from
            .saturating_add(self.bucket.saturating_mul(cell))
            .min(self.to)
    }

    /// The cells of `range`, of `base` with `over` in front of it.
    pub(super) fn cells_of(
        &self,
        base: &[Segment],
        over: &[Segment],
        range: Range<usize>,
    ) -> Vec<u8> {
        let mut cells = Vec::with_capacity(range.len());
        let mut sums = [0_u64; State::ALL.len()];
        let mut cell = range.start;
        let (from, to) = (self.begin(range.start), self.begin(range.end));
        overlay(base, over, from, to, &mut |segment| {
            let mut at = segment.from;
            while at < segment.to {
                let end = self.begin(cell + 1).min(segment.to);
                let part = Segment {
                    from: at,
                    to: end,
                    ..segment
                };
                sums[usize::from(segment.state.number())] += part.millis();
                at = end;
                if end == self.begin(cell + 1) {
                    cells.push(chosen(&sums));
                    sums = [0; State::ALL.len()];
                    cell += 1;
                }
            }
        });
        cells
    }

    /// The cells of a lane: those of its job, except where it has states or failures of its own.
    pub(super) fn lane(
        &self,
        plain: &[u8],
        base: &[Segment],
        own: &[Segment],
        failures: &[(i64, i64)],
    ) -> Vec<u8> {
        let mut cells = plain.to_vec();
        let mut done = 0;
        for segment in own {
            let range = self.cell(segment.from).max(done)..self.cell(segment.to - 1) + 1;
            if range.is_empty() {
                continue;
            }
            done = range.end;
            let changed = self.cells_of(base, own, range.clone());
            for (cell, state) in cells.iter_mut().skip(range.start).zip(changed) {
                *cell = state;
            }
        }
        self.mark_failed(&mut cells, failures);
        cells
    }

    /// Shows failures, whatever else a cell holds.
    pub(super) fn mark_failed(&self, cells: &mut [u8], failures: &[(i64, i64)]) {
        let failed = State::Failed.number();
        for (at, until) in failures {
            for cell in cells
                .iter_mut()
                .take(self.cell(*until) + 1)
                .skip(self.cell(*at))
            {
                if *cell & !MIXED != failed {
                    *cell = failed | MIXED;
                }
            }
        }
    }
}

/// What a cell shows that holds these states.
fn chosen(sums: &[u64; State::ALL.len()]) -> u8 {
    let holds = |state: State| sums[usize::from(state.number())] > 0;
    let worst = [State::Failed, State::Stalled]
        .into_iter()
        .find(|state| holds(*state));
    let state = worst.unwrap_or(State::ALL[most(sums)]);
    let mixed = sums.iter().filter(|sum| **sum > 0).count() > 1;
    state.number() | if mixed { MIXED } else { 0 }
}

/// One row for several: where any failed or stalled it shows that, else what most show.
pub(super) fn worst(members: &[&[u8]], cells: usize) -> Vec<u8> {
    if let [only] = members {
        return only.to_vec();
    }
    let row = (0..cells).map(|cell| {
        let mut counts = [0_u64; State::ALL.len()];
        let mut mixed = 0;
        for member in members {
            let state = member.get(cell).copied().unwrap_or(State::Nothing.number());
            counts[usize::from(state & !MIXED)] += 1;
            mixed |= state & MIXED;
        }
        chosen(&counts) | mixed
    });
    row.collect()
}

/// How many cells hold more than one state.
pub(super) fn mixed(cells: &[u8]) -> u64 {
    let count = cells.iter().filter(|cell| **cell & MIXED != 0).count();
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Runs of equal cells.
pub(super) fn runs(cells: &[u8]) -> Vec<u64> {
    let mut runs = Vec::new();
    for cell in cells {
        push_run(&mut runs, 1, cell & !MIXED);
    }
    runs
}

/// Adds `length` of a state; neighbours of the same state are one run.
pub(super) fn push_run(runs: &mut Vec<u64>, length: u64, state: u8) {
    if let [.., last, known] = runs.as_mut_slice()
        && *known == u64::from(state)
    {
        *last += length;
        return;
    }
    runs.extend([length, state.into()]);
}
