//! What may change by itself is no "never", and what is not known is no "fits".

use serde_json::{Value, json};

use super::{
    GPU, ZONE, ask, capacity, cluster, full, gang, nodes, now, offer, offer_in, order, pool, shape,
    taint, with,
};
use crate::{
    capacity::{Answer, Offer, Unknown},
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
fn check(name: &str, answer: &Answer, want: &str) {
    assert_eq!(word(answer), want, "{name}: {}", answer.message());
}

fn in_types(names: &[&str]) -> Value {
    json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": names}])
}

fn node_pool(name: &str, requirements: Value, limits: Value, used: Value) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {"requirements": requirements}}, "limits": limits},
        "status": {"resources": used}})
}

fn types(shapes: Vec<Value>) -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "Capacity", "instanceTypes": shapes})
}

/// Nodes of the pool `gpu` and the type `p5`.
fn of_pool(mut snapshot: Snapshot) -> Snapshot {
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

fn status(text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"status": text},
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"}})
}

#[test]
fn sources_that_are_not_whole() {
    let begin = "time: 2026-07-25 17:19:00.5 +0000 UTC\nautoscalerStatus: ";
    let group = "\nnodeGroups:\n- name: a\n  health: {cloudProviderTarget: 1, maxSize: 1}\n";
    let cases = [
        ("whole", format!("{begin}Running{group}"), "never"),
        ("initializing", format!("{begin}Initializing{group}"), "may"),
        ("no groups", format!("{begin}Running\n"), "may"),
        (
            "an empty list",
            format!("{begin}Running\nnodeGroups: []\n"),
            "never",
        ),
        ("empty", String::new(), "may"),
        (
            "cut",
            format!("{begin}Running\nnodeGroups:\n- name: a\n  health: {{"),
            "may",
        ),
        (
            "cut between lines",
            format!("{begin}Running\nnodeGroups:\n- name: a\n  health:\n"),
            "may",
        ),
        (
            "old",
            format!("{begin}Running{group}").replace("17:19", "16:19"),
            "may",
        ),
        (
            "text",
            "Cluster-autoscaler status at 2026-07-25 17:19:00.5 +0000 UTC:\nInitializing\n"
                .to_owned(),
            "may",
        ),
    ];
    for (name, text, want) in cases {
        let offer = offer_in(&Snapshot::default(), vec![status(&text)]);
        check(
            name,
            &ask(&Snapshot::default(), &gang("j", 1, 8), &offer),
            want,
        );
    }
    let mut nothing = status("");
    nothing["data"] = json!({});
    let part = json!({"apiVersion": "v1", "kind": "List", "items": [capacity(json!([]))],
        "metadata": {"continue": "abc"}});
    for value in [nothing, part] {
        let offer = offer_in(&Snapshot::default(), vec![value]);
        check(
            "in part",
            &ask(&Snapshot::default(), &gang("j", 1, 8), &offer),
            "may",
        );
    }
    let mut lacking = offer(json!([]));
    lacking.lacks("cannot list NodePools");
    let answer = ask(&Snapshot::default(), &gang("j", 1, 8), &lacking);
    assert_eq!(
        answer.message(),
        "may fit after a scale-up; not all that could add nodes was read: cannot list NodePools"
    );
}

