//! Pairs in rounds, then all together in a ring.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use trainyard_core::probe::{
    Check, Outcome,
    pairs::{Link, Pair, Topology},
    paths::{self, PairFound, Paths, RingFound},
    ring::bus_bandwidth,
    search::{Conclusion, Measurement, Search},
};

use super::{
    super::{
        Conduct, Settings,
        limit::Limit,
        message::{Answer, Measure, Measured, Request, RingPart},
    },
    members::Members,
};

/// Bytes that each rank of a ring brings, at least and at most. Memory is twice that.
const RING_BYTES: (usize, usize) = (64 << 10, 8 << 20);
/// All-reduces of one ring; the fastest counts.
const RING_REPEATS: u32 = 3;

/// The checks of what was measured.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) nodes: BTreeMap<String, Vec<Check>>,
    pub(super) shared: Vec<Check>,
    pub(super) leave: BTreeSet<String>,
}

/// Measures between all who can be.
pub(super) fn conduct(
    settings: &Settings,
    conduct: &Conduct,
    members: &mut Members,
    limit: Limit,
) -> Checked {
    let mut nodes: BTreeMap<String, Vec<Check>> = BTreeMap::new();
    let (able, unable): (Vec<usize>, Vec<usize>) = members
        .present()
        .into_iter()
        .partition(|member| members.address(*member).is_some());
    for member in unable {
        let why = members.trouble(member).unwrap_or("it has no address");
        nodes.insert(
            members.name(member).to_owned(),
            vec![paths::unmeasured(why)],
        );
    }
    let names: Vec<String> = able
        .iter()
        .map(|member| members.name(*member).to_owned())
        .collect();
    let domains = |name: &String| conduct.domains.get(name).cloned().unwrap_or_default();
    let mut run = Run {
        settings,
        members,
        able,
        next_id: 1,
    };
    let topology = Topology::new(&names.iter().map(domains).collect::<Vec<_>>());
    let mut search = Search::new(topology);
    let (found, is_whole) = run.rounds(&mut search, limit);
    let conclusion = search.conclude();
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|node| (domains(&names[*node]), *node));
    let before = run.members.present();
    let mut ring = run.ring(&order, &conclusion, limit);
    // A member may have died in it; the others are tried once more.
    if matches!(ring, RingFound::Broken(_)) && run.someone_left(&before) {
        ring = run.ring(&order, &conclusion, limit);
    }
    let paths = Paths {
        names: &names,
        topology: search.topology(),
        found: &found,
        conclusion: &conclusion,
        expected_gbps: settings.needs.bandwidth_gbps,
    };
    nodes.extend(names.iter().cloned().zip(paths.of_nodes()));
    let mut shared = paths.shared(&ring);
    if !is_whole {
        shared.push(out_of_time(&shared, settings.timeout));
    }
    Checked {
        nodes,
        shared,
        leave: paths.leave(),
    }
}

fn out_of_time(shared: &[Check], timeout: Duration) -> Check {
    let check = shared.first().cloned();
    let check = check.unwrap_or_else(|| paths::unmeasured("no time"));
    Check {
        name: "path-bandwidth".to_owned(),
        subject: String::new(),
        outcome: Outcome::Warn,
        found: "not every round was measured".to_owned(),
        needed: format!("all rounds within {} s", timeout.as_secs()),
        cause: "peers that did not answer used up the time".to_owned(),
        next: "give it more time, or leave out the nodes that failed".to_owned(),
        ..check
    }
}

struct Run<'a> {
    settings: &'a Settings,
    members: &'a mut Members,
    /// The members that are measured, by their number in the search.
    able: Vec<usize>,
    next_id: u64,
}

