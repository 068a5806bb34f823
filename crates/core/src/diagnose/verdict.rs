//! From what was seen to what is concluded, the decisive conclusion first.
//!
//! Owns the order: a cause before a symptom, among causes the first in time, among symptoms the one that
//! says most; and what follows only from several lines or ranks together.
//!
//! Invariant: a verdict rests on at least one line or on how a pod is known to have ended, except `healthy` and
//! `inconclusive`.

mod compare;
mod health;
mod known;
mod order;
mod recovery;
mod traps;
mod who;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    codes,
    group::Group,
    known::Known,
    report::{Evidence, Moment, Verdict},
    rules::{Confidence, Label, LabelKind, Retry, Rules, Stage},
    signature,
    source::{STEPS_AFTER_CAUSE, STEPS_AFTER_EXCEPTION, Seen, Source},
};
use crate::{account::Account, line::stamp::Stamp};

/// The most verdicts that a report gives.
const MAX_VERDICTS: usize = 8;
/// Lines of evidence that one verdict gives.
const MAX_EVIDENCE: usize = 6;
/// Moments of the timeline.
const MAX_MOMENTS: usize = 256;
/// The weight of what only warnings say.
const WEIGHT_OF_WARNINGS: u8 = 16;

/// An exception that is further than this from the end of a log may have been caught: what follows the one
/// that ends a program are those of other ranks and the summary of a launcher.
const LAST_LINES: u64 = 200;

/// The fields that a sentence ends with, where a rule has one: alternatives of a pattern need names of their own.
const DETAILS: [&str; 7] = [
    "detail", "script", "program", "file", "word", "click", "url",
];

/// The evidence for one label.
#[derive(Clone, Debug)]
struct Case<'a> {
    label: &'a Label,
    stage: Stage,
    weight: u8,
    confidence: Confidence,
    /// First in the files, and by the clock.
    place: (usize, u64),
    stamp: Option<Stamp>,
    /// Order among rules that took the same line.
    rule: usize,
    ranks: BTreeSet<u32>,
    /// Ranks that lines name, not those that wrote them.
    named: BTreeSet<u32>,
    nodes: BTreeSet<String>,
    peers: BTreeSet<String>,
    fields: BTreeMap<String, String>,
    evidence: Vec<(Option<Stamp>, (usize, u64), Evidence)>,
    detail: Option<String>,
    account: Account,
    retry: Retry,
    /// How a pod is known to have ended, where that is evidence for it.
    fact: Option<Evidence>,
    /// Whether it is in the log of the pod that is known to have ended first.
    of_first: bool,
}

/// The conclusions, and the labels of facts and of problems that the job recovered from.
pub(super) struct Concluded {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) labels: Vec<String>,
    pub(super) timeline: Vec<Moment>,
}

/// Concludes.
pub(super) fn conclude(
    rules: &Rules,
    sources: &[Source],
    group: &Group,
    known: &[Known],
    succeeded: bool,
) -> Concluded {
    let mut judge = Judge {
        rules,
        sources,
        group,
        known,
        succeeded,
        cases: BTreeMap::new(),
        facts: BTreeSet::new(),
    };
    judge.gather();
    judge.bare_errors();
    judge.exits();
    judge.starts();
    judge.collectives();
    judge.late_tasks();
    judge.stopped_ranks();
    judge.devices();
    judge.transports();
    judge.launcher();
    judge.stale_store();
    judge.known();
    judge.survived();
    judge.unknown_last_error();
    judge.conclude()
}

struct Judge<'a> {
    rules: &'a Rules,
    sources: &'a [Source],
    group: &'a Group,
    known: &'a [Known],
    /// The runtime reports that the job succeeded.
    succeeded: bool,
    cases: BTreeMap<&'a str, Case<'a>>,
    facts: BTreeSet<&'a str>,
}

