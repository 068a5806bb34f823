//! All that is measured between nodes and on their GPUs: pairs in rounds by streams or over RDMA, all nodes in a ring,
//! and the GPUs of each pod by themselves.

mod programs;
mod ring;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use trainyard_core::probe::{
    Check,
    pairs::{Pair, Topology},
    paths::{Method, PairFound, Paths},
    ring::RingFound,
    search::{Measurement, Search},
};

use super::{
    super::{
        Conduct, Settings,
        error::PathError,
        limit::Limit,
        message::{Answer, Measure, Part, RdmaPart, Request, Side},
    },
    members::Members,
};

/// The checks of what was measured.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) nodes: BTreeMap<String, Vec<Check>>,
    pub(super) shared: Vec<Check>,
    pub(super) leave: BTreeSet<String>,
}

/// Measures with the members that are there.
pub(super) struct Measuring<'a> {
    pub(super) settings: &'a Settings,
    pub(super) conduct: &'a Conduct,
    pub(super) members: &'a mut Members,
    pub(super) limit: Limit,
    /// The number of the last measurement.
    pub(super) last_id: u64,
}

/// Who measures in pairs, by number in the search, and how.
struct Pairs {
    method: Method,
    able: Vec<usize>,
    names: Vec<String>,
    search: Search,
    found: Vec<PairFound>,
    /// What of the time is left to what comes after.
    kept: Duration,
}

/// How long one round may take.
struct Bound {
    /// Each part of it.
    part: Duration,
    /// All answers.
    answers: Duration,
    /// One side of a pair after the other one answered or died.
    grace: Duration,
}

impl Measuring<'_> {
    /// Streams between all who have an address, then the ring.
    pub(super) fn streams(&mut self) -> Checked {
        let mut nodes = BTreeMap::new();
        let mut able = Vec::new();
        for member in self.members.present() {
            if self.members.address(member).is_some() {
                able.push(member);
                continue;
            }
            let why = self.members.trouble(member);
            let check = Method::Streams.not_measured(why.unwrap_or("it has no address"));
            nodes.insert(self.members.name(member).to_owned(), vec![check]);
        }
        let mut pairs = self.pairs(Method::Streams, able, Duration::ZERO);
        let is_whole = self.rounds(&mut pairs);
        let conclusion = pairs.search.conclude();
        let before = self.members.present().len();
        let mut ring = self.ring(&pairs, &conclusion);
        // A member may have died in it; the others are tried once more.
        if matches!(ring, RingFound::Broken(_)) && self.members.present().len() < before {
            ring = self.ring(&pairs, &conclusion);
        }
        self.checked(nodes, &pairs, Some(&ring), is_whole)
    }

    fn pairs(&self, method: Method, able: Vec<usize>, kept: Duration) -> Pairs {
        let names = able.iter().map(|member| self.members.name(*member));
        let names: Vec<String> = names.map(str::to_owned).collect();
        let domains: Vec<Vec<String>> = names.iter().map(|name| self.domains(name)).collect();
        Pairs {
            method,
            able,
            names,
            search: Search::new(Topology::new(&domains)),
            found: Vec::new(),
            kept,
        }
    }

    fn domains(&self, name: &str) -> Vec<String> {
        let domains = self.conduct.domains.get(name);
        domains.cloned().unwrap_or_default()
    }

    /// The checks of `nodes` that were not measured, and of what was.
    fn checked(
        &self,
        mut nodes: BTreeMap<String, Vec<Check>>,
        pairs: &Pairs,
        ring: Option<&RingFound>,
        is_whole: bool,
    ) -> Checked {
        let paths = Paths {
            method: &pairs.method,
            names: &pairs.names,
            topology: pairs.search.topology(),
            found: &pairs.found,
            conclusion: &pairs.search.conclude(),
            needs: &self.settings.needs,
        };
        nodes.extend(pairs.names.iter().cloned().zip(paths.of_nodes()));
        let mut shared = paths.shared();
        shared.extend(ring.map(|ring| ring.check(paths.median())));
        if !is_whole {
            shared.push(pairs.method.out_of_time(self.settings.timeout));
        }
        Checked {
            nodes,
            shared,
            leave: paths.leave(),
        }
    }

    /// Measures all rounds; whether there was time for each.
    fn rounds(&mut self, pairs: &mut Pairs) -> bool {
        while let Some(round) = pairs.search.next_round() {
            let Some(bound) = self.bound(pairs) else {
                return false;
            };
            let now = self.round(pairs, &round, &bound);
            // A member that is gone has no result, which is no evidence about links.
            let is_here = |node: usize| !self.members.is_gone(pairs.able[node]);
            let known = now
                .iter()
                .filter(|found| is_here(found.pair.0) && is_here(found.pair.1));
            let measured = known.map(|found| pairs.method.measurement(found));
            let measured: Vec<Measurement> = measured.collect();
            pairs.search.record(&measured);
            pairs.found.extend(now);
        }
        true
    }

    /// How long the next round may take; none where there is too little time for it.
    fn bound(&self, pairs: &Pairs) -> Option<Bound> {
        let (measure, patience) = (self.settings.measure, self.settings.patience());
        let left = self.limit.left().unwrap_or_default();
        match pairs.method {
            // If everything on the way is waited for. At worst one side sends without a receiver for its whole time and
            // then tries to connect, or counts and then waits to be connected to. One more patience is for a machine that
            // is busy: a healthy node must not be dropped because its partner died.
            Method::Streams => {
                let longest = (measure * 5 / 4 + patience * 4) * 2;
                (left >= longest).then_some(Bound {
                    part: longest,
                    answers: longest,
                    grace: measure * 5 / 2 + patience * 3,
                })
            }
            // Both directions, and all waiting on the way.
            Method::Rdma(_) => {
                let each = Duration::from_secs(self.seconds());
                let left = left.saturating_sub(pairs.kept + patience * 2);
                let part = left.min((each + patience * 7) * 2);
                (left >= (each + patience) * 2).then_some(Bound {
                    part,
                    answers: part + patience * 2,
                    grace: part + patience,
                })
            }
        }
    }

    /// Whole seconds, since `ib_write_bw` knows no others.
    fn seconds(&self) -> u64 {
        let whole = self.settings.measure.as_secs();
        whole + u64::from(self.settings.measure.subsec_nanos() > 0)
    }

    fn round(&mut self, pairs: &Pairs, round: &[Pair], bound: &Bound) -> Vec<PairFound> {
        let mut groups = Vec::new();
        for &(a, b) in round {
            let (first, second) = (pairs.able[a], pairs.able[b]);
            let id = self.next_id();
            let is_gone = self.members.is_gone(first) || self.members.is_gone(second);
            if let Some(to) = self.members.address(second).filter(|_| !is_gone) {
                let side = |node: usize, to| {
                    let part = Part {
                        id,
                        to,
                        limit: bound.part,
                        measure: self.measure(&pairs.method, node),
                    };
                    (pairs.able[node], Request::Measure(part))
                };
                groups.push(vec![side(b, None), side(a, Some(to))]);
            }
        }
        let limit = self.limit.within(bound.answers);
        let mut answers = self.members.ask_together(groups, limit, bound.grace);
        let mut side = |node: usize| match answers.remove(&pairs.able[node]) {
            Some(Answer::Pair(side)) => Ok(side),
            _ => Err(self.members.no_answer(pairs.able[node])),
        };
        let joined = round.iter().map(|&pair| {
            let sides = (side(pair.0), side(pair.1));
            joined(pair, sides, pairs)
        });
        joined.collect()
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn measure(&self, method: &Method, node: usize) -> Measure {
        match method {
            Method::Streams => Measure::Streams,
            Method::Rdma(ports) => Measure::Rdma(RdmaPart {
                port: ports[node].clone(),
                seconds: self.seconds(),
            }),
        }
    }
}

