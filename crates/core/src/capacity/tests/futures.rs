//! What may change by itself is no "never", and what is not known is no "fits".

use serde_json::{Value, json};

use super::{
    GPU, ZONE, ask, cluster, full, gang, nodes, offer, offer_in, order, pool, shape, taint, with,
};
use crate::{
    capacity::{Answer, Unknown},
    gang::{
        Gang, Member, Node, Snapshot,
        testing::{RACK, occupy},
    },
};

/// `now`, `later`, `may`, `others` or `never`.
fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::FitsNow => "now",
        Answer::FitsAfterScaleUp { .. } => "later",
        Answer::MayFit { .. } => "may",
        Answer::FitsWhenOthersEnd { .. } => "others",
        Answer::NeverFits(_) => "never",
    }
}

#[track_caller]
pub(super) fn check(name: &str, answer: &Answer, want: &str) {
    assert_eq!(word(answer), want, "{name}: {}", answer.message());
}

pub(super) fn in_types(names: &[&str]) -> Value {
    json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": names}])
}

pub(super) fn node_pool(name: &str, requirements: Value, limits: Value, used: Value) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {"requirements": requirements}}, "limits": limits},
        "status": {"resources": used}})
}

pub(super) fn types(shapes: Vec<Value>) -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "Capacity", "instanceTypes": shapes})
}

/// Nodes of the pool `gpu` and the type `p5`.
pub(super) fn of_pool(mut snapshot: Snapshot) -> Snapshot {
    for Node { labels, .. } in snapshot.nodes.values_mut() {
        labels.insert("karpenter.sh/nodepool".to_owned(), "gpu".to_owned());
        labels.insert(
            "node.kubernetes.io/instance-type".to_owned(),
            "p5".to_owned(),
        );
    }
    snapshot
}

#[test]
fn limits_count_nodes_that_pass() {
    let pool = |limit: i64, used: i64| {
        vec![
            node_pool(
                "gpu",
                in_types(&["p5", "g6"]),
                json!({GPU: limit}),
                json!({GPU: used}),
            ),
            types(vec![shape("p5", 8, 1.0), shape("g6", 4, 1.0)]),
        ]
    };
    let read = |snapshot: &Snapshot, limit, used| offer_in(snapshot, pool(limit, used));
    // Two nodes are held by a gang that will end.
    let held = of_pool(full(2));
    let ask_in = |snapshot: &Snapshot, pods, limit, used| {
        ask(snapshot, &gang("j", pods, 8), &read(snapshot, limit, used))
    };
    check("held", &ask_in(&held, 2, 16, 16), "others");
    check("more than there can be", &ask_in(&held, 3, 16, 16), "never");
    // They are small, and their room is free once they are empty.
    let mut small = of_pool(cluster(1, 1, 2));
    for node in small.nodes.values_mut() {
        node.allocatable.set(GPU, 4);
        let kind = "node.kubernetes.io/instance-type".to_owned();
        node.labels.insert(kind, "g6".to_owned());
    }
    let names: Vec<String> = small.nodes.keys().cloned().collect();
    for name in names {
        occupy(&mut small, &name, "other", 4);
    }
    check("of another type", &ask_in(&small, 1, 8, 8), "others");
    check("too many of it", &ask_in(&small, 2, 8, 8), "never");
    // One of two nodes boots.
    let one = of_pool(cluster(1, 1, 1));
    check("boots", &ask_in(&one, 2, 16, 16), "may");
    check("boots, not enough", &ask_in(&one, 3, 16, 16), "never");
}

