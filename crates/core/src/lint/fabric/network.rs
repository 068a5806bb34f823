//! The networks of a pod, and the interfaces that they give it.

use super::super::{
    Rule,
    companions::at,
    scene::{Pod, Scene},
};
use crate::fabric::{self, ATTACHMENT_KIND, NETWORKS, RESOURCE_NAME};

/// A network that a pod is attached to.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::lint) struct Attachment {
    pub(in crate::lint) namespace: String,
    pub(in crate::lint) name: String,
    interface: String,
}

impl Attachment {
    /// The resource of the node that its devices are counted as, where the files say so.
    pub(in crate::lint) fn resource<'a>(&self, scene: &Scene<'a>) -> Option<&'a str> {
        let object = scene
            .companions
            .find(ATTACHMENT_KIND, &self.namespace, &self.name)?;
        at(object, &["metadata", "annotations", RESOURCE_NAME])?.as_str()
    }
}

/// The networks of a pod, in the order in which they are attached.
pub(in crate::lint) fn attachments(scene: &Scene<'_>, pod: &Pod<'_>) -> Vec<Attachment> {
    let text = pod.annotation(NETWORKS).map_or("", |(text, _)| text);
    let own = scene.job.namespace.as_str();
    let attached = |(index, one): (usize, fabric::Attachment)| Attachment {
        interface: one.interface_at(index),
        namespace: one.namespace.unwrap_or_else(|| own.to_owned()),
        name: one.name,
    };
    fabric::attachments(text)
        .into_iter()
        .enumerate()
        .map(attached)
        .collect()
}

pub(in crate::lint) fn interfaces(rule: &Rule, scene: &Scene<'_>) {
    if scene.is_on_unknown_fabric() {
        return;
    }
    for pod in scene.ranks() {
        // What a cloud attaches by an annotation of its own is not known here.
        let by_cloud = pod.annotation("networking.gke.io/interfaces").is_some();
        if pod.spec.host_network == Some(true) || pod.has_claims() || by_cloud {
            continue;
        }
        let mut there = vec!["lo".to_owned(), "eth0".to_owned()];
        there.extend(
            attachments(scene, pod)
                .into_iter()
                .map(|found| found.interface),
        );
        let mpirun_variables = scene.mpirun_variables();
        let set = pod
            .variables()
            .chain(pod.assigned())
            .chain(mpirun_variables);
        for (name, value, place) in set {
            let missing = match name {
                "NCCL_SOCKET_IFNAME" => {
                    !value.starts_with('^')
                        && !value.is_empty()
                        && !value.split(',').any(|wanted| nccl_matches(wanted, &there))
                }
                "GLOO_SOCKET_IFNAME" => value
                    .split(',')
                    .any(|wanted| !there.iter().any(|found| found == wanted.trim())),
                _ => false,
            };
            if missing && !value.contains('$') {
                let shown: Vec<String> = there
                    .iter()
                    .skip(1)
                    .map(|found| format!("`{found}`"))
                    .collect();
                place.report_with(
                    rule,
                    format!("`{name}` is `{value}`, the pod has {}", shown.join(", ")),
                    format!("name one of them, or attach the network with the annotation `{NETWORKS}` of the template"),
                );
            }
        }
    }
}

/// Whether NCCL finds an interface for `wanted`: by its beginning, or after `=` by its whole name.
fn nccl_matches(wanted: &str, there: &[String]) -> bool {
    match wanted.trim().strip_prefix('=') {
        Some(exact) => there.iter().any(|found| found == exact),
        None => there.iter().any(|found| found.starts_with(wanted.trim())),
    }
}
