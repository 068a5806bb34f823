//! A job and its pods as the API server has them.
//!
//! Whoever reads them elsewhere, as from an archive, needs every field: nothing is interpreted here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Api, JobSeen, Look, LookError, PodSeen, pod};
use crate::crd;

impl Look {
    /// The object of `job`, without the list of who owns which field.
    pub fn object(&self, job: &JobSeen) -> Result<Value, LookError> {
        self.runtime.block_on(self.api.object(job))
    }

    /// The objects of `pods` that are there still, in no order.
    pub fn pod_objects(&self, job: &JobSeen, pods: &[PodSeen]) -> Result<Vec<Value>, LookError> {
        self.runtime.block_on(self.api.pod_objects(job, pods))
    }
}

impl Api {
    async fn object(&self, job: &JobSeen) -> Result<Value, LookError> {
        let key = &job.key;
        let plural = crd::plural(key.kind);
        let path = format!(
            "/apis/{}/namespaces/{}/{plural}",
            job.api_version, key.namespace
        );
        let tried = format!("get {} `{}`", crd::singular(key.kind), key.name);
        let mut object = self.get(&tried, &path, &key.name).await?;
        remove_managers(&mut object);
        Ok(object)
    }

    async fn pod_objects(&self, job: &JobSeen, pods: &[PodSeen]) -> Result<Vec<Value>, LookError> {
        let path = format!("/api/v1/namespaces/{}/pods", job.key.namespace);
        let labels = pod::labels(job);
        let mut objects: Vec<Value> = self.list("list pods", &path, Some(labels), None).await?;
        let wanted: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        objects.retain(|object| {
            let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
            uid.is_some_and(|uid| wanted.contains(uid))
        });
        objects.iter_mut().for_each(remove_managers);
        Ok(objects)
    }
}

/// Removes the longest part of an object, in which nobody finds a fault.
fn remove_managers(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}
