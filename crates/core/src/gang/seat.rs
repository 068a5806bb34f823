//! Seating one gang: all of its pods, or none.
//!
//! The pods that hold ranks are laid out first, as one block where they can be counted as one; then come the
//! others, as near to them as there is room. Of a few layouts the one with the least traffic over long links is
//! taken, and for a small gang pods are moved about until no single move makes it better.
//!
//! Invariant: amounts are as before when a function here returns.

mod improve;
mod mend;
mod single;

use super::{
    amounts::{Amounts, Need},
    ask::{Ask, Grains, Group},
    lay::{Layout, Sums},
    node_table::NodeTable,
};
use crate::resources::is_accelerator;

/// The node of each pod of the gang that has one, by the pod's place in it.
pub(super) type Seats = Vec<Option<u32>>;

/// Gangs up to this size are improved by moving single pods: the work grows with the square.
const SMALL: usize = 64;

/// Domains of one tier that are tried.
const TRIED: usize = 4;
/// The same for a gang whose pods ask for different things.
const TRIED_WITH_OTHERS: usize = 64;
/// Hosts of a domain that are sorted to find the fewest: sorting a whole cluster for a small gang costs more than it
/// brings.
const SORTED: usize = 512;

/// Amounts of the nodes, with the table that knows what they mean.
pub(super) struct Room<'y, 'a> {
    pub(super) table: &'y NodeTable<'a>,
    pub(super) amounts: &'y mut Amounts,
}

impl Room<'_, '_> {
    pub(super) fn fits(&self, node: usize, need: &Need) -> u32 {
        self.amounts.fits(node, need)
    }

    pub(super) fn take(&mut self, node: u32, need: &Need) {
        self.amounts.take(node, need);
    }

    pub(super) fn release(&mut self, node: u32, need: &Need) {
        self.amounts.release(node, need);
    }

    /// Releases the seats of those pods of `ask` that hold none in the snapshot.
    pub(super) fn release_all(&mut self, ask: &Ask<'_>, seats: &Seats) {
        for (pod, node) in (0..).zip(seats) {
            let is_held = ask
                .gang
                .held
                .contains_key(&ask.gang.pods[pod as usize].name);
            if let (Some(node), false) = (node, is_held) {
                self.release(*node, &ask.needs[ask.shape(pod)]);
            }
        }
    }
}

/// Seats for all pods that `ask` is for, those included that hold theirs already.
pub(super) fn seat(room: &mut Room<'_, '_>, ask: &Ask<'_>) -> Option<Seats> {
    if ask.top > room.table.host_tier() {
        return None;
    }
    let gang = ask.gang;
    if !gang.held.is_empty() {
        return mend::mend(room, ask);
    }
    let mended = if gang.remembered.is_empty() {
        None
    } else {
        mend::mend(room, ask)
    };
    if let Some(seats) = &mended
        && mend::is_as_before(room.table, ask, seats)
    {
        return mended;
    }
    let fresh = if ask.is_mutual {
        single::one_by_one(room, ask)
    } else {
        let merged = ask.merged().and_then(|groups| compose(room, ask, &groups));
        merged.or_else(|| compose(room, ask, &ask.by_shape()))
    };
    let cost = |seats: &Seats| ask.traffic.cost(room.table, seats);
    match (mended, fresh) {
        (Some(mended), Some(fresh)) => Some(if cost(&fresh) < cost(&mended) {
            fresh
        } else {
            mended
        }),
        (mended, fresh) => mended.or(fresh),
    }
}

