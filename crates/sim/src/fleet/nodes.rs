//! Nodes: what they are, and what the API stores of them.

use jiff::Timestamp;
use trainyard_core::gang::Node;

use super::{World, coverage::Mark, draw::GPU, watch::News};

/// One node.
#[derive(Clone, Debug)]
pub(super) struct StoredNode {
    /// The node as placement and `fleet` see it.
    pub(super) node: Node,
    /// Whether its link fails. No operator sees that.
    pub(super) is_bad: bool,
    /// Since when it does not respond.
    pub(super) silent_since: Option<Timestamp>,
    /// Silences so far: only the end of the last one counts.
    pub(super) silences: u32,
    pub(super) version: u64,
}

impl StoredNode {
    pub(super) fn new(node: Node, is_bad: bool) -> Self {
        Self {
            node,
            is_bad,
            silent_since: None,
            silences: 0,
            version: 1,
        }
    }

    pub(super) fn gpus(&self) -> i64 {
        self.node.allocatable.get(GPU)
    }

    /// Whether the scheduler binds pods to it.
    pub(super) fn is_open(&self) -> bool {
        self.node.ready && !self.node.unschedulable && self.node.taints.is_empty()
    }
}

impl World {
    /// A name of a node that exists.
    pub(super) fn any_node(&mut self) -> Option<String> {
        let names: Vec<&String> = self.nodes.keys().collect();
        let count = u32::try_from(names.len()).unwrap_or(0);
        (count > 0).then(|| names[self.dice.below(count) as usize].clone())
    }

    /// Sends the node as it is now to every operator, and has the scheduler look.
    pub(super) fn node_changed(&mut self, name: &str) {
        let version = self.next_version();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        node.version = version;
        let news = News::Node(name.to_owned(), Box::new(node.clone()));
        self.publish(&news);
        self.want_schedule();
    }

    /// A node stops responding; which silence that is.
    pub(super) fn silence_node(&mut self, name: &str) -> Option<u32> {
        let now = self.timestamp();
        let node = self.nodes.get_mut(name)?;
        if node.silent_since.is_some() {
            return None;
        }
        node.silent_since = Some(now);
        node.silences += 1;
        node.node.ready = false;
        let silence = node.silences;
        self.coverage.mark(Mark::NodeSilent);
        self.node_changed(name);
        Some(silence)
    }

    /// A node responds again.
    pub(super) fn wake_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        if node.silent_since.take().is_some() {
            node.node.ready = true;
            self.node_changed(name);
            self.catch_up_pods(name);
        }
    }

    /// A node is deleted; the cluster deletes its pods.
    pub(super) fn delete_node(&mut self, name: &str) {
        let Some(node) = self.nodes.remove(name) else {
            return;
        };
        self.deleted_nodes.insert(name.to_owned(), node);
        self.next_version();
        self.coverage.mark(Mark::NodeDeleted);
        self.publish(&News::NodeGone(name.to_owned()));
        self.lose_pods_of(name);
    }

    /// A node that was deleted joins again, as new.
    pub(super) fn join_node(&mut self, name: &str) {
        let Some(mut node) = self.deleted_nodes.remove(name) else {
            return;
        };
        node.silent_since = None;
        node.node.ready = true;
        node.node.unschedulable = false;
        node.node.taints.clear();
        node.node.preflight = None;
        node.node.probation_until = None;
        self.nodes.insert(name.to_owned(), node);
        self.node_changed(name);
        self.catch_up_pods(name);
    }
}
