//! The options of an operator, as its flags give them.

use std::path::PathBuf;

use trainyard_core::{gang::PreemptionScope, launch::Cluster, spec::Kind};

use super::Gate;

/// The options of an operator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this namespace; all of them where there is none.
    pub namespace: Option<String>,
    /// Watch the nodes, so that one that does not respond is noticed. This needs rights for the whole
    /// cluster; without them the operator goes by what the pods say.
    pub nodes: bool,
    /// Assign nodes to gangs. This needs watches of all nodes and pods of the cluster.
    pub placement: bool,
    /// Which gangs may be evicted for one of higher priority that asks for it.
    pub preemption: PreemptionScope,
    /// The kinds that it manages.
    pub kinds: Vec<Kind>,
    /// Jobs processed at once.
    pub workers: usize,
    /// Calls to the API server under way, at once.
    pub calls: usize,
    /// The lease that several operators share; the only operator needs none.
    pub lease: Option<Lease>,
    /// What the administrator decided for all jobs.
    pub cluster: Cluster,
    /// Change nothing, and report what would be made differently.
    pub shadow: bool,
    /// What is decided about preflights.
    pub gate: Gate,
    /// The namespace of the operator's own pod, in which it tries nodes; that of the jobs where there is none.
    pub own_namespace: Option<String>,
    /// The folder that says, after a crash, which job was being processed. It must outlive the process.
    pub state_dir: Option<PathBuf>,
    /// Where the progress of jobs comes from.
    pub progress: ProgressSource,
}

/// Where the progress of jobs comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressSource {
    /// What pods print.
    #[default]
    Logs,
    /// Nowhere: no log of a running pod is read for it.
    Off,
}

/// The lease that several operators share.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who this operator is; no other has the same.
    pub identity: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: None,
            nodes: true,
            placement: true,
            preemption: PreemptionScope::default(),
            kinds: Kind::ALL.to_vec(),
            workers: 32,
            calls: 64,
            lease: None,
            // Rights that are granted on have to be given to the operator first.
            cluster: Cluster {
                launcher_rights: false,
                ..Cluster::default()
            },
            shadow: false,
            gate: Gate::default(),
            own_namespace: None,
            state_dir: None,
            progress: ProgressSource::Logs,
        }
    }
}
