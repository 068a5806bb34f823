//! Documents as they are read: what is drawn of them, and no more.
//!
//! Unknown fields are ignored and missing ones are empty, so a document of another version is drawn as far as it is understood.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::ask::Ask;

/// Why something is not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried and what was found.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer(pub(crate) Content);

/// What is in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Jobs(Jobs),
    Job(Box<Job>),
    Strip(Strip),
    Ledger(Ledger),
    Verdicts(Verdicts),
    Logs(Folded),
    Events(Events),
    Failures(Failures),
    Nodes(Box<Nodes>),
    Queue(Queue),
}

impl Answer {
    /// Reads the document that answers `ask`.
    pub fn read(ask: &Ask, json: &[u8]) -> Result<Self, Trouble> {
        let content = match ask {
            Ask::Jobs { .. } => Content::Jobs(parsed(json)?),
            Ask::Job { .. } => Content::Job(Box::new(parsed(json)?)),
            Ask::Strip { .. } => Content::Strip(parsed(json)?),
            Ask::Ledger { .. } => Content::Ledger(parsed(json)?),
            Ask::Verdicts { .. } => Content::Verdicts(parsed(json)?),
            Ask::Logs { .. } => Content::Logs(parsed(json)?),
            Ask::Events { .. } => Content::Events(parsed(json)?),
            Ask::Failures => Content::Failures(parsed(json)?),
            Ask::Nodes => Content::Nodes(Box::new(parsed(json)?)),
            Ask::Queue => Content::Queue(parsed(json)?),
        };
        Ok(Self(content))
    }

    /// Whether it is about something that still runs, so that it changes with the time alone.
    pub fn is_live(&self) -> bool {
        match &self.0 {
            Content::Jobs(jobs) => jobs.rows.iter().any(|row| row.live),
            Content::Job(job) => job.row.live,
            // Nodes are no part of what is watched.
            Content::Nodes(_) => true,
            _ => false,
        }
    }
}

fn parsed<T: DeserializeOwned>(json: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(json).map_err(|error| Trouble {
        message: format!("the document cannot be read: {error}"),
        hint: "report this as a bug".to_owned(),
    })
}

/// A number that may be a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Count {
    /// It is this.
    Exact(u64),
    /// It is this or more.
    AtLeast {
        /// The bound.
        #[serde(rename = "atLeast")]
        at_least: u64,
    },
}

impl Default for Count {
    fn default() -> Self {
        Self::Exact(0)
    }
}

