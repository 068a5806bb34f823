//! `TrainJob`s as people read them: each with its runtime, as far as the caller may read that.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use trainyard_core::spec::{Kind, RuntimeName};

use super::{Api, JobSeen, LookError, path};
use crate::{
    operator::runtimes::{snapshot_name, snapshot_runtime},
    view::{JobView, Named},
};

/// What a version of an API serves.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Served {
    resources: Vec<Named>,
}

/// The data of a `ConfigMap`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    data: BTreeMap<String, String>,
}

impl Api {
    /// Whether the cluster serves `TrainJob`s. Everybody may ask that; who lists what is not served is refused for want of rights.
    pub(super) async fn serves_train_jobs(&self) -> Result<bool, LookError> {
        let group = format!("/apis/{}", Kind::Train.group());
        let version = Kind::Train.version();
        let tried = "list the resources of `trainer.kubeflow.org`";
        match self.get::<Served>(tried, &group, version).await {
            Ok(served) => Ok(served.resources.iter().any(|it| it.name == "trainjobs")),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn train_jobs(
        &self,
        namespace: Option<&str>,
    ) -> Result<Vec<JobSeen>, LookError> {
        let path = path(Kind::Train, namespace);
        let listed = self.list::<JobView>("list trainjobs", &path, None, None);
        let views = match listed.await {
            Ok(views) => views,
            // Those of other kinds are shown to whoever may not list these.
            Err(error) if error.code() == Some(403) => Vec::new(),
            Err(error) => return Err(error),
        };
        // Few jobs name the same runtimes; one that is not known yet is read once.
        let mut runtimes: BTreeMap<(String, RuntimeName), Option<Value>> = BTreeMap::new();
        let mut seen = Vec::new();
        for view in &views {
            let Some(name) = runtime_name(view) else {
                seen.extend(JobSeen::new(view));
                continue;
            };
            let place = (view.metadata.namespace.clone(), name.clone());
            if !runtimes.contains_key(&place) {
                let runtime = self.runtime(&view.metadata.namespace, &name).await;
                runtimes.insert(place.clone(), runtime);
            }
            let runtime = runtimes.get(&place).and_then(Option::as_ref);
            seen.extend(JobSeen::with_runtime(view, runtime));
        }
        Ok(seen)
    }

    pub(super) async fn train_job(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<JobSeen>, LookError> {
        let tried = format!("get trainjob `{name}`");
        let path = path(Kind::Train, Some(namespace));
        let view = match self.get::<JobView>(&tried, &path, name).await {
            Ok(view) => view,
            Err(error) if error.is_not_found() || error.code() == Some(403) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(runtime_name) = runtime_name(&view) else {
            return Ok(JobSeen::new(&view));
        };
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let snapshot = snapshot_name(name);
        let snapshot = self.get::<Data>("get the runtime of the job", &path, &snapshot);
        let pinned = snapshot
            .await
            .ok()
            .and_then(|it| snapshot_runtime(&it.data));
        let runtime = match pinned {
            Some(runtime) => Some(runtime),
            None => self.runtime(namespace, &runtime_name).await,
        };
        Ok(JobSeen::with_runtime(&view, runtime.as_ref()))
    }

    /// The runtime as the cluster has it; nothing where it is not there or may not be read.
    async fn runtime(&self, namespace: &str, name: &RuntimeName) -> Option<Value> {
        let group = format!("/apis/{}/{}", Kind::Train.group(), Kind::Train.version());
        let path = if name.is_of_cluster() {
            format!("{group}/clustertrainingruntimes")
        } else {
            format!("{group}/namespaces/{namespace}/trainingruntimes")
        };
        self.get::<Value>("get the runtime", &path, &name.name)
            .await
            .ok()
    }
}

fn runtime_name(view: &JobView) -> Option<RuntimeName> {
    RuntimeName::of(&serde_json::from_str(&view.text).ok()?)
}
