//! The numbers of a refusal: how many seats the best part of the cluster has, and where the others are.

use std::collections::BTreeMap;

use crate::gang::{
    GangKey,
    amounts::Amounts,
    ask::{Ask, Group},
    eligible::Bar,
    lay::Sums,
    node_table::{Domain, NodeTable},
};

/// Seats of a shape in the best domain.
#[derive(Debug)]
pub(super) struct Count<'a> {
    /// Pods that want one.
    pub(super) wanted: usize,
    /// The tier of the domain; 0 is the whole cluster.
    pub(super) tier: usize,
    /// The name of the domain.
    pub(super) name: Option<&'a str>,
    /// Seats that it has now.
    pub(super) best: usize,
    /// Who holds more of them, most first.
    pub(super) holders: Vec<Holder<'a>>,
    /// Seats that are kept for a gang that waits.
    pub(super) kept: usize,
    /// Seats used by pods outside any gang.
    pub(super) foreign: usize,
    /// Nodes that seat no such pod though they are large enough, by the reason.
    pub(super) barred: BTreeMap<Bar, usize>,
}

/// A gang with the seats that it holds.
#[derive(Debug)]
pub(super) struct Holder<'a> {
    pub(super) gang: &'a GangKey,
    pub(super) number: u32,
    pub(super) seats: usize,
}

impl<'a> Count<'a> {
    /// Counts the seats of `group`.
    pub(super) fn new(table: &NodeTable<'a>, ask: &Ask<'a>, group: &Group) -> Self {
        let fits = |amounts: &Amounts| -> Vec<u32> {
            let nodes = 0..table.nodes.len();
            nodes
                .map(|node| {
                    if group.eligible[node] {
                        amounts.fits(node, &group.need)
                    } else {
                        0
                    }
                })
                .collect()
        };
        let now = fits(&table.usable);
        // The last way asks for nothing that a gang could do without.
        let way = ask.grains.last().expect("there is always one way");
        let sums = Sums::new(table, &now, way);
        let tier = ask.top;
        let best = (0..)
            .zip(sums.of_tier(tier))
            .filter(|(at, _)| table.is_one_place(tier, *at))
            .max_by_key(|(at, sum)| (**sum, std::cmp::Reverse(*at)))
            .map_or(0, |(at, _)| at);
        let domain = table.tiers[tier].get(best as usize);
        let nodes = domain.map_or(0..0, Domain::nodes);
        let mut count = Self {
            wanted: group.pods.len(),
            tier,
            name: domain.and_then(|domain| domain.name),
            best: sums
                .of_tier(tier)
                .get(best as usize)
                .map_or(0, |sum| *sum as usize),
            holders: Vec::new(),
            kept: 0,
            foreign: 0,
            barred: BTreeMap::new(),
        };
        let (free, room) = (fits(&table.free), fits(&table.emptied));
        for node in nodes.clone() {
            count.kept += free[node].saturating_sub(now[node]) as usize;
            let whole = table.fits_when_bare(node, &group.need);
            if group.eligible[node] {
                count.foreign += whole.saturating_sub(room[node].max(free[node])) as usize;
            } else if whole > 0 {
                let pod = group.pods.first().map_or(0, |pod| ask.shape(*pod));
                let constraints = &ask.gang.shapes[pod].constraints;
                if let Some(bar) = Bar::find(table.names[node], table.nodes[node], constraints) {
                    *count.barred.entry(bar).or_default() += 1;
                }
            }
        }
        count.holders = holders(table, &nodes, &free, &room);
        count
    }
}

/// Who holds the seats of the nodes that would be free if every gang ended: on each node the gang with the largest
/// pod there.
fn holders<'a>(
    table: &NodeTable<'a>,
    nodes: &std::ops::Range<usize>,
    free: &[u32],
    room: &[u32],
) -> Vec<Holder<'a>> {
    let mut largest: Vec<Option<(i64, u32, &'a GangKey)>> = vec![None; table.nodes.len()];
    for placed in &table.placed_pods {
        let at = placed.node as usize;
        let (Some(gang), Some(number), true) = (placed.gang, placed.number, nodes.contains(&at))
        else {
            continue;
        };
        let size = placed.accelerators;
        if largest[at].is_none_or(|(other, ..)| size > other) {
            largest[at] = Some((size, number, gang));
        }
    }
    let mut seats: BTreeMap<u32, Holder<'a>> = BTreeMap::new();
    for (at, found) in largest.into_iter().enumerate() {
        let held = room[at].saturating_sub(free[at]) as usize;
        if let (Some((_, number, gang)), true) = (found, held > 0) {
            let holder = seats.entry(number).or_insert(Holder {
                gang,
                number,
                seats: 0,
            });
            holder.seats += held;
        }
    }
    let mut holders: Vec<Holder<'a>> = seats.into_values().collect();
    holders.sort_by(|a, b| b.seats.cmp(&a.seats).then_with(|| a.gang.cmp(b.gang)));
    holders
}
