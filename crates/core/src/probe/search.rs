//! Who is slow: from what pairs reached to the node, the link or the pair that explains it.
//!
//! Owns the reasoning and the rounds that it asks for. It takes numbers of nodes and measured numbers
//! only; names and words are [`super::paths`].
//!
//! A pair is slow beside what other nodes reach over the same distance. Each link on its way is a
//! suspect until some pair went over it at full speed. A link is named when two pairs with different
//! far ends are slow and nothing else on their ways is left to explain it, and when it stays slow
//! against partners that are known to be good. If every link of a slow pair is known to be good, the
//! pair alone is slow. What is left has several explanations, and all of them are reported.
//!
//! Invariant: a link over which any pair reached what was expected of it is never named. Nothing was
//! received at all is the slowest measurement, not a missing one.

use std::collections::{BTreeMap, BTreeSet};

use super::pairs::{Link, Pair, Topology, most_rounds, schedule, tournament, turns};

/// A pair is slow below this part of what its peers reach. Six times the noise of 5 % that we allow
/// for, so that one of a billion measurements of a good pair is called slow by chance.
pub const SLOW_BELOW: f64 = 0.7;
/// A link is known to be good once a pair over it reached this part. Apart from [`SLOW_BELOW`], so
/// that noise around one bound cannot make a link both slow and good.
pub const GOOD_FROM: f64 = 0.8;
/// How often a pair that is slow alone is measured, rounds permitting: a processor that another
/// machine used for a moment slows the same pair twice in a row now and then, hardly three times.
const LOOKS: usize = 3;
/// How often it must have been slow to be named.
const SLOW_TIMES: usize = 2;

/// What one pair reached, in any unit as long as it is the same for all; 0 if nothing got through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Who.
    pub pair: Pair,
    /// The bandwidth.
    pub bandwidth: f64,
}

/// Whether all nodes were measuring, as they do in the schedule. An uplink that is shared by many
/// may well be fast enough for one pair, so only a full round shows that an uplink is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Full,
    Light,
}

#[derive(Clone, Debug)]
struct Observation {
    pair: Pair,
    bandwidth: f64,
    level: usize,
    load: Load,
    /// Whether it was asked for after the schedule.
    confirming: bool,
}

/// A running search: ask for a round, measure it, record it, until there is none left.
#[derive(Clone, Debug)]
pub struct Search {
    topology: Topology,
    /// The rounds of the schedule that are left, the next one last.
    schedule: Vec<Vec<Pair>>,
    scheduled: usize,
    observations: Vec<Observation>,
    rounds: usize,
    /// The round that was asked for last.
    asked: Option<Load>,
    /// The turns of each level's tournament that were played.
    played: BTreeSet<(usize, usize)>,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusion {
    /// The links that explain slow pairs.
    pub slow: BTreeSet<Link>,
    /// Pairs that are slow although each of the two is fast with others.
    pub pairs: BTreeSet<Pair>,
    /// Pairs that were slow once and reached what was expected when they were measured again.
    pub unsteady: BTreeSet<Pair>,
    /// Pairs that were slow the only time that they were measured, although each of the two is fast
    /// with others: there was no round left to look again.
    pub unconfirmed: BTreeSet<Pair>,
    /// Slow pairs with more than one explanation: for each the links of which at least one is slow.
    pub undecided: BTreeSet<BTreeSet<Link>>,
    /// Nodes that were only ever measured with partners, or over links, that are slow.
    pub unproven: BTreeSet<usize>,
    /// What nodes reach at each level, innermost first: the median of the best of each; none where
    /// nothing was measured.
    pub medians: Vec<Option<f64>>,
    /// How many rounds it took.
    pub rounds: usize,
}

impl Search {
    /// Over these nodes.
    pub fn new(topology: Topology) -> Self {
        let mut schedule = schedule(&topology);
        schedule.reverse();
        Self {
            topology,
            scheduled: schedule.len(),
            schedule,
            observations: Vec::new(),
            rounds: 0,
            asked: None,
            played: BTreeSet::new(),
        }
    }

    /// Where the nodes are.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The pairs to measure next, all at the same time; none when nothing more can be found out, or
    /// when the most rounds are spent.
    pub fn next_round(&mut self) -> Option<Vec<Pair>> {
        if self.rounds >= most_rounds(self.topology.nodes()) {
            return None;
        }
        let (load, pairs) = match self.schedule.pop() {
            Some(pairs) => (Load::Full, pairs),
            None => self.confirming()?,
        };
        if pairs.is_empty() {
            return None;
        }
        self.rounds += 1;
        self.asked = Some(load);
        Some(pairs)
    }