#[test]
fn two_limits_are_mixed() {
    // Either shape alone is held to one node; together they are two.
    let own = |name: &str, cpus: i64, gpus: i64| {
        with(
            shape(name, gpus, 1.0),
            json!({"allocatable": {"cpu": cpus, GPU: gpus, "pods": 110}}),
        )
    };
    let pools = json!([with(
        pool("a", vec![own("cpus", 90, 10), own("gpus", 10, 90)]),
        json!({"atMost": {"cpu": 100, GPU: 100}})
    )]);
    let mut job = gang("j", 2, 10);
    job.shapes[0].requests.set("cpu", 10_000);
    let apart = json!([{"topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"job": "j"}}}]);
    job.shapes[0].constraints.anti_affinity = serde_json::from_value(apart).unwrap();
    let answer = ask(&Snapshot::default(), &job, &offer(pools));
    assert_eq!(nodes(order(&answer)), "1 cpus, 1 gpus");
}

#[test]
fn states_of_nodes_pass() {
    let change = |change: fn(&mut Node)| {
        let mut snapshot = cluster(1, 1, 2);
        change(snapshot.nodes.get_mut("b0r0h0").unwrap());
        snapshot
    };
    let mut foreign = cluster(1, 1, 2);
    occupy(&mut foreign, "b0r0h0", "", 8);
    let mut daemon = foreign.clone();
    daemon.pods.values_mut().for_each(|pod| pod.daemon = true);
    let cases = [
        ("cordoned", change(|node| node.unschedulable = true), "may"),
        ("not ready", change(|node| node.ready = false), "may"),
        (
            "unreachable",
            change(|node| node.taints = vec![taint("node.kubernetes.io/unreachable")]),
            "may",
        ),
        (
            "a taint that stays",
            change(|node| node.taints = vec![taint("team")]),
            "never",
        ),
        ("a pod of others", foreign, "may"),
        ("a daemon set", daemon, "never"),
    ];
    for (name, snapshot, want) in cases {
        let answer = ask(&snapshot, &gang("j", 2, 8), &offer(json!([])));
        check(name, &answer, want);
        check(
            name,
            &ask(&snapshot, &gang("j", 3, 8), &offer(json!([]))),
            "never",
        );
    }
}

#[test]
fn labels_of_providers_are_not_known() {
    let pools = json!([pool("gpu", vec![shape("p5", 8, 1.0)])]);
    let ask_for = |key: &str, operator: &str, values: Value| {
        let mut job = gang("j", 2, 8);
        let own = json!({"nodeSelectorTerms": [{"matchExpressions":
            [{"key": key, "operator": operator, "values": values}]}]});
        job.shapes[0].constraints.node_affinity = serde_json::from_value(own).unwrap();
        ask(&Snapshot::default(), &job, &offer(pools.clone()))
    };
    for key in [
        "nvidia.com/gpu.product",
        "cloud.google.com/gke-accelerator",
        "eks.amazonaws.com/capacityType",
        "feature.node.kubernetes.io/pci-10de.present",
        "node.kubernetes.io/lifecycle",
        "topology.kubernetes.io/zone",
    ] {
        for (operator, values) in [
            ("In", json!(["x"])),
            ("NotIn", json!(["x"])),
            ("Exists", json!([])),
            ("DoesNotExist", json!([])),
            ("Gt", json!(["4"])),
            ("Lt", json!(["4"])),
        ] {
            check(
                &format!("{key} {operator}"),
                &ask_for(key, operator, values),
                "may",
            );
        }
    }
    check(
        "stated",
        &ask_for("node.kubernetes.io/instance-type", "In", json!(["p5"])),
        "later",
    );
    check(
        "stated",
        &ask_for("node.kubernetes.io/instance-type", "In", json!(["p4"])),
        "never",
    );
    check("of the job", &ask_for("team", "In", json!(["ml"])), "never");
    check(
        "of the job",
        &ask_for("team", "NotIn", json!(["ml"])),
        "later",
    );
}

#[test]
fn mutual_terms_over_open_labels() {
    let bare = json!([pool("gpu", vec![shape("p5", 8, 1.0)])]);
    let two = json!([with(
        pool("gpu", vec![shape("p5", 8, 1.0)]),
        json!({"zones": ["a", "b"]})
    )]);
    let mut spread = gang("j", 4, 8);
    let own = json!([{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"job": "j"}}}]);
    spread.shapes[0].constraints.spread = serde_json::from_value(own).unwrap();
    let mut apart = gang("j", 2, 8);
    let own = json!([{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"job": "j"}}}]);
    apart.shapes[0].constraints.anti_affinity = serde_json::from_value(own.clone()).unwrap();
    let mut near = gang("j", 2, 8);
    near.shapes[0].constraints.affinity = serde_json::from_value(own).unwrap();
    for (name, job) in [("spread", &spread), ("apart", &apart), ("near", &near)] {
        check(
            name,
            &ask(&Snapshot::default(), job, &offer(bare.clone())),
            "may",
        );
        check(
            name,
            &ask(&Snapshot::default(), job, &offer(two.clone())),
            "later",
        );
    }
    // Three zones are asked for, and there are two.
    let mut three = apart.clone();
    three.pods.push(Member {
        name: "j-worker-2".to_owned(),
        ..apart.pods[0].clone()
    });
    three.minimum = 3;
    check(
        "three",
        &ask(&Snapshot::default(), &three, &offer(two)),
        "never",
    );
}

