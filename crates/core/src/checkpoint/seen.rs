//! What is seen of a store from outside, by whoever starts attempts: the newest complete step and what the newest attempt resumed from.
//!
//! It is small, bounded and says what is not known: status, events, the ledger and the environment of the next attempt follow from it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    folder::{FolderSeen, FolderState},
    lineage::{CommitSeen, Lineage, RecordSeen, head, suspects},
    manifest::{Commit, JobAttempt},
    names::{AttemptId, StepName},
    select::Selection,
};

/// Saves of the newest attempt that are kept, the newest ones: more are not made between two looks.
pub const SAVES_KEPT: usize = 32;
/// Longest reason, in bytes: it is kept in the status of a job.
pub const WHY_BYTES: usize = 600;
/// Longest uid of a job, in bytes.
const UID_BYTES: usize = 128;
/// Largest number that is believed. What is larger is another number once it was read as JSON by others, and no job has that many steps or bytes.
const LARGEST: u64 = 1 << 53;
/// Longest time of a save that is believed, in seconds; what is larger is not known.
const LONGEST_SECONDS: f64 = 1e7;

/// A step that is complete: committed, part of the history, and not suspect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompleteStep {
    /// The step.
    pub step: u64,
    /// The attempt that saved it, as the store counts attempts.
    pub attempt: u32,
    /// The bytes of its tensor files.
    pub bytes: u64,
    /// How long training stood still for it, in milliseconds: of the rank that stood still longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ms: Option<u64>,
    /// From the end of the snapshot until the data of the slowest rank was durable, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_ms: Option<u64>,
    /// When it was saved, by the clocks of the ranks. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_at: Option<Timestamp>,
}

impl CompleteStep {
    fn of(commit: &Commit) -> Self {
        Self {
            step: commit.step,
            attempt: commit.attempt,
            bytes: commit.bytes(),
            snapshot_ms: millis(commit.seconds.snapshot),
            write_ms: millis(commit.seconds.write),
            saved_at: commit
                .saved_at
                .and_then(|at| Timestamp::from_second(at).ok()),
        }
    }

    fn is_believed(&self) -> bool {
        let figures = [
            Some(self.step),
            Some(self.bytes),
            self.snapshot_ms,
            self.write_ms,
        ];
        figures
            .into_iter()
            .flatten()
            .all(|figure| figure <= LARGEST)
    }

    /// How fast its data was written, in bytes per second.
    pub fn bytes_per_second(&self) -> Option<u64> {
        let millis = self.write_ms.filter(|millis| *millis > 0)?;
        u64::try_from(u128::from(self.bytes) * 1000 / u128::from(millis)).ok()
    }
}

/// At most [`WHY_BYTES`] of a reason.
fn cut(mut why: String) -> String {
    why.truncate(why.floor_char_boundary(WHY_BYTES));
    why
}

/// Milliseconds of a time that a rank measured. Ranks write what they like.
fn millis(seconds: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    (0.0..=LONGEST_SECONDS)
        .contains(&seconds)
        .then(|| (seconds * 1000.0).round() as u64)
}

/// What an attempt resumed from, as its record in the store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResumedFrom {
    /// Its record cannot be read.
    Unknown,
    /// Nothing: it starts at step 0.
    Nothing,
    /// This step.
    Step(u64),
}

/// The newest attempt that has a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewestAttempt {
    /// The attempt, as the store counts attempts.
    pub attempt: u32,
    /// What it resumed from; of several restarts inside the attempt, what the last one did.
    pub from: ResumedFrom,
    /// The job that counts its own attempts, and which one of them this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobAttempt>,
}

/// What is seen of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreSeen {
    /// The step that an attempt which starts now would restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<CompleteStep>,
    /// A later step of the newest attempt that is not committed: it is being saved, or its save failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<u64>,
    /// Why a later step is not restored, or why none is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The newest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<NewestAttempt>,
    /// The last saves of the newest attempt, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub saves: Vec<CompleteStep>,
}

