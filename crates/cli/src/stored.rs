//! Runs as they are stored: for `ps`, `status` and `logs`, during a run and after it.

mod report;

use std::ops::RangeInclusive;

use jiff::Timestamp;
use trainyard_core::{
    job::{ConditionStatus, JobStatus, ProgressRecord},
    spec::{self, Kind, Slot},
};
use trainyard_host::{
    FailedRank, Outcome, RunReport,
    store::{RunFolder, RunRecord, Store, StoreError, StoredProgress},
};

use crate::{
    args::{Named, State, Which},
    failure::Failure,
    run::names,
};

/// One run, as it is now.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) folder: RunFolder,
    pub(crate) record: RunRecord,
    pub(crate) status: JobStatus,
    pub(crate) report: Option<RunReport>,
    /// What failed first in each attempt so far.
    pub(crate) failures: Vec<FailedRank>,
    /// The last progress that was reported.
    pub(crate) progress: Option<StoredProgress>,
    /// Whether its engine lives.
    pub(crate) live: bool,
}

impl Stored {
    /// Reads the run in `folder`.
    pub(crate) fn read(folder: RunFolder) -> Result<Self, StoreError> {
        // Asked first: a run that ends in between is then seen as live, and never as one whose
        // engine died.
        let live = folder.is_live();
        Self::read_as(folder, live)
    }

    /// The same where it is known whether its engine lives. A report holds all that the other files of
    /// a run said last, so they are not read beside it.
    pub(crate) fn read_as(folder: RunFolder, live: bool) -> Result<Self, StoreError> {
        let report = folder.report()?;
        let (status, failures) = match &report {
            Some(report) => (report.status.clone(), report.failures.clone()),
            None => (folder.status()?, folder.failures()?),
        };
        Ok(Self {
            record: folder.record()?,
            status,
            failures,
            progress: folder.progress()?,
            report,
            live,
            folder,
        })
    }

    /// The state of the run in one word.
    pub(crate) fn state(&self) -> &'static str {
        match &self.report {
            Some(report) => match report.outcome {
                Outcome::Succeeded => "Succeeded",
                Outcome::Failed => "Failed",
                Outcome::Stopped => "Stopped",
            },
            None if self.live => {
                let holds = |status| status == ConditionStatus::True;
                let mut conditions = self.status.conditions.iter().rev();
                let last = conditions.find(|condition| holds(condition.status));
                last.map_or("Created", |condition| condition.kind.name())
            }
            None => "Interrupted",
        }
    }

    /// How many pods it has.
    pub(crate) fn pods(&self) -> u32 {
        self.record.replicas.values().sum()
    }

    /// How many attempts it has made.
    pub(crate) fn attempts(&self) -> u32 {
        match &self.report {
            Some(report) => report.attempts,
            None => self.status.trainyard.attempt,
        }
    }

    /// What its last attempt that reported a step reported last.
    pub(crate) fn progress_record(&self) -> Option<&ProgressRecord> {
        let of_report = self.report.as_ref();
        let of_report = of_report.and_then(|report| report.progress.as_ref());
        let written = self.progress.as_ref();
        let written = written.and_then(|reported| reported.progress.as_ref());
        let of_status = self.status.trainyard.progress.as_ref();
        let newest = written
            .into_iter()
            .chain(of_status)
            .max_by_key(|record| (record.attempt, record.last_step_at));
        of_report.or(newest)
    }

    /// While it is stalled: how long no step came, and how long steps took.
    pub(crate) fn stall(&self, now: Timestamp) -> Option<String> {
        self.live
            .then(|| self.status_now().trainyard.stall(now))
            .flatten()
    }

    /// Its status, with the newest of what is known of its progress.
    pub(crate) fn status_now(&self) -> JobStatus {
        let mut status = self.status.clone();
        status.trainyard.progress = self.progress_record().cloned();
        status
    }

    /// The kind of the job; `None` for one that this program does not know.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::find(&self.record.api_version, &self.record.kind)
    }

    /// The ranks of the pod in `slot`, where it holds several.
    pub(crate) fn ranks_beside(&self, slot: Slot) -> Option<RangeInclusive<u32>> {
        let held = self.record.ranks.of_pod(&self.record.replicas, slot)?;
        (held.start() < held.end()).then_some(held)
    }

    /// The pod called `name`, in its short form or whole.
    pub(crate) fn slot_called(&self, name: &str) -> Option<Slot> {
        names::slot_called(&self.record.name, &self.record.replicas, name)
    }
}

