//! What a check says, and all checks of a preflight together.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The outcome of one check, ordered from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// There is nothing to check: the job does not need it, or the machine has none and need not.
    NotApplicable,
    /// As it should be.
    Pass,
    /// A job would start, and may be slow or fail later; or it could not be measured.
    Warn,
    /// A job would fail or hang.
    Fail,
}

/// Who can put it right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Who runs nodes, drivers and storage.
    Platform,
    /// Who runs switches, links and addresses.
    Network,
    /// Who wrote the job.
    MlTeam,
}

/// The layer that a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Processors, memory, limits, clocks, names, ports.
    Host,
    /// GPUs and what connects them.
    Devices,
    /// Interfaces and RDMA ports of one machine.
    Network,
    /// What two or more machines measure between them.
    Path,
    /// Volumes.
    Storage,
}

/// One measurement beside its expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The stable name, such as `shm-size`.
    pub name: String,
    /// The layer.
    pub layer: Layer,
    /// What of the machine it is about, such as `net1` or `mlx5_0/1`; empty for the machine itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The outcome.
    pub outcome: Outcome,
    /// What was measured, with its unit.
    pub found: String,
    /// What was expected, with its unit, and by whom.
    pub needed: String,
    /// What usually lies behind it; empty where it passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// What to do next; empty where it passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// Who can put it right.
    pub owner: Owner,
}

/// Everything that was found out about one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its checks, in the order of the catalogue.
    pub checks: Vec<Check>,
}

impl NodeReport {
    /// The worst outcome; a node without checks is not fit.
    pub fn outcome(&self) -> Outcome {
        let worst = self.checks.iter().map(|check| check.outcome).max();
        worst.unwrap_or(Outcome::Fail)
    }

    /// The check to report first: the earliest of the worst.
    pub fn worst(&self) -> Option<&Check> {
        let outcome = self.outcome();
        self.checks.iter().find(|check| check.outcome == outcome)
    }
}

/// A whole preflight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What was found out about each node (or host), by its name.
    pub nodes: BTreeMap<String, NodeReport>,
    /// What is about no single node: a link between two, the gang as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Check>,
    /// Nodes without which what is shared would pass, as far as that is known: an end of a slow link. None of them is
    /// known to be bad.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leave: BTreeSet<String>,
}

impl Report {
    /// The nodes that a job should not be put on.
    pub fn unfit(&self) -> impl Iterator<Item = (&str, &NodeReport)> {
        let unfit = |report: &NodeReport| report.outcome() == Outcome::Fail;
        let nodes = self.nodes.iter().filter(move |(_, report)| unfit(report));
        nodes.map(|(name, report)| (name.as_str(), report))
    }

    /// The worst of all nodes and of what is between them.
    pub fn outcome(&self) -> Outcome {
        let nodes = self.nodes.values().map(NodeReport::outcome);
        let shared = self.shared.iter().map(|check| check.outcome);
        nodes.chain(shared).max().unwrap_or(Outcome::Fail)
    }
}
