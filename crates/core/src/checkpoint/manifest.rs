//! What the JSON files of a store hold. A member that this version does not know is kept in `other`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    names::{AttemptId, LayoutId, Nonce, StepName},
    sealed::Crc32c,
};

/// Members of a file that this version does not know.
pub type Other = Map<String, Value>;

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
    /// The job that counts its own attempts, and which one of them this is; absent where attempts are counted by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobAttempt>,
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

/// An attempt as the job counts it. A job that was deleted and created again counts from 1 in the folder of the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAttempt {
    /// The uid of the job.
    pub uid: String,
    /// Its attempt.
    pub attempt: u32,
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
