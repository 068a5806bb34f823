//! The answer for a gang: now, after a scale-up, perhaps, when others have ended, or never.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::{
    Changes, Halt, Obstacle, Offer, Price, Why,
    candidate::{Candidate, candidates},
    change,
    domain::may_fit_in_domain,
    future::{self, Future},
    offer::NODES,
    packing::{Class, classes},
    search::{Found, Outcome, Search},
    words,
    world::{Plan, World},
};
use crate::{
    gang::{Gang, GangKey, Placement, Seat, Snapshot, place, waiting_order},
    spec::Wish,
};

/// Pools whose obstacles are kept.
const MOST_OBSTACLES: usize = 16;

/// Whether a gang fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "answer")]
pub enum Answer {
    /// It gets seats on nodes that exist.
    FitsNow,
    /// It gets seats when these nodes have been added.
    FitsAfterScaleUp {
        /// The nodes.
        order: Order,
    },
    /// It may get seats after a scale-up: that depends on what is not known.
    MayFit {
        /// What is not known.
        unknown: Vec<Unknown>,
        /// The nodes, if what is assumed holds.
        #[serde(skip_serializing_if = "Option::is_none")]
        order: Option<Order>,
    },
    /// No nodes can be added for it, and it fits when other gangs have ended.
    FitsWhenOthersEnd {
        /// Why no nodes can be added.
        obstacles: Vec<Obstacle>,
    },
    /// It fits neither on the nodes that exist, if all other gangs had ended, nor with all that could be added.
    NeverFits(Never),
}

/// Why a gang never fits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Never {
    /// What is in the way, one for each pool; at most 16.
    pub obstacles: Vec<Obstacle>,
    /// Pools that are not among them.
    pub more_pools: usize,
    /// Changes of the job or of the offer with which it fits, the smallest first; each was tried.
    pub changes: Vec<Changes>,
}

/// Nodes that seat a gang.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The nodes, by pool and shape.
    pub parts: Vec<Part>,
    /// How many pods are seated, on new nodes and others.
    pub pods: usize,
    /// How many of them are on nodes that exist.
    pub pods_on_present_nodes: usize,
    /// How many pods get no seat, because the minimum is enough.
    pub unseated: usize,
    /// What the new nodes cost in an hour, where every price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<Price>,
    /// The currency, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Seconds until such nodes were ready when others asked, the longest; where all are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_seconds: Option<u64>,
}

/// Equal nodes of an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// The pool.
    pub pool: String,
    /// The shape.
    pub shape: String,
    /// How many nodes.
    pub nodes: u64,
    /// Accelerators of each.
    pub accelerators: i64,
    /// Labels that had to be decided, such as the zone.
    pub labels: BTreeMap<String, String>,
    /// What one node costs in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<Price>,
    /// Seconds until such a node was ready when others asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_seconds: Option<u64>,
    /// Why the pool adds nothing at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
}

/// What an answer depends on and is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum Unknown {
    /// The pool can add nodes whose size is not known.
    Shape {
        /// The pool.
        pool: String,
    },
    /// The job asks for a label that the nodes may have.
    Label {
        /// The pool.
        pool: String,
        /// The label.
        key: String,
        /// Its value.
        value: String,
    },
    /// It is not known in which domain of the level the nodes would be.
    Domain {
        /// The pool.
        pool: String,
        /// The level.
        level: String,
    },
    /// Some of what could add nodes was not read.
    Pools {
        /// What, and why.
        why: String,
    },
    /// Nodes of one type differ in size or taints.
    Size {
        /// The pool.
        pool: String,
        /// The shape.
        shape: String,
    },
    /// The description of a shape does not say how much it has of a resource.
    Resource {
        /// The pool.
        pool: String,
        /// The shape.
        shape: String,
        /// The resource.
        resource: String,
    },
    /// The value of a label is not known.
    Key {
        /// The pool.
        pool: String,
        /// The label.
        key: String,
    },
    /// Karpenter wants to choose from more values of a label than are known here.
    MinValues {
        /// The pool.
        pool: String,
        /// The label.
        key: String,
        /// How many values it wants.
        least: u64,
    },
    /// The pool counts nodes that do not exist yet, or no more.
    Arriving {
        /// The pool.
        pool: String,
    },
    /// Nodes accept no pods at present: not ready, cordoned, quarantined or on probation.
    Nodes {
        /// How many.
        nodes: usize,
    },
    /// Pods that Trainyard did not make take the room, and may end.
    Pods,
    /// The job asks to be near pods that are not there.
    OtherPods,
    /// The search was bounded, and neither found nodes nor the proof that there are none.
    Search,
}

