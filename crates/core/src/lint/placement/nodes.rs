//! What the labels in a `nodeSelector` say of the nodes: of which cloud they are, which machine, which devices it has.

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    scene::{Pod, Scene, counted},
};
use crate::spec::{Place, RestartPolicy};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY517",
            RISKY,
            "node that no cloud has",
            "The `nodeSelector` has labels that no node has together: of two clouds, or of another maker's devices than those that the \
             container asks for. The pods stay Pending.",
        ),
        look: Look::Job(impossible),
    },
    Advice {
        rule: rule(
            "TY518",
            RISKY,
            "more GPUs than the machine has",
            "The `nodeSelector` names a type of machine, or a number of GPUs, and the pod asks for more GPUs than one has. A pod is on one node, so \
             it stays Pending.",
        ),
        look: Look::Job(too_small),
    },
    Advice {
        rule: rule(
            "TY519",
            RISKY,
            "spot nodes without a second attempt",
            "A cloud takes spot nodes back whenever it likes. With a `backoffLimit` of 0, or a restart policy `Never` of a role, that ends the \
             job. Nodes that Azure sells as spot have a taint, too, which the pods must tolerate.",
        ),
        look: Look::Job(spot),
    },
    Advice {
        rule: rule(
            "TY520",
            RISKY,
            "priority of the system",
            "`system-node-critical` and `system-cluster-critical` are for what a node or the cluster cannot do without. A job with one of them \
             preempts the network and the storage of its node, and many clusters refuse it outside of `kube-system`.",
        ),
        look: Look::Job(of_system),
    },
    Advice {
        rule: rule(
            "TY521",
            ODD,
            "label that has been replaced",
            "Kubernetes has replaced its labels with `beta` in their name, and the node labels `kubernetes.io/role` and \
             `node-role.kubernetes.io/master`. New nodes of some clouds do not have the old ones any more, and pods that select by them stay Pending.",
        ),
        look: Look::Job(old_labels),
    },
    Advice {
        rule: rule(
            "TY522",
            WRONG,
            "TPU pods that do not fit the slice",
            "A slice of TPUs has as many chips as its topology multiplied out, and every pod has the chips of one node. A Job is one slice, so its \
             `parallelism` is the chips divided by those of a pod; several slices are several Jobs of a JobSet.",
        ),
        look: Look::Job(slices),
    },
];

/// The selected labels of a pod: key, value and place.
fn selected<'a>(pod: &Pod<'a>) -> Vec<(&'a str, &'a str, Place<'a>)> {
    let place = pod.at().key("nodeSelector");
    let labels = pod.spec.node_selector.iter().flatten();
    let pair =
        |(key, value): (&'a String, &'a String)| (key.as_str(), value.as_str(), place.key(key));
    labels.map(pair).collect()
}

/// The cloud whose nodes alone have a label.
fn cloud(key: &str) -> Option<&'static str> {
    let domain = key.split('/').next().unwrap_or_default();
    match domain {
        "cloud.google.com" => Some("Google Cloud"),
        "eks.amazonaws.com" | "karpenter.k8s.aws" | "alpha.eksctl.io" => Some("AWS"),
        "kubernetes.azure.com" | "karpenter.azure.com" => Some("Azure"),
        "doks.digitalocean.com" => Some("DigitalOcean"),
        _ => None,
    }
}

/// The maker of the devices that a node with a label has, where it says so.
fn maker(key: &str) -> Option<&'static str> {
    match key {
        "cloud.google.com/gke-accelerator" => Some("nvidia.com/"),
        "cloud.google.com/gke-tpu-accelerator" | "cloud.google.com/gke-tpu-topology" => {
            Some("google.com/")
        }
        _ if key.starts_with("nvidia.com/gpu.") => Some("nvidia.com/"),
        _ if key.starts_with("amd.com/gpu.") => Some("amd.com/"),
        _ => None,
    }
}

