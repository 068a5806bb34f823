//! The ids of runs.
//!
//! A run has a name of its own only among the runs of its job: two jobs may begin in the same second. So its id is both: `20261118T141933Z.my-job`.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use trainyard_host::store::{RunFolder, Store};
use trainyard_web::{Problem, ProblemCode};

use super::{problem, unreadable};

/// The id of a run.
pub(crate) fn id(folder: &RunFolder) -> String {
    format!("{}.{}", folder.id, folder.job)
}

/// When a run began, as its name says.
pub(super) fn started_at(folder: &RunFolder) -> Option<Timestamp> {
    let time = folder.id.split('-').next().unwrap_or_default();
    let time = DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The run with this id; the name of a run alone is enough where only one job has it.
pub(super) fn find(store: &Store, id: &str) -> Result<RunFolder, Problem> {
    let jobs = store.jobs().map_err(|error| unreadable(&error))?;
    let (name, of_job) = match id.split_once('.') {
        Some((name, job)) => (name, Some(job)),
        None => (id, None),
    };
    // Only names that were listed are used: what somebody asks for is never a path.
    let jobs = jobs.iter().filter(|job| of_job.is_none_or(|of| *job == of));
    let mut found = Vec::new();
    for job in jobs {
        // The runs of another job may be unreadable.
        match store.runs(job) {
            Ok(runs) => found.extend(runs.into_iter().filter(|run| run.id == name)),
            Err(error) if of_job.is_some() => return Err(unreadable(&error)),
            Err(_) => {}
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(folder), true) => Ok(folder),
        (Some(_), false) => Err(problem(
            ProblemCode::BadRequest,
            format!("several jobs have a run `{name}`"),
            format!("name the job, too: `{name}.JOB`"),
        )),
        (None, _) => Err(problem(
            ProblemCode::NotFound,
            format!("no run `{id}` is stored here"),
            "`trainyard ps --all` lists all runs",
        )),
    }
}
