//! Whether a placement keeps its promises, asked in other words than the placer's: no index, no tree, only the labels
//! and amounts of single nodes and pods.

use std::collections::{BTreeMap, BTreeSet};

use trainyard_core::{
    gang::{Gang, Placement, PodKey, PreemptionScope, Resources, Snapshot},
    spec::{Axis, Wish},
};

use super::constraints;
use crate::violation::{Verdict, Violation};

/// A pod on a node.
pub(super) struct Pod<'a> {
    pub(super) node: &'a str,
    pub(super) namespace: &'a str,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) requests: &'a Resources,
    pub(super) gang: Option<usize>,
    pub(super) shape: usize,
    pub(super) anti: &'a [k8s_openapi::api::core::v1::PodAffinityTerm],
    pub(super) leaving: bool,
    pub(super) is_new: bool,
}

/// Checks everything that must hold of `placement` in the cluster that it was made for.
pub fn check(snapshot: &Snapshot, gangs: &[Gang], placement: &Placement) -> Verdict {
    let mut pods = existing(snapshot, gangs);
    for (at, gang) in gangs.iter().enumerate() {
        whole(gang, placement)?;
        let Some(seating) = placement.seated.get(&gang.key) else {
            continue;
        };
        for seat in &seating.seats {
            let member = gang.pods.iter().find(|member| member.name == seat.pod);
            let (Some(member), true) = (member, snapshot.nodes.contains_key(&seat.node)) else {
                return Err(Violation::new(
                    "seats are for pods, on nodes",
                    format!("{seat:?}"),
                ));
            };
            let shape = &gang.shapes[member.shape];
            pods.push(Pod {
                node: &seat.node,
                namespace: &gang.key.namespace,
                labels: &shape.labels,
                requests: &shape.requests,
                gang: Some(at),
                shape: member.shape,
                anti: &shape.constraints.anti_affinity,
                leaving: false,
                is_new: true,
            });
        }
        levels(snapshot, gang, placement)?;
        tensor_groups(snapshot, gang, placement)?;
    }
    room(snapshot, gangs, placement, &pods)?;
    constraints::check(snapshot, gangs, &pods)?;
    victims(snapshot, gangs, placement)
}

/// Everything that takes room before the placement.
fn existing<'a>(snapshot: &'a Snapshot, gangs: &'a [Gang]) -> Vec<Pod<'a>> {
    let mut pods: Vec<Pod<'a>> = snapshot
        .pods
        .iter()
        .map(|(key, resident)| Pod {
            node: &resident.node,
            namespace: &key.namespace,
            labels: &resident.labels,
            requests: &resident.requests,
            gang: gangs
                .iter()
                .position(|gang| Some(&gang.key) == resident.gang.as_ref()),
            shape: 0,
            anti: &resident.anti_affinity,
            leaving: resident.leaving,
            is_new: false,
        })
        .collect();
    for (at, gang) in gangs.iter().enumerate() {
        for (name, node) in &gang.held {
            let key = PodKey {
                namespace: gang.key.namespace.clone(),
                name: name.clone(),
            };
            let seen = snapshot
                .pods
                .get(&key)
                .is_some_and(|resident| resident.node == *node);
            let member = gang.pods.iter().find(|member| member.name == *name);
            if let (false, Some(member)) = (seen, member) {
                let shape = &gang.shapes[member.shape];
                pods.push(Pod {
                    node,
                    namespace: &gang.key.namespace,
                    labels: &shape.labels,
                    requests: &shape.requests,
                    gang: Some(at),
                    shape: member.shape,
                    anti: &shape.constraints.anti_affinity,
                    leaving: false,
                    is_new: false,
                });
            }
        }
    }
    pods
}

/// A gang is answered once: with enough seats, each for another pod, or with a reason.
fn whole(gang: &Gang, placement: &Placement) -> Verdict {
    let refused = placement.refused.get(&gang.key);
    let Some(seating) = placement.seated.get(&gang.key) else {
        return match refused {
            _ if gang.held.len() == gang.pods.len() => Ok(()),
            Some(refusal) if !refusal.message.is_empty() => Ok(()),
            _ => Err(Violation::new(
                "every gang is answered",
                gang.key.to_string(),
            )),
        };
    };
    let names: BTreeSet<&str> = seating.seats.iter().map(|seat| seat.pod.as_str()).collect();
    let again = names.iter().any(|name| gang.held.contains_key(*name));
    let total = names.len() + gang.held.len();
    if refused.is_some() || again || names.len() != seating.seats.len() || names.is_empty() {
        return Err(Violation::new(
            "no pod has two seats",
            format!("{} {seating:?}", gang.key),
        ));
    }
    if total < gang.minimum || total + seating.unseated != gang.pods.len() {
        let detail = format!(
            "{} of {} pods, at least {}: {total} seats, of which {} held, and {} unseated",
            gang.key,
            gang.pods.len(),
            gang.minimum,
            gang.held.len(),
            seating.unseated
        );
        return Err(Violation::new("never a part of a gang", detail));
    }
    Ok(())
}

