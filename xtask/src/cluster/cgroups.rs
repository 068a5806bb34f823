//! The control groups of the real nodes: the one thing of a cluster that outlives its processes.
//!
//! They lie below `trainyard/<name of the cluster>` in every hierarchy of the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{state::State, wait};
use crate::{Failure, cache::cannot};

/// Above every cluster's own.
const PARENT: &str = "trainyard";
/// The kernel releases a group some moments after its last process is gone.
const LIMIT: Duration = Duration::from_mins(1);

/// The path of a node's group in each hierarchy.
pub(super) fn path(state: &State, node: &str) -> String {
    format!("/{PARENT}/{}/{node}", state.name())
}

/// Makes the group of `node` in every hierarchy.
pub(super) fn make(state: &State, node: &str) -> Result<(), Failure> {
    for root in hierarchies() {
        let mut group = root;
        for part in [PARENT, state.name(), node] {
            let above = group.clone();
            group.push(part);
            if !group.is_dir() {
                fs::create_dir(&group).map_err(cannot("make", &group))?;
            }
            delegate_controllers(&above, &group)?;
        }
    }
    Ok(())
}

/// The control groups of the cluster that still exist.
pub(super) fn leftover_groups(state: &State) -> Vec<PathBuf> {
    hierarchies()
        .into_iter()
        .map(|root| root.join(PARENT).join(state.name()))
        .filter(|group| group.exists())
        .collect()
}

/// Thaws frozen processes, which could not end otherwise.
pub(super) fn thaw(state: &State) {
    for group in leftover_groups(state).iter().flat_map(|group| below(group)) {
        for (file, word) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            let file = group.join(file);
            if file.exists() {
                // A group that is gone meanwhile holds no process.
                drop(fs::write(file, word));
            }
        }
    }
}

/// Removes every group of the cluster, whose processes must have ended.
pub(super) fn remove(state: &State) -> Result<(), Failure> {
    wait::until("the control groups to be free", LIMIT, || {
        let left = leftover_groups(state);
        for group in left.iter().flat_map(|group| below(group)) {
            drop(fs::remove_dir(group));
        }
        Ok(left.is_empty())
    })?;
    for root in hierarchies() {
        // Another cluster may use it.
        drop(fs::remove_dir(root.join(PARENT)));
    }
    Ok(())
}

/// `group` and all below it, deepest first.
fn below(group: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&entry.path()));
        }
    }
    found.push(group.to_owned());
    found
}

/// What a new group lacks: processors and memory to run on, or controllers at all.
fn delegate_controllers(above: &Path, group: &Path) -> Result<(), Failure> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (above.join(file), group.join(file));
        // In the unified hierarchy an empty one means all.
        if above.join("cgroup.controllers").exists() || !from.exists() {
            continue;
        }
        let value = fs::read_to_string(&from).map_err(cannot("read", &from))?;
        fs::write(&to, value.trim()).map_err(cannot("write", &to))?;
    }
    if let Ok(controllers) = fs::read_to_string(above.join("cgroup.controllers")) {
        for controller in controllers.split_whitespace() {
            let file = above.join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}")).map_err(cannot("write", &file))?;
        }
    }
    Ok(())
}

/// Where the hierarchies are mounted.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().filter_map(hierarchy).collect()
}

fn hierarchy(line: &str) -> Option<PathBuf> {
    let mut words = line.split_whitespace().skip(1);
    let path = words.next()?;
    matches!(words.next()?, "cgroup" | "cgroup2").then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        for (line, want) in [
            (
                "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0",
                Some("/sys/fs/cgroup/memory"),
            ),
            (
                "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0",
                Some("/sys/fs/cgroup"),
            ),
            ("tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0", None),
            ("", None),
        ] {
            assert_eq!(hierarchy(line), want.map(PathBuf::from), "{line}");
        }
    }
}
