//! `trainyard stop`: a run, or all of them, in order.

use std::{
    thread,
    time::{Duration, Instant},
};

use trainyard_host::store::RunFolder;

use crate::{
    args::{Stop, Which},
    failure::{Exit, Failure},
    printer::Printer,
    stored::{self, Stored},
    words,
};

/// Poll interval for a run that is being stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often it is printed that the run has not ended.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// The state of a run that was stopped.
const STOPPED: &str = "Stopped";

/// Stops what the arguments name, and waits until it has ended.
pub(super) fn run(args: &Stop, printer: &mut Printer) -> Result<Exit, Failure> {
    let store = stored::open(&args.state)?;
    let runs = if args.all {
        let runs = stored::live_runs(&store)?;
        if runs.is_empty() {
            printer.summary("no run is active, nothing to stop");
        }
        runs
    } else {
        let run = match &args.job {
            Some(job) => {
                let which = Which {
                    job: job.clone(),
                    run: None,
                };
                stored::find(&store, &which)?
            }
            None => stored::only_live(&store, "stop")?,
        };
        if !run.live {
            printer.summary(&format!(
                "job `{}` has already ended ({}), nothing to stop",
                run.record.name,
                run.state()
            ));
            return Ok(Exit::Done);
        }
        vec![run]
    };
    let began = Instant::now();
    let mut asked = Vec::new();
    let mut failed = None;
    for run in &runs {
        let job = &run.record.name;
        match run.folder.request_stop(args.now) {
            Ok(()) if args.now => {
                printer.summary(&format!("killing all pods of job `{job}`"));
            }
            Ok(()) => printer.summary(&format!(
                "stopping job `{job}`: its pods get SIGTERM and their grace period to save"
            )),
            // It has ended by itself in between.
            Err(_) if !run.folder.is_live() => {}
            // The others are stopped nevertheless.
            Err(error) => {
                let failure = stored::refused(error);
                if failed.is_some() {
                    printer.summary(&format!("warning: {}", failure.line()));
                }
                failed.get_or_insert(failure);
                continue;
            }
        }
        asked.push(run);
    }
    for run in asked {
        wait(&run.folder, began, printer);
        let took = words::duration(began.elapsed());
        let job = &run.record.name;
        // It may have ended by itself in between, or its engine was killed. One that was deleted meanwhile was stopped before.
        let state = Stored::read(run.folder.clone()).map_or(STOPPED, |ended| ended.state());
        printer.summary(&if state == STOPPED {
            format!("job `{job}` was stopped after {took}")
        } else {
            format!("job `{job}` ended otherwise after {took} ({state}); `trainyard explain {job}` shows why")
        });
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(Exit::Done),
    }
}

/// Waits for the end of a run. The engine ends pods that outlast their grace period, so there is one.
fn wait(folder: &RunFolder, began: Instant, printer: &mut Printer) {
    let mut say_at = began + SAY_EVERY;
    while folder.is_live() {
        if Instant::now() >= say_at {
            say_at = Instant::now() + SAY_EVERY;
            let job = &folder.job;
            printer.summary(&format!(
                "job `{job}` has not ended after {}; `trainyard stop {job} --now` kills its pods",
                words::duration(began.elapsed())
            ));
        }
        thread::sleep(LOOK_EVERY);
    }
}
