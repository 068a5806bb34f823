//! Removing steps: the commit first, then the data, so that a kill midway leaves garbage and never a broken checkpoint.

use std::{collections::BTreeSet, io};

use trainyard_core::checkpoint::{
    AttemptId, COMMIT_FILE, KeepWhy, Lineage, OBJECTS, Policy, REMOVED_FILE, RemoveWhy, STEPS,
    StepFile, StepName, Uses, lineage, retain, suspects,
};

use crate::{
    publish::is_unfinished,
    storage::{Kind, Storage, within},
    store::{Store, StoreError},
    verify::verify,
};

/// What a prune did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// What stays, with the reasons.
    pub kept: Vec<(String, Vec<KeepWhy>)>,
    /// What is removed, with the reason.
    pub removed: Vec<(StepName, RemoveWhy)>,
    /// Folders that could not be removed, one sentence each.
    pub failures: Vec<String>,
}

/// Removes what need not be kept. With `dry` nothing is removed.
///
/// An attempt that is fenced by now removes nothing: what it sees is not the history of the run any more.
pub fn prune(
    store: &Store,
    mine: Option<AttemptId>,
    policy: &Policy,
    dry: bool,
) -> Result<Pruned, StoreError> {
    let view = store.view()?;
    if let Some(mine) = mine {
        store.check_fence(mine)?;
    }
    let commits = view.commits();
    let history = lineage(store.run(), &view.records, &commits);
    let uses = Uses {
        durable: durable(store, &history, policy),
        suspects: suspects(&view.records, &commits),
        ..Uses::default()
    };
    let retention = retain(&history, &view.folders, policy, &uses);
    let mut pruned = Pruned {
        kept: retention.keep,
        ..Pruned::default()
    };
    for (folder, why) in retention.remove {
        let removed = if dry {
            Ok(())
        } else {
            remove_step(&*store.storage, &folder)
        };
        match removed {
            Ok(()) => pruned.removed.push((folder, why)),
            Err(error) => {
                let failure = format!("cannot remove `{folder}`: {error}");
                pruned.failures.push(failure);
            }
        }
    }
    Ok(pruned)
}

/// The newest commits that are whole and survive a power loss.
///
/// Whoever published one may have been killed before its name was durable. Syncing the folders makes it so: their data was
/// durable before they had a commit. A commit with a missing or truncated file replaces nothing.
fn durable(store: &Store, history: &Lineage, policy: &Policy) -> BTreeSet<StepName> {
    let mut durable = BTreeSet::new();
    if store.storage.sync_folder(STEPS).is_err() {
        return durable;
    }
    let enough = (policy.last as usize).max(2);
    for seen in history.commits.iter().rev() {
        let is_whole = verify(store, &seen.folder, &seen.commit.document, false)
            .problems
            .is_empty();
        if is_whole && store.storage.sync_folder(&seen.folder.path()).is_ok() {
            durable.insert(seen.folder.clone());
        }
        if durable.len() == enough {
            break;
        }
    }
    durable
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
