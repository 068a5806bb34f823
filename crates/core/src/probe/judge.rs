//! What a report means for the gang that it was made for, and what is kept of it for each node.
//!
//! Invariant: a node is blamed only for faults that its neighbours do not have. Where every node of a gang fails
//! the same check, or what fails is the job's own, no node is marked as unfit for other jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Check, Layer, NodeReport, Outcome, Owner, Report, Source};

/// Longest sentence that is kept of a node: annotations are read with every node.
const SENTENCE: usize = 240;

/// What a report means for a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The nodes on which nothing failed.
    pub fit: BTreeSet<String>,
    /// The nodes that the gang is not to start on.
    pub unfit: BTreeMap<String, Fault>,
    /// Why the gang must not start, where none of its nodes can be blamed: all fail, or a link between them.
    pub all_failed: Option<String>,
    /// Nodes to leave out next time, though none is known to be faulty: one end of a slow link.
    pub leave: BTreeSet<String>,
}

/// What is wrong with one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name of the check that failed.
    pub check: String,
    /// What was found and what was needed, in one sentence.
    pub why: String,
    /// Whether the node itself is bad, and not only for this job.
    pub blamed: bool,
}

/// Why a report cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Incomplete {
    /// A node is missing.
    #[error("it has no result for node `{0}`")]
    Node(String),
    /// A node has no checks.
    #[error("no check ran on node `{0}`")]
    Checks(String),
}

/// Judges the report on a gang whose seats are on `nodes`. The error is why it cannot be used.
pub fn judge(report: &Report, nodes: &BTreeSet<String>) -> Result<Judgement, Incomplete> {
    if let Some(missing) = nodes.iter().find(|node| !report.nodes.contains_key(*node)) {
        return Err(Incomplete::Node(missing.clone()));
    }
    let mut judgement = Judgement::default();
    let common = common_failures(report, nodes);
    for node in nodes {
        let Some(found) = report.nodes.get(node) else {
            continue;
        };
        if found.checks.is_empty() {
            return Err(Incomplete::Checks(node.clone()));
        }
        let own = failures(found).find(|check| !common.contains(check.name.as_str()));
        if let Some(check) = own {
            let fault = Fault {
                check: check.name.clone(),
                why: sentence(check),
                blamed: is_blamed(check, report, node),
            };
            judgement.unfit.insert(node.clone(), fault);
        } else if let Some(check) = failures(found).next() {
            let count = nodes.len();
            judgement.all_failed.get_or_insert_with(|| {
                format!(
                    "all {count} nodes of the gang fail `{}`: {}",
                    check.name,
                    sentence(check)
                )
            });
        } else {
            judgement.fit.insert(node.clone());
        }
    }
    let between = report
        .shared
        .iter()
        .find(|check| check.outcome == Outcome::Fail);
    if let Some(check) = between
        && judgement.unfit.is_empty()
    {
        judgement.all_failed.get_or_insert_with(|| {
            format!("`{}` fails between nodes: {}", check.name, sentence(check))
        });
        judgement.leave = report.leave.intersection(nodes).cloned().collect();
    }
    Ok(judgement)
}

/// Whether a node is bad for others, too: for its devices always, else only where another one does what it does not.
/// Interfaces, volumes and names are what the job calls them, and may be what no node has.
fn is_blamed(check: &Check, report: &Report, node: &str) -> bool {
    let does = |other: &Check| {
        let well = matches!(other.outcome, Outcome::Pass | Outcome::Warn);
        other.name == check.name && well
    };
    let mut others = report
        .nodes
        .iter()
        .filter(|(name, _)| name.as_str() != node);
    let compared = others.any(|(_, other)| other.checks.iter().any(does));
    check.owner != Owner::MlTeam && (compared || check.layer == Layer::Devices)
}

/// The checks that every one of several nodes fails.
fn common_failures<'a>(report: &'a Report, nodes: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let mut found = nodes.iter().filter_map(|node| report.nodes.get(node));
    let names = |node: &'a NodeReport| failures(node).map(|check| check.name.as_str());
    let Some(first) = found.next().filter(|_| nodes.len() > 1) else {
        return BTreeSet::new();
    };
    let mut common: BTreeSet<&str> = names(first).collect();
    for node in found {
        let here: BTreeSet<&str> = names(node).collect();
        common.retain(|name| here.contains(name));
    }
    common
}

fn failures(node: &NodeReport) -> impl Iterator<Item = &Check> {
    let checks = node.checks.iter();
    checks.filter(|check| check.outcome == Outcome::Fail)
}

