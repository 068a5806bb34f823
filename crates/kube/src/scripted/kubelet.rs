//! A scheduler and kubelets that do what the test says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::world::{Name, World, stamp, text};
use crate::clock;

const PODS: &str = "/api/v1/pods";
const BATCH: &str = "/apis/batch/v1/jobs";

/// How pods are run.
#[derive(Debug)]
pub(crate) struct Kubelet {
    /// Pods that have no gate get a node and run at once.
    pub(crate) runs: bool,
    /// Pods that are deleted end at once.
    pub(crate) ends: bool,
    /// Nodes whose kubelet does neither.
    pub(crate) silent: BTreeSet<String>,
    /// What `pods/log` answers, by `namespace/pod`.
    pub(crate) logs: BTreeMap<String, String>,
    /// When each line of them was written.
    pub(crate) log_times: BTreeMap<String, Vec<jiff::Timestamp>>,
}

impl Default for Kubelet {
    fn default() -> Self {
        Self {
            runs: true,
            ends: true,
            silent: BTreeSet::new(),
            logs: BTreeMap::new(),
            log_times: BTreeMap::new(),
        }
    }
}

impl World {
    /// Does what schedulers, kubelets and the controller of batch Jobs would do now.
    pub(crate) fn settle(&mut self) {
        while self.settle_once() {}
    }

    fn names(&self, resource: &str) -> Vec<Name> {
        let first = (resource.to_owned(), String::new(), String::new());
        let found = self.objects.range(first..);
        let found = found.take_while(|(name, _)| name.0 == resource);
        found.map(|(name, _)| name.clone()).collect()
    }

    fn settle_once(&mut self) -> bool {
        let mut changed = self.collect_orphans();
        for name in &self.names(BATCH) {
            changed |= self.settle_batch(name);
        }
        for name in &self.names(PODS) {
            let Some(pod) = self.objects.get(name).cloned() else {
                continue;
            };
            let node = text(&pod, "/spec/nodeName");
            let leaves = pod["metadata"].get("deletionTimestamp").is_some();
            let silent = self.kubelet.silent.contains(node);
            if leaves {
                if self.kubelet.ends && !silent {
                    self.put(name, None);
                    changed = true;
                }
                continue;
            }
            let gated = pod
                .pointer("/spec/schedulingGates")
                .and_then(Value::as_array)
                .is_some_and(|gates| !gates.is_empty());
            if !self.kubelet.runs || gated || silent || text(&pod, "/status/phase") != "Pending" {
                continue;
            }
            if text(&pod, "/status/reason") == "Held" {
                continue;
            }
            changed |= self.run_pod(name);
        }
        changed
    }

