//! Whether a gang fits now, fits after a scale-up, or never fits: nodes that exist beside nodes that could be added.
//!
//! [`Offer`] says what an autoscaler or an administrator could add; it is read from values. [`answer()`] decides, and
//! `gang` stays the one judge of seats: a node of the offer is put into a copy of the cluster and the gang is seated.
//!
//! # Guarantees
//! - A scale-up is named only after the gang was seated with exactly these nodes, and never more of them than the
//!   limits of the pool leave.
//! - "Never" rests on arithmetic. Where a shape, a label or a domain is not known, the answer is "may".
//! - A change is named only after it was tried.
//! - The same arguments give the same answer, and the work is bounded.
//!
//! # Caveats
//! What an autoscaler buys is its own choice: the order named here is one that works, not a promise. Whether the provider has
//! the machines is not known before it was asked.

mod answer;
mod bounds;
mod candidate;
mod change;
mod domain;
mod future;
mod money;
mod offer;
mod order;
mod packing;
mod read;
mod reasons;
mod search;
#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "documents are written where they are used"
)]
mod tests;
mod words;
mod world;

pub use answer::{Answer, Never, Order, Part, Unknown, answer, answers};
pub use change::{Change, Changes};
pub use money::Price;
pub use offer::{Best, Bound, Halt, NodeShape, Offer, Pool, Source};
pub use read::{MAX_POOLS, MAX_SHAPES, NotAnOffer};
pub use reasons::{Obstacle, Why};
