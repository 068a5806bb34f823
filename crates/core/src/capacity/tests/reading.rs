//! What Karpenter, the Cluster Autoscaler and nodes say about capacity.

use serde_json::{Value, json};

use super::{GPU, ask, capacity, cluster, gang, nodes, now, offer_in, order, pool, shape, taint};
use crate::{
    capacity::{Answer, Offer, Source, Unknown},
    gang::{Node, Snapshot},
};

fn node_pool(requirements: Value, limits: Value, used: Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpu"},
        "spec": {
            "template": {
                "metadata": {"labels": {"team": "ml"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": requirements,
                    "taints": [{"key": GPU, "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "booting", "effect": "NoSchedule"}],
                },
            },
            "limits": limits, "weight": 10,
        },
        "status": {"resources": used, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn types() -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "Capacity",
        "instanceTypes": [shape("p5", 8, 98.0), shape("g6", 1, 1.0)]})
}

fn tolerant(pods: usize) -> crate::gang::Gang {
    let mut job = gang("j", pods, 8);
    job.shapes[0].constraints.tolerations =
        serde_json::from_value(json!([{"key": GPU, "operator": "Exists"}])).unwrap();
    job
}

fn in_types(names: &[&str]) -> Value {
    json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": names}])
}

#[test]
fn a_node_pool_with_types_of_a_file() {
    let empty = Snapshot::default();
    let read = |pool: Value| offer_in(&empty, vec![types(), pool]);
    let wide = read(node_pool(
        in_types(&["p5"]),
        json!({GPU: 64}),
        json!({GPU: 32}),
    ));
    assert_eq!(wide.pools[0].source, Source::Karpenter);
    assert_eq!(nodes(order(&ask(&empty, &tolerant(4), &wide))), "4 p5");
    // 32 of 64 are used, by nodes that are not there yet.
    let answer = ask(&empty, &tolerant(5), &wide);
    assert!(
        matches!(&answer, Answer::MayFit { unknown, .. } if matches!(unknown[0], Unknown::Arriving { .. })),
        "{}",
        answer.message()
    );
    let answer = ask(&empty, &tolerant(9), &wide);
    assert_eq!(
        answer.message(),
        "never fits: pool `gpu` is limited to 64 GPUs, 32 used: room for 4 pods of the gang; fits \
         with the limit of pool `gpu` raised from 64 to 104 GPUs (on 9 new nodes), or with 4 instead \
         of 9 pods (on 4 new nodes)"
    );
    // A type that nobody describes.
    let open = read(node_pool(in_types(&["g6", "p6"]), json!({}), json!({})));
    let answer = ask(&empty, &tolerant(2), &open);
    assert!(
        matches!(answer, Answer::MayFit { .. }),
        "{}",
        answer.message()
    );
    let closed = read(node_pool(in_types(&["g6"]), json!({}), json!({})));
    let answer = ask(&empty, &tolerant(2), &closed);
    assert!(
        matches!(answer, Answer::NeverFits(_)),
        "{}",
        answer.message()
    );
}

#[test]
fn a_node_pool_decides_labels() {
    let empty = Snapshot::default();
    let requirements = json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]},
        {"key": "lane", "operator": "In", "values": ["slow", "fast"]},
        {"key": "owner", "operator": "Exists"},
        {"key": "use", "operator": "NotIn", "values": ["test"]},
    ]);
    let offer = offer_in(
        &empty,
        vec![types(), node_pool(requirements, json!({}), json!({}))],
    );
    let job = |key: &str, value: &str| {
        let mut job = tolerant(1);
        let selector = &mut job.shapes[0].constraints.node_selector;
        selector.insert(key.to_owned(), value.to_owned());
        ask(&empty, &job, &offer).message()
    };
    for (key, value, want) in [
        ("lane", "fast", "fits after"),
        ("lane", "none", "never fits"),
        ("owner", "anyone", "fits after"),
        ("use", "train", "fits after"),
        ("use", "test", "never fits"),
        ("team", "ml", "fits after"),
        ("topology.kubernetes.io/zone", "b", "fits after"),
        ("topology.kubernetes.io/zone", "c", "never fits"),
        ("karpenter.sh/nodepool", "gpu", "fits after"),
        ("karpenter.sh/capacity-type", "spot", "may fit"),
        ("kubernetes.io/hostname", "node-1", "never fits"),
    ] {
        let message = job(key, value);
        assert!(message.starts_with(want), "{key}={value}: {message}");
    }
}

