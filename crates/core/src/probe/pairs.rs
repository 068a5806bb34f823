//! Who measures with whom: where nodes are, and rounds of disjoint pairs.
//!
//! Owns the tree of domains (zones, blocks, racks) that nodes lie in, the links that a pair goes
//! over, and the schedule. It knows nothing of measured numbers; those are [`super::search`].
//!
//! A round is taken from a hypercube of mixed radix: within each innermost domain node `i` meets
//! node `i XOR 2^k`, then domain `d` meets its neighbour `d XOR 2^k`, one level after the other, and
//! its nodes meet in their order. So every link of one level carries the same load in a round, and
//! what one pair reaches can be compared with what another reaches.
//!
//! Invariant: no node is in two pairs of one round, and every node is in some pair if there are two.

use std::collections::{BTreeMap, BTreeSet};

/// Two nodes, the smaller number first.
pub type Pair = (usize, usize);

/// A link of the tree. Links that no pair can distinguish are one: the only node of a domain and
/// that domain's uplink, a domain and the only domain in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// What connects a node with its innermost domain.
    Node(usize),
    /// What connects a domain with the one around it.
    Uplink(usize),
}

#[derive(Clone, Debug)]
struct Domain {
    name: String,
    depth: usize,
    /// The nodes, in the order of the topology.
    members: Vec<usize>,
}

/// Where nodes are.
#[derive(Clone, Debug)]
pub struct Topology {
    nodes: usize,
    depth: usize,
    domains: Vec<Domain>,
    /// The domains of each node, outermost first.
    around: Vec<Vec<usize>>,
    /// What stands for each domain's uplink.
    uplinks: Vec<Link>,
    /// At each level, innermost first, the sets of neighbours: each neighbour is a list of nodes.
    neighbours: Vec<Vec<Vec<Vec<usize>>>>,
}

impl Topology {
    /// Nodes of which nothing is known.
    pub fn flat(nodes: usize) -> Self {
        Self::new(&vec![Vec::new(); nodes])
    }

