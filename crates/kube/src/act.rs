//! Carrying out what was decided.
//!
//! Invariant: everything here may be done twice without harm; nothing is decided.

use futures::{StreamExt as _, stream};
use kube::core::params::{DeleteParams, Preconditions, PropagationPolicy};
use serde::Serialize;
use serde_json::Value;
use tracing::info;
use trainyard_core::{
    job::{Action, Refusal, Removal, Seat, SharedInputs},
    launch::{self, Cluster, Existing, GroupApi, Keys, LaunchedPod, Object, Plan},
    spec::{Job, Kind, MpiTransport, Role, Slot},
};

use crate::{
    api::{CallError, Caller},
    clock, crd, identity,
    key::JobKey,
    operator::{Scaler, State, as_applied, unserved},
    ssh,
    view::{Bare, BatchView, GroupView, PodView},
};

/// Calls for one job that are under way at once.
const AT_ONCE: usize = 16;

/// Why an action was not carried out.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The API server refused it; the job is told, and it is tried again later.
    Refused(Refusal),
    /// The call itself failed; the pass is tried again.
    Broken(CallError),
}

/// Acts for one job.
pub(crate) struct Actor<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) state: &'a State,
    pub(crate) key: &'a JobKey,
    pub(crate) job: &'a Job,
    pub(crate) uid: &'a str,
    pub(crate) cluster: &'a Cluster,
}

