//! Finds the runs of a report: those of a state folder, those that only the history has, or the jobs of a cluster.
//!
//! Nothing is changed. A run that cannot be read is named and left out; of one whose facts are cut off or missing the sums of its status count.

use std::collections::BTreeSet;

use jiff::Timestamp;
use trainyard_core::{
    chronicle::Chronicle,
    spec,
    view::{
        report::{Report, RunTime, Tally},
        rows::{self, Ending, RowState},
    },
};
use trainyard_history::{Filter, Kept, LISTED_MAX, Listed, Reader};
use trainyard_host::{
    Outcome,
    store::{RunFolder, Store, StoreError},
};
use trainyard_kube::look::JobSeen;

use super::Unreadable;
use crate::{
    args::Report as Args,
    cluster::{self, Site},
    command::{
        dashboard::{
            cluster::history as statuses,
            local::{history as facts, names},
        },
        history,
    },
    environment::Environment,
    failure::Failure,
    stored::{self, Stored},
    words,
};

/// What was found.
pub(super) struct Gathered {
    pub(super) report: Report,
    pub(super) from_history: u64,
    pub(super) unreadable: Vec<Unreadable>,
    pub(super) notes: Vec<String>,
    pub(super) newest: Option<Newest>,
    /// What to print where there is no run.
    pub(super) if_empty: String,
}

/// What the newest run reported.
#[derive(Debug, PartialEq)]
pub(super) struct Newest {
    pub(super) step_seconds: Option<f64>,
    pub(super) accelerators: Option<u32>,
}

/// Runs as they are added up.
struct Gathering<'a> {
    args: &'a Args,
    now: Timestamp,
    tally: Tally,
    from_history: u64,
    /// Jobs of which anything was found.
    found: BTreeSet<String>,
    /// The ids, as the history has them, of runs that were found in the state folder.
    known: BTreeSet<String>,
    unreadable: Vec<Unreadable>,
    notes: Vec<String>,
    newest: Option<(Timestamp, Newest)>,
}

impl<'a> Gathering<'a> {
    fn new(args: &'a Args, now: Timestamp) -> Self {
        Self {
            args,
            now,
            tally: Tally::new(args.since, now),
            from_history: 0,
            found: BTreeSet::new(),
            known: BTreeSet::new(),
            unreadable: Vec::new(),
            notes: Vec::new(),
            newest: None,
        }
    }

    fn wants(&self, job: &str) -> bool {
        self.args.jobs.is_empty() || self.args.jobs.iter().any(|name| name == job)
    }

    fn finish(self, if_empty: String) -> Gathered {
        Gathered {
            report: self.tally.report(),
            from_history: self.from_history,
            unreadable: self.unreadable,
            notes: self.notes,
            newest: self.newest.map(|(_, newest)| newest),
            if_empty,
        }
    }

    fn set_newest(&mut self, at: Timestamp, newest: Newest) {
        if self.newest.as_ref().is_none_or(|(known, _)| *known <= at) {
            self.newest = Some((at, newest));
        }
    }
}

/// The runs of this machine.
pub(super) fn machine(
    args: &Args,
    environment: &Environment,
    now: Timestamp,
) -> Result<Gathered, Failure> {
    let store = stored::open(&args.state)?;
    let jobs = store.jobs().map_err(stored::refused)?;
    let mut gathering = Gathering::new(args, now);
    for job in &jobs {
        if gathering.wants(job) {
            gathering.found.insert(job.clone());
            gathering.add_job(&store, job);
        }
    }
    gathering.add_history(environment)?;
    for job in &args.jobs {
        if !gathering.found.contains(job) {
            return Err(stored::unknown_job(job, &jobs, &store));
        }
    }
    let root = store.root().display();
    let if_empty = match args.since {
        Some(since) => format!("no run in `{root}` or the history has time since {since}"),
        None => format!("no runs in `{root}` or the history; `trainyard run FILE` starts one"),
    };
    Ok(gathering.finish(if_empty))
}

