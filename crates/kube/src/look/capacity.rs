//! What says which nodes could be added to the cluster: Karpenter's pools, the status of the Cluster Autoscaler, requests.

use serde_json::{Value, json};

use super::{Api, Look, LookError};

/// What a cluster serves about capacity: what was tried, the API group, its versions with the newest first, the kind and its plural.
const LISTS: [(&str, &str, [&str; 2], &str, &str); 3] = [
    (
        "list NodePools",
        "karpenter.sh",
        ["v1", "v1beta1"],
        "NodePool",
        "nodepools",
    ),
    (
        "list NodeClaims",
        "karpenter.sh",
        ["v1", "v1beta1"],
        "NodeClaim",
        "nodeclaims",
    ),
    (
        "list ProvisioningRequests",
        "autoscaling.x-k8s.io",
        ["v1", "v1beta1"],
        "ProvisioningRequest",
        "provisioningrequests",
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
        for (tried, group, versions, kind, plural) in LISTS {
            for version in versions {
                let path = format!("/apis/{group}/{version}/{plural}");
                match self.list::<Value>(tried, &path, None, None).await {
                    Ok(items) => {
                        let version = format!("{group}/{version}");
                        let items = items.into_iter();
                        objects.extend(items.map(|item| named(item, &version, kind)));
                        break;
                    }
                    // An older version may be served.
                    Err(error) if error.is_not_found() => {}
                    Err(error) => {
                        refused.push(error);
                        break;
                    }
                }
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
