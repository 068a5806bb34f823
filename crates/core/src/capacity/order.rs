//! Which of several scale-ups is named: the order of preference.

use super::{Halt, NodeShape, Offer, Pool, Price, candidate::Candidate, world::Plan};

/// The smaller, the better. What an autoscaler chooses first comes first: a pool that can grow at present, the pool with more
/// weight, then the lower price.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_unsure: bool,
    is_halted: bool,
    /// From the heaviest.
    lightness: i64,
    has_no_price: bool,
    price: Price,
    nodes: u64,
    seconds: u64,
    kinds: Plan,
}

impl Rank {
    pub(super) fn of(offer: &Offer, candidates: &[Candidate], plan: &Plan) -> Self {
        let mut rank = Self {
            is_unsure: false,
            is_halted: false,
            lightness: i64::MIN,
            has_no_price: false,
            price: Price::default(),
            nodes: 0,
            seconds: 0,
            kinds: plan.clone(),
        };
        for (at, count) in plan {
            let candidate = &candidates[*at];
            let pool = candidate.pool(offer);
            let shape = candidate.shape(offer);
            rank.is_unsure |= !candidate.unknown.is_empty();
            rank.is_halted |= pool.halt.is_some();
            rank.lightness = rank.lightness.max(pool.weight.saturating_neg());
            let price = shape.and_then(|shape| shape.price);
            rank.has_no_price |= price.is_none();
            rank.price = rank.price.plus(price.unwrap_or_default().times(*count));
            rank.nodes = rank.nodes.saturating_add(*count);
            let seconds = shape.and_then(|shape| shape.ready_seconds);
            rank.seconds = rank.seconds.max(seconds.unwrap_or(u64::MAX));
        }
        rank
    }
}

impl Candidate {
    pub(super) fn pool<'o>(&self, offer: &'o Offer) -> &'o Pool {
        &offer.pools[self.pool]
    }

    pub(super) fn shape<'o>(&self, offer: &'o Offer) -> Option<&'o NodeShape> {
        self.pool(offer).shapes.get(self.shape?)
    }

    pub(super) fn halt<'o>(&self, offer: &'o Offer) -> Option<&'o Halt> {
        self.pool(offer).halt.as_ref()
    }
}
