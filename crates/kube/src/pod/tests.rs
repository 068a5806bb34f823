use serde_json::{Value, json};

use super::*;

fn entry(spec: &Value, status: &Value) -> PodEntry {
    let pod: PodView = serde_json::from_value(json!({
        "metadata": {
            "name": "j-worker-1", "namespace": "n", "uid": "p1", "resourceVersion": "7",
            "labels": {
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/job-name": "j",
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": "1",
                "trainyard.dev/attempt": "3",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "other"},
                {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "u1",
                 "controller": true},
            ],
        },
        "spec": spec,
        "status": status,
    }))
    .unwrap();
    PodEntry::new(&pod, None)
}

fn containers() -> Value {
    json!({"containers": [{"name": "sidecar"}, {"name": "pytorch"}]})
}

#[test]
fn job_and_slot_of_a_pod() {
    let entry = entry(&containers(), &json!({"phase": "Running"}));
    assert_eq!((&*entry.uid, &*entry.owner, entry.version), ("p1", "u1", 7));
    assert_eq!(entry.phase, PodPhase::Running);
    assert_eq!(
        entry.labels.get("trainyard.dev/attempt").map(|a| &**a),
        Some("3")
    );
    assert_eq!(entry.grace_seconds, 30);
}

#[test]
fn the_exit_is_that_of_the_training_container() {
    let ended = |name: &str, code: i32, reason: &str| {
        json!({"name": name, "restartCount": 2,
            "state": {"terminated": {"exitCode": code, "reason": reason,
                "finishedAt": "2026-01-01T00:00:00Z"}}})
    };
    let cases = [
        (
            "the trainer's, not the sidecar's",
            json!({"phase": "Failed",
                "containerStatuses": [ended("sidecar", 0, "Completed"), ended("pytorch", 137, "OOMKilled")]}),
            Some((137, true)),
        ),
        (
            "an init container's, where the trainer never ran",
            json!({"phase": "Failed", "initContainerStatuses": [ended("init", 2, "Error")]}),
            Some((2, false)),
        ),
        (
            "the one before a restart in place",
            json!({"phase": "Running", "containerStatuses": [
                {"name": "pytorch", "restartCount": 1, "state": {"running": {}},
                 "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            Some((1, false)),
        ),
        (
            "none of an evicted pod",
            json!({"phase": "Failed", "reason": "Evicted"}),
            None,
        ),
    ];
    for (name, status, want) in cases {
        let entry = entry(&containers(), &status);
        let exit = entry.exit.map(|exit| (exit.code, exit.out_of_memory));
        assert_eq!(exit, want, "{name}");
    }
}

#[test]
fn container_ends_are_counted_across_restarts() {
    let terminated = json!({"terminated": {"exitCode": 2}});
    let (runs, waits) = (
        json!({"running": {}}),
        json!({"waiting": {"reason": "CrashLoopBackOff"}}),
    );
    let creates = json!({"waiting": {"reason": "ContainerCreating"}});
    let none = json!({});
    let cases = [
        ("being created", 0, &creates, &none, (0, false)),
        ("runs", 0, &runs, &none, (0, false)),
        ("has ended", 0, &terminated, &none, (1, false)),
        ("its kubelet pauses", 0, &waits, &terminated, (1, false)),
        ("runs again", 1, &runs, &terminated, (1, true)),
        (
            "its kubelet pauses again",
            1,
            &waits,
            &terminated,
            (2, false),
        ),
        ("has ended again", 1, &terminated, &terminated, (2, false)),
    ];
    for (name, restarts, state, last, want) in cases {
        let status = json!({"phase": "Running", "containerStatuses": [
            {"name": "sidecar", "restartCount": 7, "state": {"running": {}}},
            {"name": "pytorch", "restartCount": restarts, "state": state, "lastState": last},
        ]});
        let entry = entry(&containers(), &status);
        assert_eq!((entry.ends, entry.runs_again()), want, "{name}");
    }
}

#[test]
fn a_container_that_could_not_start_says_why() {
    let ended = |reason: &str| {
        json!({"phase": "Failed", "containerStatuses": [{"name": "pytorch", "state": {"terminated":
            {"exitCode": 128, "reason": reason, "message": "exec: \"pyhton\": executable file not found in $PATH"}}}]})
    };
    let refused = entry(&containers(), &ended("StartError")).start_error;
    let words = refused.as_deref().unwrap_or_default();
    assert!(words.starts_with("exec: \"pyhton\""), "{words}");
    assert_eq!(entry(&containers(), &ended("Error")).start_error, None);
}

#[test]
fn what_a_pending_pod_waits_for() {
    let scheduled = |status: &str, reason: &str, message: &str| json!([{"type": "PodScheduled", "status": status, "reason": reason, "message": message}]);
    let cases = [
        (
            "nobody has looked",
            json!({"phase": "Pending"}),
            Wait::Seat(String::new()),
        ),
        (
            "a gate",
            json!({"phase": "Pending", "conditions": scheduled("False", "SchedulingGated", "")}),
            Wait::Gate,
        ),
        (
            "a node",
            json!({"phase": "Pending", "conditions": scheduled("False", "Unschedulable", "0/3 nodes")}),
            Wait::Seat("0/3 nodes".to_owned()),
        ),
        (
            "its image",
            json!({"phase": "Pending", "conditions": scheduled("True", "", ""),
                "containerStatuses": [{"name": "pytorch", "state": {"waiting":
                    {"reason": "ImagePullBackOff", "message": "not found"}}}]}),
            Wait::PullFailed("not found".to_owned()),
        ),
        (
            "its containers",
            json!({"phase": "Pending", "conditions": scheduled("True", "", "")}),
            Wait::Create,
        ),
    ];
    for (name, status, want) in cases {
        assert_eq!(entry(&containers(), &status).wait, Some(want), "{name}");
    }
    assert_eq!(
        entry(&containers(), &json!({"phase": "Running"})).wait,
        None
    );
}

#[test]
fn why_the_platform_takes_it() {
    let target = |reason: &str| {
        json!({"phase": "Running",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]})
    };
    let cases = [
        (target("PreemptionByScheduler"), Some(Disruption::Preempted)),
        (target("DeletionByTaintManager"), Some(Disruption::NodeGone)),
        (target("DeletionByPodGC"), Some(Disruption::NodeGone)),
        (target("EvictionByEvictionAPI"), Some(Disruption::Evicted)),
        (
            target("TerminationByKubelet"),
            Some(Disruption::NodePressure),
        ),
        (
            json!({"phase": "Failed", "reason": "Terminated",
                "conditions": [{"type": "DisruptionTarget", "status": "True",
                    "reason": "TerminationByKubelet"}]}),
            Some(Disruption::NodeShutdown),
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            Some(Disruption::NodePressure),
        ),
        (
            json!({"phase": "Failed", "reason": "NodeLost"}),
            Some(Disruption::NodeGone),
        ),
        (json!({"phase": "Failed"}), None),
    ];
    for (status, want) in cases {
        let text = status.to_string();
        assert_eq!(entry(&containers(), &status).disruption, want, "{text}");
    }
}
