use super::*;

/// A network in which each link lets a part of full speed through, and pairs may be slow alone.
struct Network {
    topology: Topology,
    links: BTreeMap<Link, f64>,
    pairs: BTreeMap<Pair, f64>,
    /// Pairs that are slow the first times only, and how many times are left.
    hiccups: BTreeMap<Pair, usize>,
}

impl Network {
    fn new(topology: Topology) -> Self {
        Self {
            topology,
            links: BTreeMap::new(),
            pairs: BTreeMap::new(),
            hiccups: BTreeMap::new(),
        }
    }

    fn node(mut self, node: usize, part: f64) -> Self {
        self.links.insert(Link::Node(node), part);
        self
    }

    fn uplink(mut self, name: &str, part: f64) -> Self {
        let links = self.topology.links();
        let is_named = |link: &&Link| matches!(link, Link::Uplink(domain) if self.topology.domain(*domain) == name);
        let link = *links
            .iter()
            .find(is_named)
            .expect("the domain has an uplink");
        self.links.insert(link, part);
        self
    }

    fn pair(mut self, pair: Pair, part: f64) -> Self {
        self.pairs.insert(pair, part);
        self
    }

    /// Slow the first times that it is measured.
    fn hiccup(mut self, pair: Pair, times: usize) -> Self {
        self.hiccups.insert(pair, times);
        self
    }

    fn bandwidth(&mut self, pair: Pair) -> f64 {
        let (left, right) = self.topology.path(pair);
        let links = left
            .iter()
            .chain(&right)
            .filter_map(|link| self.links.get(link));
        let part = links
            .chain(self.pairs.get(&pair))
            .copied()
            .fold(1.0, f64::min);
        // Noise that depends on the pair only, so that a test has one outcome.
        let eleventh = u8::try_from((pair.0 * 7 + pair.1 * 13) % 11).expect("it is below 11");
        let noise = 0.98 + 0.004 * f64::from(eleventh);
        let hiccup = match self.hiccups.get_mut(&pair) {
            Some(left) if *left > 0 => {
                *left -= 1;
                0.3
            }
            _ => 1.0,
        };
        100.0 * part * noise * hiccup
    }

    fn search(self) -> Conclusion {
        self.search_within(usize::MAX)
    }

    /// Ends after so many rounds, as where time runs out.
    fn search_within(mut self, rounds: usize) -> Conclusion {
        let mut search = Search::new(self.topology.clone());
        while let Some(round) = search.next_round() {
            let measured: Vec<Measurement> = round
                .into_iter()
                .map(|pair| Measurement {
                    pair,
                    bandwidth: self.bandwidth(pair),
                })
                .collect();
            search.record(&measured);
            if search.rounds == rounds {
                break;
            }
        }
        let conclusion = search.conclude();
        assert!(conclusion.rounds <= most_rounds(self.topology.nodes()));
        conclusion
    }
}

fn racks(count: usize, size: usize) -> Topology {
    let rack = |node: usize| vec![format!("rack-{}", node / size)];
    Topology::new(&(0..count * size).map(rack).collect::<Vec<_>>())
}

fn words(conclusion: &Conclusion, topology: &Topology) -> String {
    let name = |link: &Link| match link {
        Link::Node(node) => node.to_string(),
        Link::Uplink(domain) => topology.domain(*domain).to_owned(),
    };
    let mut words = Vec::new();
    let slow: Vec<String> = conclusion.slow.iter().map(name).collect();
    if !slow.is_empty() {
        words.push(format!("slow {}", slow.join(" ")));
    }
    for (a, b) in &conclusion.pairs {
        words.push(format!("pair {a}-{b}"));
    }
    for (a, b) in &conclusion.unsteady {
        words.push(format!("unsteady {a}-{b}"));
    }
    for (a, b) in &conclusion.unconfirmed {
        words.push(format!("unconfirmed {a}-{b}"));
    }
    for set in &conclusion.undecided {
        let names: Vec<String> = set.iter().map(name).collect();
        words.push(format!("one of {}", names.join(" ")));
    }
    if !conclusion.unproven.is_empty() {
        words.push(format!("unproven {:?}", conclusion.unproven));
    }
    words.join(", ")
}

