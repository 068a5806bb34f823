mod preempting;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PodAffinityTerm, apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{testing::*, *};
use crate::resources;

fn run(snapshot: &Snapshot, gangs: &[Gang]) -> Placement {
    place(snapshot, gangs, time(1_000))
}

#[test]
fn a_gang_is_seated_whole_on_neighbours() {
    let snapshot = cluster(2, 2, 4);
    let placement = run(&snapshot, &[gang("a", 4, 8)]);
    assert_eq!(
        nodes(&placement, "a"),
        ["b0r0h0", "b0r0h1", "b0r0h2", "b0r0h3"]
    );
    let seating = &placement.seated[&key("a")];
    assert_eq!(
        seating.domain,
        Some(Place {
            level: "rack".to_owned(),
            name: "b0r0".to_owned()
        })
    );
    assert_eq!(seating.cost, 4);
}

#[test]
fn the_domain_that_is_filled_best_is_taken() {
    let mut snapshot = cluster(2, 2, 4);
    occupy(&mut snapshot, "b1r0h1", "x", 8);
    let placement = run(&snapshot, &[gang("a", 3, 8)]);
    assert_eq!(nodes(&placement, "a"), ["b1r0h0", "b1r0h2", "b1r0h3"]);
}

#[test]
fn nothing_is_seated_in_part() {
    let snapshot = cluster(1, 2, 2);
    let placement = run(&snapshot, &[gang("a", 5, 8)]);
    assert!(placement.seated.is_empty());
    assert_eq!(
        why(&placement, "a"),
        "needs 5 nodes with 8 free GPUs; the cluster has 4; does not fit even when all other gangs \
         have ended; fits with 32 GPUs (4 pods)"
    );
    assert!(!placement.refused[&key("a")].fits_when_empty);
}

#[test]
fn an_elastic_gang_starts_with_what_there_is() {
    let snapshot = cluster(1, 2, 2);
    let mut elastic = gang("a", 6, 8);
    elastic.minimum = 3;
    let placement = run(&snapshot, &[elastic.clone()]);
    assert_eq!(nodes(&placement, "a").len(), 4);
    assert_eq!(placement.seated[&key("a")].unseated, 2);
    elastic.minimum = 5;
    assert!(run(&snapshot, &[elastic]).seated.is_empty());
}

#[test]
fn elastic_gang_keeps_clear_of_its_later_pods() {
    let snapshot = cluster(1, 1, 3);
    let mut elastic = gang("a", 4, 1);
    elastic.minimum = 1;
    let labels = BTreeMap::from([("app".to_owned(), "a".to_owned())]);
    elastic.shapes[0].labels.clone_from(&labels);
    elastic.shapes[0].constraints.anti_affinity = vec![PodAffinityTerm {
        topology_key: "kubernetes.io/hostname".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(labels),
            ..LabelSelector::default()
        }),
        ..PodAffinityTerm::default()
    }];
    for (at, host) in [(0, "b0r0h1"), (3, "b0r0h0")] {
        let pod = elastic.pods[at].name.clone();
        elastic.held.insert(pod, host.to_owned());
    }
    // One host is left for two pods that want one each.
    let placement = run(&snapshot, &[elastic]);
    assert_eq!(nodes(&placement, "a"), Vec::<String>::new());
}

