//! Which pods of a gang communicate, and what a seating costs them.
//!
//! Ranks of one axis form rings (tensor, context, expert, data) or chains (pipeline). The cost of a
//! seating is the sum over all neighbours of the levels between their nodes, weighted by how much they
//! say. The weights are relative: a tensor-parallel group exchanges activations twice in every layer, a
//! pipeline stage hands them on once per stage, and copies of the model exchange gradients once per step,
//! behind the computation.

use super::{Gang, node_table::NodeTable};
use crate::spec::{Axis, Parallelism};

/// Pods that talk, with how much.
pub(super) struct Traffic {
    /// Pairs of pods, by their places in the gang.
    pub(super) edges: Vec<(u32, u32, u32)>,
    /// The pods that hold ranks, such that those that talk most are neighbours.
    pub(super) nested: Vec<u32>,
    /// Pods of a tensor-parallel group.
    pub(super) tensor_group: u32,
    /// Pods of a whole pipeline.
    pub(super) pipeline_group: u32,
    /// Whether pods talk only to the next one, in one ring.
    pub(super) is_ring: bool,
    /// Why the stated axes are not used, where they are not.
    pub(super) warning: Option<String>,
}

/// How much neighbours on an axis say to each other.
pub fn weight(axis: Axis) -> u32 {
    match axis {
        Axis::Tensor => 64,
        Axis::Context | Axis::Expert => 16,
        Axis::Pipeline => 8,
        Axis::Data => 1,
    }
}

impl Traffic {
    /// The traffic of the first `count` pods of `gang`.
    pub(super) fn new(gang: &Gang, count: usize) -> Self {
        let holders: Vec<u32> = (0..)
            .zip(gang.pods.iter().take(count))
            .filter(|(_, pod)| gang.shapes[pod.shape].ranks > 0)
            .map(|(at, _)| at)
            .collect();
        let mut per_pod = holders
            .iter()
            .map(|at| gang.shapes[gang.pods[*at as usize].shape].ranks);
        let first = per_pod.next().unwrap_or(1);
        let is_even = per_pod.all(|ranks| ranks == first);
        let ranks = u64::from(first) * holders.len() as u64;
        let (axes, warning) = match &gang.parallelism {
            None => (None, None),
            Some(stated) => match stated.for_ranks(ranks).filter(|_| is_even) {
                Some(axes) => (Some(axes), None),
                None if !is_even => (
                    None,
                    Some(format!(
                        "`{stated}` is not used: pods hold different numbers of ranks"
                    )),
                ),
                None => (
                    None,
                    Some(format!(
                        "`{stated}` is not used: it makes {} ranks, and {} pods of {first} hold {ranks}",
                        stated.ranks(),
                        holders.len()
                    )),
                ),
            },
        };
        let mut traffic = Self {
            edges: Vec::new(),
            nested: holders,
            tensor_group: 1,
            pipeline_group: 1,
            is_ring: axes.as_ref().is_none_or(|axes| {
                let mut long = axes.axes().iter().filter(|(_, size)| *size > 1);
                long.next().is_none_or(|(axis, _)| *axis == Axis::Data) && long.next().is_none()
            }),
            warning,
        };
        match axes {
            Some(axes) => traffic.add_axes(&axes, first),
            None => traffic.add_ring(),
        }
        traffic
    }

    /// One ring over all pods, in the order of their ranks.
    fn add_ring(&mut self) {
        let pods = &self.nested;
        self.edges
            .extend(pods.windows(2).map(|pair| (pair[0], pair[1], 1)));
        if let (Some(first), Some(last), true) = (pods.first(), pods.last(), pods.len() > 2) {
            self.edges.push((*last, *first, 1));
        }
    }

    fn add_axes(&mut self, axes: &Parallelism, per_pod: u32) {
        let per_pod = u64::from(per_pod);
        let ranks = axes.ranks();
        let mut strides: Vec<(Axis, u64, u64)> = Vec::new();
        let mut stride = 1;
        for (axis, size) in axes.axes() {
            strides.push((*axis, u64::from(*size), stride));
            stride *= u64::from(*size);
        }
        for (axis, size, stride) in &strides {
            self.add_axis(*axis, *size, *stride, ranks, per_pod);
        }
        self.nest(&strides, per_pod);
        let group = |size: u64| {
            let pods = size / per_pod;
            let is_whole = pods > 1 && size.is_multiple_of(per_pod);
            if is_whole {
                u32::try_from(pods).unwrap_or(1)
            } else {
                1
            }
        };
        let size = |axis| u64::from(axes.size(axis));
        let inner = size(Axis::Tensor);
        self.tensor_group = group(inner);
        if size(Axis::Pipeline) > 1 {
            let middle = size(Axis::Context) * size(Axis::Expert);
            self.pipeline_group = group(inner * middle * size(Axis::Pipeline));
        }
    }

    /// The neighbours on one axis. Where all ranks of a pod have their neighbours in one other pod,
    /// one edge stands for all.
    fn add_axis(&mut self, axis: Axis, size: u64, stride: u64, ranks: u64, per_pod: u64) {
        if size < 2 {
            return;
        }
        let is_ring = axis != Axis::Pipeline && size > 2;
        let step = if stride.is_multiple_of(per_pod) {
            per_pod
        } else {
            1
        };
        let share = weight(axis) * u32::try_from(step).unwrap_or(1);
        let mut rank = 0;
        while rank < ranks {
            let place = rank / stride % size;
            let next = match place + 1 {
                next if next < size => Some(rank + stride),
                _ if is_ring => Some(rank - place * stride),
                _ => None,
            };
            if let Some(next) = next {
                let pod = |rank: u64| self.nested[usize::try_from(rank / per_pod).unwrap_or(0)];
                let (a, b) = (pod(rank), pod(next));
                if a != b {
                    self.edges.push((a, b, share));
                }
            }
            rank += step;
        }
    }

    /// Sorts the pods such that the axis with the most traffic varies fastest.
    fn nest(&mut self, strides: &[(Axis, u64, u64)], per_pod: u64) {
        let mut by_traffic = strides.to_vec();
        by_traffic.sort_by_key(|(axis, _, _)| *axis);
        let position = |rank: u64| {
            let mut scale = 1;
            let mut position = 0;
            for (_, size, stride) in &by_traffic {
                position += rank / stride % size * scale;
                scale *= size;
            }
            position
        };
        let mut keyed: Vec<(u64, u32)> = (0..)
            .zip(&self.nested)
            .map(|(at, pod)| (position(at * per_pod), *pod))
            .collect();
        keyed.sort_unstable();
        self.nested = keyed.into_iter().map(|(_, pod)| pod).collect();
    }

    /// What a seating costs; pods without a seat cost nothing.
    pub(super) fn cost(&self, table: &NodeTable<'_>, seat: &[Option<u32>]) -> u64 {
        self.edges
            .iter()
            .filter_map(|(a, b, weight)| {
                let (a, b) = (seat[*a as usize]?, seat[*b as usize]?);
                Some(u64::from(*weight) * u64::from(table.hops(a, b)))
            })
            .sum()
    }
}
