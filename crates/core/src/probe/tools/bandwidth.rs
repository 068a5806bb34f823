//! From what pairs reached over RDMA to the check `rdma-bandwidth`.
//!
//! Invariant: a node fails only where the search named it. Where no pair reached anything no node is named, since the
//! program itself may be what does not work.

use std::collections::BTreeSet;

use super::{Port, perftest};
use crate::probe::{
    Check, Needs, Outcome,
    catalogue::RDMA_BANDWIDTH,
    links::{Names, bits},
    pairs::{Link, Pair, Topology},
    search::{Conclusion, Measurement, SLOW_BELOW},
};

const CAUSE: &str = "a link that runs at a lower speed or loses packets, flow control that differs from other \
                     ports, or another path to the device on the PCI bus";
const NEXT: &str = "compare `ibstat`, the counters of the port and of its switch port, and flow control (PFC, ECN) with \
                    those of a fast node";
const MORE: &str = "measure again with more nodes that are known to be good";

/// What a pair reached.
#[derive(Clone, Debug, PartialEq)]
pub struct RdmaFound {
    /// Who, by number.
    pub pair: Pair,
    /// Bits in a second in the slower direction; 0 where nothing got through.
    pub bandwidth: f64,
    /// Why it did not finish, with the name of the node that reports it.
    pub trouble: Option<String>,
}

impl RdmaFound {
    /// The input of the search.
    pub fn measurement(&self) -> Measurement {
        Measurement {
            pair: self.pair,
            bandwidth: self.bandwidth,
        }
    }

    fn has(&self, node: usize) -> bool {
        self.pair.0 == node || self.pair.1 == node
    }
}

/// The check of a node that was not measured, and why.
pub fn not_measured(why: &str) -> Check {
    RDMA_BANDWIDTH.skip("not measured", why)
}

/// All that was measured over RDMA.
#[derive(Clone, Copy, Debug)]
pub struct RdmaPaths<'a> {
    /// The names of the nodes that were measured, by number.
    pub names: &'a [String],
    /// The port of each.
    pub ports: &'a [Port],
    /// Where they are.
    pub topology: &'a Topology,
    /// What each pair reached, in the order of the rounds.
    pub found: &'a [RdmaFound],
    /// What the search made of it.
    pub conclusion: &'a Conclusion,
    /// What the job and its fabric expect.
    pub needs: &'a Needs,
    /// Whether all rounds were measured in time.
    pub is_whole: bool,
}