#[test]
fn a_status_that_halts_is_in_the_order() {
    let text = "time: 2026-07-25 17:19:00.5 +0000 UTC\nautoscalerStatus: Running\n\
        clusterWide:\n  health: {status: Unhealthy}\n\
        nodeGroups:\n- name: gpu\n  health: {cloudProviderTarget: 0, maxSize: 4}\n";
    let old = text
        .replace("17:19", "16:19")
        .replace("Unhealthy", "Healthy");
    for text in [text, old.as_str()] {
        let values = vec![
            capacity(json!([pool("gpu", vec![shape("p5", 8, 1.0)])])),
            status(text),
        ];
        let offer = offer_in(&Snapshot::default(), values);
        let answer = ask(&Snapshot::default(), &gang("j", 2, 8), &offer);
        let halt = order(&answer).parts[0].halt.as_ref();
        assert!(
            halt.is_some() && offer.notes.len() == 1,
            "{}",
            answer.message()
        );
    }
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
fn shapes_come_from_nodes_that_are_ready() {
    let pool = || node_pool("gpu", in_types(&["p5"]), json!({}), json!({}));
    let read = |snapshot: &Snapshot| offer_in(snapshot, vec![pool()]);
    let with_gpus = |gpus: &[i64]| {
        let mut snapshot = of_pool(cluster(1, 1, gpus.len()));
        for (node, gpus) in snapshot.nodes.values_mut().zip(gpus) {
            node.allocatable.set(GPU, *gpus);
        }
        snapshot
    };
    let broken = |gpus: &[i64]| {
        let mut snapshot = with_gpus(gpus);
        snapshot.nodes.get_mut("b0r0h0").unwrap().ready = false;
        snapshot
    };
    let cases = [
        ("one is broken", broken(&[0, 8]), 3, 8, "later"),
        ("most have 8", with_gpus(&[7, 8, 8]), 4, 8, "later"),
        ("one has more", with_gpus(&[8, 8, 9]), 4, 9, "may"),
        ("none has 16", with_gpus(&[7, 8]), 3, 16, "never"),
        ("all are broken", broken(&[8]), 3, 16, "may"),
    ];
    for (name, snapshot, pods, gpus, want) in cases {
        let answer = ask(&snapshot, &gang("j", pods, gpus), &read(&snapshot));
        check(name, &answer, want);
    }
    // The zone of a node that exists is not the zone of the next.
    let mut zoned = with_gpus(&[8]);
    let own = zoned.nodes.get_mut("b0r0h0").unwrap();
    own.labels.insert(ZONE.to_owned(), "a".to_owned());
    zoned.detect_topology();
    let selects = |value: &str| {
        let mut job = gang("j", 2, 8);
        let selector = &mut job.shapes[0].constraints.node_selector;
        selector.insert(ZONE.to_owned(), value.to_owned());
        ask(&zoned, &job, &read(&zoned))
    };
    check("the same zone", &selects("a"), "may");
    check("another zone", &selects("b"), "may");
    // What daemon sets take is not for jobs.
    let mut busy = with_gpus(&[8]);
    occupy(&mut busy, "b0r0h0", "", 1);
    busy.pods.values_mut().for_each(|pod| pod.daemon = true);
    let answer = ask(&busy, &gang("j", 1, 8), &read(&busy));
    check("a daemon has a GPU", &answer, "never");
}

#[test]
fn taints_of_all_nodes_count() {
    let mut snapshot = of_pool(cluster(1, 1, 2));
    for node in snapshot.nodes.values_mut() {
        let key = "eks.amazonaws.com/nodegroup".to_owned();
        node.labels.insert(key, "gpu".to_owned());
    }
    snapshot.nodes.get_mut("b0r0h1").unwrap().taints = vec![taint("team")];
    let text = "time: 2026-07-25 17:19:00.5 +0000 UTC\nautoscalerStatus: Running\n\
        nodeGroups:\n- name: gpu\n  health: {cloudProviderTarget: 2, maxSize: 4}\n";
    let offer = offer_in(&snapshot, vec![status(text)]);
    check(
        "one of two",
        &ask(&snapshot, &gang("j", 3, 8), &offer),
        "may",
    );
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

#[test]
fn node_pools_own_their_types() {
    let read = |values: Vec<Value>| offer_in(&Snapshot::default(), values);
    let job = gang("j", 2, 8);
    // A pool of the file describes its own nodes, not those of a NodePool of another name.
    let file = capacity(json!([with(
        pool("other", vec![shape("p5", 8, 1.0)]),
        json!({"atMost": {"nodes": 0}})
    )]));
    let own = node_pool("gpu", json!([]), json!({}), json!({}));
    let answer = ask(&Snapshot::default(), &job, &read(vec![file, own]));
    check("a shape of another pool", &answer, "may");
    // Its nodes are older than its requirements.
    let drifted = of_pool(cluster(1, 1, 1));
    let own = || {
        vec![
            node_pool("gpu", in_types(&["g6"]), json!({}), json!({})),
            types(vec![shape("g6", 1, 1.0)]),
        ]
    };
    check(
        "drifted",
        &ask(&drifted, &job, &offer_in(&drifted, own())),
        "never",
    );
    // A type has one family, whatever the pool allows.
    let family = "karpenter.k8s.aws/instance-family";
    let of_family = |family_of_type: &str| {
        types(vec![with(
            shape("p5", 8, 1.0),
            json!({"labels": {family: family_of_type}}),
        )])
    };
    let requirements = json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5"]},
        {"key": family, "operator": "In", "values": ["p5", "g6"]},
    ]);
    let own = node_pool("gpu", requirements, json!({}), json!({}));
    let offer = read(vec![of_family("p5"), own]);
    let selects = |value: &str| {
        let mut job = job.clone();
        let selector = &mut job.shapes[0].constraints.node_selector;
        selector.insert(family.to_owned(), value.to_owned());
        ask(&Snapshot::default(), &job, &offer)
    };
    check("its family", &selects("p5"), "later");
    check("another family", &selects("g6"), "never");
    // Karpenter wants to choose from two types.
    let mut requirements = in_types(&["p5", "g6"]);
    requirements[0]["minValues"] = json!(2);
    let own = node_pool("gpu", requirements, json!({}), json!({}));
    let both = types(vec![shape("p5", 8, 1.0), shape("g6", 1, 1.0)]);
    let offer = read(vec![both, own]);
    check(
        "one of two",
        &ask(&Snapshot::default(), &job, &offer),
        "may",
    );
    check(
        "both",
        &ask(&Snapshot::default(), &gang("j", 2, 1), &offer),
        "later",
    );
}