/// The store that the arguments name.
pub(crate) fn open(state: &State) -> Result<Store, Failure> {
    Store::open(&state.state_dir).map_err(refused)
}

/// The run that the arguments name.
pub(crate) fn find(store: &Store, which: &Which) -> Result<Stored, Failure> {
    let jobs = store.jobs().map_err(refused)?;
    if !jobs.contains(&which.job) {
        return Err(unknown_job(&which.job, &jobs, store));
    }
    let mut runs = store.runs(&which.job).map_err(refused)?;
    let folder = match &which.run {
        None => runs.pop(),
        Some(id) => {
            let known: Vec<String> = runs.iter().map(|run| run.id.clone()).collect();
            let found = runs.into_iter().find(|run| run.id == *id);
            Some(found.ok_or_else(|| {
                let latest = known.last().map_or("none", String::as_str);
                Failure::absent(format!("job `{}` has no run `{id}`", which.job)).hint(format!(
                    "its latest is `{latest}`; `trainyard ps --all` lists them"
                ))
            })?)
        }
    };
    let folder = folder.ok_or_else(|| unknown_job(&which.job, &[], store))?;
    Stored::read(folder).map_err(refused)
}

/// Every run whose engine lives, by job.
pub(crate) fn live_runs(store: &Store) -> Result<Vec<Stored>, Failure> {
    let mut runs = Vec::new();
    for job in store.jobs().map_err(refused)? {
        if let Some(id) = store.live_run(&job) {
            let which = Which { job, run: Some(id) };
            runs.push(find(store, &which)?);
        }
    }
    Ok(runs)
}

/// The only run whose engine lives, for someone to `verb` it.
pub(crate) fn only_live(store: &Store, verb: &str) -> Result<Stored, Failure> {
    let mut runs = live_runs(store)?;
    match runs.len() {
        0 => Err(Failure::new("no run is active")
            .hint("`trainyard ps` lists past runs; `--state-dir` selects another state folder")),
        1 => Ok(runs.remove(0)),
        count => {
            let names: Vec<String> = runs
                .iter()
                .map(|run| format!("`{}`", run.record.name))
                .collect();
            Err(
                Failure::new(format!("{count} jobs are running: {}", names.join(", ")))
                    .hint(format!("name the one to {verb}")),
            )
        }
    }
}

/// The last run of the job, which must live for someone to `verb` it.
pub(crate) fn live(args: &Named, verb: &str) -> Result<Stored, Failure> {
    let again = "run its file again with `trainyard run`; a program that loads checkpoints resumes from the last one";
    live_for(&args.job, &args.state, verb, again)
}

/// The same with another hint for a run that has ended.
pub(crate) fn live_for(
    job: &str,
    state: &State,
    verb: &str,
    hint: &str,
) -> Result<Stored, Failure> {
    let which = Which {
        job: job.to_owned(),
        run: None,
    };
    let run = find(&open(state)?, &which)?;
    if run.live {
        return Ok(run);
    }
    let state = run.state();
    let message = format!("cannot {verb} job `{job}`: its last run has ended ({state})");
    Err(Failure::new(message).hint(hint))
}

pub(crate) fn unknown_job(job: &str, jobs: &[String], store: &Store) -> Failure {
    let root = store.root().display();
    let failure = Failure::absent(format!("no run of job `{job}` in `{root}`"));
    let meant = spec::nearest(job, jobs.iter().map(String::as_str));
    match (meant, jobs) {
        (Some(meant), _) => failure.hint(format!("did you mean `{meant}`?")),
        (None, []) => failure.hint(
            "start one with `trainyard run FILE`; `--state-dir` selects another state folder",
        ),
        (None, _) => failure.hint("`trainyard ps` lists all runs"),
    }
}

/// Turns a store error into a failure with a hint.
pub(crate) fn refused(error: StoreError) -> Failure {
    let hint = error.hint();
    let failure = Failure::from(anyhow::Error::new(error));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