    /// Records the results of the round that was asked for last. A pair of it that is missing was not
    /// measured, which is no evidence; one that failed is a measurement of 0.
    pub fn record(&mut self, measurements: &[Measurement]) {
        let Some(load) = self.asked.take() else {
            return;
        };
        let confirming = self.rounds > self.scheduled;
        let topology = &self.topology;
        self.observations
            .extend(measurements.iter().map(|measurement| Observation {
                pair: measurement.pair,
                bandwidth: measurement.bandwidth.max(0.0),
                level: topology.level(measurement.pair),
                load,
                confirming,
            }));
    }

    /// What is known so far.
    pub fn conclude(&self) -> Conclusion {
        Evidence::new(self).conclude()
    }

    /// The round that would decide most open questions.
    fn confirming(&mut self) -> Option<(Load, Vec<Pair>)> {
        let evidence = Evidence::new(self);
        let conclusion = evidence.conclude();
        let nodes = evidence.open_nodes(&conclusion);
        let pairs = evidence.open_pairs(&conclusion);
        let uplinks = evidence.open_uplinks(&conclusion);
        // Uplinks and nodes take turns, so that neither uses up the rounds of the other.
        let light = !nodes.is_empty() || !pairs.is_empty();
        if !uplinks.is_empty()
            && (!light || self.rounds.is_multiple_of(2))
            && let Some((level, turn)) = evidence.best_turn(&uplinks)
        {
            let round = tournament(&self.topology, level, turn);
            self.played.insert((level, turn));
            return Some((Load::Full, round));
        }
        light.then(|| (Load::Light, evidence.partners(&nodes, &pairs)))
    }
}

/// The observations, and what follows from each of them alone.
struct Evidence<'a> {
    search: &'a Search,
    medians: Vec<Option<f64>>,
    /// The most that went over each link, under a load that counts for it.
    best: BTreeMap<Link, f64>,
}

/// A slow observation with the links that may explain it, each with its far end.
struct Slow<'a> {
    observation: &'a Observation,
    /// All links on its way.
    links: Vec<Link>,
    suspects: BTreeMap<Link, Link>,
}

impl Slow<'_> {
    /// Whether a link that is slow is on the way. Over a longer distance, where less is expected, such
    /// a link may also have carried enough at times.
    fn is_explained(&self, named: &BTreeSet<Link>) -> bool {
        self.links.iter().any(|link| named.contains(link))
    }
}

impl<'a> Evidence<'a> {
    fn new(search: &'a Search) -> Self {
        let mut best: BTreeMap<Link, f64> = BTreeMap::new();
        for observation in &search.observations {
            let (left, right) = search.topology.path(observation.pair);
            for link in left.into_iter().chain(right) {
                if matches!(link, Link::Node(_)) || observation.load == Load::Full {
                    let entry = best.entry(link).or_default();
                    *entry = entry.max(observation.bandwidth);
                }
            }
        }
        Self {
            search,
            medians: medians(search),
            best,
        }
    }

    fn expected(&self, observation: &Observation) -> f64 {
        self.medians[observation.level].unwrap_or(0.0)
    }

    fn is_slow(&self, observation: &Observation) -> bool {
        observation.bandwidth <= 0.0
            || observation.bandwidth < SLOW_BELOW * self.expected(observation)
    }

    fn is_good(&self, observation: &Observation) -> bool {
        observation.bandwidth > 0.0
            && observation.bandwidth >= GOOD_FROM * self.expected(observation)
    }

    /// Whether as much as was expected of `observation` went over the link at some time.
    fn carried(&self, link: Link, observation: &Observation) -> bool {
        let best = self.best.get(&link).copied().unwrap_or(0.0);
        best > 0.0 && best >= GOOD_FROM * self.expected(observation)
    }

