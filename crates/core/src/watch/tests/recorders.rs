//! What Flight Recorders and NCCL's monitor add: dumps of real ranks, and a watch that gets them.

use std::time::Duration;

use super::{
    super::{Collective, Finding, Gpu, ProcessState, Signal, Stack, Usage, Watch, rank::Rank, ras},
    impatient, millis, secs,
    world::step_of,
};
use crate::diagnose::{Confidence, Dump};

const SLEEP: [&[u8]; 2] = [
    include_bytes!("../../../../../testdata/flight/sleep_trace_0"),
    include_bytes!("../../../../../testdata/flight/sleep_trace_1"),
];
const KERNEL: [&[u8]; 2] = [
    include_bytes!("../../../../../testdata/flight/kernel_trace_0"),
    include_bytes!("../../../../../testdata/flight/kernel_trace_1"),
];
const RAS: &str = "#0-0 (8fec329cd3073db4) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  \
    Rank 0 has launched up to operation 41 -- GPU 0\n  Rank 1 has launched up to operation 40 -- GPU 0\n";

fn recorded(dumps: [&[u8]; 2]) -> Vec<(u32, Collective)> {
    let all = (0..).zip(dumps).flat_map(|(rank, bytes)| {
        let dump = Dump::read(&format!("trace_{rank}"), bytes).unwrap();
        Collective::of_dump(&dump)
            .into_iter()
            .map(move |began| (rank, began))
    });
    all.collect()
}

/// Two ranks that took 40 steps of 0.1 s. Then rank 0 spins at line 69, which is not known to be a collective. Rank 1 does so, too,
/// or sleeps at line 50. What recorders show arrives `after` the silence began.
fn found(
    sleeps: bool,
    recorded: &[(u32, Collective)],
    after: Duration,
) -> Option<(Duration, Finding)> {
    let settings = super::super::Settings {
        hang_after: secs(30),
        ..impatient()
    };
    let mut watch = Watch::begin(settings, 2, Duration::ZERO);
    watch.look(Duration::ZERO);
    for step in 0..40 {
        watch.hear(millis(100 * step), 0, step_of(step));
    }
    let began = millis(3_900);
    let mut given = false;
    for tenth in 40..400_u64 {
        let now = millis(100 * tenth);
        if !given && now >= began + after {
            given = true;
            for (rank, began) in recorded {
                watch.hear(now, *rank, Signal::Collective(began.clone()));
            }
        }
        let outlook = watch.look(now);
        if let Some(finding) = outlook.findings.into_iter().find(|finding| finding.act) {
            return Some((now.saturating_sub(began), finding));
        }
        for rank in (0..2).filter(|_| !outlook.ask.is_empty()) {
            let stands = sleeps && rank == 1;
            let usage = Usage {
                cpu: if stands { Duration::ZERO } else { now },
                io_bytes: 0,
                network_bytes: None,
                state: if stands {
                    ProcessState::Sleeping
                } else {
                    ProcessState::Running
                },
                wait_channel: None,
            };
            let line = if stands { 50 } else { 69 };
            let stack = Stack {
                digest: line,
                place: Some(format!("train.py:{line}")),
                in_collective: false,
            };
            watch.hear(now, rank, Signal::Usage(usage));
            watch.hear(now, rank, Signal::Stack(stack));
        }
    }
    None
}

#[test]
fn recorders_name_the_rank() {
    let sleep = "no step for 2.0 s: rank 1 stands at `train.py:50`; 1 other rank waits in a collective at `train.py:69`; \
        rank 1 has not begun collective 41 (all_reduce of 1024 elements in group `0 default_pg`)";
    let kernel = "no step for 2.0 s: rank 1 holds up collective 41; 1 other rank waits in a collective at `train.py:69`; \
        the GPU of rank 1 has not begun collective 41 (all_reduce of 1024 elements in group `0 default_pg`)";
    let ras = "no step for 2.0 s: rank 1 stands at `train.py:50`; 1 other rank waits in a collective at `train.py:69`; \
        rank 1 has not begun collective 41 (AllReduce in group `NCCL 8fec329cd3`)";
    let cases = [
        (true, recorded(SLEEP), sleep),
        (false, recorded(KERNEL), kernel),
        (true, ras::collectives(RAS.as_bytes(), 2), ras),
    ];
    for (sleeps, recorded, want) in cases {
        let (after, finding) = found(sleeps, &recorded, millis(1_500)).unwrap();
        assert_eq!(finding.sentence(), want);
        assert_eq!(
            (finding.confidence, &finding.ranks),
            (Confidence::High, &vec![1])
        );
        assert!(after <= millis(2_500), "{after:?}");
    }
    // A dump takes some seconds.
    let (after, finding) = found(true, &recorded(SLEEP), secs(6)).unwrap();
    assert!((secs(6)..=secs(7)).contains(&after), "{after:?}");
    assert_eq!(finding.ranks, [1]);
}

#[test]
fn without_recorders_spinning_ranks_wait() {
    for sleeps in [true, false] {
        let found = found(sleeps, &[], Duration::ZERO);
        assert!(
            found.is_none_or(|(after, _)| after >= secs(30)),
            "sleeps: {sleeps}"
        );
    }
}

#[test]
fn power_is_motion_where_training_draws_much() {
    // Milliwatts in training and in the silence, of 700 W.
    let cases = [
        ("computes on", 600_000, 500_000, true),
        ("waits", 600_000, 250_000, false),
        ("light training", 125_000, 122_000, false),
    ];
    for (what, trains, silent, moves) in cases {
        let gpu = |milliwatts| Gpu {
            milliwatts,
            limit_milliwatts: 700_000,
        };
        let mut rank = Rank::default();
        rank.take_gpu(1, secs(1), gpu(trains), false);
        let usage = |at: u64| Usage {
            cpu: secs(at),
            io_bytes: 0,
            network_bytes: Some(at * 1_000),
            state: ProcessState::Running,
            wait_channel: None,
        };
        for at in 2..12 {
            rank.take_usage(2, secs(at), usage(at));
            rank.take_gpu(2, secs(at), gpu(silent), true);
        }
        // A little traffic is no motion.
        assert_eq!(!rank.seen(2).is_still(true, secs(5), 3), moves, "{what}");
    }
}
