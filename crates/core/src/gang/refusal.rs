//! Why a gang gets no seats, as arithmetic, and the smallest change that would give it some.
//!
//! Invariant: a sentence holds only what was counted, and names a change only after the gang was seated with it.

mod count;
mod words;

use std::collections::BTreeSet;

use serde::Serialize;

use self::count::{Count, Holder};
use super::{
    Gang, GangKey,
    amounts::Need,
    ask::{Ask, Eligibility, Group},
    node_table::NodeTable,
    preempt::Barred,
    seat::{Room, seat},
};
use crate::spec::Wish;

/// Why a gang gets no seats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// What it needs, what there is, who holds the rest, and what would fit, in one sentence.
    pub message: String,
    /// What would make it fit, the smallest change first; each was tried.
    pub changes: Vec<Change>,
    /// Whether it would fit if all other gangs had ended.
    pub fits_when_empty: bool,
}

/// A change that would make a gang fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "change")]
pub enum Change {
    /// Another gang ends.
    Ended {
        /// Which, as namespace and name.
        gang: String,
    },
    /// The level is asked for only where it is possible.
    Prefer {
        /// The level.
        level: String,
    },
    /// Fewer pods are asked for.
    Fewer {
        /// How many would fit.
        pods: usize,
        /// The accelerators that they have.
        accelerators: i64,
    },
}

/// Why `ask` gets no seats, and which other gangs that names. `promised` is the gang that seats are kept for.
pub(super) fn refusal<'a>(
    table: &mut NodeTable<'a>,
    eligibility: &mut Eligibility,
    ask: &Ask<'a>,
    promised: Option<&Gang>,
) -> (Refusal, BTreeSet<GangKey>) {
    let mut named = BTreeSet::new();
    if ask.top > table.host_tier() {
        return (Refusal::never(words::no_such_level(table, ask)), named);
    }
    let groups = ask.merged().unwrap_or_else(|| ask.by_shape());
    let Some(main) = groups.first() else {
        return (Refusal::never("has no pods".to_owned()), named);
    };
    let count = Count::new(table, ask, main);
    let fits_when_empty = fits_when_empty(table, ask);
    let changes = changes(table, eligibility, ask, &count, &mut named);
    let mut parts = words::sentence(table, ask, &groups, &count, promised, &mut named);
    if !fits_when_empty {
        parts.push("does not fit even when all other gangs have ended".to_owned());
    }
    if !changes.is_empty() {
        let fits: Vec<String> = changes.iter().map(|change| change.words(ask)).collect();
        parts.push(format!("fits {}", fits.join(", or ")));
    }
    let refusal = Refusal {
        message: parts.join("; "),
        changes,
        fits_when_empty,
    };
    (refusal, named)
}

impl Refusal {
    /// No change helps.
    fn never(message: String) -> Self {
        Self {
            message,
            changes: Vec::new(),
            fits_when_empty: false,
        }
    }

    /// Adds why no gang is evicted for it, although it asks for preemption.
    pub(super) fn may_not_preempt(&mut self, why: Barred) {
        self.message.push_str("; ");
        self.message.push_str(why.words());
    }

    /// Adds that it waits for evicted gangs to end.
    pub(super) fn waits_for<'a>(&mut self, victims: impl Iterator<Item = &'a GangKey>) {
        let names: Vec<String> = victims.map(|key| format!("`{}`", key.name)).collect();
        self.message.push_str("; waiting for ");
        match names.split_last() {
            None => self.message.push_str("gangs that are already terminating"),
            Some((last, [])) => self.message.push_str(last),
            Some((last, rest)) => {
                self.message.push_str(&rest.join(", "));
                self.message.push_str(" and ");
                self.message.push_str(last);
            }
        }
        if !names.is_empty() {
            self.message.push_str(" (lower priority) to end");
        }
    }
}

