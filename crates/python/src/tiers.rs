//! A local tier in front of the root.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use pyo3::prelude::*;
use trainyard_checkpoint_engine::{
    Files,
    clock::Clock,
    files::probe::Refused,
    store::Store as Root,
    tiers::{NodeHolds, TierOptions, Tiers},
    token,
};
use trainyard_core::checkpoint::PieceSeen;

use crate::error::plain;

/// What a local tier holds: folder, and rank, checksum and sizes of each piece.
pub(crate) type Holds = Vec<(String, Vec<(u32, String, Vec<u64>)>)>;

/// Opens the local tier of a root.
pub(crate) fn open(
    shared: &Arc<Root>,
    clock: &Arc<dyn Clock>,
    folder: &Path,
    options: TierOptions,
) -> PyResult<Tiers> {
    let files = Files::open(folder).map_err(|refused: Refused| plain(refused))?;
    let seed = token::seed().map_err(plain)?;
    let opened = Tiers::open(
        Arc::clone(shared),
        Arc::new(files),
        Arc::clone(clock),
        seed,
        options,
    );
    opened.map_err(|error| {
        plain(format!(
            "cannot use the local tier `{}`: {error}",
            folder.display()
        ))
    })
}

pub(crate) fn to_python(holds: Vec<NodeHolds>) -> Holds {
    let piece = |piece: PieceSeen| (piece.rank, piece.crc32c.to_string(), piece.files);
    holds
        .into_iter()
        .map(|step| {
            let pieces = step.pieces.into_iter().map(piece).collect();
            (step.folder.to_string(), pieces)
        })
        .collect()
}

pub(crate) fn of_nodes(
    nodes: BTreeMap<String, Holds>,
) -> PyResult<BTreeMap<String, Vec<NodeHolds>>> {
    let mut found = BTreeMap::new();
    for (node, holds) in nodes {
        let mut steps = Vec::with_capacity(holds.len());
        for (folder, pieces) in holds {
            let mut seen = Vec::with_capacity(pieces.len());
            for (rank, crc32c, files) in pieces {
                let crc32c = crc32c.parse().map_err(plain)?;
                seen.push(PieceSeen {
                    rank,
                    crc32c,
                    files,
                });
            }
            steps.push(NodeHolds {
                folder: folder.parse().map_err(plain)?,
                pieces: seen,
            });
        }
        found.insert(node, steps);
    }
    Ok(found)
}
