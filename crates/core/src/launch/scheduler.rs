//! Other schedulers that start gangs, and how a pod names its gang.
//!
//! Owns who starts the gang of a job. The object that describes the gang to that scheduler is [`super::group`]'s.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    Cluster, GroupApi,
    group::{NATIVE_GROUP, NativeApi},
};
use crate::spec::{GangBy, Job, Kind, Role};

/// The annotation by which Volcano finds the gang of a pod.
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
/// The annotation by which Volcano distinguishes the roles of a gang.
const TASK: &str = "volcano.sh/task-spec";
/// The label by which the coscheduling plugin finds the gang of a pod.
const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";

/// Another scheduler that starts gangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangScheduler {
    /// Volcano.
    Volcano,
    /// One with the coscheduling plugin, by its name in the cluster.
    Coscheduling(String),
    /// The cluster's own, by Kubernetes' own API for gangs, in the shape that the cluster serves.
    Native(NativeApi),
}

impl GangScheduler {
    /// The default name of the scheduler of scheduler-plugins.
    pub const COSCHEDULING: &'static str = "scheduler-plugins-scheduler";

    /// The scheduler that an administrator names: `volcano`, `native`, or one with the coscheduling plugin. None
    /// where the name is empty or `None`.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim();
        if name.is_empty() || name.eq_ignore_ascii_case("none") {
            None
        } else if name.eq_ignore_ascii_case("volcano") {
            Some(Self::Volcano)
        } else if name.eq_ignore_ascii_case("native") {
            Some(Self::Native(NativeApi::default()))
        } else {
            Some(Self::Coscheduling(name.to_owned()))
        }
    }

    /// The one that starts the gang of `job`, where one does: the one that the job names, else that of the cluster.
    pub fn of(job: &Job, cluster: &Cluster) -> Option<Self> {
        let own = cluster.gang_scheduler.as_ref();
        match job.settings.gang {
            Some(GangBy::Seats | GangBy::Nobody) => None,
            Some(GangBy::Volcano) => Some(Self::Volcano),
            Some(GangBy::Native) => Some(Self::Native(cluster.native)),
            Some(GangBy::Coscheduling) => Some(match own {
                Some(Self::Coscheduling(name)) => Self::Coscheduling(name.clone()),
                _ => Self::Coscheduling(Self::COSCHEDULING.to_owned()),
            }),
            None => Self::stated(cluster),
        }
    }

    /// The one that starts the gangs of jobs which do not say who does.
    pub fn stated(cluster: &Cluster) -> Option<Self> {
        cluster.gang_scheduler.as_ref().map(|own| match own {
            Self::Native(_) => Self::Native(cluster.native),
            other => other.clone(),
        })
    }

    /// Its API for gangs.
    pub fn api(&self) -> GroupApi {
        match self {
            Self::Volcano => GroupApi::Volcano,
            Self::Coscheduling(_) => GroupApi::Coscheduling,
            Self::Native(native) => GroupApi::Native(*native),
        }
    }

    /// The `schedulerName` of pods that are to go to it; none where they go there anyway.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Volcano => Some("volcano"),
            Self::Coscheduling(name) => Some(name),
            Self::Native(_) => None,
        }
    }

    /// Assigns a pod of `role` to it. A template that names a scheduler keeps it.
    pub(super) fn mark(&self, job: &Job, role: Role, pod: &mut Pod) {
        let spec = pod.spec.get_or_insert_default();
        if let Some(name) = self.name()
            && spec.scheduler_name.as_deref().is_none_or(str::is_empty)
        {
            spec.scheduler_name = Some(name.to_owned());
        }
        let gang = job.name.as_str().to_owned();
        match self {
            Self::Volcano => {
                let annotations = pod.metadata.annotations.get_or_insert_default();
                annotations.insert(GROUP_NAME.to_owned(), gang);
                if job.kind != Kind::MpiV2 {
                    annotations.insert(TASK.to_owned(), role.lower().to_owned());
                }
            }
            Self::Coscheduling(_) => {
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert(POD_GROUP.to_owned(), gang);
            }
            // By a field of the pod that comes and goes with versions of Kubernetes: `refer` writes it.
            Self::Native(_) => {}
        }
    }

    /// Adds to the object of a pod what its type has no field for.
    pub(super) fn refer(&self, job: &Job, object: &mut Value) {
        let Self::Native(native) = self else {
            return;
        };
        let path = match object.get("kind").and_then(Value::as_str) {
            Some("Pod") => "/spec",
            Some("Job") => "/spec/template/spec",
            _ => return,
        };
        if let Some(spec) = object.pointer_mut(path) {
            let name = job.name.as_str();
            match native {
                NativeApi::Workload => {
                    spec["workloadRef"] = json!({"name": name, "podGroup": NATIVE_GROUP});
                }
                NativeApi::PodGroupAlpha2 | NativeApi::PodGroupAlpha3 => {
                    spec["schedulingGroup"] = json!({"podGroupName": name});
                }
            }
        }
    }
}
