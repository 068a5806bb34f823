//! `trainyard man`: made from the definition of the arguments, so it cannot lag behind.

use std::fs;

use anyhow::Context as _;

use crate::{
    args::{self, Man},
    failure::{Exit, Failure},
    printer::Printer,
};

/// Prints the page of the program, or writes the pages of all commands.
pub(super) fn run(args: &Man, printer: &mut Printer) -> Result<Exit, Failure> {
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(args::definition())
            .render(&mut page)
            .context("cannot create the manual page")?;
        printer.data(&page)?;
        return Ok(Exit::Done);
    };
    let shown = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder `{shown}`"))?;
    clap_mangen::generate_to(args::definition(), folder)
        .with_context(|| format!("cannot write manual pages to `{shown}`"))?;
    printer.summary(&format!("wrote the manual pages to `{shown}`"));
    Ok(Exit::Done)
}
