//! What the operator reads of each object, and nothing else of it.
//!
//! A cluster of 80,000 pods does not fit in memory as the API writes them. What is not named here
//! is skipped while it is read.
//!
//! Invariant: whatever an object holds, it is read; a field of an unexpected form is as one that is
//! not there.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerPort, PodAffinityTerm, ResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::OwnerReference},
};
use serde::{Deserialize, Deserializer};
use trainyard_core::{
    fabric::{self, FabricSpec, NotAFabric},
    gang::PriorityClass,
    job::{self, JobStatus, Unreadable},
    spec::Kind,
};

use crate::convert;

/// An object that a [`crate::feed`] can follow.
pub(crate) trait View: serde::de::DeserializeOwned + Clone + Send + 'static {
    /// Its metadata.
    fn meta(&self) -> &Meta;
}

/// The metadata of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    #[serde(deserialize_with = "number")]
    pub(crate) resource_version: u64,
    pub(crate) generation: i64,
    pub(crate) labels: BTreeMap<String, String>,
    /// The annotations that are read.
    #[serde(rename = "annotations", deserialize_with = "notes")]
    pub(crate) notes: Notes,
    pub(crate) owner_references: Vec<OwnerReference>,
    pub(crate) creation_timestamp: Option<Timestamp>,
    pub(crate) deletion_timestamp: Option<Timestamp>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    /// The identity of the object that owns this one.
    pub(crate) fn owner(&self) -> &str {
        self.controller().map_or("", |owner| &owner.uid)
    }

    /// The object that owns this one.
    pub(crate) fn controller(&self) -> Option<&OwnerReference> {
        let controller = |owner: &&OwnerReference| owner.controller == Some(true);
        self.owner_references.iter().find(controller)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// Versions are numbers in a string; one that is none is older than all others.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(String::deserialize(deserializer)?.parse().unwrap_or(0))
}

/// What is read of the annotations of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    /// On a pod: the node that it was assigned.
    #[serde(rename = "trainyard.dev/seat")]
    pub(crate) seat: Option<Box<str>>,
    /// On the pod that leads a gang: the authority of the operator's certificate.
    #[serde(rename = "trainyard.dev/gang-ca")]
    pub(crate) gang_ca: Option<Box<str>>,
    /// On a node: what the last preflight found.
    #[serde(rename = "trainyard.dev/preflight")]
    pub(crate) preflight: Option<Box<str>>,
    /// On a node: from when on it may be tried again.
    #[serde(rename = "trainyard.dev/probation-until")]
    pub(crate) probation_until: Option<Box<str>>,
}

fn notes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Notes, D::Error> {
    let notes = Option::<Notes>::deserialize(deserializer)?;
    Ok(notes.unwrap_or_default())
}

/// An object of which only the metadata is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Bare {
    pub(crate) metadata: Meta,
}

impl View for Bare {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The pod group of a gang, for another scheduler.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupView {
    pub(crate) metadata: Meta,
    pub(crate) spec: GroupSpecView,
    pub(crate) status: PhaseView,
}

impl View for GroupView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A fabric of the cluster, or why it cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct FabricView {
    pub(crate) metadata: Meta,
    spec: Result<FabricSpec, NotAFabric>,
}

impl FabricView {
    /// Its name and what it is.
    pub(crate) fn into_entry(self) -> (Box<str>, Result<FabricSpec, NotAFabric>) {
        (self.metadata.name.into(), self.spec)
    }
}

impl View for FabricView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<'de> Deserialize<'de> for FabricView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let object = serde_json::Value::deserialize(deserializer)?;
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        Ok(Self {
            metadata: Meta::deserialize(metadata).map_err(D::Error::custom)?,
            spec: fabric::read_value(&object).map(|fabric| fabric.spec),
        })
    }
}

/// A runtime of `TrainJob`s, as it is stored but for what nobody reads.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeView {
    pub(crate) metadata: Meta,
    pub(crate) object: serde_json::Value,
}

