//! Archives as POSIX `ustar`: read by every `tar`, by dpkg, by Helm and by what runs containers.

use std::collections::BTreeSet;

use super::entry::{Files, PROGRAM};

/// The bytes of a record.
const RECORD: usize = 512;
/// What a name may have, and what may stand before it.
const NAME: usize = 100;
const PREFIX: usize = 155;

/// `files` below `prefix`, such as `./`, with their folders; all belong to root and have the time `time`.
pub(super) fn archive(files: &Files, prefix: &str, time: u64) -> Result<Vec<u8>, String> {
    let mut archive = Vec::new();
    let mut folders = BTreeSet::new();
    for (path, entry) in files.iter() {
        let path = format!("{prefix}{path}");
        for (end, _) in path.match_indices('/') {
            let folder = path.get(..=end).unwrap_or_default();
            if folders.insert(folder.to_owned()) {
                archive.extend(header(folder, PROGRAM, b'5', 0, time)?);
            }
        }
        archive.extend(header(&path, entry.mode, b'0', entry.data.len(), time)?);
        archive.extend(&entry.data);
        archive.resize(archive.len().next_multiple_of(RECORD), 0);
    }
    archive.resize(archive.len() + 2 * RECORD, 0);
    Ok(archive)
}

fn header(path: &str, mode: u32, kind: u8, size: usize, time: u64) -> Result<[u8; RECORD], String> {
    let (prefix, name) = split(path)?;
    let mut header = [0; RECORD];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, octal(size as u64, path)?.as_bytes());
    put(136, octal(time, path)?.as_bytes());
    // As if it were blank, its own sum is counted.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    // No device.
    put(329, b"0000000\0");
    put(337, b"0000000\0");
    put(345, prefix.as_bytes());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

fn octal(number: u64, path: &str) -> Result<String, String> {
    let text = format!("{number:011o}\0");
    if text.len() == 12 {
        Ok(text)
    } else {
        Err(format!("`{path}` is too big for a tar archive: {number}"))
    }
}

/// The path in two parts that the header has room for.
fn split(path: &str) -> Result<(&str, &str), String> {
    if path.len() <= NAME {
        return Ok(("", path));
    }
    path.match_indices('/')
        .filter_map(|(at, _)| Some((path.get(..at)?, path.get(at + 1..)?)))
        .find(|(prefix, name)| prefix.len() <= PREFIX && name.len() <= NAME && !name.is_empty())
        .ok_or_else(|| format!("`{path}` is too long a path for a tar archive"))
}