/// The best layout of the first group with the others beside it.
fn compose(room: &mut Room<'_, '_>, ask: &Ask<'_>, groups: &[Group]) -> Option<Seats> {
    let (main, others) = groups.split_first()?;
    let is_small = main.pods.len() <= SMALL;
    let fits = fits_of(room, main);
    // What the first group fills best may have no room for the others.
    let tried = if others.iter().any(|group| group.holds_ranks) {
        TRIED_WITH_OTHERS
    } else {
        TRIED
    };
    let mut best: Option<(u64, Seats, &Grains)> = None;
    for way in &ask.grains {
        for layout in layouts(room.table, &fits, way, main, ask.top, is_small, tried) {
            let Some(seats) = try_layout(room, ask, main, others, &layout) else {
                continue;
            };
            let cost = ask.traffic.cost(room.table, &seats);
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((cost, seats, way));
            }
        }
        if best.is_some() && !is_small {
            break;
        }
    }
    let (cost, mut seats, way) = best?;
    if is_small && cost > 0 && !is_best_ring(room.table, ask, &fits, main, &seats) {
        improve::improve(room, ask, main, way, &mut seats);
    }
    Some(seats)
}

/// Whether nothing can be better: one ring, in one narrowest domain, on as few hosts as could hold it.
fn is_best_ring(
    table: &NodeTable<'_>,
    ask: &Ask<'_>,
    fits: &[u32],
    group: &Group,
    seats: &Seats,
) -> bool {
    let narrowest = table.host_tier() - 1;
    let mut nodes: Vec<u32> = group
        .pods
        .iter()
        .filter_map(|pod| seats[*pod as usize])
        .collect();
    nodes.dedup();
    let most = fits.iter().copied().max().unwrap_or(1).max(1) as usize;
    let domains = &table.domain_of[narrowest];
    ask.traffic.is_ring
        && nodes.len() <= group.pods.len().div_ceil(most)
        && nodes.windows(2).all(|pair| {
            let (a, b) = (domains[pair[0] as usize], domains[pair[1] as usize]);
            a == b && table.is_one_place(narrowest, a)
        })
}

/// How many pods of `group` fit on each node.
pub(super) fn fits_of(room: &mut Room<'_, '_>, group: &Group) -> Vec<u32> {
    room.amounts.fits_by_node(&group.need, &group.eligible)
}

/// Layouts of a group, the narrowest domains first.
fn layouts(
    table: &NodeTable<'_>,
    fits: &[u32],
    way: &Grains,
    group: &Group,
    top: usize,
    is_small: bool,
    tried: usize,
) -> Vec<Layout> {
    let sums = Sums::new(table, fits, way);
    let count = u32::try_from(group.pods.len()).unwrap_or(u32::MAX);
    let top = if group.holds_ranks { top } else { 0 };
    let mut layouts = Vec::new();
    if sums.total() < count && top == 0 {
        return layouts;
    }
    let fewest = sums.fewest(count);
    for tier in (top..=table.host_tier()).rev() {
        for domain in sums.best(table, tier, count, top, tried) {
            layouts.push(sums.fill(table, tier, domain, count));
            let nodes = table.tiers[tier][domain as usize].nodes().len();
            if nodes > SORTED && tried == TRIED {
                break;
            }
            if is_small && tier < table.host_tier() && nodes <= SORTED {
                layouts.push(sums.fewest_hosts(table, tier, domain, count));
            }
        }
        // A wider domain is better only where it needs fewer hosts.
        let is_tight = layouts.iter().any(|layout| layout.len() <= fewest);
        if !layouts.is_empty() && (!is_small || is_tight) {
            break;
        }
    }
    layouts
}

/// Seats `main` as `layout` says and the other groups near it.
pub(super) fn try_layout(
    room: &mut Room<'_, '_>,
    ask: &Ask<'_>,
    main: &Group,
    others: &[Group],
    layout: &Layout,
) -> Option<Seats> {
    let mut seats: Seats = vec![None; ask.gang.pods.len()];
    let mut pods = main.pods.iter();
    for (node, count) in layout {
        for pod in pods.by_ref().take(*count as usize) {
            seats[*pod as usize] = Some(*node);
            room.take(*node, &ask.needs[ask.shape(*pod)]);
        }
    }
    let anchor = layout.first().map_or(0, |(node, _)| *node);
    let all = others.iter().all(|group| {
        let top = if group.holds_ranks { ask.top } else { 0 };
        near(room, ask, group, anchor, top, &mut seats)
    });
    room.release_all(ask, &seats);
    all.then_some(seats)
}

