//! The `PodGroup` or `Workload` for another scheduler: how many pods of a gang must start together, and what
//! they need.
//!
//! Invariant: the gang is counted as it is started. A launcher that is created when its workers run is in what
//! the gang needs, and not among the pods that have to exist at once: no scheduler would ever see them all.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
use serde_json::{Map, Value, json};

use super::{GangScheduler, LaunchError, Plan, pod};
use crate::{
    resources::{self, Resources},
    spec::{Job, Kind, Role, SchedulingPolicy, Slot, gang_minimum},
};

/// The annotation with the Volcano queue that the old operator of `MPIJob` v2beta1 reads.
const QUEUE_NAME: &str = "scheduling.volcano.sh/queue-name";
/// Annotations of a job that say nothing about its gang: our own, and what `kubectl` keeps.
const OUR_PREFIX: &str = "trainyard.dev/";
/// The one group of pods in a Workload.
pub(super) const NATIVE_GROUP: &str = "gang";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The API for gangs of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupApi {
    /// That of Volcano.
    Volcano,
    /// That of the coscheduling plugin.
    Coscheduling,
    /// Kubernetes' own.
    Native(NativeApi),
}

/// The shapes that Kubernetes' own API for gangs has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NativeApi {
    /// A `Workload` holds the gang and pods refer to it: Kubernetes 1.35, `v1alpha1`.
    #[default]
    Workload,
    /// A `PodGroup` is the gang: Kubernetes 1.36, `v1alpha2`.
    PodGroupAlpha2,
    /// The same in Kubernetes 1.37, `v1alpha3`.
    PodGroupAlpha3,
}

impl NativeApi {
    /// Every one, the newest first.
    pub const ALL: [Self; 3] = [Self::PodGroupAlpha3, Self::PodGroupAlpha2, Self::Workload];

    /// Its version.
    pub fn version(self) -> &'static str {
        match self {
            Self::Workload => "v1alpha1",
            Self::PodGroupAlpha2 => "v1alpha2",
            Self::PodGroupAlpha3 => "v1alpha3",
        }
    }

    /// The newest of the versions of `scheduling.k8s.io` that a cluster serves; the oldest where it serves none,
    /// which is then reported.
    pub fn newest<'a>(served: impl IntoIterator<Item = &'a str>) -> Self {
        let served: Vec<&str> = served.into_iter().collect();
        let mut all = Self::ALL.into_iter();
        all.find(|api| served.contains(&api.version()))
            .unwrap_or_default()
    }
}

impl GroupApi {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Volcano,
        Self::Coscheduling,
        Self::Native(NativeApi::Workload),
        Self::Native(NativeApi::PodGroupAlpha2),
        Self::Native(NativeApi::PodGroupAlpha3),
    ];

    /// Its group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Volcano => "scheduling.volcano.sh",
            Self::Coscheduling => "scheduling.x-k8s.io",
            Self::Native(_) => "scheduling.k8s.io",
        }
    }

    /// Its version.
    pub fn version(self) -> &'static str {
        match self {
            Self::Volcano => "v1beta1",
            Self::Coscheduling => "v1alpha1",
            Self::Native(native) => native.version(),
        }
    }

    /// The kind of the objects.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Native(NativeApi::Workload) => "Workload",
            Self::Volcano | Self::Coscheduling | Self::Native(_) => "PodGroup",
        }
    }

    /// The name of the kind in paths.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Native(NativeApi::Workload) => "workloads",
            Self::Volcano | Self::Coscheduling | Self::Native(_) => "podgroups",
        }
    }

    /// Why the pods of a gang in `phase` are not to be created yet. Volcano admits a gang before it has pods; the
    /// coscheduling plugin processes only pods that exist.
    pub fn wait(self, phase: &str, queue: &str) -> Option<String> {
        match (self, phase) {
            (Self::Volcano, "" | "Pending") => {
                let queue = if queue.is_empty() { "default" } else { queue };
                Some(format!(
                    "Volcano has not admitted the gang to queue `{queue}` yet"
                ))
            }
            _ => None,
        }
    }
}

/// The object that describes a gang to a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// By which API.
    pub api: GroupApi,
    /// Name and owner: the job's.
    pub metadata: ObjectMeta,
    /// How many pods, and what they need.
    pub spec: Value,
}

impl Group {
    /// The object that describes the gang of `job` to `scheduler`.
    pub(super) fn of(
        job: &Job,
        scheduler: &GangScheduler,
        plan: &Plan<'_>,
    ) -> Result<Self, LaunchError> {
        let none = SchedulingPolicy::default();
        let policy = job.run_policy.scheduling.as_ref().unwrap_or(&none);
        // What initializes has ended before the gang is there.
        let gang = job.slots().filter(|slot| !slot.role.is_initializer());
        let needed = gang_minimum(job, gang.count());
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        let late = if job.launcher_waits() {
            job.role_replicas(Role::Launcher)
        } else {
            0
        };
        let members = needed.saturating_sub(late).max(1);
        let spec = match scheduler {
            GangScheduler::Native(NativeApi::Workload) => workload(job, members),
            GangScheduler::Native(_) => {
                json!({"schedulingPolicy": {"gang": {"minCount": members}}})
            }
            _ => Value::Object(pod_group(
                job,
                scheduler,
                policy,
                members,
                &needs(job, plan, needed)?,
            )),
        };
        Ok(Self {
            api: scheduler.api(),
            metadata: ObjectMeta {
                name: Some(job.name.as_str().to_owned()),
                namespace: Some(job.namespace.as_str().to_owned()),
                annotations: annotations(job),
                owner_references: pod::owners(job),
                ..ObjectMeta::default()
            },
            spec,
        })
    }

