//! Which rank it was: the one that failed or was late, never one that only waited for it.

use super::{BTreeSet, Case, Confidence, Evidence, Judge, Label, Stage, Strength, words_of};
use crate::diagnose::source::ExitSeen;

/// Conclusions that ranks report which wait for another one.
pub(super) const WAITS: [&str; 5] = [
    "collective_timeout",
    "remote_peer_died",
    "init_timeout",
    "rendezvous_timeout",
    "straggler_or_missing_rank",
];
/// Conclusions that are not about one rank, or whose ranks lines name.
const NOT_OF_ONE: [&str; 8] = [
    "sigterm_preemption",
    "mpi_launch_failure",
    "mpi_world_size_one",
    "launcher_missing",
    "collective_mismatch",
    "rank_desync",
    "duplicate_gpu",
    "node_lost",
];

impl Judge<'_> {
    /// Of a wait, the ranks that lines accuse; those that only report it go into the sentence.
    pub(super) fn without_waiting_ranks<'a>(&self, mut case: Case<'a>) -> Case<'a> {
        let name = case.label.name.as_str();
        if case.fact.is_some() {
            return case;
        }
        if name == "sigterm_preemption" {
            // Whoever was asked to stop did not cause it.
            case.ranks.clear();
        }
        if !WAITS.contains(&name) {
            return case;
        }
        let reported: BTreeSet<u32> = case.ranks.difference(&case.named).copied().collect();
        case.ranks = std::mem::take(&mut case.named);
        case.nodes = case
            .ranks
            .iter()
            .filter_map(|rank| self.group.node_of(*rank).map(str::to_owned))
            .collect();
        let says_so = case
            .detail
            .as_deref()
            .is_some_and(|detail| detail.contains("waited"));
        if !says_so && !reported.is_empty() {
            let waited = format!("{} waited", words_of(&reported));
            case.detail = Some(
                match case
                    .detail
                    .take()
                    .or_else(|| case.fields.get("detail").cloned())
                {
                    Some(detail) => format!("{detail}; {waited}"),
                    None => waited,
                },
            );
        }
        case
    }

    /// The advice that fits: none about a rank or peer that is not `named`, none to switch on what is on.
    pub(super) fn next_step(&self, label: &Label, named: bool) -> String {
        let logs_info = self.group.ranks.iter().any(|facts| {
            facts.nccl.version.is_some()
                || facts.nccl.network.is_some()
                || !facts.nccl.transports.is_empty()
        });
        let other = match (&label.next_without_rank, &label.next_with_info) {
            (Some(other), _) if !named => Some(other),
            (_, Some(other)) if logs_info => Some(other),
            _ => None,
        };
        other.unwrap_or(&label.next).clone()
    }

    /// The first process that ended by itself with an error, of those that `fits`.
    pub(super) fn first_own_exit(
        &self,
        fits: impl Fn(&ExitSeen, usize) -> bool,
    ) -> Option<ExitSeen> {
        let exits = self.sources.iter().enumerate();
        let exits =
            exits.flat_map(|(index, source)| source.exits.iter().map(move |exit| (index, exit)));
        let own: Vec<&ExitSeen> = exits
            .filter(|(index, exit)| !exit.was_asked_to_stop() && fits(exit, *index))
            .map(|(_, exit)| exit)
            .collect();
        let first = own.iter().find(|exit| exit.first && exit.rank.is_some());
        let first = first.or_else(|| own.iter().find(|exit| exit.rank.is_some()));
        first.or(own.first()).map(|exit| (*exit).clone())
    }

    /// The rank of a failure whose lines name none, where launchers report which one ended first.
    pub(super) fn add_rank_that_exited(&self, case: &mut Case<'_>) {
        let name = case.label.name.as_str();
        let other = WAITS.contains(&name) || NOT_OF_ONE.contains(&name);
        if other || !case.ranks.is_empty() || case.stage < Stage::Exit {
            return;
        }
        let of_source = |_: &ExitSeen, source: usize| case.place.0 == source;
        let exits = self
            .sources
            .get(case.place.0)
            .map_or(&[][..], |source| &source.exits);
        // A launcher ends the others with SIGTERM, then SIGKILL.
        let coded = exits
            .iter()
            .any(|exit| exit.signal.is_none() && exit.code.is_some());
        let own = exits
            .iter()
            .filter(|exit| exit.signal != Some(15) && (exit.signal != Some(9) || !coded));
        let ranks: BTreeSet<u32> = own.filter_map(|exit| exit.rank).collect();
        let Some(exit) = self.first_own_exit(of_source) else {
            return;
        };
        // Several that ended alike: none of them is known to be the first.
        if let Some(rank) = exit.rank.filter(|_| exit.first || ranks.len() == 1) {
            case.ranks.insert(rank);
            case.nodes.extend(exit.evidence.node);
        }
    }

    /// A rank that ended with an error before the job was stopped.
    pub(super) fn exited_first(&mut self, evidence: Evidence, detail: String) {
        let strength = Strength {
            stage: Stage::Symptom,
            weight: 52,
            confidence: Confidence::Medium,
            rule: usize::MAX,
        };
        self.add_at("worker_exit_nonzero", strength, evidence, Some(detail));
    }

    /// Tasks that a coordination service names.
    pub(super) fn late_tasks(&mut self) {
        let tasks: BTreeSet<u32> = self
            .sources
            .iter()
            .flat_map(|source| &source.late_tasks.tasks)
            .copied()
            .collect();
        if tasks.is_empty() {
            return;
        }
        let detail = format!("{} did not arrive", words_of(&tasks));
        for label in WAITS {
            if self.cases.contains_key(label) {
                self.blame(label, &tasks);
                if let Some(case) = self.cases.get_mut(label) {
                    case.detail = Some(detail.clone());
                }
            }
        }
    }

    /// A rank that wrote nothing after a step, while every other one reports that it waits or that a peer is gone.
    pub(super) fn stopped_ranks(&mut self) {
        let waits = || WAITS.iter().filter_map(|label| self.cases.get(label));
        let accused = waits().any(|case| !case.named.is_empty());
        let exited = self.first_own_exit(|exit, _| exit.rank.is_some()).is_some();
        let first = waits()
            .filter(|case| !case.ranks.is_empty())
            .map(|case| case.place)
            .min();
        let other_cause = self
            .cases
            .values()
            .any(|case| case.stage == Stage::Cause && !WAITS.contains(&case.label.name.as_str()));
        let known = !self.known.is_empty();
        let Some(first) = first.filter(|_| !accused && !exited && !other_cause && !known) else {
            return;
        };
        let waiting: BTreeSet<u32> = self
            .cases
            .values()
            .flat_map(|case| &case.ranks)
            .copied()
            .collect();
        let mut stopped = BTreeSet::new();
        let mut last_step = None;
        for (index, source) in self.sources.iter().enumerate() {
            for member in source.members.iter() {
                let Some(rank) = member.rank.filter(|rank| !waiting.contains(rank)) else {
                    continue;
                };
                let step = member
                    .fields
                    .get("step")
                    .and_then(|step| step.parse::<u64>().ok());
                let before = index != first.0 || member.progress_line < first.1;
                match step {
                    Some(step) if before => {
                        stopped.insert(rank);
                        last_step = last_step.max(Some(step));
                    }
                    _ => return,
                }
            }
        }
        let Some(step) = last_step.filter(|_| stopped.len() <= waiting.len()) else {
            return;
        };
        let detail = format!(
            "{} wrote nothing after step {step}, while {} waited",
            words_of(&stopped),
            words_of(&waiting)
        );
        let found: Vec<&str> = WAITS
            .into_iter()
            .filter(|label| self.cases.contains_key(label))
            .collect();
        for label in found {
            self.blame(label, &stopped);
            if let Some(case) = self.cases.get_mut(label) {
                case.confidence = Confidence::Medium;
                case.detail = Some(detail.clone());
            }
        }
    }
}

impl ExitSeen {
    /// Whether the signal that ended it asks a program to stop: SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, and
    /// SIGXCPU of a limit. Schedulers send the user's signals before a time limit; a program that does not handle them
    /// ends.
    pub(super) fn was_asked_to_stop(&self) -> bool {
        matches!(self.signal, Some(1 | 2 | 3 | 10 | 12 | 15 | 24))
    }

    /// How it ended.
    pub(super) fn words(&self) -> String {
        match (self.code, self.signal) {
            (_, Some(signal)) => format!("signal {signal}"),
            (Some(code), _) => format!("exit code {code}"),
            _ => "aborted".to_owned(),
        }
    }
}
