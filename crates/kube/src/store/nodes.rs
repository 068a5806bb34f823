//! The nodes that jobs have pods on, and the signs that they live.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;
use trainyard_core::job::{NodeHealth, Observed};

use super::Store;
use crate::{
    feed::News,
    key::JobKey,
    node::NodeEntry,
    room,
    view::{LeaseView, NodeView},
};

impl Store {
    pub(crate) fn update_nodes(&mut self, news: News<NodeView>) -> Vec<JobKey> {
        match news {
            News::All(nodes, _) => {
                let there: BTreeSet<&str> = nodes
                    .iter()
                    .map(|node| node.metadata.name.as_str())
                    .collect();
                self.nodes.retain(|name, _| there.contains(&**name));
                self.fleet.queue.forget_nodes();
                for node in &nodes {
                    self.put_node(node);
                }
                self.nodes_known = true;
                self.seats.values().flatten().cloned().collect()
            }
            News::Is(node) => {
                let name = node.metadata.name.as_str();
                let before = self.nodes.get(name).map(NodeEntry::health);
                self.put_node(&node);
                let after = self.nodes.get(name).map(NodeEntry::health);
                if before == after {
                    Vec::new()
                } else {
                    self.jobs_on(name)
                }
            }
            News::Gone(node) => {
                self.nodes.remove(node.metadata.name.as_str());
                self.fleet.queue.forget_node(&node.metadata.name);
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
        let answers = entry.health() == NodeHealth::Ready;
        self.fleet
            .queue
            .update_node(&name, room::of_node(node, answers));
        self.nodes.insert(name, entry);
    }

    /// Takes readings of the nodes' leases in; returns the jobs whose nodes changed by them.
    pub(crate) fn update_leases(
        &mut self,
        leases: &[LeaseView],
        now: Instant,
        at: Timestamp,
    ) -> Vec<JobKey> {
        let before = self.leases_read.replace(now);
        let since = before.map_or(Duration::ZERO, |before| {
            now.saturating_duration_since(before)
        });
        let mut changed = BTreeSet::new();
        for lease in leases {
            let name = lease.metadata.name.as_str();
            let Some(node) = self.nodes.get_mut(name) else {
                continue;
            };
            node.lease(&lease.spec, since, at);
            let answers = node.health() == NodeHealth::Ready;
            self.fleet.queue.set_node_responding(name, answers);
            if !answers {
                changed.extend(self.seats.get(name).into_iter().flatten().cloned());
            }
        }
        changed.into_iter().collect()
    }

    /// Whether any job has pods on nodes or waits for nodes, so that the leases of nodes matter.
    pub(crate) fn needs_leases(&self) -> bool {
        !self.seats.is_empty() || self.fleet.queue.waiting() > 0
    }

    fn jobs_on(&self, node: &str) -> Vec<JobKey> {
        self.seats
            .get(node)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The nodes of `observed` that do not answer.
    pub(super) fn silent_nodes(&self, observed: &Observed) -> BTreeMap<String, NodeHealth> {
        if !self.nodes_known {
            return BTreeMap::new();
        }
        let names: BTreeSet<&str> = observed
            .pods
            .iter()
            .filter_map(|pod| pod.node.as_deref())
            .collect();
        names
            .into_iter()
            .filter_map(|name| {
                let health = match self.nodes.get(name) {
                    Some(node) => node.health(),
                    None => NodeHealth::Deleted,
                };
                (health != NodeHealth::Ready).then(|| (name.to_owned(), health))
            })
            .collect()
    }
}
