//! Carrying out what was decided.
//!
//! Invariant: everything here may be done twice without harm; nothing is decided.

mod autoscaler;
mod group;
mod own;
#[cfg(test)]
mod tests;

use futures::{StreamExt as _, stream};
use kube::core::params::{DeleteParams, Preconditions, PropagationPolicy};
use serde::Serialize;
use serde_json::Value;
use tracing::info;
use trainyard_core::{
    job::{Action, Refusal, Removal, Seat, SharedInputs},
    launch::{self, Cluster, Keys, LaunchedPod, Object, Plan, push::Push},
    spec::{Job, Kind, MpiTransport, Role, Slot},
};

use crate::{
    api::{CallError, Caller},
    clock, crd, identity,
    key::JobKey,
    operator::State,
    ssh,
    view::{Bare, BatchView, PodView},
};

/// Calls for one job that are under way at once.
const AT_ONCE: usize = 16;

/// Why something was refused, as the metric names it.
pub(crate) mod cause {
    /// Somebody else has the name.
    pub(crate) const NAME_TAKEN: &str = "name_taken";
    /// The API server, a webhook or a quota said no.
    pub(crate) const API_SERVER: &str = "api_server";
    /// The pods of the job cannot be built for this cluster.
    pub(crate) const LAUNCH: &str = "launch";
    /// The job names the operator's own account.
    pub(crate) const OPERATOR_ACCOUNT: &str = "operator_account";
}

/// Why an action was not carried out.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The API server refused it; the job's status says so, and it is retried later.
    Refused(Refusal),
    /// The name belongs to somebody else; likewise.
    Taken(Refusal),
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
    /// Where the pods of the job report their progress, if anywhere.
    pub(crate) push: Option<&'a Push>,
    /// Whether the job has pods, so that the objects which come before them are most likely there.
    pub(crate) began: bool,
}

