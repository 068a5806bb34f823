//! The Service of a pod: one headless name per slot.
//!
//! `MPIJob` and `TrainJob` have none here: v1 of the former reaches its workers through the API server, the others have one
//! Service for the whole job, which belongs to the [shared objects](super::shared()).

use std::collections::BTreeSet;

use k8s_openapi::{
    api::core::v1::{ContainerPort, Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::pod;
use crate::spec::{Compat, Job, Kind, Slot};

/// The Service of `slot`; none for `MPIJob` and for roles that the job does not declare.
///
/// Peers must find each other while they come up, long before a readiness probe passes, so the
/// Service names pods that are not ready, too.
pub fn service(job: &Job, slot: Slot) -> Option<Service> {
    if job.kind.is_mpi() || job.kind == Kind::Train {
        return None;
    }
    let template = job.roles.get(&slot.role)?.template.spec.as_ref()?;
    let training = template
        .containers
        .get(job.training_container(slot.role)?)?;
    let container_ports = training.ports.as_deref().unwrap_or_default();
    let mut labels = pod::role_labels(job, slot.role);
    labels.insert(pod::label::REPLICA_INDEX.to_owned(), slot.index.to_string());
    let ready_only = job.settings.compat.contains(&Compat::ReadyOnlyServices);
    Some(Service {
        metadata: ObjectMeta {
            name: Some(job.pod_name(slot)),
            namespace: Some(job.namespace.as_str().to_owned()),
            labels: Some(labels.clone()),
            owner_references: pod::owners(job),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(ports(container_ports)).filter(|ports| !ports.is_empty()),
            publish_not_ready_addresses: (!ready_only).then_some(true),
            selector: Some(labels),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// The ports of a Service over `container_ports`, in the order written.
///
/// A Service is stricter than a container: a number may appear once per protocol, and as soon as
/// there are two ports each needs a name of its own. A Service that broke either rule would be
/// refused forever, so repeated numbers are left out and missing names are added.
fn ports(container_ports: &[ContainerPort]) -> Vec<ServicePort> {
    let mut numbers = BTreeSet::new();
    let kept: Vec<&ContainerPort> = container_ports
        .iter()
        .filter(|port| numbers.insert((port.container_port, protocol(port))))
        .collect();
    let reserved: BTreeSet<&str> = kept.iter().filter_map(|port| name(port)).collect();
    let mut used = BTreeSet::new();
    kept.iter()
        .map(|port| {
            let own = name(port).filter(|name| used.insert(*name));
            let made = || made_name(port, &reserved);
            ServicePort {
                name: own
                    .map(str::to_owned)
                    .or_else(|| (kept.len() > 1).then(made)),
                port: port.container_port,
                protocol: port.protocol.clone(),
                ..ServicePort::default()
            }
        })
        .collect()
}

/// A name such as `udp-53` for a port that has none or shares it.
fn made_name(port: &ContainerPort, reserved: &BTreeSet<&str>) -> String {
    let mut name = format!("{}-{}", protocol(port).to_lowercase(), port.container_port);
    while reserved.contains(name.as_str()) {
        name.insert_str(0, "port-");
    }
    name
}

fn name(port: &ContainerPort) -> Option<&str> {
    port.name.as_deref().filter(|name| !name.is_empty())
}

fn protocol(port: &ContainerPort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}
