//! `trainyard plan --rows`: a table of published runs with what the model says of them.

use std::path::Path;

use trainyard_core::plan::rows::{Table, append};

use crate::{
    failure::{Exit, Failure},
    printer::Printer,
    source,
};

/// Longest table that is read.
const LIMIT: usize = 64 << 20;

/// Prints the table with the columns appended.
pub(super) fn run(path: &Path, printer: &mut Printer) -> Result<Exit, Failure> {
    let name = source::name(path);
    let refuse = |why: &str| Failure::new(format!("cannot read a table from `{name}`: {why}"));
    let bytes = source::read(path, LIMIT)?;
    if bytes.len() > LIMIT {
        return Err(refuse("it is longer than 64 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8"))?;
    let mut table = Table::read(&text).map_err(|error| refuse(&error.to_string()))?;
    for column in ["gpu", "gpu_count", "seq_len", "global_batch"] {
        table
            .needed(column)
            .map_err(|error| refuse(&error.to_string()))?;
    }
    append(&mut table);
    let column = table.header.len() - 2;
    let blank = table
        .rows
        .iter()
        .filter(|row| row[column].is_empty())
        .count();
    printer.data(table.write().as_bytes())?;
    printer.summary(&format!(
        "{} of {} rows predicted; `pred_note` shows what the others lack",
        table.rows.len() - blank,
        table.rows.len()
    ));
    Ok(Exit::Done)
}
