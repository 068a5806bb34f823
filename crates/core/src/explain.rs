//! Why a job is not running, or why it failed: one answer with the next step.
//!
//! Owns the order in which causes are checked, and their sentences. It gathers nothing: an adapter
//! hands it a [`Facts`] with what it could find out, and the same facts give the same [`Answer`].
//!
//! Invariants: there is always an answer. The answer names one cause, the first that holds in the
//! order of [`explain`]: what keeps an operator from processing a job comes before what keeps its pods from being
//! created, that before what keeps them from running. What is not known is left out.

mod ended;
mod facts;
mod job;
mod pods;
mod refused;
mod seats;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

pub use facts::{
    Claim, ClaimState, CutOff, EventFacts, Facts, FailedPod, Operator, PodFacts, Quota, Subject,
    Trouble,
};
pub use pods::will_not_start;

use crate::{
    diagnose::VerdictSummary,
    job::{Condition, ConditionStatus, ConditionType},
};

/// Lines of evidence that are given.
const EVIDENCE_MAX: usize = 6;
/// Longest line of evidence, in characters.
const EVIDENCE_CHARS: usize = 600;
/// A running operator processes a new job within seconds.
const UNTOUCHED: Duration = Duration::from_secs(15);

/// Why a job is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether it runs, waits or has ended.
    pub standing: Standing,
    /// For scripts.
    pub cause: Cause,
    /// For people: one sentence.
    pub sentence: String,
    /// What that is known from.
    pub evidence: Vec<Evidence>,
    /// What to do now.
    pub next: String,
}

/// One thing that supports an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Who says it, such as ``pod `j-worker-0` ``.
    pub from: String,
    /// What is said, in its own words.
    pub says: String,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It runs.
    Runs,
    /// It waits for something.
    Waits,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// Someone ended it.
    Stopped,
}

