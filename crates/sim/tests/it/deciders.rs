//! Deciders that are plainly wrong are caught at once.

use jiff::Timestamp;
use trainyard_core::{
    job::{Action, Decision, Observed},
    reason::Reason,
    spec::Job,
};
use trainyard_sim::{Decide, RunOptions, run};

fn idle(_: &Job, observed: &Observed, _: Timestamp) -> Decision {
    Decision {
        actions: Vec::new(),
        status: observed.status.clone(),
        events: Vec::new(),
        reasons: vec![Reason::AllPodsExist { pods: 1 }],
        wake_at: None,
        gang: None,
    }
}

fn mute(job: &Job, observed: &Observed, now: Timestamp) -> Decision {
    Decision {
        reasons: Vec::new(),
        ..idle(job, observed, now)
    }
}

fn eager(job: &Job, observed: &Observed, now: Timestamp) -> Decision {
    let missing = job
        .slots()
        .filter(|slot| !observed.pods.iter().any(|pod| pod.slot == *slot));
    Decision {
        actions: missing
            .map(|slot| Action::CreatePod {
                slot,
                attempt: 0,
                seat: trainyard_core::job::Seat::Open,
                waits: false,
            })
            .collect(),
        ..idle(job, observed, now)
    }
}

fn restless(job: &Job, observed: &Observed, now: Timestamp) -> Decision {
    Decision {
        wake_at: Some(now),
        ..idle(job, observed, now)
    }
}

#[test]
fn wrong_deciders_are_caught() {
    let cases: &[(&str, Decide, &[&str])] = &[
        ("mute", mute, &["every pass gives a reason"]),
        (
            "idle",
            idle,
            &["every job ends or reports what it waits for"],
        ),
        ("restless", restless, &["a wake-up is in the future"]),
        (
            "eager",
            eager,
            &[
                "no pods while suspended",
                "another controller's job is never touched",
            ],
        ),
    ];
    for (name, decide, want) in cases {
        let mut caught: Vec<&str> = (0..200)
            .filter_map(|seed| run(seed, *decide, &RunOptions::default()).violation)
            .map(|(_, violation)| violation.invariant)
            .collect();
        caught.sort_unstable();
        caught.dedup();
        for invariant in *want {
            assert!(caught.contains(invariant), "{name} is caught by {caught:?}");
        }
    }
}
