//! Writes the traces of all ranks as one file.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use trainyard_profile::{
    analyse::{Summary, clock_offsets},
    merge::{self, Merger},
};

use super::files::{self, TraceFile};
use crate::{failure::Failure, output};

/// Writes `path`, as a whole or not at all.
pub(super) fn write(
    path: &Path,
    traces: &[TraceFile],
    summaries: &[Summary],
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let failure =
            anyhow::Error::new(error).context(format!("cannot write `{}`", path.display()));
        Failure::from(failure)
    };
    let is_same = |own: &Path, other: &Path| fs::canonicalize(other).is_ok_and(|it| it == own);
    let is_input = |own: PathBuf| traces.iter().any(|trace| is_same(&own, &trace.path));
    if fs::canonicalize(path).is_ok_and(is_input) {
        let message = format!(
            "`{}` is one of the traces, which `--merged` would replace",
            path.display()
        );
        return Err(
            Failure::new(message).hint("name another file, outside of the folder of the traces")
        );
    }
    let is_packed = path.extension().is_some_and(|it| it == "gz");
    let written = output::write_pieces(path, |file| {
        let mut file = BufWriter::new(file);
        if is_packed {
            let mut packed = GzEncoder::new(&mut file, Compression::fast());
            merge_into(&mut packed, traces, summaries)?;
            packed.finish()?;
        } else {
            merge_into(&mut file, traces, summaries)?;
        }
        file.flush()
    });
    written.map_err(failed)
}

fn merge_into(out: &mut impl Write, traces: &[TraceFile], summaries: &[Summary]) -> io::Result<()> {
    let offsets = clock_offsets(summaries);
    let first = offsets.iter().flatten().min().copied().unwrap_or(0);
    let mut buffer = Vec::new();
    let bounds = files::bounds();
    merge::begin(u64::try_from(first).unwrap_or(0), &mut buffer);
    for ((trace, summary), offset) in traces.iter().zip(summaries).zip(offsets) {
        // A rank whose clock is unknown begins with the first.
        let shift = offset.unwrap_or(first).abs_diff(first);
        let mut merger = Merger::new(summary.values.rank, shift);
        let mut failed = None;
        files::blocks(&trace.path, &bounds, |block| {
            let more = merger.push(block, &mut buffer);
            failed = out.write_all(&buffer).err();
            buffer.clear();
            more && failed.is_none()
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    merge::end(&mut buffer);
    out.write_all(&buffer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The folder may be one that others write to.
    #[test]
    fn links_beside_a_merged_trace_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "precious").unwrap();
        symlink(at("victim"), at("all.json.part")).unwrap();
        write(&at("all.json"), &[], &[]).unwrap();
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "precious");
        let merged = fs::read_to_string(at("all.json")).unwrap();
        assert!(merged.contains("traceEvents"), "{merged}");
        assert!(at("all.json.part").is_symlink(), "it is not ours");
    }
}
