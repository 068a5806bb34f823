//! Each invariant is broken once.

use serde_json::json;

use super::*;
use crate::plan::Shape;

fn plan(shape: Shape, outcome: Outcome, placed: bool) -> Plan {
    Plan {
        shape,
        outcome,
        placed,
        ..Plan::whole_cluster(2)
    }
}

/// A job in `attempt` with the accounts in the order of [`ACCOUNTS`].
fn job(attempt: u64, spent: [u64; 4], condition: &str) -> Value {
    json!({"status": {
        "conditions": [{"type": condition, "status": "True"}],
        "completionTime": "2026-01-01T00:00:00Z",
        "trainyard": {"attempt": attempt, "spent": {"user": spent[0], "platform": spent[1],
            "infrastructure": spent[2], "preemption": spent[3]}},
    }})
}

#[test]
fn ends() {
    use Outcome::{Deleted, Exhausts, Expires, Permanent, Recovers, Resumes, Succeeds};
    let (gang, alone) = (Shape::Jax, Shape::Tf);
    let cases = [
        ("plain", gang, Succeeds, false, 1, [0; 4], "Succeeded", true),
        (
            "wrong end",
            gang,
            Succeeds,
            false,
            1,
            [0; 4],
            "Failed",
            false,
        ),
        (
            "a node paid",
            gang,
            Succeeds,
            false,
            2,
            [0, 0, 1, 0],
            "Succeeded",
            true,
        ),
        (
            "an attempt nobody paid",
            gang,
            Succeeds,
            false,
            2,
            [0; 4],
            "Succeeded",
            false,
        ),
        (
            "the same of a placed gang",
            gang,
            Succeeds,
            true,
            2,
            [0; 4],
            "Succeeded",
            true,
        ),
        (
            "a lost attempt",
            gang,
            Succeeds,
            true,
            1,
            [0, 0, 1, 0],
            "Succeeded",
            false,
        ),
        (
            "recovered",
            gang,
            Recovers(2),
            false,
            3,
            [2, 0, 0, 0],
            "Succeeded",
            true,
        ),
        (
            "a lost failure",
            gang,
            Recovers(2),
            false,
            2,
            [1, 0, 0, 0],
            "Succeeded",
            false,
        ),
        (
            "at its limit",
            gang,
            Exhausts(3),
            false,
            3,
            [3, 0, 0, 0],
            "Failed",
            true,
        ),
        (
            "at its limit, a node too",
            gang,
            Exhausts(3),
            false,
            5,
            [3, 0, 2, 0],
            "Failed",
            true,
        ),
        (
            "one attempt more",
            gang,
            Exhausts(3),
            false,
            4,
            [3, 0, 0, 0],
            "Failed",
            false,
        ),
        (
            "pods restart alone",
            alone,
            Recovers(2),
            false,
            1,
            [2, 0, 3, 0],
            "Succeeded",
            true,
        ),
        (
            "pods restart alone to the limit",
            alone,
            Exhausts(1),
            false,
            1,
            [1, 0, 0, 0],
            "Failed",
            true,
        ),
        (
            "an attempt of a whole job",
            alone,
            Recovers(2),
            false,
            2,
            [2, 0, 0, 0],
            "Succeeded",
            false,
        ),
        (
            "permanent",
            gang,
            Permanent,
            false,
            1,
            [0; 4],
            "Failed",
            true,
        ),
        (
            "resumed",
            gang,
            Resumes,
            false,
            2,
            [0; 4],
            "Succeeded",
            true,
        ),
        (
            "resumed in its old attempt",
            gang,
            Resumes,
            false,
            1,
            [0; 4],
            "Succeeded",
            false,
        ),
        ("expired", gang, Expires, false, 1, [0; 4], "Failed", true),
        (
            "never ends",
            gang,
            Deleted,
            false,
            1,
            [0; 4],
            "Succeeded",
            false,
        ),
    ];
    for (name, shape, outcome, placed, attempt, spent, end, fine) in cases {
        let plan = plan(shape, outcome, placed);
        let got = look(&plan, None, &job(attempt, spent, end));
        assert_eq!(got.is_ok(), fine, "{name}: {got:?}");
    }
}

#[test]
fn surplus_user_failures_are_seen_at_once() {
    let plan = plan(Shape::Jax, Outcome::Recovers(1), true);
    assert!(look(&plan, None, &job(2, [1, 0, 0, 0], "Running")).is_ok());
    assert!(look(&plan, None, &job(3, [2, 0, 0, 0], "Running")).is_err());
}

#[test]
fn what_only_grows_does() {
    let plan = plan(Shape::Jax, Outcome::Recovers(2), true);
    let before = look(&plan, None, &job(3, [1, 0, 1, 0], "Running")).unwrap();
    let cases = [
        ("the same", job(3, [1, 0, 1, 0], "Running"), true),
        ("attempt back", job(2, [1, 0, 1, 0], "Running"), false),
        ("user back", job(3, [0, 0, 1, 0], "Running"), false),
        ("nodes back", job(3, [1, 0, 0, 0], "Running"), false),
        ("an empty status", json!({"status": {}}), false),
    ];
    for (name, job, fine) in cases {
        assert_eq!(look(&plan, Some(&before), &job).is_ok(), fine, "{name}");
    }
}

#[test]
fn an_end_is_final() {
    let plan = plan(Shape::Jax, Outcome::Succeeds, true);
    let ended = job(1, [0; 4], "Succeeded");
    let before = look(&plan, None, &ended).unwrap();
    assert!(look(&plan, Some(&before), &ended).is_ok());
    assert!(look(&plan, Some(&before), &job(1, [0; 4], "Running")).is_err());
    assert!(look(&plan, Some(&before), &job(2, [0; 4], "Succeeded")).is_err());
    let mut later = ended;
    later["status"]["completionTime"] = json!("2026-01-01T00:00:09Z");
    assert!(look(&plan, Some(&before), &later).is_err());
}

fn pod(uid: &str, role: &str, attempt: u32, phase: &str) -> Value {
    json!({
        "metadata": {"name": uid, "uid": uid, "labels": {
            "training.kubeflow.org/job-name": "j", "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": "0", "trainyard.dev/attempt": attempt.to_string()}},
        "status": {"phase": phase},
    })
}

#[test]
fn pods() {
    let attempts = BTreeMap::from([("j".to_owned(), 2)]);
    let mut leaving = pod("old", "worker", 1, "Running");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let worker = pod("new", "worker", 2, "Running");
    let cases = [
        (
            "two roles",
            vec![worker.clone(), pod("m", "master", 2, "Running")],
            true,
        ),
        ("one leaves", vec![leaving, worker.clone()], true),
        (
            "one has ended",
            vec![pod("old", "worker", 2, "Failed"), worker.clone()],
            true,
        ),
        (
            "two at once",
            vec![pod("old", "worker", 2, "Pending"), worker],
            false,
        ),
        (
            "before the status",
            vec![pod("soon", "worker", 3, "Pending")],
            false,
        ),
    ];
    for (name, pods, fine) in cases {
        let got = look_at_pods(&pods, &attempts);
        assert_eq!(got.is_ok(), fine, "{name}: {got:?}");
    }
    let pods = [
        pod("old", "worker", 1, "Running"),
        pod("new", "worker", 2, "Running"),
    ];
    assert_eq!(
        stale_pods(&pods, &attempts),
        BTreeSet::from(["old".to_owned()])
    );
}
