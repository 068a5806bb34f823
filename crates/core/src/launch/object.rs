//! One object of any type that a job becomes.

use k8s_openapi::{
    api::{
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::Job as BatchJob,
        core::v1::{
            ConfigMap, PersistentVolumeClaim, Pod, PodSpec, Secret, Service, ServiceAccount,
        },
        networking::v1::NetworkPolicy,
        rbac::v1::{Role as RbacRole, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::Group;

/// The pod of a slot, in the form in which it is created.
#[derive(Clone, Debug, PartialEq)]
pub enum LaunchedPod {
    /// A bare pod.
    Pod(Box<Pod>),
    /// The launcher of an `MPIJob` v2beta1: a batch Job whose one pod is the launcher.
    Job(Box<BatchJob>),
}

impl LaunchedPod {
    /// The spec of the pod.
    pub fn spec(&self) -> Option<&PodSpec> {
        match self {
            Self::Pod(pod) => pod.spec.as_ref(),
            Self::Job(job) => job.spec.as_ref()?.template.spec.as_ref(),
        }
    }
}

impl From<LaunchedPod> for Object {
    fn from(launched: LaunchedPod) -> Self {
        match launched {
            LaunchedPod::Pod(pod) => Self::Pod(pod),
            LaunchedPod::Job(job) => Self::Job(job),
        }
    }
}

/// One object, written as the API server would read it: `apiVersion`, `kind`, `metadata`, the rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A pod.
    Pod(Box<Pod>),
    /// A batch Job.
    Job(Box<BatchJob>),
    /// A Service.
    Service(Box<Service>),
    /// A `ConfigMap`.
    ConfigMap(Box<ConfigMap>),
    /// A Secret.
    Secret(Box<Secret>),
    /// A claim of storage.
    Claim(Box<PersistentVolumeClaim>),
    /// A `ServiceAccount`.
    ServiceAccount(Box<ServiceAccount>),
    /// A Role.
    Role(Box<RbacRole>),
    /// A `RoleBinding`.
    RoleBinding(Box<RoleBinding>),
    /// An autoscaler.
    Autoscaler(Box<HorizontalPodAutoscaler>),
    /// Who may reach the pods.
    NetworkPolicy(Box<NetworkPolicy>),
    /// The object that describes the gang to another scheduler.
    Group(Box<Group>),
}

/// What becomes of an object that is there already under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays as it is: it may be in use, or it may be the user's.
    Keep,
    /// It is updated, where it is the job's own; an object of another owner is left as it is, and the job
    /// waits until its name is free.
    Update,
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // These come in thousands and are in order already.
            Self::Pod(object) => object.serialize(serializer),
            Self::Service(object) => object.serialize(serializer),
            _ => self.to_value().serialize(serializer),
        }
    }
}

impl Object {
    /// The object as a JSON value, without nulls.
    pub fn to_value(&self) -> Value {
        let value = match self {
            Self::Pod(object) => serde_json::to_value(object),
            Self::Job(object) => serde_json::to_value(object),
            Self::Service(object) => serde_json::to_value(object),
            Self::ConfigMap(object) => serde_json::to_value(object),
            Self::Secret(object) => serde_json::to_value(object),
            Self::Claim(object) => serde_json::to_value(object),
            Self::ServiceAccount(object) => serde_json::to_value(object),
            Self::Role(object) => serde_json::to_value(object),
            Self::RoleBinding(object) => serde_json::to_value(object),
            Self::Autoscaler(object) => serde_json::to_value(object),
            Self::NetworkPolicy(object) => serde_json::to_value(object),
            Self::Group(object) => object.to_value(),
        };
        let mut value = value.expect("Kubernetes objects have string keys and finite numbers");
        // Objects without a spec have their fields in alphabetical order.
        if let Value::Object(fields) = &mut value
            && let Some(metadata) = fields.shift_remove("metadata")
        {
            fields.shift_insert(2, "metadata".to_owned(), metadata);
        }
        value
    }

    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Pod(object) => &object.metadata,
            Self::Job(object) => &object.metadata,
            Self::Service(object) => &object.metadata,
            Self::ConfigMap(object) => &object.metadata,
            Self::Secret(object) => &object.metadata,
            Self::Claim(object) => &object.metadata,
            Self::ServiceAccount(object) => &object.metadata,
            Self::Role(object) => &object.metadata,
            Self::RoleBinding(object) => &object.metadata,
            Self::Autoscaler(object) => &object.metadata,
            Self::NetworkPolicy(object) => &object.metadata,
            Self::Group(object) => &object.metadata,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// What to do where an object of its name is there already.
    ///
    /// A Secret is kept because pods run with its keys, a claim because it cannot be changed, a `ServiceAccount` because the user may
    /// have made it, pods and batch Jobs because another attempt is another object.
    pub fn existing(&self) -> Existing {
        match self {
            Self::Pod(_)
            | Self::Job(_)
            | Self::Secret(_)
            | Self::Claim(_)
            | Self::ServiceAccount(_) => Existing::Keep,
            Self::Service(_)
            | Self::ConfigMap(_)
            | Self::Role(_)
            | Self::RoleBinding(_)
            | Self::Autoscaler(_)
            | Self::NetworkPolicy(_)
            | Self::Group(_) => Existing::Update,
        }
    }
}
