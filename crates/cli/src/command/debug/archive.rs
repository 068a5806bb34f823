//! One `.tar.gz` in memory: the format that every system unpacks (POSIX.1-1988 `ustar`).
//!
//! Invariants: names are made of plain characters, are relative and below one folder, so unpacking writes nowhere else. The
//! sizes of one file and of all are bounded; what does not fit is counted, not written.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

const BLOCK: usize = 512;
/// The fields of a header: where each begins.
const NAME: usize = 0;
const NAME_BYTES: usize = 100;
const PREFIX: usize = 345;
const PREFIX_BYTES: usize = 155;
/// Longest part of a path: four of them fit into a header.
const PART_CHARS: usize = 63;
/// Most bytes of all files, before compression.
const MOST_BYTES: usize = 64 << 20;
/// Most bytes of one file.
pub(super) const MOST_FILE_BYTES: usize = 8 << 20;

/// An archive that grows.
pub(super) struct Archive {
    tar: GzEncoder<Vec<u8>>,
    folder: String,
    /// In the modification time of every file, in seconds since 1970.
    time: u64,
    pub(super) files: u64,
    bytes: usize,
}

impl Archive {
    /// An empty one whose files lie in `folder`.
    pub(super) fn new(folder: &str, time: u64) -> Self {
        Self {
            tar: GzEncoder::new(Vec::new(), Compression::default()),
            folder: plain(folder),
            time,
            files: 0,
            bytes: 0,
        }
    }

    /// How many bytes of files there is still room for.
    pub(super) fn room(&self) -> usize {
        (MOST_BYTES - self.bytes).min(MOST_FILE_BYTES)
    }

    /// Adds a file. The error is why it was not added.
    pub(super) fn add(&mut self, path: &[&str], content: &[u8]) -> Result<(), String> {
        if content.len() > self.room() {
            return Err(format!("{} bytes do not fit", content.len()));
        }
        self.push(path, content)
    }

    fn push(&mut self, path: &[&str], content: &[u8]) -> Result<(), String> {
        let parts: Vec<String> = path.iter().map(|part| plain(part)).collect();
        let path = format!("{}/{}", self.folder, parts.join("/"));
        let header = header(&path, content.len(), self.time).ok_or("its name is too long")?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        let written = self
            .tar
            .write_all(&header)
            .and_then(|()| self.tar.write_all(content))
            .and_then(|()| self.tar.write_all(&vec![0; rest]));
        written.map_err(|error| error.to_string())?;
        self.files += 1;
        self.bytes += content.len();
        Ok(())
    }

    /// The bytes of the file, with a text about all others, for which there is always room.
    pub(super) fn finish(mut self, readme: &str) -> Result<Vec<u8>, String> {
        self.push(&["README.txt"], readme.as_bytes())?;
        self.tar
            .write_all(&[0; 2 * BLOCK])
            .and_then(|()| self.tar.finish())
            .map_err(|error| error.to_string())
    }
}

/// A name that means the same everywhere: letters, digits, `.`, `-` and `_`, and no dot in front. Of a long one the beginning and
/// the end are kept: names of pods differ there.
fn plain(name: &str) -> String {
    let is_plain = |found: &char| found.is_ascii_alphanumeric() || matches!(found, '.' | '-' | '_');
    let mut name: Vec<char> = name.chars().collect();
    if name.len() > PART_CHARS {
        let end = name.len() - PART_CHARS / 2;
        name.splice(PART_CHARS / 2..end, ['_']);
    }
    if name.first().is_none_or(|first| *first == '.') {
        name.insert(0, '_');
    }
    let shown = name
        .iter()
        .map(|found| if is_plain(found) { *found } else { '_' });
    shown.collect()
}