/// Prefixes of the devices that are counted.
const MAKERS: [&str; 5] = [
    "amd.com/",
    "aws.amazon.com/",
    "google.com/",
    "habana.ai/",
    "nvidia.com/",
];

fn impossible(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let labels = selected(pod);
        let mut clouds = labels
            .iter()
            .filter_map(|(key, _, place)| Some((cloud(key)?, key, place)));
        if let Some((first, one, _)) = clouds.next()
            && let Some((second, other, place)) = clouds.find(|(name, _, _)| *name != first)
        {
            place.report_with(
                rule,
                format!("`{one}` is a label of {first}, `{other}` of {second}"),
                "remove the labels of the cloud that the nodes are not in",
            );
            continue;
        }
        let limits = pod
            .trainer
            .resources
            .as_ref()
            .and_then(|it| it.limits.as_ref());
        let asked: Vec<&str> = limits
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .filter(|name| MAKERS.iter().any(|maker| name.starts_with(maker)))
            .collect();
        let wrong = labels.iter().find_map(|(key, _, place)| {
            let of = maker(key)?;
            let fits = asked.is_empty() || asked.iter().any(|name| name.starts_with(of));
            (!fits).then_some((key, place))
        });
        if let Some(((key, place), device)) = wrong.zip(asked.first()) {
            place.report_with(
                rule,
                format!("nodes with `{key}` have no `{device}`, which the container asks for"),
                "select nodes with the devices that the container asks for",
            );
        }
    }
}

/// GPUs of a type of machine.
fn gpus_of_machine(name: &str) -> Option<u64> {
    let known: &[(&str, u64)] = &[
        ("p3.2xlarge", 1),
        ("p3.8xlarge", 4),
        ("p3.16xlarge", 8),
        ("p3dn.24xlarge", 8),
        ("p4d.24xlarge", 8),
        ("p4de.24xlarge", 8),
        ("p5.4xlarge", 1),
        ("p5.48xlarge", 8),
        ("p5e.48xlarge", 8),
        ("p5en.48xlarge", 8),
        ("g4dn.12xlarge", 4),
        ("g4dn.metal", 8),
        ("g5.12xlarge", 4),
        ("g5.24xlarge", 4),
        ("g5.48xlarge", 8),
        ("g6.12xlarge", 4),
        ("g6.24xlarge", 4),
        ("g6.48xlarge", 8),
        ("a2-highgpu-1g", 1),
        ("a2-highgpu-2g", 2),
        ("a2-highgpu-4g", 4),
        ("a2-highgpu-8g", 8),
        ("a2-megagpu-16g", 16),
        ("a2-ultragpu-1g", 1),
        ("a2-ultragpu-2g", 2),
        ("a2-ultragpu-4g", 4),
        ("a2-ultragpu-8g", 8),
        ("a3-highgpu-8g", 8),
        ("a3-megagpu-8g", 8),
        ("a3-ultragpu-8g", 8),
        ("Standard_NC24ads_A100_v4", 1),
        ("Standard_NC48ads_A100_v4", 2),
        ("Standard_NC96ads_A100_v4", 4),
        ("Standard_ND96asr_v4", 8),
        ("Standard_ND96amsr_A100_v4", 8),
        ("Standard_ND96isr_H100_v5", 8),
    ];
    if let Some((_, gpus)) = known.iter().find(|(known, _)| *known == name) {
        return Some(*gpus);
    }
    // The other sizes of these families have one.
    let (family, size) = name.split_once('.')?;
    let single = ["xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"];
    (matches!(family, "g4dn" | "g5" | "g6") && single.contains(&size)).then_some(1)
}

fn too_small(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (key, value, place) in selected(pod) {
            let has = match key {
                "node.kubernetes.io/instance-type" | "beta.kubernetes.io/instance-type" => {
                    gpus_of_machine(value)
                }
                "nvidia.com/gpu.count" | "karpenter.k8s.aws/instance-gpu-count" => {
                    value.parse().ok()
                }
                _ => None,
            };
            let asked = pod.gpus();
            let whole = pod.asks_for(|name| name == "nvidia.com/gpu");
            if let Some(has) = has.filter(|has| *has < asked && whole) {
                place.report_with(
                    rule,
                    format!("a pod asks for {}, a node with `{value}` here has {has}", counted(asked, "GPU")),
                    "ask for no more GPUs in one pod, and start more pods, or select a larger machine",
                );
            }
        }
    }
}

