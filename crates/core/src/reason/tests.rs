//! Code, parameters and sentence of every reason agree, and the status keeps all three.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::job::{JobStatus, testing::at};

/// One reason of the next kind, so that this does not compile while a kind is left out.
fn after(reason: &Reason) -> Option<Reason> {
    let text = |text: &str| text.to_owned();
    Some(match reason {
        Reason::ManagedElsewhere { .. } => Reason::OldView {
            version: 7,
            decided_on: 9,
        },
        Reason::OldView { .. } => Reason::OldStatus {
            attempt: 2,
            pods_attempt: 3,
        },
        Reason::OldStatus { .. } => Reason::Suspended { terminating: 4 },
        Reason::Suspended { .. } => Reason::RestartingInPlace {
            attempt: 2,
            phase: text("stopping: 3 of 4 members have stopped"),
        },
        Reason::RestartingInPlace { .. } => Reason::HeldOnFailure {
            attempt: 2,
            until: at(60),
            held: text("4 pods with 8 GPUs"),
            why: text("pod `j-worker-0`: it ended with exit code 1"),
        },
        Reason::HeldOnFailure { .. } => Reason::OldPods {
            attempt: 2,
            count: 3,
            first: text("j-worker-0"),
        },
        Reason::OldPods { .. } => Reason::NamesHeld {
            count: 3,
            first: text("j-worker-0"),
        },
        Reason::NamesHeld { .. } => Reason::QuickFailures {
            failures: 3,
            attempt: 4,
            retry_at: at(60),
        },
        Reason::QuickFailures { .. } => Reason::NodesReleased {
            times: 2,
            attempt: 3,
            retry_at: at(60),
        },
        Reason::NodesReleased { .. } => Reason::LauncherWaits {
            have: 1,
            wanted: 3,
            state: WorkerState::Ready,
        },
        Reason::LauncherWaits { .. } => Reason::PodsStarting {
            missing: 1,
            wanted: 4,
            pending: 2,
        },
        Reason::PodsStarting { .. } => Reason::Unscheduled {
            count: 2,
            wanted: 4,
            scheduler: text("0/3 nodes are available"),
        },
        Reason::Unscheduled { .. } => Reason::LookingForNodes,
        Reason::LookingForNodes => Reason::Unadmitted {
            why: text("creating the pods first"),
        },
        Reason::Unadmitted { .. } => Reason::NoNodes {
            why: text("needs 3 nodes"),
            never_fits: true,
            unfit: vec![text("a"), text("b")],
        },
        Reason::NoNodes { .. } => Reason::Evicted {
            why: text("evicted for `default/urgent`"),
        },
        Reason::Evicted { .. } => Reason::UnfitNode {
            node: text("a"),
            fault: text("`/dev/shm` has 64 MiB"),
            more: 2,
        },
        Reason::UnfitNode { .. } => Reason::CheckingPodGroup,
        Reason::CheckingPodGroup => Reason::CreatingPodGroup,
        Reason::CreatingPodGroup => Reason::NoPodGroup {
            why: text("the cluster has no PodGroup"),
        },
        Reason::NoPodGroup { .. } => Reason::PodGroupWaits {
            why: text("Volcano: not enough nodes"),
        },
        Reason::PodGroupWaits { .. } => Reason::LookingUpFabric {
            fabric: text("roce"),
        },
        Reason::LookingUpFabric { .. } => Reason::NoFabric {
            fabric: text("roce"),
            why: text("no fabric of that name"),
        },
        Reason::NoFabric { .. } => Reason::NoRuntime {
            runtime: text("ClusterTrainingRuntime `team`"),
            why: text("it does not exist"),
        },
        Reason::NoRuntime { .. } => Reason::NoPreflight {
            why: text("it is off"),
        },
        Reason::NoPreflight { .. } => Reason::PreflightRuns {
            nodes: 3,
            since: at(5),
        },
        Reason::PreflightRuns { .. } => Reason::PreflightRetry {
            why: text("preflight produced no result"),
            retry_at: at(60),
        },
        Reason::PreflightRetry { .. } => Reason::Refused {
            tried: text("create pod `j-worker-0`"),
            message: text("it belongs to TFJob `j`"),
            more: 3,
            taken_by: Some(text("TFJob `j`")),
        },
        Reason::Refused { .. } => Reason::NoImage {
            pod: text("j-worker-0"),
            message: text("no such host"),
        },
        Reason::NoImage { .. } => Reason::Invalid {
            why: text("unknown role `x`"),
        },
        Reason::Invalid { .. } => Reason::NodeSilent {
            node: text("a"),
            pod: text("j-worker-0"),
            more: 2,
            lost_at: at(60),
        },
        Reason::NodeSilent { .. } => Reason::Degraded {
            running: 3,
            wanted: 5,
            needed: 2,
        },
        Reason::Degraded { .. } => Reason::AllPodsExist { pods: 4 },
        Reason::AllPodsExist { .. } => Reason::NothingToRun { role: Role::Worker },
        Reason::NothingToRun { .. } => Reason::BeingDeleted { terminating: 2 },
        Reason::BeingDeleted { .. } => Reason::CleaningUp { terminating: 2 },
        Reason::CleaningUp { .. } => Reason::RunningOn {
            running: 2,
            until: at(60),
        },
        Reason::RunningOn { .. } => Reason::Ended,
        Reason::Ended => Reason::ExpiresAt { at: at(60) },
        Reason::ExpiresAt { .. } => Reason::Expired { ttl_seconds: 30 },
        Reason::Expired { .. } => Reason::RetryDoesNotHelp {
            job: text("j"),
            shown_by: InVain::Attempts {
                first: 1,
                second: 2,
                same_place: true,
            },
            error: text("KeyError"),
            next: text("read the innermost frame"),
        },
        Reason::RetryDoesNotHelp { .. } => Reason::SetAside {
            why: text("the operator crashed 2 times"),
        },
        Reason::SetAside { .. } => return None,
    })
}

