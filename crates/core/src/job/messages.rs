//! The sentences of the contract's conditions. Other software matches some of them.

use super::{FailedBy, cause::Failure};
use crate::spec::{Job, Kind, Role};

/// Why a job fails, and the sentence of its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fails {
    pub(super) by: FailedBy,
    pub(super) message: String,
}

impl Fails {
    pub(super) fn new(by: FailedBy, message: String) -> Self {
        Self { by, message }
    }
}

/// `<Kind> <job>` or `<Kind> <ns>/<job>`: the old operators differ by kind, and with Master.
fn subject(job: &Job) -> String {
    let short = match job.kind {
        Kind::PyTorch | Kind::Paddle => job.roles.contains_key(&Role::Master),
        Kind::XgBoost | Kind::MpiV1 => true,
        Kind::Tf | Kind::Jax | Kind::MpiV2 | Kind::Train => false,
    };
    if short {
        format!("{} {}", job.kind, job.name)
    } else {
        format!("{} {}/{}", job.kind, job.namespace, job.name)
    }
}

pub(super) fn created(job: &Job) -> String {
    match job.kind {
        Kind::MpiV2 => format!("{} is created.", subject(job)),
        kind => format!("{kind} {} is created.", job.name),
    }
}

pub(super) fn running(job: &Job) -> String {
    format!("{} is running.", subject(job))
}

pub(super) fn succeeded(job: &Job) -> String {
    let subject = subject(job);
    if subject.contains('/') {
        format!("{subject} successfully completed.")
    } else {
        format!("{subject} is successfully completed.")
    }
}

pub(super) fn suspended(job: &Job) -> String {
    match job.kind {
        Kind::MpiV2 => "MPIJob suspended".to_owned(),
        kind => format!("{kind} {} is suspended.", job.name),
    }
}

pub(super) fn resumed(job: &Job) -> String {
    match job.kind {
        Kind::MpiV2 => "MPIJob resumed".to_owned(),
        kind => format!("{kind} {} is resumed.", job.name),
    }
}

pub(super) fn restarting(job: &Job, failure: &Failure) -> String {
    format!(
        "job {} is restarting because {} replica(s) failed.",
        job.name, failure.slot.role
    )
}

pub(super) fn resized(job: &Job) -> String {
    format!(
        "{} {} is restarting because its replicas changed.",
        job.kind, job.name
    )
}

pub(super) fn asked_to_restart(job: &Job) -> String {
    format!(
        "{} {} is restarting because it was asked to.",
        job.kind, job.name
    )
}

pub(super) fn other_transport(job: &Job) -> String {
    format!(
        "{} {} is restarting because its ranks do not use the transport that it requires.",
        job.kind, job.name
    )
}

/// The sentence with which a job fails whose ranks used the same wrong transport in the attempt `before`, too.
pub(super) fn same_transport(job: &Job, before: u32, sentence: &str) -> Fails {
    let message = format!(
        "Job {} has failed because attempts {before} and {} used the same transport: {sentence}",
        job.name,
        before.saturating_add(1)
    );
    Fails::new(FailedBy::SameTransport, message)
}

pub(super) fn failed(job: &Job, failure: &Failure, count: usize, permanent: bool) -> Fails {
    let (name, role) = (&job.name, failure.slot.role);
    let message = match job.kind {
        _ if permanent => {
            format!("job \"{name}\" is failing because \"{role}\" replica(s) failed.")
        }
        Kind::Tf => format!(
            "TFJob {}/{name} has failed because {count} {role} replica(s) failed.",
            job.namespace
        ),
        kind => format!("{kind} {name} is failed because {count} {role} replica(s) failed."),
    };
    Fails::new(FailedBy::PodsFailed, message)
}

pub(super) fn ended_early(job: &Job, count: u32) -> Fails {
    let message = format!(
        "{} {} is failed because {count} {} replica(s) ended before the {} started.",
        job.kind,
        job.name,
        Role::Worker,
        Role::Launcher
    );
    Fails::new(FailedBy::WorkersEndedEarly, message)
}

pub(super) fn deadline(job: &Job) -> Fails {
    let message = format!(
        "Job {} has failed because it was active longer than specified deadline",
        job.name
    );
    Fails::new(FailedBy::DeadlineExceeded, message)
}
