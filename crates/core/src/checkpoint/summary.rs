//! What a store holds, in the lines that `trainyard checkpoints ls` prints and operators read.

use std::{collections::BTreeMap, fmt};

use super::{
    folder::{FolderSeen, FolderState, commits},
    lineage::{Lineage, NotCounted, RecordSeen, lineage, suspects},
    manifest::Commit,
    names::{AttemptId, StepName},
    select::PieceSeen,
    words,
};

/// The state of a step folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepState {
    /// Committed, and part of the history.
    Complete,
    /// Not committed.
    Partial,
    /// Committed, but no part of the history.
    Fenced,
    /// Committed, but not to be restored.
    Suspect,
    /// Its removal has begun.
    Removed,
}

impl StepState {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Fenced => "fenced",
            Self::Suspect => "suspect",
            Self::Removed => "removed",
        }
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One step folder.
#[derive(Clone, Debug, PartialEq)]
pub struct StepLine {
    /// Its name.
    pub name: StepName,
    /// The restart inside the attempt that saved it; known from a commit.
    pub restart: Option<u32>,
    /// How many ranks saved it; known from a commit.
    pub world: Option<u32>,
    /// Its state.
    pub state: StepState,
    /// Why, where it is not complete.
    pub why: Option<String>,
    /// The bytes that it takes.
    pub bytes: u64,
    /// How old it is in seconds; `None` where that is not known or would be negative.
    pub age: Option<u64>,
}

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The run.
    pub run: String,
    /// The highest attempt that has a record.
    pub attempt: Option<AttemptId>,
    /// The newest complete step, by its place in `steps`.
    pub newest: Option<usize>,
    /// The step folders: the history oldest first, then the others by name.
    pub steps: Vec<StepLine>,
    /// What else was found, one sentence each.
    pub notes: Vec<String>,
}

impl Summary {
    /// The newest complete step.
    pub fn newest(&self) -> Option<&StepLine> {
        self.newest.and_then(|place| self.steps.get(place))
    }
}

/// The summary of a store. `now` is in seconds since 1970; it changes ages and nothing else. `unreadable` are commits that could not
/// be read or verified, with the reason.
pub fn summary(
    run: &str,
    records: &[RecordSeen],
    folders: &[FolderSeen],
    unreadable: &BTreeMap<StepName, String>,
    now: Option<i64>,
) -> Summary {
    let commits = commits(folders);
    let lineage = lineage(run, records, &commits);
    let mut suspected = suspects(records, &commits);
    suspected.extend(unreadable.clone());
    let mut summary = Summary {
        run: run.to_owned(),
        attempt: lineage.head.as_ref().map(|head| head.id),
        ..Summary::default()
    };
    if let Some(head) = &lineage.head
        && let Some(why) = &head.unreadable
    {
        let note = format!("the record of attempt {} cannot be read: {why}", head.id);
        summary.notes.push(note);
    }
    let places: BTreeMap<&StepName, usize> = (lineage.commits.iter().enumerate())
        .map(|(place, seen)| (&seen.folder, place))
        .collect();
    let mut lines = Vec::new();
    for folder in folders {
        let foreign = folder.other_run.clone().or_else(|| other_run(run, folder));
        match (folder.name(), foreign) {
            (None, _) => summary.notes.push(format!(
                "`{}` is not a step folder",
                folder.folder.chars().take(80).collect::<String>()
            )),
            (Some(name), Some(run)) => summary
                .notes
                .push(format!("`{name}` is a folder of another run, `{run}`")),
            (Some(name), None) => lines.push(line(folder, name, &lineage, &suspected, now)),
        }
    }
    lines.sort_by_key(|line| {
        let place = places.get(&line.name).copied();
        (place.is_none(), place, line.name.clone())
    });
    summary.newest = lines
        .iter()
        .rposition(|line| line.state == StepState::Complete);
    summary.steps = lines;
    summary
}

fn other_run(run: &str, folder: &FolderSeen) -> Option<String> {
    match &folder.state {
        FolderState::Committed(commit) if commit.document.run != run => {
            Some(commit.document.run.clone())
        }
        _ => None,
    }
}

fn line(
    folder: &FolderSeen,
    name: StepName,
    lineage: &Lineage,
    suspected: &BTreeMap<StepName, String>,
    now: Option<i64>,
) -> StepLine {
    let commit = match &folder.state {
        FolderState::Committed(commit) => Some(&commit.document),
        _ => None,
    };
    let side = lineage.side.iter().find(|(seen, _)| seen.folder == name);
    let (state, why) = match (&folder.state, side) {
        (FolderState::Removed, _) => (StepState::Removed, Some("its removal has begun".into())),
        (FolderState::Partial, _) => (StepState::Partial, Some(partial(folder))),
        (FolderState::Unreadable { why }, _) => (
            StepState::Suspect,
            Some(format!("its commit cannot be read: {why}")),
        ),
        (FolderState::Committed(_), Some((_, NotCounted::WrongFolder))) => (
            StepState::Suspect,
            Some(NotCounted::WrongFolder.to_string()),
        ),
        (FolderState::Committed(_), Some((_, why))) => (StepState::Fenced, Some(why.to_string())),
        (FolderState::Committed(commit), None) => match suspected.get(&name) {
            Some(why) => (StepState::Suspect, Some(why.clone())),
            None => match damage(&commit.document, folder.pieces.as_deref()) {
                Some(why) => (StepState::Suspect, Some(why)),
                None => (StepState::Complete, None),
            },
        },
    };
    let saved_at = commit.and_then(|commit| commit.saved_at);
    StepLine {
        name,
        restart: commit.map(|commit| commit.restart),
        world: commit.map(|commit| commit.world),
        state,
        why,
        bytes: folder.bytes,
        age: age(now, saved_at),
    }
}

/// A clock that went back or differs gives no age rather than a wrong one.
fn age(now: Option<i64>, saved_at: Option<i64>) -> Option<u64> {
    u64::try_from(now?.checked_sub(saved_at?)?).ok()
}

fn partial(folder: &FolderSeen) -> String {
    match &folder.pieces {
        Some(pieces) => format!("not committed; {} pieces are there", pieces.len()),
        None => "not committed".into(),
    }
}

/// What is wrong with the pieces of a commit as far as sizes show.
fn damage(commit: &Commit, pieces: Option<&[PieceSeen]>) -> Option<String> {
    if commit.finite == Some(false) {
        return Some("it has numbers that are NaN or infinite".into());
    }
    let pieces: BTreeMap<u32, &PieceSeen> =
        pieces?.iter().map(|piece| (piece.rank, piece)).collect();
    let bad: Vec<u32> = commit
        .pieces
        .iter()
        .filter(|line| {
            let sizes = || line.files.iter().map(|file| file.bytes);
            !pieces.get(&line.rank).is_some_and(|piece| {
                piece.crc32c == line.crc32c && sizes().eq(piece.files.iter().copied())
            })
        })
        .map(|line| line.rank)
        .collect();
    (!bad.is_empty()).then(|| format!("missing or truncated: {}", words::pieces_of(&bad)))
}
