//! The JSON files of a store: what they hold, how they are written, and how files from anybody are read.
//!
//! Every file is version 1 and sealed ([`super::sealed`]). A member that this version does not know is kept in `other`. A file of a
//! newer version is refused before its members are looked at. Sizes and counts are bounded, and a value that cannot be true is one
//! sentence ([`ManifestError`]).

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    layout::Layout,
    limits::{
        CHUNK_BYTES, MAX_ACKNOWLEDGED, MAX_AXES, MAX_CHUNKS, MAX_FILE_BYTES, MAX_FILES,
        MAX_LAYOUTS, MAX_SHARED, MAX_TEXT, MAX_WORLD,
    },
    names::{AttemptId, LayoutId, Nonce, StepName},
    sealed::{Crc32c, SealError, open, seal},
};

/// The version that is written, and the newest one that is read.
pub const VERSION: u64 = 1;

/// Members of a file that this version does not know.
pub type Other = Map<String, Value>;

/// Why a file was refused. The caller names the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// More bytes than any valid file of its kind has.
    #[error("the file has {bytes} bytes, and at most {limit} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit of its kind.
        limit: usize,
    },
    /// Truncated, damaged or foreign.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A newer trainyard wrote it. It must not be overwritten or removed.
    #[error(
        "the file has format version {found}, and this trainyard reads version {VERSION}; use the newer trainyard that wrote it"
    )]
    Newer {
        /// Its version.
        found: u64,
    },
    /// Sealed, but not what its kind must hold.
    #[error("{0}")]
    Invalid(String),
}

/// A file that was read: what it says and the checksum that others know it by.
#[derive(Clone, Debug, PartialEq)]
pub struct Sealed<D> {
    /// What it says.
    pub document: D,
    /// The checksum at its end.
    pub crc32c: Crc32c,
    /// Its size.
    pub bytes: u64,
}

/// One kind of file.
pub trait Document: Serialize + DeserializeOwned {
    /// The most bytes that are read of one.
    const MAX_BYTES: usize;

    /// The first value that cannot be true, as a sentence.
    fn check(&self) -> Result<(), String>;
}

/// The bytes of a file, or why it must not be written.
pub fn encode<D: Document>(document: &D) -> Result<Vec<u8>, ManifestError> {
    document.check().map_err(ManifestError::Invalid)?;
    let object = serde_json::to_vec(document).map_err(|error| invalid(&error))?;
    let bytes = seal(object)?;
    within::<D>(&bytes)?;
    Ok(bytes)
}

/// A document with the checksum and size that its file will have.
pub fn sealed<D: Document>(document: D) -> Result<Sealed<D>, ManifestError> {
    let bytes = encode(&document)?;
    let (_, crc32c) = open(&bytes)?;
    Ok(Sealed {
        document,
        crc32c,
        bytes: bytes.len() as u64,
    })
}

/// What the bytes of a file say.
pub fn decode<D: Document>(bytes: &[u8]) -> Result<Sealed<D>, ManifestError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
        crc32c: Option<IgnoredAny>,
    }
    within::<D>(bytes)?;
    let (object, crc32c) = open(bytes)?;
    let head: Versioned = serde_json::from_slice(&object).map_err(|error| invalid(&error))?;
    if head.version > VERSION {
        return Err(ManifestError::Newer {
            found: head.version,
        });
    }
    if head.crc32c.is_some() {
        let twice = "the member `crc32c` is there twice";
        return Err(ManifestError::Invalid(twice.into()));
    }
    if head.version == 0 {
        return Err(ManifestError::Invalid("version 0 does not exist".into()));
    }
    let document: D = serde_json::from_slice(&object).map_err(|error| invalid(&error))?;
    document.check().map_err(ManifestError::Invalid)?;
    Ok(Sealed {
        document,
        crc32c,
        bytes: bytes.len() as u64,
    })
}

fn within<D: Document>(bytes: &[u8]) -> Result<(), ManifestError> {
    if bytes.len() > D::MAX_BYTES {
        return Err(ManifestError::TooLarge {
            bytes: bytes.len(),
            limit: D::MAX_BYTES,
        });
    }
    Ok(())
}

