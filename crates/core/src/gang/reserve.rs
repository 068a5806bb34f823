//! Seats promised to a gang that waits.
//!
//! With no estimate of how long gangs run, a promise is a set of seats that the gang fits on once the gangs
//! there have ended. What becomes free on them is given to no other gang, so smaller gangs that go past the one
//! that waits cannot delay it.
//!
//! Invariant: a promise that was made is kept as long as it can be: another one each time could put the start
//! off forever.

use super::{
    ask::Ask,
    lay::Layout,
    node_table::NodeTable,
    seat::{Room, Seats, fits_of, seat, together, try_layout},
};

/// Finds seats to promise, in what would be free if all other gangs had ended, and keeps them.
pub(super) fn reserve(table: &mut NodeTable<'_>, ask: &Ask<'_>) -> Option<Seats> {
    let mut amounts = std::mem::take(&mut table.room);
    let mut room = Room {
        table,
        amounts: &mut amounts,
    };
    let held = held(room.table, ask);
    for (node, shape) in &held {
        room.take(*node, &ask.needs[*shape]);
    }
    let found = as_promised(&mut room, ask)
        .or_else(|| soonest(&mut room, ask))
        .or_else(|| seat(&mut room, ask));
    for (node, shape) in &held {
        room.release(*node, &ask.needs[*shape]);
    }
    table.room = amounts;
    let seats = found?;
    keep(table, ask, &seats);
    Some(seats)
}

/// Keeps the seats for the gang.
pub(super) fn keep(table: &mut NodeTable<'_>, ask: &Ask<'_>, seats: &Seats) {
    for (pod, node) in (0..).zip(seats) {
        let is_held = ask
            .gang
            .held
            .contains_key(&ask.gang.pods[pod as usize].name);
        if let (Some(node), false) = (node, is_held) {
            table.reserve(*node, &ask.needs[ask.shape(pod)]);
        }
    }
}

/// Seats of which as many as possible are free now, on the domain that has most of them.
fn soonest(room: &mut Room<'_, '_>, ask: &Ask<'_>) -> Option<Seats> {
    let table = room.table;
    if ask.is_mutual || !ask.gang.held.is_empty() || ask.top > table.host_tier() {
        return None;
    }
    let groups = ask.merged().unwrap_or_else(|| ask.by_shape());
    let (main, others) = groups.split_first()?;
    let way = ask.grains.last()?;
    let whole = |fit: u32| fit / way[table.host_tier()] * way[table.host_tier()];
    let later: Vec<u32> = fits_of(room, main).into_iter().map(whole).collect();
    let now: Vec<u32> = (0..table.nodes.len())
        .map(|node| whole(table.usable.fits(node, &main.need)).min(later[node]))
        .collect();
    let wanted = u32::try_from(main.pods.len()).ok()?;
    let sum = |fits: &[u32], nodes: std::ops::Range<usize>| -> u64 {
        fits[nodes].iter().map(|fit| u64::from(*fit)).sum()
    };
    let (_, domain) = (0..)
        .zip(&table.tiers[ask.top])
        .filter(|(at, domain)| {
            table.is_one_place(ask.top, *at) && sum(&later, domain.nodes()) >= u64::from(wanted)
        })
        .max_by_key(|(at, domain)| {
            let free = sum(&now, domain.nodes()).min(u64::from(wanted));
            let least = std::cmp::Reverse(sum(&later, domain.nodes()));
            (free, least, std::cmp::Reverse(*at))
        })?;
    let mut nodes: Vec<usize> = domain.nodes().filter(|node| later[*node] > 0).collect();
    nodes.sort_by_key(|node| (std::cmp::Reverse(now[*node]), later[*node] - now[*node]));
    let mut rest = wanted;
    let mut layout: Layout = Vec::new();
    for node in nodes {
        let given = later[node].min(rest);
        if given > 0 {
            layout.push((u32::try_from(node).ok()?, given));
        }
        rest -= given;
    }
    layout.sort_unstable();
    let seats = try_layout(room, ask, main, others, &layout)?;
    together(table, ask, &seats).then_some(seats)
}

/// The seats that were promised the last time, where the gang may still have all of them.
pub(super) fn as_promised(room: &mut Room<'_, '_>, ask: &Ask<'_>) -> Option<Seats> {
    let gang = ask.gang;
    if gang.reserved.is_empty() || ask.is_mutual || ask.top > room.table.host_tier() {
        return None;
    }
    let mut seats: Seats = vec![None; gang.pods.len()];
    for (at, pod) in gang.pods.iter().take(ask.count).enumerate() {
        let node = gang
            .held
            .get(&pod.name)
            .or_else(|| gang.reserved.get(&pod.name))?;
        seats[at] = Some(*room.table.by_name.get(node.as_str())?);
    }
    let mut given: Seats = vec![None; seats.len()];
    let mut fits = together(room.table, ask, &seats);
    for (at, pod) in gang.pods.iter().take(ask.count).enumerate() {
        let (Some(node), false) = (seats[at], gang.held.contains_key(&pod.name)) else {
            continue;
        };
        fits = fits
            && ask.eligible[pod.shape][node as usize]
            && room.fits(node as usize, &ask.needs[pod.shape]) > 0;
        if fits {
            room.take(node, &ask.needs[pod.shape]);
            given[at] = Some(node);
        }
    }
    room.release_all(ask, &given);
    fits.then_some(seats)
}

/// The seats that the gang holds, with the shapes of the pods on them.
fn held(table: &NodeTable<'_>, ask: &Ask<'_>) -> Vec<(u32, usize)> {
    let pods = ask.gang.pods.iter();
    pods.filter_map(|pod| {
        let node = ask.gang.held.get(&pod.name)?;
        Some((*table.by_name.get(node.as_str())?, pod.shape))
    })
    .collect()
}
