//! Removing steps: the commit first, then the data, so that a kill midway leaves garbage and never a broken checkpoint.

#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptId, COMMIT_FILE, Commit, CommitSeen, KeepWhy, LATEST, Lineage, OBJECTS,
    Policy, REMOVED_FILE, ROOT_FILE, RemoveWhy, STEPS, StepFile, StepName, Uses, lineage, retain,
    suspects,
};

use crate::{
    publish::{is_unfinished, unfinished, unfinished_base},
    storage::{Entry, Kind, Storage, within},
    store::{Store, StoreError},
    verify::{has_all_files, has_own_files},
};

/// What a prune did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// What stays, with the reasons.
    pub kept: Vec<(String, Vec<KeepWhy>)>,
    /// What is removed, with the reason.
    pub removed: Vec<(StepName, RemoveWhy)>,
    /// Incomplete uploads that were aborted; only object stores have such.
    pub uploads: u64,
    /// Folders that could not be removed, one sentence each.
    pub failures: Vec<String>,
}

/// What a prune also respects.
pub(crate) struct Bounds<'a> {
    /// Folders that stay.
    pub(crate) pinned: BTreeSet<StepName>,
    /// Asked before each folder and each upload; the next prune continues where one stopped.
    pub(crate) in_time: &'a dyn Fn() -> bool,
}

impl Default for Bounds<'_> {
    fn default() -> Self {
        Self {
            pinned: BTreeSet::new(),
            in_time: &|| true,
        }
    }
}

impl fmt::Debug for Bounds<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Bounds {{ pinned: {:?} }}", self.pinned)
    }
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
    prune_within(store, mine, policy, dry, &Bounds::default())
}

/// The same within bounds.
pub(crate) fn prune_within(
    store: &Store,
    mine: Option<AttemptId>,
    policy: &Policy,
    dry: bool,
    bounds: &Bounds<'_>,
) -> Result<Pruned, StoreError> {
    let view = store.view()?;
    if let Some(mine) = mine {
        store.check_fence(mine)?;
    }
    let commits = view.commits();
    let history = lineage(store.run(), &view.records, &commits);
    let suspects = suspects(&view.records, &commits);
    let uses = Uses {
        durable: durable(store, &history, policy, &suspects),
        suspects,
        pinned: bounds.pinned.clone(),
        not_drained: (store.behind.as_ref())
            .map(|behind| behind.not_drained(&history))
            .unwrap_or_default(),
        ..Uses::default()
    };
    let retention = retain(&history, &view.folders, policy, &uses);
    let mut pruned = Pruned {
        kept: retention.keep,
        ..Pruned::default()
    };
    let mut left = retention.remove.len();
    for (folder, why) in retention.remove {
        if !(bounds.in_time)() {
            let failure = format!("{left} folders are left to remove: the deadline passed");
            pruned.failures.push(failure);
            break;
        }
        left -= 1;
        let removed = if dry {
            Ok(Removal::Done)
        } else {
            remove_step(&*store.storage, &folder, has_commit(&why))
        };
        match removed {
            Ok(Removal::Done) => pruned.removed.push((folder, why)),
            Ok(Removal::Committed) => {
                let kept = (folder.to_string(), vec![KeepWhy::Committed]);
                pruned.kept.push(kept);
            }
            Err(error) => {
                let failure = format!("cannot remove `{folder}`: {error}");
                pruned.failures.push(failure);
            }
        }
    }
    if let Some(head) = history.head.as_ref().filter(|_| !dry) {
        sweep(&*store.storage, head.id);
        if (bounds.in_time)() {
            abort_uploads(store, head.id, &commits, bounds, &mut pruned);
        }
    }
    Ok(pruned)
}

/// Aborts incomplete uploads that nobody finishes, as long as there is time.
fn abort_uploads(
    store: &Store,
    head: AttemptId,
    commits: &[CommitSeen],
    bounds: &Bounds<'_>,
    pruned: &mut Pruned,
) {
    let late = Cell::new(0_u64);
    let is_left = |name: &str| {
        if !is_left(name, head, commits, &pruned.removed) {
            return false;
        }
        let in_time = (bounds.in_time)();
        late.set(late.get() + u64::from(!in_time));
        in_time
    };
    match store.storage.end_uploads(&is_left) {
        Ok(ended) => pruned.uploads = ended,
        Err(error) => {
            let failure = format!("cannot abort incomplete uploads: {error}");
            pruned.failures.push(failure);
        }
    }
    if late.get() > 0 {
        let failure = format!(
            "{} incomplete uploads are left to abort: the deadline passed",
            late.get()
        );
        pruned.failures.push(failure);
    }
}