impl Change {
    fn words(&self, ask: &Ask<'_>) -> String {
        match self {
            Self::Ended { gang } => {
                let own = format!("{}/", ask.gang.key.namespace);
                let name = gang.strip_prefix(&own).unwrap_or(gang);
                format!("when `{name}` ends")
            }
            Self::Prefer { level } => format!("with `preferred={level}`"),
            Self::Fewer { pods, accelerators } if *accelerators > 0 => {
                format!("with {} ({pods} pods)", words::gpus(*accelerators))
            }
            Self::Fewer { pods, .. } => format!("with {pods} pods"),
        }
    }
}

fn fits_when_empty(table: &mut NodeTable<'_>, ask: &Ask<'_>) -> bool {
    let mut amounts = std::mem::take(&mut table.emptied);
    let mut room = Room {
        table,
        amounts: &mut amounts,
    };
    let found = seat(&mut room, ask).is_some();
    table.emptied = amounts;
    found
}

/// The changes that make the gang fit, each tried; `named` gets the gangs that they name.
fn changes<'a>(
    table: &mut NodeTable<'a>,
    eligibility: &mut Eligibility,
    ask: &Ask<'a>,
    count: &Count<'a>,
    named: &mut BTreeSet<GangKey>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    if let Some(Holder { gang, .. }) = ended(table, ask, count) {
        named.insert((*gang).clone());
        changes.push(Change::Ended {
            gang: gang.to_string(),
        });
    }
    let mut amounts = std::mem::take(&mut table.usable);
    let mut room = Room {
        table,
        amounts: &mut amounts,
    };
    if let Some(Wish::Required(level)) = &ask.gang.wish {
        let mut relaxed = Ask::new(room.table, eligibility, ask.gang, ask.count);
        relaxed.top = 0;
        if seat(&mut room, &relaxed).is_some() {
            changes.push(Change::Prefer {
                level: level.clone(),
            });
        }
    }
    // Fewer pods do not help where the gang may start with fewer anyway.
    let pods = fewer(&mut room, eligibility, ask, count);
    if let Some(pods) = pods.filter(|pods| *pods > 0) {
        changes.push(Change::Fewer {
            pods,
            accelerators: ask.gang.accelerators(pods),
        });
    }
    table.usable = amounts;
    changes
}

/// The one gang that must end to make room, where one is enough.
fn ended<'a, 'c>(
    table: &mut NodeTable<'a>,
    ask: &Ask<'a>,
    count: &'c Count<'a>,
) -> Option<&'c Holder<'a>> {
    const TRIED: usize = 4;
    let mut amounts = table.usable.clone();
    count.holders.iter().take(TRIED).find(|holder| {
        amounts.clone_from(&table.usable);
        let mut room = Room {
            table,
            amounts: &mut amounts,
        };
        for placed in &room.table.placed_pods {
            if placed.number == Some(holder.number) {
                let need = room.table.need(placed.requests);
                room.release(placed.node, &need);
            }
        }
        seat(&mut room, ask).is_some()
    })
}

/// How many pods would fit: as many as the best domain has, in whole tensor-parallel groups.
fn fewer<'a>(
    room: &mut Room<'_, 'a>,
    eligibility: &mut Eligibility,
    ask: &Ask<'a>,
    count: &Count<'a>,
) -> Option<usize> {
    let others = ask.count - count.wanted;
    let group = ask.traffic.tensor_group.max(1) as usize;
    let pods = (count.best / group * group + others).min(ask.count.saturating_sub(1));
    if count.best == 0 || count.best >= count.wanted || !ask.gang.held.is_empty() {
        return None;
    }
    let fewer = Ask::new(room.table, eligibility, ask.gang, pods);
    seat(room, &fewer).map(|_| pods)
}

/// Whether any pod of `group` could be on the node by itself.
fn is_single(table: &NodeTable<'_>, group: &Group) -> bool {
    let need = group.need.iter().copied();
    let devices: Need = need
        .filter(|(at, _)| crate::resources::is_accelerator(table.resources[*at]))
        .collect();
    (0..table.nodes.len())
        .filter(|node| group.eligible[*node])
        .all(|node| !devices.is_empty() && table.fits_when_bare(node, &devices) <= 1)
}