impl View for RuntimeView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<'de> Deserialize<'de> for RuntimeView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let mut object = serde_json::Value::deserialize(deserializer)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(|it| it.as_object_mut()) {
            metadata.shift_remove("managedFields");
            let annotations = metadata
                .get_mut("annotations")
                .and_then(|it| it.as_object_mut());
            if let Some(annotations) = annotations {
                annotations.shift_remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        Ok(Self {
            metadata: Meta::deserialize(metadata).map_err(D::Error::custom)?,
            object,
        })
    }
}

/// What of the spec of a group others may change.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupSpecView {
    pub(crate) queue: String,
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodView {
    pub(crate) metadata: Meta,
    pub(crate) spec: PodSpecView,
    pub(crate) status: PodStatusView,
}

impl View for PodView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpecView {
    pub(crate) node_name: String,
    pub(crate) termination_grace_period_seconds: Option<i64>,
    /// In their order: the first trains where none has the kind's name.
    pub(crate) containers: Vec<ContainerSpecView>,
    pub(crate) init_containers: Vec<ContainerSpecView>,
    pub(crate) overhead: Option<BTreeMap<String, Quantity>>,
    pub(crate) priority: Option<i32>,
    pub(crate) preemption_policy: Option<String>,
    pub(crate) scheduling_gates: Vec<Named>,
    pub(crate) affinity: AffinityView,
    pub(crate) host_network: bool,
    /// Of the pod as a whole.
    pub(crate) resources: Option<ResourceRequirements>,
}

/// Whom a pod must not be beside.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AffinityView {
    pub(crate) pod_anti_affinity: AntiAffinityView,
}

/// The part of it that placement keeps to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AntiAffinityView {
    pub(crate) required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
}

/// A container as it is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerSpecView {
    pub(crate) name: String,
    pub(crate) restart_policy: Option<String>,
    pub(crate) resources: Option<ResourceRequirements>,
    pub(crate) ports: Vec<ContainerPort>,
}

/// Something with a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Named {
    pub(crate) name: String,
}

/// A priority class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PriorityView {
    pub(crate) metadata: Meta,
    pub(crate) value: i32,
    pub(crate) global_default: bool,
    pub(crate) preemption_policy: Option<String>,
}

/// The policy of a pod or a class that preempts no pod.
const NEVER: &str = "Never";

impl PodSpecView {
    /// Whether the pod may not preempt others.
    pub(crate) fn never_preempts(&self) -> bool {
        self.preemption_policy.as_deref() == Some(NEVER)
    }
}

impl PriorityView {
    /// The class as placement knows it.
    pub(crate) fn class(&self) -> PriorityClass {
        PriorityClass {
            value: self.value,
            is_default: self.global_default,
            never_preempts: self.preemption_policy.as_deref() == Some(NEVER),
        }
    }
}

impl View for PriorityView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Any pod, for the resources that it uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RoomView {
    pub(crate) metadata: Meta,
    pub(crate) spec: PodSpecView,
    pub(crate) status: PhaseView,
}

impl View for RoomView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The phase of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PhaseView {
    pub(crate) phase: String,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatusView {
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) conditions: Vec<ConditionView>,
    pub(crate) init_container_statuses: Vec<ContainerView>,
    pub(crate) container_statuses: Vec<ContainerView>,
}

/// A condition of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ConditionView {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) last_heartbeat_time: Option<Timestamp>,
    pub(crate) last_transition_time: Option<Timestamp>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    pub(crate) restart_count: u32,
    pub(crate) state: StateView,
    pub(crate) last_state: StateView,
}

/// The state of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StateView {
    pub(crate) waiting: Option<WaitingView>,
    pub(crate) terminated: Option<TerminatedView>,
}

/// Why a container waits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WaitingView {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// How a container ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TerminatedView {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) finished_at: Option<Timestamp>,
}

