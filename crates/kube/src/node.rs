//! Which nodes do not answer, and since when.
//!
//! Three signs are read: the Ready condition, the taints that the node controller sets, and the
//! kubelet's lease. The lease counts even if the node controller is down; it counts by when it
//! was last seen to change, so that a clock that runs differently on a node does not count as its death.
//! Time in which leases could not be read, or nobody read them, does not count either: then no lease is
//! seen to change, of the living as little as of the dead.
//!
//! Invariant: a node that gives any newer sign of life is healthy again.

use std::time::Duration;

use jiff::Timestamp;
use trainyard_core::job::NodeHealth;

use crate::view::{LeaseSpecView, NodeView};

/// A lease that was not renewed for this long is a sign that the node is gone, unless it says itself that it
/// lasts longer. Kubelets renew it four times in that time, and the cluster's own controller waits as long.
const LEASE_SILENCE: Duration = Duration::from_secs(40);
/// How often leases are read while jobs have pods, or wait for nodes.
pub(crate) const LEASES_EVERY: Duration = Duration::from_secs(10);
/// Between two readings at most this much of the time counts.
const COUNTS_AT_MOST: Duration = Duration::from_secs(20);

/// The taints that say that a node is not there.
const GONE_TAINTS: &[&str] = &[
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-service",
];

/// What is known of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeEntry {
    /// Since when its object says that it does not answer.
    silent: Option<Timestamp>,
    lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    renewed: Timestamp,
    /// When that was first seen here, by this machine's clock.
    seen_at: Timestamp,
    /// For how long it was seen not to change.
    silence: Duration,
    /// How long it may.
    lasts: Duration,
}

impl NodeEntry {
    pub(crate) fn new(node: &NodeView) -> Self {
        let ready = node
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Ready");
        // A node that was only just made has no conditions yet.
        let not_ready = ready
            .filter(|ready| ready.status != "True")
            .and_then(|ready| ready.last_heartbeat_time.or(ready.last_transition_time));
        let tainted = node
            .spec
            .taints
            .iter()
            .filter(|taint| GONE_TAINTS.contains(&taint.key.as_str()))
            .filter_map(|taint| taint.time_added)
            .min();
        Self {
            silent: not_ready.or(tainted),
            lease: None,
        }
    }

    /// With the new state of the node's object; what is known of its lease stays.
    pub(crate) fn updated(&self, node: &NodeView) -> Self {
        Self {
            lease: self.lease,
            ..Self::new(node)
        }
    }

    /// Takes a reading of the lease in, `since` the one before it.
    pub(crate) fn lease(&mut self, lease: &LeaseSpecView, since: Duration, at: Timestamp) {
        let Some(renewed) = lease.renew_time else {
            return;
        };
        let stated = lease.lease_duration_seconds.unwrap_or(0);
        let lasts = LEASE_SILENCE.max(Duration::from_secs(stated.into()));
        let known = self.lease.filter(|known| known.renewed == renewed);
        self.lease = Some(match known {
            Some(known) => Lease {
                silence: known.silence + since.min(COUNTS_AT_MOST),
                lasts,
                ..known
            },
            None => Lease {
                renewed,
                seen_at: at,
                silence: Duration::ZERO,
                lasts,
            },
        });
    }

    pub(crate) fn health(&self) -> NodeHealth {
        let by_lease = self.lease.filter(|lease| lease.silence >= lease.lasts);
        let since = self
            .silent
            .into_iter()
            .chain(by_lease.map(|lease| lease.seen_at))
            .min();
        since.map_or(NodeHealth::Ready, NodeHealth::SilentSince)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn node(status: &str, taints: &serde_json::Value) -> NodeView {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"taints": taints},
            "status": {"conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": status, "lastHeartbeatTime": time(5).to_string(),
                 "lastTransitionTime": time(50).to_string()},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn the_signs_of_a_dead_node() {
        let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute",
            "timeAdded": time(60).to_string()}]);
        let cordoned = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule",
            "timeAdded": time(60).to_string()}]);
        let cases = [
            ("well", node("True", &json!([])), NodeHealth::Ready),
            ("cordoned", node("True", &cordoned), NodeHealth::Ready),
            (
                "unknown",
                node("Unknown", &json!([])),
                NodeHealth::SilentSince(time(5)),
            ),
            (
                "tainted",
                node("True", &unreachable),
                NodeHealth::SilentSince(time(60)),
            ),
        ];
        for (name, node, want) in cases {
            assert_eq!(NodeEntry::new(&node).health(), want, "{name}");
        }
    }

    fn lease(renewed: Timestamp) -> LeaseSpecView {
        LeaseSpecView {
            renew_time: Some(renewed),
            lease_duration_seconds: Some(40),
            ..LeaseSpecView::default()
        }
    }

    #[test]
    fn a_lease_counts_by_when_it_was_seen_to_change() {
        let mut entry = NodeEntry::new(&node("True", &json!([])));
        // The node's clock is an hour behind.
        for reading in 0..4 {
            entry.lease(&lease(time(-3_600)), LEASES_EVERY, time(10 * reading));
            assert_eq!(entry.health(), NodeHealth::Ready, "reading {reading}");
        }
        entry.lease(&lease(time(-3_600)), LEASES_EVERY, time(40));
        assert_eq!(entry.health(), NodeHealth::SilentSince(time(0)));
        entry.lease(&lease(time(-3_560)), LEASES_EVERY, time(50));
        assert_eq!(entry.health(), NodeHealth::Ready, "renewed");
    }

    #[test]
    fn unread_leases_do_not_age_nodes() {
        let mut entry = NodeEntry::new(&node("True", &json!([])));
        entry.lease(&lease(time(0)), LEASES_EVERY, time(0));
        // The API server was away for an hour, and kubelets have not yet found it again.
        entry.lease(&lease(time(0)), Duration::from_hours(1), time(3_600));
        assert_eq!(entry.health(), NodeHealth::Ready);
    }

    #[test]
    fn a_lease_may_last_longer_than_usual() {
        let mut entry = NodeEntry::new(&node("True", &json!([])));
        let long = LeaseSpecView {
            lease_duration_seconds: Some(100),
            ..lease(time(0))
        };
        for reading in 0..10 {
            entry.lease(&long, LEASES_EVERY, time(10 * reading));
            assert_eq!(entry.health(), NodeHealth::Ready, "reading {reading}");
        }
        entry.lease(&long, LEASES_EVERY, time(100));
        assert_eq!(entry.health(), NodeHealth::SilentSince(time(0)));
    }
}
