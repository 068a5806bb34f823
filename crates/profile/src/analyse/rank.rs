//! The values of one rank.
//!
//! Invariant: `compute + exposed communication + memory + idle` is the window, to the nanosecond, and the causes of idle time add
//! up to it.

use serde::Serialize;

use super::{
    gaps,
    steps::{Steps, backward_threads},
    tops::{self, Top},
};
use crate::{
    intervals::{Interval, Set},
    number::{median, share},
    trace::{RowKind, Skipped, Span, Trace},
};

/// Collectives that are kept of one rank; a step has some hundred.
const MOST_COLLECTIVES: usize = 200_000;
/// A launch that a GPU takes up this soon shows that its queue was empty.
const QUICK_START: u64 = 20_000;
/// A kernel this short costs as much to launch as to run.
const SHORT_KERNEL: u64 = 10_000;

/// Why nothing ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleCauses {
    /// The program waited for its data loader.
    pub input_ns: u64,
    /// The host had waited for the GPU, and launched again only after that.
    pub synchronization_ns: u64,
    /// The host launched too late, for another reason; without a GPU: outside of operators.
    pub host_ns: u64,
    /// Gaps below 10 µs between kernels that were launched in time.
    pub between_kernels_ns: u64,
    /// Launched in time, but waiting for another stream or an event.
    pub dependency_ns: u64,
    /// The trace does not say what was launched when.
    pub unknown_ns: u64,
}

/// Copies of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Copies {
    /// As the trace names them, such as `Memcpy HtoD (Pageable -> Device)`.
    pub name: String,
    /// How many.
    pub count: u64,
    /// How long they took together.
    pub total_ns: u64,
    /// What they moved in the whole trace.
    pub bytes: u64,
}

/// The values of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RankValues {
    /// Its rank.
    pub rank: u32,
    /// Where the trace was read.
    pub source: String,
    /// Whole steps; none where the trace marks no steps.
    pub steps: u64,
    /// The median of its steps.
    pub step_ns: u64,
    /// From the start of the first whole step to the end of the last; without steps, all that was traced.
    pub window_ns: u64,
    /// Whether a GPU did anything in it. Without one, operators are what computes.
    pub has_gpu: bool,
    /// Time in which a kernel computed.
    pub compute_ns: u64,
    /// Time in which a collective ran.
    pub communication_ns: u64,
    /// Time in which a collective ran and nothing computed.
    pub exposed_communication_ns: u64,
    /// Time in which only copies ran.
    pub memory_ns: u64,
    /// Time in which nothing ran.
    pub idle_ns: u64,
    /// Why nothing ran; these add up to `idleNs`.
    pub idle_causes: IdleCauses,
    /// The part of communication during which something computed; nothing without communication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// Time that the host waited for the GPU in calls such as `cudaStreamSynchronize`.
    pub host_waits_ns: u64,
    /// Kernels in the window.
    pub kernels: u64,
    /// The median kernel.
    pub median_kernel_ns: u64,
    /// The median time from the launch of a row to its start.
    pub median_launch_ns: u64,
    /// Whether the host launches too slowly for this GPU.
    pub launch_bound: bool,
    /// Copies and memsets, those that take most time first.
    pub copies: Vec<Copies>,
    /// Kernels by the time that they took.
    pub top_kernels: Vec<Top>,
    /// Operators of the framework by the time that they took without the operators in them.
    pub top_operators: Vec<Top>,
    /// Whether the file ended before its trace did.
    pub truncated: bool,
    /// Events that were left out.
    pub skipped_events: u64,
}

/// One collective of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collective {
    /// Index into [`Summary::keys`].
    pub(crate) key: usize,
    /// Index of the step.
    pub(crate) step: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What is kept of a rank once its trace is gone.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Its values.
    pub values: RankValues,
    pub(crate) base: u64,
    pub(crate) steps: Steps,
    /// Group and name of each kind of collective.
    pub(crate) keys: Vec<(String, String)>,
    /// In order of time.
    pub(crate) collectives: Vec<Collective>,
}