    /// The object as a JSON value.
    pub(super) fn to_value(&self) -> Result<Value, serde_json::Error> {
        let api = self.api;
        Ok(json!({
            "apiVersion": format!("{}/{}", api.group(), api.version()),
            "kind": api.kind(),
            "metadata": serde_json::to_value(&self.metadata)?,
            "spec": self.spec,
        }))
    }
}

/// The spec of a `Workload`.
fn workload(job: &Job, members: u32) -> Value {
    let (group, _) = job.kind.api_version().split_once('/').unwrap_or_default();
    json!({
        "controllerRef": {"apiGroup": group, "kind": job.kind.name(), "name": job.name.as_str()},
        "podGroups": [{"name": NATIVE_GROUP, "policy": {"gang": {"minCount": members}}}],
    })
}

/// The spec of a `PodGroup` of Volcano or the coscheduling plugin.
fn pod_group(
    job: &Job,
    scheduler: &GangScheduler,
    policy: &SchedulingPolicy,
    members: u32,
    needs: &Resources,
) -> Map<String, Value> {
    let mut spec = Map::new();
    spec.insert("minMember".to_owned(), json!(members));
    let resources = match &policy.min_resources {
        Some(stated) => stated.clone(),
        None => quantities(needs),
    };
    if !resources.is_empty() {
        spec.insert("minResources".to_owned(), json!(resources));
    }
    if *scheduler == GangScheduler::Volcano {
        if let Some(queue) = queue(job, policy) {
            spec.insert("queue".to_owned(), json!(queue));
        }
        if let Some(class) = priority_class(job, policy) {
            spec.insert("priorityClassName".to_owned(), json!(class));
        }
    } else if let Some(seconds) = policy.schedule_timeout_seconds {
        spec.insert("scheduleTimeoutSeconds".to_owned(), json!(seconds));
    }
    spec
}

/// What `count` pods of the gang request: the launcher, without which nothing starts, then the others in the
/// order of their roles.
fn needs(job: &Job, plan: &Plan<'_>, count: u32) -> Result<Resources, LaunchError> {
    let mut left = count;
    let mut total = Resources::default();
    let (first, others): (Vec<Role>, Vec<Role>) = job
        .roles
        .keys()
        .copied()
        .filter(|role| !role.is_initializer())
        .partition(|role| *role == Role::Launcher);
    for role in first.into_iter().chain(others) {
        let pods = job.role_replicas(role).min(left);
        if pods == 0 {
            continue;
        }
        left -= pods;
        let launched = plan.pod(Slot::new(role, 0), 1)?;
        let Some(spec) = launched.spec() else {
            continue;
        };
        for (name, amount) in Resources::of_pod(spec).iter() {
            let amount = amount.saturating_mul(i64::from(pods));
            total.set(name, total.get(name).saturating_add(amount));
        }
    }
    Ok(total)
}

/// The amounts as the API writes them, without what is not a resource of a pod.
fn quantities(needs: &Resources) -> BTreeMap<String, Quantity> {
    needs
        .iter()
        .filter(|(name, _)| *name != resources::PODS && !resources::is_host_port(name))
        .map(|(name, amount)| (name.to_owned(), Quantity(quantity(name, amount))))
        .collect()
}

fn quantity(name: &str, amount: i64) -> String {
    const GIBI: i64 = 1 << 30;
    const MEBI: i64 = 1 << 20;
    let is_bytes = !name.contains('/');
    match amount {
        milli if name == resources::CPU && milli % 1000 != 0 => format!("{milli}m"),
        milli if name == resources::CPU => (milli / 1000).to_string(),
        bytes if is_bytes && bytes % GIBI == 0 => format!("{}Gi", bytes / GIBI),
        bytes if is_bytes && bytes % MEBI == 0 => format!("{}Mi", bytes / MEBI),
        count => count.to_string(),
    }
}

fn queue(job: &Job, policy: &SchedulingPolicy) -> Option<String> {
    policy.queue.clone().or_else(|| match job.kind {
        Kind::MpiV2 => job.annotations.get(QUEUE_NAME).cloned(),
        _ => Some("default".to_owned()),
    })
}

fn priority_class(job: &Job, policy: &SchedulingPolicy) -> Option<String> {
    let of_role = |role| {
        let template = &job.roles.get(&role)?.template;
        template.spec.as_ref()?.priority_class_name.clone()
    };
    policy.priority_class.clone().or_else(|| match job.kind {
        Kind::MpiV2 => of_role(Role::Launcher).or_else(|| of_role(Role::Worker)),
        _ => None,
    })
}

/// The annotations of the job that are meant for the scheduler.
fn annotations(job: &Job) -> Option<BTreeMap<String, String>> {
    if job.kind == Kind::MpiV2 {
        return None;
    }
    let own = job.annotations.iter();
    let passed_on: BTreeMap<String, String> = own
        .filter(|(key, _)| !key.starts_with(OUR_PREFIX) && *key != LAST_APPLIED)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!passed_on.is_empty()).then_some(passed_on)
}
