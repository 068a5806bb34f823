//! Fabric: interfaces, network attachments, the variables of NCCL, and what `mpirun` hands on.

use super::{
    Rule,
    advice::{Advice, CAREFUL, Look, ODD, RISKY, WRONG, rule},
    scene::{Pod, Scene, talks_nccl},
};
use crate::{
    fabric::{ATTACHMENT_KIND, NETWORKS},
    finding::Fix,
};

mod attachment;
mod contradictions;
mod mpirun;
mod nccl;
pub(super) mod network;
mod profile;
mod secondary;

pub(super) use contradictions::RULES as CONTRADICTION_RULES;
pub(super) use network::{Attachment, attachments};
pub(super) use profile::RULES as PROFILE_RULES;
pub(super) use secondary::RULES as SECONDARY_RULES;

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY301",
            RISKY,
            "interface that the pod does not have",
            "`NCCL_SOCKET_IFNAME` and `GLOO_SOCKET_IFNAME` name the interfaces to talk on. A pod has `eth0`, \
             and one more for each network attachment: `net1`, `net2` and so on, or the name that \
             the annotation gives. Where none matches, NCCL ends with `no socket interface found`. \
             In NCCL a name is the beginning of a name unless `=` is before it; `^` excludes.",
        ),
        look: Look::Job(network::interfaces),
    },
    Advice {
        rule: rule(
            "TY302",
            RISKY,
            "RDMA reserved and switched off",
            "The container asks for an RDMA device, and `NCCL_IB_DISABLE` keeps NCCL from using it: \
             gradients travel over sockets, at a fraction of the speed.",
        ),
        look: Look::Job(rdma_off),
    },
    Advice {
        rule: rule(
            "TY303",
            ODD,
            "network attachment that is not in the files",
            "The files bring network attachments, but not the one that the pod names. Unless the \
             cluster has it, the pod is never started.",
        ),
        look: Look::Beside(no_attachment),
    },
    Advice {
        rule: rule(
            "TY304",
            RISKY,
            "networks on the job instead of its pods",
            "Network attachments are read from the annotations of a pod. On the job they do nothing: \
             the pods have `eth0` only.",
        ),
        look: Look::Job(networks_on_the_job),
    },
    Advice {
        rule: rule(
            "TY305",
            WRONG,
            "network attachment without valid JSON",
            "`spec.config` is the configuration of a network plugin, as JSON in a string. Where it cannot \
             be read, no pod with the attachment starts.",
        ),
        look: Look::Companion(attachment::json),
    },
    Advice {
        rule: rule(
            "TY306",
            ODD,
            "address ranges that overlap",
            "Two network attachments hand out addresses from ranges that share some, and do not know of \
             each other. Sooner or later two pods have the same address.",
        ),
        look: Look::Companion(attachment::overlap),
    },
    Advice {
        rule: rule(
            "TY307",
            RISKY,
            "addresses that every node hands out again",
            "`host-local` keeps its list of used addresses on the node. The same range on several nodes \
             of one network gives the same address to a pod on each of them. `whereabouts` keeps the \
             list in the cluster.",
        ),
        look: Look::Companion(attachment::host_local),
    },
    Advice {
        rule: rule(
            "TY308",
            RISKY,
            "network attachment that cannot work",
            "The plugin is missing, unknown, or lacks a setting: `host-device` needs to know \
             which device, and `sriov` and `ib-sriov` take theirs from a resource of the node that the \
             attachment must name.",
        ),
        look: Look::Companion(attachment::plugin),
    },
    Advice {
        rule: rule(
            "TY309",
            RISKY,
            "host network without cluster DNS",
            "A pod on the host's network asks the DNS server of its node unless `dnsPolicy` is \
             `ClusterFirstWithHostNet`. That server does not know the Services of the job, so the ranks do \
             not find each other.",
        ),
        look: Look::Job(host_network),
    },
    Advice {
        rule: rule(
            "TY310",
            ODD,
            "fixed NCCL tuning",
            "NCCL chooses algorithm, protocol and channels for every size and topology. A fixed value \
             that was measured on another cluster, or for one size, is slower for the others, and in \
             NCCL 2.30.7 `NCCL_ALGO` and `NCCL_PROTO` can leave no way to do a collective at all.",
        ),
        look: Look::Job(nccl::tuning),
    },
    Advice {
        rule: rule(
            "TY311",
            ODD,
            "variable that NCCL has removed",
            "The sources of NCCL 2.30.7 do not read the variable any more; older ones did. It changes \
             nothing.",
        ),
        look: Look::Job(nccl::removed),
    },
    Advice {
        rule: rule(
            "TY312",
            ODD,
            "variable that NCCL has renamed",
            "NCCL reads the variable under another name since 2.5.6. The old name still works in 2.30.7, \
             whose sources call it legacy, and the new one wins where both are set.",
        ),
        look: Look::Job(nccl::renamed),
    },
    Advice {
        rule: rule(
            "TY313",
            ODD,
            "variable that NCCL does not know",
            "No release of NCCL from 2.3.5 to 2.30.7 reads the variable, but one that is written almost \
             the same. NCCL ignores unknown variables without a message.",
        ),
        look: Look::Job(nccl::unknown),
    },
    Advice {
        rule: rule(
            "TY314",
            RISKY,
            "variable that the ranks never see",
            "Open MPI starts ranks on the workers without the variables of the launcher, except those \
             that `-x` names. What is set in the launcher's container alone changes nothing in the \
             ranks.",
        ),
        look: Look::Job(mpirun::not_forwarded),
    },
    Advice {
        rule: rule(
            "TY315",
            WRONG,
            "option and value in one argument",
            "Every item of `command` and `args` is one argument. An option with its value in the same \
             item is an option with a blank in its name, which the launcher does not know.",
        ),
        look: Look::Job(mpirun::option_with_value),
    },
    Advice {
        rule: rule(
            "TY316",
            CAREFUL,
            "NCCL logging is off",
            "Without `NCCL_DEBUG` NCCL logs nothing about the transport it chose and little about why it \
             failed. `WARN` costs nothing; `INFO` at the start shows which network carries the \
             gradients.",
        ),
        look: Look::Job(nccl_debug_unset),
    },
    Advice {
        rule: rule(
            "TY317",
            ODD,
            "fast path switched off",
            "The variable switches off a way in which GPUs of a node exchange data. That helps to find \
             a fault, and costs bandwidth for as long as it stays.",
        ),
        look: Look::Job(nccl::switches),
    },
    Advice {
        rule: rule(
            "TY318",
            RISKY,
            "ranks with different settings of NCCL",
            "The ranks of a communicator must agree on transport and algorithm. With different variables \
             in different roles they hang at the first collective, or are as slow as the slowest.",
        ),
        look: Look::Job(differ),
    },
];

