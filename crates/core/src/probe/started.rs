//! `pod-starts`: the check of a node whose pod of a preflight did not start. Nobody measures it, so adapters report it.

use super::{Check, Layer, Owner, catalogue::Entry};

/// The check. Its owner is the job's, so that no node is blamed for volumes and networks that only the job names.
pub const POD_STARTS: Entry = Entry {
    name: "pod-starts",
    layer: Layer::Host,
    owner: Owner::MlTeam,
    about: "the pod of the preflight starts on the node",
};

/// A pod has its node and does not start there, and why.
pub fn pod_not_started(why: &str) -> Check {
    POD_STARTS.fail(
        format!("a pod that does not start: {why}"),
        "every pod of the gang starts",
        "a volume that cannot be mounted, a network that cannot be attached, or an image that cannot be pulled",
        "check the volumes and annotations of the template, and whether this node has them",
    )
}

/// No pod got to the node, and why.
pub fn pod_not_placed(why: &str) -> Check {
    POD_STARTS.fail(
        format!("no pod started on the node: {why}"),
        "a pod on the node",
        "the node has no free resources, or the pod does not tolerate its taints",
        "run `trainyard nodes` to see which accelerators are free",
    )
}
