//! What a job reports of its progress. A log does not show that nothing was written to it.

use jiff::Timestamp;
use trainyard_core::{diagnose::Report, job::ProgressRecord};

use super::input;
use crate::{args::Doctor, cluster, failure::Failure, job_report::JobReport};

/// What is wrong with the progress of the job that is named.
pub(super) fn warnings(args: &Doctor) -> Result<Vec<String>, Failure> {
    let Some(job) = &args.job else {
        return Ok(Vec::new());
    };
    let now = Timestamp::now();
    let report = if args.place.is_cluster() {
        let site = cluster::connect(&args.place)?;
        site.report(job, &site.find(job)?, &[], now)
    } else {
        input::run_of(args, job)?.report(now)
    };
    Ok(warnings_of(&report, args.attempt))
}

/// The same of a report; nothing where `asked`, the attempt that is read, is not its last.
pub(super) fn warnings_of(report: &JobReport, asked: Option<u32>) -> Vec<String> {
    if asked.is_some_and(|asked| asked != report.row.attempts) {
        return Vec::new();
    }
    let stall = report
        .stalled
        .iter()
        .map(|stall| format!("stalled: {stall}"));
    let reported = report.attempt_progress();
    let complaint = reported.and_then(ProgressRecord::complaint);
    stall.chain(complaint).collect()
}

/// What stays the same of a warning while its numbers grow.
pub(super) fn kind_of(warning: &str) -> &str {
    let number = warning.find(|letter: char| letter.is_ascii_digit());
    warning.split_at(number.unwrap_or(warning.len())).0
}

/// A job whose progress is wrong is not healthy, whatever its logs say.
pub(super) fn amend(report: &mut Report, warnings: &[String]) {
    let first = report.verdicts.first();
    let unknown = first.is_some_and(|verdict| verdict.label == "inconclusive");
    if !warnings.is_empty() && (report.is_healthy() || unknown) {
        report.verdicts.clear();
    }
}