    fn slow(&self) -> Vec<Slow<'a>> {
        let all = self.search.observations.iter();
        let slow = all.filter(|observation| self.is_slow(observation));
        slow.map(|observation| {
            let (left, right) = self.search.topology.path(observation.pair);
            let far = |links: &[Link]| links.last().copied().unwrap_or(Link::Node(0));
            let (a, b) = observation.pair;
            let side = |links: &[Link], partner: usize, far: Link| {
                // Every partner of a node is another far end, also behind the same uplink.
                let suspects = links.iter().map(|link| match link {
                    Link::Node(_) => (*link, Link::Node(partner)),
                    Link::Uplink(_) => (*link, far),
                });
                let open = suspects.filter(|(link, _)| !self.carried(*link, observation));
                open.collect::<Vec<_>>()
            };
            let mut suspects: BTreeMap<Link, Link> = BTreeMap::new();
            suspects.extend(side(&left, b, far(&right)));
            suspects.extend(side(&right, a, far(&left)));
            Slow {
                observation,
                links: left.into_iter().chain(right).collect(),
                suspects,
            }
        })
        .collect()
    }

    fn conclude(&self) -> Conclusion {
        let slow = self.slow();
        let named = named(&slow);
        let good: BTreeSet<Pair> = self
            .search
            .observations
            .iter()
            .filter(|observation| self.is_good(observation))
            .map(|observation| observation.pair)
            .collect();
        let mut conclusion = Conclusion {
            medians: self.medians.clone(),
            rounds: self.search.rounds,
            ..Conclusion::default()
        };
        for one in &slow {
            let pair = one.observation.pair;
            if one.is_explained(&named) {
                continue;
            }
            if good.contains(&pair) {
                conclusion.unsteady.insert(pair);
            } else if one.suspects.is_empty() {
                let is_confirmed = self.looks(pair) >= SLOW_TIMES;
                let found = if is_confirmed {
                    &mut conclusion.pairs
                } else {
                    &mut conclusion.unconfirmed
                };
                found.insert(pair);
            } else {
                conclusion
                    .undecided
                    .insert(one.suspects.keys().copied().collect());
            }
        }
        conclusion.slow = named;
        smallest(&mut conclusion.undecided);
        let open: BTreeSet<Link> = conclusion.undecided.iter().flatten().copied().collect();
        let proven = self.proven();
        conclusion.unproven = (0..self.search.topology.nodes())
            .filter(|node| !proven.contains(node))
            .filter(|node| !conclusion.slow.contains(&Link::Node(*node)))
            .filter(|node| !open.contains(&Link::Node(*node)))
            .collect();
        conclusion
    }

    /// The nodes whose own link is known to be good: it carried what is expected over the shortest
    /// distance that the node was measured at.
    fn proven(&self) -> BTreeSet<usize> {
        let mut nearest: BTreeMap<usize, &Observation> = BTreeMap::new();
        for observation in &self.search.observations {
            for node in [observation.pair.0, observation.pair.1] {
                let entry = nearest.entry(node).or_insert(observation);
                if observation.level < entry.level {
                    *entry = observation;
                }
            }
        }
        let carried = |(node, observation): &(&usize, &&Observation)| {
            self.carried(Link::Node(**node), observation)
        };
        nearest
            .iter()
            .filter(carried)
            .map(|(node, _)| *node)
            .collect()
    }

    /// Nodes for which another measurement would add evidence.
    fn open_nodes(&self, conclusion: &Conclusion) -> BTreeSet<usize> {
        let mut open: BTreeSet<usize> = conclusion.unproven.clone();
        let undecided = conclusion.undecided.iter().flatten();
        let unconfirmed = conclusion
            .slow
            .iter()
            .filter(|link| !self.confirmed(**link));
        open.extend(undecided.chain(unconfirmed).filter_map(|link| match link {
            Link::Node(node) => Some(*node),
            Link::Uplink(_) => None,
        }));
        open
    }

    /// Pairs that are slow alone, each time so far, and were not measured often enough.
    fn open_pairs(&self, conclusion: &Conclusion) -> BTreeSet<Pair> {
        let slow = conclusion.pairs.iter().chain(&conclusion.unconfirmed);
        slow.copied()
            .filter(|pair| self.looks(*pair) < LOOKS)
            .collect()
    }

    /// How often a pair was measured.
    fn looks(&self, pair: Pair) -> usize {
        let all = self.search.observations.iter();
        all.filter(|observation| observation.pair == pair).count()
    }

    fn open_uplinks(&self, conclusion: &Conclusion) -> BTreeSet<Link> {
        let undecided = conclusion.undecided.iter().flatten();
        let unconfirmed = conclusion
            .slow
            .iter()
            .filter(|link| !self.confirmed(**link));
        let uplinks = undecided.chain(unconfirmed);
        uplinks
            .filter(|link| matches!(link, Link::Uplink(_)))
            .copied()
            .collect()
    }

    /// Whether the link was measured again after the schedule, in a round that counts for it.
    fn confirmed(&self, link: Link) -> bool {
        self.search.observations.iter().any(|observation| {
            let counts = matches!(link, Link::Node(_)) || observation.load == Load::Full;
            counts && observation.confirming && self.is_on_path(link, observation.pair)
        })
    }

    fn is_on_path(&self, link: Link, pair: Pair) -> bool {
        let (left, right) = self.search.topology.path(pair);
        left.contains(&link) || right.contains(&link)
    }

    /// The turn in which most of the uplinks meet a peer that they have not met.
    fn best_turn(&self, uplinks: &BTreeSet<Link>) -> Option<(usize, usize)> {
        let topology = &self.search.topology;
        let full = self.search.observations.iter();
        let met: BTreeSet<(Link, Link)> = full
            .filter(|observation| observation.load == Load::Full)
            .flat_map(|observation| self.meetings(observation.pair))
            .collect();
        let levels: BTreeSet<usize> = uplinks
            .iter()
            .map(|link| topology.level_of(*link))
            .collect();
        let all = levels
            .into_iter()
            .flat_map(|level| (0..turns(topology, level)).map(move |turn| (level, turn)));
        let unplayed = all.filter(|turn| !self.search.played.contains(turn));
        let gain = |(level, turn): &(usize, usize)| {
            let round = tournament(topology, *level, *turn);
            let meetings: BTreeSet<(Link, Link)> =
                round.iter().flat_map(|pair| self.meetings(*pair)).collect();
            let ours = meetings.iter().filter(|(link, _)| uplinks.contains(link));
            let new = ours.clone().filter(|meeting| !met.contains(meeting));
            (new.count(), ours.count())
        };
        unplayed
            .map(|turn| (gain(&turn), turn))
            .filter(|(gain, _)| *gain != (0, 0))
            .max_by_key(|(gain, (level, turn))| (*gain, std::cmp::Reverse((*level, *turn))))
            .map(|(_, turn)| turn)
    }

    /// Each uplink on the way of a pair with the far end that it meets.
    fn meetings(&self, pair: Pair) -> Vec<(Link, Link)> {
        let (left, right) = self.search.topology.path(pair);
        let far = |links: &[Link]| links.last().copied();
        let from = |links: &[Link], far: Option<Link>| -> Vec<(Link, Link)> {
            let uplinks = links.iter().filter(|link| matches!(link, Link::Uplink(_)));
            uplinks.filter_map(|link| Some((*link, far?))).collect()
        };
        let mut all = from(&left, far(&right));
        all.extend(from(&right, far(&left)));
        all
    }

    /// A round for these nodes, each with the nearest known good partner that it has not met, and
    /// for these pairs once more.
    fn partners(&self, nodes: &BTreeSet<usize>, pairs: &BTreeSet<Pair>) -> Vec<Pair> {
        let topology = &self.search.topology;
        let proven = self.proven();
        let met: BTreeSet<Pair> = self
            .search
            .observations
            .iter()
            .map(|observation| observation.pair)
            .collect();
        let mut free: BTreeSet<usize> = (0..topology.nodes()).collect();
        let mut round = Vec::new();
        for &node in nodes {
            if !free.remove(&node) {
                continue;
            }
            // A suspect partner adds little evidence, and may be needed itself.
            let known = |partner: &&usize| proven.contains(*partner) && !nodes.contains(*partner);
            let cost = |partner: &usize| {
                let pair = (node.min(*partner), node.max(*partner));
                (met.contains(&pair), topology.level(pair), *partner)
            };
            let unmet = |partner: &&usize| !cost(partner).0;
            let partner = free
                .iter()
                .filter(known)
                .min_by_key(|partner| cost(partner));
            let partner = partner.or_else(|| {
                free.iter()
                    .filter(unmet)
                    .min_by_key(|partner| cost(partner))
            });
            if let Some(partner) = partner.copied() {
                free.remove(&partner);
                round.push((node.min(partner), node.max(partner)));
            }
        }
        for &(a, b) in pairs {
            if free.contains(&a) && free.contains(&b) {
                free.remove(&a);
                free.remove(&b);
                round.push((a, b));
            }
        }
        round
    }
}