/// Whether a resource is an RDMA device.
pub(super) fn is_rdma(resource: &str) -> bool {
    let (vendor, device) = resource.split_once('/').unwrap_or(("", resource));
    let devices = ["rdma", "roce", "infiniband", "ib_", "hca", "efa"];
    vendor == "rdma" || vendor.contains('.') && devices.iter().any(|word| device.contains(word))
}

/// Whether a resource is a device that NCCL drives by verbs. That of EFA is driven by a plugin, and its
/// nodes let containers pin what they need.
pub(super) fn is_verbs(resource: &str) -> bool {
    is_rdma(resource) && !resource.ends_with("/efa")
}

fn rdma_off(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let limits = pod
            .trainer
            .resources
            .iter()
            .filter_map(|found| found.limits.as_ref());
        let device = limits
            .flatten()
            .map(|(name, _)| name)
            .find(|name| is_verbs(name));
        let mut set = pod
            .variables()
            .chain(pod.assigned())
            .chain(scene.mpirun_variables());
        let off = set.find(|(name, value, _)| *name == "NCCL_IB_DISABLE" && *value != "0");
        if let Some((device, (_, value, place))) = device.zip(off) {
            place.report_with(
                rule,
                format!("`NCCL_IB_DISABLE` is `{value}`, but the container reserves `{device}`"),
                "remove the variable, or the device",
            );
        }
    }
}

