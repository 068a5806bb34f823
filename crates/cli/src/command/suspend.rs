//! `trainyard suspend`: delete the pods of a job until it is resumed.

use crate::{
    args::Named,
    cluster,
    failure::{Exit, Failure},
    printer::Printer,
    stored,
};

/// Suspends the job.
pub(super) fn run(args: &Named, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::change::suspend(args, true, printer);
    }
    let run = stored::live(args, "suspend")?;
    run.folder.request_suspend(true).map_err(stored::refused)?;
    let job = &args.job;
    printer.summary(&format!(
        "job `{job}` is suspended and its pods are terminating; \
         `trainyard resume {job}` resumes it"
    ));
    Ok(Exit::Done)
}
