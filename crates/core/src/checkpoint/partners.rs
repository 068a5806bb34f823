//! Which node holds the copies of which: every node holds for exactly one, in another failure domain.
//!
//! A former assignment is repaired and not made again, so that one node that leaves moves the copies of one other node.

use std::collections::{BTreeMap, BTreeSet};

/// A node that keeps pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartnerNode {
    /// Its name.
    pub name: String,
    /// The failure domains it is in, outermost first: rack, then switch. Nodes with fewer are compared by those they have.
    pub domains: Vec<String>,
    /// The groups (tensor, pipeline, data parallel) that its ranks are in.
    pub groups: BTreeSet<String>,
}

/// How many rotations are tried for a new assignment, and how many exchanges improve it.
const ROTATIONS: usize = 64;
const EXCHANGES: usize = 200_000;

/// How bad it is that one node holds for another: itself, then each shared domain, then each shared group.
type Cost = (i64, i64, i64);

/// The holder of each node's copies, by name. Empty with fewer than two nodes. `former` is an earlier result, or empty.
///
/// If no failure domain of the outermost level has more than half of the nodes, every holder of a new assignment is in another one.
pub fn partners(
    nodes: &[PartnerNode],
    former: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let by_name: BTreeMap<&str, &PartnerNode> = nodes
        .iter()
        .map(|node| (node.name.as_str(), node))
        .collect();
    let mut nodes: Vec<&PartnerNode> = by_name.into_values().collect();
    if nodes.len() < 2 {
        return BTreeMap::new();
    }
    nodes.sort_by(|one, two| (&one.domains, &one.name).cmp(&(&two.domains, &two.name)));
    let holders = repair(&nodes, former).unwrap_or_else(|| assign(&nodes));
    (nodes.iter().zip(holders))
        .map(|(node, holder)| (node.name.clone(), nodes[holder].name.clone()))
        .collect()
}

fn cost(one: &PartnerNode, two: &PartnerNode) -> Cost {
    if one.name == two.name {
        return (1, 0, 0);
    }
    let same = |(one, two): &(&String, &String)| one == two;
    let domains = one
        .domains
        .iter()
        .zip(&two.domains)
        .take_while(same)
        .count();
    let groups = one.groups.intersection(&two.groups).count();
    let counted = |count: usize| i64::from(u32::try_from(count).unwrap_or(u32::MAX));
    (0, counted(domains), counted(groups))
}

fn add(one: Cost, two: Cost) -> Cost {
    (one.0 + two.0, one.1 + two.1, one.2 + two.2)
}

/// Nodes are sorted by domain, so a domain is a range: a rotation by more than the largest range leaves every domain.
fn assign(nodes: &[&PartnerNode]) -> Vec<usize> {
    let count = nodes.len();
    let total = |shift: usize| {
        (0..count).fold((0, 0, 0), |sum, place| {
            add(sum, cost(nodes[place], nodes[(place + shift) % count]))
        })
    };
    // From the middle outwards: there the domains are left soonest.
    let middle = count / 2;
    let shifts = (0..count)
        .flat_map(|away| [middle + away, (middle + count).wrapping_sub(away)])
        .map(|shift| shift % count)
        .filter(|shift| *shift != 0)
        .take(ROTATIONS);
    let best = shifts.min_by_key(|shift| total(*shift)).unwrap_or(1);
    let mut holders: Vec<usize> = (0..count).map(|place| (place + best) % count).collect();
    exchange(nodes, &mut holders, &(0..count).collect::<Vec<_>>());
    holders
}

/// For each node of `of`, exchanges its holder with the one other node where that lowers the cost most; bounded.
///
/// One exchange per node and not several: each moves the copies of another node too.
fn exchange(nodes: &[&PartnerNode], holders: &mut [usize], of: &[usize]) {
    let mut tries = 0;
    for &one in of {
        let now = cost(nodes[one], nodes[holders[one]]);
        if now == (0, 0, 0) {
            continue;
        }
        let mut best: Option<(Cost, usize)> = None;
        for two in 0..nodes.len() {
            if one == two {
                continue;
            }
            if tries == EXCHANGES {
                return;
            }
            tries += 1;
            let before = add(now, cost(nodes[two], nodes[holders[two]]));
            let after = add(
                cost(nodes[one], nodes[holders[two]]),
                cost(nodes[two], nodes[holders[one]]),
            );
            let gain = (before.0 - after.0, before.1 - after.1, before.2 - after.2);
            if gain > best.map_or((0, 0, 0), |(gain, _)| gain) {
                best = Some((gain, two));
            }
        }
        if let Some((_, two)) = best {
            holders.swap(one, two);
        }
    }
}

/// The former assignment without the nodes that left and with those that came; `None` where nothing of it is left.
fn repair(nodes: &[&PartnerNode], former: &BTreeMap<String, String>) -> Option<Vec<usize>> {
    let places: BTreeMap<&str, usize> = (nodes.iter().enumerate())
        .map(|(place, node)| (node.name.as_str(), place))
        .collect();
    let mut holders: Vec<Option<usize>> = vec![None; nodes.len()];
    let mut taken = vec![false; nodes.len()];
    for (place, node) in nodes.iter().enumerate() {
        let holder = follow(&node.name, former, &places);
        if let Some(holder) = holder.filter(|holder| *holder != place && !taken[*holder]) {
            holders[place] = Some(holder);
            taken[holder] = true;
        }
    }
    if holders.iter().all(Option::is_none) {
        return None;
    }
    let mut free = (0..nodes.len()).filter(|place| !taken[*place]);
    let mut changed = Vec::new();
    let filled = (holders.iter().enumerate())
        .map(|(place, holder)| {
            let kept = holder
                .filter(|holder| former.get(&nodes[place].name) == Some(&nodes[*holder].name));
            if kept.is_none() {
                changed.push(place);
            }
            holder.or_else(|| free.next())
        })
        .collect::<Option<Vec<usize>>>();
    let mut holders = filled?;
    for place in 0..holders.len() {
        if holders[place] == place {
            // Nobody else has it as holder, so the exchange leaves no other node with itself.
            holders.swap(place, (place + 1) % nodes.len());
        }
    }
    exchange(nodes, &mut holders, &changed);
    Some(holders)
}

/// Who holds for a node if those that left are passed over: the holder of its holder, and so on.
fn follow(
    name: &str,
    former: &BTreeMap<String, String>,
    places: &BTreeMap<&str, usize>,
) -> Option<usize> {
    let mut at = former.get(name)?;
    for _ in 0..former.len() {
        if let Some(place) = places.get(at.as_str()) {
            return Some(*place);
        }
        at = former.get(at)?;
    }
    None
}
