mod brute;
mod changes;
mod futures;
mod hostile;
mod reading;
mod sources;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Answer, Offer, Order, Unknown, answer, answers};
use crate::gang::{
    Gang, Snapshot, Taint, TaintEffect, place,
    testing::{GPU, RACK, cluster, gang},
};

const ZONE: &str = "topology.kubernetes.io/zone";

fn now() -> Timestamp {
    Timestamp::from_second(1_785_000_000).unwrap()
}

/// An offer of one file with these pools.
fn offer(pools: Value) -> Offer {
    offer_in(&Snapshot::default(), vec![capacity(pools)])
}

fn capacity(pools: Value) -> Value {
    json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "Capacity", "currency": "USD",
        "pools": pools})
}

fn offer_in(snapshot: &Snapshot, values: Vec<Value>) -> Offer {
    Offer::of_values(values, snapshot, now()).unwrap()
}

/// A shape of `gpus` GPUs at a price.
fn shape(name: &str, gpus: i64, price: f64) -> Value {
    json!({"name": name, "pricePerHour": price, "readyAfter": "6m",
        "allocatable": {"cpu": 96, "pods": 110, GPU: gpus}})
}

fn pool(name: &str, shapes: Vec<Value>) -> Value {
    json!({"name": name, "shapes": shapes})
}

/// The same with more fields.
fn with(mut value: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    value.as_object_mut().unwrap().extend(more);
    value
}

fn ask(snapshot: &Snapshot, gang: &Gang, offer: &Offer) -> Answer {
    answer(snapshot, gang, offer, now())
}

fn order(answer: &Answer) -> &Order {
    match answer {
        Answer::FitsAfterScaleUp { order } => order,
        other => panic!("no scale-up: {}", other.message()),
    }
}

/// `2 p5, 1 cpu`, in the order of the offer.
fn nodes(order: &Order) -> String {
    let parts = order.parts.iter();
    let words: Vec<String> = parts
        .map(|part| format!("{} {}", part.nodes, part.shape))
        .collect();
    words.join(", ")
}

#[test]
fn three_answers() {
    let two = cluster(1, 1, 2);
    let gpus = offer(json!([pool("gpu", vec![shape("p5", 8, 98.32)])]));
    assert_eq!(ask(&two, &gang("j", 2, 8), &gpus), Answer::FitsNow);

    let later = ask(&two, &gang("j", 6, 8), &gpus);
    assert_eq!(
        later.message(),
        "fits after a scale-up: 4 nodes `p5` of pool `gpu` (8 GPUs each); 2 of 6 pods on nodes that \
         exist; such nodes were ready after 6 min; 393.28 USD an hour"
    );

    let never = ask(&two, &gang("j", 2, 16), &gpus);
    assert_eq!(
        never.message(),
        "never fits: one pod asks for 16 GPUs, and `p5` of pool `gpu` has 8 GPUs; fits with 8 GPUs \
         instead of 16 for each pod (on the nodes that exist)"
    );
}

#[test]
fn nodes_that_scale_ups_need() {
    let empty = Snapshot::default();
    let one = || vec![shape("p5", 8, 90.0)];
    let cases: Vec<(&str, Value, Gang, &str)> = vec![
        (
            "one pod",
            json!([pool("a", one())]),
            gang("j", 1, 1),
            "1 p5",
        ),
        ("packed", json!([pool("a", one())]), gang("j", 9, 3), "5 p5"),
        (
            "full nodes",
            json!([pool("a", one())]),
            gang("j", 32, 8),
            "32 p5",
        ),
        (
            "the cheaper shape",
            json!([pool(
                "a",
                vec![shape("dear", 8, 90.0), shape("cheap", 8, 80.0)]
            )]),
            gang("j", 4, 8),
            "4 cheap",
        ),
        (
            "one large node is cheaper than two small",
            json!([pool(
                "a",
                vec![shape("small", 4, 50.0), shape("large", 8, 90.0)]
            )]),
            gang("j", 2, 4),
            "1 large",
        ),
        (
            "more weight before the price",
            json!([
                pool("cheap", vec![shape("cheap", 8, 1.0)]),
                with(
                    pool("heavy", vec![shape("heavy", 8, 9.0)]),
                    json!({"weight": 10})
                ),
            ]),
            gang("j", 1, 8),
            "1 heavy",
        ),
        (
            "two pools where one is too small",
            json!([
                with(
                    pool("a", vec![shape("a", 8, 1.0)]),
                    json!({"atMost": {"nodes": 3}})
                ),
                with(
                    pool("b", vec![shape("b", 8, 2.0)]),
                    json!({"atMost": {GPU: 40}})
                ),
            ]),
            gang("j", 8, 8),
            "3 a, 5 b",
        ),
        (
            "daemon sets take their part",
            json!([
                pool(
                    "a",
                    vec![with(
                        shape("p5", 8, 1.0),
                        json!({"daemons": {"cpu": "95500m"}})
                    )]
                ),
                pool("b", vec![shape("free", 8, 2.0)])
            ]),
            gang("j", 2, 4),
            "1 free",
        ),
    ];
    for (name, pools, gang, want) in cases {
        let answer = ask(&empty, &gang, &offer(pools));
        assert_eq!(nodes(order(&answer)), want, "{name}: {}", answer.message());
    }
}

