//! Files below one root.
//!
//! Invariant: no more than [`MOST`] bytes of a file and [`ENTRIES`] of a folder are taken, nothing but
//! regular files is read, and no symlink is followed out of the root. Whatever a file holds, the result is a value
//! or the reason why there is none.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Component, Path, PathBuf},
};

use nix::fcntl::OFlag;
use thiserror::Error;
use trainyard_core::probe::Probed;

/// The most bytes of one file that are read: the sockets of a busy node take a few hundred thousand.
const MOST: u64 = 1 << 20;
/// The most entries of one folder that are read.
const ENTRIES: usize = 4096;

/// A folder that stands for `/`.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    path: PathBuf,
}

impl Root {
    pub(crate) fn new(path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        Self { path }
    }

    /// Whether it is the machine itself, so that the kernel can be queried for what is not a file.
    pub(crate) fn is_machine(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Where `path` (without a leading `/`) lies.
    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// The folder that `path` resolves to, with symlinks followed, as parts below the root.
    pub(crate) fn resolve(&self, path: &str) -> Probed<Vec<String>> {
        let real = match fs::canonicalize(self.join(path)) {
            Ok(real) => real,
            Err(error) => return refused(&error),
        };
        let Ok(below) = real.strip_prefix(&self.path) else {
            return Probed::Unreadable("a symlink points outside the root".to_owned());
        };
        let parts = below.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        });
        Probed::Read(parts.collect())
    }

    /// The text of a file, without blanks at its ends.
    pub(crate) fn text(&self, path: &str) -> Probed<String> {
        let bytes = match self.open(path).and_then(|file| bounded(&file)) {
            Ok(bytes) => bytes,
            Err(error) => return refused(&error),
        };
        if bytes.len() as u64 > MOST {
            return Probed::Unreadable(format!("is longer than {MOST} bytes"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Probed::Read(text.trim().to_owned()),
            Err(_) => Probed::Unreadable("is not text".to_owned()),
        }
    }

    /// The number that a file holds.
    pub(crate) fn number(&self, path: &str) -> Probed<u64> {
        self.text(path).and_then(|text| number(&text))
    }

    /// The names in a folder, sorted.
    pub(crate) fn names(&self, path: &str) -> Probed<Vec<String>> {
        let entries = match fs::read_dir(self.join(path)) {
            Ok(entries) => entries,
            Err(error) => return refused(&error),
        };
        let mut names: Vec<String> = entries
            .take(ENTRIES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Probed::Read(names)
    }

    fn open(&self, path: &str) -> io::Result<File> {
        let path = self.join(path);
        // Opening a pipe without a writer would block.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&path)?;
        let real = fs::canonicalize(&path)?;
        if !real.starts_with(&self.path) {
            return Err(io::Error::other("a symlink points outside the root"));
        }
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        Ok(file)
    }
}

fn bounded(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why text of the kernel or the driver has no value.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// It is not what its place says.
    #[error("`{0}` is not {1}")]
    Not(String, &'static str),
    #[error("is not a number")]
    NotNumber,
    #[error("the reasons are not a number")]
    Reasons,
    #[error("has no `{0}`")]
    NoLine(String),
    #[error("`{0}` has no value")]
    NoValue(String),
    #[error("`{0}` has no word")]
    NoWord(String),
    #[error("has no model")]
    NoModel,
    #[error("has no version")]
    NoVersion,
    #[error("a period of 0")]
    NoPeriod,
    #[error("`{0}` is neither yes nor no")]
    YesOrNo(String),
    #[error("`{program}` wrote a line of {cells} cells")]
    Cells { program: &'static str, cells: usize },
    #[error("`{0}` lists no GPU")]
    NoGpu(&'static str),
    /// A file that belongs to it is unreadable, and why.
    #[error("{0}: {1}")]
    Part(String, String),
}

/// A whole number, as text.
pub(crate) fn number(text: &str) -> Result<u64, Malformed> {
    let shown: String = text.chars().take(32).collect();
    let read = text.trim().parse();
    read.map_err(|_| Malformed::Not(shown.escape_debug().to_string(), "a number"))
}

/// What stands behind `key` in lines such as `key: value`.
pub(crate) fn line<'a>(text: &'a str, key: &str, mark: char) -> Result<&'a str, Malformed> {
    let mut lines = text.lines().filter_map(|line| line.split_once(mark));
    let found = lines.find(|(name, _)| *name == key);
    found
        .map(|(_, value)| value.trim())
        .ok_or_else(|| Malformed::NoLine(key.to_owned()))
}

/// What an error of the file system means for a probe.
pub(crate) fn refused<T>(error: &io::Error) -> Probed<T> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Probed::Absent,
        io::ErrorKind::PermissionDenied => Probed::Unreadable("permission denied".to_owned()),
        _ => Probed::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn every_file_gives_value_or_reason() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("good"), "  42\n").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("binary"), [0xff, 0xfe, 0x00]).unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        fs::create_dir(at("folder")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/etc/hostname", at("out")).unwrap();
        symlink("good", at("link")).unwrap();
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        let root = Root::new(folder.path());
        let unreadable = ["empty", "binary", "huge", "folder", "loop", "out", "pipe"];
        for name in unreadable {
            let number = root.number(name);
            assert!(
                matches!(number, Probed::Unreadable(_)),
                "{name}: {number:?}"
            );
        }
        assert_eq!(root.number("good"), Probed::Read(42));
        assert_eq!(root.number("link"), Probed::Read(42));
        assert_eq!(root.number("none"), Probed::Absent);
        assert_eq!(root.number("good/below"), Probed::Absent);
    }

    #[test]
    fn links_are_followed_below_the_root_only() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sys/devices/a/b")).unwrap();
        symlink("../devices/a/b", folder.path().join("sys/devices/link")).unwrap();
        symlink("devices/a/b", folder.path().join("sys/link")).unwrap();
        symlink("/", folder.path().join("sys/out")).unwrap();
        let root = Root::new(folder.path());
        let parts = ["sys", "devices", "a", "b"].map(str::to_owned).to_vec();
        assert_eq!(root.resolve("sys/link"), Probed::Read(parts));
        assert!(matches!(root.resolve("sys/out"), Probed::Unreadable(_)));
        assert_eq!(root.resolve("sys/none"), Probed::Absent);
    }
}
