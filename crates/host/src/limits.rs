//! CPU and memory limits of containers, as cgroups where this user may make them.
//!
//! Both layouts are served: the unified one (version 2), and one tree for each controller
//! (version 1). A run makes one cgroup and in it one for each container that has a limit.
//!
//! Invariant: cgroups that a killed engine left behind are removed by the next run.

use std::{
    collections::BTreeMap,
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

    /// What is limited.
    pub(crate) fn resources(self) -> impl Iterator<Item = Resource> {
        let memory = self.memory_bytes.map(|_| Resource::Memory);
        let cpu = self.cpu_milli.map(|_| Resource::Cpu);
        memory.into_iter().chain(cpu)
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// What a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Memory.
    Memory,
    /// Processor time.
    Cpu,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "CPU",
        }
    }
}

/// The cgroups of one run.
#[derive(Debug)]
pub(crate) struct Limits {
    trees: Vec<Tree>,
    /// Limits that are not enforced, and why.
    missing: Vec<(Resource, String)>,
    /// Kills for memory that are known, by container.
    kills: BTreeMap<String, u64>,
}

/// One cgroup of the run, in one tree.
#[derive(Debug)]
struct Tree {
    folder: PathBuf,
    kind: TreeKind,
    /// What can be limited in it.
    resources: Vec<Resource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeKind {
    Unified,
    Memory,
    Cpu,
}

impl TreeKind {
    /// What the kernel calls the controllers of the tree.
    fn controllers(self) -> &'static [(Resource, &'static str)] {
        match self {
            Self::Unified => &[(Resource::Memory, "+memory"), (Resource::Cpu, "+cpu")],
            Self::Memory => &[(Resource::Memory, "")],
            Self::Cpu => &[(Resource::Cpu, "")],
        }
    }
}

impl Limits {
    /// Makes the cgroups of this run, as far as this user may, for limits on `wanted`.
    pub(crate) fn make(run_id: &str, wanted: &[Resource]) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (own, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mounts"));
        let name = format!("trainyard-{}-{run_id}", std::process::id());
        let mut limits = Self::under(&parents(&own, &mounts), &name);
        limits
            .missing
            .retain(|(resource, _)| wanted.contains(resource));
        limits
    }

    fn under(parents: &[(TreeKind, PathBuf)], name: &str) -> Self {
        let mut limits = Self {
            trees: Vec::new(),
            missing: Vec::new(),
            kills: BTreeMap::new(),
        };
        for (kind, parent) in parents {
            sweep(parent);
            let folder = parent.join(name);
            let made = fs::create_dir(&folder);
            let mut resources = Vec::new();
            for (resource, controller) in kind.controllers() {
                let done = match &made {
                    Err(error) => Err(error.to_string()),
                    Ok(()) if controller.is_empty() => Ok(()),
                    Ok(()) => fs::write(folder.join("cgroup.subtree_control"), controller)
                        .map_err(|error| error.to_string()),
                };
                match done {
                    Ok(()) => resources.push(*resource),
                    Err(error) => limits.missing.push((*resource, error)),
                }
            }
            limits.trees.push(Tree {
                folder,
                kind: *kind,
                resources,
            });
        }
        for resource in [Resource::Memory, Resource::Cpu] {
            let named = limits
                .missing
                .iter()
                .any(|(missing, _)| *missing == resource);
            let served = |tree: &Tree| tree.resources.contains(&resource);
            if !named && !limits.trees.iter().any(served) {
                let error = "no cgroup controller is delegated to this user".to_owned();
                limits.missing.push((resource, error));
            }
        }
        limits
    }

    /// One sentence for what is not enforced, where anything is not.
    pub(crate) fn note(&self) -> Option<String> {
        let (_, error) = self.missing.first()?;
        let mut names: Vec<&str> = self
            .missing
            .iter()
            .map(|(resource, _)| resource.name())
            .collect();
        names.sort_unstable();
        Some(format!(
            "limits on {} are not enforced: cannot create cgroups ({error})",
            names.join(" and ")
        ))
    }

