use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::read::{Bounds, Reader};

/// A trace that is written event by event, in microseconds.
#[derive(Default)]
struct Written {
    events: Vec<String>,
    base: u64,
}

impl Written {
    fn event(
        mut self,
        category: &str,
        name: &str,
        thread: u32,
        at: (f64, f64),
        arguments: &str,
    ) -> Self {
        let (start, duration) = at;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{thread},"ts":{start:.3},"dur":{duration:.3},"args":{{{arguments}}}}}"#
        ));
        self
    }

    fn step(self, number: u32, start: f64, duration: f64) -> Self {
        self.event(
            "user_annotation",
            &format!("ProfilerStep#{number}"),
            1,
            (start, duration),
            "",
        )
    }

    /// A kernel and its launch.
    fn kernel(self, name: &str, correlation: u32, launched: f64, at: (f64, f64)) -> Self {
        let joined = format!("\"correlation\":{correlation}");
        self.event(
            "cuda_runtime",
            "cudaLaunchKernel",
            1,
            (launched, 1.0),
            &joined,
        )
        .event("kernel", name, 7, at, &joined)
    }

    fn summary(&self, rank: u32) -> Summary {
        let mut text = format!("{{\"baseTimeNanoseconds\":{},\"traceEvents\":[", self.base);
        write!(text, "{}]}}", self.events.join(",")).unwrap();
        let mut reader = Reader::new(Bounds::default());
        reader.push(text.as_bytes());
        Summary::of(&reader.finish().unwrap(), rank, "trace.json")
    }
}

fn labels(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|it| it.label.word()).collect()
}

fn sum_of_parts(values: &RankValues) -> u64 {
    values.compute_ns + values.exposed_communication_ns + values.memory_ns + values.idle_ns
}

fn sum_of_causes(values: &RankValues) -> u64 {
    let causes = values.idle_causes;
    causes.input_ns
        + causes.synchronization_ns
        + causes.host_ns
        + causes.between_kernels_ns
        + causes.dependency_ns
        + causes.unknown_ns
}

#[test]
fn values_of_a_gpu() {
    let values = Written::default()
        .step(1, 0.0, 1000.0)
        // Launched in time, and idle before it: a dependency of 100 µs.
        .kernel("gemm", 1, 0.0, (100.0, 300.0))
        // Communication from 300 to 500, of which 100 are exposed.
        .kernel("ncclDevKernel_AllReduce", 2, 50.0, (300.0, 200.0))
        // A copy from 450 to 550, of which 50 are alone.
        .event(
            "gpu_memcpy",
            "Memcpy HtoD (Pageable -> Device)",
            7,
            (450.0, 100.0),
            "\"bytes\":100",
        )
        // Gap of 5 µs, launched in time.
        .kernel("gemm", 3, 60.0, (555.0, 45.0))
        // Late by 200 µs: launched at 790.
        .kernel("gemm", 4, 790.0, (800.0, 200.0))
        .summary(0)
        .values;
    assert_eq!(values.window_ns, 1_000_000);
    assert_eq!(values.compute_ns, 545_000);
    assert_eq!(
        (values.communication_ns, values.exposed_communication_ns),
        (200_000, 100_000)
    );
    assert_eq!(values.overlap, Some(0.5));
    assert_eq!(values.memory_ns, 50_000);
    assert_eq!(values.idle_ns, 305_000);
    let causes = values.idle_causes;
    assert_eq!(
        (
            causes.dependency_ns,
            causes.between_kernels_ns,
            causes.host_ns,
            causes.unknown_ns
        ),
        (100_000, 5_000, 200_000, 0)
    );
    assert_eq!(sum_of_parts(&values), values.window_ns);
    assert_eq!(sum_of_causes(&values), values.idle_ns);
    assert_eq!((values.kernels, values.copies[0].bytes), (4, 100));
    assert_eq!(
        (
            values.top_kernels[0].name.as_str(),
            values.top_kernels[0].count
        ),
        ("gemm", 3)
    );
}

#[test]
fn late_launches_by_cause() {
    let base = || {
        Written::default()
            .step(1, 0.0, 1000.0)
            .kernel("gemm", 1, 0.0, (0.0, 400.0))
    };
    let late = |written: Written| written.kernel("gemm", 2, 690.0, (700.0, 300.0));
    let cases = [
        ("nothing", late(base()), [0, 0, 300]),
        (
            "its data loader",
            late(base().event(
                "user_annotation",
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                1,
                (350.0, 300.0),
                "",
            )),
            [250, 0, 50],
        ),
        (
            "a wait for the GPU",
            late(base().event(
                "cuda_runtime",
                "cudaStreamSynchronize",
                1,
                (100.0, 305.0),
                "",
            )),
            [0, 300, 0],
        ),
    ];
    for (name, written, want) in cases {
        let found = written.summary(0).values.idle_causes;
        let micros = [found.input_ns, found.synchronization_ns, found.host_ns].map(|it| it / 1000);
        assert_eq!(micros, want, "{name}");
    }
}