impl Actor<'_> {
    /// Carries `actions` out: neighbours of one sort at once, the sorts one after the other.
    pub(crate) async fn carry_out(&self, actions: &[Action]) -> Result<Vec<Refusal>, CallError> {
        let mut refusals = Vec::new();
        if actions.is_empty() {
            return Ok(refusals);
        }
        let plan = match Plan::new(self.job, self.cluster) {
            Ok(plan) => plan,
            Err(error) => {
                return Ok(vec![Refusal {
                    tried: "lay out the job's pods".to_owned(),
                    message: error.to_string(),
                }]);
            }
        };
        let same_sort = |a: &Action, b: &Action| {
            std::mem::discriminant(a) == std::mem::discriminant(b) && !is_launcher(b)
        };
        for group in actions.chunk_by(same_sort) {
            let calls: Vec<_> = group.iter().map(|action| self.one(&plan, action)).collect();
            let mut results = stream::iter(calls).buffer_unordered(AT_ONCE);
            let mut broken = None;
            while let Some(result) = results.next().await {
                match result {
                    Ok(()) => {}
                    Err(Trouble::Refused(refusal)) => refusals.push(refusal),
                    Err(Trouble::Broken(error)) => broken = Some(error),
                }
            }
            if let Some(error) = broken {
                return Err(error);
            }
        }
        // Calls end in any order; what is reported must not depend on it.
        refusals.sort_by(|a, b| a.tried.cmp(&b.tried));
        Ok(refusals)
    }

    async fn one(&self, plan: &Plan<'_>, action: &Action) -> Result<(), Trouble> {
        match action {
            Action::CreatePod {
                slot,
                attempt,
                seat,
            } => self.create_pod(plan, *slot, *attempt, seat).await,
            Action::SeatPod { slot, uid, node } => self.seat_pod(*slot, uid, node).await,
            Action::AskSeats => {
                self.state.store().line.ask(&self.key.gang(), clock::now());
                Ok(())
            }
            Action::GiveSeatsBack { why, avoid } => {
                info!(job = %self.key, why, "the gang gives its seats back");
                let mut store = self.state.store();
                store.line.give_back(&self.key.gang(), avoid, clock::now());
                Ok(())
            }
            // Run beside the passes: nobody waits for them here.
            Action::StartPreflight { .. } | Action::EndPreflight { .. } => Ok(()),
            Action::DeletePod { slot, uid, removal } => self.delete_pod(*slot, uid, *removal).await,
            Action::CreateService(slot) => self.create_service(*slot).await,
            Action::DeleteService(slot) => {
                let name = self.job.pod_name(*slot);
                self.remove("services", &name, &DeleteParams::default())
                    .await
            }
            Action::ApplyShared(inputs) => self.apply_shared(inputs).await,
            Action::ApplyGroup => self.apply_group(plan).await,
            Action::DeleteGroup => self.delete_group(plan).await,
            Action::ApplyAutoscaler => {
                let Some(autoscaler) = launch::autoscaler(self.job) else {
                    return Ok(());
                };
                let made = Scaler::Made(Box::new(autoscaler.spec.clone()));
                self.make(&Object::Autoscaler(Box::new(autoscaler))).await?;
                self.state
                    .remember(self.key, |memory| memory.autoscaler = made);
                Ok(())
            }
            Action::DeleteAutoscaler => {
                let path = self.path("horizontalpodautoscalers");
                let name = self.job.name.as_str();
                self.caller
                    .delete(&path, name, &DeleteParams::default())
                    .await
                    .map_err(Trouble::Broken)?;
                self.state
                    .remember(self.key, |memory| memory.autoscaler = Scaler::Missing);
                Ok(())
            }
            Action::DeleteJob => {
                let path = job_path(self.key);
                let params = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Background),
                    preconditions: Some(this(self.uid)),
                    ..DeleteParams::default()
                };
                self.caller
                    .delete(&path, &self.key.name, &params)
                    .await
                    .map_err(Trouble::Broken)?;
                self.caller.metrics.ttl_deleted(self.key);
                Ok(())
            }
        }
    }

    async fn create_pod(
        &self,
        plan: &Plan<'_>,
        slot: Slot,
        attempt: u32,
        seat: &Seat,
    ) -> Result<(), Trouble> {
        let mut launched = plan.pod(slot, attempt).map_err(|error| {
            Trouble::Refused(Refusal {
                tried: format!("lay out the pod of {slot}"),
                message: error.to_string(),
            })
        })?;
        launch::take_seat(&mut launched, seat);
        let is_batch = matches!(launched, LaunchedPod::Job(_));
        let object = Object::from(launched);
        if is_batch {
            if let Some(job) = self
                .send::<BatchView>(plan, &object, "launcher", slot)
                .await?
            {
                self.state.store().remember_launcher(&job);
            }
        } else if let Some(pod) = self.send::<PodView>(plan, &object, "pod", slot).await? {
            self.state.store().remember_pod(&pod);
        }
        Ok(())
    }

    /// Creates the pod of `slot`.
    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        plan: &Plan<'_>,
        object: &Object,
        what: &str,
        slot: Slot,
    ) -> Result<Option<T>, Trouble> {
        let resource = resource(object);
        if plan.has_unknown_fields() {
            let value = plan.written(object);
            return self.create(resource, &value, what, slot).await;
        }
        self.create(resource, object, what, slot).await
    }

    /// Lets a pod go that was held back.
    async fn seat_pod(&self, slot: Slot, uid: &str, node: &str) -> Result<(), Trouble> {
        let hostname = self.state.store().line.hostname(node);
        let change = launch::release(uid, node, &hostname);
        let name = self.job.pod_name(slot);
        let path = self.path("pods");
        match self.caller.merge::<PodView>(&path, &name, &change).await {
            Ok(pod) => {
                self.state.store().remember_pod(&pod);
                Ok(())
            }
            // Gone, or another by now: its news is under way.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(trouble(format!("let pod `{name}` go to its seat"), error)),
        }
    }

    async fn create_service(&self, slot: Slot) -> Result<(), Trouble> {
        let Some(service) = launch::service(self.job, slot) else {
            return Ok(());
        };
        if let Some(made) = self
            .create::<Bare>("services", &service, "Service", slot)
            .await?
        {
            self.state.store().remember_service(made);
        }
        Ok(())
    }

    /// Creates an object of `slot`; nothing where it is there already.
    async fn create<T: serde::de::DeserializeOwned>(
        &self,
        resource: &str,
        object: &impl Serialize,
        what: &str,
        slot: Slot,
    ) -> Result<Option<T>, Trouble> {
        let path = self.path(resource);
        let name = self.job.pod_name(slot);
        let tried = format!("create {what} `{name}`");
        match self.caller.create(&path, object).await {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.is_taken() => self.whose(&path, &name, tried).await,
            Err(error) => Err(trouble(tried, error)),
        }
    }

    /// An object of that name is there: this job's is what was wanted, another's is in the way.
    async fn whose<T>(&self, path: &str, name: &str, tried: String) -> Result<Option<T>, Trouble> {
        match self.caller.get::<Bare>(path, name).await {
            Ok(there) if there.metadata.owner() == self.uid => Ok(None),
            Ok(there) => {
                let mut owners = there.metadata.owner_references.iter();
                let owner = owners.find(|owner| owner.controller == Some(true));
                let owner = owner.map_or("nobody".to_owned(), |owner| {
                    format!("{} `{}`", owner.kind, owner.name)
                });
                Err(Trouble::Refused(Refusal {
                    tried,
                    message: format!("that name is taken by an object that {owner} owns"),
                }))
            }
            // Gone meanwhile: the next pass creates it.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(Trouble::Broken(error)),
        }
    }

    async fn delete_pod(&self, slot: Slot, uid: &str, removal: Removal) -> Result<(), Trouble> {
        let name = self.job.pod_name(slot);
        let mut params = DeleteParams {
            preconditions: Some(this(uid)),
            ..DeleteParams::default()
        };
        if removal == Removal::Forced {
            params.grace_period_seconds = Some(0);
        }
        if self.job.kind == Kind::MpiV2 && slot.role == Role::Launcher {
            // The batch Job stands for its pod, and stays until that is gone.
            params.propagation_policy = Some(match removal {
                Removal::Graceful => PropagationPolicy::Foreground,
                Removal::Forced => PropagationPolicy::Background,
            });
            return self.remove("jobs", &name, &params).await;
        }
        self.remove("pods", &name, &params).await
    }

    async fn remove(
        &self,
        resource: &str,
        name: &str,
        params: &DeleteParams,
    ) -> Result<(), Trouble> {
        let path = self.path(resource);
        self.caller
            .delete(&path, name, params)
            .await
            .map_err(|error| trouble(format!("delete `{name}`"), error))
    }

    async fn apply_shared(&self, inputs: &SharedInputs) -> Result<(), Trouble> {
        let unable = |tried: &str, message: String| {
            Trouble::Refused(Refusal {
                tried: tried.to_owned(),
                message,
            })
        };
        // A Secret that is there is kept, and nobody reads it to find out: the rights to read Secrets
        // are not ours.
        let keys = self
            .keys()
            .map_err(|message| unable("make the keys of the launcher", message))?;
        let shared = launch::shared(self.job, inputs, keys.as_ref(), self.cluster)
            .map_err(|error| unable("lay out what the pods share", error.to_string()))?;
        for object in shared {
            self.make(&object).await?;
        }
        let inputs = inputs.clone();
        self.state
            .remember(self.key, |memory| memory.shared = Some(inputs));
        Ok(())
    }

    /// Tells another scheduler of the gang.
    async fn apply_group(&self, plan: &Plan<'_>) -> Result<(), Trouble> {
        let Some(group) = plan.group() else {
            return Ok(());
        };
        let api = group.api;
        let there = self.state.store().group(api, self.key).cloned();
        let value = as_applied(group, there.as_ref().map_or("", |there| &there.queue));
        let name = self.job.name.as_str();
        let tried = format!("apply {} `{name}`", api.kind());
        let path = group_path(&self.key.namespace, api);
        match self.caller.apply::<GroupView>(&path, name, &value).await {
            Ok(made) => {
                self.state.store().remember_group(api, &made);
                self.state
                    .remember(self.key, |memory| memory.group = Some(value));
                Ok(())
            }
            Err(error) if error.is_not_found() => Err(Trouble::Refused(Refusal {
                tried,
                message: unserved(api),
            })),
            // What cannot be changed is made anew, once it is gone.
            Err(error) if error.is_refusal() && is_native(api) && there.is_some() => {
                info!(job = %self.key, %error, kind = api.kind(), "the group is made anew");
                self.delete_group(plan).await
            }
            Err(error) => Err(trouble(tried, error)),
        }
    }

    /// Deletes what another scheduler was told.
    async fn delete_group(&self, plan: &Plan<'_>) -> Result<(), Trouble> {
        let Some(api) = plan.group().map(|group| group.api) else {
            return Ok(());
        };
        let Some(there) = self.state.store().group(api, self.key).cloned() else {
            return Ok(());
        };
        let params = DeleteParams {
            preconditions: Some(this(&there.uid)),
            ..DeleteParams::default()
        };
        let name = self.job.name.as_str();
        let path = group_path(&self.key.namespace, api);
        self.caller
            .delete(&path, name, &params)
            .await
            .map_err(|error| trouble(format!("delete {} `{name}`", api.kind()), error))
    }

    /// What the launcher of an `MPIJob` enters its workers with.
    fn keys(&self) -> Result<Option<Keys>, String> {
        let transport = launch::transport(self.job, self.cluster);
        match transport.map_err(|error| error.to_string())? {
            Some(MpiTransport::Agent) => identity::make().map(Keys::Agent).map(Some),
            Some(MpiTransport::Ssh) => ssh::key().map(Keys::Ssh).map(Some),
            Some(MpiTransport::Kubectl) | None => Ok(None),
        }
    }

    /// Creates an object, or brings it up to date.
    async fn make(&self, object: &Object) -> Result<(), Trouble> {
        let value = object.to_value();
        let resource = resource(object);
        let path = self.path(resource);
        let name = object.name();
        let tried = format!("apply {} `{name}`", kind(&value));
        let made = match object.existing() {
            Existing::Keep => match self.caller.create::<Bare>(&path, &value).await {
                Err(error) if error.is_taken() => return Ok(()),
                made => made,
            },
            Existing::Update => self.caller.apply::<Bare>(&path, name, &value).await,
        };
        made.map(drop).map_err(|error| trouble(tried, error))
    }

    fn path(&self, resource: &str) -> String {
        object_path(&self.key.namespace, resource)
    }
}

