//! The loop that looks at nodes while this operator leads: it runs the trials that `trainyard_core::fleet` decides, and deletes pods
//! that preflights left behind.
//!
//! Invariants: one trial at a time; only the leader runs any.

use std::time::Duration;

use jiff::Timestamp;
use kube::core::params::{DeleteParams, Preconditions};
use serde::Deserialize;
use tracing::{debug, warn};
use trainyard_core::launch::preflight::{self, Labelled};

use crate::{
    feed::{self, Source},
    operator::Operator,
    path::object_path,
    plain::sentence,
    view::{Meta, View},
};

/// How often it is decided whether a trial is due.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Turns of the loop between two sweeps of pods that were left behind.
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
    /// Whether it is what a preflight left, and old enough that nobody waits for it.
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
        if let Err(error) = &place {
            warn!(
                why = sentence(error),
                "This operator runs no trials and marks no nodes"
            );
        }
        let mut leads = self.leads();
        let mut looks = 0_u32;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            if !self.has_listed() {
                continue;
            }
            let now = crate::clock::now();
            if place.is_ok() {
                self.try_nodes().await;
            }
            if looks.is_multiple_of(SWEEP_EVERY) {
                self.sweep(now).await;
            }
            looks = looks.wrapping_add(1);
        }
    }

    /// Deletes pods of preflights that were left behind.
    async fn sweep(&self, now: Timestamp) {
        let source = Source {
            path: self.path("/api/v1", "pods"),
            labels: Some(preflight::ROUND.to_owned()),
            fields: None,
        };
        let pods = match feed::list::<Left>(&self.caller.client, &source).await {
            Ok((pods, _)) => pods,
            Err(error) => {
                debug!(%error, "cannot list what preflights left");
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
                "removed what a preflight left"
            );
        }
    }
}

fn later(from: Timestamp, after: Duration) -> Timestamp {
    from.checked_add(after).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