impl Judge<'_> {
    /// Puts what rules have seen together by label.
    fn gather(&mut self) {
        for (index, source) in self.sources.iter().enumerate() {
            for (rule_index, seen) in &source.seen {
                let rule = self.rules.rule(*rule_index);
                let Some(name) = rule.label.as_deref() else {
                    continue;
                };
                if rule.stage == Stage::Fact {
                    self.facts.insert(name);
                    continue;
                }
                let mut strength = Strength {
                    stage: rule.stage,
                    weight: rule.weight,
                    confidence: rule.confidence,
                    rule: usize::from(*rule_index),
                };
                if seen.only_warnings {
                    strength.stage = Stage::Symptom;
                    strength.weight = strength.weight.min(WEIGHT_OF_WARNINGS);
                    strength.confidence = Confidence::Low;
                }
                let recovers = rule.recovers || seen.only_warnings;
                if recovery::of(source, seen, name, strength.stage, recovers) {
                    self.facts.insert(name);
                    continue;
                }
                if strength.stage == Stage::Cause && recovery::before_the_cause(source, seen, name)
                {
                    strength.stage = Stage::Symptom;
                    strength.weight = strength.weight.min(WEIGHT_OF_WARNINGS);
                    strength.confidence = Confidence::Low;
                }
                self.add(name, index, seen, strength);
            }
            let raised = [
                ("user_code_error", &source.errors.user),
                ("checkpoint_corrupt", &source.errors.cut_checkpoint),
            ];
            for (name, seen) in raised {
                if let Some(seen) = seen
                    && !recovery::of_exception(source, seen)
                {
                    let last = seen.last_line;
                    let went_on = source.marks.progress > last || source.lines > last + LAST_LINES;
                    let caught = recovery::before_the_cause(source, seen, name);
                    let strength = Strength {
                        stage: if caught { Stage::Symptom } else { Stage::Cause },
                        weight: if caught { WEIGHT_OF_WARNINGS } else { 50 },
                        confidence: if went_on {
                            Confidence::Medium
                        } else {
                            Confidence::High
                        },
                        rule: usize::MAX,
                    };
                    self.add(name, index, seen, strength);
                }
            }
        }
    }

    /// An exception that stands alone says little, and nothing where its rank trained on.
    fn bare_errors(&mut self) {
        for (index, source) in self.sources.iter().enumerate() {
            if let Some(seen) = &source.errors.bare
                && !recovery::of_exception(source, seen)
                && (!recovery::of_bare(source, seen) || source.errors.cut_head)
            {
                let strength = Strength {
                    stage: Stage::Symptom,
                    weight: 22,
                    confidence: Confidence::Low,
                    rule: usize::MAX,
                };
                self.add("user_code_error", index, seen, strength);
            }
        }
    }

    fn add(&mut self, name: &str, source: usize, seen: &Seen, strength: Strength) {
        let Some(label) = self.rules.label(name) else {
            return;
        };
        let place = (source, seen.first_line);
        let case = self
            .cases
            .entry(&label.name)
            .or_insert_with(|| Case::new(label, strength, place, seen.stamp));
        case.strengthen(strength);
        if earlier((seen.stamp, place), (case.stamp, case.place)) {
            case.place = place;
            case.stamp = seen.stamp;
        }
        case.ranks.extend(&seen.ranks);
        case.named.extend(&seen.named);
        case.nodes.extend(seen.nodes.iter().cloned());
        case.peers.extend(seen.peers.iter().cloned());
        for (name, value) in &seen.fields {
            case.fields
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        for evidence in &seen.evidence {
            let place = (source, evidence.line);
            case.evidence.push((seen.stamp, place, evidence.clone()));
        }
    }

    /// A conclusion of several lines, with one of them as its place.
    fn add_at(
        &mut self,
        name: &str,
        strength: Strength,
        evidence: Evidence,
        detail: Option<String>,
    ) {
        let Some(label) = self.rules.label(name) else {
            return;
        };
        let source = self
            .sources
            .iter()
            .position(|source| source.name == evidence.file)
            .unwrap_or(usize::MAX);
        let place = (source, evidence.line);
        let case = self
            .cases
            .entry(&label.name)
            .or_insert_with(|| Case::new(label, strength, place, None));
        case.strengthen(strength);
        case.ranks.extend(evidence.rank);
        case.nodes.extend(evidence.node.clone());
        case.evidence.push((None, place, evidence));
        if detail.is_some() {
            case.detail = detail;
        }
    }

    fn has(&self, stage: Stage) -> bool {
        self.cases.values().any(|case| case.stage == stage)
    }

    fn conclude(mut self) -> Concluded {
        self.settle();
        let timeline = self.timeline();
        let mut cases: Vec<Case<'_>> = std::mem::take(&mut self.cases).into_values().collect();
        // By the clock where every cause has the same one, else by place: an order that mixes the two
        // would not be one.
        let clocks: BTreeSet<Option<String>> = cases
            .iter()
            .filter(|case| case.stage == Stage::Cause)
            .map(|case| case.stamp.map(|stamp| format!("{:?}", stamp.clock)))
            .collect();
        let one_clock = clocks.len() == 1 && !clocks.contains(&None);
        cases.sort_by_key(|case| {
            let is_cause = case.stage == Stage::Cause;
            let when = match case.stamp.filter(|_| one_clock && is_cause) {
                Some(stamp) => stamp.millis,
                None => 0,
            };
            let weight = u8::MAX - if is_cause { 0 } else { case.weight };
            let place = if one_clock && is_cause {
                (0, 0)
            } else {
                case.place
            };
            (
                std::cmp::Reverse(case.stage),
                (case.fact.is_none(), !case.of_first),
                weight,
                when,
                place,
                case.rule,
            )
        });
        if let Some(first) = cases.first_mut() {
            self.add_rank_that_exited(first);
        }
        let mut verdicts: Vec<Verdict> = cases
            .into_iter()
            .take(MAX_VERDICTS)
            .map(|case| self.verdict(case))
            .collect();
        if verdicts.is_empty() {
            verdicts = self.healthy();
        }
        Concluded {
            verdicts,
            labels: self.facts.iter().map(|name| (*name).to_owned()).collect(),
            timeline,
        }
    }

    fn verdict(&self, case: Case<'_>) -> Verdict {
        let label = case.label;
        let case = self.without_waiting_ranks(case);
        let mut nodes = case.nodes;
        for rank in &case.ranks {
            nodes.extend(self.group.node_of(*rank).map(str::to_owned));
        }
        if label.name == "remote_peer_died" && !case.peers.is_empty() {
            // Read the log of the peer, not of the rank that reports it.
            nodes.clone_from(&case.peers);
        }
        let captured = DETAILS.iter().find_map(|name| case.fields.get(*name));
        let detail = case
            .detail
            .or_else(|| captured.cloned())
            .filter(|detail| !detail.trim().is_empty());
        let mut sentence = label.sentence.clone();
        if let Some(detail) = detail {
            sentence = format!("{sentence}: {}", detail.trim());
        }
        if let Some(frame) = case.fields.get("frame") {
            sentence = format!("{sentence} ({frame})");
        }
        let raised = match &case.fact {
            Some(_) => None,
            None => self.raised(&case.ranks),
        };
        let (exception, frame) = raised.unzip();
        let place = exception
            .zip(frame)
            .map(|(exception, frame)| format!("{exception} at {frame}"));
        let mut evidence = case.evidence;
        evidence.sort_by_key(|(_, place, _)| *place);
        let first = evidence
            .iter()
            .position(|(_, place, _)| *place == case.place);
        if let Some(first) = first {
            let decisive = evidence.remove(first);
            evidence.insert(0, decisive);
        }
        let known = case.fact;
        let evidence = evidence
            .into_iter()
            .map(|(_, _, evidence)| evidence)
            .filter(|evidence| evidence.line > 0);
        let evidence: Vec<Evidence> = known
            .into_iter()
            .chain(evidence)
            .take(MAX_EVIDENCE)
            .collect();
        let named = !case.ranks.is_empty() || !nodes.is_empty();
        let next = self.next_step(label, named);
        Verdict {
            label: label.name.clone(),
            sentence,
            ranks: case.ranks.into_iter().collect(),
            nodes: nodes.into_iter().filter(|node| !node.is_empty()).collect(),
            account: case.account,
            retry: case.retry,
            confidence: case.confidence,
            signature: evidence
                .first()
                .map(|evidence| signature::normal(&evidence.text)),
            evidence,
            refuted_by: label.refuted_by.clone(),
            next,
            stage: case.stage,
            place,
            exception: exception.map(str::to_owned),
        }
    }

    /// The name of the exception of the first of `ranks` that raised one, and its deepest frame in the user's code;
    /// that of any rank where no rank is known.
    fn raised(&self, ranks: &BTreeSet<u32>) -> Option<(&str, &str)> {
        let mut raised = self.group.ranks.iter().filter(|known| {
            ranks.is_empty() || known.rank.is_some_and(|rank| ranks.contains(&rank))
        });
        raised.find_map(|known| {
            let exception = known.end.exception.as_deref()?;
            let name = exception.split(':').next().unwrap_or(exception);
            Some((name, known.end.frame.as_deref()?))
        })
    }

    fn timeline(&self) -> Vec<Moment> {
        let mut moments: Vec<Moment> = Vec::new();
        for source in self.sources {
            for (rule, seen) in &source.seen {
                let rule = self.rules.rule(*rule);
                if let (Some(label), Some(stamp)) = (&rule.label, seen.stamp)
                    && self
                        .rules
                        .label(label)
                        .is_some_and(|label| label.kind == LabelKind::Problem)
                {
                    moments.push(Moment {
                        millis: stamp.millis,
                        rank: seen.ranks.first().copied().or(source.rank),
                        label: label.to_owned(),
                        file: source.name.clone(),
                        line: seen.first_line,
                    });
                }
            }
        }
        moments.sort_by(|a, b| (a.millis, &a.file, a.line).cmp(&(b.millis, &b.file, b.line)));
        moments.truncate(MAX_MOMENTS);
        moments
    }
}