fn invalid(error: &serde_json::Error) -> ManifestError {
    let text: String = error.to_string().chars().take(MAX_TEXT).collect();
    ManifestError::Invalid(format!("the file is not what it should be: {text}"))
}

/// `trainyard.json`: says that the folder is a store, and of which run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// The format.
    pub version: u64,
    /// The id of the run: random, made once. A store of another run is refused, not mixed.
    pub run: String,
    /// Unknown members.
    #[serde(flatten)]
    pub other: Other,
}

/// A commit as others refer to it: by folder and by the checksum of its `COMMIT.json`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommitRef {
    /// The step folder.
    pub folder: StepName,
    /// The checksum at the end of its `COMMIT.json`.
    pub crc32c: Crc32c,
}

/// `attempts/0000000007.0000.json`: the fence of an attempt, published before its first read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    /// The format.
    pub version: u64,
    /// The run.
    pub run: String,
    /// The attempt.
    pub attempt: u32,
    /// The restart inside it.
    pub restart: u32,
    /// Who holds it: the uid of a pod or the id of a launch.
    pub holder: String,
    /// The commit that it resumes from, one of those it acknowledges; absent where it starts at step 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes_from: Option<CommitRef>,
    /// The commits that counted when it began, oldest first.
    #[serde(default)]
    pub acknowledged: Vec<CommitRef>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: Other,
}

impl Fence {
    /// The pair that it fences with.
    pub fn id(&self) -> AttemptId {
        AttemptId {
            attempt: self.attempt,
            restart: self.restart,
        }
    }
}

/// `attempts/0000000007.0000.restored.json`: every rank of the attempt has restored. An attempt that ended without it died while
/// restoring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Restored {
    /// The format.
    pub version: u64,
    /// The run.
    pub run: String,
    /// The attempt.
    pub attempt: u32,
    /// The restart inside it.
    pub restart: u32,
    /// The folder that was restored.
    pub folder: StepName,
    /// Unknown members.
    #[serde(flatten)]
    pub other: Other,
}

/// Which layout a piece has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LayoutRef {
    /// Its id, which is in its name.
    pub id: LayoutId,
    /// The size of its file.
    pub bytes: u64,
    /// The checksum at its end.
    pub crc32c: Crc32c,
}

/// A tensor file in `shared/` that a commit needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SharedRef {
    /// The hash of its contents, 64 hexadecimal digits, which is its name.
    pub blake3: String,
    /// The size of its file.
    pub bytes: u64,
    /// Where its tensors begin: 8 bytes and the header.
    pub data: u64,
}

/// A small state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsRef {
    /// The size of the file.
    pub bytes: u64,
    /// The checksum at its end.
    pub crc32c: Crc32c,
}

/// One safetensors file of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceFile {
    /// Its size.
    pub bytes: u64,
    /// Where its tensors begin: 8 bytes and the header.
    pub data: u64,
    /// The checksum of each chunk; the last chunk may be shorter.
    pub chunks: Vec<Crc32c>,
}

/// How long a save took, for people and for the next decision about cadence; no order follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// How long training stood still.
    #[serde(default)]
    pub snapshot: f64,
    /// From the end of the snapshot until the data was durable.
    #[serde(default)]
    pub write: f64,
}

/// `00003.piece.json`: what one rank has saved; published once the data is durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Piece {
    /// The format.
    pub version: u64,
    /// The run.
    pub run: String,
    /// The step.
    pub step: u64,
    /// The attempt.
    pub attempt: u32,
    /// The restart inside it.
    pub restart: u32,
    /// The nonce of the save.
    pub nonce: Nonce,
    /// The rank.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// The size of a chunk.
    pub chunk_bytes: u64,
    /// Its safetensors files, in order.
    pub files: Vec<PieceFile>,
    /// Where its tensors are in those files; absent where the rank has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutRef>,
    /// The coordinates of the rank in the mesh of its layout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<u32>,
    /// Its small state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectsRef>,
    /// Shared tensor files that it refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedRef>,
    /// Whether all numbers are finite; absent where nobody checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finite: Option<bool>,
    /// How long it took.
    #[serde(default)]
    pub seconds: Seconds,
    /// When it was saved, in seconds since 1970 by the clock of the rank; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_at: Option<i64>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: Other,
}

