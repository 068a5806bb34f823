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

pub(super) use self::seen::lasting;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use self::{
    autoscaler::Group,
    karpenter::{NodePool, Types},
    seen::Seen,
};
use super::{NodeShape, Offer, Pool, Source};
use crate::gang::Snapshot;

/// Most pools of an offer.
pub const MAX_POOLS: usize = 1_000;
/// Most shapes of all pools together.
pub const MAX_SHAPES: usize = 5_000;
/// Most instance types that are compared with the requirements of `NodePools`, of all pools together.
const MAX_PAIRS: usize = 200_000;
/// Deepest list of lists.
const MAX_LISTS: usize = 8;
/// `ProvisioningRequests` that are reported.
const MOST_NOTES: usize = 8;
/// Notes that are kept, and reasons why something is missing.
const MOST_SENTENCES: usize = 32;

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
    requests: usize,
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
        let keys = autoscaler::GROUP_LABELS.into_iter();
        let seen = Seen::new(cluster, keys.chain([karpenter::NODE_POOL]));
        let requests = found.requests;
        let mut offer = found.join(&seen)?;
        if requests > MOST_NOTES {
            let more = requests - MOST_NOTES;
            offer
                .notes
                .push(format!("{more} more ProvisioningRequests are not listed"));
        }
        offer.pools.sort_by(|a, b| a.name.cmp(&b.name));
        shorten(&mut offer.notes, "notes");
        shorten(&mut offer.missing, "reasons");
        Ok(offer)
    }

    /// Adds that something could add nodes and was not read: `why`.
    pub fn lacks(&mut self, why: impl Into<String>) {
        self.missing.push(why.into());
    }
}

/// Keeps the first of many sentences, and counts the others.
fn shorten(all: &mut Vec<String>, what: &str) {
    if all.len() > MOST_SENTENCES {
        let more = all.len() - MOST_SENTENCES;
        all.truncate(MOST_SENTENCES);
        all.push(format!("{more} more {what}"));
    }
}

impl Found {
    /// One offer of all, with what is known of the same pool from several objects.
    fn join(self, seen: &Seen<'_>) -> Result<Offer, NotAnOffer> {
        let Self {
            mut offer,
            types,
            node_pools,
            groups,
            times,
            ..
        } = self;
        let too_many = |what, most| Err(NotAnOffer::TooMany { what, most });
        if offer
            .pools
            .len()
            .saturating_add(node_pools.len())
            .saturating_add(groups.len())
            > 2 * MAX_POOLS
        {
            return too_many("pools", MAX_POOLS);
        }
        autoscaler::join(&mut offer, groups, seen);
        let mut by_name: Types = BTreeMap::new();
        for shape in types {
            by_name.entry(shape.name.clone()).or_default().push(shape);
        }
        let mut own: BTreeMap<String, Pool> = BTreeMap::new();
        let of_karpenter: BTreeSet<&str> = node_pools.iter().map(NodePool::name).collect();
        let (same, others): (Vec<Pool>, Vec<Pool>) = offer.pools.into_iter().partition(|pool| {
            pool.source == Source::File && of_karpenter.contains(pool.name.as_str())
        });
        offer.pools = others;
        own.extend(same.into_iter().map(|pool| (pool.name.clone(), pool)));
        let mut work = 0_usize;
        let mut shapes: usize = offer.pools.iter().map(|pool| pool.shapes.len()).sum();
        let mut known: BTreeSet<String> = BTreeSet::new();
        for pool in node_pools {
            work = work.saturating_add(pool.work(&by_name));
            if work > MAX_PAIRS {
                return too_many("pairs of a NodePool and an instance type", MAX_PAIRS);
            }
            if !known.insert(pool.name().to_owned()) {
                continue;
            }
            // A pool of the file with the same name describes what this one adds, and may limit it further.
            let file = own.remove(pool.name());
            let lent: Vec<NodeShape> = file.iter().flat_map(described).collect();
            let pool = pool.pool(&lent, &by_name, seen, &times, &mut offer.notes);
            let Some(mut pool) = pool else {
                offer.pools.extend(file);
                continue;
            };
            if let Some(file) = file {
                for (resource, bound) in file.limits {
                    let known = pool.limits.entry(resource).or_insert(bound);
                    if bound.left() < known.left() {
                        *known = bound;
                    }
                }
                pool.weight = pool.weight.max(file.weight);
            }
            shapes = shapes.saturating_add(pool.shapes.len());
            if shapes > MAX_SHAPES {
                break;
            }
            offer.pools.push(pool);
        }
        if offer.pools.len() > MAX_POOLS {
            return too_many("pools", MAX_POOLS);
        }
        if shapes > MAX_SHAPES {
            return too_many("shapes of nodes", MAX_SHAPES);
        }
        Ok(offer)
    }

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
                let why = "lists within lists are not read deeper than 8 levels";
                self.offer.lacks(why);
                return Ok(());
            }
            let token = value.pointer("/metadata/continue").and_then(Value::as_str);
            if token.is_some_and(|token| !token.is_empty()) {
                self.offer
                    .lacks("a list was read only in part: its `metadata.continue` is set");
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
                self.one_currency(&offer)?;
                let own: BTreeSet<&str> = self
                    .offer
                    .pools
                    .iter()
                    .map(|own| own.name.as_str())
                    .collect();
                let twice = offer
                    .pools
                    .iter()
                    .filter(|new| own.contains(new.name.as_str()));
                let notes = twice.map(|pool| {
                    format!(
                        "pool `{}` is described twice: the first description is used",
                        pool.name
                    )
                });
                let notes: Vec<String> = notes.collect();
                self.offer.notes.extend(notes);
                self.offer.join(offer);
                self.types.extend(types);
            }
            "NodePool" if is_of("karpenter.sh") => self.node_pools.push(NodePool::read(value)?),
            "NodeClaim" if is_of("karpenter.sh") => {
                self.times.add(value);
                return Ok(());
            }
            "ConfigMap" if autoscaler::is_status(value) => {
                let status = autoscaler::read(value, now);
                self.groups.extend(status.groups);
                self.offer.notes.extend(status.notes);
                self.offer.missing.extend(status.missing);
            }
            "ProvisioningRequest" if is_of("autoscaling.x-k8s.io") => {
                self.requests += 1;
                if self.requests <= MOST_NOTES {
                    self.offer.notes.extend(request::note(value));
                }
            }
            "Provisioner" if is_of("karpenter.sh") => {
                let why = "a Provisioner of Karpenter before 0.32 is not read";
                if !self.offer.missing.iter().any(|own| own == why) {
                    self.offer.lacks(why);
                }
            }
            _ => return Ok(()),
        }
        self.any = true;
        Ok(())
    }

    /// Prices in two currencies cannot be compared.
    fn one_currency(&self, new: &Offer) -> Result<(), NotAnOffer> {
        match (&self.offer.currency, &new.currency) {
            (Some(first), Some(second)) if first != second => {
                let problem = format!(
                    "`currency` is `{first}` in one file and `{second}` in another; use one for all"
                );
                Err(fields::wrong("Capacity", problem))
            }
            _ => Ok(()),
        }
    }
}

/// The shapes of a pool of a file as instance types, with the labels that the file gives to the pool.
fn described(pool: &Pool) -> Vec<NodeShape> {
    let shapes = pool.shapes.iter().map(|shape| {
        let mut shape = shape.clone();
        shape.labels.extend(pool.labels.clone());
        shape
    });
    shapes.collect()
}
