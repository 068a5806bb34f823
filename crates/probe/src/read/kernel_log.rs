//! Errors of the NVIDIA driver in the kernel log.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
};

use nix::fcntl::OFlag;
use trainyard_core::probe::{Probed, XidSeen};

use crate::files::{Root, refused};

/// Bytes of the log that are read at most; kernels keep a few megabytes.
const MOST: usize = 16 << 20;
/// Bytes of one read. A device gives one record for each, and refuses a buffer that is too small.
const RECORD: usize = 8192;
/// Bytes of a line beyond which it is cut.
const LINE: usize = 4096;
/// Errors that are kept.
const KEPT: usize = 1000;
const MARK: &str = "NVRM: Xid (PCI:";

/// The errors that the log still has.
pub(super) fn xids(root: &Root) -> Probed<Vec<XidSeen>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(root.join("dev/kmsg"));
    let uptime = root.text("proc/uptime");
    let uptime = uptime
        .value()
        .and_then(|text| text.split(['.', ' ']).next()?.parse().ok());
    match file.and_then(|file| scan(file, uptime)) {
        Ok(found) => Probed::Read(found),
        Err(error) => refused(&error),
    }
}

fn scan(mut file: File, uptime: Option<u64>) -> io::Result<Vec<XidSeen>> {
    let mut found = Vec::new();
    let mut rest: Vec<u8> = Vec::new();
    let mut buffer = vec![0; RECORD];
    let mut taken = 0;
    while taken < MOST && found.len() < KEPT {
        let size = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(size) => size,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // Records were overwritten while they were read; the next read continues after them.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                taken += RECORD;
                continue;
            }
            Err(error) => return Err(error),
        };
        taken += size;
        rest.extend_from_slice(&buffer[..size]);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            found.extend(xid(&String::from_utf8_lossy(&line), uptime));
        }
        if rest.len() > LINE {
            rest.clear();
        }
    }
    Ok(found)
}

/// `6,339,5140900,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1234, …`.
fn xid(line: &str, uptime: Option<u64>) -> Option<XidSeen> {
    let (head, after) = line.split_once(MARK)?;
    let (bus, after) = after.split_once("): ")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    let micros = head
        .split(',')
        .nth(2)
        .and_then(|field| field.parse::<u64>().ok());
    let age = |micros: u64| uptime.map(|uptime| uptime.saturating_sub(micros / 1_000_000));
    Some(XidSeen {
        bus: bus.to_ascii_lowercase(),
        number: digits.parse().ok()?,
        age_seconds: micros.and_then(age),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_with_their_age() {
        let line = "4,339,5140900000,-;NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n";
        let want = XidSeen {
            bus: "0000:17:00".to_owned(),
            number: 79,
            age_seconds: Some(860),
        };
        assert_eq!(xid(line, Some(6000)), Some(want));
        let near_misses = [
            "6,1,2,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
            "6,1,2,-;NVRM: Xid (PCI:0000:17:00) 79",
            "6,1,2,-;NVRM: Xid (PCI:0000:17:00): none",
        ];
        for line in near_misses {
            assert_eq!(xid(line, Some(6000)), None, "{line}");
        }
    }
}
