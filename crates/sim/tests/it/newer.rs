//! Another version of the operator, and other controllers, write into the status between passes.
#![expect(clippy::unwrap_used, reason = "a test stops at what it cannot read")]

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_core::{
    job::{Decision, JobStatus, Observed, decide, read_status},
    spec::Job,
};
use trainyard_sim::{Hunt, hunt};

/// Where something is added that this version does not know.
const PLACES: [&str; 5] = [
    "",
    "/trainyard",
    "/trainyard/spent",
    "/trainyard/ledger",
    "/replicaStatuses",
];
const KEY: &str = "fromTheFuture";

fn extra() -> Value {
    json!({"since": "0.2.0", "values": [1, null, {"a": true}]})
}

fn foreign() -> Value {
    json!({"type": "PowerCapped", "status": "True", "observedGeneration": 3})
}

/// The status with what a newer version adds.
fn extended(status: &JobStatus) -> JobStatus {
    let mut stored = serde_json::to_value(status).unwrap();
    for place in PLACES {
        if let Some(fields) = stored.pointer_mut(place).and_then(Value::as_object_mut) {
            fields.insert(KEY.to_owned(), extra());
        }
    }
    if let Some(first) = stored.pointer_mut("/conditions/0") {
        first[KEY] = extra();
    }
    stored["conditions"]
        .as_array_mut()
        .unwrap()
        .insert(1, foreign());
    let read = read_status(&stored).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    read
}

/// Decides; right after the first write of a job another version adds something, and from then on it must stay.
fn decide_beside_a_newer_version(job: &Job, observed: &Observed, now: Timestamp) -> Decision {
    let mut decision = decide(job, observed, now);
    if observed.status.is_new() {
        if !decision.status.is_new() {
            decision.status = extended(&decision.status);
        }
        return decision;
    }
    let after = serde_json::to_value(&decision.status).unwrap();
    for place in ["", "/trainyard", "/trainyard/spent", "/trainyard/ledger"] {
        let kept = after.pointer(place).and_then(|it| it.get(KEY));
        assert_eq!(kept, Some(&extra()), "{place}: {after}");
    }
    let conditions = after["conditions"].as_array().unwrap();
    let kept = conditions.iter().filter(|it| **it == foreign()).count();
    assert_eq!(kept, 1, "{after}");
    if conditions.len() > 2 {
        assert_ne!(
            conditions.last(),
            Some(&foreign()),
            "the state that users see is ours"
        );
    }
    // What is stored and read again is what was decided.
    let again = read_status(&after).unwrap();
    assert_eq!(again.conditions, decision.status.conditions);
    assert_eq!(again.trainyard, decision.status.trainyard);
    decision
}

#[test]
fn what_a_newer_version_wrote_stays_for_life() {
    let plan = Hunt {
        seeds: 0..100,
        threads: 2,
        twice_every: 50,
        keep_going: false,
    };
    let summary = hunt(&plan, decide_beside_a_newer_version, |_| {});
    if let Some(found) = summary.found() {
        panic!("seed {} breaks {}", found.seed, found.violation);
    }
}
