//! What is counted, under the names that dashboards of the old operator already ask for, and ours.
//!
//! Invariant: no label takes a value that grows without bound while a job runs; jobs are named only
//! in gauges that vanish with them.

mod live;
#[cfg(test)]
mod page;
mod progress;
mod trust;

use std::{fmt, sync::Mutex, time::Duration};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use trainyard_core::{
    job::{Account, ConditionStatus, ConditionType, JobStatus},
    probe::Outcome,
    spec::Kind,
};

pub(crate) use self::live::JobInfo;
use self::{live::Live, progress::Progress, trust::Trust};
use crate::{key::JobKey, serve::Traffic};

/// Why something was refused, as the metric names it.
pub(crate) mod cause {
    /// Somebody else has the name.
    pub(crate) const NAME_TAKEN: &str = "name_taken";
    /// The API server, a webhook or a quota said no.
    pub(crate) const API_SERVER: &str = "api_server";
    /// The pods of the job cannot be built for this cluster.
    pub(crate) const LAUNCH: &str = "launch";
    /// The job names the operator's own account.
    pub(crate) const OPERATOR_ACCOUNT: &str = "operator_account";
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfJobs {
    job_namespace: String,
    framework: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    resource: String,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Paid {
    account: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Spent {
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OneJob {
    kind: &'static str,
    job_namespace: String,
    job: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Measured {
    node: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OneFeed {
    feed: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Differs {
    framework: &'static str,
    object: String,
}

/// All counters of an operator.
pub struct Metrics {
    registry: Mutex<Registry>,
    created: Family<OfJobs, Counter>,
    deleted: Family<OfJobs, Counter>,
    successful: Family<OfJobs, Counter>,
    failed: Family<OfJobs, Counter>,
    restarted: Family<OfJobs, Counter>,
    calls: Family<Call, Counter>,
    passes: Family<Ended, Counter>,
    refusals: Family<Refused, Counter>,
    pass_seconds: Histogram,
    placement_seconds: Histogram,
    gangs_waiting: Gauge,
    preemptions_refused: Counter,
    preflights: Family<Ended, Counter>,
    node_preflight: Family<Measured, Gauge>,
    nodes_on_probation: Gauge,
    /// What is not believed, and what is tried because of it.
    pub(crate) trust: Trust,
    /// How far jobs are.
    pub(crate) progress: Progress,
    /// What they do now, and where their time went.
    pub(crate) live: Live,
    attempts: Family<Paid, Counter>,
    phase_seconds: Family<Spent, Counter<f64, std::sync::atomic::AtomicU64>>,
    training_ratio: Family<OneJob, Gauge<f64, std::sync::atomic::AtomicU64>>,
    differences: Family<Differs, Counter>,
    unreadable: Family<OneJob, Gauge>,
    panics: Counter,
    set_aside: Family<OneJob, Gauge>,
    queued: Gauge,
    jobs: Gauge,
    pods: Gauge,
    leads: Gauge,
    watch_age: Family<OneFeed, Gauge<f64, std::sync::atomic::AtomicU64>>,
    undecodable: Family<OneFeed, Counter>,
    traffic: Traffic,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Mutex::default(),
            created: Family::default(),
            deleted: Family::default(),
            successful: Family::default(),
            failed: Family::default(),
            restarted: Family::default(),
            calls: Family::default(),
            passes: Family::default(),
            refusals: Family::default(),
            pass_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            placement_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            gangs_waiting: Gauge::default(),
            preemptions_refused: Counter::default(),
            preflights: Family::default(),
            node_preflight: Family::default(),
            nodes_on_probation: Gauge::default(),
            trust: Trust::default(),
            progress: Progress::default(),
            live: Live::default(),
            attempts: Family::default(),
            phase_seconds: Family::default(),
            training_ratio: Family::default(),
            differences: Family::default(),
            unreadable: Family::default(),
            panics: Counter::default(),
            set_aside: Family::default(),
            queued: Gauge::default(),
            jobs: Gauge::default(),
            pods: Gauge::default(),
            leads: Gauge::default(),
            watch_age: Family::default(),
            undecodable: Family::default(),
            traffic: Traffic::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let mut registry = Registry::default();
        let old = registry.sub_registry_with_prefix("training_operator_jobs");
        old.register(
            "created",
            "Jobs seen for the first time",
            self.created.clone(),
        );
        old.register(
            "deleted",
            "Jobs deleted after their time to live",
            self.deleted.clone(),
        );
        old.register("successful", "Jobs that succeeded", self.successful.clone());
        old.register("failed", "Jobs that failed", self.failed.clone());
        old.register("restarted", "Restarts of jobs", self.restarted.clone());
        let own = registry.sub_registry_with_prefix("trainyard");
        own.register("api_calls", "Calls to the API server", self.calls.clone());
        own.register(
            "passes",
            "Passes over jobs, by how they ended",
            self.passes.clone(),
        );
        own.register(
            "refusals",
            "Objects of jobs that could not be created or changed, and jobs refused as a whole, by cause",
            self.refusals.clone(),
        );
        own.register(
            "pass_seconds",
            "Seconds of one pass",
            self.pass_seconds.clone(),
        );
        own.register(
            "placement_seconds",
            "Seconds to process the wait queue once",
            self.placement_seconds.clone(),
        );
        own.register(
            "gangs_waiting",
            "Gangs that wait for nodes",
            self.gangs_waiting.clone(),
        );
        own.register(
            "preemptions_refused",
            "Gangs that would have evicted others if `--preemption` allowed it",
            self.preemptions_refused.clone(),
        );
        own.register(
            "preflights",
            "Preflights of gangs, by outcome",
            self.preflights.clone(),
        );
        own.register(
            "node_preflight",
            "1 for the outcome of the last preflight of a node, while it is valid",
            self.node_preflight.clone(),
        );
        own.register(
            "nodes_on_probation",
            "Nodes that failed a preflight and have not passed one since",
            self.nodes_on_probation.clone(),
        );
        self.trust.register(own);
        self.progress.register(own);
        self.live.register(own);
        own.register(
            "attempts",
            "Attempts that failed, by account",
            self.attempts.clone(),
        );
        own.register(
            "phase_seconds",
            "Seconds of ended jobs, by phase",
            self.phase_seconds.clone(),
        );
        own.register(
            "training_time_ratio",
            "Part of a job's wall time spent training (ETTR)",
            self.training_ratio.clone(),
        );
        own.register(
            "shadow_differences",
            "Objects that an operator in shadow would have created differently, by type",
            self.differences.clone(),
        );
        own.register(
            "job_status_unreadable",
            "1 for a job that is not processed because its status cannot be read",
            self.unreadable.clone(),
        );
        own.register(
            "pass_panics",
            "Passes over jobs that panicked",
            self.panics.clone(),
        );
        own.register(
            "job_set_aside",
            "1 for a job that is not processed because the operator crashed or panicked on it",
            self.set_aside.clone(),
        );
        own.register(
            "queue_length",
            "Jobs in the work queue",
            self.queued.clone(),
        );
        own.register("jobs", "Jobs in the cache", self.jobs.clone());
        own.register("pods", "Pods in the cache", self.pods.clone());
        own.register("leader", "1 while this operator leads", self.leads.clone());
        own.register(
            "watch_age_seconds",
            "Seconds since the last sign of life of each watch",
            self.watch_age.clone(),
        );
        own.register(
            "undecodable_objects",
            "Objects that could not be decoded and were left out, by watch",
            self.undecodable.clone(),
        );
        self.traffic.register(own);
        own.register(
            "webhook_reviews_waiting",
            "Reviews that wait for others to finish",
            self.traffic.waiting(),
        );
        self.registry = Mutex::new(registry);
    }

    /// What the operator's servers count.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// All of it, in the form of `OpenMetrics`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self
            .registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        encode(&mut text, &registry).expect("a string takes whatever is written");
        text
    }

    pub(crate) fn called(&self, verb: &'static str, resource: &str, code: u16) {
        let call = Call {
            verb,
            resource: resource.to_owned(),
            code,
        };
        self.calls.get_or_create(&call).inc();
    }

    /// Something was refused; see [`cause`].
    pub(crate) fn refused(&self, cause: &'static str) {
        self.refusals.get_or_create(&Refused { cause }).inc();
    }

    pub(crate) fn passed(&self, outcome: &'static str, took: Duration) {
        self.passes.get_or_create(&Ended { outcome }).inc();
        self.pass_seconds.observe(took.as_secs_f64());
    }

    /// The wait queue was processed.
    pub(crate) fn placed(&self, took: Duration, waiting: usize) {
        self.placement_seconds.observe(took.as_secs_f64());
        self.gangs_waiting
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// The scope of preemption keeps a gang waiting.
    pub(crate) fn preemption_refused(&self) {
        self.preemptions_refused.inc();
    }

    pub(crate) fn sizes(&self, queued: usize, jobs: usize, pods: usize, leads: bool) {
        let number = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
        self.queued.set(number(queued));
        self.jobs.set(number(jobs));
        self.pods.set(number(pods));
        self.leads.set(i64::from(leads));
    }

    /// How old a watch is.
    pub(crate) fn watch_age(&self, feed: &str, age: Duration) {
        let feed = feed.to_owned();
        let gauge = self.watch_age.get_or_create(&OneFeed { feed });
        gauge.set(age.as_secs_f64());
    }

    /// An object of a watch was left out.
    pub(crate) fn undecodable(&self, feed: &str) {
        let feed = feed.to_owned();
        self.undecodable.get_or_create(&OneFeed { feed }).inc();
    }

    /// A preflight of a gang has ended.
    pub(crate) fn preflight_ended(&self, outcome: &'static str) {
        self.preflights.get_or_create(&Ended { outcome }).inc();
    }

    /// What is known of nodes now. There are no more of them than nodes.
    pub(crate) fn measured(
        &self,
        nodes: impl IntoIterator<Item = (String, Outcome)>,
        on_probation: usize,
    ) {
        self.node_preflight.clear();
        for (node, outcome) in nodes {
            let outcome = match outcome {
                Outcome::Pass | Outcome::NotApplicable => "pass",
                Outcome::Warn => "warn",
                Outcome::Fail => "fail",
            };
            let measured = Measured { node, outcome };
            self.node_preflight.get_or_create(&measured).set(1);
        }
        self.nodes_on_probation
            .set(i64::try_from(on_probation).unwrap_or(i64::MAX));
    }

    pub(crate) fn ttl_deleted(&self, key: &JobKey) {
        self.deleted.get_or_create(&of(key)).inc();
    }

    /// Counts what one written status changed.
    pub(crate) fn changed(
        &self,
        key: &JobKey,
        before: &JobStatus,
        after: &JobStatus,
        now: Timestamp,
    ) {
        if before.conditions.is_empty() && !after.conditions.is_empty() {
            self.created.get_or_create(&of(key)).inc();
        }
        let turned = |kind: ConditionType| holds(after, kind) && !holds(before, kind);
        if turned(ConditionType::Succeeded) {
            self.successful.get_or_create(&of(key)).inc();
        }
        if turned(ConditionType::Failed) {
            self.failed.get_or_create(&of(key)).inc();
        }
        if after.trainyard.attempt > before.trainyard.attempt && before.trainyard.attempt > 0 {
            self.restarted.get_or_create(&of(key)).inc();
        }
        let (old, new) = (&before.trainyard.spent, &after.trainyard.spent);
        for (account, old, new) in [
            (Account::User, old.user, new.user),
            (Account::Platform, old.platform, new.platform),
            (
                Account::Infrastructure,
                old.infrastructure,
                new.infrastructure,
            ),
            (Account::Preemption, old.preemption, new.preemption),
        ] {
            let more = u64::from(new.saturating_sub(old));
            if more > 0 {
                self.attempts
                    .get_or_create(&Paid {
                        account: name(account),
                    })
                    .inc_by(more);
            }
        }
        let ledger = &after.trainyard.ledger;
        if ledger.ended.is_some() && before.trainyard.ledger.ended.is_none() {
            for (phase, millis) in ledger.totals(now) {
                let seconds = Duration::from_millis(millis).as_secs_f64();
                let phase = format!("{phase:?}").to_lowercase();
                self.phase_seconds
                    .get_or_create(&Spent { phase })
                    .inc_by(seconds);
            }
        }
        if let Some(ratio) = ledger.ettr(now) {
            self.training_ratio.get_or_create(&one(key)).set(ratio);
        }
    }

    /// Something of a job would have been made otherwise.
    pub(crate) fn differs(&self, key: &JobKey, object: &str) {
        let differs = Differs {
            framework: framework(key.kind),
            object: object.to_owned(),
        };
        self.differences.get_or_create(&differs).inc();
    }

    /// Whether the status of a job can be read.
    pub(crate) fn readable(&self, key: &JobKey, readable: bool) {
        mark(&self.unreadable, key, !readable);
    }

    /// A pass panicked.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// Whether a job is set aside.
    pub(crate) fn set_aside(&self, key: &JobKey, set_aside: bool) {
        mark(&self.set_aside, key, set_aside);
    }

    /// A job is gone, and its gauges with it.
    pub(crate) fn forget(&self, key: &JobKey) {
        self.training_ratio.remove(&one(key));
        self.progress.forget(key);
        self.live.forget(key);
        self.readable(key, true);
        self.set_aside(key, false);
    }

    /// Another operator reports the jobs from now on.
    pub(crate) fn forget_jobs(&self) {
        self.training_ratio.clear();
        self.progress.forget_all();
        self.live.forget_all();
        self.unreadable.clear();
        self.set_aside.clear();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// A gauge that is 1 for the jobs of which something holds, and has no other jobs.
fn mark(family: &Family<OneJob, Gauge>, key: &JobKey, holds: bool) {
    if holds {
        family.get_or_create(&one(key)).set(1);
    } else {
        family.remove(&one(key));
    }
}

fn of(key: &JobKey) -> OfJobs {
    OfJobs {
        job_namespace: key.namespace.to_string(),
        framework: framework(key.kind),
    }
}

fn one(key: &JobKey) -> OneJob {
    OneJob {
        kind: key.kind.name(),
        job_namespace: key.namespace.to_string(),
        job: key.name.to_string(),
    }
}

fn framework(kind: Kind) -> &'static str {
    match kind {
        Kind::PyTorch => "pytorch",
        Kind::Tf => "tensorflow",
        Kind::XgBoost => "xgboost",
        Kind::Paddle => "paddle",
        Kind::Jax => "jax",
        Kind::Train => "trainer",
        Kind::MpiV1 | Kind::MpiV2 => "mpi",
    }
}

fn name(account: Account) -> &'static str {
    match account {
        Account::User => "user",
        Account::Platform => "platform",
        Account::Infrastructure => "infrastructure",
        Account::Preemption => "preemption",
    }
}

fn holds(status: &JobStatus, kind: ConditionType) -> bool {
    status
        .conditions
        .iter()
        .any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
}
