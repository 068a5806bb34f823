//! Which step folders are removed, and why the others stay.
//!
//! Removing is the only decision here that cannot be taken back, so every doubt keeps: an unreadable record, a foreign name, another
//! run, a newer version, a higher attempt. Order is that of the lineage, never that of names, numbers or modification times.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    folder::{FolderSeen, FolderState},
    lineage::{CommitSeen, Lineage, NotCounted},
    names::StepName,
};

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The newest so many. One is enough only if it was verified; two are kept otherwise.
    pub last: u32,
    /// Every step that this divides.
    pub every: Option<u64>,
}

impl Policy {
    /// What stays on the local tier of a node, besides what the next tier does not have yet: enough to restore after a damaged one. What
    /// stays for longer is decided on the shared tier.
    pub const LOCAL: Self = Self {
        last: 2,
        every: None,
    };
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            last: 3,
            every: None,
        }
    }
}

/// Who uses what, as the caller knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Commits that are known to survive a loss of power on this tier.
    pub durable: BTreeSet<StepName>,
    /// Commits whose every byte was verified.
    pub verified: BTreeSet<StepName>,
    /// Commits that should not be restored, with the reason.
    pub suspects: BTreeMap<StepName, String>,
    /// Folders that a user pinned.
    pub pinned: BTreeSet<StepName>,
    /// Folders that somebody reads, drains included.
    pub reading: BTreeSet<StepName>,
    /// Folders that somebody writes, drains included.
    pub writing: BTreeSet<StepName>,
    /// Commits that a safer tier will get and does not have yet.
    pub not_drained: BTreeSet<StepName>,
}

/// Why a folder stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepWhy {
    /// It is among the newest.
    Last,
    /// There are not yet enough complete, durable and unsuspected commits after it.
    NotReplaced,
    /// Its step is a multiple of what the policy keeps.
    Every(u64),
    /// A user pinned it.
    Pinned,
    /// The present attempt resumed from it.
    ResumedFrom,
    /// Somebody reads it.
    Reading,
    /// Somebody writes it.
    Writing,
    /// A safer tier does not have it yet.
    NotDrained,
    /// It may still be written: no later step of its attempt is committed.
    MayBeWritten,
    /// It is of a higher attempt than the highest record.
    HigherAttempt,
    /// There is no readable record that says what counts.
    NoRecord,
    /// Its commit cannot be read.
    Unreadable(String),
    /// Its name or its run is not ours.
    Foreign,
    /// It was taken for one without a commit, and has one after all.
    Committed,
}

impl fmt::Display for KeepWhy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => out.write_str("among the newest"),
            Self::NotReplaced => out.write_str("not enough newer commits are complete and durable"),
            Self::Every(every) => write!(out, "every step that {every} divides is kept"),
            Self::Pinned => out.write_str("pinned"),
            Self::ResumedFrom => out.write_str("the current attempt resumed from it"),
            Self::Reading => out.write_str("being read"),
            Self::Writing => out.write_str("being written"),
            Self::NotDrained => out.write_str("not yet on a safer tier"),
            Self::MayBeWritten => out.write_str("may still be written"),
            Self::HigherAttempt => out.write_str("of a higher attempt than the highest record"),
            Self::NoRecord => out.write_str("no readable record says which commits count"),
            Self::Unreadable(why) => write!(out, "its commit cannot be read: {why}"),
            Self::Foreign => out.write_str("not a folder of this run"),
            Self::Committed => out.write_str("its commit was published meanwhile"),
        }
    }
}

/// Why a folder is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveWhy {
    /// So many newer commits are complete.
    Replaced {
        /// How many.
        by: usize,
    },
    /// A complete commit that does not count.
    NotCounted(NotCounted),
    /// It has no commit, and its attempt is below the fence.
    PartialFenced,
    /// It has no commit, and its attempt has committed a later step.
    PartialOvertaken,
    /// Its removal had begun.
    RemovalBegun,
}

