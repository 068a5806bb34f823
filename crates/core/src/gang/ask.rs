//! A gang made ready to be seated: its pods in groups that ask for the same.

use std::rc::Rc;

use super::{
    Constraints, Gang, amounts::Need, eligible::Bar, mutual, node_table::NodeTable,
    traffic::Traffic,
};
use crate::spec::Wish;

/// Pods that ask for the same, or are counted as if they did.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// What is counted for each of them.
    pub(super) need: Need,
    /// The nodes that they may be on.
    pub(super) eligible: Rc<Vec<bool>>,
    /// The pods, by their places in the gang, those that talk most beside each other.
    pub(super) pods: Vec<u32>,
    /// Whether they hold ranks.
    pub(super) holds_ranks: bool,
}

/// How pods have to lie together: group sizes by tier, 1 where nothing is asked.
pub(super) type Grains = Vec<u32>;

/// What is to be seated.
pub(super) struct Ask<'a> {
    pub(super) gang: &'a Gang,
    /// How many of its pods, from the first.
    pub(super) count: usize,
    /// What each shape asks for.
    pub(super) needs: Vec<Need>,
    /// Where each shape may be.
    pub(super) eligible: Vec<Rc<Vec<bool>>>,
    pub(super) traffic: Traffic,
    /// Ways to lie together, the best first; never empty.
    pub(super) grains: Vec<Grains>,
    /// The widest tier that may hold the ranks.
    pub(super) top: usize,
    /// Whether the seat of one pod changes where another may be.
    pub(super) is_mutual: bool,
    pub(super) warnings: Vec<String>,
}

/// Eligible nodes by constraints, worked out once for all gangs that share them.
#[derive(Default)]
pub(super) struct Eligibility {
    known: Vec<(Constraints, Rc<Vec<bool>>)>,
}

impl Eligibility {
    fn of(&mut self, table: &NodeTable<'_>, constraints: &Constraints) -> Rc<Vec<bool>> {
        let same = |own: &Constraints| {
            own.node_selector == constraints.node_selector
                && own.tolerations == constraints.tolerations
                && own.node_affinity == constraints.node_affinity
        };
        if let Some((_, nodes)) = self.known.iter().find(|(own, _)| same(own)) {
            return Rc::clone(nodes);
        }
        let nodes: Rc<Vec<bool>> = Rc::new(
            table
                .names
                .iter()
                .zip(&table.nodes)
                .map(|(name, node)| Bar::find(name, node, constraints).is_none())
                .collect(),
        );
        self.known.push((constraints.clone(), Rc::clone(&nodes)));
        nodes
    }
}

impl<'a> Ask<'a> {
    /// What the first `count` pods of `gang` ask for.
    pub(super) fn new(
        table: &NodeTable<'a>,
        eligibility: &mut Eligibility,
        gang: &'a Gang,
        count: usize,
    ) -> Self {
        let eligible: Vec<Rc<Vec<bool>>> = gang
            .shapes
            .iter()
            .map(|shape| {
                let mut nodes = eligibility.of(table, &shape.constraints);
                if table.has_objectors {
                    for node in mutual::excluded_by_anti_affinity(table, gang, shape) {
                        Rc::make_mut(&mut nodes)[node] = false;
                    }
                }
                nodes
            })
            .collect();
        let needs: Vec<Need> = gang
            .shapes
            .iter()
            .map(|shape| table.need(&shape.requests))
            .collect();
        let traffic = Traffic::new(gang, count);
        let mut warnings: Vec<String> = traffic.warning.iter().cloned().collect();
        let mut ask = Self {
            gang,
            count,
            needs,
            eligible,
            grains: Vec::new(),
            top: 0,
            is_mutual: gang
                .shapes
                .iter()
                .any(|shape| shape.constraints.are_mutual()),
            traffic,
            warnings: Vec::new(),
        };
        ask.top = ask.widest(table, &mut warnings);
        ask.grains = ask.ways(table, &mut warnings);
        ask.warnings = warnings;
        ask
    }

    /// The widest tier that may hold the ranks of the gang.
    fn widest(&self, table: &NodeTable<'_>, warnings: &mut Vec<String>) -> usize {
        let Some(wish) = &self.gang.wish else {
            return 0;
        };
        match (table.find_tier(wish.level()), wish) {
            (Some(tier), Wish::Required(_)) => tier,
            (Some(_), Wish::Preferred(_)) => 0,
            (None, Wish::Preferred(level)) => {
                warnings.push(format!(
                    "`{wish}` is not used: the cluster has no level `{level}`"
                ));
                0
            }
            // Nothing is narrower than what does not exist.
            (None, Wish::Required(_)) => usize::MAX,
        }
    }

