//! `trainyard restart`: one new attempt of the whole job.

use jiff::Timestamp;

use crate::{
    args::Named,
    cluster,
    failure::{Exit, Failure},
    printer::Printer,
    stored,
};

/// Requests a new attempt.
pub(super) fn run(args: &Named, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::change::restart(args, printer);
    }
    let run = stored::live(args, "restart")?;
    let job = &args.job;
    if run.state() == "Suspended" {
        return Err(
            Failure::new(format!("job `{job}` is suspended")).hint(format!(
                "`trainyard resume {job}` resumes it with a new attempt"
            )),
        );
    }
    let name = Timestamp::now().to_string();
    run.folder.request_restart(&name).map_err(stored::refused)?;
    printer.summary(&format!(
        "job `{job}` will start attempt {}; it does not count against the failure budget; \
         `trainyard status {job}` shows its progress",
        run.attempts() + 1
    ));
    Ok(Exit::Done)
}
