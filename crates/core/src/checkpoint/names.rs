//! Names of folders and files below the root of a checkpoint store, parsed and formatted in one place.
//!
//! A name has exactly one spelling: a folder that parses but would be written otherwise is foreign. Numbers are padded for `ls` and
//! compared as numbers.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The file that says that a folder is a store, and of which run.
pub const ROOT_FILE: &str = "trainyard.json";
/// The folder of the records of attempts.
pub const ATTEMPTS: &str = "attempts";
/// The folder of the step folders.
pub const STEPS: &str = "steps";
/// The folder of tensors that several commits share.
pub const SHARED: &str = "shared";
/// In a step folder: the folder of small state.
pub const OBJECTS: &str = "objects";
/// In a step folder: published last; without it the step does not exist for readers.
pub const COMMIT_FILE: &str = "COMMIT.json";
/// In a step folder: what `COMMIT.json` is renamed to before the data is removed.
pub const REMOVED_FILE: &str = "REMOVED.json";
/// On the shared tier: the commit of a step that local tiers have, byte for byte.
pub const LOCAL_COMMIT_FILE: &str = "LOCAL.json";
/// On the shared tier: the commit of a step that is being copied to it, byte for byte.
pub const DRAIN_FILE: &str = "DRAIN.json";
/// The newest folder, for people and scripts. Readers open that folder as well, because a listing may not have it yet; what counts is the
/// commit in it.
pub const LATEST: &str = "latest";

/// The fewest and the most hexadecimal digits of a nonce.
const NONCE_DIGITS: std::ops::RangeInclusive<usize> = 6..=16;

/// A name that is not one of ours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {expected}")]
pub struct NameError {
    text: String,
    expected: &'static str,
}

impl NameError {
    /// Keeps at most 80 characters of a name that may come from anybody.
    fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.chars().take(80).collect(),
            expected,
        }
    }
}

/// What makes the folder of a save its own: lower-case hexadecimal digits that follow from run, attempt, restart and step. All ranks compute
/// the same one, and two restarts of an attempt do not share a folder. A second save of a step by the same restart continues the first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce(String);

impl Nonce {
    /// The last 24 bits of `random` as a nonce.
    pub fn from_random(random: u64) -> Self {
        Self(format!("{:06x}", random & 0x00ff_ffff))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Nonce {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let digits = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if digits && NONCE_DIGITS.contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::new(
                text,
                "a nonce of 6 to 16 lower-case hexadecimal digits",
            ))
        }
    }
}

impl TryFrom<String> for Nonce {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> Self {
        nonce.0
    }
}

/// The folder of one save: `000000012500-a7-5f3c9e`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepName {
    /// The step that was saved.
    pub step: u64,
    /// The attempt that saved it.
    pub attempt: u32,
    /// The nonce of the save.
    pub nonce: Nonce,
}

impl StepName {
    /// The folder relative to the root.
    pub fn path(&self) -> String {
        format!("{STEPS}/{self}")
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:012}-a{}-{}",
            self.step,
            self.attempt,
            self.nonce.as_str()
        )
    }
}

impl FromStr for StepName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let mut parts = text.split('-');
            let step = number(parts.next()?)?;
            let attempt = number(parts.next()?.strip_prefix('a')?)?;
            let nonce = parts.next()?.parse().ok()?;
            parts.next().is_none().then_some(Self {
                step,
                attempt,
                nonce,
            })
        };
        parse()
            .filter(|name| name.to_string() == text)
            .ok_or_else(|| NameError::new(text, "the name of a step folder"))
    }
}

impl TryFrom<String> for StepName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<StepName> for String {
    fn from(name: StepName) -> Self {
        name.to_string()
    }
}

/// An attempt and the restart inside it, compared as a pair. Its record is `attempts/0000000007.0002.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The attempt of the job.
    pub attempt: u32,
    /// The restart inside it, from 0.
    pub restart: u32,
}

impl AttemptId {
    /// The first start of `attempt`.
    pub fn first(attempt: u32) -> Self {
        Self {
            attempt,
            restart: 0,
        }
    }

    /// The name of its record in [`ATTEMPTS`].
    pub fn record_file(self) -> String {
        format!("{:010}.{:04}.json", self.attempt, self.restart)
    }

    /// The name of the file in [`ATTEMPTS`] that says that all its ranks have restored.
    pub fn restored_file(self) -> String {
        format!("{:010}.{:04}.restored.json", self.attempt, self.restart)
    }

    /// The name of the file in [`ATTEMPTS`] that says that nothing more is copied from its local tiers.
    pub fn drained_file(self) -> String {
        format!("{:010}.{:04}.drained", self.attempt, self.restart)
    }

