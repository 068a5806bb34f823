//! What each command does: one file per command.

mod completions;
mod delete;
mod doctor;
mod explain;
mod fabric;
mod lint;
pub(crate) mod logs;
mod man;
mod new;
mod nodes;
mod operator;
mod place;
mod plan;
mod preflight;
pub(crate) mod ps;
mod reference;
mod render;
mod restart;
mod resume;
mod run;
mod simulate;
pub(crate) mod status;
mod suspend;

use std::path::Path;

use trainyard_core::{
    finding::{Finding, Severity},
    spec::{self, File},
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
        Command::Ps(args) => ps::run(&args, printer),
        Command::Status(args) => status::run(&args, printer),
        Command::Logs(args) => logs::run(&args, printer),
        Command::Explain(args) => explain::run(&args, printer),
        Command::Doctor(args) => doctor::run(&args, printer),
        Command::Suspend(args) => suspend::run(&args.job, printer),
        Command::Resume(args) => resume::run(&args.job, printer),
        Command::Restart(args) => restart::run(&args.job, printer),
        Command::Delete(args) => delete::run(&args, printer),
        Command::Render(args) => render::run(args, environment, printer),
        Command::Fabric(args) => fabric::run(&args, printer),
        Command::Lint(args) => lint::run(&args, printer),
        Command::New(args) => new::run(&args, printer),
        Command::Place(args) => place::run(&args, printer),
        Command::Nodes(args) => nodes::run(&args, printer),
        Command::Preflight(args) => preflight::run(&args, printer),
        Command::Plan(args) => plan::run(&args, printer),
        Command::Simulate(args) => simulate::run(&args, printer),
        Command::Operator(args) => operator::run(*args, printer),
        Command::Completions(args) => completions::run(&args, printer),
        Command::Man(args) => man::run(&args, printer),
        Command::Reference(args) => reference::run(&args, printer),
    }
}

/// Prints a finding that stands in the way, or a warning.
fn tell(finding: &Finding, file: &str, text: &str, printer: &mut Printer) {
    let block = snippet::render(finding, file, text, printer.stderr_paint());
    printer.message(&block);
}

/// A file of jobs without mistakes, and the fabrics in it; none where it has some, which are told.
fn jobs_file(path: &Path, printer: &mut Printer) -> Result<Option<(File, Fabrics)>, Failure> {
    let name = source::name(path);
    let bytes = source::read(path, spec::MAX_BYTES)?;
    let file = match spec::read(&bytes) {
        Ok(file) => file,
        Err(finding) => {
            tell(&finding, &name, &spec::source_text(&bytes), printer);
            return Ok(None);
        }
    };
    let mut refused = false;
    for finding in &trainyard_core::lint::lint(&file) {
        let is_error = finding.severity == Severity::Error;
        refused |= is_error;
        if is_error || printer.wants_warnings() {
            tell(finding, &name, &file.text, printer);
        }
    }
    if refused {
        return Ok(None);
    }
    let mut fabrics = Fabrics::default();
    for document in &file.documents {
        fabrics.add(document);
    }
    Ok(Some((file, fabrics)))
}