/// The header of a file; nothing where its path does not fit.
fn header(path: &str, length: usize, time: u64) -> Option<[u8; BLOCK]> {
    let (prefix, name) = split(path)?;
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        let field = header.get_mut(at..at + text.len())?;
        field.copy_from_slice(text.as_bytes());
        Some(())
    };
    put(NAME, name)?;
    put(100, "0000644\0")?;
    // Of no user and no group.
    put(108, "0000000\0")?;
    put(116, "0000000\0")?;
    put(124, &format!("{length:011o}\0"))?;
    put(136, &format!("{time:011o}\0"))?;
    // The checksum counts its own field as spaces.
    put(148, "        ")?;
    put(156, "0")?;
    put(257, "ustar\x0000")?;
    put(PREFIX, prefix)?;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    header.get_mut(148..156)?.copy_from_slice(sum.as_bytes());
    Some(header)
}

/// A path in the two fields that hold it.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= NAME_BYTES {
        return Some(("", path));
    }
    let mut cuts = path.match_indices('/').map(|(at, _)| path.split_at(at));
    cuts.find_map(|(prefix, rest)| {
        let name = rest.strip_prefix('/')?;
        (prefix.len() <= PREFIX_BYTES && name.len() <= NAME_BYTES).then_some((prefix, name))
    })
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, process::Command};

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn names_are_plain() {
        let long = format!("{}{}", "x".repeat(100), "y".repeat(100));
        let cut = format!("{}_{}", "x".repeat(31), "y".repeat(31));
        let cases = [
            ("mnist-worker-0", "mnist-worker-0"),
            ("../../etc/passwd", "_.._.._etc_passwd"),
            ("", "_"),
            (".hidden", "_.hidden"),
            ("a\n\u{1b}[2Jé/b", "a___2J__b"),
            (long.as_str(), cut.as_str()),
        ];
        for (name, want) in cases {
            assert_eq!(plain(name), want, "{name}");
        }
    }

    #[test]
    fn other_programs_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Archive::new("mnist-1", 1_735_689_600);
        let pod = "p".repeat(PART_CHARS);
        archive.add(&["empty"], b"").unwrap();
        archive
            .add(&["logs", "attempt-1", &pod, "c.log"], &[b'x'; BLOCK])
            .unwrap();
        archive.add(&["..", "out"], b"inside").unwrap();
        assert_eq!(archive.files, 3);
        let path = folder.path().join("a.tar.gz");
        std::fs::write(&path, archive.finish("hello\n").unwrap()).unwrap();
        let unpacked = Command::new("tar")
            .arg("-xzf")
            .arg(&path)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(unpacked.status.success(), "{unpacked:?}");
        let read = |name: &str| std::fs::read(folder.path().join("mnist-1").join(name)).unwrap();
        assert_eq!(read("README.txt"), b"hello\n");
        assert_eq!(read("empty"), b"");
        assert_eq!(read(&format!("logs/attempt-1/{pod}/c.log")), [b'x'; BLOCK]);
        assert_eq!(read("_../out"), b"inside");
    }

    #[test]
    fn so_much_fits() {
        let mut archive = Archive::new("f", 0);
        let error = archive.add(&["a"], &vec![0; MOST_FILE_BYTES + 1]);
        assert_eq!(error.unwrap_err(), "8388609 bytes do not fit");
        let full = vec![0; MOST_FILE_BYTES];
        while archive.room() == MOST_FILE_BYTES {
            archive.add(&["a"], &full).unwrap();
        }
        assert_eq!(archive.bytes, MOST_BYTES);
        assert!(archive.add(&["a"], b"1").is_err());
        let parts = ["p".repeat(80), "q".repeat(80), "r".repeat(80)];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let mut deep = Archive::new("f", 0);
        assert!(deep.add(&parts, b"").is_ok(), "they are cut");
        let more = [&parts[..], &parts[..]].concat();
        assert_eq!(deep.add(&more, b"").unwrap_err(), "its name is too long");
        let mut bytes = Vec::new();
        let written = deep.finish("").unwrap();
        GzDecoder::new(written.as_slice())
            .read_to_end(&mut bytes)
            .unwrap();
        assert_eq!(bytes.len(), 4 * BLOCK);
    }
}
