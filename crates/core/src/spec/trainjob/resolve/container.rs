//! Containers, and lists in them, where an entry with the same key is replaced.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerPort, EnvVar, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::spec::{Role, RoleSpec, trainjob::PORT};

pub(super) fn container_of(
    roles: &mut BTreeMap<Role, RoleSpec>,
    role: Role,
) -> Option<&mut Container> {
    let spec = roles.get_mut(&role)?.template.spec.as_mut()?;
    container_mut(spec, "node")
}

/// The container `name` of a pod.
pub(in crate::spec::trainjob) fn container_mut<'a>(
    spec: &'a mut PodSpec,
    name: &str,
) -> Option<&'a mut Container> {
    spec.containers
        .iter_mut()
        .find(|container| container.name == name)
}

/// A variable with a plain value.
pub(in crate::spec::trainjob) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

pub(super) fn merge_resources(container: &mut Container, stated: Option<&ResourceRequirements>) {
    let Some(stated) = stated else {
        return;
    };
    let own = container.resources.get_or_insert_default();
    let merge = |own: &mut Option<BTreeMap<String, Quantity>>,
                 more: &Option<BTreeMap<String, Quantity>>| {
        if let Some(more) = more {
            own.get_or_insert_default().extend(more.clone());
        }
    };
    merge(&mut own.limits, &stated.limits);
    merge(&mut own.requests, &stated.requests);
    if stated.claims.is_some() {
        own.claims.clone_from(&stated.claims);
    }
}

/// The port at which nodes meet, without a name, as the original announces it.
pub(super) fn add_port(container: &mut Container) {
    let port = ContainerPort {
        container_port: i32::from(PORT),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let ports = container.ports.get_or_insert_default();
    if !ports
        .iter()
        .any(|known| known.container_port == port.container_port)
    {
        ports.push(port);
    }
}
