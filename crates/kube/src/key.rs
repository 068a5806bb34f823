//! The name of a job in the cluster.

use std::fmt;

use trainyard_core::{gang::GangKey, spec::Kind};

use crate::view::Meta;

/// The label that names the controller of a pod or Service.
pub(crate) const OPERATOR_LABEL: &str = "training.kubeflow.org/operator-name";
/// The label that names its job.
pub(crate) const JOB_LABEL: &str = "training.kubeflow.org/job-name";
/// The label by which Kueue takes a job on: the name of its queue.
pub(crate) const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// One job of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobKey {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl JobKey {
    /// The job that a pod or Service belongs to, by its labels. One that names no job belongs to one without a name, which
    /// is never there: its pods take room like all others.
    pub(crate) fn of_child(meta: &Meta) -> Option<Self> {
        let controller = meta.label(OPERATOR_LABEL)?;
        let kind = Kind::READ
            .into_iter()
            .find(|kind| kind.controller() == controller)?;
        Some(Self {
            kind,
            namespace: meta.namespace.as_str().into(),
            name: meta.label(JOB_LABEL).unwrap_or_default().into(),
        })
    }

    /// The name by which placement knows the job.
    pub(crate) fn gang(&self) -> GangKey {
        GangKey {
            kind: self.kind,
            namespace: self.namespace.to_string(),
            name: self.name.to_string(),
        }
    }

    /// The job of a gang.
    pub(crate) fn of_gang(gang: &GangKey) -> Self {
        Self {
            kind: gang.kind,
            namespace: gang.namespace.as_str().into(),
            name: gang.name.as_str().into(),
        }
    }

    /// The job that owns an object.
    pub(crate) fn of_owned(meta: &Meta) -> Option<Self> {
        let mut owners = meta.owner_references.iter();
        let owner = owners.find(|owner| owner.controller == Some(true))?;
        Some(Self {
            kind: Kind::find(&owner.api_version, &owner.kind)?,
            namespace: meta.namespace.as_str().into(),
            name: owner.name.as_str().into(),
        })
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}
