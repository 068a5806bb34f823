//! What the store hears of nodes: their objects, and the leases by which their kubelets show life.

use std::{collections::BTreeSet, time::Instant};

use jiff::Timestamp;
use trainyard_core::job::NodeHealth;

use super::Store;
use crate::{
    feed::News,
    key::JobKey,
    node::NodeEntry,
    room,
    view::{LeaseView, NodeView},
};

impl Store {
    pub(crate) fn hear_nodes(&mut self, news: News<NodeView>) -> Vec<JobKey> {
        match news {
            News::All(nodes, _) => {
                let there: BTreeSet<&str> = nodes
                    .iter()
                    .map(|node| node.metadata.name.as_str())
                    .collect();
                self.nodes.retain(|name, _| there.contains(&**name));
                self.line.forget_nodes();
                for node in &nodes {
                    self.put_node(node);
                }
                self.nodes_known = true;
                self.seats.values().flatten().cloned().collect()
            }
            News::Is(node) => {
                let name = node.metadata.name.as_str();
                let now = Instant::now();
                let before = self.nodes.get(name).map(|node| node.health(now));
                self.put_node(&node);
                let after = self.nodes.get(name).map(|node| node.health(now));
                if before == after {
                    Vec::new()
                } else {
                    self.jobs_on(name)
                }
            }
            News::Gone(node) => {
                self.nodes.remove(node.metadata.name.as_str());
                self.line.forget_node(&node.metadata.name);
                self.jobs_on(&node.metadata.name)
            }
            News::Version(_) => Vec::new(),
        }
    }

    fn put_node(&mut self, node: &NodeView) {
        let name = self.node_name(&node.metadata.name);
        let entry = match self.nodes.get(&name) {
            Some(known) => known.updated(node),
            None => NodeEntry::new(node),
        };
        let answers = entry.health(Instant::now()) == NodeHealth::Ready;
        self.line.hear_node(&name, room::of_node(node, answers));
        self.nodes.insert(name, entry);
    }

    /// Takes readings of the nodes' leases in; returns the jobs whose nodes changed by them.
    pub(crate) fn hear_leases(
        &mut self,
        leases: &[LeaseView],
        now: Instant,
        at: Timestamp,
    ) -> Vec<JobKey> {
        let mut changed = BTreeSet::new();
        for lease in leases {
            let name = lease.metadata.name.as_str();
            let Some(node) = self.nodes.get_mut(name) else {
                continue;
            };
            let Some(renewed) = lease.spec.renew_time else {
                continue;
            };
            node.lease(renewed, now, at);
            let answers = node.health(now) == NodeHealth::Ready;
            self.line.hear_sign(name, answers);
            if !answers {
                changed.extend(self.seats.get(name).into_iter().flatten().cloned());
            }
        }
        changed.into_iter().collect()
    }

    /// Whether any job has pods on nodes, so that their leases matter.
    pub(crate) fn has_seats(&self) -> bool {
        !self.seats.is_empty()
    }

    fn jobs_on(&self, node: &str) -> Vec<JobKey> {
        self.seats
            .get(node)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}