#[test]
fn optimizers_of_one_backward_pass_end_one_step() {
    let mut written = Written::default();
    for at in [0.0, 100.0, 200.0] {
        written = written
            .event(
                "cpu_op",
                "autograd::engine::evaluate_function: MmBackward0",
                2,
                (at + 30.0, 10.0),
                "",
            )
            .event(
                "user_annotation",
                "Optimizer.step#Adam.step",
                1,
                (at + 50.0, 10.0),
                "",
            )
            .event(
                "user_annotation",
                "Optimizer.step#Adam.step",
                1,
                (at + 70.0, 10.0),
                "",
            );
    }
    let values = written.summary(0).values;
    assert_eq!(
        (values.steps, values.step_ns, values.window_ns),
        (2, 100_000, 200_000)
    );
}

#[test]
fn without_a_gpu_operators_compute() {
    let values = Written::default()
        .step(1, 0.0, 1000.0)
        .event(
            "user_annotation",
            "enumerate(DataLoader)#x",
            1,
            (0.0, 500.0),
            "",
        )
        .event("cpu_op", "aten::stack", 1, (100.0, 50.0), "")
        .event("cpu_op", "aten::linear", 1, (500.0, 200.0), "")
        .event("cpu_op", "aten::addmm", 1, (520.0, 100.0), "")
        .event("user_annotation", "gloo:all_reduce", 3, (650.0, 150.0), "")
        .event("cpu_op", "aten::other_thread", 9, (900.0, 100.0), "")
        .summary(0)
        .values;
    assert!(!values.has_gpu);
    assert_eq!(
        (values.compute_ns, values.exposed_communication_ns),
        (200_000, 100_000)
    );
    assert_eq!(
        (values.idle_causes.input_ns, values.idle_causes.host_ns),
        (500_000, 200_000)
    );
    assert_eq!(sum_of_parts(&values), values.window_ns);
    let linear = values
        .top_operators
        .iter()
        .find(|top| top.name == "aten::linear")
        .unwrap();
    assert_eq!(linear.total_ns, 100_000, "without the operator inside it");
}

#[test]
fn findings_name_the_loss() {
    let gpu = |work: f64| {
        Written::default()
            .step(1, 0.0, 1000.0)
            .kernel("gemm", 1, 0.0, (0.0, work))
    };
    let cases = [
        ("busy", gpu(990.0), vec!["healthy"]),
        (
            "loading",
            gpu(400.0)
                .event(
                    "user_annotation",
                    "enumerate(DataLoader)#x",
                    1,
                    (390.0, 550.0),
                    "",
                )
                .kernel("gemm", 2, 950.0, (960.0, 40.0)),
            vec!["input_stall"],
        ),
        (
            "collectives",
            gpu(600.0).kernel("ncclKernel_x", 2, 0.0, (600.0, 400.0)),
            vec!["exposed_communication"],
        ),
        (
            "pageable copies",
            gpu(600.0).event(
                "gpu_memcpy",
                "Memcpy HtoD (Pageable -> Device)",
                7,
                (600.0, 400.0),
                "",
            ),
            vec!["copy_pageable"],
        ),
        (
            "launches",
            (0..100_u32).fold(Written::default().step(1, 0.0, 1000.0), |written, at| {
                let start = f64::from(at) * 10.0;
                written.kernel("tiny", at + 1, start + 1.0, (start + 5.0, 5.0))
            }),
            vec!["launch_bound"],
        ),
    ];
    for (name, written, want) in cases {
        let report = report(vec![written.summary(0)]);
        assert_eq!(labels(&report), want, "{name}: {}", page(&report));
    }
}

/// Ranks whose steps of 40 ms end with a collective; `late` is how much later a rank comes, and each has a clock of its own.
fn ranks(late: &[f64], steps: u32, clock_errors: &[f64]) -> Vec<Summary> {
    let last = late.iter().copied().fold(0.0, f64::max);
    let all = late.iter().zip(clock_errors).zip(0_u32..);
    all.map(|((late, clock), rank)| {
        let mut written = Written {
            base: 1_700_000_000_000_000_000,
            ..Written::default()
        };
        for step in 0..steps {
            let start = f64::from(step) * 40_000.0 + 1_000_000.0 + clock;
            let arrives = start + 10_000.0 + late;
            let ends = start + 10_000.0 + last + 2_000.0;
            written = written
                .event(
                    "user_annotation",
                    "Optimizer.step#SGD.step",
                    1,
                    (start + 39_000.0, 900.0),
                    "",
                )
                .event("cpu_op", "aten::linear", 1, (start, 9_000.0), "")
                .event(
                    "user_annotation",
                    "gloo:all_reduce",
                    3,
                    (arrives, ends - arrives),
                    "",
                );
        }
        written.summary(rank)
    })
    .collect()
}

