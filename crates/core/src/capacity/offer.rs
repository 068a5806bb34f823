//! What could be added to a cluster: pools of nodes, the shapes of each, and their limits.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use super::Price;
use crate::gang::{Resources, Taint};

/// What counts nodes among the limits of a pool.
pub(super) const NODES: &str = "nodes";

/// Everything that could be added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// The pools, by name and in this order.
    pub pools: Vec<Pool>,
    /// The currency of the prices, where it is known.
    pub currency: Option<String>,
    /// What was read and is not used, and what an autoscaler reports, each as a sentence.
    pub notes: Vec<String>,
    /// What could add nodes and is not among the pools, because it was not read: why, each as a sentence.
    pub missing: Vec<String>,
}

/// Who says that a pool exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A file of the administrator.
    File,
    /// A `NodePool` of Karpenter.
    Karpenter,
    /// The status of the Cluster Autoscaler.
    ClusterAutoscaler,
}

/// Nodes that are added by one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Who says that it exists.
    pub source: Source,
    /// Pools with more weight are used first.
    pub weight: i64,
    /// The labels of every node of it.
    pub labels: BTreeMap<String, String>,
    /// Labels that a node gets with one of several values.
    pub choices: BTreeMap<String, Vec<String>>,
    /// Labels that a node gets with the value that a pod asks for, but for these.
    pub open_labels: BTreeMap<String, BTreeSet<String>>,
    /// The taints of every node of it.
    pub taints: Vec<Taint>,
    /// The shapes that it can add.
    pub shapes: Vec<NodeShape>,
    /// Whether it can add shapes that are not known.
    pub has_unknown_shapes: bool,
    /// What it may have in all, by resource; `nodes` counts nodes.
    pub limits: BTreeMap<String, Bound>,
    /// Why it adds nothing at present.
    pub halt: Option<Halt>,
    /// Its nodes that exist, by name. They count in what is used of its limits.
    pub members: BTreeSet<String>,
    /// How many of those that are used its autoscaler reports as not ready yet, where its nodes cannot be distinguished from others.
    pub starting: i64,
    /// How many values of a label its shapes must leave to choose from, where it asks for that.
    pub min_values: BTreeMap<String, u64>,
}

/// One limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// The most.
    pub limit: i64,
    /// What is used of it already.
    pub used: i64,
}

impl Bound {
    /// What is left.
    pub fn left(self) -> i64 {
        self.limit.saturating_sub(self.used).max(0)
    }
}

/// Why a pool adds nothing at present. It may change by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Halt {
    /// What its autoscaler reports.
    pub why: String,
    /// Until when, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// One kind of node that a pool can add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeShape {
    /// What people call it, such as the instance type.
    pub name: String,
    /// The labels that its nodes get beside those of the pool.
    pub labels: BTreeMap<String, String>,
    /// Labels that a node gets with one of several values, such as its zone.
    pub choices: BTreeMap<String, Vec<String>>,
    /// The taints that its nodes have beside those of the pool.
    pub taints: Vec<Taint>,
    /// What pods of jobs may ask for on an empty node: allocatable without what daemon sets take.
    pub allocatable: Resources,
    /// What a node counts for in the limits of its pool, where that is more than `allocatable`.
    pub capacity: Resources,
    /// What one node costs in an hour.
    pub price: Option<Price>,
    /// How many nodes of it can be added at most.
    pub at_most: Option<u64>,
    /// Seconds until such a node was ready when others asked for one.
    pub ready_seconds: Option<u64>,
    /// Labels that some nodes of it have and others do not: the next may have them.
    pub unsure_labels: BTreeSet<String>,
    /// What the best node of it had, where its nodes differ.
    pub best: Option<Best>,
    /// Whether such nodes exist, and are counted as if they could be added: they have the labels and taints of their own.
    pub is_present: bool,
}

/// The best of nodes that should be equal and are not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Best {
    /// The most of each resource.
    pub allocatable: Resources,
    /// The taints that all of them have.
    pub taints: Vec<Taint>,
}

impl NodeShape {
    /// What a node counts for in the limit on `resource`.
    pub(super) fn counts_for(&self, resource: &str) -> i64 {
        if resource == NODES {
            1
        } else {
            let own = self.allocatable.get(resource);
            own.max(self.capacity.get(resource))
        }
    }
}

impl Offer {
    /// Whether all that could add nodes was read.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether nothing could be added.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Both offers. A pool that both name is taken from `self`.
    pub fn join(&mut self, other: Self) {
        let own: BTreeSet<String> = self.pools.iter().map(|pool| pool.name.clone()).collect();
        let new = other.pools.into_iter();
        self.pools
            .extend(new.filter(|pool| !own.contains(&pool.name)));
        self.notes.extend(other.notes);
        self.missing.extend(other.missing);
        self.currency = self.currency.take().or(other.currency);
    }
}