#[test]
fn roles_get_nodes_of_their_own() {
    let pools = json!([
        pool("cpu", vec![shape("c6", 0, 1.0)]),
        with(
            pool("gpu", vec![shape("p5", 8, 90.0)]),
            json!({"taints": [{"key": GPU, "effect": "NoSchedule"}]})
        ),
    ]);
    let mut job = gang("j", 2, 8);
    job.shapes[0].constraints.tolerations = serde_json::from_value(json!([
        {"key": GPU, "operator": "Exists"}
    ]))
    .unwrap();
    let mut launcher = gang("l", 1, 0).shapes.remove(0);
    launcher.ranks = 0;
    job.shapes.push(launcher);
    let mut member = job.pods[0].clone();
    (member.name, member.shape) = ("j-launcher".to_owned(), 1);
    job.pods.push(member);
    job.minimum = 3;
    let answer = ask(&Snapshot::default(), &job, &offer(pools));
    assert_eq!(nodes(order(&answer)), "1 c6, 2 p5");
    assert_eq!(order(&answer).price_per_hour.unwrap().to_string(), "181.00");
}

#[test]
fn topology_of_new_nodes() {
    let in_rack = |rack: &str| {
        with(
            pool(&format!("gpu-{rack}"), vec![shape("p5", 8, 1.0)]),
            json!({"labels": {RACK: rack}, "atMost": {"nodes": 2}}),
        )
    };
    let zones = with(
        pool("gpu", vec![shape("p5", 8, 1.0)]),
        json!({"zones": ["a", "b"]}),
    );
    let empty = Snapshot::default();
    let one = cluster(1, 2, 1);
    let job = |pods, wish| gang("j", pods, 8).wishing(wish);

    let answer = ask(
        &empty,
        &job(2, "required=rack"),
        &offer(json!([in_rack("r1"), in_rack("r2")])),
    );
    assert_eq!(nodes(order(&answer)), "2 p5");
    // Four fit in two racks, and not in one.
    let two_racks = offer(json!([in_rack("r1"), in_rack("r2")]));
    let answer = ask(&empty, &job(4, "required=rack"), &two_racks);
    assert!(
        matches!(answer, Answer::NeverFits(_)),
        "{}",
        answer.message()
    );
    let answer = ask(&empty, &job(4, "preferred=rack"), &two_racks);
    assert_eq!(nodes(order(&answer)), "2 p5, 2 p5");
    // All new nodes come in one zone.
    let answer = ask(&empty, &job(4, "required=zone"), &offer(json!([zones])));
    assert_eq!(nodes(order(&answer)), "4 p5");
    assert_eq!(order(&answer).parts[0].labels[ZONE], "a");
    // Nobody says in which rack they come.
    let answer = ask(&one, &job(3, "required=rack"), &offer(json!([zones])));
    let Answer::MayFit { unknown, order } = &answer else {
        panic!("{}", answer.message());
    };
    let rack = Unknown::Domain {
        pool: "gpu".to_owned(),
        level: "rack".to_owned(),
    };
    assert_eq!(
        (unknown.as_slice(), order.is_some()),
        ([rack].as_slice(), true)
    );
}

#[test]
fn a_rack_is_completed() {
    // Two of three nodes exist; the third comes into their rack.
    let present = cluster(1, 1, 2);
    let labels = present.nodes["b0r0h0"].labels.clone();
    let pools = json!([with(
        pool("gpu", vec![shape("p5", 8, 1.0)]),
        json!({"labels": labels})
    )]);
    let job = gang("j", 3, 8).wishing("required=rack");
    let answer = ask(&present, &job, &offer(pools));
    assert_eq!(nodes(order(&answer)), "1 p5");
    assert_eq!(order(&answer).pods_on_present_nodes, 2);
}

#[test]
fn unknown_stays_unknown() {
    let bare = json!({"name": "gpu"});
    let limited = json!({"name": "gpu", "atMost": {GPU: 16}});
    let tainted = json!({"name": "gpu", "taints": [{"key": "team", "effect": "NoSchedule"}]});
    let cases = [
        ("no shape", bare, 4, "may fit after a scale-up"),
        ("no shape, too small a limit", limited, 4, "never fits"),
        ("no shape, a taint", tainted, 4, "never fits"),
    ];
    for (name, pool, pods, want) in cases {
        let answer = ask(
            &Snapshot::default(),
            &gang("j", pods, 8),
            &offer(json!([pool])),
        );
        assert!(
            answer.message().starts_with(want),
            "{name}: {}",
            answer.message()
        );
    }
    // A shape that is known comes first.
    let both = json!([{"name": "a"}, pool("b", vec![shape("p5", 8, 1.0)])]);
    let answer = ask(&Snapshot::default(), &gang("j", 1, 8), &offer(both));
    assert_eq!(nodes(order(&answer)), "1 p5");
}

