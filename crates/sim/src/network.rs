//! Another world, around `core::probe::search`: a network with slow links, shared uplinks and noise.
//!
//! Owns what pairs that measure at the same time reach. Contention is simulated: every link has a
//! capacity in each direction, and flows share it until each is held back by one link (max-min
//! fairness), as long flows of TCP roughly do. What is not simulated: bursts, queues, and flows that
//! several equal ways give unequal shares.
//!
//! Invariant: the same seed gives the same measurements.

use std::collections::BTreeMap;

use trainyard_core::probe::{
    pairs::{Link, Pair, Topology},
    search::{Conclusion, Measurement, Search},
};

use crate::dice::Dice;

/// Away from the node, or towards it.
type Direction = bool;

/// A network of which some links are slow.
#[derive(Debug)]
pub struct Network {
    topology: Topology,
    /// How many times more the nodes behind an uplink can send than the uplink carries.
    oversubscription: f64,
    slow: BTreeMap<Link, f64>,
    slow_pairs: BTreeMap<Pair, f64>,
    noise: f64,
    dice: Dice,
}

impl Network {
    /// A network without fault. Measurements have the standard deviation `noise`.
    pub fn new(seed: u64, topology: Topology, oversubscription: f64, noise: f64) -> Self {
        Self {
            topology,
            oversubscription,
            slow: BTreeMap::new(),
            slow_pairs: BTreeMap::new(),
            noise,
            dice: Dice::new(seed, 0),
        }
    }

    /// The same with a link that carries only `part` of its capacity.
    #[must_use]
    pub fn with_slow(mut self, link: Link, part: f64) -> Self {
        self.slow.insert(link, part);
        self
    }

    /// The same with a pair that reaches only `part` of what one node can send.
    #[must_use]
    pub fn with_slow_pair(mut self, pair: Pair, part: f64) -> Self {
        self.slow_pairs.insert(pair, part);
        self
    }

    /// Searches to the end.
    pub fn search(mut self) -> Conclusion {
        let mut search = Search::new(self.topology.clone());
        while let Some(round) = search.next_round() {
            let measured = self.measure(&round);
            search.record(&measured);
        }
        search.conclude()
    }

    /// What these pairs reach at the same time.
    fn measure(&mut self, round: &[Pair]) -> Vec<Measurement> {
        let shares = self.shares(round);
        let pairs = round.iter().zip(shares);
        let measured = pairs.map(|(pair, share)| Measurement {
            pair: *pair,
            bandwidth: share * (1.0 + self.noise * normal(&mut self.dice)).max(0.0),
        });
        measured.collect()
    }

    fn capacity(&self, link: Link) -> f64 {
        let whole = match link {
            Link::Node(_) => 1.0,
            Link::Uplink(_) => {
                let behind = self.topology.behind(link).len();
                f64::from(u32::try_from(behind).unwrap_or(u32::MAX)) / self.oversubscription
            }
        };
        whole * self.slow.get(&link).copied().unwrap_or(1.0)
    }

    /// Fair shares: again and again the tightest link gives each of its flows an equal part of what
    /// is left of it.
    fn shares(&self, round: &[Pair]) -> Vec<f64> {
        let mut left: BTreeMap<(Link, Direction), (f64, u32)> = BTreeMap::new();
        let mut ways = Vec::with_capacity(round.len());
        for pair in round {
            let (near, far) = self.topology.path(*pair);
            let near = near.into_iter().map(|link| (link, true));
            let way: Vec<_> = near
                .chain(far.into_iter().map(|link| (link, false)))
                .collect();
            for key in &way {
                let entry = left
                    .entry(*key)
                    .or_insert_with(|| (self.capacity(key.0), 0));
                entry.1 += 1;
            }
            ways.push(way);
        }
        let mut shares: Vec<Option<f64>> = vec![None; round.len()];
        loop {
            let open = left.values().filter(|(_, flows)| *flows > 0);
            let fair = open.map(|(capacity, flows)| capacity / f64::from(*flows));
            let Some(least) = fair.reduce(f64::min) else {
                break;
            };
            let tight: Vec<(Link, Direction)> = left
                .iter()
                .filter(|(_, (capacity, flows))| {
                    *flows > 0 && capacity / f64::from(*flows) <= least + 1e-9
                })
                .map(|(key, _)| *key)
                .collect();
            for (share, way) in shares.iter_mut().zip(&ways) {
                if share.is_some() || !way.iter().any(|key| tight.binary_search(key).is_ok()) {
                    continue;
                }
                *share = Some(least);
                for key in way {
                    if let Some((capacity, flows)) = left.get_mut(key) {
                        *capacity -= least;
                        *flows -= 1;
                    }
                }
            }
        }
        let limit = |pair: &Pair| self.slow_pairs.get(pair).copied().unwrap_or(f64::INFINITY);
        let both = shares.into_iter().zip(round);
        both.map(|(share, pair)| share.unwrap_or(0.0).min(limit(pair)))
            .collect()
    }
}

/// A draw from the normal distribution, after Box and Muller.
fn normal(dice: &mut Dice) -> f64 {
    let mut uniform = || (f64::from(dice.below(u32::MAX)) + 1.0) / f64::from(u32::MAX);
    let (radius, angle) = (uniform(), uniform());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Racks of `hosts` nodes, `racks` of them in a zone.
pub fn zones(zones: usize, racks: usize, hosts: usize) -> Topology {
    let place = |node: usize| {
        let rack = node / hosts;
        vec![format!("zone-{}", rack / racks), format!("rack-{rack}")]
    };
    Topology::new(&(0..zones * racks * hosts).map(place).collect::<Vec<_>>())
}

/// What came of one trial with 1,024 nodes.
#[derive(Debug)]
pub struct Trial {
    /// The link that was slow, and the part of its capacity that was left.
    pub slow: (Link, f64),
    /// What the search found.
    pub conclusion: Conclusion,
}

impl Trial {
    /// One link of 1,024 nodes in 32 racks in 4 zones, any of them, carries a tenth to a half of its
    /// capacity; measurements have a noise of 5 %. Every other seed has uplinks with half of the
    /// capacity that the nodes behind them have.
    pub fn run(seed: u64, topology: &Topology) -> Self {
        let mut dice = Dice::new(seed, 1);
        let links: Vec<Link> = topology.links().into_iter().collect();
        let link = dice.pick(&links);
        let part = f64::from(dice.below(401) + 100) / 1000.0;
        let oversubscription = if seed.is_multiple_of(2) { 1.0 } else { 2.0 };
        let network = Network::new(seed, topology.clone(), oversubscription, 0.05);
        Self {
            slow: (link, part),
            conclusion: network.with_slow(link, part).search(),
        }
    }

    /// Whether the slow link was named, and nothing else.
    pub fn is_right(&self) -> bool {
        let found = &self.conclusion;
        found.slow.iter().eq([&self.slow.0])
            && found.pairs.is_empty()
            && found.undecided.is_empty()
            && found.unproven.is_empty()
    }
}

#[cfg(test)]
mod tests;