/// Two workers of 8 GPUs and one launcher.
fn with_launcher(cpus: i64, cpus_of_worker: i64) -> Gang {
    let mut job = gang("j", 2, 8);
    job.shapes[0].requests.set("cpu", cpus_of_worker * 1_000);
    let mut launcher = gang("l", 1, 0).shapes.remove(0);
    launcher.requests.set("cpu", cpus * 1_000);
    job.shapes.push(launcher);
    let mut member = job.pods[0].clone();
    (member.name, member.shape) = ("j-launcher".to_owned(), 1);
    job.pods.push(member);
    job.minimum = 3;
    job
}

#[test]
fn roles_that_do_not_fit_together() {
    let limited = |most: i64| {
        json!([with(
            pool("gpu", vec![shape("p5", 8, 1.0)]),
            json!({"atMost": {"nodes": most}})
        )])
    };
    let ask_for = |job: &Gang, most| ask(&Snapshot::default(), job, &offer(limited(most)));
    check("room for all", &ask_for(&with_launcher(90, 1), 3), "later");
    check(
        "one class alone is too much",
        &ask_for(&with_launcher(200, 1), 3),
        "never",
    );
    check(
        "all CPUs together",
        &ask_for(&with_launcher(96, 50), 2),
        "never",
    );
}

#[test]
fn elastic_jobs_need_their_minimum() {
    let mut job = gang("j", 8, 8);
    job.minimum = 2;
    let racks = |most: i64| {
        json!([with(
            pool("gpu", vec![shape("p5", 8, 1.0)]),
            json!({"atMost": {"nodes": most}})
        )])
    };
    let snapshot = cluster(1, 1, 1);
    let wished = job.clone().wishing("required=rack");
    check(
        "one of two racks",
        &ask(&snapshot, &wished, &offer(racks(2))),
        "may",
    );
    // Too few even for the minimum.
    let mut larger = gang("j", 8, 8);
    larger.minimum = 6;
    let answer = ask(&Snapshot::default(), &larger, &offer(racks(4)));
    check("too few", &answer, "never");
    assert!(
        answer.message().contains("4 instead of 6 pods"),
        "{}",
        answer.message()
    );
    // A pool of unknown size with room for the minimum alone.
    let open = json!([{"name": "gpu", "atMost": {GPU: 16}}]);
    check(
        "unknown",
        &ask(&Snapshot::default(), &job, &offer(open)),
        "may",
    );
}

#[test]
fn what_a_shape_does_not_state() {
    let bare = with(shape("p5", 8, 1.0), json!({"allocatable": {GPU: 8}}));
    let answer = ask(
        &Snapshot::default(),
        &gang("j", 2, 8),
        &offer(json!([pool("a", vec![bare])])),
    );
    let Answer::MayFit { unknown, .. } = &answer else {
        panic!("{}", answer.message());
    };
    assert!(
        matches!(unknown[0], Unknown::Resource { .. }),
        "{}",
        answer.message()
    );
}

#[test]
fn a_level_in_any_pool() {
    // The cheapest nodes are in two racks; a dearer pool may have one that is large enough.
    let in_rack = |rack: &str| {
        let own = pool(rack, vec![shape("p5", 8, 1.0)]);
        with(own, json!({"labels": {RACK: rack}, "atMost": {"nodes": 2}}))
    };
    let pools = json!([
        in_rack("r1"),
        in_rack("r2"),
        pool("dear", vec![shape("p6", 8, 9.0)])
    ]);
    let job = gang("j", 4, 8).wishing("required=rack");
    let answer = ask(&Snapshot::default(), &job, &offer(pools));
    let Answer::MayFit {
        order: Some(order), ..
    } = &answer
    else {
        panic!("{}", answer.message());
    };
    assert_eq!(nodes(order), "4 p6", "{}", answer.message());
}
