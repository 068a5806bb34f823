//! Nodes that return: each node whose probation is over gets a trial, and stays tainted until it passes.
//!
//! Owns when nodes on probation are tried, and deletes leftover pods of preflights.
//!
//! Invariants: one trial at a time; only the leader makes any. A node comes back only by passing, or because a person
//! removes its taint.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kube::core::params::{DeleteParams, Preconditions};
use serde::Deserialize;
use tracing::{debug, info, warn};
use trainyard_core::{
    gang::Snapshot,
    launch::preflight::{self, Labelled},
};

use super::trial::{Tried, partners};
use crate::{
    act::object_path,
    feed::{self, Source},
    operator::Operator,
    view::{Meta, View},
};

/// How often the operator checks for nodes on probation.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A trial without a result is repeated after this.
const AGAIN: Duration = Duration::from_mins(5);
/// Nodes that are tried at once.
const AT_ONCE: usize = 16;
/// How many checks lie between two checks for leftover pods.
const SWEEP_EVERY: u32 = 30;
/// The pods of a preflight that are older than this have ended long ago.
const STALE: Duration = Duration::from_mins(15);

/// A pod with the label of a preflight.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Left {
    metadata: Meta,
    status: LeftStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LeftStatus {
    phase: String,
}

impl View for Left {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Left {
    /// Whether it is left over from a preflight, and old enough that no runner waits for it.
    fn is_stale(&self, own: &str, now: Timestamp) -> bool {
        let meta = &self.metadata;
        let label = |key: &str| meta.label(key).unwrap_or_default();
        let labelled = Labelled {
            namespace: &meta.namespace,
            name: &meta.name,
            of: label(preflight::OF),
            round: label(preflight::ROUND),
            owner: meta.controller(),
            ended: matches!(self.status.phase.as_str(), "Succeeded" | "Failed"),
        };
        let made = meta.creation_timestamp.unwrap_or(now);
        later(made, STALE) <= now && preflight::is_left_over(labelled, own)
    }
}

impl Operator {
    /// Tries nodes that jobs blame, and those that may come back from probation, for as long as the operator runs.
    pub(crate) async fn run_node_trials(self) {
        let place = self.trial_place();
        if let Err(why) = &place {
            warn!(why, "This operator neither tries nor marks nodes");
        }
        let mut leads = self.leads();
        let mut looks = 0_u32;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            if self.readiness().is_err() {
                continue;
            }
            let now = crate::clock::now();
            if place.is_ok() {
                let due = due(self.state.store().wait_queue.snapshot(), now);
                if !due.is_empty() {
                    self.try_again(due).await;
                }
                self.try_suspect().await;
            }
            if looks.is_multiple_of(SWEEP_EVERY) {
                self.sweep(now).await;
            }
            looks = looks.wrapping_add(1);
        }
    }

    /// Looks at nodes whose probation is over.
    async fn try_again(&self, due: BTreeSet<String>) {
        let beside = {
            let store = self.state.store();
            partners(store.wait_queue.snapshot(), &due, &BTreeSet::new())
        };
        info!(nodes = due.len(), "Trying nodes on probation again");
        match self.run_trial(&due, &beside).await {
            Ok(tried) => {
                let this = self.clone();
                let released = self.flights.tasks.close(async move {
                    this.release(&due, &tried).await;
                });
                drop(released.await);
            }
            Err(why) => {
                self.caller
                    .metrics
                    .trust
                    .node_tried("probation", "no_result");
                warn!(
                    nodes = due.len(),
                    why, "Trial of nodes on probation produced no result"
                );
                let until = later(crate::clock::now(), AGAIN.min(self.gate().probation_lasts));
                for node in &due {
                    self.extend_probation(node, until).await;
                }
            }
        }
    }

    async fn release(&self, due: &BTreeSet<String>, tried: &Tried) {
        let judgement = &tried.judgement;
        self.write_marks(&tried.follows.marks, tried.at).await;
        for node in due {
            if judgement.fit.contains(node) {
                self.caller.metrics.trust.node_tried("probation", "fit");
                self.end_probation(node).await;
            } else {
                self.caller.metrics.trust.node_tried("probation", "unfit");
                let fault = judgement.unfit.get(node);
                let why = fault.map_or("all nodes fail the same check", |fault| fault.why.as_str());
                info!(node, why, "Node stays on probation");
                let until = later(tried.at, self.gate().probation_lasts);
                self.extend_probation(node, until).await;
            }
        }
    }

