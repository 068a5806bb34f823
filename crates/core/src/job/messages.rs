//! The sentences of the contract's conditions. Other software matches some of them.

use super::cause::Failure;
use crate::spec::{Job, Kind, Role};

/// `<Kind> <job>` or `<Kind> <ns>/<job>`: the old operators differ by kind, and with Master.
fn subject(job: &Job) -> String {
    let short = match job.kind {
        Kind::PyTorch | Kind::Paddle => job.roles.contains_key(&Role::Master),
        Kind::XgBoost | Kind::MpiV1 => true,
        Kind::Tf | Kind::Jax | Kind::MpiV2 => false,
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
pub(super) fn same_transport(job: &Job, before: u32, sentence: &str) -> String {
    format!(
        "Job {} has failed because attempts {before} and {} used the same transport: {sentence}",
        job.name,
        before.saturating_add(1)
    )
}

pub(super) fn failed(job: &Job, failure: &Failure, count: usize, permanent: bool) -> String {
    let (name, role) = (&job.name, failure.slot.role);
    if permanent {
        return format!("job \"{name}\" is failing because \"{role}\" replica(s) failed.");
    }
    match job.kind {
        Kind::Tf => format!(
            "TFJob {}/{name} has failed because {count} {role} replica(s) failed.",
            job.namespace
        ),
        kind => format!("{kind} {name} is failed because {count} {role} replica(s) failed."),
    }
}

pub(super) fn ended_early(job: &Job, count: u32) -> String {
    format!(
        "{} {} is failed because {count} {} replica(s) ended before the {} started.",
        job.kind,
        job.name,
        Role::Worker,
        Role::Launcher
    )
}

pub(super) fn deadline(job: &Job) -> String {
    format!(
        "Job {} has failed because it was active longer than specified deadline",
        job.name
    )
}
