//! The alerts: few, and each with something to do.
//!
//! Alerts about jobs need series that only a leader shows now, so they are silent while no operator leads: [`super::render::tests`] tries
//! that of each one. What is judged over hours is a counter, whose increase survives a change of the leader.

mod jobs;
mod operator;

use super::{Alert, Case, Fired, Group, Severity};

/// The labels that name a job.
const JOB: &str = "kind, job_namespace, job_name";
/// The labels of the job in the cases.
const PRETRAIN: &[(&str, &str)] = &[
    ("kind", "PyTorchJob"),
    ("job_namespace", "team-a"),
    ("job_name", "pretrain"),
];

/// All of them, those about the operator first.
pub(super) fn alerts() -> Vec<Alert> {
    let mut all = operator::operator();
    all.extend(operator::troubled());
    all.extend(jobs::jobs());
    all.extend(jobs::hours());
    all
}