    /// Gives a pod its node, and runs it; whether it is there.
    pub(crate) fn run_pod(&mut self, name: &Name) -> bool {
        let Some(pod) = self.objects.get(name).cloned() else {
            return false;
        };
        let node = self.node_for(&pod);
        let now = stamp(clock::now());
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let statuses: Vec<Value> = containers
            .into_iter()
            .flatten()
            .map(|container| {
                json!({"name": container["name"], "ready": true, "restartCount": 0,
                    "state": {"running": {"startedAt": now}}})
            })
            .collect();
        self.change(name, |pod| {
            pod["spec"]["nodeName"] = node.into();
            pod["status"] = json!({"phase": "Running", "startTime": now, "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
                {"type": "Ready", "status": "True", "lastTransitionTime": now},
            ], "containerStatuses": statuses});
        });
        true
    }

    /// The node that a pod names, else one that is there.
    fn node_for(&self, pod: &Value) -> String {
        let bound = text(pod, "/spec/nodeName");
        if !bound.is_empty() {
            return bound.to_owned();
        }
        let named = text(pod, "/spec/nodeSelector/kubernetes.io~1hostname");
        if !named.is_empty() {
            return named.to_owned();
        }
        let field = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                     /nodeSelectorTerms/0/matchFields/0/values/0";
        let tied = text(pod, field);
        if !tied.is_empty() {
            return tied.to_owned();
        }
        let mut nodes = self
            .all("/api/v1/nodes")
            .map(|node| text(node, "/metadata/name"));
        let first = nodes.find(|name| !self.kubelet.silent.contains(*name));
        first.unwrap_or("node-0").to_owned()
    }

    /// Ends the containers of a pod.
    pub(crate) fn end_pod(&mut self, name: &Name, exit: i32) {
        self.end_pod_saying(name, exit, "");
    }

    /// The same, with what its training container left for the kubelet.
    pub(crate) fn end_pod_saying(&mut self, name: &Name, exit: i32, message: &str) {
        let now = stamp(clock::now());
        self.change(name, |pod| {
            let phase = if exit == 0 { "Succeeded" } else { "Failed" };
            pod["status"]["phase"] = phase.into();
            let reason = if exit == 0 { "Completed" } else { "Error" };
            let ended =
                json!({"terminated": {"exitCode": exit, "reason": reason, "finishedAt": now, "message": message}});
            let statuses = pod["status"].get_mut("containerStatuses");
            for status in statuses.and_then(Value::as_array_mut).into_iter().flatten() {
                status["state"] = ended.clone();
                status["ready"] = false.into();
            }
            let conditions = pod["status"].get_mut("conditions");
            for condition in conditions
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if condition["type"] == "Ready" {
                    condition["status"] = "False".into();
                }
            }
        });
    }

    /// The containers of a pod end, and their kubelet pauses before it starts them again in place.
    pub(crate) fn end_in_place(&mut self, name: &Name, exit: i32) {
        let now = stamp(clock::now());
        let ended = json!({"exitCode": exit, "reason": "Error", "finishedAt": now});
        self.change_containers(name, |status| {
            status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            status["lastState"] = json!({"terminated": ended});
            status["ready"] = false.into();
        });
    }

    /// It starts them again.
    pub(crate) fn start_in_place(&mut self, name: &Name) {
        let now = stamp(clock::now());
        self.change_containers(name, |status| {
            let restarts = status["restartCount"].as_u64().unwrap_or(0);
            status["restartCount"] = (restarts + 1).into();
            status["state"] = json!({"running": {"startedAt": now}});
            status["ready"] = true.into();
        });
    }

    fn change_containers(&mut self, name: &Name, change: impl Fn(&mut Value)) {
        self.change(name, |pod| {
            let statuses = pod["status"].get_mut("containerStatuses");
            for status in statuses.and_then(Value::as_array_mut).into_iter().flatten() {
                change(status);
            }
        });
    }

    /// Makes the pod of a batch Job, and reports its end.
    fn settle_batch(&mut self, name: &Name) -> bool {
        let Some(job) = self.objects.get(name).cloned() else {
            return false;
        };
        if job["metadata"].get("deletionTimestamp").is_some()
            || !job["status"]["conditions"].is_null()
            || job.pointer("/spec/suspend") == Some(&Value::Bool(true))
        {
            return false;
        }
        let (_, namespace, called) = name;
        let failed = job
            .pointer("/status/failed")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        let pod = (
            PODS.to_owned(),
            namespace.clone(),
            format!("{called}-{failed}"),
        );
        let Some(there) = self.objects.get(&pod).cloned() else {
            let mut made = job.pointer("/spec/template").cloned().unwrap_or_default();
            made["apiVersion"] = "v1".into();
            made["kind"] = "Pod".into();
            made["metadata"]["name"] = pod.2.into();
            made["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job",
                "name": called, "uid": job["metadata"]["uid"], "controller": true}]);
            let place = super::path::Place {
                resource: PODS.to_owned(),
                namespace: namespace.clone(),
                ..Default::default()
            };
            return self.create(&place, made).is_ok();
        };
        let limit = job.pointer("/spec/backoffLimit").and_then(Value::as_u64);
        let condition = |kind: &str| json!([{"type": kind, "status": "True", "lastTransitionTime": stamp(clock::now())}]);
        match text(&there, "/status/phase") {
            "Succeeded" => self.change(name, |job| {
                job["status"]["conditions"] = condition("Complete");
            }),
            "Failed" => self.change(name, |job| {
                job["status"]["failed"] = (failed + 1).into();
                if failed + 1 > limit.unwrap_or(6) {
                    job["status"]["conditions"] = condition("Failed");
                }
            }),
            _ => return false,
        }
        true
    }
}
