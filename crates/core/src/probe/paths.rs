//! From what pairs measured and what the search found to checks with words.
//!
//! Owns the checks of the layer between machines: `joined`, `path-bandwidth`, `path-latency`,
//! `gang-bandwidth`, and `volume-shared`. Who is slow is [`super::search`].
//!
//! Invariant: a node fails only where the search named it, or where it did not take part to the end.
//! Whatever has several explanations is a warning of each and a failure of none.

use std::collections::BTreeSet;

use super::{
    Check, Outcome, amounts,
    catalogue::{GANG_BANDWIDTH, JOINED, PATH_BANDWIDTH, PATH_LATENCY, VOLUME_SHARED},
    links::{Names, bits},
    pairs::{Link, Pair, Topology},
    search::{Conclusion, Measurement, SLOW_BELOW},
};

/// The part of segments sent again from which a path loses packets. Links of a fabric lose one in
/// millions; TCP that fills a long queue loses one in thousands.
const LOSSY_FROM: f64 = 0.02;
/// How many times the peers' median a latency must be to be reported.
const LATENCY_TIMES: u64 = 10;
/// Microseconds below which no latency is reported, whatever others have.
const LATENCY_LEAST: u64 = 2_000;
/// Gigabits in a second that one stream of TCP is held to at most, since processors and not links
/// limit it beyond.
const ONE_STREAM_GBPS: f64 = 10.0;
/// Bits in a second above which pairs are not compared: there a stream is as fast as its processors
/// are, and says nothing of links. A link of 10 Gb/s among faster ones is still reported.
const COMPARED_UP_TO: f64 = 16e9;
/// The part of the pairs' median that links must carry when all nodes send at once.
const GANG_PART: f64 = 0.5;

/// What a pair found when it was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairFound {
    /// Who, by number.
    pub pair: Pair,
    /// Bits in a second in the slower direction; 0 where nothing got through.
    pub bandwidth: f64,
    /// The median time of a small message there and back.
    pub round_trip_micros: Option<u64>,
    /// The part of segments that were sent again, in the worse direction.
    pub sent_again: f64,
    /// Small messages passed, large ones did not.
    pub stalled: bool,
    /// Why it did not finish.
    pub trouble: Option<String>,
}

impl PairFound {
    fn is_lossy(&self) -> bool {
        self.sent_again >= LOSSY_FROM
    }

    /// The input of the search: a path that loses packets is not usable, however fast it is at times.
    pub fn measurement(&self) -> Measurement {
        let usable = !self.is_lossy() && !self.stalled;
        Measurement {
            pair: self.pair,
            bandwidth: if usable {
                self.bandwidth.min(COMPARED_UP_TO)
            } else {
                0.0
            },
        }
    }
}

/// All that was measured between nodes.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a> {
    /// The names of the nodes that were measured, by number.
    pub names: &'a [String],
    /// Where they are.
    pub topology: &'a Topology,
    /// What each pair found, in the order of the rounds.
    pub found: &'a [PairFound],
    /// What the search made of it.
    pub conclusion: &'a Conclusion,
    /// The fabric's expectation, in gigabits in a second.
    pub expected_gbps: Option<u64>,
}

/// The result of the ring.
#[derive(Clone, Debug, PartialEq)]
pub enum RingFound {
    /// It ended.
    Ended {
        /// How many nodes took part.
        nodes: usize,
        /// Bits in a second that each link carried.
        bandwidth: f64,
        /// Whether every sum was right.
        right: bool,
    },
    /// It did not, and what each node says.
    Broken(Vec<(String, String)>),
    /// There was none, and why.
    None(String),
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

/// The check of a node that could not be measured with.
pub fn unmeasured(why: &str) -> Check {
    PATH_BANDWIDTH.fail(
        format!("not measured: {why}"),
        "measures with the others",
        "the interface that gradients travel on is missing, or has no address",
        "look at the network attachment of the pod and at the interfaces of the node",
    )
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
            if is_folder {
                // A folder of the node may be meant to be its own.
                VOLUME_SHARED.warn(found, needed, cause, next)
            } else {
                VOLUME_SHARED.fail(found, needed, cause, next)
            }
        }
    };
    check.about(path)
}

