//! Rules about jobs that are valid and will still go wrong.
//!
//! Owns the form of such a rule and the list of all of them; the rules themselves are in one file
//! per family. A rule looks at a typed job and points at places in its file.
//!
//! Invariant: a rule has a manifest that it catches and a near miss that it spares, in
//! `testdata/lint/<code>/catches.yaml` and `spares.yaml`; a test runs both.

use super::{
    Rule, beside,
    cluster::{self, ClusterFacts},
    companions::{Companion, Companions},
    deepspeed, fabric, hygiene, memory_devices, placement, recovery,
    scene::Scene,
    shape,
};
use crate::finding::Severity;

/// One rule.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) rule: Rule,
    pub(super) look: Look,
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
        shape::ELASTIC_RULES,
        shape::REFUSED_RULES,
        shape::APART_RULES,
        shape::PROGRAM_RULES,
        memory_devices::RULES,
        memory_devices::MORE_RULES,
        fabric::RULES,
        fabric::PROFILE_RULES,
        fabric::SECONDARY_RULES,
        fabric::CONTRADICTION_RULES,
        recovery::RULES,
        recovery::MORE_RULES,
        recovery::TIME_RULES,
        placement::RULES,
        placement::AFFINITY_RULES,
        placement::NODE_RULES,
        hygiene::RULES,
        hygiene::IMAGE_RULES,
        hygiene::MORE_RULES,
        hygiene::KEY_RULES,
        hygiene::FILE_RULES,
        deepspeed::RULES,
        cluster::RULES,
        beside::RULES,
        beside::OBJECT_RULES,
        beside::VERSION_RULES,
        beside::RAY_RULES,
        beside::WORLD_RULES,
        beside::BATCH_RULES,
        beside::SWEEP_RULES,
        beside::QUEUE_RULES,
        beside::POLICY_RULES,
        beside::VOLUME_RULES,
        beside::LATER_RULES,
    ]
    .into_iter()
    .flatten()
}
