mod rdma;

use super::*;
use crate::probe::{
    ring::RingFound,
    search::{Measurement, Search},
};

/// Searches over five nodes; `damage` changes what a pair found.
fn checks(
    expected_gbps: Option<u64>,
    damage: impl Fn(&mut PairFound),
) -> (Vec<Vec<Check>>, Vec<Check>) {
    let names: Vec<String> = (0..5).map(|node| format!("node-{node}")).collect();
    let mut search = Search::new(Topology::flat(5));
    let mut all = Vec::new();
    while let Some(round) = search.next_round() {
        let mut found: Vec<PairFound> = round
            .into_iter()
            .map(|pair| PairFound {
                pair,
                bandwidth: 10e9,
                round_trip_micros: Some(100),
                ..PairFound::default()
            })
            .collect();
        found.iter_mut().for_each(&damage);
        let measured = found.iter().map(|found| Method::Streams.measurement(found));
        let measured: Vec<Measurement> = measured.collect();
        search.record(&measured);
        all.extend(found);
    }
    let conclusion = search.conclude();
    let needs = Needs {
        bandwidth_gbps: expected_gbps,
        ..Needs::default()
    };
    let paths = Paths {
        method: &Method::Streams,
        names: &names,
        topology: search.topology(),
        found: &all,
        conclusion: &conclusion,
        needs: &needs,
    };
    let ring = RingFound::Ended {
        nodes: 5,
        bandwidth: 9e9,
        right: true,
    };
    let mut shared = paths.shared();
    shared.push(ring.check(paths.median()));
    (paths.of_nodes(), shared)
}

#[test]
fn slow_node_fails_with_cause() {
    type Case = (&'static str, fn(&mut PairFound), &'static str, &'static str);
    let cases: [Case; 4] = [
        (
            "slow",
            |found| found.bandwidth = 1e9,
            "1 Gb/s at best, with 4 others",
            "lower speed",
        ),
        (
            "stalled",
            |found| {
                found.bandwidth = 0.0;
                found.stalled = true;
            },
            "0 Mb/s at best, with 4 others, small messages pass and large ones do not",
            "an MTU",
        ),
        (
            "lossy",
            |found| found.sent_again = 0.08,
            "10 Gb/s at best, with 4 others, 8 % of segments sent again",
            "packets are lost",
        ),
        (
            "refused",
            |found| {
                found.bandwidth = 0.0;
                found.round_trip_micros = None;
                found.trouble = Some("connecting: refused".to_owned());
            },
            "0 Mb/s at best, with 4 others; connecting: refused",
            "no data gets through",
        ),
    ];
    for (name, damage, found, cause) in cases {
        let (nodes, shared) = checks(None, |pair| {
            if pair.has(3) {
                damage(pair);
            }
        });
        for (node, checks) in nodes.iter().enumerate() {
            let bandwidth = &checks[0];
            let expected = if node == 3 {
                Outcome::Fail
            } else {
                Outcome::Pass
            };
            assert_eq!(bandwidth.outcome, expected, "{name}: {node} {bandwidth:?}");
        }
        // The number of partners depends on the confirming rounds, so only its place is compared.
        let own = &nodes[3][0];
        let without = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "#");
        assert_eq!(without(&own.found), without(found), "{name}");
        assert!(own.cause.contains(cause), "{name}: {}", own.cause);
        assert!(!own.next.is_empty(), "{name}");
        assert!(
            shared.iter().all(|check| check.outcome == Outcome::Pass),
            "{name}: {shared:?}"
        );
    }
}

#[test]
fn all_equally_slow_blames_the_fabric() {
    let (nodes, shared) = checks(Some(400), |found| found.bandwidth = 1e9);
    assert!(
        nodes
            .iter()
            .all(|checks| checks[0].outcome == Outcome::Pass)
    );
    let fabric = shared
        .iter()
        .find(|check| check.subject == "fabric")
        .unwrap();
    assert_eq!(fabric.outcome, Outcome::Fail);
    assert_eq!(
        fabric.needed,
        "0.7 of 400 Gb/s, since one stream is held to 10 Gb/s at most"
    );
    let (_, shared) = checks(Some(10), |_| {});
    assert_eq!(shared[0].outcome, Outcome::Pass);
}

#[test]
fn what_only_processors_limit_is_not_compared() {
    let (nodes, shared) = checks(None, |found| {
        found.bandwidth = if found.has(2) { 17e9 } else { 40e9 };
    });
    let all = nodes.iter().map(|checks| &checks[0]).chain(&shared);
    assert!(
        all.clone().all(|check| check.outcome != Outcome::Fail),
        "{nodes:?} {shared:?}"
    );
    let (nodes, _) = checks(None, |found| {
        found.bandwidth = if found.has(2) { 10e9 } else { 40e9 };
    });
    assert_eq!(nodes[2][0].outcome, Outcome::Fail);
}

#[test]
fn outlier_latency_is_reported() {
    let (nodes, _) = checks(None, |found| {
        if found.has(1) {
            found.round_trip_micros = Some(40_000);
        }
    });
    assert_eq!(nodes[1][1].outcome, Outcome::Warn);
    assert_eq!(nodes[4][1].outcome, Outcome::Pass);
}

#[test]
fn a_pair_alone_fails_no_node() {
    let (nodes, shared) = checks(None, |found| {
        if found.pair == (2, 3) {
            found.bandwidth = 1e9;
        }
    });
    assert!(
        nodes
            .iter()
            .all(|checks| checks[0].outcome == Outcome::Pass),
        "{nodes:?}"
    );
    assert_eq!(
        (shared[0].outcome, shared[0].subject.as_str()),
        (Outcome::Fail, "node-2 - node-3")
    );
}

#[test]
fn a_pair_measured_once_is_a_warning() {
    let conclusion = Conclusion {
        unconfirmed: BTreeSet::from([(0, 1)]),
        ..Conclusion::default()
    };
    let paths = Paths {
        method: &Method::Streams,
        names: &["node-0", "node-1"].map(str::to_owned),
        topology: &Topology::flat(2),
        found: &[],
        conclusion: &conclusion,
        needs: &Needs::default(),
    };
    let check = &paths.shared()[0];
    assert_eq!(check.outcome, Outcome::Warn);
    assert!(check.found.contains("node-0 - node-1"), "{}", check.found);
}

#[test]
fn invisible_volume_fails_unless_node_folder() {
    let wrong = [("node-1".to_owned(), "not found".to_owned())];
    assert_eq!(volume_shared("/ckpt", &[], 3, false).outcome, Outcome::Pass);
    assert_eq!(
        volume_shared("/ckpt", &wrong, 3, false).outcome,
        Outcome::Fail
    );
    assert_eq!(
        volume_shared("/ckpt", &wrong, 3, true).outcome,
        Outcome::Warn
    );
}
