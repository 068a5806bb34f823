//! The pod template of a role, as far as the job needs something of it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};

use crate::{
    finding::{Fix, catalogue},
    spec::{Kind, Role, collector::Place, defaults},
};

/// The template, checked and with the kind's port announced.
pub(super) fn template(
    kind: Kind,
    role: Role,
    written: Option<PodTemplateSpec>,
    place: &Place<'_>,
) -> PodTemplateSpec {
    let mut template = written.unwrap_or_default();
    let place = place.key("spec");
    check_containers(kind, role, template.spec.as_ref(), &place);
    if template
        .spec
        .as_ref()
        .is_some_and(|spec| spec.restart_policy.is_some())
    {
        place.key("restartPolicy").report_fix(
            &catalogue::TEMPLATE_RESTART_POLICY,
            format!("the `restartPolicy` of the template is overwritten by that of {role}"),
            format!("set `restartPolicy` of {role}, beside `template`"),
            Fix::Remove,
        );
    }
    defaults::add_port(kind, &mut template);
    template
}

fn check_containers(kind: Kind, role: Role, spec: Option<&PodSpec>, place: &Place<'_>) {
    let list = place.key("containers");
    let containers = spec.map_or(&[][..], |spec| &spec.containers);
    if containers.is_empty() {
        let message = format!("the template of {role} has no container");
        list.report(&catalogue::NO_CONTAINERS, message);
        return;
    }
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        check_container(kind, container, &list.index(index), &mut names);
    }
    let inits = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    for (index, container) in inits.iter().enumerate() {
        check_container(
            kind,
            container,
            &place.key("initContainers").index(index),
            &mut names,
        );
    }
    let wanted = kind.container();
    if !kind.is_mpi() && containers.iter().all(|container| container.name != wanted) {
        let found: Vec<String> = containers
            .iter()
            .map(|container| format!("`{}`", container.name))
            .collect();
        list.report_with(
            &catalogue::NO_DEFAULT_CONTAINER,
            format!(
                "one container of {role} must be named `{wanted}`, found {}",
                found.join(", ")
            ),
            format!("name the container that trains `{wanted}`"),
        );
    }
}

fn check_container<'a>(
    kind: Kind,
    container: &'a Container,
    place: &Place<'_>,
    names: &mut BTreeSet<&'a str>,
) {
    let name = container.name.as_str();
    if name.is_empty() {
        place
            .key("name")
            .report(&catalogue::BAD_CONTAINER_NAME, "the container has no name");
    } else if !names.insert(name) {
        let message = format!("the pod has two containers named `{name}`");
        place
            .key("name")
            .report(&catalogue::BAD_CONTAINER_NAME, message);
    }
    if container.image.as_deref().unwrap_or_default().is_empty() {
        let message = match name {
            "" => "the container has no image".to_owned(),
            name => format!("the container `{name}` has no image"),
        };
        // The operator of version v2beta1 leaves this to the cluster, where a webhook may add
        // an image.
        let rule = if kind == Kind::MpiV2 {
            &catalogue::NO_IMAGE_YET
        } else {
            &catalogue::NO_IMAGE
        };
        place.key("image").report(rule, message);
    }
}
