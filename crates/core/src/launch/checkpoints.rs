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
    /// The newest complete step when the attempt began, in decimal. Not set where none is known.
    pub const RESUME_STEP: &str = "TRAINYARD_RESUME_STEP";
}

/// Where an attempt starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartPoint {
    /// How many attempts the store had before those of the job; nothing where that is not known.
    pub earlier_attempts: Option<u32>,
    /// The newest complete step, where one is known.
    pub step: Option<u64>,
}

impl StartPoint {
    /// Of a job about whose store nothing is known: its attempts are the only ones.
    pub const NOTHING_SEEN: Self = Self {
        earlier_attempts: Some(0),
        step: None,
    };

    /// What the status says about `attempt`. Of another attempt than the record is about, no step is known. Pods that join a restart in place
    /// are given none: the programs beside them are given none either, and ranks must not start from different steps.
    pub fn of(job: &JobRecord, attempt: u32) -> Self {
        let in_place = job.barrier.is_some();
        (job.checkpoint.as_ref()).map_or(Self::NOTHING_SEEN, |record| Self {
            earlier_attempts: record.earlier_attempts,
            step: (record.resume_step).filter(|_| record.attempt == attempt && !in_place),
        })
    }

    /// Adds the variables of `attempt` to the containers of a pod. One that has a variable for the attempt from elsewhere keeps that.
    pub(super) fn give(self, job: &Job, attempt: u32, has_attempt: bool, spec: &mut PodSpec) {
        let Some(path) = &job.settings.checkpoints else {
            return;
        };
        let number = self.earlier_attempts.filter(|_| !has_attempt);
        let number = number.and_then(|earlier| earlier.checked_add(attempt));
        let variables: Vec<EnvVar> = [
            Some(variable(variable_name::CHECKPOINTS, path)),
            number.map(|number| variable(ATTEMPT, number.to_string())),
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