impl RdmaPaths<'_> {
    /// The check of each node, by number.
    pub fn of_nodes(&self) -> Vec<Check> {
        let any = self.found.iter().any(|found| found.bandwidth > 0.0);
        let nodes = 0..self.names.len();
        nodes
            .map(|node| {
                let check = if any {
                    self.of_node(node)
                } else {
                    not_measured("no pair of nodes could be measured")
                };
                check.about(self.subject(node))
            })
            .collect()
    }

    /// The checks of links, of pairs and of the fabric.
    pub fn shared(&self) -> Vec<Check> {
        let mut checks: Vec<Check> = self.nothing_transferred().into_iter().collect();
        if checks.is_empty() {
            let uplinks = self.conclusion.slow.iter();
            let uplinks = uplinks.filter(|link| matches!(link, Link::Uplink(_)));
            checks.extend(uplinks.map(|link| self.uplink(*link)));
            checks.extend(
                self.conclusion
                    .pairs
                    .iter()
                    .map(|pair| self.slow_pair(*pair)),
            );
            let unconfirmed = self.conclusion.unconfirmed.iter();
            checks.extend(unconfirmed.map(|pair| self.unconfirmed(*pair)));
            let undecided = self.conclusion.undecided.iter();
            checks.extend(undecided.map(|links| self.undecided(links)));
            checks.extend(self.expectation());
        }
        if !self.is_whole {
            checks.push(RDMA_BANDWIDTH.warn(
                "not every round was measured",
                "all rounds within the time",
                "other measurements, or programs that hang, used up the time",
                "leave out the nodes that failed, and measure again",
            ));
        }
        checks
    }

    /// The nodes to leave out where a link is slow and no node is.
    pub fn leave(&self) -> BTreeSet<String> {
        let is_below = self
            .shared()
            .iter()
            .any(|check| check.outcome == Outcome::Fail);
        self.called().leave(self.conclusion, is_below)
    }

    fn subject(&self, node: usize) -> String {
        let port = self.ports.get(node);
        port.map(|port| format!("{}/{}", port.device, port.number))
            .unwrap_or_default()
    }

    fn called(&self) -> Names<'_> {
        Names {
            names: self.names,
            topology: self.topology,
        }
    }

    fn median(&self) -> f64 {
        let mut medians = self.conclusion.medians.iter().flatten().copied();
        medians.next().unwrap_or(0.0)
    }

    fn needed(&self) -> String {
        let median = self.median();
        let least = bits(SLOW_BELOW * median);
        format!(
            "{SLOW_BELOW} of the peers' median: at least {least} of {}",
            bits(median)
        )
    }

    fn own(&self, node: usize) -> impl Iterator<Item = &RdmaFound> {
        self.found.iter().filter(move |found| found.has(node))
    }

    fn of_node(&self, node: usize) -> Check {
        let best = best(self.own(node));
        let partners: BTreeSet<Pair> = self.own(node).map(|found| found.pair).collect();
        let seen = format!("{} at best, with {} others", bits(best), partners.len());
        let seen_with_trouble = || with_trouble(&seen, self.own(node));
        let link = Link::Node(node);
        if self.conclusion.slow.contains(&link) {
            return RDMA_BANDWIDTH.fail(seen_with_trouble(), self.needed(), CAUSE, NEXT);
        }
        let mut undecided = self.conclusion.undecided.iter();
        if let Some(set) = undecided.find(|set| set.contains(&link)) {
            let others = self
                .called()
                .list(set.iter().filter(|other| **other != link));
            let cause = if others.is_empty() {
                "the node's own link, or the path to the only node it was measured with".to_owned()
            } else {
                format!("this node, or {others}: the measurements do not show which")
            };
            return RDMA_BANDWIDTH.warn(seen_with_trouble(), self.needed(), cause, MORE);
        }
        if self.conclusion.unproven.contains(&node) {
            let cause =
                "it was measured with no other node, or only with slow nodes or over slow links";
            return RDMA_BANDWIDTH.warn(seen_with_trouble(), self.needed(), cause, MORE);
        }
        RDMA_BANDWIDTH.pass(seen, self.needed())
    }

    /// The check where pairs were tried and none transferred anything.
    fn nothing_transferred(&self) -> Option<Check> {
        if self.found.is_empty() || best(self.found.iter()) > 0.0 {
            return None;
        }
        let found = with_trouble("nothing between any two nodes", self.found.iter());
        let needed = "pairs of nodes write into each other's memory";
        let cause =
            "RDMA does not work between these nodes, or the program does not work in this image";
        let next = format!(
            "run `{}` manually between pods of the job on two of the nodes",
            perftest::PROGRAM
        );
        Some(if self.needs.rdma() {
            RDMA_BANDWIDTH.fail(found, needed, cause, next)
        } else {
            RDMA_BANDWIDTH.warn(found, needed, cause, next)
        })
    }

    fn uplink(&self, link: Link) -> Check {
        let behind = self.topology.behind(link);
        let inside = |node: usize| behind.contains(&node);
        let crossing = self
            .found
            .iter()
            .filter(|found| inside(found.pair.0) != inside(found.pair.1));
        let seen = format!(
            "{} at best in and out, {} nodes behind it",
            bits(best(crossing.clone())),
            behind.len()
        );
        let cause = format!("pairs inside are fast and all that leave are slow: {CAUSE}");
        let check = RDMA_BANDWIDTH.fail(with_trouble(&seen, crossing), self.needed(), cause, NEXT);
        check.about(self.called().list([link].iter()))
    }

    fn slow_pair(&self, pair: Pair) -> Check {
        let own = self.found.iter().filter(|found| found.pair == pair);
        let seen = format!(
            "{} between the two, both are fast with others",
            bits(best(own.clone()))
        );
        let cause = format!("one of several paths through the network: {CAUSE}");
        let check = RDMA_BANDWIDTH.fail(with_trouble(&seen, own), self.needed(), cause, NEXT);
        check.about(self.called().pair(pair))
    }

    fn unconfirmed(&self, pair: Pair) -> Check {
        let own = self.found.iter().filter(|found| found.pair == pair);
        let seen = format!(
            "{} between the two, measured once; both are fast with others",
            bits(best(own.clone()))
        );
        let cause = format!("other traffic at that moment, or {CAUSE}");
        let next = "measure again: no round was left to repeat this pair";
        let check = RDMA_BANDWIDTH.warn(with_trouble(&seen, own), self.needed(), cause, next);
        check.about(self.called().pair(pair))
    }

    fn undecided(&self, links: &BTreeSet<Link>) -> Check {
        let names = self.called().list(links.iter());
        let check = RDMA_BANDWIDTH.fail(
            "slow, and the measurements do not show which of them is",
            self.needed(),
            format!("at least one of {names}"),
            MORE,
        );
        check.about(names)
    }

    /// Whether the fabric as a whole does what it is expected to. It is expected of all ports of a machine together,
    /// and one is measured.
    fn expectation(&self) -> Option<Check> {
        let ports = self.ports.iter().map(|port| port.of).max()?;
        #[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
        let expected = self.needs.bandwidth_gbps? as f64 * 1e9 / ports.max(1) as f64;
        let medians = self.conclusion.medians.iter().flatten().copied();
        let median = medians.reduce(f64::min)?;
        let found = format!("{}, median over the longest distance", bits(median));
        let share = match ports {
            1 => String::new(),
            _ => format!(", the share of one of {ports} ports"),
        };
        let needed = format!("{SLOW_BELOW} of {}{share}", bits(expected));
        let check = if median >= SLOW_BELOW * expected {
            RDMA_BANDWIDTH.pass(found, needed)
        } else {
            RDMA_BANDWIDTH.fail(
                found,
                needed,
                "all nodes are equally slow, so it is the fabric, or its `expects` is too high",
                "look at the rate of the ports and at flow control of the switches, then at `expects` of the fabric",
            )
        };
        Some(check.about("fabric"))
    }
}

