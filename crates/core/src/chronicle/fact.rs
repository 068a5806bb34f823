//! One fact of a job, as it is stored: one line of JSON.
//!
//! Forward compatible: a fact of a kind that this version does not know is read as [`What::Other`], unknown fields are ignored, and a phase of another
//! version is [`Phase::Other`]. Fields are only ever added.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::stretch::{Booked, Content, Stretch};
use crate::{
    account::Account,
    diagnose::{self, VerdictSummary},
    job::Spent,
    ledger::Phase,
    progress::Figure,
    spec::Slot,
};

/// The form that this version writes.
pub const VERSION: u32 = 1;
/// Longest line that is read, in bytes: a verdict with all its evidence has less.
pub const LINE_MAX: usize = 64 * 1024;
/// Longest text in a fact, in characters.
pub const TEXT_CHARS: usize = 600;
/// Lines of evidence that are kept with a verdict.
pub const EVIDENCE_MAX: usize = 6;

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// The form that it was written in.
    #[serde(rename = "v")]
    pub version: u32,
    /// Its number among the facts of its job, ascending. A number that was seen is not counted again.
    pub seq: u64,
    /// When it happened, in Unix milliseconds.
    pub at: i64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "fact",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum What {
    /// The first moment of the ledger. All time that was recorded before is forgotten: the facts that follow account for it again.
    Began,
    /// Time that went to one phase of one attempt.
    Span {
        /// Since then.
        from: i64,
        /// Until then.
        to: i64,
        /// The attempt.
        attempt: u32,
        /// The phase.
        phase: Phase,
    },
    /// Time of several spans that were merged to save room. Their sums are exact.
    Merged {
        /// Since then.
        from: i64,
        /// Until then.
        to: i64,
        /// The sums.
        booked: Vec<Booked>,
    },
    /// Time of which only the sums are known: nobody observed the order.
    Unseen {
        /// Since then.
        from: i64,
        /// Until then.
        to: i64,
        /// The sums, as the ledger has them.
        booked: Vec<Booked>,
    },
    /// From now on time goes to this phase; it may turn out that a part of it went elsewhere.
    Phase {
        /// The attempt.
        attempt: u32,
        /// The phase.
        phase: Phase,
    },
    /// An attempt began.
    Attempt {
        /// Its number.
        attempt: u32,
    },
    /// A pod changed.
    Pod {
        /// Its attempt.
        attempt: u32,
        /// Its slot.
        slot: Slot,
        /// What it does now.
        state: PodState,
    },
    /// A pod has a node.
    Seated {
        /// Its attempt.
        attempt: u32,
        /// Its slot.
        slot: Slot,
        /// Its first rank, where it holds any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_rank: Option<u32>,
        /// How many ranks it holds.
        ranks: u32,
        /// The node.
        node: String,
    },
    /// A slot is on another node than before.
    Swapped(Swap),
    /// An attempt failed.
    Failed(Headline),
    /// What a diagnosis concluded about an attempt.
    Verdict(Box<KeptVerdict>),
    /// A checkpoint is complete.
    Saved(Save),
    /// The failure budget that is used by now.
    Spent(Spent),
    /// What the job waits for from now on.
    Waiting(Waiting),
    /// A number that the program reported.
    Point {
        /// Its name, such as `loss`.
        name: String,
        /// The number.
        value: Figure,
    },
    /// Failures of a slot that were merged to save room.
    Failures {
        /// The slot, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<Slot>,
        /// The attempt of the first.
        attempt: u32,
        /// When the last of them was.
        until: i64,
        /// How many.
        count: u64,
    },
    /// What was left out to save room.
    LeftOut(LeftOut),
    /// The job ended.
    Ended {
        /// How.
        outcome: Outcome,
    },
    /// A fact that only another version knows.
    #[serde(other)]
    Other,
}

/// What a pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodState {
    /// It waits for a gate or a node.
    Waiting,
    /// Its volumes and containers are created.
    Creating,
    /// Its image is pulled.
    Pulling,
    /// It runs.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// Its node does not respond.
    Lost,
    /// It does not exist.
    Gone,
    /// A state that only another version knows.
    #[serde(other)]
    Other,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Well.
    Succeeded,
    /// Badly.
    Failed,
    /// Neither is reported, or only another version knows it.
    #[serde(other)]
    Unknown,
}

