use super::*;

fn racks(sizes: &[usize], per_zone: usize) -> Topology {
    let mut nodes = Vec::new();
    for (rack, size) in sizes.iter().enumerate() {
        let zone = format!("zone-{}", rack / per_zone);
        nodes.extend(vec![vec![zone, format!("rack-{rack}")]; *size]);
    }
    Topology::new(&nodes)
}

fn assert_disjoint(name: &str, rounds: &[Vec<Pair>]) {
    for round in rounds {
        let mut seen = BTreeSet::new();
        for (a, b) in round {
            assert!(a < b, "{name}: {a} {b}");
            assert!(seen.insert(*a) && seen.insert(*b), "{name}: {round:?}");
        }
    }
}

#[test]
fn every_node_is_in_one_pair_per_round() {
    let mut cases: Vec<(String, Topology)> = (2..70)
        .map(|nodes| (format!("{nodes} flat"), Topology::flat(nodes)))
        .collect();
    cases.push(("racks of one size".to_owned(), racks(&[32; 32], 8)));
    cases.push(("uneven racks".to_owned(), racks(&[1, 7, 3, 12, 5], 2)));
    cases.push(("three zones".to_owned(), racks(&[3, 3, 3], 1)));
    for (name, topology) in cases {
        let rounds = schedule(&topology);
        assert_disjoint(&name, &rounds);
        assert!(
            rounds.len() <= most_rounds(topology.nodes()),
            "{name}: {}",
            rounds.len()
        );
        let met: BTreeSet<usize> = rounds
            .iter()
            .flatten()
            .flat_map(|(a, b)| [*a, *b])
            .collect();
        assert_eq!(met.len(), topology.nodes(), "{name}");
    }
}

#[test]
fn a_power_of_two_takes_its_logarithm() {
    assert_eq!(schedule(&Topology::flat(1024)).len(), 10);
    assert_eq!(schedule(&racks(&[32; 32], 8)).len(), 10);
    assert_eq!(schedule(&Topology::flat(1)), Vec::<Vec<Pair>>::new());
}

#[test]
fn a_tournament_meets_everyone_once() {
    for nodes in 2..12 {
        let topology = Topology::flat(nodes);
        let rounds: Vec<Vec<Pair>> = (0..turns(&topology, 0))
            .map(|turn| tournament(&topology, 0, turn))
            .collect();
        assert_disjoint(&format!("{nodes}"), &rounds);
        let met: BTreeSet<Pair> = rounds.iter().flatten().copied().collect();
        assert_eq!(met.len(), nodes * (nodes - 1) / 2, "{nodes}");
        assert_eq!(
            rounds.iter().map(Vec::len).sum::<usize>(),
            met.len(),
            "{nodes}"
        );
    }
}

#[test]
fn a_path_goes_over_the_links_between_two_nodes() {
    let topology = racks(&[2, 2, 2, 2], 2);
    let names = |links: Vec<Link>| -> Vec<String> {
        let name = |link| match link {
            Link::Node(node) => format!("{node}"),
            Link::Uplink(domain) => topology.domain(domain).to_owned(),
        };
        links.into_iter().map(name).collect()
    };
    let cases = [
        ((0, 1), 0, vec!["0"], vec!["1"]),
        (
            (0, 2),
            1,
            vec!["0", "zone-0/rack-0"],
            vec!["2", "zone-0/rack-1"],
        ),
        (
            (1, 6),
            2,
            vec!["1", "zone-0/rack-0", "zone-0"],
            vec!["6", "zone-1/rack-3", "zone-1"],
        ),
    ];
    for (pair, level, first, second) in cases {
        assert_eq!(topology.level(pair), level);
        let (left, right) = topology.path(pair);
        assert_eq!(
            (names(left), names(right)),
            (
                first.iter().map(|name| (*name).to_owned()).collect(),
                second.iter().map(|name| (*name).to_owned()).collect()
            )
        );
    }
}

#[test]
fn indistinguishable_links_are_merged() {
    // A rack of one node in a zone of its own, and a zone with a single rack.
    let topology = racks(&[1, 2, 2], 1);
    let (left, right) = topology.path((0, 1));
    assert_eq!(left, [Link::Node(0)]);
    assert_eq!(right.len(), 2, "{right:?}");
    assert_eq!(topology.behind(right[1]), [1, 2]);
}