macro_rules! causes {
    ($(#[doc = $meaning:literal] $name:ident,)*) => {
        /// The cause, as a stable code. Codes are only ever added.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Cause { $(#[doc = $meaning] $name,)* }

        impl Cause {
            /// Every cause.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its code.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// What it means: the sentence above it in the list.
            #[cfg(test)]
            fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

causes! {
    /// Nothing keeps it from running.
    Running,
    /// It runs and is stalled: it has reported no step for much longer than steps took.
    Hanging,
    /// It runs with fewer workers than it wants.
    Degraded,
    /// It is done.
    Succeeded,
    /// It was stopped on this machine.
    Stopped,
    /// The process that ran it on this machine was killed.
    Interrupted,
    /// It is being deleted.
    BeingDeleted,
    /// Another controller owns it.
    ManagedElsewhere,
    /// Its spec cannot be run.
    InvalidSpec,
    /// Its status cannot be read.
    StatusUnreadable,
    /// No operator manages it.
    NoOperator,
    /// The operator crashed or panicked on it and has set it aside.
    SetAside,
    /// It is suspended.
    Suspended,
    /// Its pods would exceed a quota.
    QuotaExceeded,
    /// A quota asks for requests or limits that its pods do not state.
    QuotaNeedsLimits,
    /// An admission webhook denied its pods.
    WebhookDenied,
    /// An admission webhook does not respond.
    WebhookDown,
    /// Its pods violate the pod security standard of the namespace.
    PodSecurity,
    /// The operator lacks rights.
    Forbidden,
    /// Its service account is missing.
    ServiceAccountMissing,
    /// Another object has the name of one of its pods.
    NameTaken,
    /// The API server refused one of its objects for another reason.
    Refused,
    /// It failed quickly again and again, and pauses before the next attempt.
    Backoff,
    /// It failed, and its pods are kept for inspection.
    Held,
    /// Pods of an earlier attempt are still there.
    OldPods,
    /// A container cannot be created: a Secret, `ConfigMap` or key is missing, or its settings are wrong.
    ContainerConfig,
    /// An image cannot be pulled.
    ImagePull,
    /// A container keeps exiting and is restarted in place.
    CrashLoop,
    /// A volume cannot be mounted.
    VolumeMount,
    /// A volume claim is missing or not bound.
    VolumeClaim,
    /// A node does not respond.
    NodeSilent,
    /// Pods are held back by scheduling gates.
    Gated,
    /// The fabric that it names does not exist.
    FabricMissing,
    /// The runtime that it names does not exist.
    RuntimeMissing,
    /// Its nodes have not passed the preflight that it requires.
    Preflight,
    /// No node takes its pods.
    Unschedulable,
    /// The scheduler that its pods name has not processed them.
    NoScheduler,
    /// The launcher waits for its workers.
    WaitingForWorkers,
    /// Its pods are being started.
    Starting,
    /// The role that decides has no replicas.
    NothingToRun,
    /// A container ran out of memory.
    OutOfMemory,
    /// A container failed.
    ContainerFailed,
    /// Its pods were removed too often.
    PodsTaken,
    /// It was active for longer than its deadline.
    DeadlineExceeded,
    /// It failed, and nothing that is left shows why.
    Failed,
    /// It runs, and its loss or gradients are NaN or infinite.
    NotFinite,
}

/// Explains the facts.
pub fn explain(facts: &Facts) -> Answer {
    let steps: &[fn(&Facts) -> Option<Answer>] = &[
        ended::ended,
        job::being_deleted,
        job::managed_elsewhere,
        job::unreadable,
        job::invalid,
        job::no_operator,
        job::set_aside,
        job::suspended,
        refused::refused,
        job::backoff,
        pods::broken,
        job::old_pods,
        pods::waiting,
        job::by_status,
    ];
    let answer = steps.iter().find_map(|step| step(facts));
    bounded(answer.unwrap_or_else(|| job::runs(facts)))
}

fn bounded(mut answer: Answer) -> Answer {
    answer.evidence.truncate(EVIDENCE_MAX);
    for evidence in &mut answer.evidence {
        if evidence.says.chars().count() > EVIDENCE_CHARS {
            evidence.says = evidence.says.chars().take(EVIDENCE_CHARS).collect();
            evidence.says.push('…');
        }
    }
    answer
}

impl Answer {
    fn waits(cause: Cause, sentence: String, next: String) -> Self {
        Self {
            standing: Standing::Waits,
            cause,
            sentence,
            evidence: Vec::new(),
            next,
        }
    }

    fn because(mut self, from: impl Into<String>, says: impl Into<String>) -> Self {
        let (from, says) = (from.into(), says.into());
        if !says.is_empty() && !self.evidence.iter().any(|known| known.says == says) {
            self.evidence.push(Evidence { from, says });
        }
        self
    }

    fn because_concluded(self, verdict: &VerdictSummary) -> Self {
        let from = format!("verdict on attempt {}", verdict.attempt);
        let says = format!("{}; {}", verdict.headline(), verdict.weight());
        self.because(from, says)
    }

    fn because_of(self, event: &EventFacts) -> Self {
        let from = if event.pod.is_empty() {
            format!("event {}", event.reason)
        } else {
            format!("event {} of pod `{}`", event.reason, event.pod)
        };
        self.because(from, event.message.clone())
    }
}

impl Facts {
    fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions
            .find(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
    }

    /// A command of ours for this job.
    fn ours(&self, command: &str) -> String {
        format!("`{} {command} {}`", self.job.program, self.job.handle)
    }

    /// A command of `kubectl` in the job's namespace.
    fn kubectl(&self, command: &str) -> String {
        format!("`kubectl -n {} {command}`", self.job.namespace)
    }

    /// Whether it is a run of this machine.
    fn here(&self) -> bool {
        self.operator == Operator::Here
    }

    /// The pods of the current attempt.
    fn current(&self) -> impl Iterator<Item = &PodFacts> {
        let attempt = self.status.trainyard.attempt;
        // Without a status of ours (another operator's job) every pod counts.
        self.pods
            .iter()
            .filter(move |pod| attempt == 0 || pod.attempt == attempt)
    }

    fn since(&self, then: Option<Timestamp>) -> Duration {
        then.and_then(|then| Duration::try_from(self.now.duration_since(then)).ok())
            .unwrap_or_default()
    }
}

/// `1 pod`, `2 pods`.
fn pods_of(count: usize) -> String {
    format!("{count} pod{}", if count == 1 { "" } else { "s" })
}
