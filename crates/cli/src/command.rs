//! What each command does: one file per command.

mod completions;
mod lint;
mod man;
mod reference;
mod render;

use crate::{
    args::Command,
    environment::Environment,
    failure::{Exit, Failure},
    printer::Printer,
};

/// Runs one command.
pub(crate) fn run(
    command: Command,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    match command {
        Command::Render(args) => render::run(args, environment, printer),
        Command::Lint(args) => lint::run(&args, printer),
        Command::Completions(args) => completions::run(&args, printer),
        Command::Man(args) => man::run(&args, printer),
        Command::Reference(args) => reference::run(&args, printer),
    }
}