    /// Makes the cgroups of one container; `name` is used once in a run.
    pub(crate) fn container(&self, name: &str, limit: Limit) -> io::Result<Vec<PathBuf>> {
        let quota = limit
            .cpu_milli
            .map(|milli| (milli * PERIOD / 1000).max(1000));
        let mut folders = Vec::new();
        for tree in &self.trees {
            let folder = tree.folder.join(name);
            let has = |resource| tree.resources.contains(&resource);
            let memory = limit.memory_bytes.filter(|_| has(Resource::Memory));
            let quota = quota.filter(|_| has(Resource::Cpu));
            let mut settings = Vec::new();
            // What a kernel may lack, and what a limit is less exact without.
            let mut wishes = Vec::new();
            if let Some(bytes) = memory.map(|bytes| bytes.to_string()) {
                if tree.kind == TreeKind::Unified {
                    settings.push(("memory.max", bytes));
                    wishes.push(("memory.swap.max", "0".to_owned()));
                    // As the kubelet does: a container that lost a process to it is of no use.
                    wishes.push(("memory.oom.group", "1".to_owned()));
                } else {
                    settings.push(("memory.limit_in_bytes", bytes.clone()));
                    wishes.push(("memory.memsw.limit_in_bytes", bytes));
                }
            }
            if let Some(quota) = quota {
                settings.push(match tree.kind {
                    TreeKind::Unified => ("cpu.max", format!("{quota} {PERIOD}")),
                    _ => ("cpu.cfs_quota_us", quota.to_string()),
                });
            }
            if settings.is_empty() {
                continue;
            }
            fs::create_dir(&folder)?;
            for (file, value) in settings {
                fs::write(folder.join(file), value)?;
            }
            for (file, value) in wishes {
                drop(fs::write(folder.join(file), value));
            }
            folders.push(folder);
        }
        Ok(folders)
    }

    /// Whether the kernel ended a process of the container for its memory since it was last asked;
    /// `None` where its memory is not limited.
    pub(crate) fn ended_for_memory(&mut self, name: &str) -> Option<bool> {
        let mut trees = self.trees.iter();
        let kills = trees.find_map(|tree| kills_in(&tree.folder.join(name)))?;
        let known = self.kills.insert(name.to_owned(), kills).unwrap_or(0);
        Some(kills > known)
    }
}

/// How many processes of the engine's own cgroup the kernel has ended for their memory; those of
/// containers without a limit are among them. `None` where that is not counted.
pub(crate) fn own_kills() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let folder = own_memory_folder(&own, &mounts)?;
    kills_in(&folder)
}

/// Kills that the kernel counted in the cgroup itself.
fn kills_in(folder: &Path) -> Option<u64> {
    let files = ["memory.events.local", "memory.events", "memory.oom_control"];
    let text = files
        .into_iter()
        .find_map(|file| fs::read_to_string(folder.join(file)).ok())?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
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
    let mut found = Vec::new();
    for (kind, controller) in [(TreeKind::Memory, "memory"), (TreeKind::Cpu, "cpu")] {
        found.extend(split_folder(own, mounts, controller).map(|folder| (kind, folder)));
    }
    if found.is_empty()
        && let Some((mount, path)) = unified(own, mounts)
    {
        let own = mount.join(path);
        let beside = if path.is_empty() { None } else { own.parent() };
        found.push((TreeKind::Unified, beside.unwrap_or(&own).to_owned()));
    }
    found
}

/// The cgroup in which the engine's memory is counted.
fn own_memory_folder(own: &str, mounts: &str) -> Option<PathBuf> {
    split_folder(own, mounts, "memory").or_else(|| {
        let (mount, path) = unified(own, mounts)?;
        Some(mount.join(path))
    })
}

/// The engine's own cgroup in the tree of `controller`.
fn split_folder(own: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let mount = mounted(mounts, "cgroup", Some(controller))?;
    Some(mount.join(path_of(own, controller)?))
}

/// Where the unified tree is mounted, and the engine's own cgroup in it.
fn unified<'a>(own: &'a str, mounts: &str) -> Option<(PathBuf, &'a str)> {
    Some((mounted(mounts, "cgroup2", None)?, path_of(own, "")?))
}