fn best<'a>(found: impl Iterator<Item = &'a RdmaFound>) -> f64 {
    found.map(|found| found.bandwidth).fold(0.0, f64::max)
}

/// What was seen, with the first thing that went wrong.
fn with_trouble<'a>(seen: &str, mut found: impl Iterator<Item = &'a RdmaFound>) -> String {
    match found.find_map(|found| found.trouble.as_deref()) {
        Some(trouble) => format!("{seen}; {trouble}"),
        None => seen.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Outcome, search::Search};

    /// Searches over five nodes of which each pair reaches 390 Gb/s; `damage` changes what a pair found.
    fn checks(needs: &Needs, damage: impl Fn(&mut RdmaFound)) -> (Vec<Check>, Vec<Check>) {
        let names: Vec<String> = (0..5).map(|node| format!("node-{node}")).collect();
        let port = Port {
            device: "mlx5_0".to_owned(),
            number: 1,
            gid_index: Some(3),
            of: 8,
        };
        let mut search = Search::new(Topology::flat(5));
        let mut all = Vec::new();
        while let Some(round) = search.next_round() {
            let found = round.into_iter().map(|pair| {
                let mut found = RdmaFound {
                    pair,
                    bandwidth: 390e9,
                    trouble: None,
                };
                damage(&mut found);
                found
            });
            let found: Vec<RdmaFound> = found.collect();
            let measured: Vec<Measurement> = found.iter().map(RdmaFound::measurement).collect();
            search.record(&measured);
            all.extend(found);
        }
        let paths = RdmaPaths {
            names: &names,
            ports: &vec![port; 5],
            topology: search.topology(),
            found: &all,
            conclusion: &search.conclude(),
            needs,
            is_whole: true,
        };
        (paths.of_nodes(), paths.shared())
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
        let found = RdmaFound {
            pair: (0, 1),
            bandwidth: 40e9,
            trouble: None,
        };
        let conclusion = Conclusion {
            unconfirmed: BTreeSet::from([(0, 1)]),
            ..Conclusion::default()
        };
        let paths = RdmaPaths {
            names: &names,
            ports: &[],
            topology: &Topology::flat(2),
            found: &[found],
            conclusion: &conclusion,
            needs: &Needs::default(),
            is_whole: true,
        };
        let check = &paths.shared()[0];
        let subject = check.subject.as_str();
        assert_eq!((check.outcome, subject), (Outcome::Warn, "node-0 - node-1"));
        assert!(check.found.contains("measured once"), "{}", check.found);
    }

    #[test]
    fn the_slow_node_fails_and_no_other() {
        type Case = (&'static str, fn(&mut RdmaFound), &'static str);
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
        let broken = |found: &mut RdmaFound| {
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
}
