//! What each command does: one file per command.

mod attach;
mod change;
mod checkpoints;
mod completions;
pub(crate) mod dashboard;
mod debug;
mod doctor;
mod exec;
mod expand;
mod explain;
mod fabric;
mod history;
mod lint;
mod logs;
mod man;
mod new;
mod nodes;
mod operator;
mod place;
mod plan;
mod preflight;
mod profile;
mod ps;
mod reference;
mod render;
mod report;
mod run;
mod simulate;
mod stacks;
mod status;
mod stop;
mod top;
mod watched;

use std::path::Path;

use trainyard_core::{
    finding::{Finding, Severity},
    lint as rules,
    spec::{self, Contents, File},
};

use crate::{
    args::Command,
    environment::Environment,
    fabrics::Fabrics,
    failure::{Exit, Failure},
    printer::Printer,
    snippet, source,
};

/// Runs one command.
pub(crate) fn run(
    command: Command,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(&args, environment, printer),
        Command::Attach(args) => attach::run(&args, environment, printer),
        Command::Stop(args) => stop::run(&args, printer),
        Command::Ps(args) => ps::run(&args, printer),
        Command::Status(args) => status::run(&args, printer),
        Command::Logs(args) => logs::run(&args, printer),
        Command::Top(args) => top::run(&args, printer),
        Command::Dashboard(args) => dashboard::run(&args, printer),
        Command::History(args) => history::run(&args, environment, printer),
        Command::Report(args) => report::run(&args, environment, printer),
        Command::Stacks(args) => stacks::run(&args, printer),
        Command::Profile(args) => profile::run(&args, printer),
        Command::Exec(args) => exec::run(&args, printer),
        Command::Debug(args) => debug::run(&args, printer),
        Command::Explain(args) => explain::run(&args, printer),
        Command::Doctor(args) => doctor::run(&args, printer),
        Command::Suspend(args) => change::suspend(&args.job, true, printer),
        Command::Resume(args) => change::suspend(&args.job, false, printer),
        Command::Restart(args) => change::restart(&args.job, printer),
        Command::Delete(args) => change::delete(&args, printer),
        Command::Render(args) => render::run(args, environment, printer),
        Command::Fabric(args) => fabric::run(&args, printer),
        Command::Lint(args) => lint::run(&args, printer),
        Command::New(args) => new::run(&args, printer),
        Command::Place(args) => place::run(&args, printer),
        Command::Nodes(args) => nodes::run(&args, printer),
        Command::Preflight(args) => preflight::run(&args, printer),
        Command::Plan(args) => plan::run(&args, printer),
        Command::Simulate(args) => simulate::run(&args, printer),
        Command::Checkpoints(args) => checkpoints::run(&args, printer),
        Command::Operator(args) => operator::run(*args, printer),
        Command::Completions(args) => completions::run(&args, printer),
        Command::Man(args) => man::run(&args, printer),
        Command::Reference(args) => reference::run(&args, printer),
    }
}

/// Prints a finding.
fn print_finding(finding: &Finding, file: &str, text: &str, printer: &mut Printer) {
    let block = snippet::render(finding, file, text, printer.stderr_paint());
    printer.message(&block);
}

/// Prints the findings of a set of files; true if any of them is an error.
fn refuse(files: &[(&str, &File)], printer: &mut Printer) -> bool {
    let together: Vec<&File> = files.iter().map(|(_, file)| *file).collect();
    let mut refused = false;
    for ((name, file), findings) in files.iter().zip(rules::lint_together(&together)) {
        for finding in &findings {
            let is_error = finding.severity == Severity::Error;
            refused |= is_error;
            if is_error || printer.wants_warnings() {
                print_finding(finding, name, &file.text, printer);
            }
        }
    }
    refused
}

/// Notes the objects of other kinds beside the jobs, and what becomes of them.
fn note_foreign(files: &[&File], fate: &str, printer: &mut Printer) {
    let contents = Contents::of(files.iter().copied());
    let foreign: Vec<String> = files
        .iter()
        .flat_map(|file| contents.foreign(file))
        .collect();
    note_objects(&foreign, fate, printer);
}

/// What happens to objects that are not jobs.
fn note_objects(foreign: &[String], fate: &str, printer: &mut Printer) {
    /// Objects that are named before the rest is only counted.
    const NAMED: usize = 5;
    if foreign.is_empty() {
        return;
    }
    let mut named = foreign.iter().take(NAMED).cloned().collect::<Vec<_>>();
    if let Some(more) = foreign.len().checked_sub(NAMED).filter(|more| *more > 0) {
        named.push(format!("and {more} more"));
    }
    let (are, noun) = if foreign.len() == 1 {
        ("is", "is not a training job")
    } else {
        ("are", "are not training jobs")
    };
    printer.summary(&format!(
        "note: {} {noun} and {are} {fate}",
        named.join(", ")
    ));
}

/// Notes the names of jobs with `generateName`.
fn note_generated_names(names: &[String], printer: &mut Printer) {
    for name in names {
        printer.summary(&format!(
            "note: `generateName` becomes `{name}`; on a cluster the last five characters are random"
        ));
    }
}

/// A file of jobs without mistakes, and the fabrics in it; none where it has some, which are printed.
fn jobs_file(path: &Path, printer: &mut Printer) -> Result<Option<(File, Fabrics)>, Failure> {
    let name = source::name(path);
    let bytes = source::read(path, spec::MAX_BYTES)?;
    let mut file = match spec::read(&bytes) {
        Ok(file) => file,
        Err(finding) => {
            print_finding(&finding, &name, &spec::source_text(&bytes), printer);
            return Ok(None);
        }
    };
    if refuse(&[(&name, &file)], printer) {
        return Ok(None);
    }
    note_generated_names(&file.name_jobs(None), printer);
    let mut fabrics = Fabrics::default();
    for document in &file.documents {
        fabrics.add(document);
    }
    Ok(Some((file, fabrics)))
}