#[test]
fn a_required_level_holds_the_gang_or_nothing_does() {
    let mut snapshot = cluster(2, 2, 8);
    for host in ["b0r0h0", "b0r0h1", "b0r1h0", "b0r1h1", "b0r1h2"] {
        occupy(&mut snapshot, host, "eval-13b", 8);
    }
    for host in ["b1r0h0", "b1r1h1", "b1r0h2", "b1r1h3"] {
        occupy(&mut snapshot, host, "other", 8);
    }
    let placement = run(&snapshot, &[gang("a", 8, 8).wishing("required=rack")]);
    assert_eq!(
        why(&placement, "a"),
        "needs 8 nodes with 8 free GPUs under one rack; best rack `b0r0` has 6; 2 more are held by \
         `eval-13b`; fits when `eval-13b` ends, or with `preferred=rack`, or with 48 GPUs (6 pods)"
    );
    let placement = run(&snapshot, &[gang("a", 8, 8).wishing("preferred=rack")]);
    let seating = &placement.seated[&key("a")];
    assert_eq!(
        seating.domain.as_ref().map(|domain| domain.level.as_str()),
        Some("block")
    );
    assert_eq!(
        seating.warnings,
        ["`preferred=rack` was not possible: the ranks are in 2 racks"]
    );
}

#[test]
fn missing_level_is_reported() {
    let placement = run(
        &cluster(1, 1, 2),
        &[gang("a", 1, 8).wishing("required=row")],
    );
    assert_eq!(
        why(&placement, "a"),
        "asks for `required=row`, and the cluster has no such level; it has `block`, `rack`, `host`"
    );
}

#[test]
fn tensor_parallel_groups_stay_on_a_host() {
    let mut snapshot = cluster(1, 2, 4);
    for host in ["b0r0h0", "b0r0h1"] {
        occupy(&mut snapshot, host, "x", 6);
    }
    // Without groups the two GPUs that are left on each host would be used.
    let placement = run(&snapshot, &[gang("a", 8, 1).parallel("tp=4,dp=2")]);
    let nodes = nodes(&placement, "a");
    assert!(nodes[..4].iter().all(|node| *node == nodes[0]), "{nodes:?}");
    assert!(nodes[4..].iter().all(|node| *node == nodes[4]), "{nodes:?}");
}

#[test]
fn pipelines_stay_in_a_rack() {
    let mut snapshot = cluster(1, 3, 4);
    occupy(&mut snapshot, "b0r0h0", "x", 8);
    // Racks have 3, 4 and 4 hosts; two pipelines of four leave the first alone.
    let placement = run(&snapshot, &[gang("a", 8, 8).parallel("tp=8,pp=4,dp=2")]);
    let nodes = nodes(&placement, "a");
    let racks: Vec<&str> = nodes
        .iter()
        .map(|node| node.split('h').next().unwrap())
        .collect();
    assert_eq!(racks[..4], ["b0r1"; 4]);
    assert_eq!(racks[4..], ["b0r2"; 4]);
    // The same in the order in which Megatron numbers: stages are the slowest axis.
    let placement = run(&snapshot, &[gang("a", 8, 8).parallel("tp=8,dp=2,pp=4")]);
    let nodes = testing::nodes(&placement, "a");
    let rack = |at: usize| nodes[at].split('h').next().unwrap().to_owned();
    for pipeline in 0..2 {
        assert!(
            (0..4).all(|stage| rack(pipeline + 2 * stage) == rack(pipeline)),
            "{nodes:?}"
        );
    }
}

#[test]
fn priority_goes_first_then_age() {
    let snapshot = cluster(1, 1, 2);
    let cases = [
        (
            "priority",
            gang("a", 2, 8).created(1),
            gang("b", 2, 8).created(2).priority(1),
            "b",
        ),
        (
            "age",
            gang("a", 2, 8).created(2),
            gang("b", 2, 8).created(1),
            "b",
        ),
        ("name", gang("a", 2, 8), gang("b", 2, 8), "a"),
    ];
    for (case, a, b, first) in cases {
        let placement = run(&snapshot, &[a, b]);
        let seated: Vec<&str> = placement
            .seated
            .keys()
            .map(|key| key.name.as_str())
            .collect();
        assert_eq!(seated, [first], "{case}");
    }
}