impl fmt::Display for RemoveWhy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced { by } => write!(out, "{by} newer commits are complete"),
            Self::NotCounted(why) => write!(out, "{why}"),
            Self::PartialFenced => out.write_str("not committed, and a later attempt has begun"),
            Self::PartialOvertaken => {
                out.write_str("not committed, and its attempt has committed a later step")
            }
            Self::RemovalBegun => out.write_str("its removal had begun"),
        }
    }
}

/// What stays and what goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// What stays, in the order given.
    pub keep: Vec<(String, Vec<KeepWhy>)>,
    /// What goes, in the order in which to remove it: without commit first, then oldest first.
    pub remove: Vec<(StepName, RemoveWhy)>,
}

/// Which of the folders stay and which go.
pub fn retain(
    lineage: &Lineage,
    folders: &[FolderSeen],
    policy: &Policy,
    uses: &Uses,
) -> Retention {
    let judge = Judge::new(lineage, policy, uses);
    let mut retention = Retention::default();
    let mut remove = Vec::new();
    for folder in folders {
        let Some(name) = folder.name().filter(|_| folder.other_run.is_none()) else {
            retention
                .keep
                .push((folder.folder.clone(), vec![KeepWhy::Foreign]));
            continue;
        };
        match judge.judge(folder, &name) {
            Ok(why) => {
                let place = judge.places.get(&name).copied();
                remove.push((place, name, why));
            }
            Err(reasons) => retention.keep.push((folder.folder.clone(), reasons)),
        }
    }
    remove.sort_by(|one, two| (one.0, &one.1).cmp(&(two.0, &two.1)));
    retention.remove = remove
        .into_iter()
        .map(|(_, name, why)| (name, why))
        .collect();
    retention
}

struct Judge<'a> {
    lineage: &'a Lineage,
    policy: &'a Policy,
    uses: &'a Uses,
    /// The place of each commit in the lineage, oldest first.
    places: BTreeMap<StepName, usize>,
    /// The place of the oldest of the newest good ones; what is older may go. `None` where there are not enough.
    threshold: Option<usize>,
    /// How many good ones that are.
    enough: usize,
}

impl<'a> Judge<'a> {
    fn new(lineage: &'a Lineage, policy: &'a Policy, uses: &'a Uses) -> Self {
        let good = |seen: &&CommitSeen| {
            uses.durable.contains(&seen.folder)
                && !uses.suspects.contains_key(&seen.folder)
                && seen.commit.document.finite != Some(false)
        };
        let newest = lineage.commits.iter().rev().find(good);
        let verified = newest.is_some_and(|seen| uses.verified.contains(&seen.folder));
        let least = if verified { 1 } else { 2 };
        let enough = (policy.last as usize).max(least);
        let places = (lineage.commits.iter().enumerate())
            .map(|(place, seen)| (seen.folder.clone(), place))
            .collect();
        let threshold = (lineage.commits.iter().enumerate().rev())
            .filter(|(_, seen)| good(seen))
            .nth(enough - 1)
            .map(|(place, _)| place);
        Self {
            lineage,
            policy,
            uses,
            places,
            threshold,
            enough,
        }
    }

    fn judge(&self, folder: &FolderSeen, name: &StepName) -> Result<RemoveWhy, Vec<KeepWhy>> {
        if let FolderState::Unreadable { why } = &folder.state {
            return Err(vec![KeepWhy::Unreadable(why.clone())]);
        }
        let head = match &self.lineage.head {
            Some(head) if head.unreadable.is_none() => head,
            _ => return Err(vec![KeepWhy::NoRecord]),
        };
        let mut reasons = self.used(name);
        if name.attempt > head.id.attempt {
            reasons.push(KeepWhy::HigherAttempt);
        }
        let verdict = match &folder.state {
            FolderState::Committed(_) => self.committed(name, &mut reasons),
            FolderState::Removed => Some(RemoveWhy::RemovalBegun),
            FolderState::Partial if name.attempt < head.id.attempt => {
                Some(RemoveWhy::PartialFenced)
            }
            FolderState::Partial if self.overtaken(name) => Some(RemoveWhy::PartialOvertaken),
            FolderState::Partial | FolderState::Unreadable { .. } => {
                reasons.push(KeepWhy::MayBeWritten);
                None
            }
        };
        match verdict {
            Some(why) if reasons.is_empty() => Ok(why),
            _ => Err(reasons),
        }
    }

