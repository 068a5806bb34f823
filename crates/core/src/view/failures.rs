//! Verdicts of many runs by cause: what failed how often, where, and since when.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::{account::Account, diagnose::VerdictSummary};

/// Causes of an answer, the most frequent ones.
pub const CAUSES_MAX: usize = 200;
/// Nodes that are named with a cause, the most frequent ones.
pub const NODES_MAX: usize = 20;

/// A verdict on an attempt of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The run.
    pub run: String,
    /// Its job.
    pub job: String,
    /// The namespace.
    pub namespace: String,
    /// When the attempt failed.
    pub at: Timestamp,
    /// The verdict.
    pub verdict: VerdictSummary,
}

/// A cause and how often it ended attempts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// What equal failures have in common, as a short hash; the label where that is not known.
    pub fingerprint: String,
    /// The label of the verdicts.
    pub label: String,
    /// Where in the program, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How many attempts.
    pub times: usize,
    /// Of how many jobs.
    pub jobs: usize,
    /// The nodes that verdicts name, most often first.
    pub nodes: Vec<CauseNode>,
    /// When it was first seen.
    pub first_at: Timestamp,
    /// When it was last seen.
    pub last_at: Timestamp,
    /// Which failure budget it counts against.
    pub account: Account,
    /// The newest attempt.
    pub newest: Newest,
}

/// A node that verdicts name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CauseNode {
    /// The node.
    pub node: String,
    /// How often.
    pub times: usize,
}

/// The newest attempt that a cause ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Newest {
    /// The run.
    pub run: String,
    /// Its job.
    pub job: String,
    /// The namespace.
    pub namespace: String,
    /// The attempt.
    pub attempt: u32,
    /// What was concluded.
    pub sentence: String,
}

/// The causes of `judged`, the most frequent first. Each attempt of a run counts once, with its last verdict.
pub fn causes(judged: &[Judged]) -> Vec<Cause> {
    let mut attempts: BTreeMap<(&str, u32), &Judged> = BTreeMap::new();
    for one in judged {
        attempts.insert((&one.run, one.verdict.attempt), one);
    }
    let mut groups: BTreeMap<String, Vec<&Judged>> = BTreeMap::new();
    for one in attempts.into_values() {
        let digest = one.verdict.digest();
        let key = digest.unwrap_or_else(|| one.verdict.label.clone());
        groups.entry(key).or_default().push(one);
    }
    let mut causes: Vec<Cause> = groups
        .into_iter()
        .filter_map(|(fingerprint, all)| cause(fingerprint, &all))
        .collect();
    causes.sort_by(|one, other| {
        let key = |it: &Cause| (it.times, it.last_at);
        (key(other), &one.fingerprint).cmp(&(key(one), &other.fingerprint))
    });
    causes.truncate(CAUSES_MAX);
    causes
}

fn cause(fingerprint: String, all: &[&Judged]) -> Option<Cause> {
    let newest = all.iter().max_by_key(|one| (one.at, &one.run))?;
    let first = all.iter().map(|one| one.at).min()?;
    let jobs: BTreeSet<(&str, &str)> = all
        .iter()
        .map(|one| (one.namespace.as_str(), one.job.as_str()))
        .collect();
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for node in all.iter().flat_map(|one| &one.verdict.nodes) {
        *nodes.entry(node).or_default() += 1;
    }
    let mut nodes: Vec<CauseNode> = nodes
        .into_iter()
        .map(|(node, times)| CauseNode {
            node: node.to_owned(),
            times,
        })
        .collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.times));
    nodes.truncate(NODES_MAX);
    let verdict = &newest.verdict;
    Some(Cause {
        fingerprint,
        label: verdict.label.clone(),
        place: verdict.place.clone(),
        times: all.len(),
        jobs: jobs.len(),
        nodes,
        first_at: first,
        last_at: newest.at,
        account: verdict.account,
        newest: Newest {
            run: newest.run.clone(),
            job: newest.job.clone(),
            namespace: newest.namespace.clone(),
            attempt: verdict.attempt,
            sentence: verdict.sentence.clone(),
        },
    })
}
