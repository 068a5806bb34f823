//! What may follow from a report, by whose pods made it.
//!
//! The pods of a job's preflight run in the job's image and namespace, so the author of the job can make them report
//! anything. Such a report decides where this job starts. It marks no node: what others believe of a node comes from a
//! trial that the operator ran in its own image and its own namespace.
//!
//! Invariant: only [`consequences`] makes [`Marks`], and of a job's report they are empty.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Check, Fault, Incomplete, Judgement, Layer, NodeRecord, NodeReport, Outcome, Report,
    catalogue::{GPU_MODEL, NVIDIA_DRIVER},
    judge,
};
use crate::spec::is_subdomain;

/// Bytes of a report that an operator reads at most, of gangs up to 1,024 nodes.
pub const REPORT_MOST: usize = 256 << 10;
/// Nodes from which on a report may be larger: one line about each needs so much.
const LARGE: usize = 1_024;
/// Longest text of a check.
const TEXT: usize = 240;
/// Longest name of a check.
const NAME: usize = 63;
/// Checks of one node that are read; the catalogue has far fewer.
const CHECKS: usize = 256;

/// Whose pods made a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A job's, in its image and namespace. Records that do not say are of this kind: old versions wrote them.
    #[default]
    Job,
    /// The operator's, in its own image and namespace.
    Operator,
}

/// Why a report is not used at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    /// It is larger than an honest one can be.
    #[error("the log with the report is larger than {} kB, the maximum", .most >> 10)]
    TooLarge {
        /// Bytes that are read at most.
        most: usize,
    },
    /// It has a node that was not assigned to it.
    #[error("the report names node `{node}`, which is not one of its {assigned} assigned nodes")]
    WrongNode {
        /// The name, cleaned and cut.
        node: String,
        /// How many nodes it was asked about.
        assigned: usize,
    },
    /// It comes from a pod that is not the one that was created.
    #[error("pod `{pod}` is not the one that was created for the preflight")]
    WrongPod {
        /// The name that both have.
        pod: String,
    },
    /// It is not a report.
    #[error("the report cannot be read: {0}")]
    Unreadable(String),
}

impl Rejected {
    /// The value of the metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::WrongNode { .. } => "wrong_node",
            Self::WrongPod { .. } => "wrong_pod",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

/// Bytes of the report about `nodes` nodes that an operator reads at most.
pub fn report_most(nodes: usize) -> usize {
    REPORT_MOST.max(nodes.saturating_mul(REPORT_MOST / LARGE))
}

/// The report as it may be used: about `nodes` and nothing else, every text cleaned and cut.
pub fn accept(mut report: Report, nodes: &BTreeSet<String>) -> Result<Report, Rejected> {
    if let Some(foreign) = report.nodes.keys().find(|node| !nodes.contains(*node)) {
        return Err(Rejected::WrongNode {
            node: clean(foreign, NAME),
            assigned: nodes.len(),
        });
    }
    report.leave.retain(|node| nodes.contains(node));
    for node in report.nodes.values_mut() {
        node.checks.truncate(CHECKS);
        node.checks.iter_mut().for_each(tidy);
    }
    report.shared.truncate(CHECKS);
    report.shared.iter_mut().for_each(tidy);
    Ok(report)
}

fn tidy(check: &mut Check) {
    check.name = clean(&check.name, NAME);
    for text in [
        &mut check.subject,
        &mut check.found,
        &mut check.needed,
        &mut check.cause,
        &mut check.next,
    ] {
        *text = clean(text, TEXT);
    }
}

/// `text` without what moves a cursor or turns the direction of writing, and not longer than `most` characters.
pub fn clean(text: &str, most: usize) -> String {
    let hides = |letter: char| matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    let letters = text.chars().filter(|letter| !hides(*letter));
    let letters = letters.map(|letter| if letter.is_control() { ' ' } else { letter });
    letters.take(most).collect()
}

/// What the operator writes to nodes. It cannot be made but from its own trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    records: BTreeMap<String, NodeRecord>,
    unfit: BTreeMap<String, Fault>,
}