#[test]
fn a_gang_that_waits_is_not_starved_by_smaller_ones() {
    let mut snapshot = cluster(1, 1, 4);
    occupy(&mut snapshot, "b0r0h0", "x", 8);
    let gangs = [
        gang("large", 4, 8).created(1),
        gang("small", 1, 8).created(2),
    ];
    let placement = run(&snapshot, &gangs);
    assert!(placement.seated.is_empty());
    assert_eq!(placement.reservations[&key("large")].len(), 4);
    assert_eq!(
        why(&placement, "small"),
        "needs 1 node with 8 free GPUs; the cluster has 0; 1 more is held by `x`; 3 are reserved for \
         `large`, which waits longer or has a higher priority"
    );
}

#[test]
fn what_is_not_promised_may_be_used() {
    let mut snapshot = cluster(1, 2, 2);
    occupy(&mut snapshot, "b0r0h0", "x", 8);
    occupy(&mut snapshot, "b0r1h0", "y", 8);
    let gangs = [
        gang("large", 2, 8).created(1).wishing("required=rack"),
        gang("small", 1, 8).created(2),
    ];
    let placement = run(&snapshot, &gangs);
    let promised: Vec<&str> = placement.reservations[&key("large")]
        .iter()
        .map(|seat| seat.node.as_str())
        .collect();
    assert_eq!(promised, ["b0r0h0", "b0r0h1"]);
    assert_eq!(nodes(&placement, "small"), ["b0r1h1"]);
}

#[test]
fn returning_gang_goes_first() {
    let mut snapshot = cluster(1, 2, 4);
    let mut broken = gang("broken", 4, 8).created(9);
    for (at, host) in ["b0r0h0", "b0r0h1", "b0r0h2"].iter().enumerate() {
        let pod = broken.pods[at].name.clone();
        broken.held.insert(pod, (*host).to_owned());
    }
    let lost = broken.pods[3].name.clone();
    broken.remembered.insert(lost, "b0r0h3".to_owned());
    let other = gang("other", 5, 8).created(1);
    // The node is back: both want it.
    let placement = run(&snapshot, &[other.clone(), broken.clone()]);
    assert_eq!(nodes(&placement, "broken"), ["b0r0h3"]);
    // It is not: the replacement is the nearest that is free.
    snapshot.nodes.get_mut("b0r0h3").unwrap().ready = false;
    let placement = run(&snapshot, &[other, broken]);
    assert_eq!(nodes(&placement, "broken"), ["b0r1h0"]);
}

#[test]
fn seat_on_a_node_outside_the_view_is_held() {
    let snapshot = cluster(1, 1, 4);
    let mut broken = gang("broken", 3, 8);
    for (at, host) in ["b0r0h0", "gone"].iter().enumerate() {
        let pod = broken.pods[at].name.clone();
        broken.held.insert(pod, (*host).to_owned());
    }
    let placement = run(&snapshot, std::slice::from_ref(&broken));
    let seating = &placement.seated[&broken.key];
    assert_eq!(seating.seats.len(), 1);
    assert_eq!(seating.unseated, 0);
}

#[test]
fn a_whole_gang_returns_to_its_seats() {
    let mut snapshot = cluster(1, 2, 4);
    let mut again = gang("again", 3, 8);
    for (pod, host) in again.pods.iter().zip(["b0r1h3", "b0r1h1", "b0r1h0"]) {
        again.remembered.insert(pod.name.clone(), host.to_owned());
    }
    let placement = run(&snapshot, &[again.clone()]);
    assert_eq!(nodes(&placement, "again"), ["b0r1h3", "b0r1h1", "b0r1h0"]);
    snapshot.nodes.get_mut("b0r1h1").unwrap().unschedulable = true;
    let placement = run(&snapshot, &[again]);
    assert_eq!(nodes(&placement, "again"), ["b0r1h3", "b0r1h2", "b0r1h0"]);
}

