//! What all pods of a `TrainJob` share: one Service, claims, and for MPI the hosts and the keys.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret, Service, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::super::{Object, mpi::PLACEHOLDER, pod, shared::Key};
use crate::spec::{Job, Policy, Role, Slot, Train};

/// Keys of the Secret.
pub(super) const PRIVATE: &str = "ssh-privatekey";
pub(super) const PUBLIC: &str = "ssh-publickey";

/// The objects, in the order of creation.
pub(in crate::launch) fn shared(job: &Job, own: &Train, key: Key<'_>) -> Vec<Object> {
    let mut objects = Vec::new();
    if own.has_service {
        objects.push(Object::Service(Box::new(service(job, own))));
    }
    for (claim, stays) in &own.claims {
        let mut claim = claim.clone();
        claim.metadata.namespace = Some(job.namespace.to_string());
        claim.metadata.owner_references = pod::owners(job).filter(|_| !stays);
        objects.push(Object::Claim(Box::new(claim)));
    }
    if let Policy::Mpi { slots, .. } = &own.policy {
        objects.push(Object::ConfigMap(Box::new(ConfigMap {
            metadata: metadata(job, hosts_name(job)),
            data: Some(BTreeMap::from([(
                super::HOSTS_FILE.to_owned(),
                hostfile(job, own, *slots),
            )])),
            ..ConfigMap::default()
        })));
        objects.extend(keys(job, key).map(|secret| Object::Secret(Box::new(secret))));
    }
    objects
}

pub(super) fn keys_name(job: &Job) -> String {
    format!("{}-mpi-ssh-auth", job.name)
}

pub(super) fn hosts_name(job: &Job) -> String {
    format!("{}-mpi-hostfile", job.name)
}

fn metadata(job: &Job, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace.to_string()),
        owner_references: pod::owners(job),
        ..ObjectMeta::default()
    }
}

fn service(job: &Job, own: &Train) -> Service {
    let stated = |own: &BTreeMap<String, String>| Some(own.clone()).filter(|own| !own.is_empty());
    Service {
        metadata: ObjectMeta {
            labels: stated(&own.labels),
            annotations: stated(&own.annotations),
            ..metadata(job, own.subdomain.clone())
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(own.names_unready),
            selector: Some(BTreeMap::from([(
                super::JOB.to_owned(),
                job.name.to_string(),
            )])),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Every host with its ranks, in the order of the runtime.
fn hostfile(job: &Job, own: &Train, slots: u32) -> String {
    let holds_ranks =
        |role: &&Role| **role == Role::Node || **role == Role::Launcher && own.launcher_is_node;
    let roles = own.order.iter().filter(holds_ranks);
    let slots_of = |role: &Role| {
        let role = *role;
        (0..job.role_replicas(role)).map(move |index| Slot::new(role, index))
    };
    let line = |slot| format!("{}.{} slots={slots}\n", job.pod_name(slot), own.subdomain);
    roles.flat_map(slots_of).map(line).collect()
}

fn keys(job: &Job, key: Key<'_>) -> Option<Secret> {
    let mut secret = Secret {
        metadata: metadata(job, keys_name(job)),
        type_: Some("kubernetes.io/ssh-auth".to_owned()),
        immutable: Some(true),
        ..Secret::default()
    };
    let both = |private: &str, public: &str| {
        [(PRIVATE, private), (PUBLIC, public)].map(|(key, text)| (key.to_owned(), text.to_owned()))
    };
    match key {
        Key::Kept | Key::Agent(_) => return None,
        Key::Ssh(key) => {
            let pairs = both(&key.private, &key.public).into_iter();
            secret.data = Some(
                pairs
                    .map(|(key, text)| (key, ByteString(text.into_bytes())))
                    .collect(),
            );
        }
        Key::Placeholder => secret.string_data = Some(both(PLACEHOLDER, PLACEHOLDER).into()),
    }
    Some(secret)
}