impl StoreSeen {
    /// What is seen of a store with this history, in which `selection` was selected.
    pub fn new(lineage: &Lineage, selection: &Selection, folders: &[FolderSeen]) -> Self {
        let (newest, passed) = match selection {
            Selection::Choice(choice) => (
                Some(CompleteStep::of(&choice.commit.commit.document)),
                &choice.passed,
            ),
            Selection::None { reasons } => (None, reasons),
        };
        let head = lineage.head.as_ref().map(|head| head.id.attempt);
        let after = newest.as_ref().map(|newest| newest.step);
        let uncommitted = folders
            .iter()
            .filter(|folder| matches!(folder.state, FolderState::Partial))
            .filter_map(FolderSeen::name)
            .filter(|name| Some(name.attempt) == head && Some(name.step) > after)
            .map(|name| name.step)
            .max();
        let why = match passed.as_slice() {
            [] if newest.is_some() => None,
            [] => lineage.side.last().map(|(seen, why)| {
                let step = seen.folder.step;
                format!("step {step} is no part of the history: {why}")
            }),
            [one] => Some(one.to_string()),
            [first, others @ ..] => Some(format!("{first}; {} more", others.len())),
        };
        let own = |seen: &&CommitSeen| Some(seen.commit.document.attempt) == head;
        let saves: Vec<CompleteStep> = (lineage.commits.iter().filter(own))
            .map(|seen| CompleteStep::of(&seen.commit.document))
            .collect();
        let skipped = saves.len().saturating_sub(SAVES_KEPT);
        Self {
            newest,
            uncommitted,
            why: why.map(cut),
            attempt: lineage.head.as_ref().map(|head| NewestAttempt {
                attempt: head.id.attempt,
                job: (head.record.as_ref())
                    .filter(|record| record.id() == head.id)
                    .and_then(|record| record.job.clone()),
                from: match &head.record {
                    Some(record) if record.id() == head.id => match &record.resumes_from {
                        Some(from) => ResumedFrom::Step(from.folder.step),
                        None => ResumedFrom::Nothing,
                    },
                    _ => ResumedFrom::Unknown,
                },
            }),
            saves: saves.into_iter().skip(skipped).collect(),
        }
        .believed()
    }

    /// The same without what cannot be true: whoever writes into the store, or reports about it, writes what he likes.
    #[must_use]
    pub fn believed(mut self) -> Self {
        if let Some(newest) = self.newest.take_if(|newest| !newest.is_believed()) {
            let step = newest.step;
            self.why = Some(format!("figures of step {step} are larger than 2^53"));
        }
        self.uncommitted = self.uncommitted.filter(|step| *step <= LARGEST);
        self.why = self.why.map(cut);
        if let Some(newest) = &mut self.attempt {
            newest.job.take_if(|job| job.uid.len() > UID_BYTES);
        }
        self.saves.retain(CompleteStep::is_believed);
        self.saves.truncate(SAVES_KEPT);
        if let Some(NewestAttempt { from, .. }) = &mut self.attempt
            && matches!(from, ResumedFrom::Step(step) if *step > LARGEST)
        {
            *from = ResumedFrom::Unknown;
        }
        self
    }

    /// Nothing was saved: the folder is empty, or is not there yet.
    pub fn empty() -> Self {
        Self::default()
    }
}

/// The suspects for an attempt that begins when all before it have ended: then the newest one, too, has died on the step that it was
/// restoring. [`suspects`] itself cannot know that.
pub fn suspects_at_start(
    records: &[RecordSeen],
    commits: &[CommitSeen],
) -> BTreeMap<StepName, String> {
    let Some(newest) = head(records) else {
        return suspects(records, commits);
    };
    let mut records = records.to_vec();
    records.push(RecordSeen::Unreadable {
        id: AttemptId::first(newest.id.attempt.saturating_add(1)),
        why: String::new(),
    });
    suspects(&records, commits)
}
