//! `trainyard run`: the job of a file, on this machine, to its end.

mod choose;

use std::{path::Path, sync::Arc, thread, time::Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::Value;
use trainyard_core::{
    finding::Severity,
    job::{self, Account},
    lint,
    spec::{self, Document, Job, RoleInFile},
};
use trainyard_host::{
    Accelerators, HostError, Outcome, RunOptions, RunReport, RunRequest, StopHandle,
};

use super::tell;
use crate::{
    args::{Format, Run},
    environment::{self, Environment},
    fabrics::Fabrics,
    failure::{Exit, Failure},
    printer::{Printer, Verbosity},
    run::{Look, Queue, Screen, Signals, Target, View, report, watch},
    source,
};

/// Runs the job.
pub(super) fn run(
    args: &Run,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let mut gathered = Gathered::default();
    for path in std::iter::once(&args.file).chain(&args.more) {
        gathered.read(path, printer)?;
    }
    if gathered.refused {
        return Ok(Exit::CouldNot);
    }
    let job = choose::choose(gathered.jobs, args.job.as_deref())?;
    let mut job = gathered.fabrics.fit_locally(job, printer);
    let options = options(args)?;
    let request = RunRequest {
        job: job.clone(),
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
    let report = supervise(&request, &job, args.format, environment, printer)?;
    finish(&report, &job, args.format, printer)?;
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
    let stop = StopHandle::new().context("cannot make the way to stop a run")?;
    let signals = Signals::listen().context("cannot listen to signals")?;
    stop.listen_to_signals()
        .context("cannot listen to signals")?;

    let (mut view, mut screen) = stage(job, format, environment, printer);
    let queue = Queue::new();
    let began = Instant::now();
    thread::scope(|scope| {
        let watcher =
            scope.spawn(|| watch(&queue, began, &signals, &mut view, &mut screen, printer));
        let outcome = trainyard_host::run(request, &stop, &mut |event| {
            queue.push(event, began.elapsed());
        });
        queue.close();
        let shown = watcher
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let report = outcome.map_err(refused)?;
        shown?;
        Ok(report)
    })
}

/// The view and the screen that fit the streams of this process.
fn stage(
    job: &Job,
    format: Format,
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
        View::new(job, look, Timestamp::now()),
        Screen::new(target, ranks, live),
    )
}

/// Prints the report.
fn finish(
    report: &RunReport,
    job: &Job,
    format: Format,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let limits = Account::ALL
        .into_iter()
        .filter_map(|account| Some((account, job::budget_limit(job, account)?)))
        .collect();
    let failed = report.outcome != Outcome::Succeeded;
    match format {
        Format::Text if failed || printer.wants_warnings() => {
            let text = report::render(report, &limits, printer.width(), printer.stderr_paint());
            printer.message(&text);
            Ok(())
        }
        Format::Text => Ok(()),
        Format::Json => {
            let mut json =
                serde_json::to_vec_pretty(report).context("cannot write the report as JSON")?;
            json.push(b'\n');
            printer.data(&json)
        }
    }
}

fn options(args: &Run) -> Result<RunOptions, Failure> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    Ok(RunOptions {
        accelerators: if args.cpu {
            Accelerators::Ignore
        } else {
            Accelerators::Detect
        },
        replicas: args.replicas.iter().copied().collect(),
        image_env: args.image_env.clone(),
        inject: args.inject.clone(),
        environment: environment::inherited(program.parent()),
        working_dir: std::env::current_dir().context("cannot tell the current folder")?,
        program,
    })
}

/// What the files hold.
#[derive(Default)]
struct Gathered {
    jobs: Vec<choose::Candidate>,
    companions: Vec<Value>,
    fabrics: Fabrics,
    /// A file has an error; all of them were told.
    refused: bool,
}

impl Gathered {
    fn read(&mut self, path: &Path, printer: &mut Printer) -> Result<(), Failure> {
        let name: Arc<str> = source::name(path).into();
        let bytes = source::read(path, spec::MAX_BYTES)?;
        let file = match spec::read(&bytes) {
            Ok(file) => file,
            Err(finding) => {
                tell(&finding, &name, &spec::source_text(&bytes), printer);
                self.refused = true;
                return Ok(());
            }
        };
        let companion = |document: &Document| {
            document.role_in_file() == RoleInFile::Companion && !document.is_fabric()
        };
        // A file beside the job's need not hold one; that no file does is said later.
        let findings = if file.documents.iter().all(companion) {
            Vec::new()
        } else {
            lint::lint(&file)
        };
        for finding in &findings {
            let error = finding.severity == Severity::Error;
            self.refused |= error;
            if error || printer.wants_warnings() {
                tell(finding, &name, &file.text, printer);
            }
        }
        for document in &file.documents {
            match document.role_in_file() {
                RoleInFile::Job(_) => {
                    self.jobs
                        .extend(spec::check(document).job.map(|job| choose::Candidate {
                            job,
                            file: Arc::clone(&name),
                        }));
                }
                RoleInFile::Companion if document.is_fabric() => self.fabrics.add(document),
                RoleInFile::Companion => self.companions.push(document.tree.to_json()),
                RoleInFile::Unsupported => {}
            }
        }
        Ok(())
    }
}

fn refused(error: HostError) -> Failure {
    let hint = error.hint();
    let failure = Failure::from(anyhow::Error::new(error));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