impl Paths<'_> {
    /// The checks of each node, by number.
    pub fn of_nodes(&self) -> Vec<Vec<Check>> {
        let latencies = self.latencies();
        let nodes = 0..self.names.len();
        nodes
            .map(|node| vec![self.bandwidth(node), latency(node, &latencies)])
            .collect()
    }

    /// The checks of links, of pairs, of the fabric and of the gang.
    pub fn shared(&self, ring: &RingFound) -> Vec<Check> {
        let mut checks = Vec::new();
        for link in &self.conclusion.slow {
            if let Link::Uplink(domain) = link {
                checks.push(self.uplink(*link, self.topology.domain(*domain)));
            }
        }
        checks.extend(self.slow_pairs());
        checks.extend(
            self.conclusion
                .undecided
                .iter()
                .map(|links| self.undecided(links)),
        );
        checks.extend(self.unsteady());
        checks.extend(self.unconfirmed());
        checks.extend(self.expectation());
        checks.push(self.gang(ring));
        checks
    }

    fn called(&self) -> Names<'_> {
        Names {
            names: self.names,
            topology: self.topology,
        }
    }

    /// The nodes to leave out where a link is slow and no node is.
    pub fn leave(&self) -> BTreeSet<String> {
        let below = self.expectation();
        let is_below = below.is_some_and(|check| check.outcome == Outcome::Fail);
        self.called().leave(self.conclusion, is_below)
    }

    fn own(&self, node: usize) -> impl Iterator<Item = &PairFound> {
        let has = move |found: &&PairFound| found.pair.0 == node || found.pair.1 == node;
        self.found.iter().filter(has)
    }

    fn median(&self) -> f64 {
        self.conclusion
            .medians
            .iter()
            .flatten()
            .copied()
            .next()
            .unwrap_or(0.0)
    }

    /// What a node must reach, in words.
    fn needed(&self) -> String {
        let median = self.median();
        let least = SLOW_BELOW * median;
        format!(
            "{} of the peers' median: at least {} of {}",
            SLOW_BELOW,
            bits(least),
            bits(median)
        )
    }

    fn bandwidth(&self, node: usize) -> Check {
        let needed = self.needed();
        let best = self
            .own(node)
            .map(|found| found.bandwidth)
            .fold(0.0, f64::max);
        let count = self
            .own(node)
            .map(|found| found.pair)
            .collect::<BTreeSet<_>>()
            .len();
        let found = format!("{} at best, with {count} others", bits(best));
        if self.conclusion.slow.contains(&Link::Node(node)) {
            let (cause, next) = self.cause_and_next(&self.own(node).collect::<Vec<_>>());
            return PATH_BANDWIDTH.fail(self.seen(node, found), needed, cause, next);
        }
        let candidate = self
            .conclusion
            .undecided
            .iter()
            .find(|set| set.contains(&Link::Node(node)));
        if let Some(set) = candidate {
            let others = self
                .called()
                .list(set.iter().filter(|link| **link != Link::Node(node)));
            let cause = if others.is_empty() {
                "the node's own link, or the path to the only node it was measured with".to_owned()
            } else {
                format!("this node, or {others}: the measurements do not show which")
            };
            let next = "measure again with more nodes that are known to be good";
            return PATH_BANDWIDTH.warn(self.seen(node, found), needed, cause, next);
        }
        if self.conclusion.unproven.contains(&node) {
            let cause = if count == 0 {
                "there was no other node to measure with"
            } else {
                "it was measured only with nodes, or over links, that are slow"
            };
            let next = "measure again with more nodes that are known to be good";
            return PATH_BANDWIDTH.warn(found, needed, cause, next);
        }
        PATH_BANDWIDTH.pass(found, needed)
    }

    /// What was seen of a slow node, with what is odder than its speed.
    fn seen(&self, node: usize, found: String) -> String {
        let lost = self
            .own(node)
            .map(|found| found.sent_again)
            .fold(0.0, f64::max);
        let mut seen = found;
        if lost >= LOSSY_FROM {
            seen = format!("{seen}, {:.0} % of segments sent again", lost * 100.0);
        }
        if self.own(node).any(|found| found.stalled) {
            seen = format!("{seen}, small messages pass and large ones do not");
        }
        match self.own(node).find_map(|found| found.trouble.as_deref()) {
            Some(trouble) => format!("{seen}; {trouble}"),
            None => seen,
        }
    }

    /// The likely cause and the next step, by what its slow pairs say.
    fn cause_and_next(&self, found: &[&PairFound]) -> (String, String) {
        let slow = || found.iter().filter(|found| self.is_slow(found));
        let (cause, next) = if slow().any(|found| found.stalled) {
            (
                "something on the way carries only smaller packets than the interfaces send: an MTU \
                 that was not raised on a switch port, a bridge or a tunnel",
                "compare the MTU of the interface with that of the port it is connected to, and try \
                 `ping -M do -s` with the largest packet",
            )
        } else if slow().any(|found| found.is_lossy()) {
            (
                "packets are lost: a bad cable or transceiver, a port that drops, a queue too short",
                "look at the error and discard counters of the interface and of its switch port",
            )
        } else if !found.is_empty() && found.iter().all(|found| found.bandwidth <= 0.0) {
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
        };
        (cause.to_owned(), next.to_owned())
    }

    fn is_slow(&self, found: &PairFound) -> bool {
        let median = self.conclusion.medians.get(self.topology.level(found.pair));
        let median = median.copied().flatten().unwrap_or(0.0);
        let measured = found.measurement().bandwidth;
        measured <= 0.0 || measured < SLOW_BELOW * median
    }

    fn uplink(&self, link: Link, name: &str) -> Check {
        let behind = self.topology.behind(link);
        let crossing: Vec<&PairFound> = self
            .found
            .iter()
            .filter(|found| behind.contains(&found.pair.0) != behind.contains(&found.pair.1))
            .collect();
        let best = crossing
            .iter()
            .map(|found| found.bandwidth)
            .fold(0.0, f64::max);
        let level = self.topology.level_of(link);
        let median = self
            .conclusion
            .medians
            .get(level)
            .copied()
            .flatten()
            .unwrap_or(0.0);
        let (cause, next) = self.cause_and_next(&crossing);
        let check = PATH_BANDWIDTH.fail(
            format!(
                "{} at best in and out, {} nodes behind it",
                bits(best),
                behind.len()
            ),
            format!(
                "at least {} of {}, the median over this distance",
                SLOW_BELOW,
                bits(median)
            ),
            format!("pairs inside are fast and all that leave are slow: {cause}"),
            next,
        );
        check.about(name)
    }

    fn slow_pairs(&self) -> Vec<Check> {
        let pairs = self.conclusion.pairs.iter();
        pairs
            .map(|(a, b)| {
                let own: Vec<&PairFound> = self
                    .found
                    .iter()
                    .filter(|found| found.pair == (*a, *b))
                    .collect();
                let best = own.iter().map(|found| found.bandwidth).fold(0.0, f64::max);
                let (cause, next) = self.cause_and_next(&own);
                let check = PATH_BANDWIDTH.fail(
                    format!("{} between the two, both are fast with others", bits(best)),
                    self.needed(),
                    format!("one of several paths through the network: {cause}"),
                    next,
                );
                check.about(self.called().pair((*a, *b)))
            })
            .collect()
    }

    fn undecided(&self, links: &BTreeSet<Link>) -> Check {
        let check = PATH_BANDWIDTH.fail(
            "slow, and the measurements do not show which of them is",
            self.needed(),
            format!("at least one of {}", self.called().list(links.iter())),
            "measure again with more nodes that are known to be good",
        );
        check.about(self.called().list(links.iter()))
    }

    /// How many pairs, and the names of the first.
    fn counted(&self, pairs: &BTreeSet<Pair>) -> Option<(usize, String)> {
        let first = pairs.iter().take(3).map(|pair| self.called().pair(*pair));
        let first = first.collect::<Vec<_>>().join(", ");
        (!pairs.is_empty()).then_some((pairs.len(), first))
    }

    fn unconfirmed(&self) -> Option<Check> {
        let (count, first) = self.counted(&self.conclusion.unconfirmed)?;
        let check = PATH_BANDWIDTH.warn(
            format!("{count} pairs were slow the one time they were measured: {first}"),
            self.needed(),
            "other traffic at that moment, a busy processor, or one of several paths through the network",
            "measure again: no round was left to repeat these pairs",
        );
        Some(check)
    }

    fn unsteady(&self) -> Option<Check> {
        let (count, first) = self.counted(&self.conclusion.unsteady)?;
        let check = PATH_BANDWIDTH.warn(
            format!("{count} pairs were slow once, and fast when measured again: {first}"),
            "the same speed each time",
            "other traffic on the way, or a busy processor",
            "measure again when the network is idle",
        );
        Some(check)
    }

    /// Whether the fabric as a whole does what it is expected to.
    fn expectation(&self) -> Option<Check> {
        #[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
        let expected = self.expected_gbps? as f64;
        let held = expected.min(ONE_STREAM_GBPS) * 1e9;
        let median = self
            .conclusion
            .medians
            .iter()
            .flatten()
            .copied()
            .reduce(f64::min)?;
        let found = format!(
            "{}, median of one stream over the longest distance",
            bits(median)
        );
        let limit = if expected > ONE_STREAM_GBPS {
            format!(", since one stream is held to {} at most", bits(held))
        } else {
            String::new()
        };
        let needed = format!("{SLOW_BELOW} of {}{limit}", bits(expected * 1e9));
        let check = if median >= SLOW_BELOW * held {
            PATH_BANDWIDTH.pass(found, needed)
        } else {
            PATH_BANDWIDTH.fail(
                found,
                needed,
                "all nodes are equally slow, so it is the fabric, or the interface is not on it",
                "check which network the interface is on, and what the fabric's `expects` should say",
            )
        };
        Some(check.about("fabric"))
    }

    fn gang(&self, ring: &RingFound) -> Check {
        let least = GANG_PART * self.median();
        let needed = format!("at least {}, half of what a pair reaches", bits(least));
        match ring {
            RingFound::None(why) => GANG_BANDWIDTH.skip("not measured", why),
            RingFound::Broken(said) => {
                let first = said
                    .iter()
                    .take(3)
                    .map(|(node, why)| format!("{node}: {why}"));
                GANG_BANDWIDTH.fail(
                    format!(
                        "it did not finish;  {}",
                        first.collect::<Vec<_>>().join("; ")
                    ),
                    needed,
                    "a pair that was not measured alone cannot reach each other, or a node died",
                    "run the preflight again; look at the nodes that are named first",
                )
            }
            RingFound::Ended {
                nodes,
                right: false,
                ..
            } => GANG_BANDWIDTH.fail(
                format!("wrong sums over {nodes} nodes"),
                "every sum as computed",
                "memory or a network device corrupts data",
                "run a memory test on these nodes, each with half of the others to find which",
            ),
            RingFound::Ended {
                nodes, bandwidth, ..
            } => {
                let found = format!("{} on each link, {nodes} nodes in a ring", bits(*bandwidth));
                if *bandwidth >= least {
                    return GANG_BANDWIDTH.pass(found, needed);
                }
                GANG_BANDWIDTH.warn(
                    found,
                    needed,
                    "uplinks with less capacity than the nodes behind them, or busy processors",
                    "place the gang within one domain, or expect this speed",
                )
            }
        }
    }

    /// The median round trip of each node's pairs.
    fn latencies(&self) -> Vec<Option<u64>> {
        let of = |node| {
            median(
                self.own(node)
                    .filter_map(|found| found.round_trip_micros)
                    .collect(),
            )
        };
        (0..self.names.len()).map(of).collect()
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
