//! Nodes that are slow to give logs, or give none.

use std::{collections::BTreeMap, time::Duration};

use super::{NODE_BUSY, PER_NODE};

/// The pauses of a node that does not respond.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// The nodes of reads that are under way, and those in trouble.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    nodes: BTreeMap<String, Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    under_way: usize,
    /// Reads in a row without a response.
    failures: u32,
    not_before: Duration,
}

impl Nodes {
    /// When a pod of that node may be read: now, or later.
    pub(super) fn free_at(&self, node: Option<&str>, now: Duration) -> Duration {
        let Some(node) = node.and_then(|name| self.nodes.get(name)) else {
            return now;
        };
        // One that failed is tried by one read at a time.
        let most = if node.failures > 0 { 1 } else { PER_NODE };
        if node.under_way >= most {
            return (now + NODE_BUSY).max(node.not_before);
        }
        node.not_before.max(now)
    }

    pub(super) fn begin(&mut self, node: Option<&str>) {
        if let Some(name) = node {
            self.nodes.entry(name.to_owned()).or_default().under_way += 1;
        }
    }

    /// A read of a pod of that node has ended.
    pub(super) fn end(&mut self, name: Option<&str>, unreachable: bool, now: Duration) {
        let Some((name, node)) = name.and_then(|name| Some((name, self.nodes.get_mut(name)?)))
        else {
            return;
        };
        node.under_way = node.under_way.saturating_sub(1);
        if unreachable {
            // Two reads that were under way together are one failure.
            if now >= node.not_before {
                let pause = PAUSES.0 * 2_u32.pow(node.failures.min(8));
                node.failures = node.failures.saturating_add(1);
                node.not_before = now + pause.min(PAUSES.1);
            }
        } else {
            node.failures = 0;
            node.not_before = Duration::ZERO;
        }
        if node.under_way == 0 && node.failures == 0 {
            self.nodes.remove(name);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