fn every_reason() -> impl Iterator<Item = Reason> {
    let first = Reason::ManagedElsewhere {
        manager: "kueue.x-k8s.io/multikueue".to_owned(),
    };
    std::iter::successors(Some(first), after)
}

/// The texts and numbers in `params`, as a sentence has them.
fn values(params: &Value) -> Vec<String> {
    match params {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(list) => list.iter().flat_map(values).collect(),
        Value::Object(fields) => {
            // The name of the reason, and of what its words are chosen by.
            let words = fields
                .iter()
                .filter(|(key, _)| *key != "kind" && *key != "state");
            words.flat_map(|(_, value)| values(value)).collect()
        }
        Value::Bool(_) | Value::Null => Vec::new(),
    }
}

fn stored(waiting: &Value) -> Value {
    let mut status = serde_json::to_value(JobStatus::default()).expect("a status is JSON");
    status["trainyard"]["waiting"] = waiting.clone();
    status
}

#[test]
fn code_parameters_and_sentence_agree() {
    let mut codes = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for reason in every_reason() {
        let kept = StoredReason::from(&reason);
        codes.insert(kept.code);
        assert_eq!(kept.code, reason.code());
        assert_eq!(kept.message, reason.to_string());
        assert!(!kept.message.is_empty(), "{reason:?}");
        let written = serde_json::to_value(&kept).expect("a reason is JSON");
        let params = &written["params"];
        assert!(kinds.insert(params["kind"].to_string()), "{reason:?}");
        for value in values(params) {
            let said = kept.message.contains(&value);
            assert!(said, "`{value}` is not in `{}`", kept.message);
        }
        let read: StoredReason = serde_json::from_value(written.clone()).expect("it was written");
        assert_eq!(read, kept);
        let status = stored(&written);
        let read = crate::job::read_status(&status).expect("it was written");
        assert_eq!(read.trainyard.waiting, Some(kept));
        assert_eq!(serde_json::to_value(&read).expect("JSON"), status);
    }
    // `Code::Other` is what another version wrote.
    assert_eq!(codes.len(), Code::SetAside as usize + 1, "{codes:?}");
    assert!(!codes.contains(&Code::Other));
}

#[test]
fn reasons_of_other_versions_are_kept() {
    let cases = [
        (
            "no parameters, of an earlier version",
            json!({"code": "Suspended", "message": "the job is suspended"}),
            Code::Suspended,
        ),
        (
            "a new code",
            json!({"code": "WaitingForPower", "message": "no power", "params": {"kind": "power", "watts": 7}}),
            Code::Other,
        ),
        (
            "a new kind",
            json!({"code": "Suspended", "message": "at night", "params": {"kind": "night", "until": "6:00"}}),
            Code::Suspended,
        ),
        (
            "a parameter that is another sort of value",
            json!({"code": "Training", "message": "all pods exist", "params": {"kind": "allPodsExist", "pods": "all"}}),
            Code::Training,
        ),
        (
            "parameters that are not an object",
            json!({"code": "Ended", "message": "the job has ended", "params": [1]}),
            Code::Ended,
        ),
    ];
    for (name, waiting, code) in cases {
        let status = stored(&waiting);
        let read = crate::job::read_status(&status).expect(name);
        let reason = read.trainyard.waiting.as_ref().expect(name);
        assert_eq!((reason.code, &reason.params), (code, &None), "{name}");
        assert_eq!(reason.message, waiting["message"], "{name}");
        let written = serde_json::to_value(&read).expect(name);
        assert_eq!(written, status, "{name}");
    }
    // A kind that is known, with one parameter more.
    let more = json!({"code": "Training", "message": "all 3 pods exist",
        "params": {"kind": "allPodsExist", "pods": 3, "ready": 2}});
    let read = crate::job::read_status(&stored(&more)).expect("known");
    let params = read
        .trainyard
        .waiting
        .as_ref()
        .and_then(|it| it.params.clone());
    assert_eq!(params, Some(Reason::AllPodsExist { pods: 3 }));
    assert_eq!(serde_json::to_value(&read).expect("JSON"), stored(&more));
}
