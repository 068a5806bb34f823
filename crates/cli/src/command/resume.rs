//! `trainyard resume`: resume a suspended job.

use crate::{
    args::Named,
    cluster,
    failure::{Exit, Failure},
    printer::Printer,
    stored,
};

/// Resumes the job.
pub(super) fn run(args: &Named, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::change::suspend(args, false, printer);
    }
    let run = stored::live(args, "resume")?;
    run.folder.request_suspend(false).map_err(stored::refused)?;
    let job = &args.job;
    printer.summary(&format!(
        "job `{job}` resumes with a new attempt; `trainyard suspend {job}` suspends it again"
    ));
    Ok(Exit::Done)
}
