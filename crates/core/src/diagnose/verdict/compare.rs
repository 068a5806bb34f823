//! What only shows when ranks are compared: exits, starts, collectives, devices, transports.

use super::{
    Account, BTreeSet, Confidence, Evidence, Judge, Stage, Strength, codes, recovery, words_of,
};
use crate::diagnose::torch;

impl Judge<'_> {
    /// Concludes from exit codes and signals where nothing else explains the failure.
    pub(super) fn exits(&mut self) {
        let asked_to_stop = self.cases.contains_key("sigterm_preemption");
        let explained = self.has(Stage::Cause);
        let soft = |weight| Strength {
            stage: Stage::Symptom,
            weight,
            confidence: Confidence::Low,
            rule: usize::MAX,
        };
        let exits: Vec<_> = self
            .sources
            .iter()
            .filter(|source| !recovery::after_exits(source))
            .flat_map(|source| &source.exits)
            .collect();
        // A launcher ends the others with SIGTERM when one has failed.
        let all_asked_to_stop = exits.iter().all(|exit| exit.was_asked_to_stop());
        // A launcher kills the others when one has failed.
        let failed = exits
            .iter()
            .position(|exit| exit.signal.is_none() && exit.code.is_some());
        for (index, exit) in exits.iter().enumerate() {
            let evidence = Evidence {
                rank: exit.rank.or(exit.evidence.rank),
                ..exit.evidence.clone()
            };
            let weight = if exit.waited_for { 65 } else { 20 };
            let (name, weight, fits) = match exit.signal {
                Some(9) => {
                    let by_launcher = failed.is_some_and(|failed| failed < index);
                    ("host_oom_killed", weight, !asked_to_stop && !by_launcher)
                }
                Some(11) => ("worker_segfault", 64, true),
                Some(7) => ("shm_too_small", 63, true),
                _ if exit.was_asked_to_stop() => ("sigterm_preemption", 35, all_asked_to_stop),
                _ => continue,
            };
            if let Some(case) = self.cases.get_mut(name)
                && case.stage == Stage::Cause
            {
                case.ranks.extend(evidence.rank);
                case.nodes.extend(evidence.node);
            } else if fits && !explained {
                let killed = "SIGKILL without another cause; that alone does not prove an OOM kill";
                let detail = (exit.signal == Some(9)).then(|| killed.to_owned());
                self.add_at(name, soft(weight), evidence, detail);
            }
        }
        let raised_again = self.sources.iter().find_map(|source| {
            let evidence = source.errors.passed_on.as_ref()?;
            torch::is_raised_again(evidence.text.as_bytes()).then(|| evidence.clone())
        });
        if let (true, Some(evidence)) = (self.cases.is_empty(), raised_again) {
            let missing = evidence.text.starts_with("FileNotFoundError");
            let label = if missing {
                "data_path_missing"
            } else {
                "user_code_error"
            };
            let detail = evidence.text.clone();
            self.ended(label, Confidence::Medium, evidence, detail);
        }
        let own = || exits.iter().filter(|exit| !exit.was_asked_to_stop());
        let first = own().find(|exit| exit.first && exit.rank.is_some());
        let first = first.or_else(|| own().find(|exit| exit.rank.is_some()));
        let first = first.or_else(|| own().next());
        if self.cases.is_empty()
            && let Some(exit) = first.or(exits.first())
        {
            let detail = exit.words();
            // Of several that ended alike none is known to be the first.
            let alike = own().filter(|other| {
                (other.code, other.signal) == (exit.code, exit.signal) && other.rank != exit.rank
            });
            let rank = exit.rank.or(exit.evidence.rank);
            let evidence = Evidence {
                rank: rank.filter(|_| exit.first || alike.count() == 0),
                ..exit.evidence.clone()
            };
            self.ended("worker_exit_nonzero", Confidence::Medium, evidence, detail);
        }
        let passed_on = self.sources.iter().find_map(|source| {
            let evidence = source.errors.passed_on.as_ref()?;
            let went_on = source.trained_past(evidence.line);
            // A program may well leave that way with code 0.
            let left = evidence.text.contains("SystemExit");
            (!went_on && !left).then(|| evidence.clone())
        });
        if self.cases.is_empty()
            && let Some(evidence) = passed_on
        {
            let detail = "it wraps an error that is not in these logs".to_owned();
            self.ended("worker_exit_nonzero", Confidence::Low, evidence, detail);
        }
    }

    fn ended(&mut self, label: &str, confidence: Confidence, evidence: Evidence, detail: String) {
        let strength = Strength {
            stage: Stage::Exit,
            weight: 50,
            confidence,
            rule: usize::MAX,
        };
        self.add_at(label, strength, evidence, Some(detail));
    }

    /// Communicators that never completed.
    pub(super) fn starts(&mut self) {
        let starts = &self.group.starts;
        let cause = |confidence| Strength {
            stage: Stage::Cause,
            weight: 50,
            confidence,
            rule: usize::MAX,
        };
        let at = starts.retry_at.and_then(|(source, line)| {
            let source = self.sources.get(source)?;
            Some(Evidence {
                file: source.name.clone(),
                line,
                text: format!(
                    "{} connection attempts were refused or timed out",
                    starts.retries
                ),
                ..Evidence::default()
            })
        });
        if starts.desync {
            let ids: Vec<String> = starts
                .pending
                .iter()
                .map(|(id, ranks)| format!("{id:#x} on {}", words_of(ranks)))
                .collect();
            let detail = format!("communicators {}", ids.join(", "));
            let evidence = at.unwrap_or_default();
            self.add_at(
                "init_timeout",
                cause(Confidence::Medium),
                evidence.clone(),
                None,
            );
            self.add_at(
                "rank_desync",
                cause(Confidence::High),
                evidence,
                Some(detail),
            );
        } else if starts.retries >= 3
            && (!starts.pending.is_empty() || starts.complete == 0)
            && let Some(evidence) = at
        {
            let bad = self.group.net.bad_interface.clone();
            if let Some(name) = bad {
                let detail = Some(format!("`{name}` was chosen"));
                self.add_at("wrong_interface", cause(Confidence::High), evidence, detail);
            } else {
                let strength = Strength {
                    stage: Stage::Symptom,
                    weight: 59,
                    ..cause(Confidence::Medium)
                };
                self.add_at("init_timeout", strength, evidence, None);
            }
        }
        let net = &self.group.net;
        // Ranks on one machine may use the loopback; a refusal there is still more likely the interface's fault
        // than that of a peer that died: its log would show that.
        if let Some(name) = &net.bad_interface {
            let failing = [
                "remote_peer_died",
                "init_timeout",
                "rendezvous_timeout",
                "nccl_system_error",
            ]
            .iter()
            .find_map(|label| self.cases.get(label));
            if let Some((_, _, evidence)) = failing.and_then(|case| case.evidence.first()) {
                let (evidence, detail) = (evidence.clone(), format!("`{name}` was chosen"));
                self.add_at(
                    "wrong_interface",
                    cause(Confidence::High),
                    evidence,
                    Some(detail),
                );
            }
        }
        if self.group.separate_worlds
            && let Some(source) = self
                .sources
                .iter()
                .find(|source| source.asked_processes.is_some() || source.first_ranks.is_several())
        {
            let text = match source.asked_processes {
                Some(asked) => format!("`mpirun` was asked for {asked} processes"),
                None => "several processes were started".to_owned(),
            };
            let evidence = Evidence {
                file: source.name.clone(),
                line: source.first_ranks.line().unwrap_or(1),
                text: format!("{text}; each is rank 0 of a world of its own"),
                ..Evidence::default()
            };
            self.add_at(
                "mpi_launch_failure",
                cause(Confidence::High),
                evidence.clone(),
                None,
            );
            self.add_at(
                "mpi_world_size_one",
                cause(Confidence::High),
                evidence,
                None,
            );
        }
    }

    /// Which ranks the others waited for.
    pub(super) fn collectives(&mut self) {
        let wait = &self.group.wait;
        let Some(collective) = &wait.collective else {
            return;
        };
        let named = format!("{} number {}", collective.operation, collective.sequence);
        let timed_out = self.cases.contains_key("collective_timeout");
        let timeout = self.cases.get("collective_timeout");
        let evidence = match timeout.and_then(|case| case.evidence.first()) {
            Some((_, _, evidence)) => evidence.clone(),
            None => Evidence {
                file: "Flight Recorder".to_owned(),
                text: named.clone(),
                ..Evidence::default()
            },
        };
        let cause = |weight| Strength {
            stage: if weight > 90 {
                Stage::Cause
            } else {
                Stage::Symptom
            },
            weight,
            confidence: Confidence::High,
            rule: usize::MAX,
        };
        if let Some(mismatch) = &wait.mismatch {
            let detail = format!("{named}: {mismatch}");
            let evidence = Evidence {
                rank: None,
                ..evidence.clone()
            };
            self.add_at("collective_mismatch", cause(95), evidence, Some(detail));
            self.blame("collective_mismatch", &wait.mismatch_ranks);
        }
        let culprits = if wait.late.is_empty() {
            &wait.silent
        } else {
            &wait.late
        };
        let word = if wait.late.is_empty() {
            "reported nothing about"
        } else {
            "did not enter"
        };
        let detail = if culprits.is_empty() {
            format!(
                "{named}: {} waited; these logs do not show which rank was late",
                words_of(&wait.waiting)
            )
        } else {
            format!(
                "{} {word} {named}, while {} waited in it",
                words_of(culprits),
                words_of(&wait.waiting)
            )
        };
        if !culprits.is_empty() {
            let weight = if timed_out { 49 } else { 60 };
            let evidence = Evidence {
                rank: None,
                ..evidence
            };
            self.add_at(
                "straggler_or_missing_rank",
                cause(weight),
                evidence,
                Some(detail.clone()),
            );
            self.blame("straggler_or_missing_rank", culprits);
            self.blame("collective_timeout", culprits);
        }
        let known = [
            "collective_timeout",
            "collective_mismatch",
            "straggler_or_missing_rank",
        ];
        if !known.iter().any(|label| self.cases.contains_key(label)) {
            // Only a dump shows it: the waiting ranks had not timed out yet, or their logs are not here.
            let evidence = Evidence {
                file: "Flight Recorder".to_owned(),
                line: 1,
                text: format!("{named} is incomplete"),
                ..Evidence::default()
            };
            let strength = Strength {
                confidence: Confidence::Medium,
                ..cause(50)
            };
            self.add_at("collective_timeout", strength, evidence, None);
            let waiting = &self.group.wait.waiting;
            if let Some(case) = self.cases.get_mut("collective_timeout") {
                case.ranks.extend(waiting);
            }
        }
        if let Some(case) = self.cases.get_mut("collective_timeout") {
            case.detail = Some(detail);
        }
    }

    /// A verdict about ranks names these, not the ranks that reported it.
    pub(super) fn blame(&mut self, label: &str, ranks: &BTreeSet<u32>) {
        let nodes: BTreeSet<String> = ranks
            .iter()
            .filter_map(|rank| self.group.node_of(*rank).map(str::to_owned))
            .collect();
        if let Some(case) = self.cases.get_mut(label) {
            case.ranks.extend(ranks);
            case.named.clone_from(ranks);
            case.nodes = nodes;
        }
    }

    /// Numbers of drivers and network cards.
    pub(super) fn devices(&mut self) {
        if let Some(case) = self.cases.get_mut("xid_error")
            && let Some(number) = case.fields.get("xid").and_then(|word| word.parse().ok())
        {
            let xid = codes::xid(number);
            let pci = case.fields.get("pci").cloned().unwrap_or_default();
            case.detail = Some(format!("Xid {number} on {pci}: {}", xid.words));
            if xid.program {
                case.account = Account::User;
            }
            if let Some(name) = xid.label
                && let Some((_, _, evidence)) = case.evidence.first().cloned()
            {
                let strength = Strength {
                    stage: Stage::Cause,
                    weight: 50,
                    confidence: Confidence::High,
                    rule: usize::MAX,
                };
                let detail = case.detail.clone();
                self.add_at(name, strength, evidence, detail);
            }
        }
        if let Some(case) = self.cases.get_mut("ib_completion_error")
            && let Some(status) = case
                .fields
                .get("ib_status")
                .and_then(|word| word.parse().ok())
        {
            let vendor = case
                .fields
                .get("ib_vendor")
                .map_or_else(String::new, |code| format!(", vendor code {code}"));
            case.detail = Some(format!(
                "status {status} ({}){vendor}",
                codes::completion(status)
            ));
        }
        // Between InfiniBand ports there is no address to get wrong.
        let net = &self.group.net;
        if net.infiniband
            && !net.roce
            && self.cases.contains_key("ib_completion_error")
            && let Some(case) = self.cases.get_mut("roce_gid_problem")
        {
            case.stage = Stage::Symptom;
            case.confidence = Confidence::Low;
        }
    }

    /// Facts about the network.
    pub(super) fn transports(&mut self) {
        let net = &self.group.net;
        let mut fact = |name: &str, holds: bool| {
            if let Some(label) = self.rules.label(name).filter(|_| holds) {
                self.facts.insert(&label.name);
            }
        };
        let channels = net.verbs + net.other_net;
        let direct = net.verbs_direct + net.other_net_direct;
        fact(
            "ib_ok",
            net.verbs > 0 || (net.verbs_network && net.gdr_enabled > 0),
        );
        fact(
            "gdr_ok",
            direct > 0 || (channels == 0 && net.gdr_enabled > 0 && net.verbs_network),
        );
        fact(
            "gdr_disabled",
            (net.verbs > 0 && direct == 0)
                || (channels == 0 && net.gdr_disabled > 0 && net.gdr_enabled == 0),
        );
        fact(
            "nvlink_p2p_disabled",
            net.shared_memory > 0 && net.peer == 0,
        );
        fact(
            "socket_fallback",
            net.socket > 0 && net.several_nodes && net.verbs == 0,
        );
    }
}