impl Piece {
    /// The folder that it belongs to.
    pub fn folder(&self) -> StepName {
        StepName {
            step: self.step,
            attempt: self.attempt,
            nonce: self.nonce.clone(),
        }
    }
}

/// A file of a rank in a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitFile {
    /// Its size.
    pub bytes: u64,
    /// Where its tensors begin.
    pub data: u64,
}

/// A piece in a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitPiece {
    /// The rank.
    pub rank: u32,
    /// The checksum at the end of its `piece.json`, which has those of the data.
    pub crc32c: Crc32c,
    /// Its files.
    pub files: Vec<CommitFile>,
    /// Its layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutId>,
    /// Its coordinates in the mesh of the layout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<u32>,
    /// Its small state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectsRef>,
}

/// `COMMIT.json`: the step exists. It follows from the pieces alone, so whichever rank writes it writes the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    /// The format.
    pub version: u64,
    /// The run.
    pub run: String,
    /// The step.
    pub step: u64,
    /// The attempt.
    pub attempt: u32,
    /// The restart inside it.
    pub restart: u32,
    /// The nonce of the save.
    pub nonce: Nonce,
    /// How many ranks there are, each with one piece.
    pub world: u32,
    /// The pieces, by rank.
    pub pieces: Vec<CommitPiece>,
    /// The layouts that they have, by id.
    #[serde(default)]
    pub layouts: Vec<LayoutRef>,
    /// The shared tensor files that they refer to, by hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedRef>,
    /// Whether all numbers are finite; absent where not every rank checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finite: Option<bool>,
    /// The longest snapshot and the longest write of a rank.
    #[serde(default)]
    pub seconds: Seconds,
    /// The latest time of a piece; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_at: Option<i64>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: Other,
}

impl Commit {
    /// The folder that it belongs to.
    pub fn folder(&self) -> StepName {
        StepName {
            step: self.step,
            attempt: self.attempt,
            nonce: self.nonce.clone(),
        }
    }

    /// The pair that saved it.
    pub fn id(&self) -> AttemptId {
        AttemptId {
            attempt: self.attempt,
            restart: self.restart,
        }
    }

    /// The bytes of all tensor files of its folder.
    pub fn bytes(&self) -> u64 {
        let files = self.pieces.iter().flat_map(|piece| &piece.files);
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}

/// `objects/00003.json`: the small state of one rank (random numbers, sampler, counters); bytes are base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objects {
    /// The format.
    pub version: u64,
    /// The rank.
    pub rank: u32,
    /// The values, by name.
    pub values: Map<String, Value>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: Other,
}

impl Document for Root {
    const MAX_BYTES: usize = 64 << 10;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)
    }
}

impl Document for Fence {
    const MAX_BYTES: usize = 4 << 20;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)?;
        check_text("holder", &self.holder)?;
        check_count(
            "acknowledged commits",
            self.acknowledged.len(),
            MAX_ACKNOWLEDGED,
        )?;
        match &self.resumes_from {
            Some(commit) if !self.acknowledged.contains(commit) => Err(format!(
                "it resumes from `{}`, which is not among the commits that it acknowledges",
                commit.folder
            )),
            _ => Ok(()),
        }
    }
}

impl Document for Restored {
    const MAX_BYTES: usize = 64 << 10;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)
    }
}

impl Document for Piece {
    const MAX_BYTES: usize = 8 << 20;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)?;
        check_world(self.world)?;
        if self.rank >= self.world {
            return Err(format!("rank {} of {} ranks", self.rank, self.world));
        }
        if self.chunk_bytes == 0 || self.chunk_bytes > CHUNK_BYTES {
            return Err(format!(
                "chunks of {} bytes; from 1 to {CHUNK_BYTES} are allowed",
                self.chunk_bytes
            ));
        }
        check_count("files", self.files.len(), MAX_FILES)?;
        check_count("coordinates", self.at.len(), MAX_AXES)?;
        check_count("shared files", self.shared.len(), MAX_SHARED)?;
        for (number, file) in self.files.iter().enumerate() {
            check_file(number, file.bytes, file.data)?;
            let wanted = file.bytes.div_ceil(self.chunk_bytes);
            if wanted > MAX_CHUNKS || wanted != file.chunks.len() as u64 {
                return Err(format!(
                    "file {number} has {} checksums for {wanted} chunks",
                    file.chunks.len()
                ));
            }
        }
        self.shared.iter().try_for_each(check_shared)?;
        check_seconds(&self.seconds)
    }
}

