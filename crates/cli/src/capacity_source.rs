//! Reads the nodes that could be added to a cluster from a file.

use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_core::{
    capacity::Offer,
    gang::Snapshot,
    spec::{self, MAX_BYTES},
};

use crate::{clean, failure::Failure, printer::Printer, source};

/// The offer in the file at `path`; prints its notes. Nodes of `snapshot` show the shapes of pools that have some.
pub(crate) fn read(
    path: &Path,
    snapshot: &Snapshot,
    now: Timestamp,
    printer: &mut Printer,
) -> Result<Offer, Failure> {
    let name = source::name(path);
    let bytes = source::read(path, MAX_BYTES)?;
    let file = spec::read(&bytes).map_err(|finding| {
        let place = format!("{name}:{}:{}", finding.span.line, finding.span.column);
        Failure::new(format!("{place}: {}", finding.message))
    })?;
    let values = file.documents.iter().map(|own| own.tree.to_json());
    let offer = Offer::of_values(values, snapshot, now)
        .with_context(|| format!("`{name}` does not say which nodes could be added"))
        .map_err(|error| Failure::from(error).hint("docs/guides/capacity.md has an example"))?;
    for note in &offer.notes {
        printer.summary(&format!("note: {}", clean::text(note)));
    }
    Ok(offer)
}