impl Gathering<'_> {
    /// Adds every run of a job.
    fn add_job(&mut self, store: &Store, job: &str) {
        let folders = match store.runs(job) {
            Ok(folders) => folders,
            Err(error) => {
                self.unreadable.push(Unreadable {
                    job: Some(job.to_owned()),
                    run_id: None,
                    reason: error.to_string(),
                });
                return;
            }
        };
        for folder in folders {
            // Asked for each: a run that ends in between is then seen as live, and never as one whose engine died.
            let is_live = folder.is_live();
            let run_id = folder.id.clone();
            if let Err(error) = self.add_folder(folder, is_live) {
                self.unreadable.push(Unreadable {
                    job: Some(job.to_owned()),
                    run_id: Some(run_id),
                    reason: error.to_string(),
                });
            }
        }
    }

    fn add_folder(&mut self, folder: RunFolder, is_live: bool) -> Result<(), StoreError> {
        let run = Stored::read_as(folder, is_live)?;
        self.known.insert(history::uid(&run.folder, &run.record));
        let accelerators = spec::job_from_value(&run.record.job).job;
        let accelerators = accelerators.as_ref().map(rows::accelerators);
        let progress = run.progress_record();
        let step_seconds = progress.and_then(|progress| Some(progress.step_seconds?.0));
        self.set_newest(
            run.record.started_at,
            Newest {
                step_seconds,
                accelerators,
            },
        );
        let until = facts::known_until(&run, self.now);
        if self.args.since.is_some_and(|since| until < since) {
            return Ok(());
        }
        let id = names::id(&run.folder);
        let chronicle = self.chronicle(&run, &id, until)?;
        self.tally.add(&RunTime {
            id: &id,
            job: &run.record.name,
            state: state(&run),
            chronicle: &chronicle,
            accelerators,
            until,
        });
        Ok(())
    }

    /// The history of a run, with exactly the time of its ledger.
    fn chronicle(
        &mut self,
        run: &Stored,
        id: &str,
        until: Timestamp,
    ) -> Result<Chronicle, StoreError> {
        let mut chronicle = Chronicle::default();
        let read = run.folder.read_facts(0, |fact| {
            chronicle.apply(&fact);
        })?;
        let Some(read) = read.filter(|_| chronicle.began.is_some()) else {
            return Ok(facts::of_status(run, until));
        };
        if read.unread > 0 || read.left_out > 0 {
            let lines = words::counted(read.unread, "line");
            let bytes = words::counted(read.left_out, "byte");
            self.notes.push(format!(
                "run `{id}`: {lines} and {bytes} of its facts were not read; its sums come from its status, which has all its time"
            ));
        }
        Ok(facts::completed(chronicle, run, until))
    }

    /// Adds the runs that only the history has.
    fn add_history(&mut self, environment: &Environment) -> Result<(), Failure> {
        let path = match (&self.args.store, history::default_path(environment)) {
            (Some(path), _) => path.clone(),
            // Nobody made one yet.
            (None, Some(path)) if path.exists() => path,
            (None, _) => return Ok(()),
        };
        let filter = Filter {
            since: self.args.since.map(Timestamp::as_millisecond),
            limit: LISTED_MAX,
            ..Filter::default()
        };
        let (args, known) = (self.args, std::mem::take(&mut self.known));
        let wants = |run: &Listed| {
            !known.contains(&run.uid) && (args.jobs.is_empty() || args.jobs.contains(&run.job))
        };
        let read = Reader::open(&path)
            .and_then(|reader| reader.each_kept(&filter, wants, |run| self.add_kept(&run)));
        let more = match read {
            Ok(more) => more,
            Err(error) if self.args.store.is_some() => return Err(history::refused(error)),
            Err(error) => {
                self.unreadable.push(Unreadable {
                    job: None,
                    run_id: None,
                    reason: history::refused(error).line(),
                });
                return Ok(());
            }
        };
        if more > 0 {
            let more = words::counted(more, "older run");
            self.notes.push(format!(
                "the history has {more} that there was no room for; a later `--since` leaves fewer"
            ));
        }
        Ok(())
    }

    fn add_kept(&mut self, kept: &Kept) {
        self.found.insert(kept.run.job.clone());
        let Ok(until) = Timestamp::from_millisecond(kept.until) else {
            return;
        };
        let state = match kept.run.outcome.as_deref() {
            Some("succeeded") => RowState::Succeeded,
            Some("failed") => RowState::Failed,
            Some("stopped") => RowState::Stopped,
            _ => RowState::Unknown,
        };
        let counted = self.tally.add(&RunTime {
            id: &kept.run.uid,
            job: &kept.run.job,
            state,
            chronicle: &kept.chronicle,
            accelerators: kept.run.accelerators,
            until,
        });
        self.from_history += u64::from(counted);
    }
}

