//! Networks and variables of NCCL that contradict themselves.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, WRONG, rule},
    scene::Scene,
};
use crate::fabric::NETWORKS;

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY327",
            WRONG,
            "networks that cannot be read",
            "The annotation `k8s.v1.cni.cncf.io/networks` is a list of names with commas, each `NAMESPACE/NAME@INTERFACE` or a part \
             of it, or a list in JSON. Where it cannot be read, or gives one interface to two networks, no pod starts.",
        ),
        look: Look::Job(unreadable),
    },
    Advice {
        rule: rule(
            "TY328",
            ODD,
            "variables of NCCL that contradict each other",
            "`NCCL_IB_DISABLE=1` keeps NCCL from InfiniBand and RoCE, `NCCL_NET=Socket` from all RDMA, and the variables about it are then \
             never read. One of the two is not meant. `NCCL_SOCKET_IFNAME=lo` reaches no other pod.",
        ),
        look: Look::Job(contradictions),
    },
];

fn unreadable(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let Some((text, place)) = pod.annotation(NETWORKS) else {
            continue;
        };
        let text = text.trim();
        if text.is_empty() || text.contains("${") || text.contains("{{") {
            continue;
        }
        let interfaces: Vec<String> = if text.starts_with(['[', '{']) {
            match serde_json::from_str::<Json>(text) {
                Ok(Json::Array(items)) => {
                    let nameless = items.iter().any(|item| item.get("name").is_none());
                    if nameless {
                        place.report_with(
                            rule,
                            "a network of the list has no `name`",
                            "write `[{\"name\": \"NETWORK\"}]`, the name of a NetworkAttachmentDefinition",
                        );
                    }
                    let named = items
                        .iter()
                        .filter_map(|item| item.get("interface")?.as_str());
                    named.map(str::to_owned).collect()
                }
                Ok(_) => {
                    place.report_with(
                        rule,
                        "the networks are one object, not a list of them",
                        "put it into `[` and `]`",
                    );
                    continue;
                }
                Err(error) => {
                    place.report_with(
                        rule,
                        format!("the networks are not valid JSON: {error}"),
                        "correct the JSON, or write names with commas between them",
                    );
                    continue;
                }
            }
        } else {
            let parts = text.split(',').map(str::trim);
            parts
                .filter_map(|part| Some(part.split_once('@')?.1.to_owned()))
                .collect()
        };
        let mut seen = BTreeSet::new();
        let twice = interfaces.iter().find(|name| !seen.insert(name.as_str()));
        if let Some(name) = twice {
            place.report_with(
                rule,
                format!("two networks are to be the interface `{name}`"),
                "give every network an interface of its own, or leave the names out",
            );
        }
    }
}

fn contradictions(rule: &Rule, scene: &Scene<'_>) {
    const OF_RDMA: [&str; 5] = [
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_HCA",
        "NCCL_IB_SL",
        "NCCL_IB_TC",
        "NCCL_NET_GDR_LEVEL",
    ];
    for pod in scene.ranks() {
        let set: Vec<_> = pod
            .variables()
            .chain(pod.assigned())
            .chain(scene.mpirun_variables())
            .collect();
        let off = set.iter().find(|(name, value, _)| {
            *name == "NCCL_IB_DISABLE" && *value == "1"
                || *name == "NCCL_NET" && value.eq_ignore_ascii_case("socket")
        });
        for (name, value, place) in &set {
            // A plugin for another network goes by this one, too, where InfiniBand alone is off.
            let of_plugin = *name == "NCCL_NET_GDR_LEVEL"
                && off.is_some_and(|(switch, ..)| *switch == "NCCL_IB_DISABLE");
            let is_rdma = OF_RDMA.contains(name) && !value.is_empty() && !of_plugin
                || *name == "NCCL_NET" && value.eq_ignore_ascii_case("ib");
            if let (Some((switch, setting, _)), true) = (off, is_rdma) {
                place.report_with(
                    rule,
                    format!(
                        "`{name}` is `{value}`, but `{switch}` is `{setting}`: NCCL uses no InfiniBand"
                    ),
                    format!("remove `{name}`, or `{switch}` if RDMA is meant"),
                );
            }
            // The pods of a Deployment may each be one of their own.
            let is_loop = matches!(*value, "lo" | "=lo") && scene.is_job();
            if *name == "NCCL_SOCKET_IFNAME" && is_loop && scene.pod_count() > 1 {
                place.report_with(
                    rule,
                    format!("`{name}` is `{value}`, on which no other pod is reached"),
                    "name the interface of the pods' network, such as `eth0`",
                );
            }
        }
    }
}