impl Count {
    pub(crate) fn words(self) -> String {
        match self {
            Self::Exact(count) => count.to_string(),
            Self::AtLeast { at_least } => format!("at least {at_least}"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Jobs {
    pub(crate) rows: Vec<Row>,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) total: Count,
    pub(crate) cursor: Option<String>,
    pub(crate) unreadable: Vec<Unreadable>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Unreadable {
    pub(crate) run: String,
    pub(crate) why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) namespace: String,
    pub(crate) kind: String,
    pub(crate) state: String,
    pub(crate) ranks: u32,
    pub(crate) accelerators: Option<u32>,
    pub(crate) attempt: u32,
    pub(crate) step: Option<u64>,
    pub(crate) steps: Option<u64>,
    pub(crate) day: Vec<(u8, u64)>,
    pub(crate) trained_ratio: Option<f64>,
    pub(crate) line: Option<String>,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) live: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Job {
    pub(crate) run: String,
    pub(crate) row: Row,
    pub(crate) runs: Vec<Value>,
    pub(crate) status: Status,
    pub(crate) warnings: Vec<Value>,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) progress: Option<Progress>,
}

/// Figures of a log: numbers, or numbers as text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Progress {
    pub(crate) loss: Value,
    pub(crate) step_seconds: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Strip {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) rows: Vec<Vec<u64>>,
    pub(crate) of: Vec<usize>,
    pub(crate) labels: Vec<Label>,
    pub(crate) job: Vec<u64>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) marks_left_out: u64,
    pub(crate) exact: bool,
    pub(crate) mixed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Label {
    pub(crate) from: Option<u32>,
    pub(crate) to: Option<u32>,
    pub(crate) pod: String,
    pub(crate) pods: u64,
    pub(crate) node: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Mark {
    pub(crate) t: i64,
    pub(crate) kind: String,
    pub(crate) row: Option<usize>,
    pub(crate) rank: Option<u32>,
    pub(crate) n: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Ledger {
    pub(crate) wall: u64,
    pub(crate) phases: Vec<PhaseTime>,
    pub(crate) not_observed: u64,
    pub(crate) ettr: Ettr,
    pub(crate) losses: Vec<Loss>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PhaseTime {
    pub(crate) phase: String,
    pub(crate) millis: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Ettr {
    pub(crate) all: Option<f64>,
    pub(crate) last_hour: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Loss {
    pub(crate) phase: String,
    pub(crate) attempt: Option<u32>,
    pub(crate) millis: u64,
    pub(crate) gpu_hours: f64,
    pub(crate) why: String,
    pub(crate) would_win: Option<WouldWin>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WouldWin {
    pub(crate) change: String,
    pub(crate) points: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Verdicts {
    pub(crate) verdicts: Vec<Verdict>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Verdict {
    pub(crate) at: Option<i64>,
    pub(crate) attempt: u32,
    pub(crate) label: String,
    pub(crate) sentence: String,
    pub(crate) account: String,
    pub(crate) retry: String,
    pub(crate) confidence: String,
    pub(crate) next: String,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) refuted_by: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Evidence {
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Folded {
    pub(crate) attempt: u32,
    pub(crate) first_failure: Option<FirstFailure>,
    pub(crate) first_failure_at: Option<FailureAt>,
    pub(crate) groups: Vec<Group>,
    pub(crate) left_out: u64,
    pub(crate) bytes_left_out: Option<u64>,
    pub(crate) unread: Vec<UnreadLog>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct UnreadLog {
    pub(crate) pod: String,
    pub(crate) why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FirstFailure {
    pub(crate) rank: Option<u32>,
    pub(crate) at: Option<i64>,
    pub(crate) text: String,
    pub(crate) before: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FailureAt {
    pub(crate) pod: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Group {
    pub(crate) example: String,
    pub(crate) count: u64,
    pub(crate) ranks: String,
    pub(crate) first_at: Option<i64>,
    pub(crate) severity: String,
    pub(crate) role: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Events {
    pub(crate) events: Vec<Happened>,
    pub(crate) cursor: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Happened {
    pub(crate) at: i64,
    pub(crate) kind: String,
    pub(crate) sentence: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Failures {
    pub(crate) rows: Vec<Cause>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Cause {
    pub(crate) label: String,
    pub(crate) place: Option<String>,
    pub(crate) times: u64,
    pub(crate) jobs: u64,
    pub(crate) nodes: Vec<CauseNode>,
    pub(crate) first_at: Timestamp,
    pub(crate) last_at: Timestamp,
    pub(crate) account: String,
    pub(crate) newest: Newest,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CauseNode {
    pub(crate) node: String,
    pub(crate) times: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Newest {
    pub(crate) run: String,
    pub(crate) job: String,
    pub(crate) namespace: String,
    pub(crate) attempt: u32,
    pub(crate) sentence: String,
}

/// The nodes of a cluster by their domains.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Nodes {
    pub(crate) cluster: Area,
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Area {
    pub(crate) level: String,
    pub(crate) name: Option<String>,
    pub(crate) nodes: u64,
    pub(crate) accelerators: Tally,
    pub(crate) areas: Vec<Area>,
    pub(crate) hosts: Vec<Host>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) state: Option<String>,
    pub(crate) probation_until: Option<Timestamp>,
    pub(crate) accelerators: Tally,
    pub(crate) holders: Vec<Held>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Held {
    pub(crate) gang: String,
    pub(crate) accelerators: i64,
}

/// Accelerators, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Tally {
    pub(crate) total: i64,
    pub(crate) free: i64,
    pub(crate) held: i64,
    pub(crate) foreign: i64,
    pub(crate) out: i64,
}

/// The jobs that wait, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Queue {
    pub(crate) rows: Vec<Queued>,
    pub(crate) rows_left_out: u64,
    pub(crate) unreadable: Vec<Unreadable>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Queued {
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) namespace: String,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) pods: u32,
    pub(crate) accelerators: Option<u32>,
    pub(crate) reason: Option<String>,
    pub(crate) queue: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_other_versions_are_read() {
        let ask = Ask::Jobs {
            sort: None,
            text: None,
            cursor: None,
        };
        let json = r#"{"version":9,"rows":[{"job":"k","day":[[3,5]],"new":{"a":1}}],"total":{"atLeast":7}}"#;
        let Ok(Answer(Content::Jobs(jobs))) = Answer::read(&ask, json.as_bytes()) else {
            panic!("it is read");
        };
        assert_eq!(jobs.rows[0].job, "k");
        assert_eq!(jobs.total.words(), "at least 7");
        for bad in ["", "[]x", r#"{"rows":3}"#, "\u{0}"] {
            let refused = Answer::read(&ask, bad.as_bytes());
            assert!(refused.is_err(), "{bad:?}");
        }
    }
}