#[test]
fn quarantined_nodes_seat_nobody() {
    let mut snapshot = cluster(1, 1, 2);
    snapshot
        .nodes
        .get_mut("b0r0h0")
        .unwrap()
        .taints
        .push(Taint {
            key: QUARANTINED.to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
        });
    let placement = run(&snapshot, &[gang("a", 2, 8)]);
    assert_eq!(
        why(&placement, "a"),
        "needs 2 nodes with 8 free GPUs; the cluster has 1; 1 node is quarantined; does not fit even \
         when all other gangs have ended; fits with 8 GPUs (1 pods)"
    );
}

#[test]
fn a_launcher_has_a_seat_beside_the_ranks() {
    let mut snapshot = cluster(1, 2, 2);
    snapshot.nodes.insert("cpu-0".to_owned(), node(&[], 0));
    snapshot.detect_topology();
    let mut job = gang("a", 2, 8).wishing("required=rack");
    job.shapes.push(Shape {
        requests: amounts(&[(resources::CPU, 200_000), (resources::PODS, 1)]),
        ..Shape::default()
    });
    job.pods.push(Member {
        name: "a-launcher".to_owned(),
        role: crate::spec::Role::Launcher,
        shape: 1,
    });
    job.minimum = 3;
    let placement = run(&snapshot, &[job.clone()]);
    assert_eq!(
        why(&placement, "a"),
        "needs 2 nodes with 8 free GPUs under one rack; there are that many, but not 1 more with 200 \
         CPUs for role Launcher; no node is that large; does not fit even when all other gangs have ended"
    );
    job.shapes[1].requests.set(resources::CPU, 96_000);
    let placement = run(&snapshot, &[job]);
    assert_eq!(nodes(&placement, "a"), ["b0r0h0", "b0r0h1", "cpu-0"]);
}

#[test]
fn a_resource_that_no_node_reports_is_named() {
    const STORAGE: &str = "ephemeral-storage";
    let mut snapshot = cluster(1, 1, 2);
    let mut job = gang("a", 2, 8);
    job.shapes.push(Shape {
        requests: amounts(&[(STORAGE, 5 << 30), (resources::PODS, 1)]),
        ..Shape::default()
    });
    job.pods.push(Member {
        name: "a-launcher".to_owned(),
        role: crate::spec::Role::Launcher,
        shape: 1,
    });
    job.minimum = 3;
    let words = why(&run(&snapshot, &[job.clone()]), "a");
    assert!(
        words.contains("no node reports any `ephemeral-storage`; does not fit even when"),
        "{words}"
    );
    for node in snapshot.nodes.values_mut() {
        node.allocatable.set(STORAGE, 1 << 30);
    }
    let words = why(&run(&snapshot, &[job]), "a");
    assert!(
        words.contains("no node has 5120 MiB `ephemeral-storage`"),
        "{words}"
    );
}

#[test]
fn seats_that_are_held_but_not_seen_yet_are_taken() {
    let snapshot = cluster(1, 1, 2);
    let mut first = gang("first", 2, 8);
    for (pod, host) in first.pods.iter().zip(["b0r0h0", "b0r0h1"]) {
        first.held.insert(pod.name.clone(), host.to_owned());
    }
    let placement = run(&snapshot, &[first, gang("second", 1, 8)]);
    assert!(placement.seated.is_empty());
}

#[test]
fn a_node_is_in_the_domains_of_its_labels() {
    let mut snapshot = cluster(1, 1, 2);
    let nodes = &mut snapshot.nodes;
    nodes.insert("rackless".to_owned(), node(&[(BLOCK, "b7")], 8));
    nodes.insert("blockless".to_owned(), node(&[(RACK, "r9")], 8));
    nodes.insert("bare".to_owned(), node(&[], 8));
    snapshot.detect_topology();
    let cases: [(&str, &[&str]); 5] = [
        ("b0r0h1", &["b0", "b0r0"]),
        ("rackless", &["b7"]),
        ("blockless", &["", "r9"]),
        ("bare", &[]),
        ("unknown", &[]),
    ];
    for (name, want) in cases {
        assert_eq!(snapshot.domains(name), want, "{name}");
    }
}
