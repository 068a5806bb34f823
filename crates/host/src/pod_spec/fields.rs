//! What a pod may ask about itself: `fieldRef` and `resourceFieldRef`.

use k8s_openapi::{
    api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{Facts, Missing};
use crate::quantity;

/// The value of `selector`; the error names what a pod here does not have.
pub(super) fn field(
    pod: &Pod,
    facts: &Facts<'_>,
    selector: &ObjectFieldSelector,
) -> Result<String, Missing> {
    let metadata = &pod.metadata;
    let path = selector.field_path.as_str();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let keyed = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
    if let Some(key) = keyed("metadata.labels['") {
        let labels = metadata.labels.as_ref();
        return Ok(labels
            .and_then(|all| all.get(key).cloned())
            .unwrap_or_default());
    }
    if let Some(key) = keyed("metadata.annotations['") {
        let annotations = metadata.annotations.as_ref();
        return Ok(annotations
            .and_then(|all| all.get(key).cloned())
            .unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => text(&metadata.name),
        "metadata.namespace" => text(&metadata.namespace),
        "metadata.uid" => facts.uid.to_owned(),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => facts.node.to_owned(),
        "spec.serviceAccountName" => {
            let spec = pod.spec.as_ref();
            let stated = spec.and_then(|spec| spec.service_account_name.clone());
            stated.unwrap_or_else(|| "default".to_owned())
        }
        "status.podIP" | "status.podIPs" => facts.address.to_string(),
        "status.hostIP" | "status.hostIPs" => "127.0.0.1".to_owned(),
        _ => return Err(Missing::Unsupported(format!("field `{path}`"))),
    })
}

/// The form of labels and annotations in a downward API file.
fn lines(all: Option<&std::collections::BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = all
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    lines.join("\n")
}

/// The value of `selector` for `container`. A limit that is not stated is all that there is.
pub(super) fn resource(
    container: &Container,
    facts: &Facts<'_>,
    selector: &ResourceFieldSelector,
) -> Result<String, Missing> {
    let path = selector.resource.as_str();
    let unknown = || Missing::Unsupported(format!("resource field `{path}`"));
    let (list, name) = path.split_once('.').ok_or_else(unknown)?;
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let stated = match list {
        "limits" => limits,
        "requests" => resources
            .and_then(|resources| resources.requests.as_ref())
            .or(limits),
        _ => return Err(unknown()),
    };
    let all = match name {
        "cpu" => i128::from(facts.cpus) * 1000,
        "memory" => i128::from(facts.memory_bytes) * 1000,
        "ephemeral-storage" => 0,
        _ if name.starts_with("hugepages-") => 0,
        _ => return Err(unknown()),
    };
    let amount = match stated.and_then(|stated| stated.get(name)) {
        Some(amount) => quantity::milli(amount).ok_or_else(unknown)?,
        None => all,
    };
    let one = Quantity("1".to_owned());
    let divisor = selector.divisor.as_ref().unwrap_or(&one);
    let divisor = quantity::milli(divisor)
        .filter(|divisor| *divisor > 0)
        .unwrap_or(1000);
    Ok(((amount + divisor - 1) / divisor).to_string())
}
