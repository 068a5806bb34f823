use trainyard_core::{job::Condition, ledger::AttemptSpans, spec::Kind};

use super::*;

fn key(name: &str) -> JobKey {
    JobKey {
        kind: Kind::PyTorch,
        namespace: "team-a".into(),
        name: name.into(),
    }
}

fn job(gpus: u32) -> Job {
    let text = format!(
        r#"{{"apiVersion":"kubeflow.org/v1","kind":"PyTorchJob","metadata":{{"name":"j"}},
            "spec":{{"pytorchReplicaSpecs":{{"Worker":{{"replicas":2,"template":{{"spec":{{"priorityClassName":"high",
            "containers":[{{"name":"pytorch","image":"i","resources":{{"limits":{{"nvidia.com/gpu":{gpus}}}}}}}]}}}}}}}}}}}}"#
    );
    let value = serde_json::from_str(&text).expect("JSON");
    trainyard_core::spec::job_from_value(&value)
        .job
        .expect("a job")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// A job that has trained for so many seconds and is closed.
fn trained(seconds: u64, began: i64) -> JobStatus {
    let mut status = JobStatus::default();
    let millis = PhaseMillis::from([(Phase::Training, seconds * 1_000)]);
    status.trainyard.attempt = 1;
    status.trainyard.ledger.began = Some(at(began));
    status.trainyard.ledger.attempts = vec![AttemptSpans { attempt: 1, millis }];
    status
}

fn put(live: &Live, name: &str, gpus: u32, status: &JobStatus) {
    let (key, job) = (key(name), job(gpus));
    let info = JobInfo::of(&key, |_| None, &job);
    live.put(&key, info, &job, status);
}

fn text(live: &Live) -> String {
    let mut registry = Registry::with_prefix("trainyard");
    live.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    text
}

fn value(live: &Live, start: &str) -> Option<f64> {
    let text = text(live);
    let found = text.lines().find(|line| line.starts_with(start))?;
    found.rsplit(' ').next()?.parse().ok()
}

const SUM: &str = "trainyard_gpu_seconds_total{job_namespace=\"team-a\",phase=\"training\"}";

#[tokio::test]
async fn sums_begin_at_zero_and_never_go_back() {
    let live = Live::default();
    put(&live, "a", 4, &trained(1_000, 1));
    assert_eq!(value(&live, SUM), None);
    put(&live, "a", 4, &trained(1_010, 1));
    assert_eq!(value(&live, SUM), Some(80.0));
    // A stall is noticed late: the ledger moves time away from training.
    put(&live, "a", 4, &trained(1_005, 1));
    assert_eq!(value(&live, SUM), Some(80.0));
    live.forget(&key("a"));
    assert_eq!(value(&live, SUM), Some(80.0));
    // The same name again is another job.
    put(&live, "a", 4, &trained(7, 2));
    put(&live, "a", 4, &trained(8, 2));
    assert_eq!(value(&live, SUM), Some(88.0));
}

#[tokio::test]
async fn sums_keep_a_job_that_was_replaced_unseen() {
    let live = Live::default();
    put(&live, "a", 4, &trained(1_000, 1));
    put(&live, "a", 4, &trained(1_010, 1));
    // Deleted and created again between two passes: nobody has forgotten it.
    put(&live, "a", 4, &trained(7, 2));
    assert_eq!(value(&live, SUM), Some(80.0));
    put(&live, "a", 4, &trained(8, 2));
    assert_eq!(value(&live, SUM), Some(88.0));
}

#[tokio::test]
async fn sums_of_a_job_that_shrinks_stay() {
    let live = Live::default();
    put(&live, "a", 4, &trained(1_000, 1));
    put(&live, "a", 4, &trained(1_010, 1));
    put(&live, "a", 1, &trained(1_010, 1));
    assert_eq!(value(&live, SUM), Some(80.0));
    put(&live, "a", 1, &trained(1_020, 1));
    assert_eq!(value(&live, SUM), Some(100.0));
    put(&live, "a", 4, &trained(1_020, 1));
    assert_eq!(value(&live, SUM), Some(100.0));
}

