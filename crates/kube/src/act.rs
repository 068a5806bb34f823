//! Carrying out what was decided.
//!
//! Invariant: everything here may be done twice without harm; nothing is decided.

mod autoscaler;
mod group;
mod own;
#[cfg(test)]
mod tests;

pub(crate) use self::group::{as_applied, unserved};

use futures::{StreamExt as _, stream};
use kube::core::params::{DeleteParams, Preconditions, PropagationPolicy};
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;
use tracing::info;
use trainyard_core::{
    job::{Action, Refusal, Removal, Seat, SharedInputs},
    launch::{self, Cluster, Keys, LaunchError, LaunchedPod, Object, Plan, StartPoint, push::Push},
    spec::{Job, Kind, MpiTransport, Policy, Role, Slot, annotation},
};

use crate::{
    api::{CallError, Caller},
    clock,
    event::{Events, PodChange, PodEvent, fold},
    identity,
    key::JobKey,
    metrics::cause,
    path::{job_path, object_path, resource},
    plain::sentence,
    ssh::{self, SshKeyError},
    state::State,
    view::{Bare, BatchView, PodView},
};

/// Calls for one job that are under way at once.
const AT_ONCE: usize = 16;

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

/// What became of an action that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Changed,
    /// Nothing was left to do.
    Unchanged,
}

/// Acts for one job.
pub(crate) struct Actor<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) state: &'a State,
    pub(crate) events: &'a Events,
    pub(crate) key: &'a JobKey,
    pub(crate) job: &'a Job,
    pub(crate) uid: &'a str,
    pub(crate) cluster: &'a Cluster,
    /// Where the pods of the job report their progress, if anywhere.
    pub(crate) push: Option<&'a Push>,
    /// What is known of the checkpoints that pods start from.
    pub(crate) start: StartPoint,
    /// Whether the job has pods, so that the objects which come before them are most likely there.
    pub(crate) began: bool,
}

