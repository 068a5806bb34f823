//! Which of the jobs in the files is run.

use std::{fmt::Write as _, sync::Arc};

use serde_json::Value;
use trainyard_core::spec::{self, Job};

use crate::failure::Failure;

/// Most jobs that are listed in a message.
const LISTED: usize = 10;

/// A job and the file it is in.
pub(super) struct Candidate {
    pub(super) job: Job,
    /// The job as it was written, with what the options changed.
    pub(super) manifest: Value,
    pub(super) file: Arc<str>,
}

/// The job called `name`, or the only one.
pub(super) fn choose(
    mut jobs: Vec<Candidate>,
    name: Option<&str>,
) -> Result<(Job, Value), Failure> {
    if let Some(name) = name {
        let known: Vec<String> = jobs
            .iter()
            .map(|candidate| candidate.job.name.to_string())
            .collect();
        jobs.retain(|candidate| candidate.job.name.as_str() == name);
        if jobs.is_empty() {
            let failure = Failure::new(format!("no job `{name}` in the files"));
            let known = known.iter().map(String::as_str);
            return Err(match spec::nearest(name, known.clone()) {
                Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
                None => failure.hint(format!(
                    "the files contain {}",
                    list(known.map(|n| format!("`{n}`")))
                )),
            });
        }
    }
    match jobs.len() {
        1 => {
            let chosen = jobs.remove(0);
            Ok((chosen.job, chosen.manifest))
        }
        0 => Err(Failure::new("the files contain no job, only other objects")
            .hint("pass the job file first and the others with `-f`")),
        count => {
            let listed = list(jobs.iter().map(|candidate| {
                format!(
                    "{} `{}` in `{}`",
                    candidate.job.kind, candidate.job.name, candidate.file
                )
            }));
            Err(Failure::new(format!(
                "the files contain {count} jobs, and `run` runs one: {listed}"
            ))
            .hint(match name {
                Some(_) => "rename one of them",
                None => "choose one with `--job NAME`",
            }))
        }
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    let mut text = items
        .iter()
        .take(LISTED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = items.len().checked_sub(LISTED).filter(|more| *more > 0) {
        write!(text, " and {more} more").expect("a string takes whatever is written");
    }
    if text.is_empty() {
        "none".to_owned()
    } else {
        text
    }
}
