//! File systems: their type, from the list of mounts, and their size.

use std::path::Path;

use nix::sys::statvfs::statvfs;
use trainyard_core::probe::{Probed, Space};

use super::host::memory_line;
use crate::files::{Malformed, Root, number, refused};

pub(super) fn shm(root: &Root) -> Probed<Space> {
    if root.is_machine() {
        return of(root, "/dev/shm");
    }
    let mount = match mount(root, "/dev/shm").or_missing() {
        Ok(Some(mount)) if mount.point == "/dev/shm" => mount,
        Ok(_) => return Probed::Absent,
        Err(missing) => return missing,
    };
    let stated = mount
        .options
        .iter()
        .find_map(|option| option.strip_prefix("size="));
    let total = match stated {
        Some(size) => Probed::Read(size.to_owned()).and_then(|size| sized(&size)),
        // What the kernel gives a tmpfs that states none.
        None => memory_line(root, "MemTotal").map(|total| total / 2),
    };
    Probed::Read(Space {
        kind: mount.kind,
        total,
        free: Probed::NotAsked,
    })
}

pub(super) fn disk(root: &Root) -> Probed<Space> {
    if root.is_machine() {
        return of(root, "/tmp");
    }
    Probed::NotAsked
}

/// The file system that `path` of this machine lies on.
pub(super) fn of(root: &Root, path: &str) -> Probed<Space> {
    let kind = match mount(root, path) {
        Probed::Read(mount) => mount.map_or_else(String::new, |mount| mount.kind),
        _ => String::new(),
    };
    match statvfs(&root.join(path.trim_start_matches('/'))) {
        Ok(all) => {
            let block = all.fragment_size();
            Probed::Read(Space {
                kind,
                total: Probed::Read(all.blocks().saturating_mul(block)),
                free: Probed::Read(all.blocks_available().saturating_mul(block)),
            })
        }
        Err(error) => refused(&error.into()),
    }
}

#[derive(Debug)]
struct Mount {
    point: String,
    kind: String,
    options: Vec<String>,
}

/// The mount that `path` lies on: the last one among the longest.
fn mount(root: &Root, path: &str) -> Probed<Option<Mount>> {
    root.text("proc/self/mounts").map(|text| {
        let mounts = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (point, kind, options) = (words.next()?, words.next()?, words.next()?);
            Path::new(path).starts_with(point).then(|| Mount {
                point: point.to_owned(),
                kind: kind.to_owned(),
                options: options.split(',').map(str::to_owned).collect(),
            })
        });
        mounts.max_by_key(|mount| mount.point.len())
    })
}

/// Bytes of an option such as `65536k`.
fn sized(text: &str) -> Result<u64, Malformed> {
    let units = [('k', 10), ('m', 20), ('g', 30)];
    let unit = units
        .into_iter()
        .find_map(|(letter, bits)| Some((text.strip_suffix(letter)?, bits)));
    let (digits, bits) = unit.unwrap_or((text, 0));
    let size = number(digits)?.checked_mul(1 << bits);
    size.ok_or_else(|| Malformed::Not(text.to_owned(), "a size"))
}
