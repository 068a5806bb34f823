//! The search for the nodes that seat a gang: one kind where that is enough, several where it is not.

use super::{
    Offer, bounds,
    candidate::Candidate,
    order::Rank,
    packing::{Class, Opened, at_least, estimate},
    world::{Plan, Room, Seated, World},
};
use crate::gang::Gang;

/// Combinations of nodes that are counted where the order of preference leads to none.
const MOST_COMBINATIONS: u64 = 20_000;
/// Of those that are enough, so many are tried.
const MOST_TRIED: usize = 8;
/// Nodes of all kinds that are put together where no plan was found.
const MOST_TOGETHER: u64 = 20_000;

/// What is searched.
pub(super) struct Search<'a> {
    pub(super) offer: &'a Offer,
    pub(super) gang: &'a Gang,
    pub(super) candidates: &'a [Candidate],
    pub(super) classes: &'a [Class],
}

/// A plan with which the gang was seated.
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) seated: Seated,
    pub(super) rank: Rank,
}

/// What came of a search.
pub(super) enum Outcome {
    Found(Found),
    /// No nodes of the offer are enough.
    Nothing,
    /// Neither a plan nor the proof that there is none.
    Undecided,
}

impl Search<'_> {
    pub(super) fn run(&self, world: &mut World) -> Outcome {
        let mut best = self.of_one_kind(world);
        let mut is_proven = true;
        if best.is_none() || self.classes.len() > 1 {
            let (several, proven) = self.of_several(world, best.is_none());
            is_proven = proven;
            best = [best, several]
                .into_iter()
                .flatten()
                .min_by(|a, b| a.rank.cmp(&b.rank));
        }
        match best {
            Some(found) => Outcome::Found(found),
            None if is_proven && !world.is_spent() => Outcome::Nothing,
            None => Outcome::Undecided,
        }
    }

    fn rank(&self, plan: &Plan) -> Rank {
        Rank::of(self.offer, self.candidates, plan)
    }

    /// The kinds whose shape is known.
    pub(super) fn known(&self) -> impl Iterator<Item = (usize, &Candidate)> {
        let all = self.candidates.iter().enumerate();
        all.filter(|(_, own)| own.shape.is_some())
    }

    fn of_one_kind(&self, world: &mut World) -> Option<Found> {
        let mut kinds: Vec<(Rank, usize, u64, u64)> = self
            .known()
            .filter_map(|(at, candidate)| {
                let least = at_least(self.classes, candidate)?;
                let room = world.room.of(candidate);
                (least <= room).then(|| (self.rank(&vec![(at, least)]), at, least, room))
            })
            .collect();
        kinds.sort();
        let mut best: Option<Found> = None;
        for (rank, at, least, room) in kinds {
            if best.as_ref().is_some_and(|best| best.rank <= rank) {
                break;
            }
            let Some((nodes, seated)) = self.fewest(world, at, least, room) else {
                continue;
            };
            let plan = vec![(at, nodes)];
            let rank = self.rank(&plan);
            if best.as_ref().is_none_or(|best| rank < best.rank) {
                best = Some(Found { plan, seated, rank });
            }
        }
        best
    }

    /// The fewest nodes of one kind that seat the gang.
    fn fewest(&self, world: &mut World, at: usize, least: u64, room: u64) -> Option<(u64, Seated)> {
        let mut attempt = |nodes: u64| world.seat(self.gang, self.candidates, &vec![(at, nodes)]);
        let pods: u64 = self.classes.iter().map(|class| class.pods).sum();
        let most = room.min(pods.max(1));
        let guess = estimate(self.classes, &self.candidates[at]);
        let guess = guess.unwrap_or(least).clamp(least, most.max(least));
        let (mut low, mut high, mut found) = match attempt(guess) {
            Some(seated) => (least, guess, seated),
            None if guess >= most => return None,
            None => (guess + 1, most, attempt(most)?),
        };
        while low < high {
            let middle = u64::midpoint(low, high);
            match attempt(middle) {
                Some(seated) => (high, found) = (middle, seated),
                None => low = middle + 1,
            }
        }
        Some((high, found))
    }

    /// Nodes of several kinds, and whether it is proven that there are none where none are found.
    fn of_several(&self, world: &mut World, insist: bool) -> (Option<Found>, bool) {
        let mut best: Option<Found> = None;
        let mut is_covered = false;
        for by in [By::Rank, By::Limit] {
            let Some(plan) = self.greedy(&world.room, by) else {
                continue;
            };
            is_covered = true;
            if plan.is_empty() {
                break;
            }
            if let Some(seated) = world.seat(self.gang, self.candidates, &plan) {
                let found = self.trimmed(world, seated, plan);
                if best.as_ref().is_none_or(|best| found.rank < best.rank) {
                    best = Some(found);
                }
            }
        }
        if best.is_some() || !insist {
            return (best, true);
        }
        if !is_covered && bounds::is_out_of_room(self, world) {
            return (None, true);
        }
        if let [class] = self.classes
            && !is_covered
            && let Some(plans) = self.combinations(&world.room, class)
        {
            if plans.is_empty() {
                return (None, true);
            }
            for plan in plans.into_iter().take(MOST_TRIED) {
                if let Some(seated) = world.seat(self.gang, self.candidates, &plan) {
                    return (Some(self.trimmed(world, seated, plan)), true);
                }
            }
        }
        let (plan, is_whole) = self.everything(&world.room);
        if !plan.is_empty()
            && let Some(seated) = world.seat(self.gang, self.candidates, &plan)
        {
            return (Some(self.trimmed(world, seated, plan)), true);
        }
        // What one try does not seat may be seated in another way: only what holds for all of them is proof.
        let is_proven = bounds::is_short_of(self, world)
            || is_whole && bounds::is_too_little(self, world, &plan);
        (None, is_proven)
    }

    /// Without nodes that hold no pod, and with fewer of each kind where that is enough.
    fn trimmed(&self, world: &mut World, seated: Seated, plan: Plan) -> Found {
        let mut found = Found {
            rank: self.rank(&plan),
            plan,
            seated,
        };
        loop {
            let plan = found.seated.used.clone();
            if plan == found.plan {
                break;
            }
            let Some(seated) = world.seat(self.gang, self.candidates, &plan) else {
                break;
            };
            found = Found {
                rank: self.rank(&plan),
                plan,
                seated,
            };
        }
        for at in (0..found.plan.len()).rev() {
            let mut plan = found.plan.clone();
            plan[at].1 -= 1;
            plan.retain(|(_, nodes)| *nodes > 0);
            if plan.is_empty() {
                continue;
            }
            if let Some(seated) = world.seat(self.gang, self.candidates, &plan) {
                let rank = self.rank(&plan);
                found = Found { plan, seated, rank };
                break;
            }
        }
        found
    }

    /// One class after the other on the kind that is best for it; none where a class finds no room.
    fn greedy(&self, room: &Room, by: By) -> Option<Plan> {
        let mut room = room.clone();
        let mut open = Opened::default();
        let mut plan: Vec<u64> = vec![0; self.candidates.len()];
        for class in self.classes {
            let mut rest = open.fill(&class.shape, class.left);
            let mut kinds: Vec<(Vec<i64>, Rank, usize)> = self
                .known()
                .filter(|(_, own)| own.obstacles(&class.shape).is_empty())
                .map(|(at, own)| {
                    let nodes = rest.div_ceil(own.holds(&class.shape).max(1));
                    let uses = match by {
                        By::Rank => Vec::new(),
                        By::Limit => vec![-bounds::pods_of_limits(self.offer, &room, own, class)],
                    };
                    (uses, self.rank(&vec![(at, nodes)]), at)
                })
                .collect();
            kinds.sort();
            for (.., at) in kinds {
                if rest == 0 {
                    break;
                }
                let candidate = &self.candidates[at];
                let (nodes, left) = open.open(candidate, &class.shape, rest, room.of(candidate));
                room.take(candidate, nodes);
                plan[at] += nodes;
                rest = left;
            }
            if rest > 0 {
                return None;
            }
        }
        let plan = plan.into_iter().enumerate();
        Some(plan.filter(|(_, nodes)| *nodes > 0).collect())
    }

    /// Every combination of nodes that is allowed and, by counting, enough for what is left of `class`, the preferred first; none
    /// where there are too many to count.
    fn combinations(&self, room: &Room, class: &Class) -> Option<Vec<Plan>> {
        let kinds: Vec<(usize, u64, u64)> = self
            .known()
            .filter(|(_, own)| own.obstacles(&class.shape).is_empty())
            .map(|(at, own)| {
                let each = own.holds(&class.shape).max(1);
                (at, each, room.of(own).min(class.left.div_ceil(each)))
            })
            .filter(|(.., most)| *most > 0)
            .collect();
        let count = kinds
            .iter()
            .fold(1_u64, |all, (.., most)| all.saturating_mul(most + 1));
        if count > MOST_COMBINATIONS {
            return None;
        }
        let mut plans = Vec::new();
        let mut walk = Walk {
            kinds: &kinds,
            candidates: self.candidates,
            needed: class.left,
            room: room.clone(),
            plan: Plan::new(),
        };
        walk.on(0, 0, &mut plans);
        plans.sort_by_cached_key(|plan| self.rank(plan));
        Some(plans)
    }

    /// The pools with nodes of unknown size that may hold what nothing known does: nothing but the size is in the way.
    pub(super) fn open_pools(&self, room: &Room) -> Vec<usize> {
        let mut open: Vec<usize> = Vec::new();
        for class in self.classes {
            let rest = class.pods.saturating_sub(class.fits_now);
            let known = self
                .known()
                .filter(|(_, own)| own.obstacles(&class.shape).is_empty())
                .fold(0_u64, |sum, (_, own)| {
                    sum.saturating_add(room.of(own).saturating_mul(own.holds(&class.shape)))
                });
            let unknown = self.candidates.iter().filter(|own| {
                own.shape.is_none() && own.obstacles(&class.shape).is_empty() && room.of(own) > 0
            });
            let mut holds = known;
            let mut pools: Vec<usize> = Vec::new();
            for candidate in unknown {
                if pools.contains(&candidate.pool) {
                    continue;
                }
                let pods = class.shape.requests.iter().filter_map(|(name, asks)| {
                    let left = room.left(candidate.pool, name)?;
                    (asks > 0).then(|| u64::try_from(left / asks).unwrap_or(0))
                });
                let pods = pods.min().unwrap_or(u64::MAX);
                if pods > 0 {
                    holds = holds.saturating_add(pods);
                    pools.push(candidate.pool);
                }
            }
            if holds < rest {
                return Vec::new();
            }
            open.extend(pools);
        }
        open.sort_unstable();
        open.dedup();
        open
    }

    /// As many nodes of every kind as could be of use, and whether really all of them are in it.
    fn everything(&self, room: &Room) -> (Plan, bool) {
        let mut left = room.clone();
        let mut is_whole = true;
        let mut nodes = 0_u64;
        let mut plan = Plan::new();
        for (at, candidate) in self.known() {
            let useful = self
                .classes
                .iter()
                .filter(|class| candidate.obstacles(&class.shape).is_empty())
                .map(|class| class.pods)
                .fold(0_u64, u64::saturating_add);
            let wanted = useful.min(room.of(candidate));
            let given = wanted.min(left.of(candidate)).min(MOST_TOGETHER - nodes);
            is_whole &= given == wanted;
            if given > 0 {
                left.take(candidate, given);
                nodes += given;
                plan.push((at, given));
            }
        }
        (plan, is_whole)
    }
}

