//! Fields of a container and a volume whose value has a form of its own: paths of fields, modes of files, capabilities.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, EnvVar, Volume};

use super::super::super::{Rule, scene::Pod};
use crate::spec::Place;

/// Fields of a pod that a variable may take, besides labels and annotations.
const POD_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn of_container(rule: &Rule, container: &Container, place: &Place<'_>) {
    let list = place.key("env");
    for (index, variable) in container.env.iter().flatten().enumerate() {
        of_variable(rule, variable, &list.index(index));
    }
    let list = place.key("ports");
    let mut names = BTreeSet::new();
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let name = port.name.as_deref().unwrap_or_default();
        if !name.is_empty() && !names.insert(name) {
            list.index(index).key("name").report_with(
                rule,
                format!("the container `{}` has two ports `{name}`", container.name),
                "rename one of the two",
            );
        }
    }
    let list = place.key("volumeMounts");
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = mount.sub_path.as_deref().unwrap_or_default();
        if path.starts_with('/') || path.split('/').any(|part| part == "..") {
            list.index(index).key("subPath").report_with(
                rule,
                format!("`subPath` must be below the volume, found `{path}`"),
                "write the path without the first `/`, and without `..`",
            );
        }
    }
    let own = container.security_context.as_ref();
    let added = own.and_then(|own| own.capabilities.as_ref()?.add.as_ref());
    let list = place.key("securityContext").key("capabilities").key("add");
    for (index, name) in added.into_iter().flatten().enumerate() {
        if let Some(short) = name.strip_prefix("CAP_") {
            list.index(index).report_with(
                rule,
                format!("the capability is written `{name}`, and containerd puts `CAP_` before it once more"),
                format!("write `{short}`"),
            );
        }
    }
}

fn of_variable(rule: &Rule, variable: &EnvVar, place: &Place<'_>) {
    let name = variable.name.as_str();
    let Some(from) = &variable.value_from else {
        return;
    };
    if variable
        .value
        .as_deref()
        .is_some_and(|value| !value.is_empty())
    {
        place.key("value").report_with(
            rule,
            format!("`{name}` has both `value` and `valueFrom`, and must have one"),
            "remove one of the two",
        );
    }
    let place = place.key("valueFrom");
    if let Some(field) = &from.field_ref {
        let path = field.field_path.as_str();
        let by_key = ["metadata.labels['", "metadata.annotations['"]
            .iter()
            .any(|start| path.starts_with(start) && path.ends_with("']"));
        if !path.is_empty() && !path.contains('$') && !by_key && !POD_FIELDS.contains(&path) {
            place.key("fieldRef").key("fieldPath").report_with(
                rule,
                format!("`{name}` takes the field `{path}`, which a variable cannot take"),
                format!(
                    "name one of {}, or `metadata.labels['KEY']`",
                    POD_FIELDS.join(", ")
                ),
            );
        }
    }
    if let Some(resource) = &from.resource_field_ref {
        let known = ["cpu", "memory", "ephemeral-storage"];
        let taken = resource.resource.as_str();
        let (list, what) = taken.split_once('.').unwrap_or_default();
        let fits = matches!(list, "limits" | "requests")
            && (known.contains(&what) || what.starts_with("hugepages-"));
        if !taken.is_empty() && !taken.contains('$') && !fits {
            place.key("resourceFieldRef").key("resource").report_with(
                rule,
                format!("`{name}` takes `{taken}`, a variable can take CPUs, memory and ephemeral storage only"),
                "write the number as the value",
            );
        }
    }
}

pub(super) fn of_volume(rule: &Rule, volume: &Volume, place: &Place<'_>) {
    let map = volume.config_map.as_ref();
    let secret = volume.secret.as_ref();
    let modes = [
        ("configMap", map.and_then(|map| map.default_mode)),
        ("secret", secret.and_then(|secret| secret.default_mode)),
    ];
    for (field, mode) in modes {
        // The largest is 0777, which is 511.
        if let Some(mode) = mode.filter(|mode| !(0..=511).contains(mode)) {
            place.key(field).key("defaultMode").report_with(
                rule,
                format!("`defaultMode` is {mode}, the largest is 511, which is 0777 in octal"),
                "write it in octal with a 0 before it, such as `0755`",
            );
        }
    }
}

pub(super) fn of_selector(rule: &Rule, pod: &Pod<'_>) {
    for (key, value) in pod.spec.node_selector.iter().flatten() {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let ends = |end: Option<char>| end.is_none_or(|c| c.is_ascii_alphanumeric());
        let fits = value.len() <= 63
            && value.chars().all(known)
            && ends(value.chars().next())
            && ends(value.chars().last());
        if !fits && !value.contains(['$', '{', '<']) {
            pod.at().key("nodeSelector").key(key).report_with(
                rule,
                format!("`{value}` cannot be the value of a label"),
                "write the value as `kubectl get nodes --show-labels` shows it: letters, digits, `-`, `_` and `.`",
            );
        }
    }
}