fn mounted(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, found, options) = (words.next()?, words.next()?, words.next()?);
        let has = option.is_none_or(|option| options.split(',').any(|word| word == option));
        (found == kind && has).then(|| PathBuf::from(place))
    })
}

fn path_of<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let mut named = controllers.split(',');
        let found = named.any(|named| named == controller);
        found.then(|| path.trim_start_matches('/'))
    })
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

    const BOTH: Limit = Limit {
        memory_bytes: Some(64 << 20),
        cpu_milli: Some(1500),
    };

    /// The files of a folder with their content, by name.
    fn files(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn the_files_of_both_layouts() {
        // A folder of any kind takes the files; only the kernel gives them a meaning.
        let root = tempfile::tempdir().unwrap();
        let parent = |name: &str| {
            let folder = root.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let pairs = |expected: &[(&str, &str)]| -> Vec<(String, String)> {
            let pairs = expected.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };

        let limits = Limits::under(&[(TreeKind::Unified, parent("unified"))], "run");
        assert_eq!(limits.note(), None);
        let folders = limits.container("c", BOTH).unwrap();
        assert_eq!(folders, [root.path().join("unified/run/c")]);
        let want = [
            ("cpu.max", "150000 100000"),
            ("memory.max", "67108864"),
            ("memory.oom.group", "1"),
            ("memory.swap.max", "0"),
        ];
        assert_eq!(files(&folders[0]), pairs(&want));

        let parents = [
            (TreeKind::Memory, parent("memory")),
            (TreeKind::Cpu, parent("cpu")),
        ];
        let limits = Limits::under(&parents, "run");
        assert_eq!(limits.note(), None);
        let folders = limits.container("c", BOTH).unwrap();
        assert_eq!(folders.len(), 2);
        let want = [
            ("memory.limit_in_bytes", "67108864"),
            ("memory.memsw.limit_in_bytes", "67108864"),
        ];
        assert_eq!(files(&folders[0]), pairs(&want));
        assert_eq!(files(&folders[1]), pairs(&[("cpu.cfs_quota_us", "150000")]));
        let memory = Limit {
            cpu_milli: None,
            ..BOTH
        };
        assert_eq!(limits.container("d", memory).unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_limited_is_said_and_the_rest_is() {
        let root = tempfile::tempdir().unwrap();
        let there = root.path().to_owned();
        let missing = root.path().join("missing");
        let only_memory = [(TreeKind::Memory, there), (TreeKind::Cpu, missing.clone())];
        let limits = Limits::under(&only_memory, "run");
        let note = limits.note().unwrap();
        assert!(
            note.starts_with("limits on CPU are not enforced: cannot create cgroups (No such file"),
            "{note}"
        );
        assert_eq!(limits.container("c", BOTH).unwrap().len(), 1);
        for parents in [vec![], vec![(TreeKind::Unified, missing)]] {
            let note = Limits::under(&parents, "run").note().unwrap();
            assert!(
                note.starts_with("limits on CPU and memory are not"),
                "{note}"
            );
        }
    }

    #[test]
    fn kills_for_memory_are_those_of_the_container() {
        let cases = [
            (
                "memory.events.local",
                "low 0\noom 2\noom_kill 1\noom_group_kill 0\n",
            ),
            ("memory.events", "oom 2\noom_kill 1\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            ),
        ];
        for (file, text) in cases {
            let root = tempfile::tempdir().unwrap();
            let parents = [(TreeKind::Memory, root.path().to_owned())];
            let mut limits = Limits::under(&parents, "run");
            let folder = limits.container("c", BOTH).unwrap().remove(0);
            assert_eq!(limits.ended_for_memory("c"), None, "nothing is counted");
            fs::write(folder.join(file), text).unwrap();
            assert_eq!(limits.ended_for_memory("c"), Some(true), "{file}");
            assert_eq!(
                limits.ended_for_memory("c"),
                Some(false),
                "it is reported once"
            );
            assert_eq!(limits.ended_for_memory("other"), None);
        }
    }
}
