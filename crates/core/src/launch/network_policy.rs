//! Who may reach the ports of ours in the pods of a job.
//!
//! Every pod of a cluster can reach every other where no policy forbids it: the agent's port in the workers of an
//! `MPIJob`, the port of the leader of a preflight, and that of the leader of a supervised gang. All authenticate their callers; with a policy others do
//! not get that far.
//!
//! Caveats: policies add up. [`NetworkPolicyMode::Ports`] allows everything but our ports, so it opens pods in a namespace
//! whose own policies deny by default; [`NetworkPolicyMode::Job`] is for those. Pods on the network of their node are reached as
//! before, and so is everything where the cluster's network plugin ignores policies.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
        NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use super::{
    Cluster, Object, agent,
    mpi::metadata,
    pod::label,
    preflight::{self, OF},
    supervise,
};
use crate::spec::{Job, Preflight};

/// Which ports are closed to others, in pods in which we listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkPolicyMode {
    /// None: no policy is created.
    #[default]
    Off,
    /// Those of the agent and of the preflight; every other port stays open.
    Ports,
    /// All: only pods of the same job are admitted, and those that other policies of the namespace allow.
    Job,
}

/// The policy for the pods of `job`, in which the agent listens.
pub(super) fn agent_policy(job: &Job, cluster: &Cluster) -> Option<Object> {
    let name = format!("{}-agent", job.name);
    policy(job, cluster, &name, labels_of(job), agent::PORT)
}

/// What selects all pods of `job`.
fn labels_of(job: &Job) -> BTreeMap<String, String> {
    [
        (label::OPERATOR_NAME, job.kind.controller()),
        (label::JOB_NAME, job.name.as_str()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// The policy for the pods of `job`, in one of which the leader of the gang listens. A later leader may be in any of them.
pub(super) fn leader_policy(job: &Job, cluster: &Cluster) -> Option<Object> {
    let name = format!("{}-gang", job.name);
    policy(job, cluster, &name, labels_of(job), supervise::PORT)
}

/// The policy for the pods of the preflights of `job`, which carry the job's uid and no other label of it. A job that
/// is not in a cluster has none.
pub fn preflight_policy(job: &Job, cluster: &Cluster) -> Option<Object> {
    let uid = job.uid.clone().unwrap_or_default();
    if job.settings.preflight != Preflight::Required || uid.is_empty() {
        return None;
    }
    let name = format!("{}-preflight", job.name);
    let labels = [(OF.to_owned(), uid)].into();
    policy(job, cluster, &name, labels, preflight::PORT)
}

fn policy(
    job: &Job,
    cluster: &Cluster,
    name: &str,
    labels: BTreeMap<String, String>,
    port: u16,
) -> Option<Object> {
    let selector = LabelSelector {
        match_labels: Some(labels),
        match_expressions: None,
    };
    let among_themselves = NetworkPolicyIngressRule {
        from: Some(vec![NetworkPolicyPeer {
            pod_selector: Some(selector.clone()),
            ..NetworkPolicyPeer::default()
        }]),
        ports: None,
    };
    let ingress = match cluster.network_policy {
        NetworkPolicyMode::Off => return None,
        NetworkPolicyMode::Job => vec![among_themselves],
        NetworkPolicyMode::Ports => vec![
            among_themselves,
            NetworkPolicyIngressRule {
                from: None,
                ports: Some(all_but(port)),
            },
        ],
    };
    Some(Object::NetworkPolicy(Box::new(NetworkPolicy {
        metadata: metadata(job, name.to_owned()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(ingress),
            egress: None,
        }),
    })))
}

/// Every port of every protocol but this one of TCP. A pod that a policy selects is reached only where a rule says so.
fn all_but(port: u16) -> Vec<NetworkPolicyPort> {
    let range = |protocol: &str, first: u16, last: u16| NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: Some(IntOrString::Int(first.into())),
        end_port: Some(last.into()),
    };
    vec![
        range("TCP", 1, port - 1),
        range("TCP", port + 1, u16::MAX),
        range("UDP", 1, u16::MAX),
        range("SCTP", 1, u16::MAX),
    ]
}