fn no_attachment(rule: &Rule, scene: &Scene<'_>) {
    if scene.companions.of_kind(ATTACHMENT_KIND).next().is_none() {
        return;
    }
    for pod in &scene.pods {
        for attachment in attachments(scene, pod) {
            let Attachment {
                namespace, name, ..
            } = &attachment;
            if scene
                .companions
                .find(ATTACHMENT_KIND, namespace, name)
                .is_some()
            {
                continue;
            }
            if let Some((_, place)) = pod.annotation(NETWORKS) {
                place.report_with(
                    rule,
                    format!("the files have no network attachment `{name}` of namespace `{namespace}`"),
                    "add it to the files, or see that the cluster has it: `kubectl get net-attach-def`",
                );
            }
        }
    }
}

fn networks_on_the_job(rule: &Rule, scene: &Scene<'_>) {
    if scene.job.annotations.contains_key(NETWORKS) {
        scene
            .root
            .key("metadata")
            .key("annotations")
            .key(NETWORKS)
            .report_with(
                rule,
                format!("`{NETWORKS}` on the job does nothing, it belongs on the pods"),
                "move it to `metadata.annotations` of every `template`",
            );
    }
}

fn host_network(rule: &Rule, scene: &Scene<'_>) {
    const POLICY: &str = "ClusterFirstWithHostNet";
    // The pods of an `MPIJob` are given the policy, or are entered without any name.
    if scene.job.kind.is_mpi() {
        return;
    }
    for pod in &scene.pods {
        let stated = pod.spec.dns_policy.as_deref();
        if pod.spec.host_network != Some(true) || stated == Some(POLICY) {
            continue;
        }
        let (place, fix) = match stated {
            None => {
                let add = Fix::Add {
                    key: "dnsPolicy",
                    value: POLICY,
                };
                (pod.at().key("hostNetwork"), Some(add))
            }
            // On the host's network this word means the other one.
            Some("ClusterFirst") => (
                pod.at().key("dnsPolicy"),
                Some(Fix::Scalar(POLICY.to_owned())),
            ),
            Some(_) => (pod.at().key("dnsPolicy"), None),
        };
        place.report_fix(
            rule,
            "a pod on the host's network does not find the Services of the job",
            format!("write `dnsPolicy: {POLICY}`"),
            fix,
        );
    }
}

fn nccl_debug_unset(rule: &Rule, scene: &Scene<'_>) {
    let by_nccl = scene.ranks().any(|pod| pod.asks_for(talks_nccl));
    if !by_nccl || scene.gpus() == 0 || scene.pod_count() < 2 || scene.is_on_unknown_fabric() {
        return;
    }
    let sets_debug = |pod: &Pod<'_>| {
        let passed = pod
            .command()
            .words
            .iter()
            .any(|word| word.text.contains("NCCL_DEBUG"));
        pod.has_variable("NCCL_DEBUG") || passed || pod.trainer.env_from.is_some()
    };
    if let (false, Some(pod)) = (
        scene.pods.iter().any(sets_debug),
        scene.ranks().find(|pod| pod.gpus() > 0),
    ) {
        pod.trainer_at().key("env").report_with(
            rule,
            "`NCCL_DEBUG` is not set: NCCL does not log which network it uses",
            "add the variable `NCCL_DEBUG` with the value `WARN`",
        );
    }
}

fn differ(rule: &Rule, scene: &Scene<'_>) {
    const MAY_DIFFER: [&str; 3] = ["NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"];
    let mut pods = scene.ranks();
    let Some(first) = pods.next() else { return };
    for pod in pods {
        for (name, value, place) in pod.variables() {
            let other = first.variable(name).map(|(other, _)| other);
            if name.starts_with("NCCL_")
                && !MAY_DIFFER.contains(&name)
                && other.is_some_and(|other| other != value)
            {
                let other = other.unwrap_or_default();
                place.report_with(
                    rule,
                    format!(
                        "`{name}` is `{value}` in {} and `{other}` in {}",
                        pod.role, first.role
                    ),
                    "give all roles the same value",
                );
            }
        }
    }
}
