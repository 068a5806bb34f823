//! Changes of nodes that trials led to: the last result of each, and the taint of those on probation.
//!
//! Invariants: which changes are made is decided by `trainyard_core::fleet`. The taints of others stay as they are; a node is changed
//! only on top of the version that was read.

use serde_json::{Value, json};
use tracing::{info, warn};
use trainyard_core::{
    fleet::Change,
    probe::{PROBATION, PROBATION_UNTIL, Probation},
    spec::annotation,
};

use crate::{
    api::{CallError, Caller},
    operator::Operator,
};

/// Where the API serves nodes.
const NODES: &str = "/api/v1/nodes";
/// Tries of a change of which another writer is in the way.
const TRIES: usize = 5;

impl Operator {
    /// Applies one change of a node that a trial led to; whether it is done.
    pub(super) async fn change_node(&self, node: &str, change: &Change) -> bool {
        let done = match change {
            Change::Record(record) => {
                self.annotate(node, json!({ annotation::PREFLIGHT: record.text() }))
                    .await
            }
            Change::Extend(until) => {
                self.annotate(node, json!({ PROBATION_UNTIL: until.to_string() }))
                    .await
            }
            Change::Taint(probation, _) => taint(&self.caller, node, Some(probation)).await,
            Change::Untaint => taint(&self.caller, node, None).await,
        };
        match (change, &done) {
            (Change::Taint(probation, fault), Ok(())) => {
                info!(node, check = fault.check, why = fault.why, until = %probation.until, "Node put on probation");
            }
            (Change::Untaint, Ok(())) => info!(node, "Node left probation"),
            (Change::Record(_) | Change::Extend(_), Ok(())) => {}
            (change, Err(error)) => {
                warn!(node, %error, change = label(change), "Cannot change a node");
            }
        }
        done.is_ok()
    }

    /// Merges annotations into those of a node; one that is gone needs none.
    async fn annotate(&self, node: &str, annotations: Value) -> Result<(), CallError> {
        let change = json!({ "metadata": { "annotations": annotations } });
        let merged = self
            .caller
            .merge::<serde::de::IgnoredAny>(NODES, node, &change)
            .await;
        match merged {
            Err(error) if error.is_not_found() => Ok(()),
            done => done.map(drop),
        }
    }
}

fn label(change: &Change) -> &'static str {
    match change {
        Change::Record(_) => "record",
        Change::Taint(..) => "taint",
        Change::Extend(_) => "extend probation",
        Change::Untaint => "untaint",
    }
}

/// Adds the taint to a node, or removes it.
async fn taint(
    caller: &Caller,
    node: &str,
    probation: Option<&Probation>,
) -> Result<(), CallError> {
    let mut tries = 0;
    loop {
        let there: Value = caller.get(NODES, node).await?;
        let Some(change) = change(&there, probation) else {
            return Ok(());
        };
        tries += 1;
        match caller.json_patch(NODES, node, &change).await {
            Err(error) if error.is_conflict() && tries < TRIES => {}
            done => return done,
        }
    }
}

/// The operations that bring the taint of `node` to be as `probation` says; none where it is so.
fn change(node: &Value, probation: Option<&Probation>) -> Option<Value> {
    let taints = node["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let is_ours = |taint: &Value| taint["key"] == PROBATION;
    let is_there = taints.iter().any(is_ours);
    if probation.is_some() == is_there {
        return None;
    }
    let mut wanted = taints;
    wanted.retain(|taint| !is_ours(taint));
    let mut notes = node["metadata"]["annotations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    notes.remove(PROBATION_UNTIL);
    if let Some(Probation { check, until }) = probation {
        wanted.push(json!({ "key": PROBATION, "value": check, "effect": "NoSchedule" }));
        notes.insert(PROBATION_UNTIL.to_owned(), json!(until.to_string()));
    }
    Some(json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/annotations", "value": notes},
        {"op": "add", "path": "/spec/taints", "value": wanted},
    ]))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_taints_of_others_stay() {
        let probation = Probation {
            check: "link-speed".to_owned(),
            until: Timestamp::UNIX_EPOCH,
        };
        let other = json!({"key": "nvidia.com/gpu", "effect": "NoSchedule"});
        let ours = json!({"key": PROBATION, "value": "link-speed", "effect": "NoSchedule"});
        let node = |taints: Value| {
            json!({"metadata": {"resourceVersion": "7", "annotations": {"a": "b"}},
                "spec": {"taints": taints}})
        };
        let put = change(&node(json!([other])), Some(&probation)).unwrap();
        assert_eq!(put[2]["value"], json!([other, ours]));
        assert_eq!(
            put[1]["value"],
            json!({"a": "b", PROBATION_UNTIL: "1970-01-01T00:00:00Z"})
        );
        let mut tainted = node(json!([ours, other]));
        tainted["metadata"]["annotations"][PROBATION_UNTIL] = json!("x");
        let taken = change(&tainted, None).unwrap();
        assert_eq!(taken[2]["value"], json!([other]));
        assert_eq!(taken[1]["value"], json!({"a": "b"}));
        assert_eq!(taken[0]["value"], "7", "on top of what was read");
        assert_eq!(change(&tainted, Some(&probation)), None, "it is so");
        assert_eq!(change(&node(json!([other])), None), None, "it is so");
    }
}
