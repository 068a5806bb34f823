//! The best seating that exists, and what the cluster's own scheduler would choose: what a placement is measured against.

use std::collections::BTreeMap;

use trainyard_core::{
    gang::{Gang, Resources, Snapshot, weight},
    spec::Axis,
};

use crate::dice::Dice;

/// The nodes of a cluster, with how many pods of one shape each has room for.
struct Field<'a> {
    names: Vec<&'a str>,
    room: Vec<i64>,
    /// Levels between two nodes.
    hops: Vec<Vec<u64>>,
}

impl<'a> Field<'a> {
    fn new(snapshot: &'a Snapshot, gang: &Gang) -> Self {
        let names: Vec<&str> = snapshot.nodes.keys().map(String::as_str).collect();
        let requests = &gang.shapes[0].requests;
        let room = names
            .iter()
            .map(|name| {
                let free = free(snapshot, name);
                let fits = requests.iter().filter(|(_, amount)| *amount > 0);
                fits.map(|(name, amount)| free.get(name) / amount)
                    .min()
                    .unwrap_or(0)
                    .max(0)
            })
            .collect();
        let hops = names
            .iter()
            .map(|a| names.iter().map(|b| hops(snapshot, a, b)).collect())
            .collect();
        Self { names, room, hops }
    }
}

/// What is free on a node.
fn free(snapshot: &Snapshot, name: &str) -> Resources {
    let mut free = snapshot.nodes[name].allocatable.clone();
    for pod in snapshot.pods.values().filter(|pod| pod.node == name) {
        for (resource, amount) in pod.requests.iter() {
            free.set(resource, free.get(resource) - amount);
        }
    }
    free
}

/// Levels that two nodes do not share, counted from the narrowest.
fn hops(snapshot: &Snapshot, a: &str, b: &str) -> u64 {
    if a == b {
        return 0;
    }
    let labels = |name: &str| &snapshot.nodes[name].labels;
    let levels = &snapshot.topology.levels;
    let shared = levels
        .iter()
        .take_while(|level| labels(a).get(&level.key) == labels(b).get(&level.key))
        .count();
    (levels.len() - shared + 1) as u64
}

/// How much each pair of pods says to each other, rank by rank.
fn traffic(gang: &Gang) -> BTreeMap<(usize, usize), u64> {
    let per_pod = u64::from(gang.shapes[0].ranks);
    let ranks = per_pod * gang.pods.len() as u64;
    let mut pairs = BTreeMap::new();
    let mut add = |a: u64, b: u64, axis: Axis| {
        let pod = |rank: u64| usize::try_from(rank / per_pod).unwrap_or(usize::MAX);
        let (a, b) = (pod(a), pod(b));
        if a != b {
            *pairs.entry((a.min(b), a.max(b))).or_insert(0) += u64::from(weight(axis));
        }
    };
    let Some(axes) = &gang.parallelism else {
        let pods = gang.pods.len() as u64;
        for pod in 0..pods {
            if pod + 1 < pods || pods > 2 {
                add(pod * per_pod, (pod + 1) % pods * per_pod, Axis::Data);
            }
        }
        return pairs;
    };
    let mut stride = 1;
    for (axis, size) in axes.axes() {
        let size = u64::from(*size);
        for rank in 0..ranks {
            let place = rank / stride % size;
            if place + 1 < size {
                add(rank, rank + stride, *axis);
            } else if *axis != Axis::Pipeline && size > 2 {
                add(rank, rank - place * stride, *axis);
            }
        }
        stride *= size;
    }
    pairs
}

/// What a seating costs: the node of each pod, in order.
pub fn cost(snapshot: &Snapshot, gang: &Gang, nodes: &[&str]) -> u64 {
    let pairs = traffic(gang);
    pairs
        .iter()
        .map(|((a, b), share)| share * hops(snapshot, nodes[*a], nodes[*b]))
        .sum()
}

/// The least that any seating of `gang` costs that keeps tensor-parallel groups on one host where `together`; none
/// where there is no seating.
pub fn best(snapshot: &Snapshot, gang: &Gang) -> Option<u64> {
    let field = Field::new(snapshot, gang);
    let mut talks: Vec<Vec<(usize, u64)>> = vec![Vec::new(); gang.pods.len()];
    for ((a, b), share) in traffic(gang) {
        talks[b].push((a, share));
    }
    let mut search = Search {
        room: field.room.clone(),
        field,
        talks,
        group: tensor_pods(gang, snapshot),
        seats: Vec::new(),
        best: None,
    };
    search.go(0);
    search.best
}