/// What both sides of a pair say together.
fn joined(
    pair: Pair,
    sides: (Result<Side, &PathError>, Result<Side, &PathError>),
    pairs: &Pairs,
) -> PairFound {
    // The output of a program does not show on which side it ran.
    let said = |node: usize, why: String| match pairs.method {
        Method::Streams => why,
        Method::Rdma(_) => format!("{}: {why}", pairs.names[node]),
    };
    let lost = |node: usize, why: &PathError| PairFound {
        pair,
        trouble: Some(said(node, why.sentence())),
        ..PairFound::default()
    };
    let sides = match sides {
        (Ok(first), Ok(second)) => [(pair.0, first), (pair.1, second)],
        (Err(why), _) => return lost(pair.0, why),
        (_, Err(why)) => return lost(pair.1, why),
    };
    let each = || sides.iter().map(|(_, side)| side);
    let first = |why: fn(&Side) -> Option<&String>| {
        let mut sides = sides.iter();
        sides.find_map(|(node, side)| Some(said(*node, why(side)?.clone())))
    };
    let sending = first(|side| side.trouble.as_ref());
    let serving = first(|side| side.serving_trouble.as_ref());
    // The error of the side that serves explains more than a refused connection.
    let trouble = if each().any(|side| side.found_nobody) {
        serving.or(sending)
    } else {
        sending.or(serving)
    };
    let is_measured = each().all(|side| side.rate.is_some());
    let round_trip_micros = sides[0].1.round_trip_micros;
    PairFound {
        pair,
        bandwidth: each()
            .map(|side| side.rate.unwrap_or(0.0))
            .fold(f64::INFINITY, f64::min),
        round_trip_micros,
        sent_again: each()
            .filter_map(|side| side.sent_again)
            .fold(0.0, f64::max),
        stalled: round_trip_micros.is_some() && each().any(|side| side.stalled),
        trouble: trouble.filter(|_| pairs.method == Method::Streams || !is_measured),
    }
}
