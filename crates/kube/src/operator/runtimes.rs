//! `TrainJob`s: whether the cluster serves them so that they can be managed, their runtimes, and the runtime that each is pinned to.
//!
//! ```text
//! schema of the CRD ─▶ can the record be kept? ─▶ watches of the runtimes, then of the jobs
//! runtime (snapshot of the job, else cluster, else built in) + TrainJob ─▶ Job ─▶ the pass of every kind
//! ```
//!
//! Invariants: without `status.trainyard` in the schema of the CRD nothing is made and nothing is written but that; before the first pod
//! of a job is created its runtime is stored beside it, and no pod of the job is made from another one. A cluster without these kinds,
//! or an operator without the rights to them, is as ready as any.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};
use trainyard_core::{
    job::{self, Refusal},
    launch::{Claim, Claimant},
    reason::Reason,
    spec::{self, Kind, RuntimeName},
};

use super::{
    Operator, lost,
    read::{Read, job_or_sentence},
};
use crate::{
    admission::FindRuntime,
    api::CallError,
    feed::{self, Scope, Source},
    key::JobKey,
    metrics::cause,
    path::object_path,
    state::Pinned,
    store::{SeenRuntime, TrainApi},
    view::{Bare, JobView, Meta, RuntimeView},
};

/// How often the operator checks for what is not there, or not as it has to be.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The key of the runtime in its snapshot.
const SNAPSHOT_KEY: &str = "runtime";
/// Where an API server describes the types of the group.
const OPENAPI: &str = "/openapi/v3/apis/trainer.kubeflow.org";
const VERSION: &str = "v1alpha1";
/// What to do where the CRD drops the job record.
const PRUNES: &str = "the CRD `trainjobs.trainer.kubeflow.org` on this cluster has no `status.trainyard`, so the API server drops the job \
                      record: no TrainJob is managed; stop Kubeflow Trainer and apply the CRDs of the component `trainjobs` (chart: `trainJobs.installCRDs`)";

/// A type as the API server describes it.
#[derive(Deserialize)]
struct Described {
    #[serde(default, rename = "x-kubernetes-group-version-kind")]
    names: Vec<Gvk>,
    #[serde(default)]
    properties: Parts,
}

#[derive(Deserialize)]
struct Gvk {
    #[serde(default)]
    kind: String,
}

#[derive(Default, Deserialize)]
struct Parts {
    #[serde(default)]
    status: Option<Fields>,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    properties: StatusFields,
}

#[derive(Default, Deserialize)]
struct StatusFields {
    trainyard: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Openapi {
    components: Components,
}

#[derive(Deserialize)]
struct Components {
    #[serde(default)]
    schemas: BTreeMap<String, Described>,
}

impl Openapi {
    /// Whether the job record survives being stored.
    fn keeps_record(&self) -> Option<bool> {
        let is_job = |it: &&Described| it.names.iter().any(|name| name.kind == Kind::Train.name());
        let job = self.components.schemas.values().find(is_job)?;
        let status = job.properties.status.as_ref();
        Some(status.is_some_and(|it| it.properties.trainyard.is_some()))
    }
}

/// A snapshot as it is stored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Snapshot {
    metadata: Meta,
    data: BTreeMap<String, String>,
}

/// The name of the `ConfigMap` with the runtime of a job.
pub(crate) fn snapshot_name(job: &str) -> String {
    format!("{job}-runtime-snapshot")
}

/// The runtime in the data of such a `ConfigMap`.
pub(crate) fn snapshot_runtime(data: &BTreeMap<String, String>) -> Option<Value> {
    spec::runtime_from_text(data.get(SNAPSHOT_KEY)?)
}

impl Operator {
    /// Where reviews of jobs find runtimes.
    pub(crate) fn find_runtime(&self) -> FindRuntime {
        let state = self.state.clone();
        Arc::new(move |name, namespace| state.store().runtime_named(name, namespace))
    }

