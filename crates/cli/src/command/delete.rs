//! `trainyard delete`: a job and all that is kept of it.

use std::{
    thread,
    time::{Duration, Instant},
};

use trainyard_host::store::RunFolder;

use crate::{
    args::Delete,
    cluster,
    failure::{Exit, Failure},
    printer::Printer,
    stored, words,
};

/// Poll interval for a run that is being stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Deletes the job.
pub(super) fn run(args: &Delete, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::change::delete(args, printer);
    }
    let store = stored::open(&args.state)?;
    let job = &args.which.job;
    let named = stored::find(&store, &args.which)?.folder;
    let folders = match args.which.run {
        Some(_) => vec![named],
        None => store.runs(job).map_err(stored::refused)?,
    };
    for folder in &folders {
        stop(folder, args)?;
    }
    if args.no_wait && folders.iter().any(RunFolder::is_live) {
        printer.summary(&format!(
            "job `{job}` is being stopped; `trainyard delete {job}` removes it once it has ended"
        ));
        return Ok(Exit::Done);
    }
    for folder in &folders {
        folder.remove().map_err(stored::refused)?;
    }
    printer.summary(&format!(
        "deleted {} of job `{job}` with logs; volumes stay, and `trainyard run` of its file starts a \
         new run",
        words::counted(folders.len() as u64, "run")
    ));
    Ok(Exit::Done)
}

/// Stops the run where it lives, and waits for its end unless `--no-wait` is set.
fn stop(folder: &RunFolder, args: &Delete) -> Result<(), Failure> {
    if !folder.is_live() {
        return Ok(());
    }
    folder.request_stop(false).map_err(stored::refused)?;
    let until = Instant::now() + Duration::from_secs(args.timeout);
    while !args.no_wait && folder.is_live() {
        if Instant::now() >= until {
            return Err(Failure::new(format!(
                "job `{}` has not ended within {} s",
                folder.job, args.timeout
            ))
            .hint("pods may use their whole grace period; wait longer with `--timeout`"));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
