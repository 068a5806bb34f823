//! A violation is reported with the fewest faults that cause it.

use jiff::Timestamp;
use trainyard_core::{
    job::{Decision, Observed, decide},
    spec::Job,
};
use trainyard_sim::{RunOptions, run, shrink};

/// Right, but for a pod that someone deletes: then it asks to be woken in the past.
fn afraid_of_deletions(job: &Job, observed: &Observed, now: Timestamp) -> Decision {
    let mut decision = decide(job, observed, now);
    if observed.pods.iter().any(|pod| pod.deleted_at.is_some()) {
        decision.wake_at = Some(now);
    }
    decision
}

#[test]
fn a_run_shrinks_to_what_breaks_it() {
    let mut shrunk_runs = 0;
    for seed in 0..30 {
        let outcome = run(seed, afraid_of_deletions, &RunOptions::default());
        let Some((life, violation)) = outcome.violation else {
            continue;
        };
        let shrunk = shrink(seed, life, violation.invariant, afraid_of_deletions)
            .expect("what broke once breaks again");
        assert_eq!(shrunk.violation.invariant, violation.invariant);
        let kept = shrunk
            .mask
            .faults
            .as_ref()
            .map_or(0, std::collections::BTreeSet::len);
        assert!(
            kept <= 4,
            "seed {seed}: {kept} of {} faults are left",
            shrunk.planned
        );
        let masked = RunOptions {
            only: Some((life, shrunk.mask.clone())),
            ..RunOptions::default()
        };
        let again = run(seed, afraid_of_deletions, &masked);
        assert_eq!(
            again.violation.map(|(_, violation)| violation),
            Some(shrunk.violation),
            "seed {seed}: the replay breaks in the same way"
        );
        shrunk_runs += 1;
    }
    assert!(shrunk_runs > 10, "only {shrunk_runs} runs broke");
}
