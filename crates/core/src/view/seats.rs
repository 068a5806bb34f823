//! Who sits where: nodes in the order of the topology, with the pods on them, the empty and the bad ones.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use super::VERSION;
use crate::{
    chronicle::{Chronicle, Lane, PodState},
    gang::{Area, Host, Tally},
    spec::Slot,
};

/// Nodes of an answer. Empty ones are left out first.
pub const NODES_MAX: usize = 8_192;
/// Swaps of an answer, the newest ones.
pub const SWAPS_MAX: usize = 200;

/// A seating chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seats {
    /// The form of this document.
    pub version: u32,
    /// The names of the levels of `path`, from wide to narrow.
    pub levels: Vec<String>,
    /// The nodes.
    pub nodes: Vec<SeatNode>,
    /// How many nodes there was no room for.
    pub nodes_left_out: usize,
    /// Pods that changed their node.
    pub swaps: Vec<SeatSwap>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeatNode {
    /// Its name.
    pub node: String,
    /// The domains that it is in, from wide to narrow; a domain without a name is empty.
    pub path: Vec<String>,
    /// What it is to the job.
    pub state: NodeState,
    /// Why it accepts no pods, or only some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its accelerators, where the cluster is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<Tally>,
    /// How many verdicts on this job name it.
    pub blamed: usize,
    /// The pods of the job on it, in the order of ranks.
    pub pods: Vec<SeatedPod>,
}

/// What a node is to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// Pods of the job are on it.
    Used,
    /// None, and it accepts pods.
    Empty,
    /// It accepts no pods, or only some, whether or not pods of the job are on it.
    Bad,
    /// Pods of the job were on it, and the cluster does not have it.
    Missing,
}

/// A pod on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeatedPod {
    /// Its slot, as role and index.
    pub slot: String,
    /// Its first rank, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_rank: Option<u32>,
    /// How many ranks it holds.
    pub ranks: u32,
    /// What it does, or did last in the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PodState>,
}

/// A pod that changed its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeatSwap {
    /// When.
    pub at: i64,
    /// Its slot.
    pub slot: String,
    /// The attempt.
    pub attempt: u32,
    /// The node before.
    pub from: String,
    /// The node after.
    pub to: String,
}

/// The seats of `attempt`, or of the last one, in the cluster `area` where that is known.
pub fn seats(chronicle: &Chronicle, area: Option<&Area>, attempt: Option<u32>) -> Seats {
    let mut by_node: BTreeMap<&str, Vec<SeatedPod>> = BTreeMap::new();
    let mut lanes: Vec<(&Slot, &Lane)> = chronicle.lanes.iter().collect();
    lanes.sort_by_key(|(slot, lane)| (lane.first_rank.is_none(), lane.first_rank, **slot));
    for (slot, lane) in lanes {
        let is_of = |of: u32| attempt.is_none_or(|attempt| of == attempt);
        let Some(seat) = lane.seats.iter().rev().find(|seat| is_of(seat.attempt)) else {
            continue;
        };
        let turn = lane.turns.iter().rev().find(|turn| is_of(turn.attempt));
        by_node.entry(&seat.node).or_default().push(SeatedPod {
            slot: slot.to_string(),
            first_rank: lane.first_rank,
            ranks: lane.ranks,
            state: turn.map(|turn| turn.state),
        });
    }
    let mut blamed: BTreeMap<&str, usize> = BTreeMap::new();
    for node in chronicle
        .verdicts
        .iter()
        .flat_map(|(_, verdict)| &verdict.summary.nodes)
    {
        *blamed.entry(node).or_default() += 1;
    }
    let mut hosts = Vec::new();
    let mut levels = Vec::new();
    if let Some(area) = area {
        walk(area, &mut Vec::new(), &mut levels, &mut hosts);
    }
    let mut nodes: Vec<SeatNode> = Vec::new();
    for (path, host) in hosts {
        let pods = by_node.remove(host.name.as_str()).unwrap_or_default();
        let state = match (&host.state, pods.is_empty()) {
            (Some(_), _) => NodeState::Bad,
            (None, true) => NodeState::Empty,
            (None, false) => NodeState::Used,
        };
        nodes.push(SeatNode {
            node: host.name.clone(),
            path,
            state,
            why: host.state.clone(),
            accelerators: Some(host.accelerators),
            blamed: blamed.get(host.name.as_str()).copied().unwrap_or(0),
            pods,
        });
    }
    // Without a cluster nothing is missing from it.
    let state = if area.is_some() {
        NodeState::Missing
    } else {
        NodeState::Used
    };
    nodes.extend(by_node.into_iter().map(|(node, pods)| SeatNode {
        node: node.to_owned(),
        path: Vec::new(),
        state,
        why: None,
        accelerators: None,
        blamed: blamed.get(node).copied().unwrap_or(0),
        pods,
    }));
    let nodes_left_out = leave_out(&mut nodes, NODES_MAX);
    let newest = chronicle.swaps.len().saturating_sub(SWAPS_MAX);
    let swaps = chronicle
        .swaps
        .iter()
        .skip(newest)
        .map(|(at, swap)| SeatSwap {
            at: *at,
            slot: swap.slot.to_string(),
            attempt: swap.attempt,
            from: swap.from.clone(),
            to: swap.to.clone(),
        });
    Seats {
        version: VERSION,
        levels,
        nodes,
        nodes_left_out,
        swaps: swaps.collect(),
    }
}

/// The hosts below `area` with their domains, in the order of the tree.
fn walk<'a>(
    area: &'a Area,
    path: &mut Vec<String>,
    levels: &mut Vec<String>,
    hosts: &mut Vec<(Vec<String>, &'a Host)>,
) {
    hosts.extend(area.hosts.iter().map(|host| (path.clone(), host)));
    for part in &area.areas {
        if levels.len() <= path.len() {
            levels.push(part.level.clone());
        }
        path.push(part.name.clone().unwrap_or_default());
        walk(part, path, levels, hosts);
        path.pop();
    }
}

/// Drops nodes until at most `most` are left, those without pods first; says how many.
fn leave_out(nodes: &mut Vec<SeatNode>, most: usize) -> usize {
    let surplus = nodes.len().saturating_sub(most);
    let mut left = surplus;
    for wanted in [NodeState::Empty, NodeState::Bad] {
        let mut kept = Vec::with_capacity(nodes.len());
        for node in nodes.drain(..).rev() {
            if left > 0 && node.state == wanted && node.pods.is_empty() {
                left -= 1;
            } else {
                kept.push(node);
            }
        }
        kept.reverse();
        *nodes = kept;
    }
    nodes.truncate(most);
    surplus
}
