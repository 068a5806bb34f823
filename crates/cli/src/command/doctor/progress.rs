//! What the run of a job knows of its progress. A log does not show that nothing was written to it.

use jiff::Timestamp;
use trainyard_core::{diagnose::Report, job::ProgressRecord};

use super::input;
use crate::{args::Doctor, cluster, failure::Failure, stored::Stored};

/// What is wrong with the progress of the job that is named, where the attempt that is read is its last.
pub(super) fn warnings(args: &Doctor) -> Result<Vec<String>, Failure> {
    let Some(job) = &args.job else {
        return Ok(Vec::new());
    };
    let now = Timestamp::now();
    let (attempt, stall, complaint) = if args.place.is_cluster() {
        cluster::status::progress(&args.place, job, now)?
    } else {
        let run = input::run_of(args, job)?;
        return Ok(warnings_of(&run, args.attempt, now));
    };
    if args.attempt.is_some_and(|asked| asked != attempt) {
        return Ok(Vec::new());
    }
    Ok(in_words(stall, complaint))
}

/// The same of a run on this machine; `asked` is the attempt that is read, where one is named.
pub(super) fn warnings_of(run: &Stored, asked: Option<u32>, now: Timestamp) -> Vec<String> {
    let attempt = run.attempts();
    if asked.is_some_and(|asked| asked != attempt) {
        return Vec::new();
    }
    let record = run.progress_record();
    let record = record.filter(|record| record.attempt == attempt);
    let complaint = record.and_then(ProgressRecord::complaint);
    in_words(run.stall(now), complaint)
}

fn in_words(stall: Option<String>, complaint: Option<String>) -> Vec<String> {
    let stall = stall.map(|stall| format!("stalled: {stall}"));
    stall.into_iter().chain(complaint).collect()
}

/// What stays the same of a warning while its numbers grow.
pub(super) fn kind_of(warning: &str) -> &str {
    let number = warning.find(|letter: char| letter.is_ascii_digit());
    warning.split_at(number.unwrap_or(warning.len())).0
}

/// A job whose progress is wrong is not healthy, whatever its logs say.
pub(super) fn amend(report: &mut Report, warnings: &[String]) {
    if !warnings.is_empty() && report.is_healthy() {
        report.verdicts.clear();
    }
}
