use super::*;
use crate::{
    chronicle::{PodState, What},
    ledger::Phase,
    view::testing::{chronicle, failed, seated, span, time, worker},
};

#[test]
fn trace_has_a_track_for_job_and_pod() {
    let pod = |at: i64, state: PodState| {
        let (attempt, slot) = (1, worker(0));
        (
            at,
            What::Pod {
                attempt,
                slot,
                state,
            },
        )
    };
    let history = chronicle([
        (1_000, What::Began),
        seated(1_000, 1, 0, 8, "a"),
        pod(1_000, PodState::Running),
        span(1_000, 5_000, 1, Phase::Training),
        pod(5_000, PodState::Failed),
        failed(5_000),
        (
            5_000,
            What::Phase {
                attempt: 2,
                phase: Phase::Restarting,
            },
        ),
    ]);
    let trace = trace(&history, "j", time(6_000));
    let short: Vec<(&str, &str, u32, i64, Option<i64>)> = trace
        .trace_events
        .iter()
        .map(|it| (it.name.as_str(), it.ph, it.tid, it.ts, it.dur))
        .collect();
    let want = [
        ("process_name", "M", 0, 0, None),
        ("thread_name", "M", 0, 0, None),
        ("training", "X", 0, 1_000_000, Some(4_000_000)),
        ("restarting", "X", 0, 5_000_000, Some(1_000_000)),
        ("attempt 1 failed", "i", 0, 5_000_000, None),
        ("thread_name", "M", 1, 0, None),
        ("running", "X", 1, 1_000_000, Some(4_000_000)),
        ("Worker 0 failed", "i", 1, 5_000_000, None),
    ];
    assert_eq!(short, want);
    let json = serde_json::to_value(&trace).unwrap();
    assert_eq!(json["traceEvents"][6]["args"]["node"], "a");
    assert_eq!(json["displayTimeUnit"], "ms");
}
