use serde_json::{Value, json};

use super::*;
use crate::{
    job::{Condition, RoleStatus, testing::at},
    spec::{RuntimeName, train_job_from_value},
};

fn train(suspend: bool) -> Job {
    let object = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "t", "namespace": "n", "uid": "u"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": suspend, "trainer": {"numNodes": 2}},
    });
    let runtime = RuntimeName::of(&object).and_then(|name| name.built_in());
    train_job_from_value(&object, runtime.as_ref()).job.unwrap()
}

fn with(conditions: &[(ConditionType, ConditionStatus)]) -> JobStatus {
    let conditions = conditions.iter().map(|(kind, status)| Condition {
        kind: *kind,
        status: *status,
        reason: format!("TrainJob{}", kind.name()),
        message: "m".to_owned(),
        last_update_time: at(1),
        last_transition_time: at(1),
    });
    let mut status = JobStatus {
        conditions: conditions.collect(),
        start_time: Some(at(0)),
        ..JobStatus::default()
    };
    status.trainyard.attempt = 1;
    status
}

fn counted(mut status: JobStatus, active: u32, succeeded: u32) -> JobStatus {
    let counts = RoleStatus {
        active,
        succeeded,
        ..RoleStatus::default()
    };
    status.replica_statuses.insert(Role::Node, counts);
    status
}

/// Conditions as `type=status/reason`, then `ready succeeded failed active suspended` of the only job.
fn shown(job: &Job, status: &JobStatus) -> String {
    let stored = stored_train(Some(job), status, &Value::Null);
    let conditions = stored["conditions"].as_array().into_iter().flatten();
    let mut words: Vec<String> = conditions
        .map(|it| {
            let text = |key: &str| it[key].as_str().unwrap().to_owned();
            format!("{}={}/{}", text("type"), text("status"), text("reason"))
        })
        .collect();
    let counts = &stored["jobsStatus"][0];
    words.push(
        ["ready", "succeeded", "failed", "active", "suspended"]
            .map(|key| counts[key].to_string())
            .join(" "),
    );
    words.join(" ")
}

#[test]
fn only_three_conditions_are_outside() {
    use ConditionStatus::{False, True};
    use ConditionType::{Created, Failed, Restarting, Running, Succeeded, Suspended};
    let mut failed = counted(with(&[(Created, True), (Failed, True)]), 0, 0);
    failed.trainyard.attempt = 3;
    failed.trainyard.failed_by = Some(FailedBy::BudgetSpent);
    failed.trainyard.last_failure = Some(
        serde_json::from_value(
            json!({"attempt": 2, "pod": "t-node-0-1", "account": "user", "message": "m"}),
        )
        .unwrap(),
    );
    let mut late = with(&[(Created, True), (Failed, True)]);
    late.trainyard.failed_by = Some(FailedBy::DeadlineExceeded);
    let cases = vec![
        (false, counted(with(&[(Created, True)]), 0, 0), "0 0 0 0 0"),
        (
            false,
            counted(with(&[(Created, True), (Running, True)]), 1, 0),
            "0 0 0 1 0",
        ),
        (
            false,
            counted(with(&[(Created, True), (Running, True)]), 2, 0),
            "1 0 0 1 0",
        ),
        (
            false,
            counted(with(&[(Created, True), (Running, True)]), 1, 1),
            "1 0 0 1 0",
        ),
        (
            false,
            counted(with(&[(Created, True), (Restarting, True)]), 0, 0),
            "0 0 0 0 0",
        ),
        (
            true,
            counted(
                with(&[(Created, True), (Running, False), (Suspended, True)]),
                0,
                0,
            ),
            "Suspended=True/Suspended 0 0 0 0 1",
        ),
        (
            false,
            counted(
                with(&[(Created, True), (Suspended, False), (Running, True)]),
                2,
                0,
            ),
            "Suspended=False/Resumed 1 0 0 1 0",
        ),
        (
            false,
            counted(
                with(&[(Created, True), (Running, False), (Succeeded, True)]),
                0,
                2,
            ),
            "Complete=True/AllJobsCompleted 0 1 0 0 0",
        ),
        (false, failed, "Failed=True/ReachedMaxRestarts 0 0 1 0 0"),
        (false, late, "Failed=True/DeadlineExceeded 0 0 0 0 0"),
    ];
    for (suspend, status, want) in cases {
        assert_eq!(shown(&train(suspend), &status), want, "{status:?}");
    }
}

#[test]
fn what_is_stored_is_read_again() {
    let status = counted(
        with(&[
            (ConditionType::Created, ConditionStatus::True),
            (ConditionType::Running, ConditionStatus::True),
        ]),
        2,
        0,
    );
    let stored = stored_train(Some(&train(false)), &status, &Value::Null);
    assert_eq!(
        stored.get("conditions"),
        None,
        "the SDK shows it as running"
    );
    assert_eq!(stored["trainyard"]["conditions"][1]["type"], "Running");
    let read = read_train(&stored).unwrap();
    assert_eq!(read, status);
    // Nothing changes where nothing is decided.
    assert_eq!(stored_train(Some(&train(false)), &read, &stored), stored);
}

#[test]
fn fields_and_conditions_of_others_stay() {
    let others = json!({
        "conditions": [
            {"type": "Approved", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"},
            {"type": "Suspended", "status": "True", "reason": "Suspended", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"},
        ],
        "trainerStatus": {"progressPercentage": 7},
        "trainyard": {"attempt": 1, "later": {"a": 1}},
    });
    let status = read_train(&others).unwrap();
    let stored = stored_train(None, &status, &others);
    assert_eq!(stored["trainerStatus"], others["trainerStatus"]);
    assert_eq!(stored["trainyard"]["later"], json!({"a": 1}));
    assert_eq!(stored["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(stored["conditions"][0]["type"], "Approved");
    assert_eq!(stored.get("jobsStatus"), None, "its counts are not known");
}

#[test]
fn job_that_another_controller_ended_has_ended() {
    for (kind, want) in [
        ("Complete", ConditionType::Succeeded),
        ("Failed", ConditionType::Failed),
    ] {
        let stored = json!({"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2027-01-15T08:00:00Z"}]});
        let status = read_train(&stored).unwrap();
        assert!(conditions::holds(&status.conditions, want), "{kind}");
    }
    let running = json!({"conditions": [{"type": "Complete", "status": "False"}]});
    assert!(read_train(&running).unwrap().is_new());
    assert!(read_train(&Value::Null).unwrap().is_new());
}

#[test]
fn record_without_a_meaning_is_unreadable() {
    for stored in [
        json!({"trainyard": 3}),
        json!({"trainyard": {"attempt": "many"}}),
        json!({"trainyard": {"conditions": 3}}),
    ] {
        assert!(read_train(&stored).is_err(), "{stored}");
    }
}
