//! From log lines to one verdict: which rank, which node, why, and what to do.
//!
//! Owns reading lines of many shapes, the rules, the facts of each rank, comparing ranks, and the order
//! of what is concluded. Does not read files or a clock: time comes from the lines.
//!
//! # Flow
//!
//! A [`Doctor`] is given sources (a file, a pod's log, a pipe) and their bytes or lines as they come.
//! [`Doctor::report`] may be asked at any time; it costs what is kept, not what was read. Doctors that
//! read different sources on different threads are put together with [`Doctor::absorb`].
//!
//! # Guarantees
//!
//! Memory is bounded by ranks and rules, not by lines. Any bytes can be read. The same bytes give the
//! same report.
//!
//! # Caveats
//!
//! Sources whose lines have no time, or clocks that do not fit, are put in the order in which they were
//! named.

pub(crate) mod codes;
mod flight;
mod group;
mod known;
mod nccl;
mod report;
mod rules;
mod signature;
mod source;
mod steps;
mod summary;
mod torch;
mod transport;
mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use self::{
    flight::{Dump, FlightError, GroupPending, GroupState, looks_like_dump},
    known::{End, Known},
    report::{
        Collective, Ended, Evidence, Facts, Moment, RankEnd, RankFacts, RankNccl, RankWork, Report,
        Verdict, account_word,
    },
    rules::{Confidence, Label, LabelKind, Retry, Rule, Rules, RulesError, Stage},
    source::MAX_LINE,
    steps::SlowRank,
    summary::{Depth, VerdictSummary},
    transport::TransportSeen,
};
use self::{group::Group, rules::Part, source::Source};
use crate::line::stamp::Stamp;

/// A text without control characters, and not longer than a line of evidence: safe to store and to print to a terminal.
pub(crate) fn shown(text: &str) -> String {
    source::shown(text.as_bytes())
}

/// Pods whose end is kept.
const MAX_KNOWN: usize = 8192;
/// Ends that a report names.
const MAX_ENDED: usize = 64;

/// Which source bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceId(usize);

/// Reads logs and concludes what failed.
#[derive(Clone, Debug)]
pub struct Doctor {
    rules: Arc<Rules>,
    sources: Vec<Source>,
    dumps: Vec<Dump>,
    known: Vec<Known>,
    succeeded: bool,
}

impl Doctor {
    /// A doctor that has read nothing.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            sources: Vec::new(),
            dumps: Vec::new(),
            known: Vec::new(),
            succeeded: false,
        }
    }

    /// Notes that the runtime reports the job as succeeded: a sign of health that no log needs to show.
    pub fn set_succeeded(&mut self) {
        self.succeeded = true;
    }

    /// Adds how a pod ended, as the runtime reported it. Lines explain it; none contradicts it.
    pub fn add_known_end(&mut self, known: Known) {
        if self.known.len() < MAX_KNOWN {
            self.known.push(known);
        }
    }

    /// Adds a source. Its name is shown in evidence; a rank in it (`rank3.log`) is that of its lines.
    pub fn source(&mut self, name: &str) -> SourceId {
        self.sources.push(Source::new(name));
        SourceId(self.sources.len() - 1)
    }

    /// Sets the rank and node of a source, where its name does not contain them.
    pub fn set_rank_and_node(&mut self, id: SourceId, rank: Option<u32>, node: Option<&str>) {
        if let Some(source) = self.sources.get_mut(id.0) {
            source.rank = rank.or(source.rank);
            source.node = node.map(str::to_owned).or_else(|| source.node.take());
        }
    }

    /// Reads more bytes of a source; they may end within a line.
    pub fn bytes(&mut self, id: SourceId, bytes: &[u8]) {
        if let Some(source) = self.sources.get_mut(id.0) {
            source.read(&self.rules, bytes, Part::End);
        }
    }

    /// The same for bytes of a large log that are neither at its beginning nor near its end: a job that
    /// wrote so much more has got past what rarely matters, and less is looked for.
    pub fn middle_bytes(&mut self, id: SourceId, bytes: &[u8]) {
        if let Some(source) = self.sources.get_mut(id.0) {
            source.read(&self.rules, bytes, Part::Middle);
        }
    }

    /// Reads one line of a source. Rank and time (milliseconds since 1970) are those that the caller
    /// knows; else those in the line.
    pub fn line(&mut self, id: SourceId, rank: Option<u32>, millis: Option<i64>, line: &[u8]) {
        if let Some(source) = self.sources.get_mut(id.0) {
            source.line(&self.rules, rank, millis.map(Stamp::epoch), line);
        }
    }

    /// Adds the Flight Recorder dump of one rank.
    pub fn dump(&mut self, dump: Dump) {
        self.dumps.push(dump);
    }

    /// Takes what `other` has read; its sources come after those that are here.
    pub fn absorb(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.dumps.extend(other.dumps);
        self.known.extend(other.known);
        self.succeeded |= other.succeeded;
    }

    /// Puts sources in the order of their names, so that a report does not depend on which thread was
    /// faster. Ids given before are void.
    pub fn sort_sources(&mut self) {
        self.sources.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// How many lines mattered so far: a report can only have changed when this has.
    pub fn noticed(&self) -> u64 {
        let lines = self.sources.iter().map(|source| source.notable);
        lines.sum::<u64>() + self.dumps.len() as u64
    }

    /// How many lines were read so far.
    pub fn lines(&self) -> u64 {
        self.sources.iter().map(|source| source.lines).sum()
    }

    /// What can be concluded so far.
    pub fn report(&self) -> Report {
        let mut group = Group::new(&self.sources, &self.dumps);
        group.ended(&self.known);
        let concluded = verdict::conclude(
            &self.rules,
            &self.sources,
            &group,
            &self.known,
            self.succeeded,
        );
        self.place(&mut group.ranks);
        let problems: BTreeSet<&str> = concluded
            .verdicts
            .iter()
            .map(|verdict| verdict.label.as_str())
            .collect();
        let labels = concluded
            .labels
            .iter()
            .filter(|name| {
                let fact = self.rules.label(name);
                fact.is_some_and(|label| label.kind == LabelKind::Fact)
                    || !problems.contains(name.as_str())
            })
            .cloned()
            .collect();
        Report {
            version: 1,
            verdicts: concluded.verdicts,
            facts: Facts {
                labels,
                ranks: group.ranks,
                missing_ranks: group.missing,
                disagreements: group.disagreements,
                slowest: group.slowest,
                timeline: concluded.timeline,
                ended: self.ended(),
                lines: self.sources.iter().map(|source| source.lines).sum(),
                bytes: self.sources.iter().map(|source| source.bytes).sum(),
            },
        }
    }

    /// How pods ended, in order of time.
    fn ended(&self) -> Vec<Ended> {
        let ends = known::in_time(&self.known).into_iter();
        ends.take(MAX_ENDED).map(Ended::of).collect()
    }

    /// Sets the node of ranks that do not log their host to that of their source. Nothing is concluded from it.
    fn place(&self, ranks: &mut [RankFacts]) {
        let given: BTreeMap<&str, &str> = self
            .sources
            .iter()
            .filter_map(|source| Some((source.name.as_str(), source.node.as_deref()?)))
            .collect();
        for facts in ranks.iter_mut().filter(|facts| facts.node.is_none()) {
            facts.node = given
                .get(facts.file.as_str())
                .map(|node| (*node).to_owned());
        }
    }

    /// Reads what is left as last lines, and makes the final report.
    pub fn finish(mut self) -> Report {
        for source in &mut self.sources {
            source.end(&self.rules);
        }
        self.report()
    }
}

#[cfg(test)]
mod tests;