impl Document for Commit {
    const MAX_BYTES: usize = 64 << 20;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)?;
        check_world(self.world)?;
        check_count("layouts", self.layouts.len(), MAX_LAYOUTS)?;
        check_count("shared files", self.shared.len(), MAX_SHARED)?;
        check_seconds(&self.seconds)?;
        self.shared.iter().try_for_each(check_shared)?;
        let ranks = self.pieces.iter().map(|piece| piece.rank);
        if !ranks.eq(0..self.world) {
            return Err(format!(
                "its {} pieces are not those of ranks 0 to {}, in order",
                self.pieces.len(),
                self.world - 1
            ));
        }
        if !self.layouts.is_sorted_by(|one, two| one.id < two.id) {
            return Err("its layouts are not in order, or one is there twice".into());
        }
        for piece in &self.pieces {
            check_count("files", piece.files.len(), MAX_FILES)?;
            check_count("coordinates", piece.at.len(), MAX_AXES)?;
            for (number, file) in piece.files.iter().enumerate() {
                check_file(number, file.bytes, file.data)?;
            }
            let known = |id: LayoutId| self.layouts.binary_search_by_key(&id, |one| one.id).is_ok();
            if let Some(id) = piece.layout.filter(|id| !known(*id)) {
                return Err(format!(
                    "rank {} has layout `{id}`, which is not listed",
                    piece.rank
                ));
            }
        }
        Ok(())
    }
}

impl Document for Objects {
    const MAX_BYTES: usize = 256 << 20;

    fn check(&self) -> Result<(), String> {
        if self.rank >= MAX_WORLD {
            return Err(format!("rank {} is too large", self.rank));
        }
        Ok(())
    }
}

impl Document for Layout {
    const MAX_BYTES: usize = 64 << 20;

    fn check(&self) -> Result<(), String> {
        self.check_layout()
    }
}

/// A run id is a few letters, digits, `-`, `_` and `.`, so it can stand in a sentence and in a name.
fn check_run(run: &str) -> Result<(), String> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if run.is_empty() || run.len() > 64 || !run.bytes().all(letters) {
        return Err("the run id must be 1 to 64 letters, digits, `-`, `_` or `.`".into());
    }
    Ok(())
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_TEXT || text.chars().any(char::is_control) {
        return Err(format!(
            "the {what} must be 1 to {MAX_TEXT} bytes without control characters"
        ));
    }
    Ok(())
}

fn check_world(world: u32) -> Result<(), String> {
    if world == 0 || world > MAX_WORLD {
        return Err(format!("{world} ranks; from 1 to {MAX_WORLD} are allowed"));
    }
    Ok(())
}

fn check_count(what: &str, count: usize, limit: usize) -> Result<(), String> {
    if count > limit {
        return Err(format!("{count} {what}; at most {limit} are allowed"));
    }
    Ok(())
}

fn check_file(number: usize, bytes: u64, data: u64) -> Result<(), String> {
    if bytes > MAX_FILE_BYTES || data > bytes || data < 8 {
        return Err(format!(
            "file {number} of {bytes} bytes cannot have tensors from byte {data}"
        ));
    }
    Ok(())
}

fn check_shared(shared: &SharedRef) -> Result<(), String> {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if shared.blake3.len() != 64 || !shared.blake3.bytes().all(hex) {
        return Err("the name of a shared file must be 64 lower-case hexadecimal digits".into());
    }
    if shared.bytes > MAX_FILE_BYTES || shared.data > shared.bytes || shared.data < 8 {
        return Err(format!(
            "shared file `{}` of {} bytes cannot have tensors from byte {}",
            shared.blake3, shared.bytes, shared.data
        ));
    }
    Ok(())
}

fn check_seconds(seconds: &Seconds) -> Result<(), String> {
    let sane = |value: f64| value.is_finite() && value >= 0.0;
    if !sane(seconds.snapshot) || !sane(seconds.write) {
        return Err("a duration is negative or not a number".into());
    }
    Ok(())
}
