//! Processors, memory, limits, modules, versions and ports, from `/proc` and `/sys`.

use std::collections::BTreeSet;

use trainyard_core::probe::{Limits, Memory, Probed, Processors, Versions};

use super::group;
use crate::files::{Malformed, Root, line, number};

/// Modules that matter to a preflight.
const MODULES: [&str; 3] = ["ib_uverbs", "nvidia_peermem", "gdrdrv"];
/// What `nvidia_peermem` was called before it came with the driver.
const OLD_PEERMEM: &str = "nv_peer_mem";
/// Folders that NCCL is installed to.
const LIBRARIES: [&str; 5] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/local/lib",
    "usr/local/cuda/lib64",
];
/// Folders that versions of Python are installed to.
const PYTHONS: [&str; 3] = ["usr/local/lib", "opt/conda/lib", "usr/lib"];
/// The bit of `CapEff` for pinning memory.
const CAP_IPC_LOCK: u32 = 14;
/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";

pub(super) fn processors(root: &Root) -> Probed<Processors> {
    let online = root.text("sys/devices/system/cpu/online");
    let allowed = status(root, "Cpus_allowed_list");
    Probed::Read(Processors {
        online: online.and_then(|list| count(&list)),
        allowed: allowed.and_then(|list| count(&list)),
        quota_milli: group::smallest(root, "cpu.max", group::quota),
        periods: group::stat(root, "nr_periods"),
        throttled: group::stat(root, "nr_throttled"),
    })
}

/// How many numbers a list such as `0-3,8` has.
fn count(text: &str) -> Result<u64, Malformed> {
    let mut all: u64 = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        let size = last.checked_sub(first).and_then(|more| more.checked_add(1));
        let sum = size.and_then(|size| all.checked_add(size));
        all = sum.ok_or_else(|| Malformed::Not(part.to_owned(), "a range"))?;
    }
    Ok(all)
}

/// A line of `/proc/self/status`.
fn status(root: &Root, key: &str) -> Probed<String> {
    root.text("proc/self/status")
        .and_then(|text| line(&text, key, ':').map(str::to_owned))
}

pub(super) fn memory(root: &Root) -> Probed<Memory> {
    let line = |key: &'static str| memory_line(root, key);
    Probed::Read(Memory {
        total: line("MemTotal"),
        available: line("MemAvailable"),
        limit: group::smallest(root, "memory.max", group::bytes),
    })
}

/// The bytes of a line of `/proc/meminfo`.
pub(super) fn memory_line(root: &Root, key: &str) -> Probed<u64> {
    root.text("proc/meminfo").and_then(|text| {
        let kilobytes = number(line(&text, key, ':')?.trim_end_matches(" kB"))?;
        Ok::<_, Malformed>(kilobytes.saturating_mul(1024))
    })
}

pub(super) fn limits(root: &Root) -> Probed<Limits> {
    let may_lock = status(root, "CapEff").and_then(|mask| {
        let mask = u64::from_str_radix(&mask, 16);
        mask.map(|mask| (mask >> CAP_IPC_LOCK) & 1 == 1)
            .map_err(|_| Malformed::Not("CapEff".to_owned(), "a number"))
    });
    Probed::Read(Limits {
        locked_memory: limit(root, "Max locked memory"),
        open_files: limit(root, "Max open files"),
        may_lock,
    })
}

/// The soft limit in a line of `/proc/self/limits`.
fn limit(root: &Root, name: &str) -> Probed<Option<u64>> {
    root.text("proc/self/limits").and_then(|text| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let rest = lines
            .next()
            .ok_or_else(|| Malformed::NoLine(name.to_owned()))?;
        match rest.split_whitespace().next() {
            Some("unlimited") => Ok(None),
            Some(soft) => number(soft).map(Some),
            None => Err(Malformed::NoValue(name.to_owned())),
        }
    })
}

