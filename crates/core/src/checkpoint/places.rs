//! The tiers of a run as one store, for people: what lies where.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    codec::Sealed,
    folder::{FolderSeen, FolderState},
    lineage::RecordSeen,
    manifest::Commit,
    names::StepName,
    select::{PieceSeen, Tier},
    summary::{StepLine, StepState, Summary, summary},
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

impl Merged {
    /// What the step's line in a summary says when only some tiers were looked at: what only local tiers have is neither damaged nor lost
    /// because some of these tiers were not given. `is_on_local_tiers`: whether the root shows that local tiers have committed it.
    fn explain(&self, line: &mut StepLine, is_on_local_tiers: &dyn Fn(&StepName) -> bool) {
        let is_local = |on: &OnTier| on.tier == Tier::Local;
        let is_committed_on_root = (self.tiers.iter()).any(|on| on.is_committed && !is_local(on));
        match (line.state, self.pieces) {
            (StepState::Suspect, Some((found, of))) if found < of && !is_committed_on_root => {
                line.state = StepState::Partial;
                line.why = Some(format!(
                    "these tiers have {found} of {of} pieces; the local tiers of other nodes may have more"
                ));
            }
            (StepState::Partial, None) if is_on_local_tiers(&line.name) => {
                line.why = Some("not copied from the local tiers yet".to_owned());
            }
            _ => {}
        }
    }
}

/// What tiers hold together, as [`summary()`] says it of one store. `is_on_local_tiers`: whether the root shows that local tiers have
/// committed a step.
pub fn summary_of_tiers(
    run: &str,
    records: &[RecordSeen],
    steps: &[Merged],
    is_on_local_tiers: &dyn Fn(&StepName) -> bool,
    now: Option<i64>,
) -> Summary {
    let folders: Vec<FolderSeen> = steps.iter().map(|step| step.folder.clone()).collect();
    let mut summary = summary(run, records, &folders, &BTreeMap::new(), now);
    let by_name: BTreeMap<&str, &Merged> = (steps.iter())
        .map(|step| (step.folder.folder.as_str(), step))
        .collect();
    for line in &mut summary.steps {
        if let Some(step) = by_name.get(line.name.to_string().as_str()) {
            step.explain(line, is_on_local_tiers);
        }
    }
    summary
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