impl Marks {
    /// What is kept on each node.
    pub fn records(&self) -> &BTreeMap<String, NodeRecord> {
        &self.records
    }

    /// The nodes that go on probation, as far as the cap allows it.
    pub fn unfit(&self) -> &BTreeMap<String, Fault> {
        &self.unfit
    }
}

/// What follows from a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consequences {
    /// What the job itself remembers of its nodes. Empty for a trial.
    pub own: BTreeMap<String, NodeRecord>,
    /// Nodes that the report blames and that the operator is to try itself. Empty for a trial.
    pub suspects: BTreeSet<String>,
    /// What is written to nodes. Empty for a job.
    pub marks: Marks,
}

/// What a preflight or a trial found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Which nodes are fit.
    pub judgement: Judgement,
    /// What follows for nodes.
    pub follows: Consequences,
}

impl Found {
    /// What `report` means for `nodes`, and what follows; see [`judge()`] and [`consequences`].
    pub fn of(
        source: Source,
        report: &Report,
        nodes: &BTreeSet<String>,
        covers: &str,
        used: (Timestamp, Duration),
    ) -> Result<Self, Incomplete> {
        let judgement = judge(report, nodes)?;
        let follows = consequences(source, report, &judgement, nodes, covers, used);
        Ok(Self { judgement, follows })
    }
}

/// What follows from `report` on `nodes`, which was judged to mean `judgement`, covers what `covers` names, ended at
/// `at` and is used for `lasts`.
pub fn consequences(
    source: Source,
    report: &Report,
    judgement: &Judgement,
    nodes: &BTreeSet<String>,
    covers: &str,
    (at, lasts): (Timestamp, Duration),
) -> Consequences {
    let record = |node: &String| {
        let record = NodeRecord::of(report, judgement, node, covers, at, lasts)?;
        Some((
            node.clone(),
            NodeRecord {
                by: source,
                ..record
            },
        ))
    };
    let records = nodes.iter().filter_map(record).collect();
    let blamed = judgement.unfit.iter();
    let blamed = blamed.filter(|(node, fault)| fault.blamed && nodes.contains(*node));
    match source {
        Source::Job => Consequences {
            own: records,
            suspects: blamed.map(|(node, _)| node.clone()).collect(),
            marks: Marks::default(),
        },
        Source::Operator => {
            // A name that does not belong to a node would become part of a URL.
            let is_node = |node: &&String| is_subdomain(node);
            let unfit: BTreeMap<String, Fault> = blamed
                .filter(|(node, _)| is_node(node))
                .map(|(node, fault)| (node.clone(), fault.clone()))
                .collect();
            // What the node is not to blame for is nothing that other jobs should avoid it for.
            let speaks = |node: &String, record: &NodeRecord| {
                is_subdomain(node) && (!record.is_failed() || unfit.contains_key(node))
            };
            let mut records: BTreeMap<String, NodeRecord> = records;
            records.retain(|node, record| speaks(node, record));
            Consequences {
                own: BTreeMap::new(),
                suspects: BTreeSet::new(),
                marks: Marks { records, unfit },
            }
        }
    }
}

/// The report of a trial without conclusions about unseen GPUs. A pod without GPUs (wrong runtime class) proves
/// nothing about them: what it lacks is a warning.
#[must_use]
pub fn downgrade_unseen_gpus(mut report: Report) -> Report {
    for node in report.nodes.values_mut() {
        if !sees_gpus(node) {
            let of_gpus = |check: &&mut Check| {
                check.layer == Layer::Devices || check.name == NVIDIA_DRIVER.name
            };
            for check in node.checks.iter_mut().filter(of_gpus) {
                check.outcome = check.outcome.min(Outcome::Warn);
            }
        }
    }
    report
}

fn sees_gpus(node: &NodeReport) -> bool {
    node.checks.iter().any(|check| check.name == GPU_MODEL.name)
}
