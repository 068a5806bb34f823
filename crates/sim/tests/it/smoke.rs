//! The decider of core survives a few thousand seeds, and every path of the world is taken.

use trainyard_core::job::decide;
use trainyard_sim::{Hunt, MIN_EVENTS, RunOptions, TraceLevel, hunt, run};

#[test]
fn two_thousand_seeds_break_nothing() {
    let plan = Hunt {
        seeds: 0..2_000,
        threads: 2,
        twice_every: 50,
        keep_going: false,
    };
    let summary = hunt(&plan, decide, |_| {});
    if let Some(found) = summary.found() {
        panic!("seed {} breaks {}", found.seed, found.violation);
    }
    assert!(
        summary.min_events >= MIN_EVENTS,
        "a run had {} events",
        summary.min_events
    );
    assert_eq!(summary.coverage.missing(), [""; 0], "never met");
}

#[test]
fn trace_is_deterministic() {
    let options = RunOptions {
        trace_level: TraceLevel::Lines,
        only: None,
    };
    for seed in 0..20 {
        let (first, second) = (run(seed, decide, &options), run(seed, decide, &options));
        assert!(!first.lines.is_empty());
        assert_eq!(first.lines, second.lines, "seed {seed}");
        assert_eq!(first.digest, second.digest, "seed {seed}");
    }
}