/// Where the API serves `resource` of `namespace`.
pub(crate) fn object_path(namespace: &str, resource: &str) -> String {
    let group = match resource {
        "pods" | "services" | "configmaps" | "secrets" | "serviceaccounts" => "/api/v1",
        "jobs" => "/apis/batch/v1",
        "horizontalpodautoscalers" => "/apis/autoscaling/v2",
        _ => "/apis/rbac.authorization.k8s.io/v1",
    };
    format!("{group}/namespaces/{namespace}/{resource}")
}

fn is_native(api: GroupApi) -> bool {
    matches!(api, GroupApi::Native(_))
}

/// Where `api` serves the groups of `namespace`.
fn group_path(namespace: &str, api: GroupApi) -> String {
    format!(
        "/apis/{}/{}/namespaces/{namespace}/{}",
        api.group(),
        api.version(),
        api.resource()
    )
}

/// Where the API serves the jobs of the kind and namespace of `key`.
pub(crate) fn job_path(key: &JobKey) -> String {
    format!(
        "/apis/{}/{}/namespaces/{}/{}",
        crd::GROUP,
        crd::version(stored_as(key.kind)),
        key.namespace,
        crd::plural(key.kind)
    )
}

/// The kind as which jobs of `kind` are stored, and therefore read and written without conversion.
pub(crate) fn stored_as(kind: Kind) -> Kind {
    if kind.is_mpi() {
        crd::MPI_STORAGE
    } else {
        kind
    }
}

fn is_launcher(action: &Action) -> bool {
    matches!(action, Action::CreatePod { slot, .. } if slot.role == Role::Launcher)
}

fn this(uid: &str) -> Preconditions {
    Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    }
}

fn trouble(tried: String, error: CallError) -> Trouble {
    if error.is_refusal() {
        let message = error.to_string();
        Trouble::Refused(Refusal { tried, message })
    } else {
        Trouble::Broken(error)
    }
}

fn kind(value: &Value) -> &str {
    value
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The name of an object's type in paths.
pub(crate) fn resource(object: &Object) -> &'static str {
    match object {
        Object::Pod(_) => "pods",
        Object::Job(_) => "jobs",
        Object::Service(_) => "services",
        Object::ConfigMap(_) => "configmaps",
        Object::Secret(_) => "secrets",
        Object::ServiceAccount(_) => "serviceaccounts",
        Object::Role(_) => "roles",
        Object::RoleBinding(_) => "rolebindings",
        Object::Autoscaler(_) => "horizontalpodautoscalers",
        Object::Group(group) => group.api.resource(),
    }
}