/// Nodes of 8 GPUs, all held by another gang.
fn full(nodes: usize) -> Snapshot {
    let mut full = cluster(1, 1, nodes);
    let other = gang("other", nodes, 8);
    let placement = place(&full, std::slice::from_ref(&other), now());
    for seat in &placement.seated[&other.key].seats {
        full.pods.insert(
            crate::gang::PodKey {
                namespace: "team".to_owned(),
                name: seat.pod.clone(),
            },
            crate::gang::Resident {
                node: seat.node.clone(),
                gang: Some(other.key.clone()),
                requests: other.shapes[0].requests.clone(),
                ..crate::gang::Resident::default()
            },
        );
    }
    full
}

#[test]
fn a_full_cluster_is_no_never() {
    let small = offer(json!([pool("gpu", vec![shape("g4", 1, 1.0)])]));
    let answer = ask(&full(2), &gang("j", 2, 8), &small);
    assert!(
        matches!(answer, Answer::FitsWhenOthersEnd { .. }),
        "{}",
        answer.message()
    );
}

#[test]
fn one_scale_up_is_no_room_for_another() {
    let pools = with(
        pool("gpu", vec![shape("p5", 8, 1.0)]),
        json!({"atMost": {"nodes": 5}}),
    );
    let gangs = [
        gang("a", 3, 8),
        gang("b", 3, 8).created(1),
        gang("c", 2, 8).created(2),
    ];
    let offer = offer(json!([pools]));
    let empty = Snapshot::default();
    let placement = place(&empty, &gangs, now());
    let answers = answers(&empty, &gangs, &placement, &offer);
    let words: BTreeMap<&str, bool> = answers
        .iter()
        .map(|(key, answer)| {
            let is_order = matches!(answer, Answer::FitsAfterScaleUp { .. });
            (key.name.as_str(), is_order)
        })
        .collect();
    assert_eq!(
        words,
        BTreeMap::from([("a", true), ("b", false), ("c", true)])
    );
    // It is no fault of its own: the room is there once `a` has ended.
    let second = answers.iter().find(|(key, _)| key.name == "b").unwrap().1;
    assert!(
        matches!(second, Answer::FitsWhenOthersEnd { .. }),
        "{}",
        second.message()
    );
}

#[test]
fn an_elastic_gang_waits_for_its_least_number() {
    let mut job = gang("j", 8, 8);
    job.minimum = 2;
    let small = offer(json!([pool("gpu", vec![shape("g4", 1, 1.0)])]));
    let answer = ask(&full(4), &job, &small);
    assert!(
        matches!(answer, Answer::FitsWhenOthersEnd { .. }),
        "{}",
        answer.message()
    );
}

#[test]
fn an_elastic_gang_starts_with_fewer() {
    let pools = with(
        pool("gpu", vec![shape("p5", 8, 1.0)]),
        json!({"atMost": {"nodes": 5}}),
    );
    let mut job = gang("j", 8, 8);
    job.minimum = 4;
    let answer = ask(&Snapshot::default(), &job, &offer(json!([pools])));
    let order = order(&answer);
    assert_eq!((order.pods, order.unseated), (5, 3), "{}", answer.message());
}

#[test]
fn spread_and_affinity_are_kept() {
    let zones = json!([with(
        pool("gpu", vec![shape("p5", 8, 1.0)]),
        json!({"zones": ["a", "b"]}),
    )]);
    let mut apart = gang("j", 4, 1);
    apart.shapes[0].constraints.anti_affinity = serde_json::from_value(json!([
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job": "j"}}}
    ]))
    .unwrap();
    let answer = ask(&Snapshot::default(), &apart, &offer(zones.clone()));
    assert_eq!(nodes(order(&answer)), "4 p5");

    let mut spread = gang("j", 4, 8);
    spread.shapes[0].constraints.spread = serde_json::from_value(json!([
        {"topologyKey": ZONE, "maxSkew": 1, "minDomains": 2, "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"job": "j"}}}
    ]))
    .unwrap();
    let answer = ask(&Snapshot::default(), &spread, &offer(zones));
    let zones: Vec<&str> = order(&answer)
        .parts
        .iter()
        .map(|part| part.labels[ZONE].as_str())
        .collect();
    assert_eq!(zones, ["a", "b"], "{}", answer.message());
}

fn taint(key: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    }
}