    /// Why no `TrainJob` is managed, where they should be.
    pub(crate) fn train_remark(&self) -> Option<String> {
        match self.state.store().train_api() {
            TrainApi::Unable(why) => Some(why.clone()),
            TrainApi::Unknown | TrainApi::Served => None,
        }
    }

    /// Watches `TrainJob`s once the cluster serves them so that they can be managed.
    pub(super) async fn watch_train_jobs(self) {
        let mut tasks = JoinSet::new();
        loop {
            let api = self.check_train_api().await;
            let is_served = api.as_ref().is_some_and(|api| *api == TrainApi::Served);
            if let Some(api) = api {
                self.note_train_api(api);
            }
            if is_served && tasks.is_empty() {
                info!("Watching TrainJobs");
                for of_cluster in [true, false] {
                    tasks.spawn(self.clone().watch_runtimes(of_cluster));
                }
                let group = format!("/apis/{}/{}", Kind::Train.group(), Kind::Train.version());
                let path = self.path(&group, "trainjobs");
                let kinds = vec![Kind::Train];
                let scope = Scope::Optional(kinds.clone());
                self.feed::<JobView>(&mut tasks, path, None, scope, move |state, news| {
                    state.store().update_jobs(news, &kinds)
                });
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                // The operator ends with it, as with a panic in any other watch.
                panic = lost::panic_in(&mut tasks) => std::panic::resume_unwind(panic),
            }
        }
    }