/// A check in one sentence.
pub fn sentence(check: &Check) -> String {
    let subject = match check.subject.as_str() {
        "" => String::new(),
        subject => format!(" of `{subject}`"),
    };
    let text = format!(
        "`{}`{subject} found {}, needs {}",
        check.name, check.found, check.needed
    );
    text.chars().take(SENTENCE).collect()
}

/// What is remembered of the last preflight of a node, on the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The worst that was found.
    pub outcome: Outcome,
    /// The first failed check; empty where all pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub check: String,
    /// What was found and what was needed, in one sentence; empty where all is well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// When it ended.
    pub at: Timestamp,
    /// Until when it is valid.
    pub until: Timestamp,
    /// What it covered: the [`fingerprint`] of what the job needs.
    pub covers: String,
    /// Whose pods found it.
    #[serde(default)]
    pub by: Source,
}

impl NodeRecord {
    /// What is kept of `node` in a report that was made at `at` and is valid for `lasts`.
    ///
    /// A node that fails only what every other fails, too, is not remembered as failed: the next job may need other
    /// things, and this job reports the failure itself.
    pub fn of(
        report: &Report,
        judgement: &Judgement,
        node: &str,
        covers: &str,
        at: Timestamp,
        lasts: Duration,
    ) -> Option<Self> {
        let found = report.nodes.get(node)?;
        let record = |outcome: Outcome, check: String, why: String| Self {
            outcome,
            check,
            why,
            at,
            until: at.checked_add(lasts).unwrap_or(Timestamp::MAX),
            covers: covers.to_owned(),
            by: Source::default(),
        };
        if let Some(fault) = judgement.unfit.get(node) {
            return Some(record(
                Outcome::Fail,
                fault.check.clone(),
                fault.why.clone(),
            ));
        }
        match found.outcome() {
            Outcome::Fail => None,
            Outcome::Warn => {
                let worst = found.worst()?;
                Some(record(Outcome::Warn, worst.name.clone(), sentence(worst)))
            }
            Outcome::Pass | Outcome::NotApplicable => {
                Some(record(Outcome::Pass, String::new(), String::new()))
            }
        }
    }

    /// Reads the annotation; nothing where it is not one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The text of the annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it is still valid at `now`.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// Whether it says that the node is not to be used.
    pub fn is_failed(&self) -> bool {
        self.outcome == Outcome::Fail
    }

    /// Whether a job that needs what `covers` names goes by it, where it was read from a node: what a trial of the
    /// operator found wrong with the node holds for every job, what passed only for one that needs the same. What
    /// pods of another job reported is nothing to this one.
    pub fn is_for(&self, covers: &str) -> bool {
        self.by == Source::Operator && (self.is_failed() || self.covers == covers)
    }
}

