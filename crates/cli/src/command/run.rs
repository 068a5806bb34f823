//! `trainyard run`: the job of a file, or a command as ranks, on this machine, to its end.

mod choose;
mod detach;
mod gather;
mod plain;

use std::{sync::Arc, thread, time::Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_core::{
    job::{self, Account},
    spec::Job,
};
use trainyard_host::{
    Accelerators, HostError, Outcome, RunOptions, RunReport, RunRequest, StopHandle,
};

use self::gather::Gathering;
use super::doctor;
use crate::{
    args::{Format, Gpus, Run},
    environment::{self, Environment},
    failure::{Exit, Failure},
    printer::{Printer, Verbosity},
    run::{
        Look, Queue, Screen, Signals, Target, View,
        report::{self, Limits},
        watch,
    },
    words,
};

/// Runs the job.
pub(super) fn run(
    args: &Run,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    if args.detach && !args.detached_engine {
        return detach::start(args, printer);
    }
    let options = options(args)?;
    let mut gathered = Gathering::new(args);
    match &args.file {
        Some(file) if args.command.is_empty() => {
            plain::refuse_options(args, file)?;
            gathered.read(file, printer)?;
        }
        None if !args.command.is_empty() => {
            let bytes = plain::job(args, &options.environment, printer)?;
            gathered.take(&bytes, "the command", false, printer)?;
        }
        Some(_) => {
            return Err(Failure::new(
                "`run` takes a job file or a command after `--`, not both",
            ));
        }
        None => {
            return Err(
                Failure::new("`run` needs a job file, or a command after `--`").hint(
                    "`trainyard run job.yaml`, or `trainyard run --nproc 4 -- python train.py`",
                ),
            );
        }
    }
    for path in &args.more {
        gathered.read(path, printer)?;
    }
    let Some(gathered) = gathered.judge(printer)? else {
        return Ok(Exit::CouldNot);
    };
    let renamed = args.name.as_deref().filter(|_| args.job.is_some());
    let (job, manifest) = choose::choose(gathered.jobs, renamed.or(args.job.as_deref()))?;
    let mut job = gathered.fabrics.fit_locally(job, printer);
    let request = RunRequest {
        job: job.clone(),
        manifest,
        companions: gathered.companions,
        state_dir: args.state.state_dir.clone(),
        options,
    };
    // What is shown must have the sizes that run.
    for (role, count) in &request.options.replicas {
        if let Some(spec) = job.roles.get_mut(role) {
            spec.replicas = *count;
        }
    }
    if args.detached_engine {
        return detach::engine(&request, printer);
    }
    let report = supervise(&request, &job, args.format, environment, printer)?;
    let limits = Account::ALL
        .into_iter()
        .filter_map(|account| Some((account, job::budget_limit(&job, account)?)))
        .collect();
    finish(&report, &limits, args.format, printer)?;
    Ok(match report.outcome {
        Outcome::Succeeded => Exit::Done,
        Outcome::Failed | Outcome::Stopped => Exit::Failed,
    })
}

/// Runs the engine on this thread, to whose life the pods are tied, and the view on another.
fn supervise(
    request: &RunRequest,
    job: &Job,
    format: Format,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<RunReport, Failure> {
    let stop = StopHandle::new().context("cannot create the stop channel of the run")?;
    let signals = Signals::listen().context("cannot install signal handlers")?;
    stop.listen_to_signals()
        .context("cannot install signal handlers")?;

    let (mut view, mut screen) = stage(job, format, Timestamp::now(), environment, printer);
    let queue = Queue::new();
    let began = Instant::now();
    thread::scope(|scope| {
        let watcher =
            scope.spawn(|| watch(&queue, began, &signals, &mut view, &mut screen, printer));
        let closing = queue.closing();
        let outcome = trainyard_host::run(request, &stop, &mut |event| {
            queue.push(event, began.elapsed());
        });
        drop(closing);
        let shown = watcher
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let report = outcome.map_err(refused)?;
        shown?;
        Ok(report)
    })
}

/// The view and the screen that fit the streams of this process.
pub(super) fn stage(
    job: &Job,
    format: Format,
    began: Timestamp,
    environment: &Environment,
    printer: &Printer,
) -> (View, Screen) {
    let quiet = printer.verbosity() == Verbosity::Quiet;
    let terminal = printer.stderr_is_terminal();
    let target = match format {
        Format::Json => Target::Stderr,
        // Two writers to one terminal would tear the live line apart.
        Format::Text if terminal && printer.stdout_is_terminal() => Target::Stderr,
        Format::Text => Target::Apart,
    };
    let look = Look {
        ranks: match target {
            Target::Apart => printer.stdout_paint(),
            Target::Stderr => printer.stderr_paint(),
        },
        own: printer.stderr_paint(),
        verbosity: printer.verbosity(),
    };
    let live = terminal && !quiet && !environment.dumb_terminal;
    let ranks = !(quiet && format == Format::Json);
    (
        View::new(job, look, began),
        Screen::new(target, ranks, live),
    )
}

/// Prints the report.
pub(super) fn finish(
    report: &RunReport,
    limits: &Limits,
    format: Format,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let failed = report.outcome != Outcome::Succeeded;
    warn_of_faults(report, printer);
    match format {
        Format::Text if failed || printer.wants_warnings() => {
            let text = report::render(report, limits, printer.width(), printer.stderr_paint());
            printer.message(&text);
            Ok(())
        }
        Format::Text => Ok(()),
        Format::Json => {
            // In the other form it is a line of the report.
            if let Some(complaint) = report::complaint(report) {
                printer.summary(&format!("warning: {complaint}"));
            }
            printer.json(report)
        }
    }
}

/// Warns about faults that were not injected, whether or not the job succeeded.
fn warn_of_faults(report: &RunReport, printer: &mut Printer) {
    let all = report.injections.len();
    let missed = report
        .injections
        .iter()
        .filter(|fault| !fault.fired)
        .count();
    if missed > 0 {
        let faults = words::counted(all as u64, "fault");
        printer.summary(&format!(
            "\nwarning: {missed} of {faults} were not injected; the report shows why"
        ));
    }
}

fn options(args: &Run) -> Result<RunOptions, Failure> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(RunOptions {
        accelerators: if args.cpu || args.gpus == Some(Gpus::Each(0)) {
            Accelerators::Ignore
        } else {
            Accelerators::Detect
        },
        replicas: args.replicas.iter().copied().collect(),
        image_env: args.image_env.clone(),
        inject: args.inject.clone(),
        fresh: args.fresh,
        rules: if args.rules.is_empty() {
            None
        } else {
            Some(Arc::new(doctor::rules(&args.rules)?))
        },
        environment: environment::inherited(program.parent()),
        working_dir: std::env::current_dir().context("cannot find the current folder")?,
        program,
    })
}

fn refused(error: HostError) -> Failure {
    let hint = error.hint();
    let failure = Failure::from(anyhow::Error::new(error));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
