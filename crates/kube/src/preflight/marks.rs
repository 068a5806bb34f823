//! What is kept on nodes: the last result of each, and the taint of those on probation.
//!
//! Invariants: only what a trial of the operator itself found is written, which [`Marks`] stand for. The taints of others
//! stay as they are; a node is changed only on top of the version that was read.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, info, warn};
use trainyard_core::{
    gang::Node,
    probe::{Fault, Marks, PROBATION, PROBATION_UNTIL, Probation},
    spec::annotation,
};

use crate::{
    api::{CallError, Caller},
    operator::Operator,
};

/// Where the API serves nodes.
const NODES: &str = "/api/v1/nodes";
/// Nodes that are written to at once.
const AT_ONCE: usize = 16;
/// Tries of a change of which another writer is in the way.
const TRIES: usize = 5;
/// The watch event of a taint comes within this time.
const NEWS: Duration = Duration::from_mins(1);

impl Operator {
    /// Writes what a trial found to its nodes, and keeps those that failed from everybody.
    pub(super) async fn write_marks(&self, marks: &Marks, at: Timestamp) {
        self.write_records(marks).await;
        for (node, fault) in marks.unfit() {
            self.put_on_probation(node, fault, at).await;
        }
    }

    async fn write_records(&self, marks: &Marks) {
        let calls: Vec<_> = marks
            .records()
            .iter()
            .map(|(node, record)| async move {
                let notes = json!({ annotation::PREFLIGHT: record.text() });
                let change = json!({ "metadata": { "annotations": notes } });
                let written = self
                    .caller
                    .merge::<serde::de::IgnoredAny>(NODES, node, &change)
                    .await;
                (node, written)
            })
            .collect();
        let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
        let mut refused = None;
        while let Some((node, written)) = calls.next().await {
            match written {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => refused = Some((node, error)),
            }
        }
        if let Some((node, error)) = refused {
            warn!(node, %error, "Cannot write the result of a trial to the node");
        }
    }

    /// Keeps a node that failed from everybody for a while, if it is to blame and not too many are.
    async fn put_on_probation(&self, node: &str, fault: &Fault, at: Timestamp) {
        let gate = self.gate();
        let Some(probation) = Probation::of(fault, at, gate.probation_lasts) else {
            return;
        };
        // One at a time: each has to count the ones before it, whose watch event may not have come yet.
        let mut taking = self.taking.lock().await;
        let now = Instant::now();
        let allowed = {
            let store = self.state.store();
            let nodes = &store.wait_queue.snapshot().nodes;
            let is_taken = |name: &str| nodes.get(name).is_some_and(Node::is_on_probation);
            taking.retain(|name, since| now.duration_since(*since) < NEWS && !is_taken(name));
            if is_taken(node) || taking.contains_key(node) {
                return;
            }
            let taken = nodes.values().filter(|node| node.is_on_probation()).count();
            gate.cap.allows(taken + taking.len(), nodes.len())
        };
        if let Err(why) = allowed {
            warn!(
                node,
                check = fault.check,
                why,
                "Unfit node is not put on probation"
            );
            return;
        }
        match taint(&self.caller, node, Some(&probation)).await {
            Ok(()) => {
                taking.insert(node.to_owned(), now);
                let until = probation.until;
                info!(node, check = fault.check, why = fault.why, %until, "Node is on probation");
            }
            Err(error) => warn!(node, %error, "Cannot put an unfit node on probation"),
        }
    }

    /// Lets a node come back that has passed.
    pub(super) async fn end_probation(&self, node: &str) {
        match taint(&self.caller, node, None).await {
            Ok(()) => info!(node, "Node returns from probation"),
            Err(error) => warn!(node, %error, "Cannot end the probation of a node"),
        }
    }

    /// Keeps a node on probation that has not passed.
    pub(super) async fn extend_probation(&self, node: &str, until: Timestamp) {
        let notes = json!({ PROBATION_UNTIL: until.to_string() });
        let change = json!({ "metadata": { "annotations": notes } });
        let written = self
            .caller
            .merge::<serde::de::IgnoredAny>(NODES, node, &change)
            .await;
        if let Err(error) = written {
            debug!(node, %error, "Cannot extend the probation of a node");
        }
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
