use serde_json::json;

use super::*;

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
    let report = find_report(log.as_bytes()).unwrap();
    assert_eq!(report.nodes.keys().collect::<Vec<_>>(), ["a"]);
    let none = find_report(b"error: no route\n").unwrap_err();
    assert_eq!(
        none,
        "the lead wrote no report; its last line is: error: no route"
    );
    let broken = find_report(format!("{MARKER}{{\"nodes\"\n").as_bytes()).unwrap_err();
    assert!(
        broken.starts_with("the lead's report cannot be read"),
        "{broken}"
    );
}

#[test]
fn what_is_known_of_pods_that_never_came() {
    let pod = |node: &str| {
        let mut one = PreflightPod {
            node: node.to_owned(),
            domains: Vec::new(),
            pod: k8s_openapi::api::core::v1::Pod::default(),
        };
        one.pod.metadata.name = Some(format!("p-{node}"));
        one
    };
    let joined = |outcome: &str| {
        json!({"checks": [{"name": "joined", "layer": "path", "outcome": outcome,
        "found": "x", "needed": "y", "owner": "platform"}]})
    };
    let report: Report = serde_json::from_value(json!({"nodes": {
        "a": joined("pass"), "b": joined("fail"), "c": joined("fail")}}))
    .unwrap();
    let pods = [pod("a"), pod("b"), pod("c")];
    assert!(nobody_joined(&report, &pods));
    let mut seen = Seen::default();
    let stuck = json!({"phase": "Pending", "containerStatuses": [{"name": "preflight",
        "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    for (name, status, node) in [
        ("p-b", stuck, "b"),
        ("p-c", json!({"phase": "Pending"}), ""),
    ] {
        let mut member = member(&status, node);
        member.metadata.name = name.to_owned();
        seen.hear(News::Is(member));
    }
    let found = complete(report, &pods[1..], &seen);
    let worst = found.report.nodes["b"].worst().unwrap();
    assert_eq!(worst.name, STARTED, "and not that it did not come");
    assert!(worst.found.contains("ContainerCreating"), "{}", worst.found);
    let why = found.measured().unwrap_err();
    assert_eq!(
        why,
        "no pod got to node `c`: the scheduler has not looked at it"
    );
}