impl Answer {
    /// The answer in one sentence.
    pub fn message(&self) -> String {
        words::answer(self)
    }
}

/// The answer for one gang in the cluster as it is at `now`.
pub fn answer(snapshot: &Snapshot, gang: &Gang, offer: &Offer, now: Timestamp) -> Answer {
    let gangs = std::slice::from_ref(gang);
    let placement = place(snapshot, gangs, now);
    let mut answers = answers(snapshot, gangs, &placement, offer);
    answers.remove(&gang.key).unwrap_or(Answer::FitsNow)
}

/// The answers for gangs that [`place`] has considered, in the order in which it did: what one would add is no room for the next.
pub fn answers(
    snapshot: &Snapshot,
    gangs: &[Gang],
    placement: &Placement,
    offer: &Offer,
) -> BTreeMap<GangKey, Answer> {
    let mut world = World::new(snapshot.clone(), offer);
    let seats = |key: &GangKey| -> &[Seat] {
        let seated = placement.seated.get(key).map(|own| own.seats.as_slice());
        let kept = placement.reservations.get(key).map(Vec::as_slice);
        seated.or(kept).unwrap_or_default()
    };
    for gang in gangs {
        world.hold(gang, seats(&gang.key));
    }
    let mut answers = BTreeMap::new();
    for gang in waiting_order(gangs) {
        let answer = if placement.refused.contains_key(&gang.key) {
            world.rewind();
            world.release(gang);
            let decided = decide(&mut world, snapshot, gang, offer);
            if !matches!(decided, Answer::FitsAfterScaleUp { .. }) {
                world.hold(gang, seats(&gang.key));
            }
            decided
        } else {
            Answer::FitsNow
        };
        answers.insert(gang.key.clone(), answer);
    }
    answers
}

fn decide(world: &mut World, snapshot: &Snapshot, gang: &Gang, offer: &Offer) -> Answer {
    let whole = Attempt::new(world, gang, offer);
    let found = match whole.run(world) {
        Outcome::Found(found) => Some((whole, found)),
        // An elastic gang starts with fewer where not all of them can be had.
        _ => start_with_fewer(world, gang, offer),
    };
    if let Some((attempt, found)) = found {
        let order = attempt.order(&found, gang.pods.len());
        let unknown = attempt.unknown(&found);
        if unknown.is_empty() {
            let (gang, kinds) = (&attempt.gang, &attempt.candidates);
            world.settle(gang, kinds, &found.plan, &found.seated);
            return Answer::FitsAfterScaleUp { order };
        }
        let order = Some(order);
        return Answer::MayFit { unknown, order };
    }
    // What keeps its minimum from starting is what keeps it from starting.
    let least = at_minimum(gang);
    world.rewind();
    if let Some(answer) = may_fit_in_domain(world, &least, gang.pods.len(), offer) {
        return answer;
    }
    world.rewind();
    let attempt = Attempt::new(world, &least, offer);
    let mut unknown = attempt.unknown_shapes(world);
    let missing = offer.missing.iter().cloned();
    unknown.extend(missing.map(|why| Unknown::Pools { why }));
    if unknown.is_empty() {
        match future::of(snapshot, &least, offer) {
            Future::OthersEnd => {
                let mut obstacles = attempt.obstacles(world);
                obstacles.truncate(MOST_OBSTACLES);
                return Answer::FitsWhenOthersEnd { obstacles };
            }
            Future::May(what) => unknown = what,
            Future::Never => {}
        }
    }
    if !unknown.is_empty() {
        return Answer::MayFit {
            unknown,
            order: None,
        };
    }
    let mut obstacles = attempt.obstacles(world);
    let more_pools = obstacles.len().saturating_sub(MOST_OBSTACLES);
    obstacles.truncate(MOST_OBSTACLES);
    Answer::NeverFits(Never {
        obstacles,
        more_pools,
        changes: change::changes(world, &least, offer),
    })
}

/// The gang with no more pods than it needs to start.
fn at_minimum(gang: &Gang) -> Gang {
    let held = gang.held.len();
    with_pods(
        gang,
        gang.minimum.clamp(1, gang.pods.len().max(1)).max(held),
    )
}

