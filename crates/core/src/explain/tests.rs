//! One named case per cause: what is known, the cause, and the words that must be in the answer.

mod ends;
mod job;
mod pods;
mod refusals;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::*;
use crate::{
    finding::{Finding, Severity, Span},
    job::{
        Account, Cause as FailureCause, Disruption, Exit, FailedBy, JobRecord, JobStatus,
        LastFailure, NodeHealth, PodPhase, Progress, ProgressRecord, Refusal, Spent, Wait,
        testing::{at, mistake},
    },
    ledger::{OpenSpan, Phase},
    progress::Figure,
    reason::{Reason, StoredReason, WorkerState},
    spec::Role,
};

/// A job `j` of four pods that an operator manages.
fn facts() -> Facts {
    Facts {
        job: Subject {
            name: "j".into(),
            namespace: "team".into(),
            program: "trainyard".into(),
            handle: "j --cluster -n team".into(),
            resource: "pytorchjob/j".into(),
            wanted: 4,
            created_at: Some(at(0)),
            ..Subject::default()
        },
        status: status(&[ConditionType::Created]),
        unreadable: None,
        limits: BTreeMap::from([(Account::User, 3)]),
        errors: Vec::new(),
        pods: Vec::new(),
        events: Vec::new(),
        quotas: Vec::new(),
        claims: Vec::new(),
        nodes: BTreeMap::new(),
        operator: Operator::Alive {
            holder: "op-1".into(),
            namespace: "trainyard-system".into(),
        },
        cut_off: None,
        failures: Vec::new(),
        now: at(100),
    }
}

fn status(kinds: &[ConditionType]) -> JobStatus {
    JobStatus {
        conditions: kinds.iter().map(|kind| condition(*kind, "")).collect(),
        trainyard: JobRecord {
            attempt: 1,
            ..JobRecord::default()
        },
        ..JobStatus::default()
    }
}

fn condition(kind: ConditionType, message: &str) -> Condition {
    Condition {
        kind,
        status: ConditionStatus::True,
        reason: format!("PyTorchJob{}", kind.name()),
        message: message.to_owned(),
        last_update_time: at(10),
        last_transition_time: at(10),
    }
}

impl Facts {
    fn refused(self, message: &str) -> Self {
        let (tried, message) = message.split_once(": ").expect("what was tried");
        let tried = tried.strip_prefix("cannot ").expect("a refusal");
        self.waits(&Refusal::new(tried, message).reason(3))
    }

    fn waits(mut self, reason: &Reason) -> Self {
        self.status.trainyard.waiting = Some(StoredReason::from(reason));
        self
    }

    /// The status of a version that stored no parameters.
    fn without_params(mut self) -> Self {
        if let Some(waiting) = &mut self.status.trainyard.waiting {
            waiting.params = None;
        }
        self
    }

    fn pending(mut self, change: impl Fn(&mut PodFacts)) -> Self {
        for index in 0..2 {
            let mut pod = PodFacts::new(format!("j-worker-{index}"), PodPhase::Pending);
            pod.container = "pytorch".into();
            pod.created_at = Some(at(5));
            change(&mut pod);
            self.pods.push(pod);
        }
        self
    }

    fn trouble(self, reason: &str, message: &str) -> Self {
        self.pending(|pod| {
            pod.node = Some("n1".into());
            pod.wait = Some(Wait::Create);
            pod.trouble = Some(Trouble {
                container: "pytorch".into(),
                reason: reason.into(),
                message: message.into(),
                image: "example.com/train:1".into(),
            });
        })
    }

    fn event(mut self, pod: &str, reason: &str, message: &str) -> Self {
        self.events.push(EventFacts {
            pod: pod.into(),
            reason: reason.into(),
            message: message.into(),
            at: Some(at(50)),
        });
        self
    }

    fn failed(mut self, message: &str, exit: Option<Exit>) -> Self {
        let failed = condition(ConditionType::Failed, message);
        self.status.conditions.push(failed);
        if let Some(exit) = exit {
            for (index, second) in [(0, 60), (1, 59)] {
                let mut pod = PodFacts::new(format!("j-worker-{index}"), PodPhase::Failed);
                pod.container = "pytorch".into();
                pod.exit = Some(Exit {
                    at: Some(at(second)),
                    ..exit
                });
                pod.memory_limit = Some("8Gi".into());
                self.pods.push(pod);
            }
        }
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

fn exit(code: i32, out_of_memory: bool) -> Exit {
    Exit {
        code,
        out_of_memory,
        at: None,
    }
}

/// A name, what is known, and what is expected.
type Named = (&'static str, Facts, Cause, Standing, Vec<&'static str>);

fn cases() -> Vec<Named> {
    let mut cases = Vec::new();
    cases.extend(job::of_the_job());
    cases.extend(refusals::of_refusals());
    cases.extend(pods::of_pods());
    cases.extend(ends::of_ends());
    cases
}

#[test]
fn every_case_has_its_answer() {
    for (name, facts, cause, standing, words) in cases() {
        let answer = explain(&facts);
        assert_eq!(
            (answer.cause, answer.standing),
            (cause, standing),
            "{name}: {answer:#?}"
        );
        let mut text = format!("{}\n{}", answer.sentence, answer.next);
        for evidence in &answer.evidence {
            text = format!(
                "{text}
{} {}",
                evidence.from, evidence.says
            );
        }
        for word in words {
            assert!(text.contains(word), "{name}: no `{word}` in\n{text}");
        }
        assert!(
            !answer.sentence.ends_with('.'),
            "{name}: {}",
            answer.sentence
        );
        assert!(!answer.next.is_empty(), "{name}");
    }
}

#[test]
fn every_cause_has_a_case() {
    let tried: BTreeSet<Cause> = cases().into_iter().map(|(_, _, cause, ..)| cause).collect();
    let all: BTreeSet<Cause> = Cause::ALL.iter().copied().collect();
    assert_eq!(tried, all);
}

/// `docs/reference/json.md` is written by hand, except for what this compares.
#[test]
fn json_reference_lists_causes() {
    let page = include_str!("../../../../docs/reference/json.md");
    let (_, table) = page
        .split_once("| `cause` | meaning |\n|---|---|\n")
        .unwrap();
    let rows: Vec<&str> = table
        .lines()
        .take_while(|row| row.starts_with('|'))
        .collect();
    let want: Vec<String> = Cause::ALL
        .iter()
        .map(|cause| {
            let meaning = cause.meaning().trim().trim_end_matches('.');
            let (first, rest) = meaning.split_at(1);
            format!("| `{}` | {}{rest} |", cause.name(), first.to_lowercase())
        })
        .collect();
    assert_eq!(rows, want, "write this table:\n{}", want.join("\n"));
}

#[test]
fn long_evidence_is_cut() {
    let words = format!("cannot create pod `j`: {}", "é".repeat(5_000));
    let answer = explain(&facts().refused(&words));
    assert!(
        answer
            .evidence
            .iter()
            .all(|found| found.says.chars().count() <= EVIDENCE_CHARS + 1)
    );
}
