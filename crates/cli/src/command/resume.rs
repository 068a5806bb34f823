//! `trainyard resume`: let a suspended job go on.

use crate::{
    args::Named,
    cluster,
    failure::{Exit, Failure},
    printer::Printer,
    stored,
};

/// Lets the job go on.
pub(super) fn run(args: &Named, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::change::suspend(args, false, printer);
    }
    let run = stored::live(args, "resume")?;
    run.folder.request_suspend(false).map_err(stored::refused)?;
    let job = &args.job;
    printer.summary(&format!(
        "job `{job}` goes on with a new attempt; `trainyard suspend {job}` takes its pods away again"
    ));
    Ok(Exit::Done)
}
