//! The tiers of a run as one store, for people: what lies where.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    codec::Sealed,
    folder::{FolderSeen, FolderState},
    manifest::Commit,
    select::{PieceSeen, Tier},
};

/// What one tier has of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnTier {
    /// Which kind of tier.
    pub tier: Tier,
    /// Its place among the tiers that were given.
    pub place: usize,
    /// Whether it has the commit.
    pub is_committed: bool,
    /// How many pieces it has in full; those that are there, where no tier has the commit.
    pub pieces: usize,
    /// The bytes that the step takes there.
    pub bytes: u64,
}

/// A step folder over all tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// As if one store had what the tiers have together.
    pub folder: FolderSeen,
    /// The tiers that have something of it, in the order in which they were given.
    pub tiers: Vec<OnTier>,
    /// How many pieces the tiers have in full together, and how many the commit has; `None` where no tier has the commit.
    pub pieces: Option<(usize, usize)>,
}

/// The step folders of several tiers, by name. A commit on any of them is the commit of the step: all have the same one.
pub fn merge(tiers: &[(Tier, &[FolderSeen])]) -> Vec<Merged> {
    let mut by_name: BTreeMap<&str, Vec<(usize, Tier, &FolderSeen)>> = BTreeMap::new();
    for (place, (tier, folders)) in tiers.iter().enumerate() {
        for folder in *folders {
            let name = by_name.entry(&folder.folder).or_default();
            name.push((place, *tier, folder));
        }
    }
    by_name.values().map(|found| merge_one(found)).collect()
}

fn merge_one(found: &[(usize, Tier, &FolderSeen)]) -> Merged {
    let state = state_of(found);
    let commit = match &state {
        FolderState::Committed(commit) => Some(&commit.document),
        _ => None,
    };
    let mut pieces: BTreeMap<u32, PieceSeen> = BTreeMap::new();
    let (mut whole, mut has_looked) = (BTreeSet::new(), false);
    let (mut on_nodes, mut elsewhere) = (0_u64, 0_u64);
    let mut tiers = Vec::new();
    for (place, tier, folder) in found {
        has_looked |= folder.pieces.is_some();
        let mut count = 0;
        for piece in folder.pieces.iter().flatten() {
            let is_whole = commit.is_none_or(|commit| piece.is_whole_in(commit));
            count += usize::from(is_whole);
            if is_whole && whole.insert(piece.rank) {
                pieces.insert(piece.rank, piece.clone());
            } else {
                pieces.entry(piece.rank).or_insert_with(|| piece.clone());
            }
        }
        match tier {
            // The disks of several nodes have a step together.
            Tier::Memory | Tier::Local | Tier::Peer => {
                on_nodes = on_nodes.saturating_add(folder.bytes);
            }
            Tier::Shared | Tier::Object => elsewhere = elsewhere.max(folder.bytes),
        }
        tiers.push(OnTier {
            tier: *tier,
            place: *place,
            is_committed: matches!(folder.state, FolderState::Committed(_)),
            pieces: count,
            bytes: folder.bytes,
        });
    }
    let counted = commit.map(|commit| (whole.len(), commit.pieces.len()));
    let first = found.first().map(|(_, _, folder)| folder.folder.clone());
    Merged {
        folder: FolderSeen {
            folder: first.unwrap_or_default(),
            state,
            other_run: (found.iter()).find_map(|(_, _, folder)| folder.other_run.clone()),
            pieces: has_looked.then(|| pieces.into_values().collect()),
            bytes: on_nodes.max(elsewhere),
        },
        tiers,
        pieces: counted,
    }
}

/// The state that says the most: a commit, then one that cannot be read, then a save without one, then a removal.
fn state_of(found: &[(usize, Tier, &FolderSeen)]) -> FolderState {
    let mut commit: Option<&Sealed<Commit>> = None;
    let mut other = FolderState::Removed;
    for (_, _, folder) in found {
        match &folder.state {
            FolderState::Committed(seen) if commit.is_none_or(|one| one.crc32c == seen.crc32c) => {
                commit = Some(seen);
            }
            FolderState::Committed(_) => {
                return FolderState::Unreadable {
                    why: "tiers have different commits of it".to_owned(),
                };
            }
            unreadable @ FolderState::Unreadable { .. } => other = unreadable.clone(),
            FolderState::Partial if other == FolderState::Removed => other = FolderState::Partial,
            FolderState::Partial | FolderState::Removed => {}
        }
    }
    match commit {
        Some(commit) => FolderState::Committed(Box::new(commit.clone())),
        None => other,
    }
}