impl Run<'_> {
    /// The longest that a measurement takes if everything on the way is waited for.
    fn longest(&self) -> Duration {
        (self.settings.measure * 5 / 4 + self.settings.patience() * 4) * 2
    }

    /// How long one side of a pair may still take after the other one answered or died. At worst it sends without a receiver for its
    /// whole time and then tries to connect, or counts and then waits to be connected to. One more patience is for a machine that
    /// is busy: a healthy node must not be dropped because its partner died.
    fn grace(&self) -> Duration {
        self.settings.measure * 5 / 2 + self.settings.patience() * 3
    }

    /// What every pair found, and whether all rounds were measured in time.
    fn rounds(&mut self, search: &mut Search, limit: Limit) -> (Vec<PairFound>, bool) {
        let mut found = Vec::new();
        while let Some(round) = search.next_round() {
            if limit.left().is_ok_and(|left| left < self.longest()) || limit.is_over() {
                return (found, false);
            }
            let now = self.round(&round, limit);
            // A member that is gone has no result, which is no evidence about links.
            let is_gone = |node: usize| self.members.gone(self.able[node]).is_some();
            let known = now
                .iter()
                .filter(|found| !is_gone(found.pair.0) && !is_gone(found.pair.1));
            let measured: Vec<Measurement> = known.map(PairFound::measurement).collect();
            search.record(&measured);
            found.extend(now);
        }
        (found, true)
    }

    fn round(&mut self, round: &[Pair], limit: Limit) -> Vec<PairFound> {
        let mut groups = Vec::new();
        for &(a, b) in round {
            let (a, b) = (self.able[a], self.able[b]);
            let id = self.next_id;
            self.next_id += 1;
            let is_gone = self.members.gone(a).is_some() || self.members.gone(b).is_some();
            if let Some(to) = self.members.address(b).filter(|_| !is_gone) {
                let side = |to| Request::Measure(Measure { id, to });
                groups.push(vec![(b, side(None)), (a, side(Some(to)))]);
            }
        }
        let limit = limit.within(self.longest());
        let mut answers = self.members.ask_together(groups, limit, self.grace());
        let mut side = |member: usize| match answers.remove(&member) {
            Some(Answer::Measured(measured)) => Ok(measured),
            _ => Err(self.members.gone(member).unwrap_or("no answer").to_owned()),
        };
        let joined = round.iter().map(|&(a, b)| {
            let (first, second) = (self.able[a], self.able[b]);
            joined((a, b), side(first), side(second))
        });
        joined.collect()
    }

    fn someone_left(&self, before: &[usize]) -> bool {
        self.members.present().len() < before.len()
    }

    /// All who are not slow, in a ring.
    fn ring(&mut self, order: &[usize], conclusion: &Conclusion, limit: Limit) -> RingFound {
        let is_fit = |node: &usize| {
            let member = self.able[*node];
            !conclusion.slow.contains(&Link::Node(*node)) && self.members.gone(member).is_none()
        };
        let ranks: Vec<usize> = order
            .iter()
            .filter(|node| is_fit(node))
            .map(|node| self.able[*node])
            .collect();
        if ranks.len() < 2 {
            return RingFound::None("fewer than two nodes are fit for it".to_owned());
        }
        let rate = conclusion
            .medians
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let bytes = ring_bytes(rate, self.settings.measure, ranks.len());
        let bound = self.ring_bound(rate, bytes);
        if limit.left().is_ok_and(|left| left < bound) || limit.is_over() {
            return RingFound::None("no time was left for it".to_owned());
        }
        let id = self.next_id;
        self.next_id += 1;
        let part = |rank: usize| {
            let next = ranks[(rank + 1) % ranks.len()];
            Some(Request::Ring(RingPart {
                id,
                rank,
                size: ranks.len(),
                next: self.members.address(next)?,
                bytes,
                repeats: RING_REPEATS,
                limit_millis: u64::try_from(bound.as_millis()).unwrap_or(u64::MAX),
            }))
        };
        let requests: Vec<(usize, Request)> = ranks
            .iter()
            .enumerate()
            .filter_map(|(rank, member)| Some((*member, part(rank)?)))
            .collect();
        let patience = self.settings.patience();
        let answers = self
            .members
            .ask(requests, limit.within(bound + patience * 2));
        self.ringed(&ranks, &answers, bytes)
    }

    fn ringed(
        &self,
        ranks: &[usize],
        answers: &BTreeMap<usize, Answer>,
        bytes: usize,
    ) -> RingFound {
        let mut slowest = 0;
        let mut right = true;
        let mut said = Vec::new();
        for member in ranks {
            let name = self.members.name(*member).to_owned();
            match answers.get(member) {
                Some(Answer::Ringed(ringed)) => match (ringed.micros, &ringed.trouble) {
                    (Some(micros), None) => {
                        slowest = slowest.max(micros);
                        right &= ringed.right;
                    }
                    (_, trouble) => said.push((name, trouble.clone().unwrap_or_default())),
                },
                _ => said.push((name, "no answer".to_owned())),
            }
        }
        if said.is_empty() {
            RingFound::Ended {
                nodes: ranks.len(),
                bandwidth: bus_bandwidth(bytes, slowest, ranks.len()),
                right,
            }
        } else {
            RingFound::Broken(said)
        }
    }

    /// Twenty times what it should take, and the time to connect.
    fn ring_bound(&self, rate: f64, bytes: usize) -> Duration {
        let bits = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) * 8.0 * 2.0;
        let seconds = bits / rate.max(1e6) * f64::from(RING_REPEATS) * 20.0;
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::MAX)
            .min(Duration::from_secs(30))
            + self.settings.patience() * 3
    }
}

/// As much as a pair moves in half a measurement, but more for many ranks, whose chunks would become
/// so small that only latency is measured, and never so much that memory is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the rate is positive, and the bound far below"
)]
fn ring_bytes(rate: f64, measure: Duration, ranks: usize) -> usize {
    let (least, most) = RING_BYTES;
    let most = most.min(ranks.saturating_mul(512 << 10));
    let moved = rate / 8.0 * measure.as_secs_f64() / 2.0;
    (moved.min(1e12) as usize).clamp(least, most.max(least)) / 8 * 8
}

/// What both sides of a pair say together.
fn joined(
    pair: Pair,
    first: Result<Measured, String>,
    second: Result<Measured, String>,
) -> PairFound {
    let (first, second) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (first, second) => {
            let trouble = first.err().or(second.err());
            return PairFound {
                pair,
                trouble,
                ..PairFound::default()
            };
        }
    };
    let both = [&first, &second];
    let slower = both
        .iter()
        .map(|side| side.received.unwrap_or(0.0))
        .fold(f64::INFINITY, f64::min);
    let worse = both
        .iter()
        .filter_map(|side| side.sent_again)
        .fold(0.0, f64::max);
    let stalled = first.round_trip_micros.is_some() && both.iter().any(|side| side.stalled);
    PairFound {
        pair,
        bandwidth: slower,
        round_trip_micros: first.round_trip_micros,
        sent_again: worse,
        stalled,
        trouble: first.trouble.or(second.trouble),
    }
}