#[test]
fn nodes_show_the_shape_of_their_pool() {
    let mut snapshot = cluster(1, 1, 1);
    let own = snapshot.nodes.get_mut("b0r0h0").unwrap();
    for (key, value) in [
        ("karpenter.sh/nodepool", "gpu"),
        ("node.kubernetes.io/instance-type", "p5"),
        ("kubernetes.io/hostname", "b0r0h0"),
        ("team", "ml"),
    ] {
        own.labels.insert(key.to_owned(), value.to_owned());
    }
    own.taints = vec![taint(GPU), taint("node.kubernetes.io/unreachable")];
    let claim = |seconds: u32| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"creationTimestamp": "2026-08-01T10:00:00Z",
                "labels": {"karpenter.sh/nodepool": "gpu", "node.kubernetes.io/instance-type": "p5"}},
            "status": {"conditions": [{"type": "Initialized", "status": "True",
                "lastTransitionTime": format!("2026-08-01T10:0{}:{:02}Z", seconds / 60, seconds % 60)}]}})
    };
    let pool = node_pool(in_types(&["p5"]), json!({}), json!({}));
    let values = vec![pool, claim(90), claim(100), claim(300)];
    let offer = offer_in(&snapshot, values);
    let answer = ask(&snapshot, &tolerant(3), &offer);
    let order = order(&answer);
    assert_eq!(order.ready_seconds, Some(100), "{}", answer.message());
    assert_eq!(order.price_per_hour, None);
    // The rack of the one that exists is not the rack of the next.
    let answer = ask(&snapshot, &tolerant(3).wishing("required=rack"), &offer);
    assert!(
        matches!(answer, Answer::MayFit { .. }),
        "{}",
        answer.message()
    );
}

fn status(text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"status": text},
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}})
}

const YAML: &str = "\
time: 2026-07-25 17:19:00.5 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health: {status: Healthy}
nodeGroups:
- name: eks-gpu-1a2b
  health: {status: Healthy, cloudProviderTarget: 2, minSize: 0, maxSize: 6}
  scaleUp:
    status: Backoff
    backoffInfo: {errorCode: InsufficientInstanceCapacity, errorMessage: none left in zone a}
- name: other
  health: {status: Healthy, cloudProviderTarget: 1, minSize: 0, maxSize: 1}
  scaleUp: {status: NoActivity}
";

const TEXT: &str = "\
Cluster-autoscaler status at 2026-07-25 17:19:00.5 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=3 unready=0 notStarted=0 longNotStarted=0 registered=3)
               LastProbeTime:      2026-07-25 17:19:00 +0000 UTC
  ScaleUp:     NoActivity (ready=3 registered=3)

NodeGroups:
  Name:        eks-gpu-1a2b
  Health:      Healthy (ready=2 unready=0 cloudProviderTarget=2 (minSize=0, maxSize=6))
               LastProbeTime:      2026-07-25 17:19:00 +0000 UTC
  ScaleUp:     Backoff (ready=2 cloudProviderTarget=2)
  ScaleDown:   NoCandidates (candidates=0)

  Name:        other
  Health:      Healthy (ready=1 cloudProviderTarget=1 (minSize=0, maxSize=1))
  ScaleUp:     NoActivity (ready=1 cloudProviderTarget=1)
";