/// A short name of what a preflight covers: the same for jobs that need the same.
pub fn fingerprint(needs: &impl Serialize) -> String {
    // FNV-1a: stable in every build, and long enough to distinguish a few needs.
    let text = serde_json::to_string(needs).unwrap_or_default();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, outcome: Outcome, owner: Owner) -> Check {
        Check {
            name: name.to_owned(),
            layer: Layer::Host,
            subject: String::new(),
            outcome,
            found: "64 MiB".to_owned(),
            needed: "at least 1 GiB".to_owned(),
            cause: String::new(),
            next: String::new(),
            owner,
        }
    }

    fn report(nodes: &[(&str, &[Check])]) -> Report {
        let nodes = nodes.iter().map(|(name, checks)| {
            let checks = checks.to_vec();
            ((*name).to_owned(), NodeReport { checks })
        });
        Report {
            nodes: nodes.collect(),
            ..Report::default()
        }
    }

    fn names(nodes: &[&str]) -> BTreeSet<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    }

    #[test]
    fn who_is_blamed() {
        type Case<'a> = (
            &'a str,
            Vec<(&'a str, Vec<Check>)>,
            &'a [(&'a str, bool)],
            bool,
        );
        let well = || check("shm-size", Outcome::Pass, Owner::MlTeam);
        let fast = || check("link-speed", Outcome::Pass, Owner::Network);
        let slow = || check("link-speed", Outcome::Fail, Owner::Network);
        let small = || check("shm-size", Outcome::Fail, Owner::MlTeam);
        let broken = || Check {
            layer: Layer::Devices,
            ..check("gpu-ecc", Outcome::Fail, Owner::Platform)
        };
        let warns = || check("clock-skew", Outcome::Warn, Owner::Platform);
        let cases: [Case<'_>; 9] = [
            (
                "all well",
                vec![("a", vec![well()]), ("b", vec![well(), warns()])],
                &[],
                false,
            ),
            (
                "one is bad",
                vec![("a", vec![fast()]), ("b", vec![slow()])],
                &[("b", true)],
                false,
            ),
            (
                "one is bad at what no other was asked for",
                vec![("a", vec![well()]), ("b", vec![slow()])],
                &[("b", false)],
                false,
            ),
            (
                "one lacks what the job brings",
                vec![("a", vec![well()]), ("b", vec![small()])],
                &[("b", false)],
                false,
            ),
            (
                "all fail the same check",
                vec![("a", vec![slow()]), ("b", vec![slow()])],
                &[],
                true,
            ),
            (
                "alone, with nobody to compare it with",
                vec![("a", vec![slow()])],
                &[("a", false)],
                false,
            ),
            (
                "alone, with a broken GPU",
                vec![("a", vec![broken()])],
                &[("a", true)],
                false,
            ),
            (
                "alone, and the job's own",
                vec![("a", vec![small()])],
                &[("a", false)],
                false,
            ),
            (
                "all fail the same check, and one another",
                vec![("a", vec![small(), fast()]), ("b", vec![small(), slow()])],
                &[("b", true)],
                true,
            ),
        ];
        for (name, nodes, unfit, all_failed) in cases {
            let nodes: Vec<(&str, &[Check])> = nodes
                .iter()
                .map(|(node, checks)| (*node, &checks[..]))
                .collect();
            let all = names(&nodes.iter().map(|(node, _)| *node).collect::<Vec<_>>());
            let judged = judge(&report(&nodes), &all).unwrap();
            let found: Vec<(&str, bool)> = judged
                .unfit
                .iter()
                .map(|(node, fault)| (node.as_str(), fault.blamed))
                .collect();
            assert_eq!(found, unfit, "{name}");
            assert_eq!(
                judged.all_failed.is_some(),
                all_failed,
                "{name}: {:?}",
                judged.all_failed
            );
        }
    }

    #[test]
    fn report_without_a_node_is_rejected() {
        let one = [check("shm-size", Outcome::Pass, Owner::MlTeam)];
        for (name, case) in [
            ("no word of it", report(&[("a", &one)])),
            ("no check of it", report(&[("a", &one), ("b", &[])])),
        ] {
            let why = judge(&case, &names(&["a", "b"])).unwrap_err().to_string();
            assert!(why.contains("node `b`"), "{name}: {why}");
        }
    }

    #[test]
    fn failed_link_blocks_gang_without_blame() {
        let one = [check("shm-size", Outcome::Pass, Owner::MlTeam)];
        let mut report = report(&[("a", &one), ("b", &one)]);
        report.shared = vec![check("path-bandwidth", Outcome::Fail, Owner::Network)];
        // A node of another gang is nothing that this one could leave.
        report.leave = names(&["b", "c"]);
        let judged = judge(&report, &names(&["a", "b"])).unwrap();
        assert!(judged.unfit.is_empty());
        assert_eq!(judged.leave, names(&["b"]));
        assert!(
            judged
                .all_failed
                .unwrap()
                .contains("`path-bandwidth` fails between nodes")
        );
    }

    #[test]
    fn what_is_kept_of_a_node() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let bad = [check("link-speed", Outcome::Fail, Owner::Network)];
        let warned = [check("clock-skew", Outcome::Warn, Owner::Platform)];
        let well = [check("shm-size", Outcome::Pass, Owner::MlTeam)];
        let report = report(&[("a", &bad), ("b", &warned), ("c", &well)]);
        let judged = judge(&report, &names(&["a", "b", "c"])).unwrap();
        let kept = |node| NodeRecord::of(&report, &judged, node, "f", now, Duration::from_hours(1));
        for (node, outcome, check) in [
            ("a", Outcome::Fail, "link-speed"),
            ("b", Outcome::Warn, "clock-skew"),
            ("c", Outcome::Pass, ""),
        ] {
            let kept = kept(node).unwrap();
            assert_eq!(
                (kept.outcome, kept.check.as_str()),
                (outcome, check),
                "{node}"
            );
            assert_eq!(
                NodeRecord::parse(&kept.text()),
                Some(kept.clone()),
                "{node}"
            );
            assert!(kept.is_fresh(now) && !kept.is_fresh(kept.until), "{node}");
        }
        assert_eq!(kept("d"), None, "it was not examined");
        assert_eq!(NodeRecord::parse("required"), None);
    }

    #[test]
    fn fingerprints_differ_by_needs() {
        let one = BTreeMap::from([("shmBytes", 1)]);
        let two = BTreeMap::from([("shmBytes", 2)]);
        assert_eq!(fingerprint(&one), fingerprint(&one.clone()));
        assert_ne!(fingerprint(&one), fingerprint(&two));
    }
}
