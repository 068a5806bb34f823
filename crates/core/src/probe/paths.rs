//! From what pairs measured and what the search found to checks with words.
//!
//! Owns the checks of the layer between machines: `joined`, `path-bandwidth`, `rdma-bandwidth`, `path-latency`, and
//! `volume-shared`. Who is slow is [`super::search`]; all nodes at once are [`super::ring`].
//!
//! Invariant: a node fails only where the search named it, or where it did not take part to the end.
//! Whatever has several explanations is a warning of each and a failure of none. Where no pair reached anything over
//! RDMA no node is named, since the program itself may be what does not work.

mod method;

use std::collections::BTreeSet;

use self::method::LOSSY_FROM;
pub use self::method::{Method, PairFound};
use super::{
    Check, Needs, Outcome, amounts,
    catalogue::{JOINED, PATH_LATENCY, RDMA_BANDWIDTH, VOLUME_SHARED},
    links::{Names, bits},
    pairs::{Link, Pair, Topology},
    search::{Conclusion, SLOW_BELOW},
    tools::perftest,
};

/// How many times the peers' median a latency must be to be reported.
const LATENCY_TIMES: u64 = 10;
/// Microseconds below which no latency is reported, whatever others have.
const LATENCY_LEAST: u64 = 2_000;
/// Gigabits in a second that one stream of TCP is held to at most, since processors and not links
/// limit it beyond.
const ONE_STREAM_GBPS: f64 = 10.0;
/// The next step where more measurements would help.
const MORE: &str = "measure again with more nodes that are known to be good";

/// All that was measured between nodes in one way.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a> {
    /// How.
    pub method: &'a Method,
    /// The names of the nodes that were measured, by number.
    pub names: &'a [String],
    /// Where they are.
    pub topology: &'a Topology,
    /// What each pair found, in the order of the rounds.
    pub found: &'a [PairFound],
    /// What the search made of it.
    pub conclusion: &'a Conclusion,
    /// What the job and its fabric expect.
    pub needs: &'a Needs,
}

/// The check that a node took part, or at which point it no longer did.
pub fn joined(lost: Option<&str>) -> Check {
    let needed = "takes part to the end";
    match lost {
        None => JOINED.pass("took part", needed),
        Some(how) => JOINED.fail(
            how,
            needed,
            "the node or its pod died, hangs, or cannot be reached over the cluster's own network",
            "look at the events of the pod and at the node's conditions",
        ),
    }
}

/// What of a volume one node does not see.
pub fn volume_shared(path: &str, wrong: &[(String, String)], of: usize, is_folder: bool) -> Check {
    let needed = format!("sees the files of all {of} nodes");
    let check = match wrong.first() {
        None => VOLUME_SHARED.pass(format!("sees all {of}"), needed),
        Some((owner, why)) => {
            let found = format!(
                "{} of {of} are not as written, first that of {owner}: {why}",
                wrong.len()
            );
            let cause = "each node has a volume of its own, or one of them cannot write or read it";
            let next =
                "use a claim with `ReadWriteMany`, or a path on storage that all nodes mount";
            // A folder of the node may be meant to be its own.
            VOLUME_SHARED.fail_if(!is_folder, found, needed, cause, next)
        }
    };
    check.about(path)
}