/// A slot that changed its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// The first attempt on the new node.
    pub attempt: u32,
    /// The slot.
    pub slot: Slot,
    /// The node before.
    pub from: String,
    /// The node now.
    pub to: String,
}

/// The failure that ended an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headline {
    /// The attempt.
    pub attempt: u32,
    /// The pod that failed first.
    pub pod: String,
    /// Where, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// Who pays, where that is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Why.
    pub message: String,
    /// The furthest step, where the attempt reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

/// A verdict with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptVerdict {
    /// The verdict in brief.
    #[serde(flatten)]
    pub summary: VerdictSummary,
    /// The lines that say so, at most [`EVIDENCE_MAX`]. Empty where only the summary was stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceLine>,
    /// What would show that it is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuted_by: Option<String>,
}

/// One line that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceLine {
    /// File or source.
    pub file: String,
    /// Line, from 1; 0 for what is known without a log.
    pub line: u64,
    /// The text.
    pub text: String,
    /// Whose line it is, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// A complete checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Save {
    /// The step.
    pub step: u64,
    /// The attempt of the job that saved it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The bytes of its tensor files.
    pub bytes: u64,
    /// How long training stood still for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_millis: Option<u64>,
    /// How long it was written after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_millis: Option<u64>,
}

/// What a job waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// The stable code; nothing where it waits for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How many facts were dropped to save room, and how many this version does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// Changes of pods.
    pub turns: u64,
    /// Changes of pods of slots beyond the limit.
    pub slots: u64,
    /// Attempts.
    pub attempts: u64,
    /// Headlines of failed attempts.
    pub headlines: u64,
    /// Verdicts.
    pub verdicts: u64,
    /// Checkpoints.
    pub saves: u64,
    /// Swaps.
    pub swaps: u64,
    /// Facts of kinds that this version does not know.
    pub unknown: u64,
}

/// Why a line is not a fact.
#[derive(Debug, Error)]
pub enum NotAFact {
    /// It is too long.
    #[error("the line has {0} bytes; a fact has at most {LINE_MAX}")]
    TooLong(usize),
    /// It is not JSON of a fact. The last line of a file may be cut where a program was killed.
    #[error("the line is not a fact: {0}")]
    Json(#[from] serde_json::Error),
}

impl Fact {
    /// Reads one line.
    pub fn read(line: &[u8]) -> Result<Self, NotAFact> {
        if line.len() > LINE_MAX {
            return Err(NotAFact::TooLong(line.len()));
        }
        Ok(serde_json::from_slice(line)?)
    }

    /// The line, without its end.
    pub fn line(&self) -> String {
        // A fact is made of text, numbers, lists and maps with text as keys.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl From<Stretch> for What {
    fn from(stretch: Stretch) -> Self {
        let Stretch { from, to, content } = stretch;
        match content {
            Content::Phase { attempt, phase } => Self::Span {
                from,
                to,
                attempt,
                phase,
            },
            Content::Merged(booked) => Self::Merged { from, to, booked },
            Content::NotObserved(booked) => Self::Unseen { from, to, booked },
        }
    }
}

impl KeptVerdict {
    /// What is kept of `verdict` on `attempt`.
    pub fn of(verdict: &diagnose::Verdict, summary: VerdictSummary) -> Self {
        let evidence = verdict.evidence.iter().take(EVIDENCE_MAX);
        Self {
            summary,
            evidence: evidence
                .map(|line| EvidenceLine {
                    file: short(&line.file),
                    line: line.line,
                    text: short(&line.text),
                    rank: line.rank,
                })
                .collect(),
            refuted_by: Some(short(&verdict.refuted_by)),
        }
    }
}

impl From<VerdictSummary> for KeptVerdict {
    fn from(summary: VerdictSummary) -> Self {
        Self {
            summary,
            evidence: Vec::new(),
            refuted_by: None,
        }
    }
}

/// The beginning of a text.
pub(super) fn short(text: &str) -> String {
    text.chars().take(TEXT_CHARS).collect()
}