    /// Whether `TrainJob`s can be managed; nothing where that cannot be found out now.
    async fn check_train_api(&self) -> Option<TrainApi> {
        let unable = |why: &str| Some(TrainApi::Unable(why.to_owned()));
        let keeps = match self.caller.get::<Openapi>(OPENAPI, VERSION).await {
            Ok(described) => described.keeps_record(),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                debug!(%error, "Cannot read what the cluster says of TrainJobs");
                return None;
            }
        };
        match keeps {
            None => {
                return unable(
                    "this cluster does not serve `trainjobs` of `trainer.kubeflow.org/v1alpha1`: apply the CRDs of \
                     the component `trainjobs` (chart: `trainJobs.installCRDs`)",
                );
            }
            Some(false) => return unable(PRUNES),
            Some(true) => {}
        }
        let group = format!("/apis/{}/{}", Kind::Train.group(), Kind::Train.version());
        let source = Source {
            path: self.path(&group, "trainjobs"),
            labels: None,
            fields: None,
        };
        if *self.state.store().train_api() == TrainApi::Served {
            return Some(TrainApi::Served);
        }
        match feed::list::<Bare>(&self.caller.client, &source).await {
            Ok(_) => Some(TrainApi::Served),
            Err(kube::Error::Api(status)) if status.code == 403 => unable(
                "the operator may not list `trainjobs` of `trainer.kubeflow.org`: it needs the rights of \
                 the component `trainjobs` (chart: `trainJobs.enabled`)",
            ),
            Err(error) => {
                debug!(%error, "Cannot list TrainJobs; retrying");
                None
            }
        }
    }

    fn note_train_api(&self, api: TrainApi) {
        let why = match &api {
            TrainApi::Unable(why) => Some(why.clone()),
            _ => None,
        };
        let (is_new, changed) = self.state.store().set_train_api(api);
        if let Some(why) = why.filter(|_| is_new) {
            warn!(sentence = why, "TrainJobs are not managed");
        }
        self.queue.enqueue_all(changed);
    }

    /// Watches the runtimes of the cluster, or those of namespaces.
    async fn watch_runtimes(self, of_cluster: bool) {
        let group = format!("/apis/{}/{}", Kind::Train.group(), Kind::Train.version());
        let path = if of_cluster {
            format!("{group}/clustertrainingruntimes")
        } else {
            self.path(&group, "trainingruntimes")
        };
        let source = Source {
            path,
            labels: None,
            fields: None,
        };
        let client = self.caller.client.clone();
        loop {
            let why = match feed::list::<Bare>(&client, &source).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    "the cluster does not serve runtimes of this kind; their CRD is not installed"
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    "the operator may not list runtimes of this kind"
                }
                Err(error) => {
                    debug!(%error, "Cannot list runtimes; retrying");
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
            };
            let noted = self
                .state
                .store()
                .mark_runtimes_unavailable(of_cluster, why.to_owned());
            let (is_new, changed) = noted;
            if is_new {
                warn!(
                    path = source.path,
                    sentence = why,
                    "Cannot list runtimes; those that are built in are used"
                );
            }
            self.queue.enqueue_all(changed);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let (state, queue) = (self.state.clone(), Arc::clone(&self.queue));
        let metrics = &self.caller.metrics;
        let pulse = self.feeds.expect(&source.path, Scope::Reported, metrics);
        feed::list_and_watch_with::<RuntimeView>(client, source, pulse, move |news| {
            let changed = state.store().update_runtimes(of_cluster, news);
            queue.enqueue_all(changed);
        })
        .await;
    }

    /// The `TrainJob` of `view` with its runtime.
    pub(super) async fn read_train_job(
        &self,
        key: &JobKey,
        view: &JobView,
    ) -> Result<Read, CallError> {
        if *self.state.store().train_api() != TrainApi::Served {
            return Ok(Read::Leave);
        }
        let object: Value = match serde_json::from_str(&view.text) {
            Ok(object) => object,
            Err(error) => return Ok(Read::Invalid(format!("it is not JSON: {error}"))),
        };
        if spec::foreign_manager(&object).is_some() {
            return Ok(Read::Leave);
        }
        let Some(name) = RuntimeName::of(&object) else {
            // What is wrong with the reference is found in it.
            let checked = spec::train_job_from_value(&object, None);
            return Ok(match job_or_sentence(checked) {
                Ok(job) => Read::Job(Box::new(job), None),
                Err(sentence) => Read::Invalid(sentence),
            });
        };
        let has_ended = view
            .read_status()
            .is_ok_and(|status| job::has_ended(&status));
        let (runtime, is_pinned) = match self.pinned_runtime(key, &view.metadata.uid, &name).await?
        {
            Ok(Some(runtime)) => (runtime, true),
            Ok(None) => {
                let seen = self.state.store().runtime(&name, key);
                let runtime = match (seen, name.built_in()) {
                    (SeenRuntime::There(runtime), _) => runtime,
                    (SeenRuntime::Missing(_), Some(built_in)) => Arc::new(built_in),
                    (SeenRuntime::Unknown, _) => return Ok(Read::Leave),
                    (SeenRuntime::Missing(_), None) if has_ended => return Ok(Read::Leave),
                    (SeenRuntime::Missing(why), None) => {
                        let runtime = name.words();
                        return Ok(Read::Waits(Reason::NoRuntime { runtime, why }));
                    }
                };
                (runtime, false)
            }
            Err(_) if has_ended => return Ok(Read::Leave),
            Err(sentence) => return Ok(Read::Blocked(sentence)),
        };
        let checked = spec::train_job_from_value(&object, Some(&runtime));
        Ok(match job_or_sentence(checked) {
            Ok(job) => Read::Job(Box::new(job), (!is_pinned).then_some(runtime)),
            Err(_) if has_ended => Read::Leave,
            Err(sentence) => Read::Invalid(sentence),
        })
    }

    /// Stores the runtime of a job beside it, before its first pod; why it cannot be, where that is so.
    pub(super) async fn pin_runtime(
        &self,
        key: &JobKey,
        uid: &str,
        runtime: &Arc<Value>,
    ) -> Result<Option<Refusal>, CallError> {
        let path = object_path(&key.namespace, "configmaps");
        let name = snapshot_name(&key.name);
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "ownerReferences": [{
                    "apiVersion": key.kind.api_version(),
                    "kind": key.kind.name(),
                    "name": key.name,
                    "uid": uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "data": { SNAPSHOT_KEY: spec::to_yaml(runtime) },
            "immutable": true,
        });
        let tried = || format!("create ConfigMap `{name}` with the runtime");
        match self.caller.create::<Bare>(&path, &object).await {
            Ok(_) => {
                self.remember_pinned(key, uid, runtime);
                Ok(None)
            }
            Err(error) if error.is_taken() => {
                let there: Bare = self.caller.get(&path, &name).await?;
                // This job's own is read by the next pass, which a conflict asks for.
                let refusal = claim(key, uid, &there.metadata).refusal("ConfigMap");
                let Some(message) = refusal else {
                    return Err(error);
                };
                self.caller.metrics.refused(cause::NAME_TAKEN);
                Ok(Some(Refusal::new(tried(), message)))
            }
            Err(error) if error.is_refusal() => {
                self.caller.metrics.refused(cause::API_SERVER);
                Ok(Some(Refusal::new(tried(), error.to_string())))
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that the API server dropped the record of a job that was just written.
    pub(super) fn note_pruned_record(&self, key: &JobKey) {
        warn!(job = %key, "The job record was dropped when it was stored");
        self.note_train_api(TrainApi::Unable(PRUNES.to_owned()));
    }

    /// The runtime that the job is pinned to, where it is; the error says why its snapshot cannot be used.
    async fn pinned_runtime(
        &self,
        key: &JobKey,
        uid: &str,
        name: &RuntimeName,
    ) -> Result<Result<Option<Arc<Value>>, String>, CallError> {
        let known = self
            .state
            .memory(key)
            .runtime
            .filter(|known| known.uid == uid);
        if let Some(known) = known {
            return Ok(Ok(Some(known.runtime)));
        }
        let path = object_path(&key.namespace, "configmaps");
        let snapshot_name = snapshot_name(&key.name);
        let snapshot = match self.caller.get::<Snapshot>(&path, &snapshot_name).await {
            Ok(snapshot) => snapshot,
            Err(error) if error.is_not_found() => return Ok(Ok(None)),
            Err(error) => return Err(error),
        };
        let meta = &snapshot.metadata;
        if meta.owner() != uid {
            // That of a job of the same name before this one is collected.
            let claim = claim(key, uid, meta);
            let why = claim.refusal("ConfigMap").unwrap_or_default();
            return Ok(Err(format!(
                "the runtime cannot be stored in ConfigMap `{snapshot_name}`: {why}"
            )));
        }
        let runtime = snapshot_runtime(&snapshot.data).filter(|runtime| name.is_name_of(runtime));
        let Some(runtime) = runtime else {
            return Ok(Err(format!(
                "ConfigMap `{snapshot_name}` does not hold the {} that the job began with under the key `{SNAPSHOT_KEY}`; delete the job and \
                 create it again",
                name.words()
            )));
        };
        let runtime = Arc::new(runtime);
        self.remember_pinned(key, uid, &runtime);
        Ok(Ok(Some(runtime)))
    }

    fn remember_pinned(&self, key: &JobKey, uid: &str, runtime: &Arc<Value>) {
        let pinned = Pinned {
            uid: uid.to_owned(),
            runtime: Arc::clone(runtime),
        };
        self.state
            .remember(key, |memory| memory.runtime = Some(pinned));
        self.state.store().forget_runtimes(key);
    }
}

/// Whose the object of `meta` is.
fn claim(key: &JobKey, uid: &str, meta: &Meta) -> Claim {
    let claimant = Claimant {
        kind: key.kind,
        name: &key.name,
        uid,
    };
    let leaves = meta.deletion_timestamp.is_some();
    Claim::of(claimant, &meta.owner_references, leaves)
}