impl Paths<'_> {
    /// The checks of each node, by number.
    pub fn of_nodes(&self) -> Vec<Vec<Check>> {
        let latencies = self.latencies();
        let any = best(self.found.iter()) > 0.0;
        let one = |node: usize| match self.method {
            Method::Streams => vec![self.of_node(node), latency(node, &latencies)],
            Method::Rdma(ports) => {
                let check = if any {
                    self.of_node(node)
                } else {
                    self.method
                        .not_measured("no pair of nodes could be measured")
                };
                let port = ports.get(node);
                let subject = port.map(|port| format!("{}/{}", port.device, port.number));
                vec![check.about(subject.unwrap_or_default())]
            }
        };
        (0..self.names.len()).map(one).collect()
    }

    /// The checks of links, of pairs and of the fabric.
    pub fn shared(&self) -> Vec<Check> {
        if let Some(check) = self.nothing_transferred() {
            return vec![check];
        }
        let found = self.conclusion;
        let mut checks = Vec::new();
        for link in &found.slow {
            if let Link::Uplink(domain) = link {
                checks.push(self.uplink(*link, self.topology.domain(*domain)));
            }
        }
        checks.extend(found.pairs.iter().map(|pair| self.slow_pair(*pair)));
        match self.method {
            Method::Streams => {
                checks.extend(found.undecided.iter().map(|links| self.undecided(links)));
                checks.extend(self.unsteady());
                checks.extend(self.all_unconfirmed());
            }
            Method::Rdma(_) => {
                checks.extend(found.unconfirmed.iter().map(|pair| self.unconfirmed(*pair)));
                checks.extend(found.undecided.iter().map(|links| self.undecided(links)));
            }
        }
        checks.extend(self.expectation());
        checks
    }

    /// The nodes to leave out where a link is slow and no node is.
    pub fn leave(&self) -> BTreeSet<String> {
        let mut shared = self.shared().into_iter();
        let is_below = shared.any(|check| check.outcome == Outcome::Fail);
        self.called().leave(self.conclusion, is_below)
    }

    /// What nodes reach over the shortest distance.
    pub fn median(&self) -> f64 {
        let mut medians = self.conclusion.medians.iter().flatten().copied();
        medians.next().unwrap_or(0.0)
    }

    fn median_at(&self, level: usize) -> f64 {
        let median = self.conclusion.medians.get(level).copied().flatten();
        median.unwrap_or(0.0)
    }

    fn called(&self) -> Names<'_> {
        Names {
            names: self.names,
            topology: self.topology,
        }
    }

    fn own(&self, node: usize) -> impl Iterator<Item = &PairFound> + Clone {
        self.found.iter().filter(move |found| found.has(node))
    }

    fn between(&self, pair: Pair) -> impl Iterator<Item = &PairFound> + Clone {
        self.found.iter().filter(move |found| found.pair == pair)
    }

    /// What a node must reach, in words.
    fn needed(&self) -> String {
        let median = self.median();
        let least = bits(SLOW_BELOW * median);
        format!(
            "{SLOW_BELOW} of the peers' median: at least {least} of {}",
            bits(median)
        )
    }

    fn of_node(&self, node: usize) -> Check {
        let entry = self.method.entry();
        let needed = self.needed();
        let partners: BTreeSet<Pair> = self.own(node).map(|found| found.pair).collect();
        let seen = format!(
            "{} at best, with {} others",
            bits(best(self.own(node))),
            partners.len()
        );
        let link = Link::Node(node);
        if self.conclusion.slow.contains(&link) {
            let (cause, next) = self.cause_and_next(self.own(node));
            return entry.fail(with_trouble(seen, self.own(node)), needed, cause, next);
        }
        let mut undecided = self.conclusion.undecided.iter();
        if let Some(set) = undecided.find(|set| set.contains(&link)) {
            let others = set.iter().filter(|other| **other != link);
            let others = self.called().list(others);
            let cause = if others.is_empty() {
                "the node's own link, or the path to the only node it was measured with".to_owned()
            } else {
                format!("this node, or {others}: the measurements do not show which")
            };
            return entry.warn(with_trouble(seen, self.own(node)), needed, cause, MORE);
        }
        if !self.conclusion.unproven.contains(&node) {
            return entry.pass(seen, needed);
        }
        let (seen, cause) = match self.method {
            Method::Streams if partners.is_empty() => {
                (seen, "there was no other node to measure with")
            }
            Method::Streams => (
                seen,
                "it was measured only with nodes, or over links, that are slow",
            ),
            Method::Rdma(_) => (
                with_trouble(seen, self.own(node)),
                "it was measured with no other node, or only with slow nodes or over slow links",
            ),
        };
        entry.warn(seen, needed, cause, MORE)
    }

    /// The check where pairs were tried over RDMA and none transferred anything.
    fn nothing_transferred(&self) -> Option<Check> {
        let is_rdma = matches!(self.method, Method::Rdma(_));
        if !is_rdma || self.found.is_empty() || best(self.found.iter()) > 0.0 {
            return None;
        }
        let seen = "nothing between any two nodes".to_owned();
        let found = with_trouble(seen, self.found.iter());
        let needed = "pairs of nodes write into each other's memory";
        let cause =
            "RDMA does not work between these nodes, or the program does not work in this image";
        let next = format!(
            "run `{}` manually between pods of the job on two of the nodes",
            perftest::PROGRAM
        );
        Some(RDMA_BANDWIDTH.fail_if(self.needs.rdma(), found, needed, cause, next))
    }

    /// The likely cause and the next step, by what its slow pairs say.
    fn cause_and_next<'f>(
        &self,
        found: impl Iterator<Item = &'f PairFound> + Clone,
    ) -> (&'static str, &'static str) {
        let mut slow = found.clone().filter(|found| self.is_slow(found));
        let mut all = found.peekable();
        if matches!(self.method, Method::Rdma(_)) {
            (
                "a link that runs at a lower speed or loses packets, flow control that differs from other \
                 ports, or another path to the device on the PCI bus",
                "compare `ibstat`, the counters of the port and of its switch port, and flow control (PFC, ECN) with \
                 those of a fast node",
            )
        } else if slow.clone().any(|found| found.stalled) {
            (
                "something on the way carries only smaller packets than the interfaces send: an MTU \
                 that was not raised on a switch port, a bridge or a tunnel",
                "compare the MTU of the interface with that of the port it is connected to, and try \
                 `ping -M do -s` with the largest packet",
            )
        } else if slow.any(PairFound::is_lossy) {
            (
                "packets are lost: a bad cable or transceiver, a port that drops, a queue too short",
                "look at the error and discard counters of the interface and of its switch port",
            )
        } else if all.peek().is_some() && all.all(|found| found.bandwidth <= 0.0) {
            (
                "no data gets through: the peer is dead or hangs, or a firewall or network policy blocks it",
                "look whether the pod runs, and at network policies of the namespace",
            )
        } else {
            (
                "its link runs at a lower speed, is shared with other traffic, or its processor is busy",
                "compare the speed that the interface and its switch port negotiated, and what else \
                 runs on the node",
            )
        }
    }

    fn is_slow(&self, found: &PairFound) -> bool {
        let median = self.median_at(self.topology.level(found.pair));
        let measured = self.method.measurement(found).bandwidth;
        measured <= 0.0 || measured < SLOW_BELOW * median
    }

    fn uplink(&self, link: Link, name: &str) -> Check {
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
        let (seen, needed, subject) = match self.method {
            Method::Streams => {
                let median = bits(self.median_at(self.topology.level_of(link)));
                let needed =
                    format!("at least {SLOW_BELOW} of {median}, the median over this distance");
                (seen, needed, name.to_owned())
            }
            Method::Rdma(_) => (
                with_trouble(seen, crossing.clone()),
                self.needed(),
                self.called().list([link].iter()),
            ),
        };
        let (cause, next) = self.cause_and_next(crossing);
        let cause = format!("pairs inside are fast and all that leave are slow: {cause}");
        let check = self.method.entry().fail(seen, needed, cause, next);
        check.about(subject)
    }

    fn slow_pair(&self, pair: Pair) -> Check {
        let seen = format!(
            "{} between the two, both are fast with others",
            bits(best(self.between(pair)))
        );
        let seen = match self.method {
            Method::Streams => seen,
            Method::Rdma(_) => with_trouble(seen, self.between(pair)),
        };
        let (cause, next) = self.cause_and_next(self.between(pair));
        let cause = format!("one of several paths through the network: {cause}");
        let entry = self.method.entry();
        let check = entry.fail(seen, self.needed(), cause, next);
        check.about(self.called().pair(pair))
    }

    fn undecided(&self, links: &BTreeSet<Link>) -> Check {
        let names = self.called().list(links.iter());
        let check = self.method.entry().fail(
            "slow, and the measurements do not show which of them is",
            self.needed(),
            format!("at least one of {names}"),
            MORE,
        );
        check.about(names)
    }

    /// How many pairs, and the names of the first.
    fn counted(&self, pairs: &BTreeSet<Pair>) -> Option<(usize, String)> {
        let first = pairs.iter().take(3).map(|pair| self.called().pair(*pair));
        let first = first.collect::<Vec<_>>().join(", ");
        (!pairs.is_empty()).then_some((pairs.len(), first))
    }

    fn unconfirmed(&self, pair: Pair) -> Check {
        let seen = format!(
            "{} between the two, measured once; both are fast with others",
            bits(best(self.between(pair)))
        );
        let (cause, _) = self.cause_and_next(self.between(pair));
        let check = self.method.entry().warn(
            with_trouble(seen, self.between(pair)),
            self.needed(),
            format!("other traffic at that moment, or {cause}"),
            "measure again: no round was left to repeat this pair",
        );
        check.about(self.called().pair(pair))
    }

    fn all_unconfirmed(&self) -> Option<Check> {
        let (count, first) = self.counted(&self.conclusion.unconfirmed)?;
        let check = self.method.entry().warn(
            format!("{count} pairs were slow the one time they were measured: {first}"),
            self.needed(),
            "other traffic at that moment, a busy processor, or one of several paths through the network",
            "measure again: no round was left to repeat these pairs",
        );
        Some(check)
    }

    fn unsteady(&self) -> Option<Check> {
        let (count, first) = self.counted(&self.conclusion.unsteady)?;
        let check = self.method.entry().warn(
            format!("{count} pairs were slow once, and fast when measured again: {first}"),
            "the same speed each time",
            "other traffic on the way, or a busy processor",
            "measure again when the network is idle",
        );
        Some(check)
    }

    /// Whether the fabric as a whole does what it is expected to.
    #[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
    fn expectation(&self) -> Option<Check> {
        let expected = self.needs.bandwidth_gbps? as f64 * 1e9;
        let medians = self.conclusion.medians.iter().flatten().copied();
        let median = medians.reduce(f64::min)?;
        let (held, of, limit, cause, next) = match self.method {
            Method::Streams => {
                let most = ONE_STREAM_GBPS * 1e9;
                let held = expected.min(most);
                let limit = if expected > most {
                    format!(", since one stream is held to {} at most", bits(held))
                } else {
                    String::new()
                };
                (
                    held,
                    "median of one stream over the longest distance",
                    format!("{}{limit}", bits(expected)),
                    "all nodes are equally slow, so it is the fabric, or the interface is not on it",
                    "check which network the interface is on, and what the fabric's `expects` should say",
                )
            }
            // It is expected of all ports of a machine together, and one is measured.
            Method::Rdma(ports) => {
                let ports = ports.iter().map(|port| port.of).max()?;
                let held = expected / ports.max(1) as f64;
                let share = match ports {
                    1 => String::new(),
                    _ => format!(", the share of one of {ports} ports"),
                };
                (
                    held,
                    "median over the longest distance",
                    format!("{}{share}", bits(held)),
                    "all nodes are equally slow, so it is the fabric, or its `expects` is too high",
                    "look at the rate of the ports and at flow control of the switches, then at `expects` of the fabric",
                )
            }
        };
        let found = format!("{}, {of}", bits(median));
        let needed = format!("{SLOW_BELOW} of {limit}");
        let check = if median >= SLOW_BELOW * held {
            self.method.entry().pass(found, needed)
        } else {
            self.method.entry().fail(found, needed, cause, next)
        };
        Some(check.about("fabric"))
    }

    /// The median round trip of each node's pairs.
    fn latencies(&self) -> Vec<Option<u64>> {
        let of = |node| {
            let trips = self.own(node).filter_map(|found| found.round_trip_micros);
            median(trips.collect())
        };
        (0..self.names.len()).map(of).collect()
    }
}