/// All combinations of nodes, one kind after the other.
struct Walk<'w> {
    /// The place of each kind, how many pods a node holds, and the most nodes.
    kinds: &'w [(usize, u64, u64)],
    candidates: &'w [Candidate],
    needed: u64,
    room: Room,
    plan: Plan,
}

impl Walk<'_> {
    /// Adds those that are enough to `plans`, where `pods` pods have nodes and kinds before `depth` are decided.
    fn on(&mut self, depth: usize, pods: u64, plans: &mut Vec<Plan>) {
        let Some((at, each, most)) = self.kinds.get(depth).copied() else {
            if pods >= self.needed {
                plans.push(self.plan.clone());
            }
            return;
        };
        let candidate = &self.candidates[at];
        for nodes in 0..=most.min(self.room.of(candidate)) {
            if nodes > 0 {
                self.room.take(candidate, nodes);
                self.plan.push((at, nodes));
            }
            self.on(
                depth + 1,
                pods.saturating_add(nodes.saturating_mul(each)),
                plans,
            );
            if nodes > 0 {
                self.plan.pop();
                self.room.untake(candidate, nodes);
            }
        }
    }
}

/// What decides between kinds of nodes.
#[derive(Clone, Copy)]
enum By {
    /// The order of preference.
    Rank,
    /// How many pods the limits of the pool hold with them.
    Limit,
}
