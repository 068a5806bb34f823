//! Who waits for nodes, in the order in which placement considers them, why, and what would help.

#[cfg(test)]
mod tests;

use serde::Serialize;

use super::VERSION;
use crate::gang::{Change, Gang, GangKey, Placement, Seat};

/// Rows of an answer.
pub const ROWS_MAX: usize = 1_000;
/// Holders and promised seats of a row.
pub const NAMES_MAX: usize = 64;

/// The wait queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// The form of this document.
    pub version: u32,
    /// The gangs that wait.
    pub rows: Vec<QueueRow>,
    /// How many rows there was no room for.
    pub rows_left_out: usize,
    /// Gangs that wait and whose names the reader may not see.
    pub hidden: Hidden,
}

/// A gang that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// Its job, as namespace and name.
    pub job: String,
    /// Its place among all gangs that wait, from 1.
    pub position: usize,
    /// When its job was created, in Unix milliseconds.
    pub created: i64,
    /// How many pods want a node.
    pub pods: usize,
    /// How many accelerators all its pods ask for.
    pub accelerators: i64,
    /// Why it waits; nothing where it gets nodes now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it would fit into the empty cluster. Nothing where it gets nodes now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits_when_empty: Option<bool>,
    /// What would make it fit, the smallest change first.
    pub changes: Vec<Change>,
    /// Who holds accelerators, most first.
    pub waits_for: Vec<Holder>,
    /// The nodes that are reserved for it.
    pub promised: Vec<Seat>,
}

/// A gang that holds accelerators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its job, as namespace and name; nothing where the reader may not see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<String>,
    /// How many.
    pub accelerators: i64,
}

/// Gangs without names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hidden {
    /// How many.
    pub gangs: usize,
    /// Their accelerators.
    pub accelerators: i64,
}

/// The queue as `placement` decided about `gangs`, for a reader who may see the gangs for which `may_see` holds. Names of others are in no field.
pub fn queue(gangs: &[Gang], placement: &Placement, may_see: impl Fn(&GangKey) -> bool) -> Queue {
    let mut waiting: Vec<&Gang> = gangs.iter().filter(|gang| !gang.is_seated()).collect();
    // As `gang::place` goes through them.
    waiting.sort_by(|a, b| {
        let claims = b.claim.cmp(&a.claim);
        let returns = || b.is_returning().cmp(&a.is_returning());
        claims
            .then_with(returns)
            .then_with(|| (a.created, &a.key).cmp(&(b.created, &b.key)))
    });
    let unseen: Vec<&GangKey> = gangs
        .iter()
        .map(|gang| &gang.key)
        .filter(|key| !may_see(key))
        .collect();
    let holders = holders(gangs, &may_see);
    let mut queue = Queue {
        version: VERSION,
        rows: Vec::new(),
        rows_left_out: 0,
        hidden: Hidden::default(),
    };
    for (place, gang) in (1..).zip(waiting) {
        let accelerators = gang.accelerators(gang.pods.len());
        if !may_see(&gang.key) {
            queue.hidden.gangs += 1;
            queue.hidden.accelerators = queue.hidden.accelerators.saturating_add(accelerators);
        } else if queue.rows.len() == ROWS_MAX {
            queue.rows_left_out += 1;
        } else {
            queue
                .rows
                .push(row(gang, place, placement, &unseen, &holders));
        }
    }
    queue
}

fn row(
    gang: &Gang,
    position: usize,
    placement: &Placement,
    unseen: &[&GangKey],
    holders: &[Holder],
) -> QueueRow {
    let refusal = placement.refused.get(&gang.key);
    let names_unseen = |text: &str| unseen.iter().any(|key| text.contains(key.name.as_str()));
    let reason = refusal.map(|refusal| {
        if names_unseen(&refusal.message) {
            // The sentence would name a gang of somebody else.
            "waits for nodes that gangs of other teams hold".to_owned()
        } else {
            refusal.message.clone()
        }
    });
    let is_seen = |change: &&Change| match change {
        Change::Ended { gang } => !unseen.iter().any(|key| key.to_string() == *gang),
        Change::Prefer { .. } | Change::Fewer { .. } => true,
    };
    let changes = refusal.into_iter().flat_map(|refusal| &refusal.changes);
    let promised = placement.reservations.get(&gang.key).into_iter().flatten();
    let own = gang.key.to_string();
    let others = holders
        .iter()
        .filter(|holder| refusal.is_some() && holder.gang.as_ref() != Some(&own));
    QueueRow {
        job: own.clone(),
        position,
        created: gang.created.as_millisecond(),
        pods: gang.unseated().count(),
        accelerators: gang.accelerators(gang.pods.len()),
        reason,
        fits_when_empty: refusal.map(|refusal| refusal.fits_when_empty),
        changes: changes.filter(is_seen).cloned().collect(),
        waits_for: others.take(NAMES_MAX).cloned().collect(),
        promised: promised.take(NAMES_MAX).cloned().collect(),
    }
}

/// Who holds accelerators, most first; all whose names may not be seen together.
fn holders(gangs: &[Gang], may_see: impl Fn(&GangKey) -> bool) -> Vec<Holder> {
    let mut named = Vec::new();
    let mut unnamed = 0_i64;
    for gang in gangs {
        let held = gang
            .pods
            .iter()
            .filter(|pod| gang.held.contains_key(&pod.name));
        let shapes = held.filter_map(|pod| gang.shapes.get(pod.shape));
        let accelerators: i64 = shapes.map(|shape| shape.requests.accelerators()).sum();
        if accelerators <= 0 {
            continue;
        }
        if may_see(&gang.key) {
            named.push(Holder {
                gang: Some(gang.key.to_string()),
                accelerators,
            });
        } else {
            unnamed += accelerators;
        }
    }
    if unnamed > 0 {
        named.push(Holder {
            gang: None,
            accelerators: unnamed,
        });
    }
    named.sort_by_key(|holder| std::cmp::Reverse(holder.accelerators));
    named
}