    /// Deletes pods of preflights that their creator did not delete.
    async fn sweep(&self, now: Timestamp) {
        let source = Source {
            path: self.path("/api/v1", "pods"),
            labels: Some(preflight::ROUND.to_owned()),
            fields: None,
        };
        let pods = match feed::list::<Left>(&self.caller.client, &source).await {
            Ok((pods, _)) => pods,
            Err(error) => {
                debug!(%error, "Cannot list leftover preflight pods");
                return;
            }
        };
        let own = self.trial_place().map(|(namespace, _)| namespace);
        let own = own.unwrap_or_default();
        for pod in pods.iter().filter(|pod| pod.is_stale(&own, now)) {
            let meta = &pod.metadata;
            let path = object_path(&meta.namespace, "pods");
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(meta.uid.clone()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let gone = self.caller.delete(&path, &meta.name, &params).await;
            debug!(
                pod = meta.name,
                ok = gone.is_ok(),
                "Deleted a leftover preflight pod"
            );
        }
    }
}

fn later(from: Timestamp, after: Duration) -> Timestamp {
    from.checked_add(after).unwrap_or(Timestamp::MAX)
}

/// The nodes whose probation is over.
fn due(snapshot: &Snapshot, now: Timestamp) -> BTreeSet<String> {
    let nodes = snapshot.nodes.iter();
    let due = nodes.filter(|(_, node)| node.ready && node.may_leave_probation(now));
    due.take(AT_ONCE).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use trainyard_core::{
        gang::{Node, Taint, TaintEffect},
        probe::PROBATION,
    };

    use super::*;

    fn node(until: Option<i64>, tainted: bool) -> Node {
        let taint = Taint {
            key: PROBATION.to_owned(),
            value: "link-speed".to_owned(),
            effect: TaintEffect::NoSchedule,
        };
        Node {
            ready: true,
            taints: tainted.then_some(taint).into_iter().collect(),
            probation_until: until.map(|second| Timestamp::from_second(second).unwrap()),
            ..Node::default()
        }
    }

    #[test]
    fn whose_time_is_over() {
        let mut snapshot = Snapshot::default();
        let dead = Node {
            ready: false,
            ..node(Some(5), true)
        };
        for (name, node) in [
            ("over", node(Some(10), true)),
            ("not yet", node(Some(11), true)),
            ("nobody knows", node(None, true)),
            ("removed by a person", node(Some(5), false)),
            ("dead", dead),
        ] {
            snapshot.nodes.insert(name.to_owned(), node);
        }
        let due = due(&snapshot, Timestamp::from_second(10).unwrap());
        assert_eq!(
            due.into_iter().collect::<Vec<_>>(),
            ["nobody knows", "over"]
        );
    }

    #[test]
    fn sweep_checks_the_owner() {
        let pod = |kind: &str, name: &str, age: i64| {
            let owner = serde_json::json!([{"apiVersion": "kubeflow.org/v1", "kind": kind, "name": "j",
                "uid": "u", "controller": true}]);
            serde_json::from_value::<Left>(serde_json::json!({
                "metadata": {"name": name, "namespace": "team", "ownerReferences": owner,
                    "labels": {"trainyard.dev/preflight": "1", "trainyard.dev/preflight-of": "u"},
                    "creationTimestamp": Timestamp::from_second(10_000 - age).unwrap().to_string()},
                "status": {"phase": "Running"},
            }))
            .unwrap()
        };
        let cases = [
            (
                "a preflight's",
                pod("PyTorchJob", "j-preflight-1-0", 900),
                true,
            ),
            (
                "a young one",
                pod("PyTorchJob", "j-preflight-1-0", 899),
                false,
            ),
            (
                "somebody else's",
                pod("ReplicaSet", "j-preflight-1-0", 9_000),
                false,
            ),
            (
                "a rank that carries the label",
                pod("PyTorchJob", "j-worker-0", 9_000),
                false,
            ),
        ];
        for (name, pod, want) in cases {
            let now = Timestamp::from_second(10_000).unwrap();
            assert_eq!(pod.is_stale("trainyard", now), want, "{name}");
        }
    }
}