#[test]
fn groups_are_known_by_their_whole_name() {
    let grouped = |key: &str, value: &str| {
        let mut snapshot = cluster(1, 1, 1);
        let mut node = snapshot.nodes.remove("b0r0h0").unwrap();
        node.labels.insert(key.to_owned(), value.to_owned());
        snapshot
            .nodes
            .insert("gke-prod-gpu-3c4d5e6f-x1yz".to_owned(), node);
        snapshot
    };
    let eks = "eks.amazonaws.com/nodegroup";
    let gke = "cloud.google.com/gke-nodepool";
    let aks = "kubernetes.azure.com/agentpool";
    let eksctl = "alpha.eksctl.io/nodegroup-name";
    let cases = [
        (eks, "gpu", "gpu", "later"),
        (
            eks,
            "gpu",
            "eks-gpu-1a2b3c4d-0000-1111-2222-333344445555",
            "later",
        ),
        (
            eks,
            "gpu",
            "eks-gpu-spot-1a2b3c4d-0000-1111-2222-333344445555",
            "may",
        ),
        (eks, "gpu", "big-gpu", "may"),
        (
            gke,
            "gpu",
            "https://content.googleapis.com/zones/a/instanceGroups/gke-prod-gpu-3c4d5e6f-grp",
            "later",
        ),
        (gke, "gpu", "gke-prod-spot-gpu-99995e6f-grp", "may"),
        (aks, "gpu", "aks-gpu-12345678-vmss", "later"),
        (aks, "gpu", "aks-gpubig-12345678-vmss", "may"),
        (
            eksctl,
            "gpu",
            "eksctl-prod-nodegroup-gpu-NodeGroup-1ABC2DEF",
            "later",
        ),
        (
            eksctl,
            "gpu",
            "eksctl-gpu-nodegroup-cpu-NodeGroup-1ABC2DEF",
            "may",
        ),
    ];
    for (key, value, group, want) in cases {
        let text = format!(
            "time: 2026-07-25 17:19:00.5 +0000 UTC\nautoscalerStatus: Running\n\
             nodeGroups:\n- name: {group}\n  health: {{cloudProviderTarget: 1, maxSize: 4}}\n"
        );
        let snapshot = grouped(key, value);
        let offer = offer_in(&snapshot, vec![status(&text)]);
        check(group, &ask(&snapshot, &gang("j", 2, 8), &offer), want);
    }
}

#[test]
fn currencies_are_not_mixed() {
    let mut euro = capacity(json!([pool("b", vec![shape("p5", 8, 1.0)])]));
    euro["currency"] = json!("EUR");
    let read = Offer::of_values([capacity(json!([])), euro], &Snapshot::default(), now());
    assert_eq!(
        read.unwrap_err().to_string(),
        "Capacity: `currency` is `USD` in one file and `EUR` in another; use one for all"
    );
}
