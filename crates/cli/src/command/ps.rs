//! `trainyard ps`: what runs and ran here.

use std::{
    cmp::Reverse,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::Serialize;
use trainyard_host::store::{RunFolder, Store, StoreError};

use crate::{
    args::{Format, Ps},
    cluster,
    failure::{Exit, Failure},
    printer::Printer,
    processes::{self, Processes},
    run::clean,
    stored::{self, Stored},
    words,
};

/// How often the list is printed again.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Empties the terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct List<'a> {
    version: u32,
    runs: Vec<Entry<'a>>,
    /// Runs of which a file cannot be read.
    unreadable: &'a [Unreadable],
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processes: Vec<Processes>,
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
            attempt_step: run.attempt_progress().map(|reported| reported.step),
            processes: processes::of(run),
            folder: &run.folder.path,
        }
    }
}

/// A run, or a job, of which a file cannot be read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Unreadable {
    job: String,
    /// None where not even the runs of the job can be listed.
    run_id: Option<String>,
    /// As the name of the run says it.
    started_at: Option<Timestamp>,
    folder: PathBuf,
    reason: String,
}

impl Unreadable {
    fn run(folder: &RunFolder, error: &StoreError) -> Self {
        Self {
            job: folder.job.clone(),
            run_id: Some(folder.id.clone()),
            started_at: started_at(&folder.id),
            folder: folder.path.clone(),
            reason: error.to_string(),
        }
    }

    fn job(job: &str, store: &Store, error: &StoreError) -> Self {
        Self {
            job: job.to_owned(),
            run_id: None,
            started_at: None,
            folder: store.root().join("runs").join(job),
            reason: error.to_string(),
        }
    }
}

/// The time in the name of a run.
fn started_at(run_id: &str) -> Option<Timestamp> {
    let time = run_id.split('-').next().unwrap_or_default();
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Every run that is asked for, the newest first, and those that cannot be read.
fn list(store: &Store, all: bool) -> Result<(Vec<Stored>, Vec<Unreadable>), Failure> {
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for job in store.jobs().map_err(stored::refused)? {
        // Asked first: a run that ends in between is then seen as live, and never as one whose
        // engine died.
        let live = store.live_run(&job);
        let folders = match store.runs(&job) {
            Ok(folders) => folders,
            Err(error) => {
                unreadable.push(Unreadable::job(&job, store, &error));
                continue;
            }
        };
        let shown = if all { folders.len() } else { 1 };
        for folder in folders.into_iter().rev().take(shown) {
            let is_live = live.as_ref() == Some(&folder.id);
            match Stored::read_as(folder.clone(), is_live) {
                Ok(run) => runs.push(run),
                Err(error) => unreadable.push(Unreadable::run(&folder, &error)),
            }
        }
    }
    runs.sort_by_key(|run| Reverse(run.record.started_at));
    unreadable.sort_by_key(|run| Reverse(run.started_at));
    Ok((runs, unreadable))
}

/// Prints the list. A run that cannot be read has a row that says why.
pub(super) fn run(args: &Ps, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.all_namespaces || args.place.is_cluster() {
        return cluster::ps::run(args, printer);
    }
    if args.watch {
        return watch(args, printer);
    }
    print(args, printer)?;
    Ok(Exit::Done)
}

/// Prints the list repeatedly, until stdout is closed.
fn watch(args: &Ps, printer: &mut Printer) -> Result<Exit, Failure> {
    let both = printer.stdout_is_terminal() && printer.stderr_is_terminal();
    loop {
        if both {
            printer.draw(CLEAR);
        }
        print(args, printer)?;
        if !both {
            printer.data(b"\n")?;
        }
        printer.flush()?;
        if !printer.has_reader() {
            return Ok(Exit::Done);
        }
        thread::sleep(WATCH_EVERY);
    }
}

fn print(args: &Ps, printer: &mut Printer) -> Result<(), Failure> {
    let store = stored::open(&args.state)?;
    let (runs, unreadable) = list(&store, args.all)?;
    match args.format {
        Format::Json => {
            let list = List {
                version: 1,
                runs: runs.iter().map(Entry::new).collect(),
                unreadable: &unreadable,
            };
            let mut json =
                serde_json::to_vec_pretty(&list).context("cannot write the list as JSON")?;
            json.push(b'\n');
            printer.data(&json)?;
        }
        Format::Text if runs.is_empty() && unreadable.is_empty() => {
            let root = store.root().display();
            printer.summary(&format!(
                "no runs in `{root}`; `trainyard run FILE` starts one"
            ));
        }
        Format::Text => {
            let table = table(&runs, &unreadable, args.all, Timestamp::now());
            printer.data(table.as_bytes())?;
        }
    }
    Ok(())
}

fn table(runs: &[Stored], unreadable: &[Unreadable], all: bool, now: Timestamp) -> String {
    let mut heads = vec![
        "JOB", "KIND", "STATE", "ATTEMPTS", "PODS", "AGE", "STEP", "LOSS",
    ];
    if all {
        heads.push("RUN");
    }
    let mut rows = vec![heads.iter().map(|head| (*head).to_owned()).collect()];
    let age = |since: Timestamp| {
        let age: Duration = now.duration_since(since).try_into().unwrap_or_default();
        words::age(age)
    };
    rows.extend(runs.iter().map(|run| {
        // While a run is live, steps that its attempt has not repeated yet do not count.
        let (step, loss) = match run.attempt_progress() {
            _ if run.report.is_some() => (run.last_step(), run.last_loss()),
            Some(reported) => (Some(reported.step), run.last_loss()),
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
            age(run.record.started_at),
            step,
            loss,
        ];
        if all {
            row.push(run.folder.id.clone());
        }
        row
    }));
    rows.extend(unreadable.iter().map(|run| {
        let unknown = || "-".to_owned();
        let mut row = vec![run.job.clone(), unknown(), "Unreadable".to_owned()];
        row.extend([unknown(), unknown()]);
        row.push(run.started_at.map_or_else(unknown, age));
        row.extend([unknown(), unknown()]);
        if all {
            row.push(run.run_id.clone().unwrap_or_else(unknown));
        }
        // Behind the last column, because it is a sentence.
        row.push(clean::text(&run.reason));
        row
    }));
    columns(&rows)
}

/// Rows with their cells under each other, three spaces apart.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    // Measured once: there may be as many rows as runs were ever made.
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(at) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, widest) in row.iter().zip(&widths) {
            let pad = widest + 3 - cell.chars().count();
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', pad));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