/// The state of a stored run.
fn state(run: &Stored) -> RowState {
    let ending = run.report.as_ref().map(|report| match report.outcome {
        Outcome::Succeeded => Ending::Succeeded,
        Outcome::Failed => Ending::Failed,
        Outcome::Stopped => Ending::Stopped,
    });
    rows::state(ending, run.live, &run.status)
}

/// The jobs of a cluster.
pub(super) fn cluster(args: &Args, now: Timestamp) -> Result<Gathered, Failure> {
    let site = cluster::connect(&args.place)?;
    let namespace = (!args.all_namespaces).then_some(site.namespace.as_str());
    let jobs = if args.jobs.is_empty() || namespace.is_none() {
        site.look.jobs(namespace).map_err(cluster::refused)?
    } else {
        let found = args.jobs.iter().map(|word| site.find(word));
        found.collect::<Result<_, _>>()?
    };
    let mut gathering = Gathering::new(args, now);
    for job in &jobs {
        let resource = job.resource();
        if gathering.wants(&job.key.name) || gathering.wants(&resource) {
            gathering.found.insert(job.key.name.to_string());
            gathering.found.insert(resource);
            gathering.add_seen(job);
        }
    }
    if let Some(job) = args.jobs.iter().find(|job| !gathering.found.contains(*job)) {
        return Err(absent(job, &site));
    }
    let if_empty = match namespace {
        Some(namespace) => format!("no job in namespace `{namespace}` has time to report"),
        None => "no job in the cluster has time to report".to_owned(),
    };
    Ok(gathering.finish(if_empty))
}

fn absent(job: &str, site: &Site<'_>) -> Failure {
    Failure::absent(format!("no job `{job}` in the cluster"))
        .hint(format!("`{} ps -A` lists all jobs", site.program()))
}

impl Gathering<'_> {
    /// Adds what the status of a job says.
    fn add_seen(&mut self, job: &JobSeen) {
        let id = format!("{}/{}", job.key.namespace, job.resource());
        if let Some(error) = &job.unreadable {
            self.unreadable.push(Unreadable {
                job: Some(id),
                run_id: None,
                reason: error.to_string(),
            });
            return;
        }
        let accelerators = job.job.as_ref().map(rows::accelerators);
        let progress = job.status.trainyard.progress.as_ref();
        let step_seconds = progress.and_then(|progress| Some(progress.step_seconds?.0));
        let created = job.created_at.unwrap_or(Timestamp::UNIX_EPOCH);
        self.set_newest(
            created,
            Newest {
                step_seconds,
                accelerators,
            },
        );
        let chronicle = statuses::of_status(job, self.now);
        self.tally.add(&RunTime {
            id: &id,
            job: &job.key.name,
            // Its conditions say whether it has ended.
            state: rows::state(None, true, &job.status),
            chronicle: &chronicle,
            accelerators,
            until: statuses::known_until(job, self.now),
        });
    }
}
