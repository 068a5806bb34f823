//! From the lines of watchdogs: who waits in which collective, and for whom.
//!
//! Invariants: numbers of collectives are compared only within one process group. A rank that waits in any group is
//! never called late: whoever it waits for is.

use std::collections::{BTreeMap, BTreeSet};

use super::{Collective, Member, Wait};
use crate::diagnose::source::GroupWait;

/// Compares the ranks of each group.
pub(super) fn compare(members: &[(usize, &Member)], world: Option<u32>) -> Wait {
    let mut groups: BTreeMap<Option<&str>, Vec<(u32, &GroupWait)>> = BTreeMap::new();
    let mut waiting_somewhere = BTreeSet::new();
    for (_, member) in members {
        let Some(rank) = member.rank else { continue };
        for wait in &member.waits {
            groups
                .entry(wait.group.as_deref())
                .or_default()
                .push((rank, wait));
            if wait.work.is_some() {
                waiting_somewhere.insert(rank);
            }
        }
    }
    let found = groups.into_iter().filter_map(|(group, waits)| {
        // Every rank is a member of the default group only.
        let world = world.filter(|_| group.is_none());
        let mut wait = in_group(&waits, world)?;
        wait.late.retain(|rank| !waiting_somewhere.contains(rank));
        wait.silent.retain(|rank| !waiting_somewhere.contains(rank));
        Some(wait)
    });
    let mut found: Vec<Wait> = found.collect();
    let accused: BTreeSet<&BTreeSet<u32>> = found
        .iter()
        .map(|wait| &wait.late)
        .filter(|late| !late.is_empty())
        .collect();
    // Groups that accuse different ranks contradict each other.
    if accused.len() > 1 {
        for wait in &mut found {
            wait.late.clear();
            wait.silent.clear();
        }
    }
    let rank_of = |wait: &Wait| {
        let group = wait
            .collective
            .as_ref()
            .and_then(|known| known.group.clone());
        (wait.late.is_empty(), wait.mismatch.is_none(), group)
    };
    found.into_iter().min_by_key(rank_of).unwrap_or_default()
}

/// Compares the ranks of one group.
fn in_group(reporting: &[(u32, &GroupWait)], world: Option<u32>) -> Option<Wait> {
    let mut wait = Wait::default();
    let stuck = reporting.iter().filter(|(_, wait)| wait.work.is_some());
    let (_, stuck) = stuck.min_by_key(|(_, wait)| wait.work.as_ref().map(|work| work.sequence))?;
    let work = stuck.work.as_ref()?;
    for (rank, other) in reporting {
        match &other.work {
            Some(other) if other.sequence == work.sequence => {
                let same_size = other.elements_in == work.elements_in || uneven(&work.operation);
                if other.operation == work.operation && same_size {
                    wait.waiting.insert(*rank);
                } else {
                    wait.mismatch_ranks.insert(*rank);
                    wait.mismatch = Some(format!(
                        "{} of {} elements against {} of {}",
                        other.operation,
                        elements(other.elements_in),
                        work.operation,
                        elements(work.elements_in)
                    ));
                }
            }
            None if other.enqueued.is_some_and(|last| last < work.sequence) => {
                wait.late.insert(*rank);
            }
            // Waiting in a later one: it was through the earlier.
            _ => {}
        }
    }
    // Versions that do not name the group count those of different groups as one; two operations under one number are
    // then no sign of anything unless few ranks differ.
    if wait.mismatch_ranks.len() > reporting.len() / 2 || wait.waiting.is_empty() {
        wait.mismatch = None;
        wait.mismatch_ranks.clear();
    }
    let seen: BTreeSet<u32> = reporting.iter().map(|(rank, _)| *rank).collect();
    if let Some(world) = world.filter(|world| seen.len() * 4 >= *world as usize * 3) {
        wait.silent = (0..world).filter(|rank| !seen.contains(rank)).collect();
    }
    wait.collective = collective(stuck);
    Some(wait)
}

/// The collective that one rank waits in.
pub(super) fn collective(wait: &GroupWait) -> Option<Collective> {
    let work = wait.work.as_ref()?;
    Some(Collective {
        sequence: work.sequence,
        operation: work.operation.clone(),
        elements_in: work.elements_in,
        elements_out: work.elements_out,
        group: wait.group.clone(),
    })
}

/// Whether ranks may well bring different sizes to one and the same operation.
fn uneven(operation: &str) -> bool {
    let uneven = ["COALESCED", "ALLTOALL", "SEND", "RECV", "GATHER", "SCATTER"];
    uneven.iter().any(|name| operation.starts_with(name))
}

fn elements(count: Option<u64>) -> String {
    count.map_or_else(|| "unknown".to_owned(), |count| count.to_string())
}
