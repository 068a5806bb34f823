//! Small offers against every combination of nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{GPU, ask, gang, offer, pool, shape, with};
use crate::{
    capacity::{Answer, Offer},
    gang::{Gang, Snapshot, testing::cluster},
};

/// A generator of numbers from a seed, the same everywhere.
struct Dice(u64);

impl Dice {
    /// From 0 to one less than `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn whole(&mut self, sides: u64) -> i64 {
        i64::try_from(self.roll(sides)).unwrap()
    }
}

struct World {
    snapshot: Snapshot,
    gang: Gang,
    offer: Offer,
    /// GPUs, most nodes and price of each shape, and the most GPUs of each pool.
    shapes: Vec<(i64, i64, i64, usize)>,
    limits: Vec<i64>,
}

fn world(seed: u64) -> World {
    let mut dice = Dice(seed);
    let hosts = dice.roll(3);
    let snapshot = if hosts == 0 {
        Snapshot::default()
    } else {
        cluster(1, 1, usize::try_from(hosts).unwrap())
    };
    let each = 1 + dice.whole(8);
    let pods = usize::try_from(1 + dice.roll(7)).unwrap();
    let mut shapes = Vec::new();
    let mut limits = Vec::new();
    let mut pools: Vec<Value> = Vec::new();
    for at in 0..usize::try_from(1 + dice.roll(2)).unwrap() {
        let mut own = Vec::new();
        for number in 0..=dice.roll(2) {
            let (gpus, most, price) = (1 + dice.whole(12), dice.whole(4), 1 + dice.whole(20));
            shapes.push((gpus, most, price, at));
            let value = shape(&format!("s{at}{number}"), gpus, 1.0);
            let more = json!({"pricePerHour": price, "atMost": {"nodes": most}});
            own.push(with(value, more));
        }
        let limit = 4 + dice.whole(40);
        limits.push(limit);
        pools.push(with(
            pool(&format!("p{at}"), own),
            json!({"atMost": {GPU: limit}}),
        ));
    }
    World {
        snapshot,
        gang: gang("j", pods, each),
        offer: offer(json!(pools)),
        shapes,
        limits,
    }
}

impl World {
    fn each(&self) -> i64 {
        self.gang.shapes[0].requests.get(GPU)
    }

    /// Whether so many nodes of each shape are allowed.
    fn allows(&self, counts: &[i64]) -> bool {
        let mut used = vec![0; self.limits.len()];
        for (count, (gpus, most, _, pool)) in counts.iter().zip(&self.shapes) {
            used[*pool] += count * gpus;
            if count > most {
                return false;
            }
        }
        used.iter()
            .zip(&self.limits)
            .all(|(used, limit)| used <= limit)
    }

    /// Whether they hold the gang, by counting alone.
    fn holds(&self, counts: &[i64]) -> bool {
        let each = self.each();
        let present = i64::try_from(self.snapshot.nodes.len()).unwrap() * (8 / each);
        let new = counts.iter().zip(&self.shapes);
        let new: i64 = new.map(|(count, (gpus, ..))| count * (gpus / each)).sum();
        present + new >= i64::try_from(self.gang.pods.len()).unwrap()
    }

    /// All counts of nodes.
    fn all(&self) -> Vec<Vec<i64>> {
        let mut all: Vec<Vec<i64>> = vec![Vec::new()];
        for (_, most, ..) in &self.shapes {
            let longer = all.iter().flat_map(|counts| {
                (0..=*most).map(move |count| {
                    let mut counts = counts.clone();
                    counts.push(count);
                    counts
                })
            });
            all = longer.collect();
        }
        all
    }
}

#[test]
fn small_offers_against_all_combinations() {
    let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..1_000 {
        let world = world(seed);
        let all = world.all();
        let fits = all
            .iter()
            .filter(|counts| world.allows(counts) && world.holds(counts));
        let fits: Vec<&Vec<i64>> = fits.collect();
        let is_now = fits
            .first()
            .is_some_and(|counts| counts.iter().all(|n| *n == 0));
        let answer = ask(&world.snapshot, &world.gang, &world.offer);
        let name = match &answer {
            Answer::FitsNow => {
                assert!(is_now, "seed {seed}: {}", answer.message());
                "now"
            }
            Answer::FitsAfterScaleUp { order } => {
                assert!(!is_now && !fits.is_empty(), "seed {seed}");
                let counts = counts(&world, order);
                assert!(fits.contains(&&counts), "seed {seed}: {counts:?}");
                // Of orders of one shape it is the cheapest.
                let price = |counts: &[i64]| -> i64 {
                    let all = counts.iter().zip(&world.shapes);
                    all.map(|(count, (_, _, price, _))| count * price).sum()
                };
                let single = |counts: &&&Vec<i64>| counts.iter().filter(|n| **n > 0).count() == 1;
                if let Some(least) = fits.iter().filter(single).map(|own| price(own)).min() {
                    assert_eq!(price(&counts), least, "seed {seed}: {counts:?}");
                }
                "later"
            }
            Answer::NeverFits(never) => {
                assert!(fits.is_empty(), "seed {seed}: {:?}", fits[0]);
                assert!(!never.obstacles.is_empty(), "seed {seed}");
                "never"
            }
            other => panic!("seed {seed}: {}", other.message()),
        };
        *answers.entry(name).or_default() += 1;
    }
    let counts: Vec<usize> = answers.values().copied().collect();
    assert!(
        counts.len() == 3 && counts.iter().all(|count| *count > 60),
        "{answers:?}"
    );
}

/// The nodes of an order by shape.
fn counts(world: &World, order: &crate::capacity::Order) -> Vec<i64> {
    let pools = &world.offer.pools;
    let names = pools
        .iter()
        .flat_map(|pool| pool.shapes.iter().map(move |own| (&pool.name, &own.name)));
    names
        .map(|(pool, shape)| {
            let parts = order.parts.iter();
            let own = parts.filter(|part| part.pool == *pool && part.shape == *shape);
            i64::try_from(own.map(|part| part.nodes).sum::<u64>()).unwrap()
        })
        .collect()
}
