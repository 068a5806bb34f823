//! What Kubernetes asks of a pod and its node, checked pod by pod in the cluster as it is after a placement.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodAffinityTerm, Toleration};
use trainyard_core::gang::{Gang, Node, QUARANTINED, Snapshot, TaintEffect};

use super::check::Pod;
use crate::violation::{Verdict, Violation};

/// Checks the constraints of every pod that was given a seat, and of the others towards it.
pub(super) fn check(snapshot: &Snapshot, gangs: &[Gang], pods: &[Pod<'_>]) -> Verdict {
    for (at, pod) in pods.iter().enumerate().filter(|(_, pod)| pod.is_new) {
        let Some(gang) = pod.gang.map(|gang| &gangs[gang]) else {
            continue;
        };
        let constraints = &gang.shapes[pod.shape].constraints;
        let node = &snapshot.nodes[pod.node];
        let broken = |rule: &str| {
            Err(Violation::new(
                "no constraint is violated",
                format!("{} on {}: {rule}", gang.key, pod.node),
            ))
        };
        if !node.ready || node.taints.iter().any(|taint| taint.key == QUARANTINED) {
            return broken("the node is closed to pods");
        }
        let bears = |key: &str| constraints.tolerations.iter().any(|own| exists(own, key));
        if node.unschedulable && !bears("node.kubernetes.io/unschedulable") {
            return broken("cordoned");
        }
        let hard = node
            .taints
            .iter()
            .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
        if let Some(taint) = hard.into_iter().find(|taint| !bears(&taint.key)) {
            return broken(&format!("taint {}", taint.key));
        }
        if constraints
            .node_selector
            .iter()
            .any(|(key, value)| node.labels.get(key) != Some(value))
        {
            return broken("nodeSelector");
        }
        for (to, other) in pods.iter().enumerate().filter(|(to, _)| *to != at) {
            let place = |key: &str| {
                let here = place(pod.node, node, key);
                here.is_some() && here == place(other.node, &snapshot.nodes[other.node], key)
            };
            let keeps_apart = |terms: &[PodAffinityTerm], whom: &Pod<'_>, whose: &Pod<'_>| {
                terms.iter().any(|term| {
                    place(&term.topology_key)
                        && whom.namespace == whose.namespace
                        && is_meant(term, whom.labels)
                })
            };
            if snapshot.nodes.contains_key(other.node)
                && (keeps_apart(pod.anti, other, pod) || keeps_apart(other.anti, pod, other))
            {
                return broken(&format!("anti-affinity with pod {to} on {}", other.node));
            }
        }
        spread(snapshot, gang, pod, pods)?;
    }
    Ok(())
}

fn spread(snapshot: &Snapshot, gang: &Gang, pod: &Pod<'_>, pods: &[Pod<'_>]) -> Verdict {
    let constraints = &gang.shapes[pod.shape].constraints;
    for rule in &constraints.spread {
        let wanted = rule
            .label_selector
            .as_ref()
            .and_then(|own| own.match_labels.clone());
        let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
        let is_counted = |node: &Node| {
            constraints
                .node_selector
                .iter()
                .all(|(k, v)| node.labels.get(k) == Some(v))
        };
        for (name, node) in &snapshot.nodes {
            if let (Some(place), true) = (place(name, node, &rule.topology_key), is_counted(node)) {
                counts.entry(place).or_default();
            }
        }
        for other in pods
            .iter()
            .filter(|other| other.namespace == pod.namespace && !other.leaving)
        {
            let Some(node) = snapshot
                .nodes
                .get(other.node)
                .filter(|node| is_counted(node))
            else {
                continue;
            };
            let is_selected = wanted
                .iter()
                .flatten()
                .all(|(key, value)| other.labels.get(key) == Some(value));
            if let (Some(place), true) = (place(other.node, node, &rule.topology_key), is_selected)
            {
                *counts.entry(place).or_default() += 1;
            }
        }
        let least = counts.values().min().copied().unwrap_or(0);
        let own = place(pod.node, &snapshot.nodes[pod.node], &rule.topology_key);
        let here = own.and_then(|own| counts.get(own)).copied();
        if here.is_none_or(|here| here - least > rule.max_skew) {
            let detail = format!(
                "{} on {}: {counts:?} exceeds a skew of {}",
                gang.key, pod.node, rule.max_skew
            );
            return Err(Violation::new("no constraint is violated", detail));
        }
    }
    Ok(())
}

fn exists(toleration: &Toleration, key: &str) -> bool {
    toleration.key.as_deref() == Some(key) && toleration.operator.as_deref() == Some("Exists")
}

fn is_meant(term: &PodAffinityTerm, labels: &BTreeMap<String, String>) -> bool {
    let wanted = term
        .label_selector
        .as_ref()
        .and_then(|own| own.match_labels.as_ref());
    wanted.is_some_and(|wanted| {
        wanted
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    })
}

fn place<'a>(name: &'a str, node: &'a Node, key: &str) -> Option<&'a str> {
    match node.labels.get(key) {
        None if key == "kubernetes.io/hostname" => Some(name),
        label => label.map(String::as_str),
    }
}
