//! Small offers against every combination of nodes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{GPU, ask, gang, offer, pool, shape, with};
use crate::{
    capacity::{Answer, Offer},
    gang::{
        Gang, Snapshot,
        testing::{cluster, occupy},
    },
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
    shapes: Vec<Kind>,
    limits: Vec<Limits>,
    /// Nodes of 8 GPUs and 96 CPUs that exist, how many of them another gang holds, and whether they count in the limits of the
    /// first pool.
    hosts: i64,
    held: i64,
    are_members: bool,
}

struct Kind {
    gpus: i64,
    cpus: i64,
    most: i64,
    price: i64,
    pool: usize,
}

struct Limits {
    gpus: i64,
    cpus: i64,
    nodes: i64,
}

fn world(seed: u64) -> World {
    let mut dice = Dice(seed);
    let hosts = dice.whole(3);
    let mut snapshot = if hosts == 0 {
        Snapshot::default()
    } else {
        cluster(1, 1, usize::try_from(hosts).unwrap())
    };
    let held = if hosts > 0 { dice.whole(2) } else { 0 };
    for host in 0..held {
        occupy(&mut snapshot, &format!("b0r0h{host}"), "other", 8);
    }
    let each = 1 + dice.whole(8);
    let pods = usize::try_from(1 + dice.roll(7)).unwrap();
    let mut shapes = Vec::new();
    let mut limits = Vec::new();
    let mut pools: Vec<Value> = Vec::new();
    for at in 0..usize::try_from(1 + dice.roll(2)).unwrap() {
        let mut own = Vec::new();
        for number in 0..=dice.roll(2) {
            let (gpus, cpus, most) = (1 + dice.whole(12), 8 + dice.whole(60), dice.whole(4));
            let price = 1 + dice.whole(20);
            let value = shape(&format!("s{at}{number}"), gpus, 1.0);
            let more = json!({"pricePerHour": price, "atMost": {"nodes": most},
                "allocatable": {"cpu": cpus, "pods": 110, GPU: gpus}});
            own.push(with(value, more));
            shapes.push(Kind {
                gpus,
                cpus,
                most,
                price,
                pool: at,
            });
        }
        let own_limits = Limits {
            gpus: 8 + dice.whole(40),
            cpus: 96 + dice.whole(200),
            nodes: 1 + dice.whole(6),
        };
        let most = json!({GPU: own_limits.gpus, "cpu": own_limits.cpus, "nodes": own_limits.nodes});
        limits.push(own_limits);
        pools.push(with(pool(&format!("p{at}"), own), json!({"atMost": most})));
    }
    let mut offer = offer(json!(pools));
    let are_members = dice.roll(2) == 0;
    if are_members {
        let first = &mut offer.pools[0];
        first.members = snapshot.nodes.keys().cloned().collect();
        for (name, each) in [(GPU, 8), ("cpu", 96_000), ("nodes", 1)] {
            first.limits.get_mut(name).unwrap().used = each * hosts;
        }
    }
    World {
        snapshot,
        gang: gang("j", pods, each),
        offer,
        shapes,
        limits,
        hosts,
        held,
        are_members,
    }
}

impl World {
    fn each(&self) -> i64 {
        self.gang.shapes[0].requests.get(GPU)
    }

    /// Whether so many nodes of each shape are allowed beside `hosts` nodes that exist.
    fn allows(&self, counts: &[i64], hosts: i64) -> bool {
        let is_within = |pool: usize| {
            let own = counts.iter().zip(&self.shapes);
            let own: Vec<_> = own.filter(|(_, kind)| kind.pool == pool).collect();
            let sum = |each: fn(&Kind) -> i64| -> i64 {
                own.iter().map(|(count, kind)| *count * each(kind)).sum()
            };
            let present = if self.are_members && pool == 0 {
                hosts
            } else {
                0
            };
            let limits = &self.limits[pool];
            // A pool that has more than its limit adds nothing.
            let holds = |new: i64, each: i64, limit: i64| new == 0 || new + each * present <= limit;
            holds(sum(|kind| kind.gpus), 8, limits.gpus)
                && holds(sum(|kind| kind.cpus), 96, limits.cpus)
                && holds(sum(|_| 1), 1, limits.nodes)
        };
        let mut kinds = counts.iter().zip(&self.shapes);
        kinds.all(|(count, kind)| *count <= kind.most) && (0..self.limits.len()).all(is_within)
    }

    /// Whether they hold the gang beside `hosts` free nodes that exist, by counting alone.
    fn holds(&self, counts: &[i64], hosts: i64) -> bool {
        let each = self.each();
        // Every pod asks for one CPU.
        let new = counts.iter().zip(&self.shapes);
        let new: i64 = new
            .map(|(count, kind)| count * (kind.gpus / each).min(kind.cpus))
            .sum();
        hosts * (8 / each) + new >= i64::try_from(self.gang.pods.len()).unwrap()
    }

    /// All counts of nodes.
    fn all(&self) -> Vec<Vec<i64>> {
        let mut all: Vec<Vec<i64>> = vec![Vec::new()];
        for kind in &self.shapes {
            let longer = all.iter().flat_map(|counts| {
                (0..=kind.most).map(move |count| {
                    let mut counts = counts.clone();
                    counts.push(count);
                    counts
                })
            });
            all = longer.collect();
        }
        all
    }

    /// Whether the gang fits once the other one has ended: on nodes that exist, and on nodes that take the room of some of them.
    fn fits_when_others_end(&self, all: &[Vec<i64>]) -> bool {
        let least = if self.are_members { 0 } else { self.hosts };
        (least..=self.hosts).any(|kept| {
            let mut counts = all.iter();
            counts.any(|counts| self.allows(counts, kept) && self.holds(counts, kept))
        })
    }
}

#[test]
fn small_offers_against_all_combinations() {
    let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..1_500 {
        let world = world(seed);
        let all = world.all();
        let free = world.hosts - world.held;
        let fits = all
            .iter()
            .filter(|counts| world.allows(counts, world.hosts) && world.holds(counts, free));
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
                    all.map(|(count, kind)| count * kind.price).sum()
                };
                let single = |counts: &&&Vec<i64>| counts.iter().filter(|n| **n > 0).count() == 1;
                if let Some(least) = fits.iter().filter(single).map(|own| price(own)).min() {
                    assert!(price(&counts) <= least, "seed {seed}: {counts:?}");
                }
                "later"
            }
            Answer::FitsWhenOthersEnd { .. } => {
                assert!(fits.is_empty(), "seed {seed}: {:?}", fits[0]);
                assert!(world.fits_when_others_end(&all), "seed {seed}");
                "others end"
            }
            Answer::NeverFits(never) => {
                assert!(fits.is_empty(), "seed {seed}: {:?}", fits[0]);
                assert!(!world.fits_when_others_end(&all), "seed {seed}");
                assert!(!never.obstacles.is_empty(), "seed {seed}");
                "never"
            }
            other @ Answer::MayFit { .. } => panic!("seed {seed}: {}", other.message()),
        };
        *answers.entry(name).or_default() += 1;
    }
    let counts: Vec<usize> = answers.values().copied().collect();
    assert!(
        counts.len() == 4 && counts.iter().all(|count| *count > 60),
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