impl Actor<'_> {
    /// Carries `actions` out: neighbours of one sort at once, the sorts one after the other.
    pub(crate) async fn carry_out(&self, actions: &[Action]) -> Result<Vec<Refusal>, CallError> {
        let mut refusals = Vec::new();
        if actions.is_empty() {
            return Ok(refusals);
        }
        let plan = Plan::new(self.job, self.cluster);
        if let Err(error) = &plan
            && actions.iter().any(needs_plan)
        {
            self.caller.metrics.refused(cause::LAUNCH);
            refusals.push(Refusal {
                tried: "build the pods of the job".to_owned(),
                message: error.to_string(),
            });
        }
        let same_sort = |a: &Action, b: &Action| {
            std::mem::discriminant(a) == std::mem::discriminant(b) && !is_launcher(b)
        };
        // Pods start only once what they mount and are called by is there.
        let mut pods_wait = false;
        for group in actions.chunk_by(same_sort) {
            let first = group.first();
            let creates_pods = matches!(first, Some(Action::CreatePod { .. }));
            if plan.is_err() && first.is_some_and(needs_plan) || pods_wait && creates_pods {
                continue;
            }
            let plan = plan.as_ref().ok();
            let calls: Vec<_> = group.iter().map(|action| self.one(plan, action)).collect();
            let mut results = stream::iter(calls).buffer_unordered(AT_ONCE);
            let mut broken = None;
            while let Some(result) = results.next().await {
                match result {
                    Ok(()) => {}
                    Err(Trouble::Refused(refusal)) => {
                        pods_wait |= matches!(first, Some(Action::ApplyShared(_)));
                        self.caller.metrics.refused(cause::API_SERVER);
                        refusals.push(refusal);
                    }
                    Err(Trouble::Taken(refusal)) => {
                        pods_wait |= matches!(
                            first,
                            Some(Action::ApplyShared(_) | Action::CreateService(_))
                        );
                        self.caller.metrics.refused(cause::NAME_TAKEN);
                        refusals.push(refusal);
                    }
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

    /// Closes the port of the preflight that `actions` start to everybody else, where that is asked for.
    pub(crate) async fn prepare_preflight(
        &self,
        actions: &[Action],
    ) -> Result<Vec<Refusal>, CallError> {
        let starts = |action: &Action| matches!(action, Action::StartPreflight { .. });
        let policy = launch::preflight_policy(self.job, self.cluster);
        let Some(policy) = policy.filter(|_| actions.iter().any(starts)) else {
            return Ok(Vec::new());
        };
        match self.make(&policy).await {
            Ok(_) => Ok(Vec::new()),
            Err(Trouble::Refused(refusal)) => {
                self.caller.metrics.refused(cause::API_SERVER);
                Ok(vec![refusal])
            }
            Err(Trouble::Taken(refusal)) => {
                self.caller.metrics.refused(cause::NAME_TAKEN);
                Ok(vec![refusal])
            }
            Err(Trouble::Broken(error)) => Err(error),
        }
    }

    async fn one(&self, plan: Option<&Plan<'_>>, action: &Action) -> Result<(), Trouble> {
        match action {
            Action::CreatePod {
                slot,
                attempt,
                seat,
            } => match plan {
                Some(plan) => self.create_pod(plan, *slot, *attempt, seat).await,
                None => Ok(()),
            },
            Action::SeatPod { slot, uid, node } => self.seat_pod(*slot, uid, node).await,
            Action::AskSeats => {
                self.state
                    .store()
                    .wait_queue
                    .ask(&self.key.gang(), clock::now());
                Ok(())
            }
            Action::ReleaseSeats { why, avoid } => {
                info!(job = %self.key, why, "Releasing the nodes of the gang");
                let mut store = self.state.store();
                store
                    .wait_queue
                    .release_seats(&self.key.gang(), avoid, clock::now());
                Ok(())
            }
            // Run beside the passes: nobody waits for them here.
            Action::StartPreflight { .. } | Action::EndPreflight { .. } => Ok(()),
            Action::DeletePod { slot, uid, removal } => self.delete_pod(*slot, uid, *removal).await,
            Action::CreateService(slot) => self.create_service(*slot).await,
            Action::DeleteService(slot) => {
                let name = self.job.pod_name(*slot);
                let seen = self.state.store().service(self.key, self.uid, &name);
                match seen {
                    Some(uid) => self.remove_own("services", &name, &uid).await,
                    None => Ok(()),
                }
            }
            Action::ApplyShared(inputs) => self.apply_shared(inputs).await,
            Action::ApplyGroup => match plan.and_then(Plan::group) {
                Some(group) => self.apply_group(group).await,
                None => Ok(()),
            },
            Action::DeleteGroup => self.delete_group().await,
            Action::ApplyAutoscaler => self.apply_autoscaler().await,
            Action::DeleteAutoscaler => self.delete_autoscaler().await,
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
                tried: format!("build the pod of {slot}"),
                message: error.to_string(),
            })
        })?;
        launch::take_seat(&mut launched, seat);
        if let Some(push) = self.push {
            launch::push::add(&mut launched, self.job, push);
        }
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
        let hostname = self.state.store().wait_queue.hostname(node);
        let change = launch::release(uid, node, &hostname);
        let name = self.job.pod_name(slot);
        let path = self.path("pods");
        match self.caller.merge::<PodView>(&path, &name, &change).await {
            Ok(pod) => {
                self.state.store().remember_pod(&pod);
                Ok(())
            }
            // Deleted or replaced: its watch event will come.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(trouble(format!("assign pod `{name}` to its node"), error)),
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
            Err(error) if error.is_taken() => self.expect_own(&path, &name, what, tried).await,
            Err(error) => Err(trouble(tried, error)),
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
            .map_err(|message| unable("create the keys of the launcher", message))?;
        let shared = launch::shared(self.job, inputs, keys.as_ref(), self.cluster)
            .map_err(|error| unable("build the objects that the pods share", error.to_string()))?;
        for object in shared {
            self.make(&object).await?;
        }
        let inputs = inputs.clone();
        self.state
            .remember(self.key, |memory| memory.shared = Some(inputs));
        Ok(())
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
        "networkpolicies" => "/apis/networking.k8s.io/v1",
        _ => "/apis/rbac.authorization.k8s.io/v1",
    };
    format!("{group}/namespaces/{namespace}/{resource}")
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

/// What follows from the plan of the job's pods, and cannot be done without it.
fn needs_plan(action: &Action) -> bool {
    matches!(
        action,
        Action::CreatePod { .. } | Action::ApplyShared(_) | Action::ApplyGroup
    )
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
        Object::NetworkPolicy(_) => "networkpolicies",
        Object::Group(group) => group.api.resource(),
    }
}