/// How much one thing that was seen says.
#[derive(Clone, Copy, Debug)]
struct Strength {
    stage: Stage,
    weight: u8,
    confidence: Confidence,
    rule: usize,
}

impl<'a> Case<'a> {
    fn new(
        label: &'a Label,
        strength: Strength,
        place: (usize, u64),
        stamp: Option<Stamp>,
    ) -> Self {
        Self {
            label,
            stage: strength.stage,
            weight: strength.weight,
            confidence: strength.confidence,
            place,
            stamp,
            rule: strength.rule,
            ranks: BTreeSet::new(),
            named: BTreeSet::new(),
            nodes: BTreeSet::new(),
            peers: BTreeSet::new(),
            fields: BTreeMap::new(),
            evidence: Vec::new(),
            detail: None,
            account: label.account,
            retry: label.retry,
            fact: None,
            of_first: false,
        }
    }

    fn strengthen(&mut self, strength: Strength) {
        if strength.stage > self.stage {
            self.stage = strength.stage;
            self.weight = strength.weight;
            self.confidence = strength.confidence;
        } else if strength.stage == self.stage {
            self.weight = self.weight.max(strength.weight);
            self.confidence = self.confidence.max(strength.confidence);
        }
        self.rule = self.rule.min(strength.rule);
    }
}

fn earlier(one: (Option<Stamp>, (usize, u64)), other: (Option<Stamp>, (usize, u64))) -> bool {
    let by_clock = one
        .0
        .zip(other.0)
        .and_then(|(one, other)| one.compare(other));
    match by_clock {
        Some(order) => order.is_lt() || (order.is_eq() && one.1 < other.1),
        None => one.1 < other.1,
    }
}

/// `rank 3`, `ranks 0-2, 5`.
pub(super) fn words_of(ranks: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown: Vec<String> = runs
        .iter()
        .take(8)
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    let more = if runs.len() > 8 { ", …" } else { "" };
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}{more}", shown.join(", "))
}