impl Summary {
    /// What the trace of `rank` shows.
    pub fn of(trace: &Trace, rank: u32, source: &str) -> Self {
        let steps = Steps::of(trace);
        let window = steps.window().unwrap_or_else(|| span_of(trace));
        let mut values = RankValues {
            rank,
            source: source.to_owned(),
            steps: steps.steps.len() as u64,
            window_ns: window.1 - window.0,
            truncated: trace.truncated,
            ..RankValues::default()
        };
        let skipped = trace.skipped;
        let Skipped {
            damaged,
            oversized,
            beyond_bound,
            ..
        } = skipped;
        values.skipped_events = damaged + oversized + beyond_bound;
        let mut lengths: Vec<u64> = steps.steps.iter().map(|it| it.end - it.start).collect();
        values.step_ns = median(&mut lengths);
        let mut communication = gpu_collectives(trace, window);
        if trace
            .rows
            .iter()
            .any(|row| overlaps((row.start, row.start + row.duration), window))
        {
            values.has_gpu = true;
            measure_gpu(&mut values, trace, window);
        } else {
            communication = measure_cpu(&mut values, trace, &steps, window);
        }
        values.top_operators = tops::operators(trace, window);
        let (keys, collectives) = by_step(trace, &steps, communication);
        Self {
            values,
            base: trace.base,
            steps,
            keys,
            collectives,
        }
    }
}

fn overlaps(one: Interval, window: Interval) -> bool {
    one.0 < window.1 && window.0 < one.1
}

/// From the first event to the end of the last.
fn span_of(trace: &Trace) -> Interval {
    let rows = trace.rows.iter().map(|row| (row.start, row.duration));
    let calls = trace.calls.iter().map(|call| (call.start, call.duration));
    let spans = trace.operators.iter().chain(&trace.annotations);
    let spans = spans.map(|span| (span.start, span.duration));
    let all = rows.chain(calls).chain(spans);
    let (from, to) = all.fold((u64::MAX, 0), |(from, to), (start, duration)| {
        (from.min(start), to.max(start + duration))
    });
    (from.min(to), to)
}

fn measure_gpu(values: &mut RankValues, trace: &Trace, window: Interval) {
    let of = |kind: RowKind| {
        let rows = trace.rows.iter().filter(move |row| row.kind == kind);
        Set::of(
            rows.map(|row| (row.start, row.start + row.duration)),
            window,
        )
    };
    let (compute, communication) = (of(RowKind::Compute), of(RowKind::Communication));
    let kernels = compute.union(&communication);
    let busy = kernels.union(&of(RowKind::Memory));
    values.compute_ns = compute.length();
    values.communication_ns = communication.length();
    values.exposed_communication_ns = communication.without(&compute).length();
    values.memory_ns = busy.length() - kernels.length();
    values.idle_ns = values.window_ns - busy.length();
    let hidden = values.communication_ns - values.exposed_communication_ns;
    values.overlap = (values.communication_ns > 0).then(|| share(hidden, values.communication_ns));
    let launches = gaps::Launches::of(trace);
    values.idle_causes = gaps::causes(trace, &launches, &busy, window);
    values.host_waits_ns = gaps::host_waits(trace, window).length();
    let inside = |start: u64| (window.0..window.1).contains(&start);
    let rows = || trace.rows.iter().filter(|row| inside(row.start));
    let computing = rows().filter(|row| row.kind != RowKind::Memory);
    let mut durations: Vec<u64> = computing.map(|row| row.duration).collect();
    values.kernels = durations.len() as u64;
    values.median_kernel_ns = median(&mut durations);
    let delays =
        rows().filter_map(|row| Some(row.start.saturating_sub(launches.of_row(row)?.start)));
    let mut delays: Vec<u64> = delays.collect();
    let known = !delays.is_empty();
    values.median_launch_ns = median(&mut delays);
    let host_share = share(values.idle_causes.host_ns, values.window_ns);
    let waits_for_launch =
        values.median_kernel_ns < SHORT_KERNEL || known && values.median_launch_ns < QUICK_START;
    values.launch_bound = host_share > 0.2 && waits_for_launch;
    values.copies = tops::copies(trace, window);
    values.top_kernels = tops::kernels(trace, window);
}