    /// Nodes with the names of their domains, outermost first. A node with fewer than others lies in
    /// a domain without a name at the levels that it lacks.
    pub fn new(domains: &[Vec<String>]) -> Self {
        let nodes = domains.len();
        let depth = domains.iter().map(Vec::len).max().unwrap_or(0);
        let mut by_path: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
        let paths: Vec<Vec<&str>> = domains.iter().map(|names| padded(names, depth)).collect();
        for (node, path) in paths.iter().enumerate() {
            for end in 1..=depth {
                by_path.entry(path[..end].to_vec()).or_default().push(node);
            }
        }
        let mut around = vec![Vec::with_capacity(depth); nodes];
        let mut found = Vec::with_capacity(by_path.len());
        // Shorter paths come first, so that each node's domains are pushed outermost first.
        for (path, mut members) in by_path {
            for &node in &members {
                around[node].push(found.len());
            }
            members.sort_by(|a, b| paths[*a].cmp(&paths[*b]).then(a.cmp(b)));
            found.push(Domain {
                name: path.join("/"),
                depth: path.len() - 1,
                members,
            });
        }
        let uplinks = (0..found.len())
            .map(|domain| representative_link(domain, &found, &around))
            .collect();
        let mut whole = Self {
            nodes,
            depth,
            domains: found,
            around,
            uplinks,
            neighbours: Vec::new(),
        };
        whole.neighbours = (0..=depth)
            .map(|level| whole.neighbours_at(level))
            .collect();
        whole
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// How many levels pairs can be apart, the innermost included.
    pub fn levels(&self) -> usize {
        self.depth + 1
    }

    /// The names of a domain and of those around it, outermost first.
    pub fn domain(&self, domain: usize) -> &str {
        &self.domains[domain].name
    }

    /// The nodes behind a link.
    pub fn behind(&self, link: Link) -> Vec<usize> {
        match link {
            Link::Node(node) => vec![node],
            Link::Uplink(domain) => self.domains[domain].members.clone(),
        }
    }

    /// Every link that a pair can go over, each once.
    pub fn links(&self) -> BTreeSet<Link> {
        let uplinks = self.uplinks.iter().enumerate();
        let crossed =
            uplinks.filter(|(domain, _)| self.domains[*domain].members.len() < self.nodes);
        let nodes = (0..self.nodes).map(Link::Node);
        nodes.chain(crossed.map(|(_, link)| *link)).collect()
    }

    /// How many levels apart two nodes are; 0 in one innermost domain.
    pub fn level(&self, (a, b): Pair) -> usize {
        self.depth - self.shared(a, b)
    }

    /// The links between two nodes, those of the first node before those of the second, each from
    /// the inside out.
    pub fn path(&self, (a, b): Pair) -> (Vec<Link>, Vec<Link>) {
        let shared = self.shared(a, b);
        let side = |node: usize| {
            let mut links = vec![Link::Node(node)];
            for &domain in self.around[node][shared..].iter().rev() {
                let link = self.uplinks[domain];
                if links.last() != Some(&link) {
                    links.push(link);
                }
            }
            links
        };
        (side(a), side(b))
    }

    /// The level whose pairs are the nearest that go over the link.
    pub(super) fn level_of(&self, link: Link) -> usize {
        match link {
            Link::Node(_) => 0,
            Link::Uplink(domain) => self.depth - self.domains[domain].depth,
        }
    }

    fn shared(&self, a: usize, b: usize) -> usize {
        let both = self.around[a].iter().zip(&self.around[b]);
        both.take_while(|(a, b)| a == b).count()
    }

    fn neighbours_at(&self, level: usize) -> Vec<Vec<Vec<usize>>> {
        let mut sets: BTreeMap<Option<usize>, Vec<Vec<usize>>> = BTreeMap::new();
        if level == 0 {
            for node in 0..self.nodes {
                let set = sets.entry(self.around[node].last().copied()).or_default();
                set.push(vec![node]);
            }
        } else {
            let depth = self.depth - level;
            for domain in self.domains.iter().filter(|domain| domain.depth == depth) {
                let first = domain.members.first().copied().unwrap_or_default();
                let outer = depth.checked_sub(1).map(|outer| self.around[first][outer]);
                sets.entry(outer).or_default().push(domain.members.clone());
            }
        }
        sets.into_values().collect()
    }
}

/// The most rounds that a search may take.
pub fn most_rounds(nodes: usize) -> usize {
    2 * bits(nodes)
}

/// The rounds that are measured in any case, about as many as the logarithm of the nodes.
pub fn schedule(topology: &Topology) -> Vec<Vec<Pair>> {
    let mut rounds = Vec::new();
    for sets in &topology.neighbours {
        let count = sets.iter().map(|set| rounds_among(set.len())).max();
        for round in 0..count.unwrap_or(0) {
            let pairs = sets
                .iter()
                .flat_map(|set| meet(set, &nearest(set.len(), round)));
            rounds.push(pairs.collect());
        }
    }
    rounds.truncate(most_rounds(topology.nodes));
    rounds
}

/// One round in which all neighbours of a level meet others than in the schedule, as far as there
/// are others: round `turn` of a tournament.
pub(super) fn tournament(topology: &Topology, level: usize, turn: usize) -> Vec<Pair> {
    let sets = topology.neighbours.get(level).into_iter().flatten();
    sets.flat_map(|set| meet(set, &circle(set.len(), turn)))
        .collect()
}

/// How many rounds a tournament of a level has.
pub(super) fn turns(topology: &Topology, level: usize) -> usize {
    let sets = topology.neighbours.get(level).into_iter().flatten();
    let most = sets.map(Vec::len).max().unwrap_or(0);
    (most + most % 2).saturating_sub(1)
}

fn rounds_among(neighbours: usize) -> usize {
    // Of three, the first would be in every pair: if it is slow, all pairs are.
    if neighbours == 3 { 3 } else { bits(neighbours) }
}

/// The pairs of round `round` of a hypercube over `count` corners, some of which may be missing.
fn nearest(count: usize, round: usize) -> Vec<Pair> {
    if count == 3 {
        return vec![[(0, 1), (0, 2), (1, 2)][round % 3]];
    }
    let bit = 1 << round;
    let smaller = (0..count).filter(|index| index & bit == 0);
    let pairs = smaller.map(|index| (index, index | bit));
    pairs.filter(|(_, larger)| *larger < count).collect()
}

/// Round `turn` of a tournament in which everyone meets everyone: the last stays, the others move
/// around.
fn circle(count: usize, turn: usize) -> Vec<Pair> {
    let even = count + count % 2;
    if even < 2 {
        return Vec::new();
    }
    let moving = even - 1;
    let turn = turn % moving;
    let others =
        (1..even / 2).map(|step| ((turn + step) % moving, (turn + moving - step) % moving));
    let pairs = std::iter::once((moving, turn)).chain(others);
    pairs
        .map(|(a, b)| (a.min(b), a.max(b)))
        .filter(|(_, larger)| *larger < count)
        .collect()
}

/// The nodes of neighbours that meet, in their order.
fn meet(set: &[Vec<usize>], pairs: &[Pair]) -> Vec<Pair> {
    let sides = pairs.iter().map(|(a, b)| set[*a].iter().zip(&set[*b]));
    sides
        .flatten()
        .map(|(a, b)| (*a.min(b), *a.max(b)))
        .collect()
}

/// The logarithm to base two, rounded up.
fn bits(count: usize) -> usize {
    count.max(1).next_power_of_two().trailing_zeros() as usize
}

fn padded(names: &[String], depth: usize) -> Vec<&str> {
    let missing = std::iter::repeat_n("", depth - names.len());
    names.iter().map(String::as_str).chain(missing).collect()
}

fn representative_link(domain: usize, domains: &[Domain], around: &[Vec<usize>]) -> Link {
    let own = &domains[domain];
    match own.members.as_slice() {
        [node] => Link::Node(*node),
        members => {
            let outer = around[members[0]].iter();
            let same = |outer: &&usize| domains[**outer].members.len() == members.len();
            Link::Uplink(outer.copied().find(|outer| same(&outer)).unwrap_or(domain))
        }
    }
}

#[cfg(test)]
mod tests;
