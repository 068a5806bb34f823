//! `trainyard completions`: made from the definition of the arguments, so they cannot lag behind.

use crate::{
    args::{self, Completions},
    failure::{Exit, Failure},
    printer::Printer,
};

/// Prints the script.
pub(super) fn run(args: &Completions, printer: &mut Printer) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut args::definition(),
        "trainyard",
        &mut script,
    );
    printer.data(&script)?;
    Ok(Exit::Done)
}