/// Whether nobody finishes an upload any more, by the same rules as for a folder without commit.
fn is_left(
    name: &str,
    head: AttemptId,
    commits: &[CommitSeen],
    removed: &[(StepName, RemoveWhy)],
) -> bool {
    let mut parts = name.split('/');
    let (Some(STEPS), Some(folder), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(folder) = folder.parse::<StepName>() else {
        return false;
    };
    let is_overtaken = || {
        commits.iter().any(|seen| {
            seen.folder.attempt == folder.attempt
                && seen.folder.step > folder.step
                && seen.commit.document.id() == head
        })
    };
    folder.attempt < head.attempt
        || removed.iter().any(|(gone, _)| *gone == folder)
        || folder.attempt == head.attempt && is_overtaken()
}

/// Whether a folder that is removed for this reason was seen with a commit.
fn has_commit(why: &RemoveWhy) -> bool {
    match why {
        RemoveWhy::Replaced { .. } | RemoveWhy::NotCounted(_) => true,
        RemoveWhy::PartialFenced | RemoveWhy::PartialOvertaken | RemoveWhy::RemovalBegun => false,
    }
}

/// The newest commits that can be restored and survive a power loss.
///
/// Whoever published one may have been killed before its name was durable. Syncing the folders makes it so: their data was
/// durable before they had a commit. A commit with a missing or truncated file replaces nothing, and neither does one that is
/// suspect or not finite. Sizes decide; reading the pieces of a thousand ranks would take longer than the removal.
fn durable(
    store: &Store,
    history: &Lineage,
    policy: &Policy,
    suspects: &BTreeMap<StepName, String>,
) -> BTreeSet<StepName> {
    let mut durable = BTreeSet::new();
    if store.storage.sync_folder(STEPS).is_err() {
        return durable;
    }
    let enough = (policy.last as usize).max(2);
    let has_files = |folder: &StepName, commit: &Commit| match &store.behind {
        // The local tier of one of several nodes has the pieces of its own ranks.
        Some(behind) if behind.options.several_nodes => has_own_files(store, folder, commit),
        _ => has_all_files(store, folder, commit),
    };
    for seen in history.commits.iter().rev() {
        let commit = &seen.commit.document;
        let is_good = commit.finite != Some(false) && !suspects.contains_key(&seen.folder);
        if is_good
            && has_files(&seen.folder, commit)
            && store.storage.sync_folder(&seen.folder.path()).is_ok()
        {
            durable.insert(seen.folder.clone());
        }
        if durable.len() == enough {
            break;
        }
    }
    durable
}

/// What became of a folder that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is gone.
    Done,
    /// It has a commit that was not seen before, and stays.
    Committed,
}

/// Removes one step folder. Files that are not ours stay, and then so does the folder. So does a folder with a commit, unless the
/// caller has seen it: a network file system may not show a commit of another node for a while, and the rename does. Only then a kill
/// between the rename and the way back takes the commit away.
pub(crate) fn remove_step(
    storage: &dyn Storage,
    folder: &StepName,
    has_commit: bool,
) -> io::Result<Removal> {
    let path = folder.path();
    let is_folder = |name: &str| storage.stat(name).map(|stat| stat.kind == Kind::Folder);
    match is_folder(&path) {
        Ok(true) => {}
        // Another process removed it, or the link that it now is leads elsewhere.
        Ok(false) => return Err(io::Error::other("it is not a folder")),
        Err(error) => return gone(Err(error)).map(|()| Removal::Done),
    }
    let commit = within(&path, COMMIT_FILE);
    let removed = within(&path, REMOVED_FILE);
    if !has_commit {
        match storage.stat(&commit) {
            Ok(_) => return Ok(Removal::Committed),
            Err(error) => gone(Err(error))?,
        }
    }
    match storage.rename(&commit, &removed) {
        Ok(()) if !has_commit => {
            storage.rename(&removed, &commit)?;
            storage.sync_folder(&path)?;
            return Ok(Removal::Committed);
        }
        renamed => gone(renamed)?,
    }
    gone(storage.sync_folder(&path))?;
    let objects = within(&path, OBJECTS);
    if is_folder(&objects).unwrap_or(false) {
        for entry in list(storage, &objects)? {
            let name = format!("{OBJECTS}/{}", entry.name);
            if is_ours(&entry, &name) {
                gone(storage.remove(&within(&path, &name)))?;
            }
        }
    }
    let mut foreign = Vec::new();
    for entry in list(storage, &path)? {
        let name = within(&path, &entry.name);
        if entry.kind == Kind::Folder && entry.name == OBJECTS {
            gone(storage.remove_folder(&name))?;
        } else if entry.name == REMOVED_FILE {
            // The last one: it says what the rest is.
        } else if is_ours(&entry, &entry.name) {
            gone(storage.remove(&name))?;
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
    gone(storage.remove(&removed))?;
    gone(storage.remove_folder(&path))?;
    storage.sync_folder(STEPS)?;
    Ok(Removal::Done)
}

/// Whether an entry, by its name relative to the step folder, is a file that a save wrote.
fn is_ours(entry: &Entry, name: &str) -> bool {
    entry.kind == Kind::File && (name.parse::<StepFile>().is_ok() || is_unfinished(name))
}

/// What is not there any more was removed by somebody else.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn list(storage: &dyn Storage, name: &str) -> io::Result<Vec<Entry>> {
    match storage.list(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// A name for `latest` until it is renamed. The first half of the token is the attempt, so that a later one can remove what a kill
/// left behind.
pub(crate) fn unfinished_latest(id: AttemptId, random: u64) -> String {
    unfinished(LATEST, u64::from(id.attempt) << 32 | random >> 32)
}

/// Removes unfinished files outside of step folders that earlier attempts left: records, and `latest`. An unfinished `trainyard.json` is
/// of no use to anybody once that file is there. What cannot be removed stays for the next time; it is small.
fn sweep(storage: &dyn Storage, head: AttemptId) {
    let files = |folder: &str| {
        let entries = storage.list(folder).unwrap_or_default();
        entries
            .into_iter()
            .filter(|entry| entry.kind == Kind::File)
            .map(|entry| entry.name)
    };
    for name in files(ATTEMPTS) {
        let base = unfinished_base(&name).map(AttemptId::from_file);
        if matches!(base, Some(Ok((id, _))) if id < head) {
            drop(storage.remove(&within(ATTEMPTS, &name)));
        }
    }
    for name in files("") {
        let is_old = match unfinished_base(&name) {
            Some(ROOT_FILE) => true,
            Some(LATEST) => {
                let token = name.rsplit('-').next().unwrap_or_default();
                u64::from_str_radix(token, 16)
                    .is_ok_and(|token| token >> 32 < u64::from(head.attempt))
            }
            _ => false,
        };
        if is_old {
            drop(storage.remove(&name));
        }
    }
}