/// The first `pods` pods of the gang, and those that hold seats.
fn with_pods(gang: &Gang, pods: usize) -> Gang {
    let mut fewer = gang.clone();
    let mut left = pods.saturating_sub(gang.held.len());
    fewer.pods.retain(|pod| {
        let is_held = gang.held.contains_key(&pod.name);
        let stays = is_held || left > 0;
        left -= usize::from(stays && !is_held);
        stays
    });
    fewer.minimum = fewer.pods.len();
    fewer
}

/// The most pods of an elastic gang that can be had, from its minimum; none where that is all of them.
pub(super) fn start_with_fewer<'o>(
    world: &mut World,
    gang: &Gang,
    offer: &'o Offer,
) -> Option<(Attempt<'o>, Found)> {
    let (mut low, mut high) = (gang.minimum.max(1).max(gang.held.len()), gang.pods.len());
    let mut best = None;
    while low < high {
        let pods = if best.is_none() {
            low
        } else {
            usize::midpoint(low, high)
        };
        let fewer = with_pods(gang, pods);
        world.rewind();
        let attempt = Attempt::new(world, &fewer, offer);
        match attempt.run(world) {
            Outcome::Found(found) => {
                best = Some((attempt, found));
                low = pods + 1;
            }
            _ if best.is_none() => break,
            _ => high = pods,
        }
    }
    best
}

/// One gang, with what the offer has for it.
pub(super) struct Attempt<'o> {
    pub(super) offer: &'o Offer,
    pub(super) gang: Gang,
    pub(super) candidates: Vec<Candidate>,
    pub(super) classes: Vec<Class>,
    left_out: bool,
}

impl<'o> Attempt<'o> {
    pub(super) fn new(world: &mut World, gang: &Gang, offer: &'o Offer) -> Self {
        let mut seated = gang.clone();
        seated.minimum = seated.pods.len();
        let (mut found, mut left_out) = candidates(offer, gang, &world.snapshot.topology);
        let before = world.snapshot.topology.clone();
        world.widen_topology(&found, gang);
        if world.snapshot.topology != before {
            (found, left_out) = candidates(offer, gang, &world.snapshot.topology);
        }
        Self {
            offer,
            classes: classes(&world.snapshot, gang),
            gang: seated,
            candidates: found,
            left_out,
        }
    }

    pub(super) fn run(&self, world: &mut World) -> Outcome {
        match self.search().run(world) {
            Outcome::Nothing if self.left_out => Outcome::Undecided,
            outcome => outcome,
        }
    }