/// Whether a label selects nodes that may be taken back at any time.
fn is_spot(key: &str, value: &str) -> bool {
    match key {
        "cloud.google.com/gke-spot" | "cloud.google.com/gke-preemptible" => value == "true",
        "eks.amazonaws.com/capacityType" => value == "SPOT",
        "karpenter.sh/capacity-type" | "kubernetes.azure.com/scalesetpriority" => value == "spot",
        _ => false,
    }
}

fn spot(rule: &Rule, scene: &Scene<'_>) {
    let spec = scene.spec();
    let limit = if scene.is_job() {
        scene.run_policy().key("backoffLimit").whole_number()
    } else {
        let inner = spec.key("jobTemplate").key("spec").key("backoffLimit");
        let own = spec.key("backoffLimit");
        own.whole_number().or_else(|| inner.whole_number())
    };
    for pod in scene.pods.iter().filter(|pod| pod.gpus() > 0) {
        let labels = selected(pod);
        let Some((key, value, place)) = labels
            .into_iter()
            .find(|(key, value, _)| is_spot(key, value))
        else {
            continue;
        };
        let stated = scene.job.roles.get(&pod.role);
        // The workers of an MPIJob are started again by its launcher.
        let never = !scene.job.kind.is_mpi()
            && stated.is_some_and(|stated| stated.restart_policy == RestartPolicy::Never);
        let taint = "kubernetes.azure.com/scalesetpriority";
        let tolerates = pod.spec.tolerations.iter().flatten().any(|found| {
            let key = found.key.as_deref().unwrap_or_default();
            key.is_empty() || key == taint
        });
        if limit == Some(0) || scene.is_job() && never {
            place.report_with(
                rule,
                format!("`{key}: {value}` selects nodes that may be taken back, and the first loss ends the job"),
                "allow some failures, such as `backoffLimit: 10`, and restart `OnFailure`",
            );
        } else if key == taint && !tolerates {
            place.report_with(
                rule,
                format!("nodes with `{key}: {value}` have a taint of the same name, which the pods do not tolerate"),
                format!("add a toleration with the key `{taint}` and the value `spot`"),
            );
        }
    }
}

fn of_system(rule: &Rule, scene: &Scene<'_>) {
    if scene.job.namespace.as_str() == "kube-system" {
        return;
    }
    for pod in scene.pods.iter().filter(|pod| pod.gpus() > 0) {
        let class = pod.spec.priority_class_name.as_deref().unwrap_or_default();
        if matches!(class, "system-node-critical" | "system-cluster-critical") {
            pod.at().key("priorityClassName").report_with(
                rule,
                format!("`{class}` is for what the cluster cannot do without"),
                "make a PriorityClass for training, and name that",
            );
        }
    }
}

/// The label that has replaced `key`.
fn replaced(key: &str) -> Option<&'static str> {
    match key {
        "beta.kubernetes.io/arch" => Some("kubernetes.io/arch"),
        "beta.kubernetes.io/instance-type" => Some("node.kubernetes.io/instance-type"),
        "beta.kubernetes.io/os" => Some("kubernetes.io/os"),
        "failure-domain.beta.kubernetes.io/region" => Some("topology.kubernetes.io/region"),
        "failure-domain.beta.kubernetes.io/zone" | "failure-domain.kubernetes.io/zone" => {
            Some("topology.kubernetes.io/zone")
        }
        "kubernetes.io/role" => Some("node-role.kubernetes.io/ROLE"),
        "node-role.kubernetes.io/master" => Some("node-role.kubernetes.io/control-plane"),
        _ => None,
    }
}

