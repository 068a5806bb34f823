//! The report, in the shape of `trainyard doctor --format json`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::{
    known::Known,
    rules::{Confidence, Retry, Stage},
    steps::SlowRank,
};
use crate::account::Account;

/// One place in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// File or source.
    pub file: String,
    /// Line, from 1; 0 for what is known without a log, such as an exit code.
    pub line: u64,
    /// The line without its prefixes, cut where it is long.
    pub text: String,
    /// Whose line it is, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// On which node, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// One conclusion.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Stable name.
    pub label: String,
    /// One sentence, with the numbers of this job.
    pub sentence: String,
    /// Ranks it is about; of a wait, the ranks that were waited for, where that is known.
    pub ranks: Vec<u32>,
    /// Nodes it is about.
    pub nodes: Vec<String>,
    /// Which failure budget a failure of this kind counts against.
    #[serde(serialize_with = "account")]
    pub account: Account,
    /// Whether a retry helps.
    pub retry: Retry,
    /// How sure it is.
    pub confidence: Confidence,
    /// Lines that say so, the first failure first.
    pub evidence: Vec<Evidence>,
    /// What would show that it is wrong.
    pub refuted_by: String,
    /// What to do.
    pub next: String,
    /// What two attempts that failed for the same reason have in common; numbers are left out.
    #[serde(skip)]
    pub signature: Option<String>,
    /// What it rests on: lines that explain, or lines that follow from something else.
    #[serde(skip)]
    pub stage: Stage,
    /// The exception and where in the program it was raised, where that is known.
    #[serde(skip)]
    pub place: Option<String>,
    /// The name of the exception in `place`.
    #[serde(skip)]
    pub exception: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn account<S: Serializer>(account: &Account, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(account_word(*account))
}

/// The account in the words of the reports.
pub fn account_word(account: Account) -> &'static str {
    match account {
        Account::User => "user",
        Account::Platform => "platform",
        Account::Infrastructure => "infrastructure",
        Account::Preemption => "preemption",
    }
}

/// The collective that a rank was last known in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collective {
    /// Number within its group.
    pub sequence: i64,
    /// Operation.
    pub operation: String,
    /// Elements in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements_in: Option<u64>,
    /// Elements out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements_out: Option<u64>,
    /// Process group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// What is known of one rank.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RankFacts {
    /// Its number in the world, where that is known.
    pub rank: Option<u32>,
    /// Host or pod.
    pub node: Option<String>,
    /// Where it was read.
    pub file: String,
    /// Size of its world.
    pub world: Option<u32>,
    /// Device number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Bus of the GPU, as NCCL writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// What NCCL logged of itself.
    #[serde(flatten)]
    pub nccl: RankNccl,
    /// How far it is in its collectives.
    #[serde(flatten)]
    pub work: RankWork,
    /// How it ended.
    #[serde(flatten)]
    pub end: RankEnd,
    /// The times of its first and last line, in milliseconds; the clock is that of its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_millis: Option<i64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_millis: Option<i64>,
    /// Other facts by name: step, loss, versions, checkpoints.
    #[serde(flatten)]
    pub fields: BTreeMap<String, String>,
}

/// What NCCL logged of one rank.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RankNccl {
    /// Version of NCCL.
    #[serde(rename = "nccl", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Network that NCCL chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Interface that NCCL starts over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Lines about channels, by transport.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub transports: BTreeMap<String, u32>,
    /// Channels for collectives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Communicators that were completed.
    pub communicators: u32,
    /// Communicators that were begun only.
    #[serde(skip_serializing_if = "is_zero")]
    pub communicators_pending: u32,
}

/// The collectives of one rank.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RankWork {
    /// The collective it was last known in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<Collective>,
    /// Number of the last collective it entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_enqueued: Option<i64>,
    /// Number of the last collective that completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_completed: Option<i64>,
}

/// How one rank ended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RankEnd {
    /// The first exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The deepest frame of it in the user's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// Exit code or signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Something that happened at a time, for the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Milliseconds of the clock that its lines use.
    pub millis: i64,
    /// Rank, where that is known.
    pub rank: Option<u32>,
    /// What.
    pub label: String,
    /// Where it is written.
    pub file: String,
    /// See above.
    pub line: u64,
}

/// How a pod ended, as the runtime reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// The pod.
    pub pod: String,
    /// Its rank, where it holds only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// How, as the end of a sentence about the pod.
    pub how: String,
}

impl Ended {
    pub(super) fn of(known: &Known) -> Self {
        Self {
            pod: known.pod.clone(),
            rank: known.rank,
            node: known.node.clone(),
            at: known.at.map(|at| at.to_string()),
            how: known.end.words(),
        }
    }
}

/// What is known apart from the verdicts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// Labels of facts, and of problems that the job recovered from.
    pub labels: Vec<String>,
    /// Every rank, in order.
    pub ranks: Vec<RankFacts>,
    /// Ranks of the world that no line mentions; only where most are mentioned.
    pub missing_ranks: Vec<u32>,
    /// What ranks disagree about.
    pub disagreements: Vec<String>,
    /// The rank whose steps take clearly longer than those of the others, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest: Option<SlowRank>,
    /// First sightings with a time, in order.
    pub timeline: Vec<Moment>,
    /// How pods ended, in order of time, as the runtime reported it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Ended>,
    /// Lines that were read.
    pub lines: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this shape.
    pub version: u32,
    /// Conclusions, the decisive one first.
    pub verdicts: Vec<Verdict>,
    /// What they rest on.
    pub facts: Facts,
}

impl Report {
    /// Whether a problem was found.
    pub fn is_healthy(&self) -> bool {
        self.verdicts
            .first()
            .is_none_or(|verdict| verdict.label == "healthy")
    }
}