    /// The ways in which groups may lie together.
    fn ways(&self, table: &NodeTable<'_>, warnings: &mut Vec<String>) -> Vec<Grains> {
        let none = vec![1; table.tiers.len()];
        let host = table.host_tier();
        let tensor = self.traffic.tensor_group;
        let mut ways = Vec::new();
        if tensor > 1 {
            for tier in [Some(host), table.nvlink].into_iter().flatten() {
                if self.could_hold(table, tier, tensor) {
                    let mut way = none.clone();
                    way[tier] = tensor;
                    ways.push(way);
                }
            }
            if ways.is_empty() {
                warnings.push(format!(
                    "tensor-parallel groups of {tensor} pods span hosts: no host and no NVLink domain \
                     is large enough for one"
                ));
            }
        }
        if ways.is_empty() {
            ways.push(none);
        }
        let pipeline = self.traffic.pipeline_group;
        let leaf = (1..host).rev().find(|tier| Some(*tier) != table.nvlink);
        let (Some(leaf), true) = (leaf.or(table.nvlink), pipeline > 1) else {
            return ways;
        };
        ways.into_iter()
            .flat_map(|way| {
                let mut with_pipelines = way.clone();
                with_pipelines[leaf] = with_pipelines[leaf].max(pipeline);
                [with_pipelines, way]
            })
            .collect()
    }

    /// Whether a domain of `tier` could hold `pods` pods if it were empty.
    fn could_hold(&self, table: &NodeTable<'_>, tier: usize, pods: u32) -> bool {
        let Some(first) = self.traffic.nested.first() else {
            return false;
        };
        let shape = &self.gang.shapes[self.gang.pods[*first as usize].shape];
        let on_node = |at: usize| {
            let own = &table.nodes[at].allocatable;
            let fits = shape
                .requests
                .iter()
                .filter(|(name, amount)| crate::resources::is_accelerator(name) && *amount > 0)
                .map(|(name, amount)| own.get(name) / amount);
            fits.min().unwrap_or(i64::from(pods))
        };
        table.tiers[tier].iter().any(|domain| {
            domain.name.is_some()
                && domain.nodes().map(on_node).fold(0, i64::saturating_add) >= i64::from(pods)
        })
    }

    /// The pods in as few groups as can be counted as one: those that hold ranks together, counted as if each
    /// asked for the most that any does, where they may be on the same nodes.
    pub(super) fn merged(&self) -> Option<Vec<Group>> {
        let mut shapes: Vec<usize> = self
            .traffic
            .nested
            .iter()
            .map(|pod| self.shape(*pod))
            .collect();
        shapes.sort_unstable();
        shapes.dedup();
        let first = *shapes.first()?;
        let accelerators = |shape: usize| self.gang.shapes[shape].requests.accelerators();
        if !shapes.iter().all(|shape| {
            self.eligible[*shape] == self.eligible[first]
                && accelerators(*shape) == accelerators(first)
        }) {
            return None;
        }
        let mut need: Need = self.needs[first].clone();
        for (at, amount) in shapes.iter().flat_map(|shape| &self.needs[*shape]) {
            match need.binary_search_by_key(at, |(own, _)| *own) {
                Ok(place) => need[place].1 = need[place].1.max(*amount),
                Err(place) => need.insert(place, (*at, *amount)),
            }
        }
        let mut groups = vec![Group {
            need,
            eligible: Rc::clone(&self.eligible[first]),
            pods: self.traffic.nested.clone(),
            holds_ranks: true,
        }];
        groups.extend(
            self.by_shape()
                .into_iter()
                .filter(|group| !group.holds_ranks),
        );
        Some(groups)
    }

    /// The pods by shape, those that are hardest to seat first.
    pub(super) fn by_shape(&self) -> Vec<Group> {
        let mut groups: Vec<(i64, usize, Group)> = Vec::new();
        let without_ranks = (0..).zip(self.gang.pods.iter().take(self.count));
        let without_ranks = without_ranks
            .map(|(at, _)| at)
            .filter(|at| self.gang.shapes[self.shape(*at)].ranks == 0);
        for pod in self.traffic.nested.iter().copied().chain(without_ranks) {
            let shape = self.shape(pod);
            if let Some((_, _, group)) = groups.iter_mut().find(|(_, own, _)| *own == shape) {
                group.pods.push(pod);
                continue;
            }
            let own = &self.gang.shapes[shape];
            let group = Group {
                need: self.needs[shape].clone(),
                eligible: Rc::clone(&self.eligible[shape]),
                pods: vec![pod],
                holds_ranks: own.ranks > 0,
            };
            groups.push((own.requests.accelerators(), shape, group));
        }
        groups.sort_by_key(|(accelerators, shape, group)| {
            (
                !group.holds_ranks,
                -accelerators,
                std::cmp::Reverse(group.pods.len()),
                *shape,
            )
        });
        groups.into_iter().map(|(_, _, group)| group).collect()
    }

    /// The shape of a pod.
    pub(super) fn shape(&self, pod: u32) -> usize {
        self.gang.pods[pod as usize].shape
    }
}