/// Seats the pods of `group` as near to `anchor` as there is room, in its domain of tier `top`.
fn near(
    room: &mut Room<'_, '_>,
    ask: &Ask<'_>,
    group: &Group,
    anchor: u32,
    top: usize,
    seats: &mut Seats,
) -> bool {
    let mut pods = group.pods.iter().peekable();
    for node in outward_for(room.table, group, anchor, top, seats) {
        if !group.eligible[node] {
            continue;
        }
        for _ in 0..room.fits(node, &group.need) {
            let Some(pod) = pods.next() else {
                return true;
            };
            let node = u32::try_from(node).unwrap_or(u32::MAX);
            seats[*pod as usize] = Some(node);
            room.take(node, &ask.needs[ask.shape(*pod)]);
        }
        if pods.peek().is_none() {
            return true;
        }
    }
    pods.peek().is_none()
}

/// The nodes of the domain of `anchor` in tier `top`, the nearest first. Pods that need no accelerator go beside
/// the others of the gang, and else to nodes that have none, so that no GPU is left without a processor.
fn outward_for(
    table: &NodeTable<'_>,
    group: &Group,
    anchor: u32,
    top: usize,
    seats: &Seats,
) -> Vec<usize> {
    let mut nodes: Vec<usize> = outward(table, anchor, top).collect();
    let named = |at: &usize| is_accelerator(table.resources[*at]);
    if group.need.iter().any(|(at, _)| named(at)) {
        return nodes;
    }
    let mut own: Vec<usize> = seats.iter().flatten().map(|node| *node as usize).collect();
    own.sort_unstable();
    nodes.sort_by_key(|node| {
        let is_own = own.binary_search(node).is_ok();
        (!is_own, table.nodes[*node].allocatable.accelerators() > 0)
    });
    nodes
}

/// The nodes of the domain of `anchor` in tier `top`, the nearest first.
pub(super) fn outward(
    table: &NodeTable<'_>,
    anchor: u32,
    top: usize,
) -> impl Iterator<Item = usize> {
    let mut inner = 0..0;
    let domains: Vec<std::ops::Range<usize>> = (top..=table.host_tier())
        .rev()
        .map(|tier| {
            let domain = table.domain_of[tier]
                .get(anchor as usize)
                .copied()
                .unwrap_or(0);
            table.tiers[tier]
                .get(domain as usize)
                .map_or(0..0, super::node_table::Domain::nodes)
        })
        .collect();
    domains.into_iter().flat_map(move |range| {
        let before = std::mem::replace(&mut inner, range.clone());
        range.filter(move |node| !before.contains(node))
    })
}

/// Whether the ranks of `seats` are in one domain where that is required, and tensor-parallel groups lie
/// together where that is possible at all.
pub(super) fn together(table: &NodeTable<'_>, ask: &Ask<'_>, seats: &Seats) -> bool {
    let domain = |pod: &u32, tier: usize| {
        let node = seats[*pod as usize]? as usize;
        let domain = table.domain_of[tier][node];
        table.is_one_place(tier, domain).then_some(domain)
    };
    let is_one = |pods: &[u32], tier: usize| {
        let first = pods.first().and_then(|pod| domain(pod, tier));
        first.is_some() && pods.iter().all(|pod| domain(pod, tier) == first)
    };
    let holders = &ask.traffic.nested;
    if ask.top > 0 && !is_one(holders, ask.top) {
        return false;
    }
    let size = ask.traffic.tensor_group;
    let mut tiers = (1..=table.host_tier())
        .filter(|tier| size > 1 && ask.grains.iter().any(|way| way[*tier] == size))
        .peekable();
    tiers.peek().is_none()
        || tiers.any(|tier| {
            holders
                .chunks(size as usize)
                .all(|group| is_one(group, tier))
        })
}