/// The node of each pod that holds ranks, in order; none where it has no seat.
fn rank_nodes<'a>(gang: &'a Gang, placement: &'a Placement) -> Vec<Option<&'a str>> {
    let seating = placement.seated.get(&gang.key);
    let seat = |name: &str| {
        let mut seats = seating.into_iter().flat_map(|seating| &seating.seats);
        seats
            .find(|seat| seat.pod == name)
            .map(|seat| seat.node.as_str())
    };
    let holders = gang
        .pods
        .iter()
        .filter(|member| gang.shapes[member.shape].ranks > 0);
    holders
        .map(|member| {
            gang.held
                .get(&member.name)
                .map(String::as_str)
                .or_else(|| seat(&member.name))
        })
        .collect()
}

/// Ranks are in one domain of a required level: they share its label, and those of all wider levels.
fn levels(snapshot: &Snapshot, gang: &Gang, placement: &Placement) -> Verdict {
    let Some(Wish::Required(level)) = &gang.wish else {
        return Ok(());
    };
    let nodes: BTreeSet<&str> = rank_nodes(gang, placement).into_iter().flatten().collect();
    let places: BTreeSet<Vec<Option<&String>>> = nodes
        .iter()
        .map(|name| {
            let labels = &snapshot.nodes[*name].labels;
            let wider = snapshot
                .topology
                .levels
                .iter()
                .map(|level| labels.get(&level.key));
            let upto = snapshot
                .topology
                .levels
                .iter()
                .position(|own| own.name == *level);
            wider.take(upto.map_or(usize::MAX, |at| at + 1)).collect()
        })
        .collect();
    let is_one = if level == "host" {
        nodes.len() <= 1
    } else {
        places.len() <= 1
    };
    let is_named = places
        .iter()
        .all(|place| level == "host" || place.last().is_some_and(Option::is_some));
    if is_one && is_named {
        Ok(())
    } else {
        Err(Violation::new(
            "a required level holds",
            format!("{} is on {nodes:?}", gang.key),
        ))
    }
}

/// Ranks of a tensor-parallel group share a host or an `NVLink` domain, where one is large enough.
fn tensor_groups(snapshot: &Snapshot, gang: &Gang, placement: &Placement) -> Verdict {
    let nodes = rank_nodes(gang, placement);
    let per_pod = u64::from(gang.shapes[0].ranks);
    let seated = nodes.iter().flatten().count() as u64;
    let meant = gang
        .parallelism
        .as_ref()
        .and_then(|axes| axes.for_ranks(per_pod * seated));
    let Some(axes) = meant.filter(|_| {
        nodes
            .iter()
            .take(usize::try_from(seated).unwrap_or(0))
            .all(Option::is_some)
    }) else {
        return Ok(());
    };
    let mut stride = 1;
    let mut own = None;
    for (axis, size) in axes.axes() {
        if *axis == Axis::Tensor {
            own = Some((stride, u64::from(*size)));
        }
        stride *= u64::from(*size);
    }
    let Some((stride, size)) =
        own.filter(|(_, size)| *size > per_pod && size.is_multiple_of(per_pod))
    else {
        return Ok(());
    };
    let gpus = |name: &str| snapshot.nodes[name].allocatable.accelerators();
    let asked = gang.shapes[0].requests.accelerators().max(1);
    let pods = i64::try_from(size / per_pod).unwrap_or(i64::MAX);
    let holds = |names: &mut dyn Iterator<Item = &String>| {
        names.map(|name| gpus(name) / asked).sum::<i64>() >= pods
    };
    let mut cliques: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for (name, node) in &snapshot.nodes {
        if let Some(clique) = node.labels.get("nvidia.com/gpu.clique") {
            cliques.entry(clique).or_default().push(name);
        }
    }
    let any_host = snapshot
        .nodes
        .keys()
        .any(|name| holds(&mut std::iter::once(name)));
    let any_clique = cliques
        .values()
        .any(|names| holds(&mut names.iter().copied()));
    if !any_host && !any_clique {
        return Ok(());
    }
    let clique = |name: &str| snapshot.nodes[name].labels.get("nvidia.com/gpu.clique");
    let node = |rank: u64| nodes[usize::try_from(rank / per_pod).unwrap_or(0)].unwrap_or_default();
    let is_apart = |a: &str, b: &str| a != b && (clique(a).is_none() || clique(a) != clique(b));
    let holders: Vec<&str> = gang
        .pods
        .iter()
        .filter(|member| gang.shapes[member.shape].ranks > 0)
        .map(|member| member.name.as_str())
        .collect();
    let is_held = |rank: u64| {
        let name = holders[usize::try_from(rank / per_pod).unwrap_or(0)];
        gang.held.contains_key(name)
    };
    for first in (0..per_pod * seated).filter(|rank| rank / stride % size == 0) {
        let group = || (0..size).map(|place| first + place * stride);
        // An elastic gang may have begun with fewer ranks, which made no groups; those stay where they are.
        let mut held = group().filter(|rank| is_held(*rank));
        let old = held.next();
        if old.is_some_and(|old| held.any(|rank| is_apart(node(old), node(rank)))) {
            continue;
        }
        if let Some(rank) = group().find(|rank| is_apart(node(first), node(*rank))) {
            let (a, b) = (node(first), node(rank));
            let detail = format!("{}: ranks {first} on {a} and {rank} on {b}", gang.key);
            return Err(Violation::new(
                "tensor-parallel groups stay together",
                detail,
            ));
        }
    }
    Ok(())
}

