//! Names inside of a pod that the cluster refuses.

use super::super::{
    Rule,
    advice::{Advice, Look, WRONG, rule},
    scene::Scene,
};
use crate::spec::{Namespace, Place};

/// The rules about names.
pub(in crate::lint) static RULES: &[Advice] = &[Advice {
    rule: rule(
        "TY165",
        WRONG,
        "name that the cluster refuses",
        "The API server takes the job and refuses its pods, so the job stays without any. Containers and volumes are \
         named like DNS labels, by lower-case letters, digits and `-`. The name of a port has at most 15 characters, \
         one of them a letter.",
    ),
    look: Look::Job(refused),
}];

fn refused(rule: &Rule, scene: &Scene<'_>) {
    let label = |place: &Place<'_>, what: &str, name: &str| {
        // A namespace is a DNS label, too.
        if let Err(error) = Namespace::parse(name) {
            place.key("name").report_with(
                rule,
                format!("invalid {what} name `{name}`: {error}"),
                format!("rename the {what}, and what refers to it"),
            );
        }
    };
    for pod in &scene.pods {
        let list = pod.at().key("volumes");
        for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
            label(&list.index(index), "volume", &volume.name);
        }
        for (container, place) in pod.containers() {
            label(&place, "container", &container.name);
            let list = place.key("ports");
            for (index, port) in container.ports.iter().flatten().enumerate() {
                let name = port.name.as_deref().unwrap_or_default();
                if !name.is_empty() && !is_port_name(name) {
                    list.index(index).key("name").report_with(
                        rule,
                        format!("invalid port name `{name}`"),
                        "use at most 15 lower-case letters, digits and single `-`, one of them a letter",
                    );
                }
            }
        }
    }
}

/// Whether a port can have the name, as RFC 6335 has it.
fn is_port_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 15
        && name.bytes().all(fits)
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ports() {
        for name in ["pytorchjob-port", "http", "8080-a", "a"] {
            assert!(is_port_name(name), "{name}");
        }
        for name in ["pytorch-job-port", "Http", "8080", "a--b", "-a", "a_b", ""] {
            assert!(!is_port_name(name), "{name}");
        }
    }
}