#[tokio::test]
async fn sums_of_gone_namespaces_are_bounded() {
    let live = Live::default();
    let all = NAMESPACES_MAX + 3;
    for number in 0..all {
        let key = JobKey {
            namespace: format!("n{number}").into(),
            ..key("a")
        };
        let job = job(1);
        for seconds in [1, 2] {
            let info = JobInfo::of(&key, |_| None, &job);
            live.put(&key, info, &job, &trained(seconds, 1));
        }
        live.forget(&key);
    }
    let lines = |text: &str| text.matches("trainyard_gpu_seconds_total{").count();
    assert_eq!(lines(&text(&live)), NAMESPACES_MAX + 1);
    let rest = "trainyard_gpu_seconds_total{job_namespace=\"\"";
    assert_eq!(value(&live, rest), Some(6.0));
}

#[tokio::test]
async fn a_job_ended_by_another_operator_is_not_shown() {
    let live = Live::default();
    let mut status = JobStatus {
        conditions: vec![Condition {
            kind: ConditionType::Succeeded,
            status: ConditionStatus::True,
            reason: String::new(),
            message: String::new(),
            last_update_time: at(1),
            last_transition_time: at(1),
        }],
        ..JobStatus::default()
    };
    put(&live, "a", 1, &status);
    assert_eq!(value(&live, "trainyard_job_attempt"), None);
    assert_eq!(value(&live, "trainyard_metrics_jobs_left_out"), Some(0.0));
    status.conditions[0].status = ConditionStatus::False;
    put(&live, "a", 1, &status);
    assert!(value(&live, "trainyard_job_attempt").is_some());
}

#[tokio::test]
async fn a_job_has_its_own_families() {
    let live = Live::default();
    put(&live, "a", 4, &trained(90, 1));
    let text = text(&live);
    let labels = "kind=\"PyTorchJob\",job_namespace=\"team-a\",job_name=\"a\"";
    for line in [
        format!("trainyard_job_phase_seconds_total{{{labels},phase=\"training\"}} 90.0"),
        format!("trainyard_job_accelerators{{{labels}}} 8.0"),
        format!("trainyard_job_restarts_total{{{labels},account=\"user\"}} 0.0"),
        format!("trainyard_job_info{{{labels},team=\"team-a\",queue=\"\",priority=\"high\"}} 1.0"),
        "trainyard_metrics_jobs_left_out 0.0".to_owned(),
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "{line} is not in\n{text}"
        );
    }
    live.forget(&key("a"));
    assert_eq!(value(&live, "trainyard_job_accelerators"), None);
}

#[tokio::test]
async fn the_largest_jobs_are_shown() {
    let live = Live::default();
    for number in 0..=JOBS_MAX {
        let gpus = u32::from(number != 7);
        put(&live, &format!("job-{number}"), gpus, &trained(1, 1));
    }
    assert_eq!(value(&live, "trainyard_metrics_jobs_left_out"), Some(1.0));
    let text = text(&live);
    assert!(
        !text.contains("job_name=\"job-7\""),
        "the smallest is left out"
    );
    assert!(text.contains("job_name=\"job-8\""));
}

#[tokio::test]
async fn an_ended_job_is_shown_for_a_while() {
    let live = Live::default();
    let mut status = trained(5, 1);
    status.trainyard.ledger.ended = Some(clock::now());
    put(&live, "a", 1, &status);
    assert!(value(&live, "trainyard_job_attempt").is_some());
    status.trainyard.ledger.ended = Some(clock::now() - KEPT_FOR);
    put(&live, "a", 1, &status);
    assert_eq!(value(&live, "trainyard_job_attempt"), None);
}
