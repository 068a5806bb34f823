//! `trainyard attach`: the live view of a run that another process runs, from the store.

mod feed;

use std::{thread, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_core::spec;
use trainyard_host::Outcome;

use self::feed::Feed;
use super::run::{finish as print_report, stage};
use crate::{
    args::{Attach, Format, Which},
    environment::Environment,
    failure::{Exit, Failure},
    printer::Printer,
    run::{Queue, Signals, show},
    stored::{self, Stored},
};

/// Poll interval of the store.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shows the run until it is over, or until the user leaves it.
pub(super) fn run(
    args: &Attach,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let store = stored::open(&args.state)?;
    let run = match &args.job {
        Some(job) => {
            let which = Which {
                job: job.clone(),
                run: None,
            };
            stored::find(&store, &which)?
        }
        None => stored::only_live(&store, "attach to")?,
    };
    if run.live && watch(&run, environment, printer)? {
        let job = &run.record.name;
        printer.summary(&format!(
            "detached; job `{job}` keeps running: `trainyard attach {job}` returns to it, \
             `trainyard stop {job}` stops it"
        ));
        return Ok(Exit::Done);
    }
    finish(run, printer)
}

/// Shows the run; true where the user left it before its end.
fn watch(run: &Stored, environment: &Environment, printer: &mut Printer) -> Result<bool, Failure> {
    let name = &run.record.name;
    let mut job = spec::job_from_value(&run.record.job).job.ok_or_else(|| {
        Failure::new(format!("the run of job `{name}` has no copy of the job")).hint(format!(
            "`trainyard logs {name} --follow` shows the output of its ranks"
        ))
    })?;
    for (role, count) in &run.record.replicas {
        if let Some(spec) = job.roles.get_mut(role) {
            spec.replicas = *count;
        }
    }
    let signals = Signals::listen().context("cannot install signal handlers")?;
    let (mut view, mut screen) = stage(
        &job,
        Format::Text,
        run.record.started_at,
        environment,
        printer,
    );
    let queue = Queue::new();
    let mut feed = Feed::new(run);
    printer.summary(&format!(
        "attached to job `{name}`; Ctrl-C leaves it running, `trainyard stop {name}` stops it"
    ));
    loop {
        // Asked before the store is read, so that what a run wrote last is not missed.
        let live = run.folder.is_live();
        let now = since(run.record.started_at);
        feed.poll(&mut |event| queue.push(event, now))?;
        view.width_is(printer.width());
        view.take(queue.take(Duration::ZERO));
        let mut lines = view.due(now);
        let left = signals.take();
        if left || !live {
            lines.extend(view.finish());
        }
        let frame = screen.frame(&lines, now, printer.width(), || view.live_line(now));
        show(&frame, printer)?;
        if left || !live {
            printer.draw(&screen.erase(printer.width()));
            return Ok(left && live);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Prints the report of a run that is over.
fn finish(run: Stored, printer: &mut Printer) -> Result<Exit, Failure> {
    let run = Stored::read(run.folder).map_err(stored::refused)?;
    let Some(report) = &run.report else {
        return Err(Failure::new(format!(
            "the engine of job `{}` died without a report; no process of it is left",
            run.record.name
        ))
        .hint("run the same command again; volumes and their checkpoints are kept"));
    };
    print_report(report, &run.record.limits, Format::Text, printer)?;
    Ok(match report.outcome {
        Outcome::Succeeded => Exit::Done,
        Outcome::Failed | Outcome::Stopped => Exit::Failed,
    })
}

fn since(began: Timestamp) -> Duration {
    let passed = Timestamp::now().duration_since(began);
    passed.try_into().unwrap_or_default()
}
