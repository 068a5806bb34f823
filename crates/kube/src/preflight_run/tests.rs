use serde_json::json;

use super::{member::Member, *};
use crate::feed::News;

fn member(status: &serde_json::Value, node: &str) -> Member {
    serde_json::from_value(json!({
        "metadata": {"name": "p"}, "spec": {"nodeName": node}, "status": status,
    }))
    .unwrap()
}

#[test]
fn how_far_a_pod_is() {
    let init = |state: serde_json::Value| json!([{"name": "trainyard-agent", "state": state}]);
    let waits =
        |reason: &str| json!([{"name": "preflight", "state": {"waiting": {"reason": reason}}}]);
    let done = json!({"terminated": {"exitCode": 0}});
    let cases = [
        (
            "no node",
            member(
                &json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
                "status": "False", "message": "0/2 nodes are available"}]}),
                "",
            ),
            Stage::Unplaced("0/2 nodes are available".to_owned()),
        ),
        (
            "waits for volumes",
            member(
                &json!({"phase": "Pending", "initContainerStatuses": init(json!({"waiting":
                {"reason": "PodInitializing"}})), "containerStatuses": waits("PodInitializing")}),
                "a",
            ),
            Stage::SetsUp("PodInitializing".to_owned()),
        ),
        (
            "waits for its image",
            member(
                &json!({"phase": "Pending", "initContainerStatuses": init(done.clone()),
                "containerStatuses": waits("PodInitializing")}),
                "a",
            ),
            Stage::Pulls,
        ),
        (
            "waits in vain for its image",
            member(
                &json!({"phase": "Pending", "initContainerStatuses": init(done),
                "containerStatuses": waits("ImagePullBackOff")}),
                "a",
            ),
            Stage::SetsUp("ImagePullBackOff".to_owned()),
        ),
        (
            "runs",
            member(&json!({"phase": "Running", "podIP": "10.0.0.7"}), "a"),
            Stage::Runs("10.0.0.7".to_owned()),
        ),
        (
            "is done",
            member(&json!({"phase": "Succeeded"}), "a"),
            Stage::Done,
        ),
        (
            "took too long",
            member(
                &json!({"phase": "Failed", "reason": "DeadlineExceeded"}),
                "a",
            ),
            Stage::Failed("DeadlineExceeded".to_owned()),
        ),
        (
            "failed",
            member(
                &json!({"phase": "Failed", "containerStatuses": [{"name": "preflight",
                "state": {"terminated": {"exitCode": 2}}}]}),
                "a",
            ),
            Stage::Failed("`preflight` ended with exit code 2".to_owned()),
        ),
    ];
    for (name, member, want) in cases {
        assert_eq!(member.stage(), want, "{name}");
    }
}

#[test]
fn the_report_is_the_last_line_with_its_mark() {
    let log = format!("warning: x\n{MARKER}{{\"nodes\":{{\"a\":{{\"checks\":[]}}}}}}\n");
    let report = find_report(log.as_bytes()).unwrap().unwrap();
    assert_eq!(report.nodes.keys().collect::<Vec<_>>(), ["a"]);
    let none = find_report(b"error: no\x1b[2J route\n").unwrap_err();
    assert!(!none.is_of_leader(), "another would write no report either");
    assert_eq!(
        none.to_string(),
        "the leader pod wrote no report; its last log line is: error: no [2J route"
    );
    let broken = find_report(format!("{MARKER}{{\"nodes\"\n").as_bytes()).unwrap();
    assert_eq!(broken.unwrap_err().label(), "unreadable");
}

fn pod(node: &str) -> PreflightPod {
    let mut one = PreflightPod {
        node: node.to_owned(),
        domains: Vec::new(),
        pod: k8s_openapi::api::core::v1::Pod::default(),
    };
    one.pod.metadata.name = Some(format!("p-{node}"));
    one
}

#[test]
fn what_is_known_of_pods_that_never_came() {
    let joined = |outcome: &str| {
        json!({"checks": [{"name": "joined", "layer": "path", "outcome": outcome,
        "found": "x", "needed": "y", "owner": "platform"}]})
    };
    let report: Report = serde_json::from_value(json!({"nodes": {
        "a": joined("pass"), "b": joined("fail"), "c": joined("fail")}}))
    .unwrap();
    assert!(nobody_joined(&report, &[pod("a"), pod("b"), pod("c")]));
    let mut seen = Seen::default();
    let stuck = json!({"phase": "Pending", "containerStatuses": [{"name": "preflight",
        "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    for (uid, status, node) in [
        ("u-b", stuck, "b"),
        ("u-c", json!({"phase": "Pending"}), ""),
    ] {
        let mut member = member(&status, node);
        member.metadata.uid = uid.to_owned();
        seen.update(News::Is(member), |_| true);
    }
    let made = ["b", "c"].map(|node| (node.to_owned(), format!("u-{node}")));
    let found = complete(report, &made.into(), &seen);
    let worst = found.report.nodes["b"].worst().unwrap();
    assert_eq!(
        worst.name,
        probe::POD_STARTS.name,
        "and not that it did not come"
    );
    assert!(worst.found.contains("ContainerCreating"), "{}", worst.found);
    let why = found.measured().unwrap_err().to_string();
    assert_eq!(
        why,
        "no pod started on node `c`: the scheduler has not processed it"
    );
}

#[test]
fn pods_of_others_are_not_seen() {
    let named = |name: &str, uid: &str, owner: &str| {
        let mut member = member(&json!({"phase": "Succeeded"}), "a");
        let meta = &mut member.metadata;
        name.clone_into(&mut meta.name);
        uid.clone_into(&mut meta.uid);
        meta.labels = [("trainyard.dev/preflight".to_owned(), "1".to_owned())].into();
        meta.owner_references = serde_json::from_value(json!([{"apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob", "name": "j", "uid": owner, "controller": true}]))
        .unwrap();
        member
    };
    let mut seen = Seen::default();
    for (uid, name, owner) in [
        ("ours", "j-preflight-1-0", "job"),
        ("replaced", "j-preflight-1-0", "job"),
        ("of another job", "j-preflight-1-1", "other"),
        ("rank", "j-worker-0", "job"),
    ] {
        let news = News::Is(named(name, uid, owner));
        seen.update(news, |meta| is_ours(meta, "team", "job"));
    }
    let known: Vec<&str> = seen.members.keys().map(String::as_str).collect();
    assert_eq!(known, ["ours", "replaced"], "each by its own identity");
    seen.update(
        News::Gone(named("j-preflight-1-0", "ours", "job")),
        |meta| is_ours(meta, "team", "job"),
    );
    assert_eq!(seen.stage("ours"), None, "the other one is not it");
}
