//! What a training program is given about its checkpoints: where they are, which attempt it is, and which step is the newest complete one.
//!
//! Invariant: what is not known is not given. A program that finds no step looks into the folder itself.

use k8s_openapi::api::core::v1::{EnvVar, PodSpec};

use super::{
    agent::variable_name::ATTEMPT,
    env::{append, variable},
};
use crate::{job::JobRecord, spec::Job};

/// The variables of a training program.
pub mod variable_name {
    /// The folder, as the container sees it: the annotation `trainyard.dev/checkpoints`.
    pub const CHECKPOINTS: &str = "TRAINYARD_CHECKPOINTS";
    /// The uid of the job, on a cluster: there the attempt is the job's own number, and a job that is created again counts from 1.
    pub const JOB_UID: &str = "TRAINYARD_JOB_UID";
    /// The newest complete step when the attempt began, in decimal. Not set where none is known.
    pub const RESUME_STEP: &str = "TRAINYARD_RESUME_STEP";
}

/// Who counts the attempts that a program is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Not known: the program is given none, and takes the next one.
    #[default]
    Unknown,
    /// The store, which had so many before those of the job.
    Store(u32),
    /// The job. Its uid is given as well, so that the program can count on from what the store has.
    Job,
}

/// Where an attempt starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartPoint {
    /// Who counts its number.
    pub counting: Counting,
    /// The newest complete step, where one is known.
    pub step: Option<u64>,
}

impl StartPoint {
    /// Of a job about whose store nothing is known: its attempts are the only ones.
    pub const NOTHING_SEEN: Self = Self {
        counting: Counting::Store(0),
        step: None,
    };

    /// What the status says about `attempt`, where the store was read before its first one.
    pub fn of(job: &JobRecord, attempt: u32) -> Self {
        let Some(record) = &job.checkpoint else {
            return Self::NOTHING_SEEN;
        };
        Self {
            counting: (record.earlier_attempts).map_or(Counting::Unknown, Counting::Store),
            step: step(job, attempt),
        }
    }

    /// The same on a cluster, where nobody can read the store before there are pods.
    pub fn on_cluster(job: &JobRecord, attempt: u32) -> Self {
        Self {
            counting: Counting::Job,
            step: step(job, attempt),
        }
    }

    /// Adds the variables of `attempt` to the containers of a pod. One that has a variable for the attempt from elsewhere keeps that.
    pub(super) fn give(self, job: &Job, attempt: u32, has_attempt: bool, spec: &mut PodSpec) {
        let Some(path) = &job.settings.checkpoints else {
            return;
        };
        let number = match self.counting {
            Counting::Unknown => None,
            Counting::Store(earlier) => earlier.checked_add(attempt),
            Counting::Job => Some(attempt),
        };
        let number = number.filter(|_| !has_attempt);
        let uid = (job.uid.as_ref()).filter(|_| self.counting == Counting::Job);
        let variables: Vec<EnvVar> = [
            Some(variable(variable_name::CHECKPOINTS, path)),
            number.map(|number| variable(ATTEMPT, number.to_string())),
            uid.map(|uid| variable(variable_name::JOB_UID, uid)),
            self.step
                .map(|step| variable(variable_name::RESUME_STEP, step.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect();
        for container in &mut spec.containers {
            append(container, variables.iter().cloned());
        }
    }
}

/// The step that pods of `attempt` are given. Of another attempt than the record is about, none is known. Pods that join a restart in place are given
/// none: the programs beside them are given none either, and ranks must not start from different steps.
fn step(job: &JobRecord, attempt: u32) -> Option<u64> {
    let record = job.checkpoint.as_ref()?;
    let is_new = record.attempt == attempt && job.barrier.is_none();
    record.resume_step.filter(|_| is_new)
}
