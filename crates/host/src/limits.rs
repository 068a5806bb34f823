//! CPU and memory limits of containers, as cgroups where this user may make them.
//!
//! Both layouts are served: the unified one (version 2), and one tree for each controller
//! (version 1). A run makes one cgroup and in it one for each container that has a limit.
//!
//! Invariant: cgroups that a killed engine left behind are removed by the next run.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Container;

use crate::quantity;

/// The window in which a CPU limit is measured, in microseconds: the kernel's own default.
const PERIOD: i128 = 100_000;

/// What one container may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit {
    memory_bytes: Option<u64>,
    cpu_milli: Option<i128>,
}

impl Limit {
    /// The limits that `container` states.
    pub(crate) fn of(container: &Container) -> Self {
        let resources = container.resources.as_ref();
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        let stated = |name: &str| limits.and_then(|limits| limits.get(name));
        Self {
            memory_bytes: stated("memory").and_then(quantity::units),
            cpu_milli: stated("cpu")
                .and_then(quantity::milli)
                .filter(|milli| *milli > 0),
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// The cgroups of one run.
#[derive(Debug)]
pub(crate) struct Limits {
    trees: Vec<Tree>,
}

/// One cgroup of the run, in one tree.
#[derive(Debug)]
struct Tree {
    folder: PathBuf,
    kind: TreeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeKind {
    Unified,
    Memory,
    Cpu,
}

impl Limits {
    /// Makes the cgroups of this run; the error is the first thing that this user may not do.
    pub(crate) fn make(run_id: &str) -> io::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let name = format!("trainyard-{}-{run_id}", std::process::id());
        let mut limits = Self { trees: Vec::new() };
        for (kind, parent) in parents(&own, &mounts) {
            sweep(&parent);
            let folder = parent.join(&name);
            fs::create_dir(&folder)?;
            limits.trees.push(Tree { folder, kind });
            if kind == TreeKind::Unified {
                let tree = limits.trees.last().map(|tree| tree.folder.clone());
                let control = tree.unwrap_or_default().join("cgroup.subtree_control");
                fs::write(control, "+memory +cpu")?;
            }
        }
        if limits.trees.is_empty() {
            return Err(io::Error::other(
                "no cgroup controller is there for this user",
            ));
        }
        Ok(limits)
    }

    /// Makes the cgroups of one container; `name` is used once in a run.
    pub(crate) fn container(&self, name: &str, limit: Limit) -> io::Result<Vec<PathBuf>> {
        let quota = limit
            .cpu_milli
            .map(|milli| (milli * PERIOD / 1000).max(1000));
        let mut folders = Vec::new();
        for tree in &self.trees {
            let folder = tree.folder.join(name);
            let mut settings = Vec::new();
            if let Some(bytes) = limit.memory_bytes {
                match tree.kind {
                    TreeKind::Unified => settings.push(("memory.max", bytes.to_string())),
                    TreeKind::Memory => {
                        settings.push(("memory.limit_in_bytes", bytes.to_string()));
                    }
                    TreeKind::Cpu => {}
                }
            }
            if let Some(quota) = quota {
                match tree.kind {
                    TreeKind::Unified => settings.push(("cpu.max", format!("{quota} {PERIOD}"))),
                    TreeKind::Cpu => settings.push(("cpu.cfs_quota_us", quota.to_string())),
                    TreeKind::Memory => {}
                }
            }
            if settings.is_empty() {
                continue;
            }
            fs::create_dir(&folder)?;
            for (file, value) in settings {
                fs::write(folder.join(file), value)?;
            }
            folders.push(folder);
        }
        Ok(folders)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for tree in &self.trees {
            remove(&tree.folder);
        }
    }
}

/// Removes a cgroup and those in it; the kernel keeps those that hold processes.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            drop(fs::remove_dir(entry.path()));
        }
    }
    drop(fs::remove_dir(folder));
}

/// Removes what engines that are gone left in `parent`.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix("trainyard-")?.split('-').next());
        if let Some(owner) = owner
            && !Path::new("/proc").join(owner).exists()
        {
            remove(&entry.path());
        }
    }
}

/// Where a run may make its cgroups, from the texts of `/proc/self/cgroup` and `/proc/self/mounts`.
///
/// In the unified layout a cgroup that holds processes cannot hand controllers on, so the run's
/// cgroup is made beside the engine's own.
fn parents(own: &str, mounts: &str) -> Vec<(TreeKind, PathBuf)> {
    let mounted = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, found, options) = (words.next()?, words.next()?, words.next()?);
            let has = option.is_none_or(|option| options.split(',').any(|word| word == option));
            (found == kind && has).then(|| PathBuf::from(place))
        })
    };
    let path_of = |controller: &str| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let mut named = controllers.split(',');
            named
                .any(|named| named == controller)
                .then(|| path.trim_start_matches('/'))
        })
    };
    let mut found = Vec::new();
    for (kind, controller) in [(TreeKind::Memory, "memory"), (TreeKind::Cpu, "cpu")] {
        if let (Some(mount), Some(path)) =
            (mounted("cgroup", Some(controller)), path_of(controller))
        {
            found.push((kind, mount.join(path)));
        }
    }
    if found.is_empty()
        && let (Some(mount), Some(path)) = (mounted("cgroup2", None), path_of(""))
    {
        let own = mount.join(path);
        let beside = if path.is_empty() { None } else { own.parent() };
        found.push((TreeKind::Unified, beside.unwrap_or(&own).to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_cgroups_are_made() {
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let own = "0::/user.slice/user@1000.service/app.slice/shell.scope\n";
        assert_eq!(
            parents(own, unified),
            [(
                TreeKind::Unified,
                PathBuf::from("/sys/fs/cgroup/user.slice/user@1000.service/app.slice")
            )]
        );
        assert_eq!(
            parents("0::/\n", unified),
            [(TreeKind::Unified, PathBuf::from("/sys/fs/cgroup"))]
        );
        let split = "cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /c/memory cgroup rw,memory 0 0\n\
                     cgroup2 /c/unified cgroup2 rw 0 0\n";
        assert_eq!(
            parents("4:memory:/a/b\n3:cpu,cpuacct:/\n0::/\n", split),
            [
                (TreeKind::Memory, PathBuf::from("/c/memory/a/b")),
                (TreeKind::Cpu, PathBuf::from("/c/cpu,cpuacct"))
            ]
        );
        assert_eq!(parents("", ""), []);
    }
}
