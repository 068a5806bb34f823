//! The pods of a namespace: looked at, waited for, ended.

use std::collections::BTreeMap;

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{LOOK, TestNamespace};

impl TestNamespace {
    /// The pods of the namespace, by name.
    pub(crate) async fn pod_map(&self) -> BTreeMap<String, Value> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items
            .into_iter()
            .map(|pod| {
                let name = pod.metadata.name.clone().unwrap();
                (name, serde_json::to_value(pod).unwrap())
            })
            .collect()
    }

    /// Waits until `count` pods of `attempt` run, and no others are left.
    pub(crate) async fn until_running(&self, count: usize, attempt: u32) {
        let what = format!("{count} pods of attempt {attempt} run");
        let attempt = attempt.to_string();
        self.until(&what, || async {
            let pods = self.pod_map().await;
            let running = pods.values().filter(|pod| {
                pod["status"]["phase"] == "Running"
                    && pod["metadata"]["labels"]["trainyard.dev/attempt"] == attempt.as_str()
                    && pod["metadata"]["deletionTimestamp"].is_null()
            });
            (running.count() == count && pods.len() == count).then_some(())
        })
        .await;
    }

    /// Ends a pod's container as if its program had.
    pub(crate) async fn end_pod(&self, name: &str, code: i32, reason: &str) {
        let pod = self.pods().get(name).await.unwrap();
        let statuses: Vec<Value> = pod.data["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|container| {
                json!({
                    "name": container["name"], "image": "x", "imageID": "", "ready": false,
                    "restartCount": 0, "started": false,
                    "state": {"terminated": {"exitCode": code, "reason": reason,
                        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}},
                })
            })
            .collect();
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        // Only this pod: the next one of its name has done nothing.
        let status = json!({"metadata": {"uid": pod.metadata.uid}, "status": {
            "phase": phase,
            "containerStatuses": statuses,
            "conditions": [{"type": "Ready", "status": "False"}],
        }});
        // The simulated kubelet may be about to write its own word; the last one counts.
        let mut held = 0;
        while held < 3 {
            let pods = self.pods();
            let now = pods.get_opt(name).await.unwrap();
            if now.is_none_or(|now| now.metadata.uid != pod.metadata.uid) {
                return;
            }
            let patched = pods
                .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
                .await;
            match patched {
                Ok(after) if after.data["status"]["phase"] == phase => held += 1,
                Ok(_) => held = 0,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
