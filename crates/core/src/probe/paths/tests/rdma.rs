//! Pairs that are measured over RDMA.

use super::*;
use crate::probe::tools::Port;

/// Searches over five nodes of which each pair reaches 390 Gb/s; `damage` changes what a pair found.
fn checks(needs: &Needs, damage: impl Fn(&mut PairFound)) -> (Vec<Check>, Vec<Check>) {
    let names: Vec<String> = (0..5).map(|node| format!("node-{node}")).collect();
    let port = Port {
        device: "mlx5_0".to_owned(),
        number: 1,
        gid_index: Some(3),
        of: 8,
    };
    let method = Method::Rdma(vec![port; 5]);
    let mut search = Search::new(Topology::flat(5));
    let mut all = Vec::new();
    while let Some(round) = search.next_round() {
        let found = round.into_iter().map(|pair| {
            let mut found = PairFound {
                pair,
                bandwidth: 390e9,
                ..PairFound::default()
            };
            damage(&mut found);
            found
        });
        let found: Vec<PairFound> = found.collect();
        let measured = found.iter().map(|found| method.measurement(found));
        let measured: Vec<Measurement> = measured.collect();
        search.record(&measured);
        all.extend(found);
    }
    let paths = Paths {
        method: &method,
        names: &names,
        topology: search.topology(),
        found: &all,
        conclusion: &search.conclude(),
        needs,
    };
    (paths.of_nodes().concat(), paths.shared())
}

fn wants(bandwidth_gbps: u64) -> Needs {
    Needs {
        transport: Some("roce".to_owned()),
        bandwidth_gbps: Some(bandwidth_gbps),
        ..Needs::default()
    }
}

#[test]
fn a_pair_measured_once_is_a_warning() {
    let names = ["node-0", "node-1"].map(str::to_owned);
    let found = PairFound {
        pair: (0, 1),
        bandwidth: 40e9,
        ..PairFound::default()
    };
    let method = Method::Rdma(Vec::new());
    let conclusion = Conclusion {
        unconfirmed: BTreeSet::from([(0, 1)]),
        ..Conclusion::default()
    };
    let paths = Paths {
        method: &method,
        names: &names,
        topology: &Topology::flat(2),
        found: &[found],
        conclusion: &conclusion,
        needs: &Needs::default(),
    };
    let check = &paths.shared()[0];
    let subject = check.subject.as_str();
    assert_eq!((check.outcome, subject), (Outcome::Warn, "node-0 - node-1"));
    assert!(check.found.contains("measured once"), "{}", check.found);
}

#[test]
fn the_slow_node_fails_and_no_other() {
    type Case = (&'static str, fn(&mut PairFound), &'static str);
    let cases: [Case; 2] = [
        (
            "slow",
            |found| found.bandwidth = 40e9,
            "40 Gb/s at best, with 3 others",
        ),
        (
            "cannot",
            |found| {
                found.bandwidth = 0.0;
                found.trouble = Some("node-3: `ib_write_bw` ended with exit code 1".to_owned());
            },
            "0 Mb/s at best, with 3 others; node-3: `ib_write_bw` ended with exit code 1",
        ),
    ];
    for (name, damage, want) in cases {
        let (nodes, shared) = checks(&wants(3200), |found| {
            if found.has(3) {
                damage(found);
            }
        });
        let outcomes: Vec<Outcome> = nodes.iter().map(|check| check.outcome).collect();
        let mut expected = vec![Outcome::Pass; 5];
        expected[3] = Outcome::Fail;
        assert_eq!(outcomes, expected, "{name}");
        assert_eq!(
            (nodes[3].found.as_str(), nodes[3].subject.as_str()),
            (want, "mlx5_0/1")
        );
        let fabric: Vec<Outcome> = shared.iter().map(|check| check.outcome).collect();
        assert_eq!(
            fabric,
            [Outcome::Pass],
            "{name}: the others are as fast as they should be"
        );
    }
}

#[test]
fn all_slow_is_the_fabric() {
    let (nodes, shared) = checks(&wants(3200), |found| found.bandwidth = 90e9);
    assert!(nodes.iter().all(|check| check.outcome == Outcome::Pass));
    let [fabric] = &shared[..] else {
        panic!("{shared:?}");
    };
    assert_eq!(fabric.outcome, Outcome::Fail);
    assert_eq!(
        fabric.needed,
        "0.7 of 400 Gb/s, the share of one of 8 ports"
    );
    let (_, shared) = checks(&Needs::default(), |_| {});
    assert_eq!(shared, [], "nothing is expected");
}

#[test]
fn no_transfer_blames_no_node() {
    let broken = |found: &mut PairFound| {
        found.bandwidth = 0.0;
        found.trouble = Some("node-1: `ib_write_bw` did not end within 11 s".to_owned());
    };
    for (needs, want) in [
        (wants(400), Outcome::Fail),
        (Needs::default(), Outcome::Warn),
    ] {
        let (nodes, shared) = checks(&needs, broken);
        let is_skipped = |check: &Check| check.outcome == Outcome::NotApplicable;
        assert!(nodes.iter().all(is_skipped), "{nodes:?}");
        let [all] = &shared[..] else {
            panic!("{shared:?}");
        };
        assert_eq!(all.outcome, want);
        assert!(
            all.found.ends_with("did not end within 11 s"),
            "{}",
            all.found
        );
    }
}

#[test]
fn single_slow_pair_is_reported() {
    let (nodes, shared) = checks(&Needs::default(), |found| {
        if found.pair == (0, 1) {
            found.bandwidth = 10e9;
        }
    });
    assert!(
        nodes.iter().all(|check| check.outcome == Outcome::Pass),
        "{nodes:?}"
    );
    let outcomes: Vec<(&str, Outcome)> = shared
        .iter()
        .map(|check| (check.subject.as_str(), check.outcome))
        .collect();
    assert_eq!(outcomes, [("node-0 - node-1", Outcome::Fail)]);
}
