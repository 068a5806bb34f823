//! What says which nodes could be added to the cluster: Karpenter's pools, the status of the Cluster Autoscaler, requests.

use serde_json::{Value, json};

use super::{Api, Look, LookError};

/// What a cluster serves about capacity: what was tried, its path, `apiVersion` and kind.
const LISTS: [(&str, &str, &str, &str); 3] = [
    (
        "list NodePools",
        "/apis/karpenter.sh/v1/nodepools",
        "karpenter.sh/v1",
        "NodePool",
    ),
    (
        "list NodeClaims",
        "/apis/karpenter.sh/v1/nodeclaims",
        "karpenter.sh/v1",
        "NodeClaim",
    ),
    (
        "list ProvisioningRequests",
        "/apis/autoscaling.x-k8s.io/v1/provisioningrequests",
        "autoscaling.x-k8s.io/v1",
        "ProvisioningRequest",
    ),
];
const STATUS_PATH: &str = "/api/v1/namespaces/kube-system/configmaps";
const STATUS_NAME: &str = "cluster-autoscaler-status";

impl Look {
    /// The objects about capacity, and why some of them could not be read. What the cluster does not serve is neither.
    pub fn capacity(&self) -> (Vec<Value>, Vec<LookError>) {
        self.runtime.block_on(self.api.capacity())
    }
}

impl Api {
    async fn capacity(&self) -> (Vec<Value>, Vec<LookError>) {
        let (mut objects, mut refused) = (Vec::new(), Vec::new());
        for (tried, path, version, kind) in LISTS {
            match self.list::<Value>(tried, path, None, None).await {
                Ok(items) => {
                    objects.extend(items.into_iter().map(|item| named(item, version, kind)));
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => refused.push(error),
            }
        }
        let tried = "get the status of the Cluster Autoscaler";
        match self.get::<Value>(tried, STATUS_PATH, STATUS_NAME).await {
            Ok(status) => objects.push(named(status, "v1", "ConfigMap")),
            Err(error) if error.is_not_found() => {}
            Err(error) => refused.push(error),
        }
        (objects, refused)
    }
}

/// The items of a list need not say what they are.
fn named(mut object: Value, version: &str, kind: &str) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.entry("apiVersion").or_insert_with(|| json!(version));
        fields.entry("kind").or_insert_with(|| json!(kind));
    }
    object
}
