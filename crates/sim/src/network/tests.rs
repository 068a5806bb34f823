use std::collections::BTreeSet;

use trainyard_core::probe::pairs::most_rounds;

use super::*;

#[test]
fn flows_share_what_their_tightest_link_leaves() {
    let topology = zones(1, 2, 4);
    let rack = *topology.links().last().expect("racks have uplinks");
    let network = Network::new(0, topology, 1.0, 0.0).with_slow(rack, 0.25);
    // Two flows through an uplink of 1.0, of which one crosses a node's link of 1.0 too.
    assert_eq!(network.shares(&[(0, 4), (1, 5)]), [0.5, 0.5]);
    assert_eq!(network.shares(&[(0, 4)]), [1.0]);
    assert_eq!(network.shares(&[(0, 1), (4, 5)]), [1.0, 1.0]);
    assert_eq!(network.shares(&[(0, 4), (1, 5), (2, 6), (3, 7)]), [0.25; 4]);
}

#[test]
fn one_slow_link_of_1024_nodes_is_named() {
    let topology = zones(4, 8, 32);
    let bound = most_rounds(topology.nodes());
    for seed in 0..100 {
        let trial = Trial::run(seed, &topology);
        assert!(trial.is_right(), "seed {seed}: {trial:?}");
        assert!(trial.conclusion.rounds <= bound, "seed {seed}");
    }
}

/// Several faults in a network of any shape.
struct Faults {
    topology: Topology,
    links: BTreeMap<Link, f64>,
    pairs: BTreeMap<Pair, f64>,
}

impl Faults {
    fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 2);
        let topology = match dice.below(3) {
            0 => Topology::flat(usize::try_from(dice.within(2..=40)).unwrap()),
            1 => zones(1, usize::try_from(dice.within(2..=6)).unwrap(), 5),
            _ => zones(3, 2, usize::try_from(dice.within(1..=6)).unwrap()),
        };
        let links: Vec<Link> = topology.links().into_iter().collect();
        let mut faults = Self {
            links: BTreeMap::new(),
            pairs: BTreeMap::new(),
            topology,
        };
        // A node all of whose pairs are slow is a slow node, so that each is in at most one.
        let mut in_pair = BTreeSet::new();
        for _ in 0..=dice.below(4) {
            let part = f64::from(dice.below(51)) / 100.0;
            if dice.chance(70) {
                faults.links.insert(dice.pick(&links), part);
                continue;
            }
            let nodes = u32::try_from(faults.topology.nodes()).unwrap();
            let (a, b) = (dice.below(nodes) as usize, dice.below(nodes) as usize);
            if a != b && !in_pair.contains(&a) && !in_pair.contains(&b) {
                in_pair.extend([a, b]);
                faults.pairs.insert((a.min(b), a.max(b)), part);
            }
        }
        faults
    }

    fn search(&self, seed: u64) -> Conclusion {
        let mut network = Network::new(seed, self.topology.clone(), 1.0, 0.05);
        for (link, part) in &self.links {
            network = network.with_slow(*link, *part);
        }
        for (pair, part) in &self.pairs {
            network = network.with_slow_pair(*pair, *part);
        }
        network.search()
    }
}

#[test]
fn what_is_good_is_never_named() {
    for seed in 0..20_000 {
        let faults = Faults::draw(seed);
        let found = faults.search(seed);
        let detail = || {
            format!(
                "seed {seed}: {:?} {:?}: {found:?}",
                faults.links, faults.pairs
            )
        };
        for link in &found.slow {
            assert!(faults.links.contains_key(link), "{}", detail());
        }
        let all = found.rounds <= most_rounds(faults.topology.nodes());
        assert!(all, "{}", detail());
    }
}

#[test]
fn slow_node_is_named_or_suspected() {
    for seed in 0..5_000 {
        let mut dice = Dice::new(seed, 3);
        let nodes = usize::try_from(dice.within(7..=64)).unwrap();
        // With more bad ones than this, most nodes of a small gang may have met no good one.
        let count = 1 + dice.below(2);
        let bad: BTreeSet<usize> = (0..count)
            .map(|_| dice.below(u32::try_from(nodes).unwrap()) as usize)
            .collect();
        let mut network = Network::new(seed, Topology::flat(nodes), 1.0, 0.05);
        for node in &bad {
            network = network.with_slow(Link::Node(*node), f64::from(dice.below(50)) / 100.0);
        }
        let found = network.search();
        let open = found.undecided.iter().flatten().copied();
        let open = open.chain(found.unproven.iter().map(|node| Link::Node(*node)));
        let named: BTreeSet<Link> = found.slow.iter().copied().chain(open).collect();
        for node in &bad {
            let named = named.contains(&Link::Node(*node));
            assert!(named, "seed {seed}: {node} of {nodes}, {bad:?}: {found:?}");
        }
    }
}