#[test]
fn what_is_slow_is_named() {
    let flat = |nodes| Network::new(Topology::flat(nodes));
    let four = || Network::new(racks(4, 4));
    let cases: Vec<(&str, Network, &str)> = vec![
        ("healthy", flat(8), ""),
        ("alone", flat(1), "unproven {0}"),
        ("two, healthy", flat(2), ""),
        (
            "two, nothing gets through",
            flat(2).pair((0, 1), 0.0),
            "one of 0 1",
        ),
        ("three, one slow", flat(3).node(0, 0.1), "slow 0"),
        ("three, the last dead", flat(3).node(2, 0.0), "slow 2"),
        (
            "five, the hub of the schedule",
            flat(5).node(0, 0.1),
            "slow 0",
        ),
        ("five, the one met once", flat(5).node(4, 0.1), "slow 4"),
        (
            "eight, two slow that meet",
            flat(8).node(2, 0.1).node(3, 0.3),
            "slow 2 3",
        ),
        ("one pair alone", flat(8).pair((2, 3), 0.1), "pair 2-3"),
        (
            "a pair for a moment",
            flat(8).hiccup((2, 3), 1),
            "unsteady 2-3",
        ),
        (
            "a pair for two moments",
            flat(8).hiccup((2, 3), 2),
            "unsteady 2-3",
        ),
        (
            "all equally slow blames no node",
            (0..8).fold(flat(8), |network, node| network.node(node, 0.1)),
            "",
        ),
        ("an uplink", four().uplink("rack-2", 0.1), "slow rack-2"),
        (
            "an uplink and a node elsewhere",
            four().uplink("rack-2", 0.1).node(1, 0.2),
            "slow 1 rack-2",
        ),
        (
            "an uplink and a node behind it",
            four().uplink("rack-2", 0.3).node(9, 0.1),
            "slow 9 rack-2",
        ),
        (
            "one of three uplinks",
            Network::new(racks(3, 4)).uplink("rack-0", 0.1),
            "slow rack-0",
        ),
        (
            "a rack whose uplink carries nothing",
            four().uplink("rack-3", 0.0),
            "slow rack-3",
        ),
    ];
    for (name, network, expected) in cases {
        let topology = network.topology.clone();
        assert_eq!(words(&network.search(), &topology), expected, "{name}");
    }
}

#[test]
fn a_pair_measured_once_is_never_named() {
    let slow = || Network::new(Topology::flat(8)).pair((2, 3), 0.1);
    let topology = slow().topology;
    for (rounds, expected) in [(3, "unconfirmed 2-3"), (4, "pair 2-3"), (6, "pair 2-3")] {
        let conclusion = slow().search_within(rounds);
        assert_eq!(words(&conclusion, &topology), expected, "{rounds} rounds");
    }
}

#[test]
fn two_slow_uplinks_need_expectation() {
    // Nothing crosses faster, so only an expectation from outside can call it slow.
    let network = Network::new(racks(2, 4)).uplink("rack-0", 0.1);
    let conclusion = network.search();
    assert!(conclusion.slow.is_empty() && conclusion.undecided.is_empty());
    let [Some(inside), Some(across)] = conclusion.medians[..] else {
        panic!("{:?}", conclusion.medians);
    };
    assert!(inside > 90.0 && across < 11.0, "{inside} {across}");
}

#[test]
fn cut_off_rack_reports_both_racks() {
    let network = Network::new(racks(2, 2)).uplink("rack-0", 0.0);
    let topology = network.topology.clone();
    assert_eq!(words(&network.search(), &topology), "one of rack-0 rack-1");
}

#[test]
fn a_pair_that_was_not_measured_says_nothing() {
    let mut search = Search::new(Topology::flat(4));
    while let Some(round) = search.next_round() {
        let known = round.into_iter().filter(|pair| *pair != (0, 1));
        let measured: Vec<Measurement> = known
            .map(|pair| Measurement {
                pair,
                bandwidth: 10.0,
            })
            .collect();
        search.record(&measured);
    }
    let conclusion = search.conclude();
    assert_eq!(words(&conclusion, search.topology()), "");
    assert_eq!(conclusion.rounds, 2);
}