    fn committed(&self, name: &StepName, reasons: &mut Vec<KeepWhy>) -> Option<RemoveWhy> {
        let Some(place) = self.places.get(name).copied() else {
            return self.beside(name, reasons);
        };
        if let Some(every) = self.policy.every
            && every > 0
            && name.step.is_multiple_of(every)
        {
            reasons.push(KeepWhy::Every(every));
        }
        if self.lineage.resumed_from() == Some(name) {
            reasons.push(KeepWhy::ResumedFrom);
        }
        if self.uses.not_drained.contains(name) {
            reasons.push(KeepWhy::NotDrained);
        }
        match self.threshold {
            None => reasons.push(KeepWhy::NotReplaced),
            Some(threshold) if place >= threshold => reasons.push(KeepWhy::Last),
            Some(_) => return Some(RemoveWhy::Replaced { by: self.enough }),
        }
        None
    }

    /// A complete commit that is no part of the lineage goes once the present attempt has a history of its own.
    fn beside(&self, name: &StepName, reasons: &mut Vec<KeepWhy>) -> Option<RemoveWhy> {
        let side = self
            .lineage
            .side
            .iter()
            .find(|(seen, _)| seen.folder == *name);
        let head = self.lineage.head.as_ref().map(|head| head.id);
        let own = self.lineage.commits.iter().any(|seen| {
            Some(seen.commit.document.id()) == head && self.uses.durable.contains(&seen.folder)
        });
        match side.map(|(_, why)| why) {
            Some(
                NotCounted::NoRecord
                | NotCounted::WrongFolder
                | NotCounted::OtherRun { .. }
                | NotCounted::OtherChecksum { .. },
            )
            | None => reasons.push(KeepWhy::Foreign),
            Some(NotCounted::Ahead { .. }) => reasons.push(KeepWhy::HigherAttempt),
            Some(_) if self.threshold.is_none() || !own => reasons.push(KeepWhy::NotReplaced),
            Some(why) => return Some(RemoveWhy::NotCounted(why.clone())),
        }
        None
    }

    fn used(&self, name: &StepName) -> Vec<KeepWhy> {
        let uses = self.uses;
        [
            (&uses.pinned, KeepWhy::Pinned),
            (&uses.reading, KeepWhy::Reading),
            (&uses.writing, KeepWhy::Writing),
        ]
        .into_iter()
        .filter(|(names, _)| names.contains(name))
        .map(|(_, why)| why)
        .collect()
    }

    /// Whether the attempt of a partial folder has committed a later step.
    fn overtaken(&self, name: &StepName) -> bool {
        (self.lineage.commits.iter())
            .any(|seen| seen.folder.attempt == name.attempt && seen.folder.step > name.step)
    }
}

/// The files of `shared/` that may go once the removals of `retention` are done: none while a folder stays whose references are not
/// known, because a save under way may need any of them.
pub fn sweep_shared(
    present: &BTreeSet<String>,
    folders: &[FolderSeen],
    retention: &Retention,
) -> Vec<String> {
    let removed: BTreeSet<String> = (retention.remove.iter())
        .map(|(name, _)| name.to_string())
        .collect();
    let mut needed = BTreeSet::new();
    for folder in folders.iter().filter(|one| !removed.contains(&one.folder)) {
        match &folder.state {
            FolderState::Committed(commit) => {
                needed.extend(commit.document.shared.iter().map(|file| &file.blake3));
            }
            _ => return Vec::new(),
        }
    }
    present
        .iter()
        .filter(|hash| !needed.contains(hash))
        .cloned()
        .collect()
}
