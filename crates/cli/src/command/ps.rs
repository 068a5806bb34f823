//! `trainyard ps`: the runs on this machine, or the jobs of a cluster.

use std::{cmp::Reverse, path::PathBuf};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::Serialize;
use trainyard_host::store::{RunFolder, Store, StoreError};

use super::watched::{Frame, watch};
use crate::{
    args::{Format, Ps},
    clean,
    cluster::{self, Site},
    failure::{Exit, Failure},
    job_report::{JobRow, Origin},
    printer::Printer,
    stored::{self, Stored},
    table::columns,
    words,
};

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct List {
    version: u32,
    runs: Vec<JobRow>,
    /// Runs of which a file cannot be read.
    unreadable: Vec<Unreadable>,
    /// What to print for people where nothing is listed.
    #[serde(skip)]
    if_empty: String,
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

/// Prints the list. A run that cannot be read has a row that says why.
pub(super) fn run(args: &Ps, printer: &mut Printer) -> Result<Exit, Failure> {
    let mut site = None;
    if args.watch {
        return watch(printer, |_| Ok(frame(&list(args, &mut site)?, args)));
    }
    let list = list(args, &mut site)?;
    match args.format {
        Format::Json => printer.json(&list)?,
        Format::Text => frame(&list, args).print(printer)?,
    }
    Ok(Exit::Done)
}

/// The list as text, or why it is empty.
fn frame(list: &List, args: &Ps) -> Frame {
    if list.runs.is_empty() && list.unreadable.is_empty() {
        let notes = vec![list.if_empty.clone()];
        return Frame {
            notes,
            ..Frame::of(String::new())
        };
    }
    Frame::of(table(list, args, Timestamp::now()))
}

fn list<'a>(args: &'a Ps, site: &mut Option<Site<'a>>) -> Result<List, Failure> {
    if is_cluster(args) {
        cluster::connected(site, &args.place, |site| in_cluster(args, site))
    } else {
        on_machine(args)
    }
}

fn is_cluster(args: &Ps) -> bool {
    args.all_namespaces || args.place.is_cluster()
}

/// The jobs of the cluster, the newest first.
fn in_cluster(args: &Ps, site: &Site<'_>) -> Result<List, Failure> {
    let namespace = (!args.all_namespaces).then_some(site.namespace.as_str());
    let jobs = site.look.jobs(namespace).map_err(cluster::refused)?;
    let if_empty = match namespace {
        Some(namespace) => format!(
            "no jobs in namespace `{namespace}`; `{} ps -A` lists all namespaces",
            site.program()
        ),
        None => "no jobs in the cluster".to_owned(),
    };
    Ok(List {
        version: 1,
        runs: jobs.iter().map(cluster::row).collect(),
        unreadable: Vec::new(),
        if_empty,
    })
}

/// Every run on this machine that is asked for, the newest first, and those that cannot be read.
fn on_machine(args: &Ps) -> Result<List, Failure> {
    let store = stored::open(&args.state)?;
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for job in store.jobs().map_err(stored::refused)? {
        // Asked first: a run that ends in between is then seen as live, and never as one whose
        // engine died.
        let live = store.live_run(&job);
        let folders = match store.runs(&job) {
            Ok(folders) => folders,
            Err(error) => {
                unreadable.push(Unreadable::job(&job, &store, &error));
                continue;
            }
        };
        let shown = if args.all { folders.len() } else { 1 };
        for folder in folders.into_iter().rev().take(shown) {
            let is_live = live.as_ref() == Some(&folder.id);
            match Stored::read_as(folder.clone(), is_live) {
                Ok(run) => runs.push(run.row()),
                Err(error) => unreadable.push(Unreadable::run(&folder, &error)),
            }
        }
    }
    runs.sort_by_key(|run| Reverse(run.started_at));
    unreadable.sort_by_key(|run| Reverse(run.started_at));
    Ok(List {
        version: 1,
        runs,
        unreadable,
        if_empty: format!(
            "no runs in `{}`; `trainyard run FILE` starts one",
            store.root().display()
        ),
    })
}

fn table(list: &List, args: &Ps, now: Timestamp) -> String {
    let with_run = args.all && !is_cluster(args);
    let mut heads = vec![
        "JOB", "KIND", "STATE", "ATTEMPTS", "PODS", "AGE", "STEP", "LOSS",
    ];
    if args.all_namespaces {
        heads.insert(0, "NAMESPACE");
    }
    if with_run {
        heads.push("RUN");
    }
    let unknown = || "-".to_owned();
    let age =
        |at: Option<Timestamp>| at.map_or_else(unknown, |at| words::age(words::since(at, now)));
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect()];
    rows.extend(list.runs.iter().map(|job| {
        let (step, loss) = job.shown_step();
        let mut row = vec![
            job.job.clone(),
            job.kind.clone(),
            job.state.to_owned(),
            job.attempts.to_string(),
            job.pods.to_string(),
            age(job.created_at),
            step.map_or_else(unknown, words::grouped),
            loss.map_or_else(unknown, words::loss),
        ];
        match &job.origin {
            Origin::Cluster { .. } if args.all_namespaces => row.insert(0, job.namespace.clone()),
            Origin::Machine { run_id, .. } if with_run => row.push(run_id.clone()),
            _ => {}
        }
        row
    }));
    rows.extend(list.unreadable.iter().map(|run| {
        let mut row = vec![run.job.clone(), unknown(), "Unreadable".to_owned()];
        row.extend([
            unknown(),
            unknown(),
            age(run.started_at),
            unknown(),
            unknown(),
        ]);
        if with_run {
            row.push(run.run_id.clone().unwrap_or_else(unknown));
        }
        // Behind the last column, because it is a sentence.
        row.push(clean::text(&run.reason));
        row
    }));
    columns(&rows)
}
