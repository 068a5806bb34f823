//! How far jobs are, and what it costs to know that.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use trainyard_core::{
    job::JobStatus,
    progress::{
        Track,
        rota::{Failure, Outcome},
    },
};

use crate::key::JobKey;

/// `job` would collide with the label that Prometheus gives to its targets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct NamedJob {
    pub(super) kind: &'static str,
    pub(super) job_namespace: String,
    pub(super) job_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Came {
    result: &'static str,
}

/// Gauges of jobs, which vanish with them, and a counter of reads.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    step: Family<NamedJob, Gauge<f64, AtomicU64>>,
    loss: Family<NamedJob, Gauge<f64, AtomicU64>>,
    last_step: Family<NamedJob, Gauge<f64, AtomicU64>>,
    checkpoint: Family<NamedJob, Gauge<f64, AtomicU64>>,
    saved: Family<NamedJob, Gauge<f64, AtomicU64>>,
    reads: Family<Came, Counter>,
    pushes: Family<Came, Counter>,
}

impl Progress {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "job_step",
            "The last step that the training program of a job reported",
            self.step.clone(),
        );
        registry.register(
            "job_loss",
            "The last loss that it reported; it can be NaN",
            self.loss.clone(),
        );
        registry.register(
            "job_last_step_timestamp_seconds",
            "When it reported its last step",
            self.last_step.clone(),
        );
        registry.register(
            "checkpoint_step",
            "The newest complete checkpoint of a job",
            self.checkpoint.clone(),
        );
        registry.register(
            "checkpoint_timestamp_seconds",
            "When it was saved, by the clocks of the ranks",
            self.saved.clone(),
        );
        registry.register(
            "progress_reads",
            "Reads of pod logs for the progress of jobs, by result",
            self.reads.clone(),
        );
        registry.register(
            "progress_pushes",
            "Updates that training programs sent about their progress, by result",
            self.pushes.clone(),
        );
    }

    /// A log was read, or not.
    pub(crate) fn read(&self, outcome: Outcome) {
        let result = match outcome {
            Outcome::Read(found) if found.step => "step",
            Outcome::Read(_) => "no_step",
            Outcome::Failed(Failure::Denied) => "denied",
            Outcome::Failed(Failure::Gone) => "gone",
            Outcome::Failed(Failure::Busy(_)) => "busy",
            Outcome::Failed(Failure::Unreachable) => "unreachable",
        };
        self.reads.get_or_create(&Came { result }).inc();
    }

    /// An update was taken, or refused.
    pub(crate) fn pushed(&self, result: &'static str) {
        self.pushes.get_or_create(&Came { result }).inc();
    }

    #[cfg(test)]
    pub(crate) fn pushed_so_far(&self, result: &'static str) -> u64 {
        self.pushes.get_or_create(&Came { result }).get()
    }

    /// How far a job is.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus knows no other numbers than doubles"
    )]
    pub(crate) fn of(&self, key: &JobKey, track: &Track) {
        let Some((step, at)) = track.step.zip(track.last_at) else {
            return;
        };
        let job = named(key);
        self.step.get_or_create(&job).set(step as f64);
        let seconds = at.as_millisecond() as f64 / 1_000.0;
        self.last_step.get_or_create(&job).set(seconds);
        if let Some((_, loss)) = track.loss {
            self.loss.get_or_create(&job).set(loss);
        }
    }

    /// The newest checkpoint of a job, as its status has it.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus knows no other numbers than doubles"
    )]
    pub(crate) fn checkpoint(&self, key: &JobKey, status: &JobStatus) {
        let job = named(key);
        let record = status.trainyard.checkpoint.as_ref();
        let newest = record.and_then(|record| record.newest.as_ref());
        let saved = newest.and_then(|newest| newest.saved_at);
        match newest {
            Some(newest) => {
                let gauge = self.checkpoint.get_or_create(&job);
                gauge.set(newest.step as f64);
            }
            None => {
                self.checkpoint.remove(&job);
            }
        }
        match saved {
            Some(at) => {
                let gauge = self.saved.get_or_create(&job);
                gauge.set(at.as_millisecond() as f64 / 1_000.0);
            }
            None => {
                self.saved.remove(&job);
            }
        }
    }

    /// A job is gone, or starts again.
    pub(crate) fn forget(&self, key: &JobKey) {
        let job = named(key);
        self.step.remove(&job);
        self.loss.remove(&job);
        self.last_step.remove(&job);
        self.checkpoint.remove(&job);
        self.saved.remove(&job);
    }

    pub(super) fn forget_all(&self) {
        self.step.clear();
        self.loss.clear();
        self.last_step.clear();
        self.checkpoint.clear();
        self.saved.clear();
    }
}

pub(super) fn named(key: &JobKey) -> NamedJob {
    NamedJob {
        kind: key.kind.name(),
        job_namespace: key.namespace.to_string(),
        job_name: key.name.to_string(),
    }
}
