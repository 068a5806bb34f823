//! Why a GPU had nothing to do.
//!
//! Each gap ends with a row. If that row was launched after the gap began, the host was late; otherwise the row waited for
//! something else.

use super::rank::IdleCauses;
use crate::{
    intervals::{Interval, Set},
    trace::{Call, GpuRow, Trace},
};

/// Shorter gaps are what a GPU needs between two kernels.
const BETWEEN_KERNELS: u64 = 10_000;

/// Which call launched which row.
#[derive(Debug)]
pub(crate) struct Launches<'a> {
    /// Ordered by correlation, then time.
    calls: Vec<&'a Call>,
}

impl<'a> Launches<'a> {
    pub(crate) fn of(trace: &'a Trace) -> Self {
        let calls = trace.calls.iter().filter(|call| call.correlation != 0);
        let mut calls: Vec<&Call> = calls.collect();
        calls.sort_unstable_by_key(|call| (call.correlation, call.start));
        Self { calls }
    }

    pub(crate) fn of_row(&self, row: &GpuRow) -> Option<&'a Call> {
        if row.correlation == 0 {
            return None;
        }
        let at = self
            .calls
            .partition_point(|call| call.correlation < row.correlation);
        let call = self.calls.get(at).copied();
        call.filter(|call| call.correlation == row.correlation)
    }
}

/// When the program waited for its data loader.
pub(crate) fn input(trace: &Trace, window: Interval) -> Set {
    let is_loader = trace.names_where(|name| name.starts_with("enumerate(DataLoader)"));
    let spans = trace.annotations.iter().chain(&trace.operators);
    let loading = spans.filter(|span| is_loader.contains(span.name));
    Set::of(
        loading.map(|span| (span.start, span.start + span.duration)),
        window,
    )
}

/// When the host waited for the GPU.
pub(crate) fn host_waits(trace: &Trace, window: Interval) -> Set {
    Set::of(waits(trace, None), window)
}

fn waits(trace: &Trace, thread: Option<u32>) -> impl Iterator<Item = Interval> {
    let is_wait = trace.names_where(|name| {
        name.ends_with("Synchronize") || name == "cudaMemcpy" || name == "hipMemcpy"
    });
    let calls = trace.calls.iter();
    let calls = calls.filter(move |call| {
        is_wait.contains(call.name) && thread.is_none_or(|thread| call.thread == thread)
    });
    calls.map(|call| (call.start, call.start + call.duration))
}

/// Why nothing ran outside of `busy`.
pub(crate) fn causes(
    trace: &Trace,
    launches: &Launches<'_>,
    busy: &Set,
    window: Interval,
) -> IdleCauses {
    let idle = Set::of([window], window).without(busy);
    let mut rows: Vec<&GpuRow> = trace.rows.iter().filter(|row| row.duration > 0).collect();
    rows.sort_unstable_by_key(|row| row.start);
    let waits = Set::of(waits(trace, None), (0, u64::MAX));
    let mut causes = IdleCauses::default();
    let (mut late, mut after_wait) = (Vec::new(), Vec::new());
    for gap in idle.intervals() {
        let next = rows.get(rows.partition_point(|row| row.start < gap.1));
        let launch = next.and_then(|row| launches.of_row(row));
        let length = gap.1 - gap.0;
        match launch {
            Some(launch) if launch.start > gap.0 => {
                late.push(*gap);
                if waits.contains(gap.0) {
                    after_wait.push(*gap);
                }
            }
            _ if length < BETWEEN_KERNELS => causes.between_kernels_ns += length,
            Some(_) => causes.dependency_ns += length,
            None => causes.unknown_ns += length,
        }
    }
    let (late, after_wait) = (Set::of(late, window), Set::of(after_wait, window));
    let input = late.intersection(&input(trace, window));
    let synchronized = after_wait.without(&input);
    causes.input_ns = input.length();
    causes.synchronization_ns = synchronized.length();
    causes.host_ns = late.length() - causes.input_ns - causes.synchronization_ns;
    causes
}
