//! What follows from how pods ended, and from what their logs add to it.
//!
//! Owns which fact decides. A fact that explains a failure by itself (out of memory, a lost node, a signal from
//! outside) stands above what peers wrote: they only saw the consequence. A plain exit code decides nothing that a
//! log explains better.

use super::{Account, Case, Confidence, Evidence, Judge, Stage, Strength};
use crate::{
    diagnose::known::{self, End, Known},
    pod::Disruption,
};

/// The conclusion that a fact supports.
struct Claim<'a> {
    label: &'a str,
    confidence: Confidence,
    account: Option<Account>,
    detail: Option<String>,
}

fn claim(label: &str, confidence: Confidence) -> Claim<'_> {
    Claim {
        label,
        confidence,
        account: None,
        detail: None,
    }
}

impl Judge<'_> {
    /// Ranks how pods are known to have ended above what log lines say.
    pub(super) fn known(&mut self) {
        let Some(first) = known::first(self.known) else {
            return;
        };
        let who = first.who();
        let detail = Some(format!("{who} {}", first.end.words()));
        let own_cause = self.has_own(first, Stage::Cause);
        if first.on_purpose.is_some() || matches!(first.end, End::Exit(137)) {
            self.killed(first, own_cause);
            return;
        }
        match &first.end {
            End::NodeDeleted | End::Disrupted(Disruption::NodeGone | Disruption::NodeShutdown) => {
                let claim = claim("node_lost", Confidence::High);
                self.decide(first, Claim { detail, ..claim });
            }
            // It may be back in a moment; a program that says why it failed is believed.
            End::NodeSilent if self.has(Stage::Cause) => {}
            End::NodeSilent => {
                let claim = claim("node_lost", Confidence::Medium);
                self.decide(first, Claim { detail, ..claim });
            }
            End::Disrupted(disruption) => {
                let account = Some(match disruption {
                    Disruption::Preempted => Account::Preemption,
                    Disruption::Evicted => Account::Platform,
                    _ => Account::Infrastructure,
                });
                let claim = claim("sigterm_preemption", Confidence::High);
                self.decide(
                    first,
                    Claim {
                        account,
                        detail,
                        ..claim
                    },
                );
            }
            End::OutOfMemory(code) => {
                let limit = first.memory_limit.as_ref();
                let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
                let detail = Some(format!(
                    "the kernel killed {who} at its memory limit{limit} (exit code {code})"
                ));
                let claim = claim("host_oom_killed", Confidence::High);
                self.decide(first, Claim { detail, ..claim });
            }
            End::NotStarted(_) => {
                let claim = claim("command_not_found", Confidence::High);
                self.decide(first, Claim { detail, ..claim });
            }
            End::Exit(code) => self.exited(first, *code, own_cause),
            End::Unknown => self.unexplained(first),
        }
    }

    /// An injected fault, or SIGKILL that was not an OOM kill.
    fn killed(&mut self, first: &Known, own_cause: bool) {
        let who = first.who();
        let by = match &first.on_purpose {
            Some(fault) => format!("{who} was ended by an injected fault (`{fault}`)"),
            None if own_cause || self.has_own(first, Stage::Symptom) => return,
            None => format!("{who} was killed by signal 9 (SIGKILL); the sender is unknown"),
        };
        // A kernel log among the files says more.
        let explained = self.cases.get("host_oom_killed");
        if first.on_purpose.is_none() && explained.is_some_and(|case| case.stage == Stage::Cause) {
            return;
        }
        self.cases.remove("host_oom_killed");
        let confidence = match first.on_purpose {
            Some(_) => Confidence::High,
            None => Confidence::Medium,
        };
        let claim = claim("killed_from_outside", confidence);
        let detail = Some(by);
        self.decide(first, Claim { detail, ..claim });
    }

    fn exited(&mut self, first: &Known, code: i32, own_cause: bool) {
        let detail = Some(format!("{} {}", first.who(), first.end.words()));
        let label = match code {
            126 | 127 => "command_not_found",
            135 => "shm_too_small",
            139 => "worker_segfault",
            _ => "",
        };
        match code {
            2 | 126 | 127 if self.confirm(first) => {}
            126 | 127 => {
                let claim = claim(label, Confidence::High);
                self.decide(first, Claim { detail, ..claim });
            }
            135 | 139 if !own_cause => {
                let claim = claim(label, Confidence::Medium);
                self.decide(first, Claim { detail, ..claim });
            }
            143 if !self.has(Stage::Cause) => {
                let detail = format!(
                    "{} was asked to stop (SIGTERM, exit code 143); the sender is unknown",
                    first.who()
                );
                let claim = Claim {
                    label: "sigterm_preemption",
                    confidence: Confidence::Low,
                    account: Some(Account::User),
                    detail: Some(detail),
                };
                self.note(first, claim, Stage::Symptom);
            }
            16 | 17 if self.cases.contains_key("result_invalid") => {
                let label = if code == 16 {
                    "rerun_requested"
                } else {
                    "result_invalid"
                };
                let claim = claim(label, Confidence::High);
                self.decide(first, Claim { detail, ..claim });
            }
            _ if own_cause => self.prefer_own(first),
            _ => self.unexplained(first),
        }
    }

    /// Raises what the pod's own log says of its command to a cause: an exit code of 2, 126 or 127 says the same.
    /// Whether there is anything.
    fn confirm(&mut self, first: &Known) -> bool {
        let labels = ["wrong_arguments", "command_not_found", "data_path_missing"];
        let mut found = false;
        for label in labels {
            if let Some(case) = self.cases.get_mut(label)
                && case.stage >= Stage::Symptom
                && case.is_of(first)
            {
                case.strengthen(Strength {
                    stage: Stage::Cause,
                    weight: 50,
                    confidence: Confidence::High,
                    rule: usize::MAX,
                });
                found = true;
            }
        }
        if found {
            self.prefer_own(first);
        }
        found || self.has_own(first, Stage::Cause)
    }

    /// A pod that ended first with an error that its own log does not explain: peers only report the consequence.
    fn unexplained(&mut self, first: &Known) {
        let has_symptom = self.cases.values().any(|case| case.stage >= Stage::Symptom);
        let by_itself = self.has_own(first, Stage::Symptom);
        if self.has(Stage::Cause) || by_itself || has_symptom && !self.is_strictly_first(first) {
            return;
        }
        let mut own = self
            .sources
            .iter()
            .filter(|source| first.wrote(&source.name));
        let log = match own.next() {
            Some(source) if source.lines == 0 => "it wrote nothing",
            Some(_) => "its log does not show why",
            None => "its log was not read",
        };
        let order = if self.known.len() > 1 { " first" } else { "" };
        let detail = format!("{} {}{order}; {log}", first.who(), first.end.words());
        let claim = Claim {
            label: "worker_exit_nonzero",
            confidence: Confidence::Medium,
            account: None,
            detail: Some(detail),
        };
        if has_symptom {
            self.decide(first, claim);
        } else {
            self.note(first, claim, Stage::Exit);
        }
    }

    /// Among causes, those in the log of the pod that ended first come first, where it is known to have been the first.
    fn prefer_own(&mut self, first: &Known) {
        if self.is_strictly_first(first) {
            for case in self.cases.values_mut() {
                case.of_first = case.is_of(first);
            }
        }
    }

    fn is_strictly_first(&self, first: &Known) -> bool {
        let others = self.known.iter().filter(|known| known.pod != first.pod);
        let mut others = others.map(|known| known.at);
        let Some(at) = first.at else {
            return others.next().is_none();
        };
        others.all(|other| other.is_none_or(|other| at < other))
    }

    /// Whether the pod's own log has a case of at least `stage`.
    fn has_own(&self, first: &Known, stage: Stage) -> bool {
        let mut cases = self.cases.values();
        cases.any(|case| case.stage >= stage && case.is_of(first))
    }

    /// The fact is the cause: what other pods wrote follows from it.
    fn decide(&mut self, first: &Known, claim: Claim<'_>) {
        let label = claim.label;
        for (name, case) in &mut self.cases {
            if *name != label && case.stage == Stage::Cause && !case.is_of(first) {
                case.stage = Stage::Symptom;
                case.weight = 40;
            }
        }
        self.note(first, claim, Stage::Cause);
    }

    fn note(&mut self, first: &Known, claim: Claim<'_>, stage: Stage) {
        let Some(label) = self.rules.label(claim.label) else {
            return;
        };
        let source = self.sources.iter();
        let mut source = source.enumerate();
        let own = source.find(|(_, source)| first.wrote(&source.name));
        let place = own.map_or((usize::MAX, 0), |(index, source)| (index, source.lines));
        let strength = Strength {
            stage,
            weight: 100,
            confidence: claim.confidence,
            rule: usize::MAX,
        };
        let case = self
            .cases
            .entry(&label.name)
            .or_insert_with(|| Case::new(label, strength, place, None));
        case.strengthen(strength);
        // Peers that report it are not the ranks it is about.
        if let Some(rank) = first.rank {
            case.ranks = [rank].into();
        }
        if let Some(node) = &first.node {
            case.nodes = [node.clone()].into();
        }
        case.account = claim.account.unwrap_or(case.account);
        case.detail = claim.detail.or(case.detail.take());
        case.fact = Some(Evidence {
            file: first.pod.clone(),
            line: 0,
            text: format!("{} {}", first.who(), first.end.words()),
            rank: first.rank,
            node: first.node.clone(),
        });
    }
}

impl Case<'_> {
    /// Whether a line of that pod speaks for it.
    fn is_of(&self, known: &Known) -> bool {
        let mut evidence = self.evidence.iter();
        evidence.any(|(_, _, evidence)| known.wrote(&evidence.file))
    }
}
