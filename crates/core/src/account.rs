//! On whose account a failure is paid.

use serde::{Deserialize, Serialize};

/// On whose account a failure is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Account {
    /// The program's own failures.
    User,
    /// People and controllers of the cluster.
    Platform,
    /// Nodes, devices, networks.
    Infrastructure,
    /// Preemption by a job of higher priority.
    Preemption,
}