/// A batch Job: the launcher of an `MPIJob` v2beta1.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BatchView {
    pub(crate) metadata: Meta,
    pub(crate) status: BatchStatusView,
}

impl View for BatchView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The status of a batch Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BatchStatusView {
    pub(crate) failed: u32,
    pub(crate) conditions: Vec<ConditionView>,
}

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeView {
    pub(crate) metadata: Meta,
    pub(crate) spec: NodeSpecView,
    pub(crate) status: NodeStatusView,
}

impl View for NodeView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpecView {
    pub(crate) taints: Vec<TaintView>,
    pub(crate) unschedulable: bool,
}

/// A taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TaintView {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
    pub(crate) time_added: Option<Timestamp>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatusView {
    pub(crate) conditions: Vec<ConditionView>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
}

/// A lease of a node: the sign of life of its kubelet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseView {
    pub(crate) metadata: Meta,
    pub(crate) spec: LeaseSpecView,
}

impl View for LeaseView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// The spec of a lease.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LeaseSpecView {
    pub(crate) holder_identity: String,
    pub(crate) renew_time: Option<Timestamp>,
    pub(crate) lease_duration_seconds: Option<u32>,
    pub(crate) lease_transitions: Option<u32>,
    pub(crate) acquire_time: Option<Timestamp>,
}

/// A job of any kind: what is needed to find its owner, and the rest as text.
///
/// A parsed job takes ten times the memory of its text, and most jobs of a cluster have ended.
#[derive(Clone, Debug)]
pub(crate) struct JobView {
    pub(crate) metadata: Meta,
    /// The kind it was created as; nothing where that is not one of ours.
    pub(crate) kind: Option<Kind>,
    /// The object without its status and without fields nobody reads.
    pub(crate) text: Box<str>,
    /// The status, empty where there is none.
    pub(crate) status: Box<str>,
}

impl JobView {
    /// The status, or why it cannot be read.
    pub(crate) fn read_status(&self) -> Result<JobStatus, Unreadable> {
        let stored = self.stored_status();
        match self.kind {
            Some(Kind::Train) => job::read_train_status(&stored),
            _ => job::read_status(&stored),
        }
    }

    /// The status as it is stored.
    pub(crate) fn stored_status(&self) -> serde_json::Value {
        serde_json::from_str(&self.status).unwrap_or_default()
    }
}

impl View for JobView {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<'de> Deserialize<'de> for JobView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let mut object = serde_json::Map::deserialize(deserializer)?;
        let status = object
            .shift_remove("status")
            .map_or_else(String::new, |status| status.to_string());
        if let Some(serde_json::Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.shift_remove("managedFields");
        }
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        let object = serde_json::Value::Object(object);
        let text = |key: &str| {
            object
                .get(key)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
        };
        let kind = Kind::find(text("apiVersion"), text("kind"));
        Ok(Self {
            metadata: Meta::deserialize(metadata).map_err(D::Error::custom)?,
            kind: convert::created_as(&object).or(kind),
            text: object.to_string().into(),
            status: status.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_is_read_without_what_nobody_reads() {
        let object = json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "12",
                "managedFields": [{"manager": "kubectl"}]},
            "spec": {"pytorchReplicaSpecs": {}},
            "status": {"conditions": []},
        });
        let view: JobView = serde_json::from_value(object).unwrap();
        assert_eq!(view.metadata.resource_version, 12);
        assert_eq!(&*view.status, r#"{"conditions":[]}"#);
        assert!(!view.text.contains("managedFields"), "{}", view.text);
        assert!(view.text.contains("pytorchReplicaSpecs"));
    }

    #[test]
    fn an_empty_object_is_read() {
        assert_eq!(
            serde_json::from_str::<PodView>("{}")
                .unwrap()
                .metadata
                .resource_version,
            0
        );
        serde_json::from_str::<NodeView>(r#"{"status":{}}"#).unwrap();
    }
}