fn with_group() -> Snapshot {
    let mut snapshot = cluster(1, 1, 2);
    for Node { labels, .. } in snapshot.nodes.values_mut() {
        labels.insert("eks.amazonaws.com/nodegroup".to_owned(), "gpu".to_owned());
    }
    snapshot
}

#[test]
fn both_forms_of_the_autoscaler_status() {
    let snapshot = with_group();
    for text in [YAML, TEXT] {
        let offer = offer_in(&snapshot, vec![status(text)]);
        let answer = ask(&snapshot, &gang("j", 6, 8), &offer);
        let order = order(&answer);
        assert_eq!(
            (nodes(order).as_str(), order.parts[0].pool.as_str()),
            ("4 gpu", "eks-gpu-1a2b")
        );
        assert!(
            answer
                .message()
                .contains("pool `eks-gpu-1a2b` adds nothing: the last scale-up failed"),
            "{}",
            answer.message()
        );
        // 6 is the most, and 2 are there.
        let answer = ask(&snapshot, &gang("j", 7, 8), &offer);
        assert!(
            matches!(answer, Answer::NeverFits(_)),
            "{}",
            answer.message()
        );
        assert_eq!(offer.notes.len(), 0, "{:?}", offer.notes);
    }
}

#[test]
fn groups_without_nodes_have_no_shape() {
    let offer = offer_in(&Snapshot::default(), vec![status(YAML)]);
    let answer = ask(&Snapshot::default(), &gang("j", 1, 8), &offer);
    assert!(
        matches!(answer, Answer::MayFit { .. }),
        "{}",
        answer.message()
    );
    // A file lends them one.
    let mut named = pool("eks-gpu-1a2b", vec![shape("p5", 8, 2.0)]);
    named["weight"] = json!(1);
    let values = vec![capacity(json!([named])), status(YAML)];
    let offer = offer_in(&Snapshot::default(), values);
    let answer = ask(&Snapshot::default(), &gang("j", 4, 8), &offer);
    assert_eq!(nodes(order(&answer)), "4 p5");
}

#[test]
fn an_old_or_broken_status_is_noticed() {
    let old = YAML.replace("17:19", "16:19");
    let offer = offer_in(&Snapshot::default(), vec![status(&old)]);
    assert_eq!(
        offer.notes,
        ["the status of the Cluster Autoscaler is 60 min old: it may not be running"]
    );
    for broken in ["a: [", "- 7", "nodeGroups: 7", ""] {
        let read = Offer::of_values([status(broken)], &Snapshot::default(), now());
        let read = read.unwrap();
        assert!(read.pools.is_empty() && !read.is_complete(), "{broken:?}");
    }
}

#[test]
fn requests_are_reported() {
    let request = |conditions: Value| {
        json!({"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": {"name": "j-a1", "namespace": "team"}, "status": {"conditions": conditions}})
    };
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": ""});
    let accepted = condition("Accepted", "True", "Accepted");
    let cases = [
        (json!([]), "no autoscaler has accepted it"),
        (
            json!([accepted]),
            "the autoscaler has accepted it (Accepted)",
        ),
        (
            json!([
                accepted,
                condition("Provisioned", "False", "CapacityIsNotFound")
            ]),
            "no capacity was found yet (CapacityIsNotFound)",
        ),
        (
            json!([
                accepted,
                condition("Provisioned", "True", "CapacityIsProvisioned")
            ]),
            "its nodes were asked for; they need not be ready (CapacityIsProvisioned)",
        ),
        (
            json!([
                condition("Provisioned", "True", ""),
                condition("Failed", "True", "Expired")
            ]),
            "it failed (Expired)",
        ),
        (
            json!([
                condition("Provisioned", "True", ""),
                condition("CapacityRevoked", "True", "")
            ]),
            "its capacity was revoked",
        ),
    ];
    for (conditions, want) in cases {
        let offer = offer_in(&Snapshot::default(), vec![request(conditions)]);
        assert_eq!(
            offer.notes,
            [format!("ProvisioningRequest `team/j-a1`: {want}")]
        );
    }
}