    /// The attempt that a file of [`ATTEMPTS`] belongs to, by its name.
    pub fn from_file(file: &str) -> Result<(Self, AttemptFile), NameError> {
        let parse = || {
            let (stem, kind) = if let Some(stem) = file.strip_suffix(".restored.json") {
                (stem, AttemptFile::Restored)
            } else if let Some(stem) = file.strip_suffix(".drained") {
                (stem, AttemptFile::Drained)
            } else {
                (file.strip_suffix(".json")?, AttemptFile::Record)
            };
            let (attempt, restart) = stem.split_once('.')?;
            let id = Self {
                attempt: number(attempt)?,
                restart: number(restart)?,
            };
            let written = match kind {
                AttemptFile::Record => id.record_file(),
                AttemptFile::Restored => id.restored_file(),
                AttemptFile::Drained => id.drained_file(),
            };
            (written == file).then_some((id, kind))
        };
        parse().ok_or_else(|| NameError::new(file, "the name of a record of an attempt"))
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.attempt, self.restart)
    }
}

/// The kinds of files in [`ATTEMPTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFile {
    /// The fence.
    Record,
    /// Written once every rank has restored.
    Restored,
    /// Written by rank 0 when it copies nothing more from local tiers: other ranks need not wait for it. One line of text.
    Drained,
}

/// A file of a step folder, by its name relative to that folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepFile {
    /// `00003.safetensors`, or `00003.1.safetensors` for the second file of a rank.
    Data {
        /// The rank.
        rank: u32,
        /// Which of its files, from 0.
        file: u32,
    },
    /// `00003.piece.json`.
    Piece(u32),
    /// `objects/00003.json`.
    Objects(u32),
    /// `layout-9d21….json`.
    Layout(LayoutId),
    /// `COMMIT.json`.
    Commit,
    /// `REMOVED.json`.
    Removed,
    /// `00003.local.json`: the piece of a rank that the local tier of its node has.
    LocalPiece(u32),
    /// `LOCAL.json`: the commit of a step that local tiers have.
    LocalCommit,
    /// `DRAIN.json`: the commit of a step that is being copied to this tier.
    Drain,
}

impl fmt::Display for StepFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data { rank, file: 0 } => write!(out, "{rank:05}.safetensors"),
            Self::Data { rank, file } => write!(out, "{rank:05}.{file}.safetensors"),
            Self::Piece(rank) => write!(out, "{rank:05}.piece.json"),
            Self::Objects(rank) => write!(out, "{OBJECTS}/{rank:05}.json"),
            Self::Layout(id) => write!(out, "layout-{id}.json"),
            Self::Commit => out.write_str(COMMIT_FILE),
            Self::Removed => out.write_str(REMOVED_FILE),
            Self::LocalPiece(rank) => write!(out, "{rank:05}.local.json"),
            Self::LocalCommit => out.write_str(LOCAL_COMMIT_FILE),
            Self::Drain => out.write_str(DRAIN_FILE),
        }
    }
}

impl FromStr for StepFile {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            if text == COMMIT_FILE {
                return Some(Self::Commit);
            }
            if text == REMOVED_FILE {
                return Some(Self::Removed);
            }
            if text == LOCAL_COMMIT_FILE {
                return Some(Self::LocalCommit);
            }
            if text == DRAIN_FILE {
                return Some(Self::Drain);
            }
            if let Some(rest) = text.strip_suffix(".local.json") {
                return Some(Self::LocalPiece(number(rest)?));
            }
            if let Some(rest) = text.strip_prefix("layout-") {
                return Some(Self::Layout(rest.strip_suffix(".json")?.parse().ok()?));
            }
            if let Some(rest) = text.strip_prefix("objects/") {
                return Some(Self::Objects(number(rest.strip_suffix(".json")?)?));
            }
            if let Some(rest) = text.strip_suffix(".piece.json") {
                return Some(Self::Piece(number(rest)?));
            }
            let stem = text.strip_suffix(".safetensors")?;
            let (rank, file) = stem.split_once('.').unwrap_or((stem, "0"));
            Some(Self::Data {
                rank: number(rank)?,
                file: number(file)?,
            })
        };
        parse()
            .filter(|file| file.to_string() == text)
            .ok_or_else(|| NameError::new(text, "the name of a file of a step folder"))
    }
}

/// What a layout is called: 16 hexadecimal digits made from its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LayoutId(pub u64);

impl fmt::Display for LayoutId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl FromStr for LayoutId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        u64::from_str_radix(text, 16)
            .ok()
            .map(Self)
            .filter(|id| id.to_string() == text)
            .ok_or_else(|| NameError::new(text, "the id of a layout"))
    }
}

impl TryFrom<String> for LayoutId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<LayoutId> for String {
    fn from(id: LayoutId) -> Self {
        id.to_string()
    }
}

/// Decimal digits only: `parse` alone would take a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let digits = !text.is_empty() && text.len() <= 20;
    (digits && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}
