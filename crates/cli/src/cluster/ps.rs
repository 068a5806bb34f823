//! `trainyard ps --cluster`.

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use trainyard_kube::look::JobSeen;

use super::{connect, refused, status::last_step};
use crate::{
    args::{Format, Ps},
    command::{ps::columns, status::since},
    failure::{Exit, Failure},
    printer::Printer,
    words,
};

/// The JSON form, with the fields of a local run that mean the same. Documented in
/// `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct List<'a> {
    version: u32,
    runs: Vec<Entry<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    job: &'a str,
    kind: &'static str,
    namespace: &'a str,
    uid: &'a str,
    state: &'static str,
    live: bool,
    attempts: u32,
    pods: u32,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    last_step: Option<u64>,
}

impl<'a> Entry<'a> {
    fn new(job: &'a JobSeen) -> Self {
        Self {
            job: &job.key.name,
            kind: job.kind().name(),
            namespace: &job.key.namespace,
            uid: &job.uid,
            state: job.state(),
            live: !job.has_ended(),
            attempts: job.status.trainyard.attempt,
            pods: job.pods(),
            started_at: job.status.start_time.or(job.created_at),
            ended_at: job.status.completion_time,
            last_step: last_step(job),
        }
    }
}

/// Prints the list.
pub(crate) fn run(args: &Ps, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = connect(&args.place)?;
    let namespace = (!args.all_namespaces).then_some(site.namespace.as_str());
    let jobs = site.look.jobs(namespace).map_err(refused)?;
    match args.format {
        Format::Json => {
            let list = List {
                version: 1,
                runs: jobs.iter().map(Entry::new).collect(),
            };
            let mut json =
                serde_json::to_vec_pretty(&list).context("cannot write the list as JSON")?;
            json.push(b'\n');
            printer.data(&json)?;
        }
        Format::Text if jobs.is_empty() => printer.summary(&match namespace {
            Some(namespace) => format!(
                "no jobs in namespace `{namespace}`; `{} ps -A` lists all namespaces",
                site.program()
            ),
            None => "no jobs in the cluster".to_owned(),
        }),
        Format::Text => {
            let text = table(&jobs, args.all_namespaces, Timestamp::now());
            printer.data(text.as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

fn table(jobs: &[JobSeen], with_namespace: bool, now: Timestamp) -> String {
    let mut heads = vec!["JOB", "KIND", "STATE", "ATTEMPTS", "PODS", "AGE", "STEP"];
    if with_namespace {
        heads.insert(0, "NAMESPACE");
    }
    let mut rows = vec![heads.iter().map(|head| (*head).to_owned()).collect()];
    rows.extend(jobs.iter().map(|job| {
        let age = job
            .created_at
            .map_or("-".to_owned(), |at| words::age(since(at, now)));
        let step = last_step(job);
        let mut row = vec![
            job.key.name.to_string(),
            job.kind().name().to_owned(),
            job.state().to_owned(),
            job.status.trainyard.attempt.to_string(),
            job.pods().to_string(),
            age,
            step.map_or("-".to_owned(), words::grouped),
        ];
        if with_namespace {
            row.insert(0, job.key.namespace.to_string());
        }
        row
    }));
    columns(&rows)
}
