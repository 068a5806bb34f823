//! Removing steps: the commit first, then the data, so that a kill midway leaves garbage and never a broken checkpoint.

use std::io;

use trainyard_core::checkpoint::{
    AttemptId, COMMIT_FILE, Lineage, OBJECTS, REMOVED_FILE, STEPS, StepFile, StepName, lineage,
};

use crate::{
    publish::is_unfinished,
    storage::{Kind, Storage, within},
    store::{FolderState, Store, StoreError, View},
};

/// What retention keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// How many of the newest commits.
    pub last: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { last: 3 }
    }
}

/// What becomes of one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The folder.
    pub folder: StepName,
    /// Whether it is removed.
    pub is_removed: bool,
    /// Why.
    pub why: String,
}

/// What a prune did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Every folder.
    pub fates: Vec<Fate>,
    /// Folders that could not be removed, one sentence each.
    pub failures: Vec<String>,
}

impl Pruned {
    /// The folders that are removed.
    pub fn removed(&self) -> Vec<StepName> {
        let removed = self.fates.iter().filter(|fate| fate.is_removed);
        removed.map(|fate| fate.folder.clone()).collect()
    }
}

/// Removes what need not be kept. With `dry` nothing is removed.
///
/// An attempt that is fenced by now removes nothing: what it sees is not the history of the run any more.
pub fn prune(
    store: &Store,
    mine: Option<AttemptId>,
    keep: &Keep,
    dry: bool,
) -> Result<Pruned, StoreError> {
    let view = store.view()?;
    if let Some(mine) = mine {
        store.check_fence(mine)?;
    }
    let history = lineage(store.run(), &view.records, &view.commits());
    let mut pruned = Pruned {
        fates: plan(&view, &history, keep),
        failures: Vec::new(),
    };
    if dry {
        return Ok(pruned);
    }
    for fate in &mut pruned.fates {
        if fate.is_removed
            && let Err(error) = remove_step(&*store.storage, &fate.folder)
        {
            fate.is_removed = false;
            let failure = format!("cannot remove `{}`: {error}", fate.folder);
            pruned.failures.push(failure);
        }
    }
    Ok(pruned)
}

/// Removes one step folder. Files that are not ours stay, and then so does the folder.
pub(crate) fn remove_step(storage: &dyn Storage, folder: &StepName) -> io::Result<()> {
    let path = folder.path();
    let commit = within(&path, COMMIT_FILE);
    let removed = within(&path, REMOVED_FILE);
    match storage.rename(&commit, &removed) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    storage.sync_folder(&path)?;
    let objects = within(&path, OBJECTS);
    for entry in list(storage, &objects)? {
        let is_ours = format!("{OBJECTS}/{}", entry.name)
            .parse::<StepFile>()
            .is_ok();
        if entry.kind == Kind::File && (is_ours || is_unfinished(&entry.name)) {
            remove_file(storage, &within(&objects, &entry.name))?;
        }
    }
    let mut foreign = Vec::new();
    for entry in list(storage, &path)? {
        let name = within(&path, &entry.name);
        if entry.kind == Kind::Folder && entry.name == OBJECTS {
            storage.remove_folder(&name)?;
        } else if entry.name == REMOVED_FILE {
            // The last one: it says what the rest is.
        } else if entry.kind == Kind::File
            && (entry.name.parse::<StepFile>().is_ok() || is_unfinished(&entry.name))
        {
            remove_file(storage, &name)?;
        } else {
            foreign.push(entry.name);
        }
    }
    if let Some(first) = foreign.first() {
        return Err(io::Error::other(format!(
            "it has {} files that are not ours (first: `{}`)",
            foreign.len(),
            first.escape_debug()
        )));
    }
    remove_file(storage, &removed)?;
    storage.remove_folder(&path)?;
    storage.sync_folder(STEPS)
}

fn list(storage: &dyn Storage, name: &str) -> io::Result<Vec<crate::storage::Entry>> {
    match storage.list(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

fn remove_file(storage: &dyn Storage, name: &str) -> io::Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn plan(view: &View, history: &Lineage, keep: &Keep) -> Vec<Fate> {
    let last = keep.last.max(2);
    let newest: Vec<&StepName> = history
        .commits
        .iter()
        .rev()
        .take(last)
        .map(|seen| &seen.folder)
        .collect();
    let head = history.head.as_ref().map(|head| head.id.attempt);
    let fate = |folder: &StepName, is_removed, why: &str| Fate {
        folder: folder.clone(),
        is_removed,
        why: why.to_owned(),
    };
    let decide = |folder: &StepName, state: &FolderState| match state {
        FolderState::Removed => fate(folder, true, "its removal had begun"),
        FolderState::Damaged(_) => fate(folder, false, "its commit cannot be read"),
        FolderState::Partial if Some(folder.attempt) < head => {
            fate(folder, true, "partial, of an earlier attempt")
        }
        FolderState::Partial
            if history.newest().is_some_and(|newest| {
                newest.folder.attempt == folder.attempt && newest.folder.step > folder.step
            }) =>
        {
            fate(folder, true, "partial, and a later step is committed")
        }
        FolderState::Partial => fate(folder, false, "partial, may be in progress"),
        FolderState::Committed(_) if newest.contains(&folder) => {
            fate(folder, false, "one of the newest")
        }
        FolderState::Committed(_) if history.resumed_from() == Some(folder) => {
            fate(folder, false, "the highest attempt resumed from it")
        }
        FolderState::Committed(_) if history.commits.iter().any(|seen| seen.folder == *folder) => {
            fate(folder, true, "older than those that are kept")
        }
        FolderState::Committed(_) => fate(folder, false, "not part of the history"),
    };
    view.folders
        .iter()
        .map(|folder| decide(&folder.name, &folder.state))
        .collect()
}