/// The links that alone are left to explain pairs with two different far ends.
fn named(slow: &[Slow<'_>]) -> BTreeSet<Link> {
    let mut far_ends: BTreeMap<Link, BTreeSet<Link>> = BTreeMap::new();
    for one in slow {
        let mut suspects = one.suspects.iter();
        if let (Some((link, far)), None) = (suspects.next(), suspects.next()) {
            far_ends.entry(*link).or_default().insert(*far);
        }
    }
    let twice = far_ends.into_iter().filter(|(_, far)| far.len() >= 2);
    twice.map(|(link, _)| link).collect()
}

/// Keeps the sets that contain no other one: whatever explains those explains the others too.
fn smallest(sets: &mut BTreeSet<BTreeSet<Link>>) {
    let all: Vec<BTreeSet<Link>> = sets.iter().cloned().collect();
    sets.retain(|set| !all.iter().any(|other| other != set && other.is_subset(set)));
}

/// At each level the median over nodes of the best that each reached there. Of the best, because one
/// slow node slows a pair with each of the others, but not the best of theirs.
fn medians(search: &Search) -> Vec<Option<f64>> {
    let mut best: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); search.topology.levels()];
    for observation in &search.observations {
        // Few pairs on a shared uplink reach more than many, which is not what many are to reach.
        if observation.level > 0 && observation.load == Load::Light {
            continue;
        }
        for node in [observation.pair.0, observation.pair.1] {
            let entry = best[observation.level].entry(node).or_default();
            *entry = entry.max(observation.bandwidth);
        }
    }
    let median = |level: BTreeMap<usize, f64>| {
        let mut values: Vec<f64> = level.into_values().collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    best.into_iter().map(median).collect()
}

#[cfg(test)]
mod tests;