pub(super) fn modules(root: &Root) -> Probed<BTreeSet<String>> {
    root.names("sys/module").map(|names| {
        let has = |name: &str| names.iter().any(|known| known == name);
        // One that is built into the kernel may be known by its work only.
        let verbs = root.names("sys/class/infiniband_verbs");
        let is_there = |name: &&str| match *name {
            "ib_uverbs" => has(name) || verbs.value().is_some(),
            "nvidia_peermem" => has(name) || has(OLD_PEERMEM),
            _ => has(name),
        };
        let modules = MODULES.into_iter().filter(is_there);
        modules.map(str::to_owned).collect()
    })
}

pub(super) fn versions(root: &Root) -> Probed<Versions> {
    let driver = root.text("proc/driver/nvidia/version").and_then(|text| {
        let first = text.lines().next().unwrap_or_default();
        let mut words = first.split_whitespace();
        let version = words.find(|word| is_version(word));
        version.map(str::to_owned).ok_or(Malformed::NoVersion)
    });
    Probed::Read(Versions {
        kernel: root.text("proc/sys/kernel/osrelease"),
        driver,
        cuda: Probed::NotAsked,
        nccl: nccl(root),
    })
}

fn is_version(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.contains('.') && word.split('.').all(is_number)
}

/// The version of NCCL: in the name of the library, such as `libnccl.so.2.21.5`, or in that of the folder
/// that describes the Python package, such as `nvidia_nccl_cu12-2.21.5.dist-info`.
fn nccl(root: &Root) -> Probed<String> {
    let of_library = |name: &str| {
        let version = name.strip_prefix("libnccl.so.")?;
        is_version(version).then(|| version.to_owned())
    };
    let of_package = |name: &str| {
        let (_, version) = name.strip_prefix("nvidia_nccl_")?.split_once('-')?;
        Some(version.strip_suffix(".dist-info")?.to_owned())
    };
    let libraries = LIBRARIES.into_iter().map(str::to_owned);
    let mut libraries = libraries.filter_map(|folder| latest(root, &folder, of_library));
    let mut packages = packages(root).filter_map(|folder| latest(root, &folder, of_package));
    // What a program for Python loads is that of its own packages.
    let version = packages.next().or_else(|| libraries.next());
    version.map_or(Probed::Absent, Probed::Read)
}

/// The last of the versions in the names of a folder.
fn latest(root: &Root, folder: &str, of: impl Fn(&str) -> Option<String>) -> Option<String> {
    let names = root.names(folder);
    names.value()?.iter().filter_map(|name| of(name)).max()
}

/// The folders of Python packages.
fn packages(root: &Root) -> impl Iterator<Item = String> {
    let above = PYTHONS.into_iter().flat_map(|above| {
        let names = root.names(above).value().cloned().unwrap_or_default();
        let pythons = names.into_iter().filter(|name| name.starts_with("python3"));
        pythons.map(move |name| format!("{above}/{name}"))
    });
    above.flat_map(|python| {
        ["site-packages", "dist-packages"].map(|packages| format!("{python}/{packages}"))
    })
}

pub(super) fn hostname(root: &Root) -> Probed<String> {
    root.text("proc/sys/kernel/hostname")
}

pub(super) fn listening(root: &Root) -> Probed<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    let mut found = false;
    for file in ["proc/net/tcp", "proc/net/tcp6"] {
        let lines = match root.text(file).or_missing() {
            Ok(text) => text,
            // A kernel without one of both versions has no such file.
            Err(Probed::Absent) => continue,
            Err(missing) => return missing,
        };
        found = true;
        for line in lines.lines().skip(1) {
            let mut columns = line.split_whitespace();
            let (local, state) = (columns.nth(1), columns.nth(1));
            let port = local.and_then(|local| local.rsplit_once(':'));
            let port = port.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            let (Some(port), Some(state)) = (port, state) else {
                return Probed::Unreadable(format!("`{file}` has a line without a port"));
            };
            if state == LISTENS {
                ports.insert(port);
            }
        }
    }
    if found {
        Probed::Read(ports)
    } else {
        Probed::Absent
    }
}
