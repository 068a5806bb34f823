//! Moving pods of a small gang about until no single move or exchange makes it better.

use super::{Room, Seats};
use crate::gang::{
    ask::{Ask, Grains, Group},
    node_table::NodeTable,
};

/// Most moves that are tried; a gang of 64 pods seldom needs a tenth.
const LOOKS: u32 = 20_000;
/// Nodes that a pod may be moved to.
const NODES: usize = 32;

/// Improves the seats of `group`, whose pods lie together as `way` says.
pub(super) fn improve(
    room: &mut Room<'_, '_>,
    ask: &Ask<'_>,
    group: &Group,
    way: &Grains,
    seats: &mut Seats,
) {
    let table = room.table;
    let host = table.host_tier();
    if (1..host).any(|tier| way[tier] > 1 && way[tier] == ask.traffic.tensor_group) {
        return;
    }
    let size = way[host].max(1) as usize;
    let units: Vec<&[u32]> = group.pods.chunks(size).collect();
    let search = Search {
        table,
        talks: talks(ask),
    };
    for (pod, node) in (0..).zip(seats.iter()) {
        if let Some(node) = node {
            room.take(*node, &ask.needs[ask.shape(pod)]);
        }
    }
    let targets = targets(room, ask, group, seats);
    let mut looks = LOOKS;
    while looks > 0 {
        let mut better = false;
        for one in 0..units.len() {
            for other in one + 1..units.len() {
                looks = looks.saturating_sub(1);
                better |= units[one].len() == units[other].len()
                    && search.exchange(seats, units[one], units[other]);
            }
            for node in &targets {
                looks = looks.saturating_sub(1);
                better |= move_unit(room, &search, ask, group, seats, units[one], *node);
            }
        }
        if !better {
            break;
        }
    }
    room.release_all(ask, seats);
}

struct Search<'y, 'a> {
    table: &'y NodeTable<'a>,
    /// For each pod its peers, and how much it exchanges with them.
    talks: Vec<Vec<(u32, u32)>>,
}

impl Search<'_, '_> {
    /// What the pods of a unit pay.
    fn cost(&self, seats: &Seats, unit: &[u32]) -> u64 {
        let of_pod = |pod: &u32| -> u64 {
            let Some(own) = seats[*pod as usize] else {
                return 0;
            };
            let pays = |(other, weight): &(u32, u32)| {
                let hops = seats[*other as usize].map_or(0, |seat| self.table.hops(own, seat));
                u64::from(*weight) * u64::from(hops)
            };
            self.talks[*pod as usize].iter().map(pays).sum()
        };
        unit.iter().map(of_pod).sum()
    }

    /// Exchanges the seats of two units where that is better.
    fn exchange(&self, seats: &mut Seats, one: &[u32], other: &[u32]) -> bool {
        let (here, there) = (seats[one[0] as usize], seats[other[0] as usize]);
        if here == there {
            return false;
        }
        let before = self.cost(seats, one) + self.cost(seats, other);
        let mut put = |a: Option<u32>, b: Option<u32>| {
            put_all(seats, one, a);
            put_all(seats, other, b);
            self.cost(seats, one) + self.cost(seats, other)
        };
        if put(there, here) < before {
            return true;
        }
        put(here, there);
        false
    }
}

fn put_all(seats: &mut Seats, unit: &[u32], node: Option<u32>) {
    for pod in unit {
        seats[*pod as usize] = node;
    }
}

/// Moves a unit to `node` where there is room and it is better there.
fn move_unit(
    room: &mut Room<'_, '_>,
    search: &Search<'_, '_>,
    ask: &Ask<'_>,
    group: &Group,
    seats: &mut Seats,
    unit: &[u32],
    node: u32,
) -> bool {
    let Some(here) = seats[unit[0] as usize].filter(|here| *here != node) else {
        return false;
    };
    if (room.fits(node as usize, &group.need) as usize) < unit.len() {
        return false;
    }
    let before = search.cost(seats, unit);
    put_all(seats, unit, Some(node));
    if search.cost(seats, unit) >= before {
        put_all(seats, unit, Some(here));
        return false;
    }
    for pod in unit {
        let need = &ask.needs[ask.shape(*pod)];
        room.release(here, need);
        room.take(node, need);
    }
    true
}

/// Nodes with room near the gang's own, in the domain that it has to stay in.
fn targets(room: &Room<'_, '_>, ask: &Ask<'_>, group: &Group, seats: &Seats) -> Vec<u32> {
    let anchor = group.pods.first().and_then(|pod| seats[*pod as usize]);
    let Some(anchor) = anchor else {
        return Vec::new();
    };
    let top = if group.holds_ranks { ask.top } else { 0 };
    super::outward(room.table, anchor, top)
        .filter(|node| group.eligible[*node])
        .take(NODES)
        .filter_map(|node| u32::try_from(node).ok())
        .collect()
}

fn talks(ask: &Ask<'_>) -> Vec<Vec<(u32, u32)>> {
    let mut talks = vec![Vec::new(); ask.gang.pods.len()];
    for (a, b, weight) in &ask.traffic.edges {
        talks[*a as usize].push((*b, *weight));
        talks[*b as usize].push((*a, *weight));
    }
    talks
}