impl Actor<'_> {
    /// Carries `actions` out: neighbours of one sort at once, the sorts one after the other.
    pub(crate) async fn carry_out(
        &self,
        actions: &[Action],
        attempt: u32,
    ) -> Result<Vec<Refusal>, CallError> {
        let mut happened = Vec::new();
        let refusals = self
            .carry_out_in_order(actions, attempt, &mut happened)
            .await;
        for draft in fold(self.job.total_replicas(), &happened) {
            self.events.put(self.key, self.uid, draft);
        }
        refusals
    }

    async fn carry_out_in_order(
        &self,
        actions: &[Action],
        attempt: u32,
        happened: &mut Vec<PodEvent>,
    ) -> Result<Vec<Refusal>, CallError> {
        let mut refusals = Vec::new();
        if actions.is_empty() {
            return Ok(refusals);
        }
        let mut plan = Plan::new(self.job, self.cluster);
        if let Ok(plan) = &mut plan {
            plan.start_from(self.start);
        }
        if let Err(error) = &plan
            && actions.iter().any(needs_plan)
        {
            self.caller.metrics.refused(cause::LAUNCH);
            let tried = "build the pods of the job";
            refusals.push(Refusal::new(tried, error.to_string()));
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
            let calls: Vec<_> = group
                .iter()
                .map(|action| async move { (action, self.one(plan, action).await) })
                .collect();
            let mut results = stream::iter(calls).buffer_unordered(AT_ONCE);
            let mut broken = None;
            while let Some((action, result)) = results.next().await {
                happened.extend(self.pod_event(action, attempt, &result));
                match result {
                    Ok(_) => {}
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

    /// What an action did to a pod.
    fn pod_event(
        &self,
        action: &Action,
        attempt: u32,
        result: &Result<Done, Trouble>,
    ) -> Option<PodEvent> {
        let slot = match action {
            Action::CreatePod { slot, .. } | Action::DeletePod { slot, .. } => *slot,
            _ => return None,
        };
        let creates = matches!(action, Action::CreatePod { .. });
        let (change, text) = match result {
            Ok(Done::Unchanged) | Err(Trouble::Broken(_)) => return None,
            Ok(Done::Changed) => {
                let is_mpi_worker = self.job.kind == Kind::MpiV1 && slot.role == Role::Worker;
                let change = match creates {
                    true if is_mpi_worker => PodChange::CreatedWorker,
                    true => PodChange::Created,
                    false => PodChange::Deleted,
                };
                (change, self.job.pod_name(slot))
            }
            Err(Trouble::Refused(refusal) | Trouble::Taken(refusal)) => {
                let failed = if creates {
                    PodChange::CreateFailed
                } else {
                    PodChange::DeleteFailed
                };
                (failed, refusal.message.clone())
            }
        };
        Some(PodEvent {
            change,
            attempt,
            text,
        })
    }

    async fn one(&self, plan: Option<&Plan<'_>>, action: &Action) -> Result<Done, Trouble> {
        match action {
            Action::CreatePod {
                slot,
                attempt,
                seat,
                waits,
            } => match plan {
                Some(plan) => {
                    let launched = if *waits {
                        plan.waiting_pod(*slot, *attempt)
                    } else {
                        plan.pod(*slot, *attempt)
                    };
                    self.create_pod(plan, *slot, launched, seat).await
                }
                None => Ok(Done::Unchanged),
            },
            Action::DeletePod { slot, uid, removal } => {
                let was_there = self.delete_pod(*slot, uid, *removal).await?;
                Ok(if was_there {
                    Done::Changed
                } else {
                    Done::Unchanged
                })
            }
            action => self.one_other(plan, action).await.map(|()| Done::Changed),
        }
    }

    /// An action that creates and deletes no pod.
    async fn one_other(&self, plan: Option<&Plan<'_>>, action: &Action) -> Result<(), Trouble> {
        match action {
            Action::SeatPod { slot, uid, node } => self.seat_pod(*slot, uid, node).await,
            Action::AskSeats => {
                self.state
                    .store()
                    .fleet
                    .queue
                    .ask(&self.key.gang(), clock::now());
                Ok(())
            }
            Action::ReleaseSeats { why, avoid } => {
                info!(job = %self.key, why, "Releasing the nodes of the gang");
                let mut store = self.state.store();
                store
                    .fleet
                    .queue
                    .release_seats(&self.key.gang(), avoid, clock::now());
                Ok(())
            }
            Action::RelabelPod {
                slot,
                uid,
                from,
                attempt,
            } => self.relabel_pod(*slot, uid, *from, *attempt).await,
            // Pods are created and deleted above. Preflights run beside the passes: nobody waits for them here.
            Action::CreatePod { .. }
            | Action::DeletePod { .. }
            | Action::StartPreflight { .. }
            | Action::EndPreflight { .. } => Ok(()),
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
        launched: Result<LaunchedPod, LaunchError>,
        seat: &Seat,
    ) -> Result<Done, Trouble> {
        let mut launched = launched.map_err(|error| {
            let tried = format!("build the pod of {slot}");
            Trouble::Refused(Refusal::new(tried, error.to_string()))
        })?;
        launch::take_seat(&mut launched, seat);
        if let Some(push) = self.push {
            launch::push::add(&mut launched, self.job, push);
        }
        let is_batch = matches!(launched, LaunchedPod::Job(_));
        let object = Object::from(launched);
        if is_batch {
            let made = self.send::<BatchView>(plan, &object, "launcher", slot);
            if let Some(job) = made.await? {
                self.state.store().remember_launcher(&job);
                return Ok(Done::Changed);
            }
        } else if let Some(pod) = self.send::<PodView>(plan, &object, "pod", slot).await? {
            self.state.store().remember_pod(&pod);
            return Ok(Done::Changed);
        }
        Ok(Done::Unchanged)
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
        let hostname = self.state.store().fleet.queue.hostname(node);
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

    /// Lets the label of a pod carry another attempt, if it is this incarnation and carries `from`.
    async fn relabel_pod(
        &self,
        slot: Slot,
        uid: &str,
        from: u32,
        attempt: u32,
    ) -> Result<(), Trouble> {
        let name = self.job.pod_name(slot);
        let path = self.path("pods");
        let label = format!(
            "/metadata/labels/{}",
            annotation::ATTEMPT.replace('/', "~1")
        );
        let operations = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": label, "value": from.to_string()},
            {"op": "replace", "path": label, "value": attempt.to_string()},
        ]);
        let patched = self
            .caller
            .json_patched::<PodView>(&path, &name, &operations);
        match patched.await {
            Ok(pod) => {
                self.state.store().remember_pod(&pod);
                Ok(())
            }
            // Deleted, replaced, or relabelled before: its watch event will come.
            Err(error)
                if error.is_not_found() || error.is_conflict() || error.code() == Some(422) =>
            {
                Ok(())
            }
            Err(error) => Err(trouble(format!("label pod `{name}`"), error)),
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

    /// Removes a pod; whether it was there.
    async fn delete_pod(&self, slot: Slot, uid: &str, removal: Removal) -> Result<bool, Trouble> {
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
    ) -> Result<bool, Trouble> {
        let path = self.path(resource);
        self.caller
            .delete(&path, name, params)
            .await
            .map_err(|error| trouble(format!("delete `{name}`"), error))
    }

    async fn apply_shared(&self, inputs: &SharedInputs) -> Result<(), Trouble> {
        let unable = |tried: &str, message: String| Trouble::Refused(Refusal::new(tried, message));
        // A Secret that is there is kept, and nobody reads it to find out: the rights to read Secrets
        // are not ours.
        let keys = self
            .keys()
            .map_err(|error| unable("create the keys of the launcher", sentence(&error)))?;
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

    /// What the launcher of an `MPIJob` enters its workers with, and what supervisors show each other.
    fn keys(&self) -> Result<Option<Keys>, KeysError> {
        let identity = || {
            Ok(Some(Keys::Agent(
                identity::make().map_err(KeysError::Agent)?,
            )))
        };
        if launch::supervise::obstacle(self.job, self.cluster).is_none() {
            return identity();
        }
        let policy = self.job.train().map(|own| &own.policy);
        if matches!(policy, Some(Policy::Mpi { .. })) {
            return Ok(Some(Keys::Ssh(ssh::key().map_err(KeysError::Ssh)?)));
        }
        let transport = launch::transport(self.job, self.cluster);
        Ok(match transport.map_err(KeysError::Transport)? {
            Some(MpiTransport::Agent) => identity()?,
            Some(MpiTransport::Ssh) => Some(Keys::Ssh(ssh::key().map_err(KeysError::Ssh)?)),
            Some(MpiTransport::Kubectl) | None => None,
        })
    }

    fn path(&self, resource: &str) -> String {
        object_path(&self.key.namespace, resource)
    }
}

/// Why the launcher of an `MPIJob` has no keys.
#[derive(Debug, Error)]
enum KeysError {
    #[error(transparent)]
    Transport(LaunchError),
    #[error("cannot create a certificate")]
    Agent(#[source] rcgen::Error),
    #[error(transparent)]
    Ssh(SshKeyError),
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
        Trouble::Refused(Refusal::new(tried, error.to_string()))
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
