//! The control groups of this process, version 2.
//!
//! A limit of any group above counts as well as its own.

use trainyard_core::probe::Probed;

use crate::files::{Malformed, Root, line, number};

const MOUNT: &str = "sys/fs/cgroup";

/// The folders of the groups, from the process's own up to the highest.
pub(super) fn folders(root: &Root) -> Vec<String> {
    let list = root.text("proc/self/cgroup");
    let own = list.value().and_then(|text| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("0::/"))
    });
    let mut parts: Vec<&str> = own.unwrap_or("").split('/').collect();
    // What is outside of this process's view is written with dots, and cannot be read.
    parts.retain(|part| !part.is_empty() && *part != "..");
    let mut folders = Vec::new();
    loop {
        let below = parts.join("/");
        folders.push(format!("{MOUNT}/{below}").trim_end_matches('/').to_owned());
        if parts.pop().is_none() {
            return folders;
        }
    }
}

/// The smallest limit that `parse` finds in the file `name` of any group; it gives none for no limit.
pub(super) fn smallest(
    root: &Root,
    name: &str,
    parse: impl Fn(&str) -> Result<Option<u64>, Malformed>,
) -> Probed<u64> {
    let mut least = Probed::Absent;
    for folder in folders(root) {
        match root
            .text(&format!("{folder}/{name}"))
            .and_then(|text| parse(&text))
        {
            Probed::Read(Some(limit)) => {
                let so_far = least.value().copied().unwrap_or(u64::MAX);
                least = Probed::Read(limit.min(so_far));
            }
            Probed::Unreadable(why) => return Probed::Unreadable(format!("{name}: {why}")),
            _ => {}
        }
    }
    least
}

/// Thousandths of a processor that `cpu.max` allows: `400000 100000` is four.
pub(super) fn quota(text: &str) -> Result<Option<u64>, Malformed> {
    let (quota, period) = text.split_once(' ').unwrap_or((text, "100000"));
    if quota == "max" {
        return Ok(None);
    }
    let (quota, period) = (number(quota)?, number(period)?);
    let milli = quota.saturating_mul(1000).checked_div(period);
    milli.map(Some).ok_or(Malformed::NoPeriod)
}

/// The bytes that `memory.max` allows.
pub(super) fn bytes(text: &str) -> Result<Option<u64>, Malformed> {
    if text == "max" {
        return Ok(None);
    }
    number(text).map(Some)
}

/// A line of `cpu.stat`, of the nearest group that has a quota.
pub(super) fn stat(root: &Root, key: &str) -> Probed<u64> {
    let limited = folders(root).into_iter().find(|folder| {
        let own = root.text(&format!("{folder}/cpu.max"));
        own.value().is_some_and(|text| !text.starts_with("max"))
    });
    let Some(folder) = limited else {
        return Probed::Absent;
    };
    root.text(&format!("{folder}/cpu.stat"))
        .and_then(|text| number(line(&text, key, ' ')?))
}
