//! Which nodes do not answer, and since when.
//!
//! Three signs are read: the Ready condition, the taints that the node controller sets, and the
//! kubelet's lease. The lease tells even where the node controller is down; it counts by when it
//! was last seen to change, so that a clock that runs differently on a node is no sign of its death.
//!
//! Invariant: a node that gives any newer sign of life is healthy again.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_core::job::NodeHealth;

use crate::view::NodeView;

/// A lease that was not renewed for this long is a sign that the node is gone. Kubelets renew it
/// every ten seconds, and the cluster's own controller waits as long.
pub(crate) const LEASE_SILENCE: Duration = Duration::from_secs(40);

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
    /// When that was first seen here, by this machine's clocks.
    seen: Instant,
    seen_at: Timestamp,
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

    /// Takes a reading of the lease in.
    pub(crate) fn lease(&mut self, renewed: Timestamp, now: Instant, at: Timestamp) {
        if self.lease.is_none_or(|lease| lease.renewed != renewed) {
            self.lease = Some(Lease {
                renewed,
                seen: now,
                seen_at: at,
            });
        }
    }

    pub(crate) fn health(&self, now: Instant) -> NodeHealth {
        let by_lease = self
            .lease
            .filter(|lease| now.saturating_duration_since(lease.seen) >= LEASE_SILENCE);
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
        let now = Instant::now();
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
            assert_eq!(NodeEntry::new(&node).health(now), want, "{name}");
        }
    }

    #[test]
    fn a_lease_counts_by_when_it_was_seen_to_change() {
        let start = Instant::now();
        let mut entry = NodeEntry::new(&node("True", &json!([])));
        // The node's clock is an hour behind.
        entry.lease(time(-3_600), start, time(0));
        let later = start + LEASE_SILENCE;
        assert_eq!(
            entry.health(later.checked_sub(Duration::from_secs(1)).unwrap()),
            NodeHealth::Ready
        );
        assert_eq!(entry.health(later), NodeHealth::SilentSince(time(0)));
        entry.lease(time(-3_600), later, time(40));
        assert_eq!(
            entry.health(later),
            NodeHealth::SilentSince(time(0)),
            "not renewed"
        );
        entry.lease(time(-3_560), later, time(40));
        assert_eq!(entry.health(later), NodeHealth::Ready, "renewed");
    }
}
