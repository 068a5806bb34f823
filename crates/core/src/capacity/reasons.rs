//! Why nodes of the offer do not help, as types.

use serde::Serialize;

/// What keeps a pod from the nodes of a pool, or the pool from adding enough of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "why")]
pub enum Why {
    /// The nodes have a taint that the pods do not tolerate.
    Taint {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
        /// What it does.
        effect: &'static str,
    },
    /// `nodeSelector` asks for a label that the nodes do not have.
    Selector {
        /// The label.
        key: String,
        /// What is asked for.
        value: String,
        /// What the nodes have.
        has: Option<String>,
    },
    /// The required node affinity excludes the nodes.
    Affinity,
    /// An empty node has less of a resource than one pod asks for.
    TooSmall {
        /// The resource.
        resource: String,
        /// What one pod asks for.
        asks: i64,
        /// What the largest node has.
        has: i64,
    },
    /// The pool may not grow that far.
    Limit {
        /// What is limited; `nodes` for their number.
        resource: String,
        /// The most.
        limit: i64,
        /// What is used of it.
        used: i64,
        /// How many pods of the gang what is left can hold, at most.
        holds: u64,
    },
    /// Enough nodes could be added, but not in one domain of the level.
    Level {
        /// The level.
        level: String,
    },
    /// Enough nodes could be added, but pod affinity or topology spread constraints rule them out.
    Mutual,
    /// The pool can add nodes for some pods of the gang, and not for all of them.
    NotAlone,
}

/// Why one pool does not help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Obstacle {
    /// The pool.
    pub pool: String,
    /// The shape that comes nearest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// What is in the way.
    #[serde(flatten)]
    pub why: Why,
}