/// Pods of a tensor-parallel group that have to share a host: by the first pod of each.
fn tensor_pods(gang: &Gang, snapshot: &Snapshot) -> Vec<usize> {
    let alone: Vec<usize> = (0..gang.pods.len()).collect();
    let per_pod = u64::from(gang.shapes[0].ranks);
    let Some(axes) = &gang.parallelism else {
        return alone;
    };
    let size = u64::from(axes.size(Axis::Tensor));
    let asked = gang.shapes[0].requests.accelerators().max(1);
    let pods = size / per_pod;
    let fits = |own: i64| u64::try_from(own / asked).unwrap_or(0) >= pods;
    let is_possible = snapshot
        .nodes
        .values()
        .any(|node| fits(node.allocatable.accelerators()));
    if pods < 2 || !size.is_multiple_of(per_pod) || !is_possible {
        return alone;
    }
    // The tensor axis is always the fastest in what is drawn.
    let pods = usize::try_from(pods).unwrap_or(1);
    alone.into_iter().map(|pod| pod / pods * pods).collect()
}

struct Search<'a> {
    field: Field<'a>,
    room: Vec<i64>,
    talks: Vec<Vec<(usize, u64)>>,
    group: Vec<usize>,
    seats: Vec<usize>,
    best: Option<u64>,
}

impl Search<'_> {
    fn go(&mut self, spent: u64) {
        if self.best.is_some_and(|best| spent >= best) {
            return;
        }
        let pod = self.seats.len();
        if pod == self.talks.len() {
            self.best = Some(spent);
            return;
        }
        let leader = self.group[pod];
        for node in 0..self.field.names.len() {
            if self.room[node] == 0 || (leader < pod && self.seats[leader] != node) {
                continue;
            }
            let talks = self.talks[pod].iter();
            let more: u64 = talks
                .map(|(other, share)| share * self.field.hops[node][self.seats[*other]])
                .sum();
            self.room[node] -= 1;
            self.seats.push(node);
            self.go(spent + more);
            self.seats.pop();
            self.room[node] += 1;
        }
    }
}

/// The seats that the cluster's own scheduler would choose, pod by pod: of the nodes with room the one with the highest
/// sum of its default scores for resources, least allocated and balanced, of CPU and memory; a tie is broken by chance.
/// An emulation of those two scores and not the scheduler itself.
pub fn scheduler<'a>(snapshot: &'a Snapshot, gang: &Gang, seed: u64) -> Option<Vec<&'a str>> {
    let mut dice = Dice::new(seed, 3);
    let names: Vec<&str> = snapshot.nodes.keys().map(String::as_str).collect();
    let mut frees: Vec<Resources> = names.iter().map(|name| free(snapshot, name)).collect();
    let mut seats = Vec::new();
    for member in &gang.pods {
        let requests = &gang.shapes[member.shape].requests;
        let score = |at: usize| {
            let own = &snapshot.nodes[names[at]].allocatable;
            let shares: Vec<i64> = ["cpu", "memory"]
                .into_iter()
                .filter(|resource| own.get(resource) > 0)
                .map(|resource| {
                    (frees[at].get(resource) - requests.get(resource)) * 100 / own.get(resource)
                })
                .collect();
            let least =
                shares.iter().sum::<i64>() / i64::try_from(shares.len().max(1)).unwrap_or(1);
            let apart = shares
                .iter()
                .max()
                .zip(shares.iter().min())
                .map_or(0, |(a, b)| (a - b) / 2);
            least + 100 - apart
        };
        let fits = |at: &usize| {
            requests
                .iter()
                .all(|(name, amount)| frees[*at].get(name) >= amount)
        };
        let nodes: Vec<usize> = (0..names.len()).filter(fits).collect();
        let most = nodes.iter().map(|at| score(*at)).max()?;
        let ties: Vec<usize> = nodes.into_iter().filter(|at| score(*at) == most).collect();
        let chosen = dice.pick(&ties);
        for (name, amount) in requests.iter() {
            let left = frees[chosen].get(name) - amount;
            frees[chosen].set(name, left);
        }
        seats.push(names[chosen]);
    }
    Some(seats)
}
