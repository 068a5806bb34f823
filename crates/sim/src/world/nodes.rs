//! Nodes that fall silent, come back, or are gone for good.
//!
//! What happens on a silent node is held back until it returns; the API keeps showing its last
//! report. A process whose object was removed meanwhile is a zombie: it runs until its node
//! sees that, and never becomes an object again.

use std::collections::BTreeMap;

use trainyard_core::job::{Disruption, NodeHealth, PodPhase, Removal};

use super::{
    Happening, World,
    pods::{Pod, Step},
};
use crate::dice::Dice;

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) state: NodeState,
    /// Steps of its pods that are not reported yet.
    pub(crate) held_back: Vec<(usize, Step)>,
    /// Whether the control plane has noticed its silence.
    noticed: bool,
    /// How many times it fell silent, so that a stale return is distinguished from the right one.
    pub(crate) silences: u32,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    Ready,
    /// Since this millisecond.
    Silent(i64),
    Deleted,
}

/// What happens to a node after its silence began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeStep {
    /// The control plane sees it.
    Noticed,
    /// The taint of the silence evicts its pods.
    Tainted,
    /// It responds again.
    Returned,
    /// Its pods are collected after the object went.
    PodsCollected,
}

impl Node {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            name: format!("node-{index}"),
            state: NodeState::Ready,
            held_back: Vec::new(),
            noticed: false,
            silences: 0,
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.state, NodeState::Silent(_))
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.state == NodeState::Deleted
    }
}

/// The stream that one silence of a node draws from.
fn stream_of(index: usize, silence: u32) -> u64 {
    (2 << 40) + ((index as u64) << 16) + u64::from(silence)
}

impl World {
    /// A node the scheduler would choose: it may be one whose silence is not noticed yet.
    pub(crate) fn free_node(&self, pod: &Pod) -> Option<usize> {
        let free = |node: &Node| match node.state {
            NodeState::Ready => true,
            NodeState::Silent(_) => !node.noticed,
            NodeState::Deleted => false,
        };
        if let Some(pinned) = pod.pinned {
            return free(&self.cluster.nodes[pinned]).then_some(pinned);
        }
        let count = self.cluster.nodes.len();
        (0..count)
            .map(|offset| (pod.birth + offset) % count)
            .find(|index| free(&self.cluster.nodes[*index]))
    }

    /// The node stops responding, for `length` or forever.
    pub(crate) fn silence_node(&mut self, index: usize, length: Option<i64>) {
        if self.cluster.nodes[index].state != NodeState::Ready {
            return;
        }
        self.trace
            .note(self.now, format_args!("fault   node-{index} falls silent"));
        let now = self.now;
        let node = &mut self.cluster.nodes[index];
        node.state = NodeState::Silent(now);
        node.noticed = false;
        node.silences += 1;
        let silence = node.silences;
        for pod in self
            .cluster
            .pods
            .iter()
            .filter(|pod| pod.node == Some(index))
        {
            self.cluster.births[pod.birth].troubled = true;
        }
        let dice = &mut Dice::new(self.seed, stream_of(index, silence));
        let noticed = dice.within(100..=40_000);
        self.schedule(noticed, Happening::Node(index, silence, NodeStep::Noticed));
        if dice.chance(60) {
            let tainted = noticed + dice.within(100..=300_000);
            self.schedule(tainted, Happening::Node(index, silence, NodeStep::Tainted));
        }
        if let Some(length) = length {
            self.schedule(length, Happening::Node(index, silence, NodeStep::Returned));
        }
    }

    /// The object of the node goes, and its processes with it.
    pub(crate) fn delete_node(&mut self, index: usize) {
        if self.cluster.nodes[index].is_deleted() {
            return;
        }
        self.trace
            .note(self.now, format_args!("fault   node-{index} is deleted"));
        let node = &mut self.cluster.nodes[index];
        node.state = NodeState::Deleted;
        node.held_back.clear();
        node.silences += 1;
        let silence = node.silences;
        for pod in self
            .cluster
            .pods
            .iter()
            .filter(|pod| pod.node == Some(index))
        {
            self.cluster.births[pod.birth].troubled = true;
        }
        self.nodes_changed();
        let dice = &mut Dice::new(self.seed, stream_of(index, silence));
        let delay = dice.within(20_000..=400_000);
        self.schedule(
            delay,
            Happening::Node(index, silence, NodeStep::PodsCollected),
        );
    }

    /// The next step of a silence, if that silence still lasts.
    pub(crate) fn step_node(&mut self, index: usize, silence: u32, step: NodeStep) {
        if self.cluster.nodes[index].silences != silence {
            return;
        }
        match step {
            NodeStep::Noticed => {
                if self.cluster.nodes[index].is_silent() {
                    self.cluster.nodes[index].noticed = true;
                    self.nodes_changed();
                    self.hide_phases(index);
                }
            }
            NodeStep::Tainted => {
                for at in 0..self.cluster.pods.len() {
                    if self.cluster.pods[at].node == Some(index) {
                        self.disrupt_pod(at, Disruption::NodeGone, false);
                    }
                }
            }
            NodeStep::Returned => self.return_node(index),
            NodeStep::PodsCollected => {
                while let Some(at) = self
                    .cluster
                    .pods
                    .iter()
                    .position(|pod| pod.node == Some(index))
                {
                    self.delete_pod(at, Removal::Forced);
                }
            }
        }
    }

    /// Some control planes show the phase `Unknown` for pods of a silent node.
    fn hide_phases(&mut self, index: usize) {
        if !self.temper.hides_phases {
            return;
        }
        for at in 0..self.cluster.pods.len() {
            let pod = &mut self.cluster.pods[at];
            if pod.node == Some(index) && pod.shown.phase == PodPhase::Running {
                pod.shown.phase = PodPhase::Unknown;
                self.pod_changed(at);
            }
        }
    }

    /// The node responds again and reports everything it held back.
    pub(crate) fn return_node(&mut self, index: usize) {
        if !self.cluster.nodes[index].is_silent() {
            return;
        }
        self.trace.note(
            self.now,
            format_args!("fault   node-{index} responds again"),
        );
        let node = &mut self.cluster.nodes[index];
        node.state = NodeState::Ready;
        node.noticed = false;
        node.silences += 1;
        let held_back = std::mem::take(&mut node.held_back);
        for (delay, (birth, step)) in (10..).step_by(7).zip(held_back) {
            self.schedule(delay, Happening::Pod(birth, step));
        }
        self.nodes_changed();
        for at in 0..self.cluster.pods.len() {
            let pod = &mut self.cluster.pods[at];
            if pod.node == Some(index) && pod.shown.phase == PodPhase::Unknown {
                pod.shown.phase = PodPhase::Running;
                self.pod_changed(at);
            }
        }
    }

    /// The nodes that are not healthy, as the control plane shows them.
    pub(crate) fn sick_nodes(&self) -> BTreeMap<String, NodeHealth> {
        self.cluster
            .nodes
            .iter()
            .filter_map(|node| {
                let health = match node.state {
                    NodeState::Silent(since) if node.noticed => {
                        NodeHealth::SilentSince(self.at(since))
                    }
                    NodeState::Deleted => NodeHealth::Deleted,
                    _ => return None,
                };
                Some((node.name.clone(), health))
            })
            .collect()
    }
}
