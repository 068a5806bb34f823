//! Rules about jobs that are valid and will still go wrong.
//!
//! Owns the form of such a rule and the list of all of them; the rules themselves are in one file
//! per family. A rule looks at a typed job and points at places in its file.
//!
//! Invariant: a rule cannot be written without a manifest that it catches and a near miss that it
//! spares; a test runs both.

use super::{
    Rule,
    cluster::{self, ClusterFacts},
    companions::{Companion, Companions},
    deepspeed, fabric, hygiene, memory_devices, placement, recovery,
    scene::Scene,
    shape,
};
use crate::finding::Severity;

/// One rule with its proof.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) rule: Rule,
    pub(super) look: Look,
    pub(super) catches: Example,
    pub(super) spares: Example,
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Every job, by itself.
    Job(fn(&Rule, &Scene<'_>)),
    /// Every job, beside the objects that go with it: without them it may find less.
    Beside(fn(&Rule, &Scene<'_>)),
    /// Every object that goes with a job, seen beside all the others.
    Companion(fn(&Rule, &Companion<'_>, &Companions<'_>)),
    /// Every job, beside what a cluster has; where no cluster is known, nothing.
    Cluster(fn(&Rule, &Scene<'_>, &ClusterFacts)),
    /// Every object that goes with a job, likewise.
    ClusterCompanion(fn(&Rule, &Companion<'_>, &Companions<'_>, &ClusterFacts)),
    /// Nothing: the linter itself reports it.
    Linter,
}

/// A manifest: a base that has no findings, and what is changed in it.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    base: &'static str,
    edits: &'static [(&'static str, &'static str)],
}

impl Example {
    /// The text of the manifest.
    pub fn text(&self) -> String {
        let change = |text: String, (from, to): &(&str, &str)| text.replacen(from, to, 1);
        self.edits.iter().fold(self.base.to_owned(), change)
    }

    /// Whether every edit changes the text that the ones before it left.
    #[cfg(test)]
    pub(super) fn is_sound(&self) -> bool {
        let mut text = self.base.to_owned();
        self.edits.iter().all(|(from, to)| {
            let found = text.contains(from);
            text = text.replacen(from, to, 1);
            found
        })
    }
}

/// Four pods of eight GPUs, with a claim and a secondary network.
pub(super) const PYTORCH: &str = include_str!("base/pytorch.yaml");
/// Two to four workers of four GPUs, without a master.
pub(super) const ELASTIC: &str = include_str!("base/elastic.yaml");
/// A launcher and two workers of eight GPUs.
pub(super) const MPI: &str = include_str!("base/mpi.yaml");

/// `base` after `edits`.
pub(super) const fn example(
    base: &'static str,
    edits: &'static [(&'static str, &'static str)],
) -> Example {
    Example { base, edits }
}

/// A rule that is looked for in both profiles.
pub(super) const fn rule(
    code: &'static str,
    (demo, production): (Option<Severity>, Severity),
    title: &'static str,
    explanation: &'static str,
) -> Rule {
    Rule {
        code,
        demo,
        production,
        title,
        explanation,
    }
}

/// Does not work in any profile.
pub(super) const WRONG: (Option<Severity>, Severity) = (Some(Severity::Error), Severity::Error);
/// What a demo may skip and production may not.
pub(super) const RISKY: (Option<Severity>, Severity) = (Some(Severity::Warning), Severity::Error);
/// Works, but not as it reads.
pub(super) const ODD: (Option<Severity>, Severity) = (Some(Severity::Warning), Severity::Warning);
/// Matters only to long runs on shared machines.
pub(super) const CAREFUL: (Option<Severity>, Severity) = (None, Severity::Warning);

/// What the rule with `code` looks at, where it is not a rule of the contract.
pub(super) fn look_of(code: &str) -> Option<Look> {
    let found = all().find(|advice| advice.rule.code == code);
    found.map(|advice| advice.look)
}

/// Every rule of every family, in the order of its code.
pub(super) fn all() -> impl Iterator<Item = &'static Advice> {
    [
        shape::RULES,
        shape::REFERENCE_RULES,
        shape::NAME_RULES,
        memory_devices::RULES,
        fabric::RULES,
        fabric::PROFILE_RULES,
        recovery::RULES,
        placement::RULES,
        hygiene::RULES,
        hygiene::IMAGE_RULES,
        deepspeed::RULES,
        cluster::RULES,
    ]
    .into_iter()
    .flatten()
}