#[test]
fn the_slow_rank_is_named() {
    /// Its name, how late each rank comes, steps, clocks, the rank that is named.
    type Case = (
        &'static str,
        &'static [f64],
        u32,
        &'static [f64],
        Option<u32>,
    );
    let cases: [Case; 6] = [
        ("rank 1", &[0.0, 20_000.0], 9, &[0.0, 0.0], Some(1)),
        (
            "clocks 300 s apart",
            &[0.0, 20_000.0, 100.0],
            9,
            &[0.0, 3e8, -9e5],
            Some(1),
        ),
        ("all alike", &[0.0, 10.0], 9, &[0.0, 0.0], None),
        ("below 3 %", &[0.0, 1_000.0], 9, &[0.0, 0.0], None),
        ("two steps", &[0.0, 20_000.0], 3, &[0.0, 0.0], None),
        (
            "two slow ranks",
            &[0.0, 20_000.0, 20_010.0],
            9,
            &[0.0; 3],
            None,
        ),
    ];
    for (name, late, steps, clocks, want) in cases {
        let report = report(ranks(late, steps, clocks));
        let across = report.across.as_ref().unwrap();
        assert!(across.clocks.aligned, "{name}");
        let found = across.slow_rank.as_ref();
        assert_eq!(
            found.map(|slow| slow.rank),
            want,
            "{name}: {}",
            page(&report)
        );
        if let Some(slow) = found {
            assert!(
                (19_800_000..=20_000_000).contains(&slow.lost_ns),
                "{name}: {slow:?}"
            );
            assert_eq!(report.findings[0].label, Label::SlowRank, "{name}");
        }
    }
}

#[test]
fn clocks_that_cannot_be_aligned_conclude_nothing() {
    let mut all = ranks(&[0.0, 20_000.0], 9, &[0.0, 0.0]);
    // Ends that differ by up to a step.
    for (at, collective) in (0_u64..).zip(&mut all[1].collectives) {
        collective.end += at * 9_000_000;
    }
    let report = report(all);
    let across = report.across.as_ref().unwrap();
    assert!(!across.clocks.aligned);
    assert_eq!((across.slow_rank.as_ref(), across.waits.len()), (None, 0));
    assert!(
        page(&report).contains("could not be aligned"),
        "{}",
        page(&report)
    );
}

#[test]
fn counts_that_differ_use_the_common_part() {
    let mut all = ranks(&[0.0, 20_000.0], 9, &[0.0, 0.0]);
    let last = all[1].collectives.pop().unwrap();
    all[0].collectives.push(last);
    let across = report(all).across.unwrap();
    assert_eq!(
        (across.matched_collectives, across.unmatched_collectives),
        (7, 2)
    );
}

#[test]
fn times_have_three_digits() {
    let cases = [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_234, "1.23 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (21_345_000, "21.3 ms"),
        (406_800_000, "407 ms"),
        (1_240_000_000, "1.24 s"),
        (75_000_000_000, "75.0 s"),
    ];
    for (nanoseconds, want) in cases {
        assert_eq!(time(nanoseconds), want);
    }
}

proptest! {
    /// The parts of every rank add up to its window, and the causes of idle time to that, whatever was traced.
    #[test]
    fn parts_add_up(
        events in prop::collection::vec(
            (0_usize..9, 0_u32..1500, 0_u32..400, 0_u32..4, 0_u32..6), 0..60),
        marked in any::<bool>(),
    ) {
        const KINDS: [(&str, &str); 9] = [
            ("kernel", "gemm"),
            ("kernel", "ncclDevKernel_AllReduce"),
            ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
            ("cuda_runtime", "cudaLaunchKernel"),
            ("cuda_runtime", "cudaStreamSynchronize"),
            ("cpu_op", "aten::mm"),
            ("user_annotation", "enumerate(DataLoader)#x"),
            ("user_annotation", "gloo:all_reduce"),
            ("user_annotation", "Optimizer.step#x"),
        ];
        let mut written = Written::default();
        if marked {
            written = written.step(1, 100.0, 400.0).step(2, 500.0, 500.0);
        }
        // One that is always there.
        written = written.event("cpu_op", "aten::mm", 1, (0.0, 1.0), "");
        for (kind, start, duration, thread, correlation) in events {
            let (category, name) = KINDS[kind];
            let joined = format!("\"correlation\":{correlation}");
            written = written.event(category, name, thread, (f64::from(start), f64::from(duration)), &joined);
        }
        let values = written.summary(0).values;
        prop_assert_eq!(sum_of_parts(&values), values.window_ns);
        prop_assert_eq!(sum_of_causes(&values), values.idle_ns);
    }
}
