//! A job of a cluster as `ps` and `status` report it.

use jiff::Timestamp;
use trainyard_core::spec::Job;
use trainyard_kube::look::{JobSeen, PodSeen};

use super::Site;
use crate::{
    clean,
    job_report::{JobReport, JobRow, Origin, Placed, budget, checkpoint_step},
};

/// The entry of `ps`.
pub(crate) fn row(job: &JobSeen) -> JobRow {
    let record = &job.status.trainyard;
    let reported = record.progress.as_ref();
    let step = reported.map(|reported| reported.step);
    JobRow {
        job: job.key.name.to_string(),
        kind: job.kind().name().to_owned(),
        namespace: job.key.namespace.to_string(),
        origin: Origin::Cluster {
            uid: job.uid.clone(),
        },
        state: job.state(),
        live: !job.has_ended(),
        attempts: record.attempt,
        pods: job.pods(),
        created_at: job.created_at,
        started_at: job.status.start_time.or(job.created_at),
        ended_at: job.status.completion_time,
        last_step: step.max(record.ledger.best_step),
        last_loss: reported.and_then(|reported| Some(reported.loss?.0)),
        attempt_step: record.attempt_progress().map(|reported| reported.step),
        checkpoint_step: checkpoint_step(&job.status),
    }
}

impl Site<'_> {
    /// The answer of `status` for the job that `word` means.
    pub(crate) fn report(
        &self,
        word: &str,
        job: &JobSeen,
        pods: &[PodSeen],
        now: Timestamp,
    ) -> JobReport {
        let places = pods.iter().map(placed).collect();
        report(job, places, &self.command("explain", word), now)
    }
}

/// The answer of `status` for a job whose pods are at `places`; `explain` is the command that prints more.
pub(crate) fn report(
    job: &JobSeen,
    places: Vec<Placed>,
    explain: &str,
    now: Timestamp,
) -> JobReport {
    let row = row(job);
    let record = &job.status.trainyard;
    // The clock of the ledger stops with the job.
    let until = row.ended_at.unwrap_or(now);
    let invalid = job.errors.first();
    let notes = [
        (
            "unreadable",
            job.unreadable.as_ref().map(ToString::to_string),
        ),
        (
            "invalid",
            invalid.map(|first| format!("{}: {}", first.code, first.message)),
        ),
        ("managed by", job.manager().map(str::to_owned)),
    ];
    let notes = notes.into_iter();
    JobReport {
        budget: budget(&job.status, &job.limits()),
        progress: record.progress.clone(),
        stalled: record.stall(now).filter(|_| row.live),
        ledger: record.ledger.totals(until),
        timeline: record.ledger.spans(until),
        trained_ratio: record.ledger.ettr(until),
        failures: None,
        places: Some(places),
        status: job.status.clone(),
        replicas: job.job.as_ref().map(Job::replicas).unwrap_or_default(),
        limits: job.limits(),
        notes: notes
            .filter_map(|(heading, text)| Some((heading, clean::text(&text?))))
            .collect(),
        more: vec![
            ("namespace", row.namespace.clone()),
            ("why", format!("`{explain}`")),
        ],
        row,
    }
}

fn placed(pod: &PodSeen) -> Placed {
    let facts = &pod.facts;
    Placed {
        pod: facts.name.clone(),
        attempt: facts.attempt,
        phase: format!("{:?}", facts.phase),
        node: facts.node.clone(),
        terminating: facts.deleted_at.is_some(),
    }
}
