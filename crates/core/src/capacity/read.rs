//! From objects, as they stand in a file or come from the API, to an [`Offer`].
//!
//! Owns what each kind of object says about capacity. Objects of other kinds are passed over.
//!
//! Invariant: every input ends in an offer within the limits below, or in one sentence.

mod autoscaler;
mod fields;
mod file;
mod karpenter;
mod request;
mod seen;

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use self::{autoscaler::Group, karpenter::NodePool, seen::Seen};
use super::{NodeShape, Offer};
use crate::gang::Snapshot;

/// Most pools of an offer.
pub const MAX_POOLS: usize = 1_000;
/// Most shapes of all pools together.
pub const MAX_SHAPES: usize = 5_000;
/// Deepest list of lists.
const MAX_LISTS: usize = 8;

/// Why objects do not say what could be added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAnOffer {
    /// There is nothing about capacity among them.
    #[error(
        "it contains no object about capacity; expected one of `kind: Capacity`, a NodePool of \
         `karpenter.sh/v1`, the ConfigMap `cluster-autoscaler-status`, or a ProvisioningRequest"
    )]
    Nothing,
    /// A field is wrong.
    #[error("{place}: {problem}")]
    Field {
        /// Where, such as ``pool `gpu`, shape `p5` ``.
        place: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// There is more than is read.
    #[error("it has more than {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are read.
        most: usize,
    },
}

/// What was found, by kind.
#[derive(Default)]
struct Found {
    offer: Offer,
    /// Shapes that are not of one pool.
    types: Vec<NodeShape>,
    node_pools: Vec<NodePool>,
    groups: Vec<Group>,
    times: seen::Times,
    any: bool,
}

impl Offer {
    /// The offer that these objects describe, at `now`. Nodes of `cluster` show the shapes of pools that have some.
    pub fn of_values(
        values: impl IntoIterator<Item = Value>,
        cluster: &Snapshot,
        now: Timestamp,
    ) -> Result<Self, NotAnOffer> {
        let mut found = Found::default();
        for value in values {
            found.take(&value, "", now, MAX_LISTS)?;
        }
        if !found.any {
            return Err(NotAnOffer::Nothing);
        }
        let seen = Seen::new(cluster);
        let Found {
            mut offer,
            mut types,
            node_pools,
            groups,
            times,
            ..
        } = found;
        autoscaler::join(&mut offer, groups, &seen);
        for own in &offer.pools {
            let named = own.shapes.iter().map(|shape| {
                let mut shape = shape.clone();
                shape.labels.extend(own.labels.clone());
                shape
            });
            // A pool of the file may describe what a pool of Karpenter adds.
            types.extend(named);
        }
        for pool in node_pools {
            let pool = pool.pool(&types, &seen, &times, &mut offer.notes);
            if let Some(pool) = pool {
                offer.pools.retain(|own| own.name != pool.name);
                offer.pools.push(pool);
            }
        }
        offer.pools.sort_by(|a, b| a.name.cmp(&b.name));
        if offer.pools.len() > MAX_POOLS {
            return Err(NotAnOffer::TooMany {
                what: "pools",
                most: MAX_POOLS,
            });
        }
        let shapes: usize = offer.pools.iter().map(|pool| pool.shapes.len()).sum();
        if shapes > MAX_SHAPES {
            return Err(NotAnOffer::TooMany {
                what: "shapes of nodes",
                most: MAX_SHAPES,
            });
        }
        Ok(offer)
    }
}

impl Found {
    fn take(
        &mut self,
        value: &Value,
        kind_of_list: &str,
        now: Timestamp,
        depth: usize,
    ) -> Result<(), NotAnOffer> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = match text("kind") {
            "" => kind_of_list,
            kind => kind,
        };
        let group = text("apiVersion").split('/').next().unwrap_or_default();
        if let Some(items) = value.get("items").and_then(Value::as_array)
            && kind.ends_with("List")
        {
            let of_items = kind.strip_suffix("List").unwrap_or_default();
            if depth == 0 {
                return Ok(());
            }
            for item in items {
                self.take(item, of_items, now, depth - 1)?;
            }
            // An empty list of such objects is an answer, too.
            self.any |= matches!(of_items, "NodePool" | "ProvisioningRequest");
            return Ok(());
        }
        // The items of a typed list need not say what they are.
        let is_of = |own: &str| group == own || (group.is_empty() && !kind_of_list.is_empty());
        match kind {
            "Capacity" if group == file::GROUP => {
                let (offer, types) = file::read(value)?;
                self.offer.join(offer);
                self.types.extend(types);
            }
            "NodePool" if is_of("karpenter.sh") => self.node_pools.push(NodePool::read(value)?),
            "NodeClaim" if is_of("karpenter.sh") => {
                self.times.add(value);
                return Ok(());
            }
            "ConfigMap" if autoscaler::is_status(value) => {
                let (groups, notes) = autoscaler::read(value, now)?;
                self.groups.extend(groups);
                self.offer.notes.extend(notes);
            }
            "ProvisioningRequest" if is_of("autoscaling.x-k8s.io") => {
                self.offer.notes.extend(request::note(value));
            }
            _ => return Ok(()),
        }
        self.any = true;
        Ok(())
    }
}
