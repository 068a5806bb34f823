//! Probation: nodes that failed a preflight get no pods for a while, and come back once they pass one.
//!
//! Owns how many nodes may be on probation and when one may come back. An adapter taints them and keeps all state on
//! the node: a taint with the check that failed, and an annotation with the time from which it may be tried again.
//!
//! Invariant: automation never puts more nodes on probation than [`Cap`] allows, whatever it finds.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;

use super::judge::Fault;
use crate::mutant::{self, Mutant};

/// The taint of a node on probation; its value is the check that failed.
pub const PROBATION: &str = "trainyard.dev/probation";
/// The annotation beside it: from when on the node may be tried again.
pub const PROBATION_UNTIL: &str = "trainyard.dev/probation-until";
/// Longest value of a taint.
const TAINT_VALUE: usize = 63;

/// How many of a cluster's nodes automation may put on probation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    percent: u8,
}

impl Default for Cap {
    fn default() -> Self {
        Self { percent: 10 }
    }
}

impl Cap {
    /// A percentage of the nodes; 0 disables probation.
    pub fn percent(percent: u8) -> Self {
        Self {
            percent: percent.min(100),
        }
    }

    /// How many of `nodes`: at least one, unless probation is disabled.
    pub fn of(self, nodes: usize) -> usize {
        match self.percent {
            0 => 0,
            percent => (nodes * usize::from(percent) / 100).max(1),
        }
    }

    /// Whether one more node may go on probation where `taken` of `nodes` are; the error is why not.
    pub fn allows(self, taken: usize, nodes: usize) -> Result<(), CapReached> {
        let most = self.of(nodes);
        if taken < most || mutant::is(Mutant::TakesEveryNode) {
            return Ok(());
        }
        Err(CapReached { taken, nodes, most })
    }
}

/// No more nodes may go on probation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{taken} of {nodes} nodes are on probation, the maximum is {most} (`--probation-cap`)")]
pub struct CapReached {
    /// Nodes that are on probation.
    pub taken: usize,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Nodes that may be on probation.
    pub most: usize,
}

/// What is put on a node that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probation {
    /// The value of the taint.
    pub check: String,
    /// From when on it may be tried again.
    pub until: Timestamp,
}

impl Probation {
    /// The probation of a node that fails with `fault` at `at`; none where the node is not to blame.
    pub fn of(fault: &Fault, at: Timestamp, lasts: Duration) -> Option<Self> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let check: String = fault
            .check
            .chars()
            .filter(|c| fits(*c))
            .take(TAINT_VALUE)
            .collect();
        fault.blamed.then(|| Self {
            check: check.trim_matches(['-', '_', '.']).to_owned(),
            until: at.checked_add(lasts).unwrap_or(Timestamp::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_nodes_may_be_taken() {
        let cases = [
            ("a small cluster", 10, 3, 1),
            ("none there", 10, 0, 1),
            ("a large one", 10, 100, 10),
            ("rounded down", 10, 29, 2),
            ("none at all", 0, 100, 0),
            ("all", 100, 7, 7),
            ("more than all", 250, 7, 7),
        ];
        for (name, percent, nodes, want) in cases {
            let cap = Cap::percent(percent);
            assert_eq!(cap.of(nodes), want, "{name}");
            assert!(
                cap.allows(want, nodes).is_err(),
                "{name}: no more than that"
            );
            assert_eq!(cap.allows(0, nodes).is_ok(), want > 0, "{name}");
        }
        let why = Cap::default().allows(2, 20).unwrap_err();
        assert_eq!(
            why.to_string(),
            "2 of 20 nodes are on probation, the maximum is 2 (`--probation-cap`)"
        );
    }

    #[test]
    fn only_a_node_that_is_to_blame_goes_on_probation() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let fault = |check: &str, blamed| Fault {
            check: check.to_owned(),
            why: String::new(),
            blamed,
        };
        let hour = Duration::from_hours(1);
        let taken = Probation::of(&fault("path/bandwidth-", true), at, hour).unwrap();
        assert_eq!(taken.check, "pathbandwidth", "a value that the API takes");
        assert_eq!(Probation::of(&fault("shm-size", false), at, hour), None);
        assert_eq!(taken.until, at + hour);
    }
}
