//! The decisive verdict in brief: what the status of a job, its events and its reports keep of it.
//!
//! Invariant: however much the verdict names, what is kept of it is a few hundred bytes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    report::{Report, Verdict},
    rules::{Confidence, Retry, Stage},
    signature,
    verdict::words_of,
};
use crate::account::Account;

/// Characters of a sentence that are kept; the status is written to the API server.
const MAX_CHARS: usize = 400;
/// Ranks and nodes that are kept.
const MAX_NAMES: usize = 16;

/// What was concluded from what the ranks of an attempt wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictSummary {
    /// The attempt.
    pub attempt: u32,
    /// Stable name.
    pub label: String,
    /// One sentence.
    pub sentence: String,
    /// Ranks it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
    /// Nodes it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Which failure budget a failure of this kind counts against.
    pub account: Account,
    /// Whether a retry helps.
    pub retry: Retry,
    /// How sure it is.
    pub confidence: Confidence,
    /// Whether it explains the failure or follows from something else.
    pub depth: Depth,
    /// The exception and where in the program it was raised, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The name of the exception in `place`. Nothing where an earlier version stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// What two attempts that failed for the same reason have in common, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// What to do.
    pub next: String,
}

/// How far a verdict reaches down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Follows from something else, which no line shows.
    Symptom,
    /// Explains the failure by itself.
    Cause,
}

impl VerdictSummary {
    /// Whether `other` is about the same failure of another attempt: the same label, and the same place in the
    /// program or, where no exception names one, the same line without its numbers.
    pub fn is_same_failure(&self, other: &Self) -> bool {
        let same = match (&self.place, &other.place) {
            (Some(place), Some(other)) => place == other,
            (None, None) => self.signature.is_some() && self.signature == other.signature,
            _ => false,
        };
        self.label == other.label && same
    }

    /// What equal failures have in common, as a short hash; nothing where that is not known.
    pub fn digest(&self) -> Option<String> {
        let common = self.place.as_ref().or(self.signature.as_ref())?;
        let kind = if self.place.is_some() { "at" } else { "as" };
        Some(signature::digest(&[&self.label, kind, common]))
    }

    /// Label, sentence, ranks and nodes in one line.
    pub fn headline(&self) -> String {
        let ranks: BTreeSet<u32> = self.ranks.iter().copied().collect();
        let mut about: Vec<String> = Vec::new();
        if !ranks.is_empty() {
            about.push(words_of(&ranks));
        }
        if !self.nodes.is_empty() {
            about.push(format!("on {}", self.nodes.join(", ")));
        }
        let about = match about.join(" ") {
            about if about.is_empty() => about,
            about => format!(" [{about}]"),
        };
        format!("{}: {}{about}", self.label, self.sentence)
    }

    /// Its confidence, which failure budget it counts against, and whether a retry helps.
    pub fn weight(&self) -> String {
        format!(
            "{} confidence; account: {}; {}",
            self.confidence.word(),
            self.account.name(),
            self.retry.words()
        )
    }
}

impl Report {
    /// The decisive verdict on `attempt`; nothing where no line shows a failure.
    pub fn summary(&self, attempt: u32) -> Option<VerdictSummary> {
        let first = self.verdicts.first()?;
        (first.stage >= Stage::Symptom).then(|| first.summary(attempt))
    }
}

impl Verdict {
    fn summary(&self, attempt: u32) -> VerdictSummary {
        let short = |text: &str| text.chars().take(MAX_CHARS).collect();
        VerdictSummary {
            attempt,
            label: self.label.clone(),
            sentence: short(&self.sentence),
            ranks: self.ranks.iter().copied().take(MAX_NAMES).collect(),
            nodes: self.nodes.iter().take(MAX_NAMES).cloned().collect(),
            account: self.account,
            retry: self.retry,
            confidence: self.confidence,
            depth: if self.stage == Stage::Cause {
                Depth::Cause
            } else {
                Depth::Symptom
            },
            place: self.place.as_deref().map(short),
            exception: self.exception.as_deref().map(short),
            signature: self.signature.as_deref().map(short),
            next: short(&self.next),
        }
    }
}