/// Without a GPU: operators compute, and the collectives of gloo are annotations. Returns those.
fn measure_cpu(
    values: &mut RankValues,
    trace: &Trace,
    steps: &Steps,
    window: Interval,
) -> Vec<Found> {
    let is_collective = trace.names_where(is_cpu_collective);
    let waits = trace.names_where(|name| {
        is_cpu_collective(name) || name.starts_with("c10d::") || name == "record_param_comms"
    });
    let mut threads = backward_threads(trace);
    threads.extend(steps.thread.or_else(|| busiest_thread(trace)));
    let interval = |span: &Span| (span.start, span.start + span.duration);
    let operators = trace.operators.iter();
    let computing =
        operators.filter(|span| threads.contains(&span.thread) && !waits.contains(span.name));
    let input = gaps::input(trace, window);
    let compute = Set::of(computing.map(interval), window).without(&input);
    let spans = trace.annotations.iter().chain(&trace.operators);
    let collectives: Vec<Found> = spans
        .filter(|span| is_collective.contains(span.name) && overlaps(interval(span), window))
        .map(|span| Found {
            start: span.start,
            end: span.start + span.duration,
            name: span.name,
            group: 0,
        })
        .collect();
    let communication = Set::of(collectives.iter().map(|it| (it.start, it.end)), window);
    let busy = compute.union(&communication);
    values.compute_ns = compute.length();
    values.communication_ns = communication.length();
    values.exposed_communication_ns = communication.without(&compute).length();
    values.idle_ns = values.window_ns - busy.length();
    let hidden = values.communication_ns - values.exposed_communication_ns;
    values.overlap = (values.communication_ns > 0).then(|| share(hidden, values.communication_ns));
    let idle = Set::of([window], window).without(&busy);
    let stalled = idle.intersection(&input).length();
    values.idle_causes = IdleCauses {
        input_ns: stalled,
        host_ns: values.idle_ns - stalled,
        ..IdleCauses::default()
    };
    collectives
}

/// Whether an annotation is a collective that the CPU carries out.
fn is_cpu_collective(name: &str) -> bool {
    ["gloo:", "mpi:", "ucc:", "nccl:"]
        .iter()
        .any(|backend| name.starts_with(backend))
}

/// The thread whose operators took most time.
fn busiest_thread(trace: &Trace) -> Option<u32> {
    let mut times = std::collections::BTreeMap::<u32, u64>::new();
    for span in &trace.operators {
        let time = times.entry(span.thread).or_default();
        *time = time.saturating_add(span.duration);
    }
    times
        .into_iter()
        .max_by_key(|(_, time)| *time)
        .map(|(thread, _)| thread)
}

/// One collective as it was found.
#[derive(Clone, Copy, Debug)]
struct Found {
    start: u64,
    end: u64,
    name: u32,
    group: u32,
}

fn gpu_collectives(trace: &Trace, window: Interval) -> Vec<Found> {
    let rows = trace
        .rows
        .iter()
        .filter(|row| row.kind == RowKind::Communication);
    let rows = rows.map(|row| Found {
        start: row.start,
        end: row.start + row.duration,
        name: row.name,
        group: row.group,
    });
    rows.filter(|it| overlaps((it.start, it.end), window))
        .collect()
}

/// Collectives by their step and in order of time, with their kinds.
fn by_step(
    trace: &Trace,
    steps: &Steps,
    mut found: Vec<Found>,
) -> (Vec<(String, String)>, Vec<Collective>) {
    found.sort_unstable_by_key(|it| (it.start, it.end, it.name));
    found.truncate(MOST_COLLECTIVES);
    let mut kinds = std::collections::BTreeMap::<(u32, u32), usize>::new();
    let mut keys = Vec::new();
    let mut collectives = Vec::new();
    for it in found {
        let step = if steps.steps.is_empty() {
            Some(0)
        } else {
            steps.at(it.start)
        };
        let Some(step) = step else {
            continue;
        };
        let key = *kinds.entry((it.group, it.name)).or_insert_with(|| {
            keys.push((
                trace.name(it.group).to_owned(),
                trace.name(it.name).to_owned(),
            ));
            keys.len() - 1
        });
        collectives.push(Collective {
            key,
            step,
            start: it.start,
            end: it.end,
        });
    }
    (keys, collectives)
}
