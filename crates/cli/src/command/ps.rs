//! `trainyard ps`: what runs and ran here.

use std::{cmp::Reverse, path::Path, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    args::{Format, Ps},
    cluster,
    failure::{Exit, Failure},
    printer::Printer,
    stored::{self, Stored},
    words,
};

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct List<'a> {
    version: u32,
    runs: Vec<Entry<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    job: &'a str,
    kind: &'a str,
    namespace: &'a str,
    run_id: &'a str,
    state: &'static str,
    live: bool,
    attempts: u32,
    pods: u32,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    last_step: Option<u64>,
    last_loss: Option<f64>,
    attempt_step: Option<u64>,
    folder: &'a Path,
}

impl<'a> Entry<'a> {
    fn new(run: &'a Stored) -> Self {
        Self {
            job: &run.record.name,
            kind: &run.record.kind,
            namespace: &run.record.namespace,
            run_id: &run.folder.id,
            state: run.state(),
            live: run.live,
            attempts: run.attempts(),
            pods: run.pods(),
            started_at: run.record.started_at,
            ended_at: run.ended_at(),
            last_step: run.last_step(),
            last_loss: run.last_loss(),
            attempt_step: run.attempt_progress().map(|told| told.step),
            folder: &run.folder.path,
        }
    }
}

/// Prints the list. A run that cannot be read is told and makes the exit code 2; the others are
/// listed all the same.
pub(super) fn run(args: &Ps, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.all_namespaces || args.place.is_cluster() {
        return cluster::ps::run(args, printer);
    }
    let store = stored::open(&args.state)?;
    let mut runs = Vec::new();
    let mut exit = Exit::Done;
    for job in store.jobs().map_err(stored::refused)? {
        let folders = store.runs(&job).map_err(stored::refused)?;
        let shown = if args.all { folders.len() } else { 1 };
        for folder in folders.into_iter().rev().take(shown) {
            match Stored::read(folder) {
                Ok(run) => runs.push(run),
                Err(error) => {
                    printer.error(&stored::refused(error));
                    exit = Exit::CouldNot;
                }
            }
        }
    }
    runs.sort_by_key(|run| Reverse(run.record.started_at));
    match args.format {
        Format::Json => {
            let list = List {
                version: 1,
                runs: runs.iter().map(Entry::new).collect(),
            };
            let mut json =
                serde_json::to_vec_pretty(&list).context("cannot write the list as JSON")?;
            json.push(b'\n');
            printer.data(&json)?;
        }
        Format::Text if runs.is_empty() => {
            if exit == Exit::Done {
                let root = store.root().display();
                printer.summary(&format!(
                    "nothing ran here yet: `{root}` holds no run; `trainyard run FILE` starts one"
                ));
            }
        }
        Format::Text => printer.data(table(&runs, args.all, Timestamp::now()).as_bytes())?,
    }
    Ok(exit)
}

fn table(runs: &[Stored], all: bool, now: Timestamp) -> String {
    let mut heads = vec![
        "JOB", "KIND", "STATE", "ATTEMPTS", "PODS", "AGE", "STEP", "LOSS",
    ];
    if all {
        heads.push("RUN");
    }
    let mut rows = vec![heads.iter().map(|head| (*head).to_owned()).collect()];
    rows.extend(runs.iter().map(|run| {
        let age: Duration = now
            .duration_since(run.record.started_at)
            .try_into()
            .unwrap_or_default();
        // While a run goes on, what its attempt has not done again yet does not count.
        let (step, loss) = match run.attempt_progress() {
            _ if run.report.is_some() => (run.last_step(), run.last_loss()),
            Some(told) => (Some(told.step), told.loss),
            None => (None, None),
        };
        let step = step.map_or("-".to_owned(), words::grouped);
        let loss = loss.map_or("-".to_owned(), words::loss);
        let mut row = vec![
            run.record.name.clone(),
            run.record.kind.clone(),
            run.state().to_owned(),
            run.attempts().to_string(),
            run.pods().to_string(),
            words::age(age),
            step,
            loss,
        ];
        if all {
            row.push(run.folder.id.clone());
        }
        row
    }));
    columns(&rows)
}

/// Rows with their cells under each other, three spaces apart.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let widest = rows
                .iter()
                .filter_map(|row| row.get(at))
                .map(|cell| cell.chars().count());
            let pad = widest.max().unwrap_or(0) + 3 - cell.chars().count();
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', pad));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
