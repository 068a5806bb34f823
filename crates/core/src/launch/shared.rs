//! The objects that all pods of a job share: config, keys, rights. `TrainJob`, `MPIJob` and jobs whose pods have supervisors have some.

use std::fmt;

use super::{AgentIdentity, Cluster, LaunchError, Object, mpi_v1, mpi_v2, supervise, train};
use crate::{
    job::SharedInputs,
    spec::{Framework, Job},
};

/// The key pair with which the launcher of an `MPIJob` v2beta1 enters its workers.
#[derive(Clone, PartialEq, Eq)]
pub struct SshKey {
    /// The private key, as PEM.
    pub private: String,
    /// The line for `authorized_keys`.
    pub public: String,
}

impl fmt::Debug for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// What a launcher enters its workers with; which one a job needs, [`transport`](super::transport)
/// says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A key pair for ssh.
    Ssh(SshKey),
    /// An identity for the agent.
    Agent(AgentIdentity),
}

/// What the Secret is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'a> {
    /// A key pair for ssh.
    Ssh(&'a SshKey),
    /// An identity for the agent.
    Agent(&'a AgentIdentity),
    /// Nothing: the Secret is there already.
    Kept,
    /// A text that says that there will be one.
    Placeholder,
}

/// The objects that all pods of `job` share, in the order of creation; only `MPIJob` and jobs with supervisors have any.
///
/// Without `keys` the Secret is left out: it is there already, and pods run with its keys.
pub fn shared(
    job: &Job,
    inputs: &SharedInputs,
    keys: Option<&Keys>,
    cluster: &Cluster,
) -> Result<Vec<Object>, LaunchError> {
    let key = match keys {
        Some(Keys::Ssh(key)) => Key::Ssh(key),
        Some(Keys::Agent(identity)) => Key::Agent(identity),
        None => Key::Kept,
    };
    make(job, inputs, key, cluster)
}

/// As [`shared`], for reading only.
pub(super) fn with_placeholder_key(
    job: &Job,
    inputs: &SharedInputs,
    cluster: &Cluster,
) -> Result<Vec<Object>, LaunchError> {
    make(job, inputs, Key::Placeholder, cluster)
}

fn make(
    job: &Job,
    inputs: &SharedInputs,
    key: Key<'_>,
    cluster: &Cluster,
) -> Result<Vec<Object>, LaunchError> {
    match &job.framework {
        Framework::MpiV1(own) => mpi_v1::shared(job, own, inputs, key, cluster),
        Framework::Train(own) => Ok(train::shared(job, own, key)),
        Framework::MpiV2(own) => mpi_v2::shared(job, own, inputs, key, cluster),
        Framework::PyTorch(_)
        | Framework::Tf(_)
        | Framework::XgBoost
        | Framework::Paddle(_)
        | Framework::Jax => Ok(supervise::shared(job, key, cluster)),
    }
}
