//! What is read in part, of nodes that are no example, or of another pool.

use serde_json::{Value, json};

use super::{
    GPU, ZONE, ask, capacity, cluster,
    futures::{check, in_types, node_pool, of_pool, types},
    gang, now, offer, offer_in, order, pool, shape, taint, with,
};
use crate::{
    capacity::Offer,
    gang::{Snapshot, testing::occupy},
};

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
