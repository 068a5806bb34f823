//! The objects that all pods of a job share: config, keys, rights. Only `MPIJob` has any.

use std::fmt;

use super::{Cluster, Object, mpi_v1, mpi_v2};
use crate::{
    job::SharedInputs,
    spec::{Framework, Job},
};

/// The key pair with which the launcher of an `MPIJob` v2beta1 enters its workers.
#[derive(Clone, PartialEq, Eq)]
pub struct SshKey {
    /// ECDSA P-521 key as PEM, `EC PRIVATE KEY`.
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

/// What the Secret is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'a> {
    /// A key pair.
    Made(&'a SshKey),
    /// Nothing: the Secret is there already.
    Kept,
    /// A text that says that there will be one.
    Placeholder,
}

/// The objects that all pods of `job` share, in the order of creation; only `MPIJob` has any.
///
/// Without `ssh_key` the Secret of an `MPIJob` v2beta1 is left out: it is there already, and pods
/// run with its keys.
pub fn shared(
    job: &Job,
    inputs: &SharedInputs,
    ssh_key: Option<&SshKey>,
    cluster: &Cluster,
) -> Vec<Object> {
    make(job, inputs, ssh_key.map_or(Key::Kept, Key::Made), cluster)
}

/// As [`shared`], for reading only.
pub(super) fn with_placeholder_key(
    job: &Job,
    inputs: &SharedInputs,
    cluster: &Cluster,
) -> Vec<Object> {
    make(job, inputs, Key::Placeholder, cluster)
}

fn make(job: &Job, inputs: &SharedInputs, key: Key<'_>, cluster: &Cluster) -> Vec<Object> {
    match &job.framework {
        Framework::MpiV1(own) => mpi_v1::shared(job, own, inputs),
        Framework::MpiV2(own) => mpi_v2::shared(job, own, inputs, key, cluster),
        Framework::PyTorch(_)
        | Framework::Tf(_)
        | Framework::XgBoost
        | Framework::Paddle(_)
        | Framework::Jax => Vec::new(),
    }
}