fn best<'f>(found: impl Iterator<Item = &'f PairFound>) -> f64 {
    found.map(|found| found.bandwidth).fold(0.0, f64::max)
}

/// What was seen, with what is odder than its speed, and the first thing that went wrong.
fn with_trouble<'f>(
    mut seen: String,
    mut found: impl Iterator<Item = &'f PairFound> + Clone,
) -> String {
    let lost = found.clone().map(|found| found.sent_again);
    let lost = lost.fold(0.0, f64::max);
    if lost >= LOSSY_FROM {
        seen = format!("{seen}, {:.0} % of segments sent again", lost * 100.0);
    }
    if found.clone().any(|found| found.stalled) {
        seen = format!("{seen}, small messages pass and large ones do not");
    }
    match found.find_map(|found| found.trouble.as_deref()) {
        Some(trouble) => format!("{seen}; {trouble}"),
        None => seen,
    }
}

fn latency(node: usize, all: &[Option<u64>]) -> Check {
    let peers = median(all.iter().flatten().copied().collect());
    let own = all.get(node).copied().flatten();
    let (Some(own), Some(peers)) = (own, peers) else {
        return PATH_LATENCY.skip("not measured", "no message came back");
    };
    let most = (peers * LATENCY_TIMES).max(LATENCY_LEAST);
    let found = format!("{} round trip", amounts::micros(own));
    let needed = format!(
        "at most {}; the peers' median is {}",
        amounts::micros(most),
        amounts::micros(peers)
    );
    if own <= most {
        return PATH_LATENCY.pass(found, needed);
    }
    PATH_LATENCY.warn(
        found,
        needed,
        "a longer path, a full queue, or a CPU that is busy or in a deep sleep state",
        "compare the route and the power settings with those of another node",
    )
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests;
