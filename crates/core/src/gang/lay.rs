//! Laying out pods that all ask for the same: which domain, and how many on each of its hosts.
//!
//! The narrowest domain that holds all of them is taken, and of several the one that they fill best, so that
//! large domains stay whole. Within a domain, the fewest parts are used: the fullest ones first, and for the
//! rest the part that it fills best.

use super::{ask::Grains, node_table::NodeTable};

/// How many pods go to which node, in the order in which pods are seated.
pub(super) type Layout = Vec<(u32, u32)>;

/// How many pods fit into each domain of each tier.
pub(super) struct Sums {
    by_tier: Vec<Vec<u32>>,
}

impl Sums {
    /// Adds `fits`, the number of pods by node, up; groups that have to lie together count only whole.
    pub(super) fn new(table: &NodeTable<'_>, fits: &[u32], grains: &Grains) -> Self {
        let host = table.host_tier();
        let whole = |count: u32, grain: u32| {
            if grain > 1 {
                count / grain * grain
            } else {
                count
            }
        };
        let mut by_tier = vec![Vec::new(); host + 1];
        by_tier[host] = fits.iter().map(|fit| whole(*fit, grains[host])).collect();
        for tier in (0..host).rev() {
            let parts: &Vec<u32> = &by_tier[tier + 1];
            let sums = table.tiers[tier].iter().map(|domain| {
                if grains[tier] > 1 && domain.name.is_none() {
                    return 0;
                }
                let (first, end) = domain.parts;
                let sum = parts[first as usize..end as usize]
                    .iter()
                    .fold(0_u32, |sum, part| sum.saturating_add(*part));
                whole(sum, grains[tier])
            });
            by_tier[tier] = sums.collect();
        }
        Self { by_tier }
    }

    /// How many pods the whole cluster holds.
    pub(super) fn total(&self) -> u32 {
        self.by_tier[0][0]
    }

    /// The fewest hosts that could hold `count` pods.
    pub(super) fn fewest(&self, count: u32) -> usize {
        let hosts = self.by_tier.last().and_then(|hosts| hosts.iter().max());
        hosts.map_or(0, |most| count.div_ceil((*most).max(1)) as usize)
    }

    /// The domains of `tier` with how many pods each holds.
    pub(super) fn of_tier(&self, tier: usize) -> &[u32] {
        &self.by_tier[tier]
    }

    /// The domains of `tier` that hold `count` pods, those that they fill best first. Each lies in one domain of
    /// tier `top`.
    pub(super) fn best(
        &self,
        table: &NodeTable<'_>,
        tier: usize,
        count: u32,
        top: usize,
        tried: usize,
    ) -> Vec<u32> {
        let mut best: Vec<(u32, u32)> = Vec::new();
        for (at, sum) in (0..).zip(&self.by_tier[tier]) {
            if *sum < count || !table.is_within(tier, at, top) {
                continue;
            }
            let place = best.partition_point(|known| *known <= (*sum, at));
            if place < tried {
                best.insert(place, (*sum, at));
                best.truncate(tried);
            }
        }
        best.into_iter().map(|(_, at)| at).collect()
    }

    /// `count` pods in the fewest parts of a domain, down to the hosts.
    pub(super) fn fill(
        &self,
        table: &NodeTable<'_>,
        tier: usize,
        domain: u32,
        count: u32,
    ) -> Layout {
        let mut layout = Layout::new();
        self.fill_into(table, tier, domain, count, &mut layout);
        layout
    }

    fn fill_into(
        &self,
        table: &NodeTable<'_>,
        tier: usize,
        at: u32,
        count: u32,
        layout: &mut Layout,
    ) {
        if count == 0 {
            return;
        }
        if tier == table.host_tier() {
            layout.push((at, count));
            return;
        }
        let (first, end) = table.tiers[tier][at as usize].parts;
        let holds = |part: u32| self.by_tier[tier + 1][part as usize];
        let mut parts: Vec<u32> = (first..end).filter(|part| holds(*part) > 0).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(holds(*part)));
        let mut rest = count;
        let mut full = 0;
        while parts.get(full).is_some_and(|part| holds(*part) < rest) {
            rest -= holds(parts[full]);
            full += 1;
        }
        // The parts from here on hold the rest alone as long as they are large enough; the last of
        // those is the one that it fills best.
        let enough = parts[full..].partition_point(|part| holds(*part) >= rest);
        let smallest = parts[full + enough - 1];
        let last = *parts[full..]
            .iter()
            .find(|part| holds(**part) == holds(smallest))
            .unwrap_or(&smallest);
        let mut whole = parts[..full].to_vec();
        whole.sort_unstable();
        for part in whole {
            self.fill_into(table, tier + 1, part, holds(part), layout);
        }
        self.fill_into(table, tier + 1, last, rest, layout);
    }

    /// `count` pods on the fewest hosts of a domain, wherever in it these are.
    pub(super) fn fewest_hosts(
        &self,
        table: &NodeTable<'_>,
        tier: usize,
        at: u32,
        count: u32,
    ) -> Layout {
        let hosts = &self.by_tier[table.host_tier()];
        let range = table.tiers[tier][at as usize].nodes();
        let mut nodes: Vec<usize> = range.filter(|node| hosts[*node] > 0).collect();
        nodes.sort_by_key(|node| std::cmp::Reverse(hosts[*node]));
        let mut rest = count;
        let mut layout = Layout::new();
        for node in nodes {
            if rest == 0 {
                break;
            }
            let given = hosts[node].min(rest);
            rest -= given;
            layout.push((u32::try_from(node).unwrap_or(u32::MAX), given));
        }
        if let Some(last) = layout.pop() {
            layout.sort_unstable();
            layout.push(last);
        }
        layout
    }
}