/// Keys of labels that a pod goes by, with their places.
fn keys<'a>(pod: &Pod<'a>) -> Vec<(&'a str, Place<'a>)> {
    let mut found: Vec<(&str, Place<'_>)> = selected(pod)
        .into_iter()
        .map(|(key, _, place)| (key, place))
        .collect();
    let list = pod.at().key("topologySpreadConstraints");
    let constraints = pod.spec.topology_spread_constraints.iter().flatten();
    for (index, constraint) in constraints.enumerate() {
        let place = list.index(index).key("topologyKey");
        found.push((constraint.topology_key.as_str(), place));
    }
    let affinity = pod.at().key("affinity");
    let stated = pod.spec.affinity.as_ref();
    let node = stated.and_then(|it| it.node_affinity.as_ref());
    let required = node.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let place = affinity.key("nodeAffinity");
    let place = place.key("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.map(|it| it.node_selector_terms.as_slice());
    for (index, term) in terms.unwrap_or_default().iter().enumerate() {
        let list = place.key("nodeSelectorTerms").index(index);
        let list = list.key("matchExpressions");
        for (index, found_term) in term.match_expressions.iter().flatten().enumerate() {
            found.push((found_term.key.as_str(), list.index(index).key("key")));
        }
    }
    let near = stated.and_then(|it| it.pod_affinity.as_ref());
    let near = near.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let place = affinity.key("podAffinity");
    let place = place.key("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in near.into_iter().flatten().enumerate() {
        found.push((
            term.topology_key.as_str(),
            place.index(index).key("topologyKey"),
        ));
    }
    found
}

fn old_labels(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (key, place) in keys(pod) {
            if let Some(new) = replaced(key) {
                place.report_with(
                    rule,
                    format!("the label `{key}` is old"),
                    format!("write `{new}`"),
                );
            }
        }
    }
}

fn slices(rule: &Rule, scene: &Scene<'_>) {
    // The number of pods of other objects is written otherwise.
    let spec = scene.spec();
    if !spec.key("replicatedJobs").is_there() && !spec.key("parallelism").is_there() {
        return;
    }
    for pod in &scene.pods {
        let labels = selected(pod);
        let topology = labels
            .iter()
            .find(|(key, _, _)| *key == "cloud.google.com/gke-tpu-topology");
        let Some((_, topology, place)) = topology else {
            continue;
        };
        let sides: Option<Vec<u64>> = topology.split('x').map(|side| side.parse().ok()).collect();
        let limits = pod
            .trainer
            .resources
            .as_ref()
            .and_then(|it| it.limits.as_ref());
        let each = limits.and_then(|it| crate::quantity::units(it.get("google.com/tpu")?));
        let Some((sides, each)) = sides.zip(each).filter(|(_, each)| *each > 0) else {
            continue;
        };
        let chips = sides.into_iter().fold(1, u64::saturating_mul);
        let needed = chips / each;
        let pods = u64::from(pod.replicas);
        if chips % each != 0 || needed != pods {
            place.report_with(
                rule,
                format!("the slice `{topology}` has {chips} TPUs, {pods} pods ask for {each} each"),
                format!(
                    "start {} pods, or select a topology of {} TPUs",
                    needed.max(1),
                    pods.saturating_mul(each)
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_and_spot_nodes_are_known() {
        for (machine, want) in [
            ("g5.4xlarge", Some(1)),
            ("g5.12xlarge", Some(4)),
            ("p5.48xlarge", Some(8)),
            ("m5.4xlarge", None),
            ("a2-megagpu-16g", Some(16)),
        ] {
            assert_eq!(gpus_of_machine(machine), want, "{machine}");
        }
        for (key, value, want) in [
            ("karpenter.sh/capacity-type", "spot", true),
            ("karpenter.sh/capacity-type", "on-demand", false),
            ("cloud.google.com/gke-spot", "true", true),
            ("spot", "true", false),
        ] {
            assert_eq!(is_spot(key, value), want, "{key}");
        }
    }
}