    fn search(&self) -> Search<'_> {
        Search {
            offer: self.offer,
            gang: &self.gang,
            candidates: &self.candidates,
            classes: &self.classes,
        }
    }

    /// What is assumed about the nodes of a plan.
    pub(super) fn unknown(&self, found: &Found) -> Vec<Unknown> {
        let kinds = found.plan.iter();
        let mut unknown: Vec<Unknown> = kinds
            .flat_map(|(at, _)| self.candidates[*at].unknown.iter().cloned())
            .collect();
        unknown.sort();
        unknown.dedup();
        unknown
    }

    pub(super) fn order(&self, found: &Found, wanted: usize) -> Order {
        let parts: Vec<Part> = parts(self.offer, &self.candidates, &found.plan);
        let prices: Option<Vec<Price>> = parts
            .iter()
            .map(|part| Some(part.price_per_hour?.times(part.nodes)))
            .collect();
        let seconds: Option<Vec<u64>> = parts.iter().map(|part| part.ready_seconds).collect();
        Order {
            price_per_hour: prices
                .map(|prices| prices.into_iter().fold(Price::default(), Price::plus)),
            currency: self.offer.currency.clone(),
            ready_seconds: seconds.and_then(|seconds| seconds.into_iter().max()),
            pods: self.gang.pods.len(),
            pods_on_present_nodes: found.seated.on_present + self.gang.held.len(),
            unseated: wanted.saturating_sub(self.gang.pods.len()),
            parts,
        }
    }

    /// The pools with nodes of unknown size that may hold what nothing known does.
    pub(super) fn unknown_shapes(&self, world: &World) -> Vec<Unknown> {
        let pools = self.search().open_pools(&world.room);
        let names = pools.into_iter().map(|at| Unknown::Shape {
            pool: self.offer.pools[at].name.clone(),
        });
        names.collect()
    }

    /// What is in the way at each pool, for the class that lacks most.
    fn obstacles(&self, world: &World) -> Vec<Obstacle> {
        let lacks = |class: &&Class| class.pods > class.fits_now;
        let is_blocked = |class: &&Class| {
            let mut kinds = self.candidates.iter();
            kinds.all(|own| own.shape.is_none() || !own.obstacles(&class.shape).is_empty())
        };
        let lacking: Vec<&Class> = self.classes.iter().filter(lacks).collect();
        let blocked = lacking.iter().copied().find(|class| is_blocked(class));
        let class = blocked.or(lacking.first().copied());
        let Some(class) = class.or(self.classes.first()) else {
            return Vec::new();
        };
        let pools = 0..self.offer.pools.len();
        pools
            .filter_map(|at| self.obstacle(world, class, at))
            .collect()
    }

    fn obstacle(&self, world: &World, class: &Class, at: usize) -> Option<Obstacle> {
        let pool = &self.offer.pools[at];
        let kinds = self.candidates.iter().filter(|own| own.pool == at);
        let (candidate, mut why) = kinds
            .map(|own| (own, own.obstacles(&class.shape)))
            .min_by_key(|(own, why)| (why.len(), why.iter().map(shortfall).max(), own.shape))?;
        let shape = candidate.shape(self.offer);
        let name = shape.map(|shape| shape.name.clone());
        let why = if why.is_empty() {
            self.shortage(world, class, candidate)
        } else {
            why.swap_remove(0)
        };
        Some(Obstacle {
            pool: pool.name.clone(),
            shape: name,
            why,
        })
    }

    /// Why nodes on which the pods may be are not enough.
    fn shortage(&self, world: &World, class: &Class, candidate: &Candidate) -> Why {
        let rest = class.pods.saturating_sub(class.fits_now).max(1);
        let each = candidate.holds(&class.shape).max(1);
        let pool = candidate.pool(self.offer);
        let room = world.room.of(candidate);
        if room.saturating_mul(each) < rest {
            let shape = candidate.shape(self.offer);
            let binding = pool.limits.iter().find(|(name, _)| {
                let counts = shape.map_or(0, |shape| shape.counts_for(name));
                let left = world.room.left(candidate.pool, name).unwrap_or(i64::MAX);
                counts > 0 && u64::try_from(left / counts).is_ok_and(|nodes| nodes == room)
            });
            let own = shape.and_then(|shape| shape.at_most).unwrap_or(room);
            let nodes = i64::try_from(own).unwrap_or(i64::MAX);
            return Why::Limit {
                resource: binding.map_or(NODES, |(name, _)| name).to_owned(),
                limit: binding.map_or(nodes, |(_, bound)| bound.limit),
                used: binding.map_or(0, |(name, bound)| {
                    let left = world.room.left(candidate.pool, name);
                    bound.limit.saturating_sub(left.unwrap_or(bound.left()))
                }),
                holds: room.saturating_mul(each),
            };
        }
        match &self.gang.wish {
            Some(Wish::Required(level)) => Why::Level {
                level: level.clone(),
            },
            _ if self
                .gang
                .shapes
                .iter()
                .any(|own| own.constraints.are_mutual()) =>
            {
                Why::Mutual
            }
            _ => Why::NotAlone,
        }
    }
}

/// How much is missing, to find the shape that comes nearest.
fn shortfall(why: &Why) -> i64 {
    match why {
        Why::TooSmall { asks, has, .. } => asks.saturating_sub(*has),
        _ => 0,
    }
}

fn parts(offer: &Offer, candidates: &[Candidate], plan: &Plan) -> Vec<Part> {
    let kinds = plan.iter().map(|(at, nodes)| {
        let candidate = &candidates[*at];
        let shape = candidate.shape(offer);
        Part {
            pool: candidate.pool(offer).name.clone(),
            shape: shape.map(|shape| shape.name.clone()).unwrap_or_default(),
            nodes: *nodes,
            accelerators: candidate.node.allocatable.accelerators(),
            labels: candidate.chosen.clone(),
            price_per_hour: shape.and_then(|shape| shape.price),
            ready_seconds: shape.and_then(|shape| shape.ready_seconds),
            halt: candidate.halt(offer).cloned(),
        }
    });
    kinds.collect()
}