/// No node that got a pod has more than it can bear, nor is a promise broken by one who comes later.
fn room(snapshot: &Snapshot, gangs: &[Gang], placement: &Placement, pods: &[Pod<'_>]) -> Verdict {
    let order = |gang: &Gang| {
        let waits = gang.held.len() < gang.pods.len() && !gang.remembered.is_empty();
        (
            -i64::from(gang.claim),
            !waits,
            gang.created,
            gang.key.clone(),
        )
    };
    let fresh: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.is_new)
        .map(|pod| pod.node)
        .collect();
    for name in fresh {
        let here: Vec<&Pod<'_>> = pods.iter().filter(|pod| pod.node == name).collect();
        let own = &snapshot.nodes[name].allocatable;
        let mut resources: BTreeSet<&str> = BTreeSet::new();
        for pod in here.iter().filter(|pod| pod.is_new) {
            resources.extend(pod.requests.iter().map(|(resource, _)| resource));
        }
        for resource in resources {
            let asking = here
                .iter()
                .filter(|pod| pod.is_new && pod.requests.get(resource) > 0);
            let latest = asking
                .filter_map(|pod| pod.gang)
                .map(|at| order(&gangs[at]))
                .max();
            let earlier = gangs
                .iter()
                .filter(|gang| latest.as_ref().is_some_and(|latest| order(gang) < *latest));
            let promised: i64 = earlier
                .flat_map(|gang| {
                    let seats = placement.reservations.get(&gang.key).into_iter().flatten();
                    seats.filter(|seat| seat.node == name).filter_map(|seat| {
                        let member = gang.pods.iter().find(|member| member.name == seat.pod)?;
                        Some(gang.shapes[member.shape].requests.get(resource))
                    })
                })
                .sum();
            let taken: i64 = here.iter().map(|pod| pod.requests.get(resource)).sum();
            if taken + promised > own.get(resource) {
                let detail = format!(
                    "{name}: {taken} taken and {promised} promised of {} {resource}",
                    own.get(resource)
                );
                return Err(Violation::new("no node is given more than it has", detail));
            }
        }
    }
    Ok(())
}

/// Only gangs of lower priority are evicted, as far as the scope reaches, for a gang that asked for it, waits, and has
/// its pods.
fn victims(snapshot: &Snapshot, gangs: &[Gang], placement: &Placement) -> Verdict {
    for (key, eviction) in &placement.victims {
        let find = |name: &str| gangs.iter().find(|gang| gang.key.to_string() == name);
        let pair = find(&key.to_string()).zip(find(&eviction.beneficiary));
        let detail = || format!("{key} {eviction:?}");
        let Some((victim, other)) = pair else {
            return Err(Violation::new("victims are of lower priority", detail()));
        };
        let waits = placement.refused.contains_key(&other.key)
            && placement.reservations.contains_key(&other.key);
        let rules = [
            (
                "victims are of lower priority",
                waits && victim.priority < other.claim,
            ),
            (
                "no gang is evicted for pods that do not exist",
                other.admitted,
            ),
            (
                "only gangs that may preempt do",
                other.preempts && !other.never_preempts,
            ),
            (
                "the scope of preemption is kept",
                match snapshot.preemption {
                    PreemptionScope::Off => false,
                    PreemptionScope::Namespace => victim.key.namespace == other.key.namespace,
                    PreemptionScope::Cluster => true,
                },
            ),
        ];
        for (rule, holds) in rules {
            if !holds {
                return Err(Violation::new(rule, detail()));
            }
        }
    }
    Ok(())
}
