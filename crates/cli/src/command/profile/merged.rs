//! Writes the traces of all ranks as one file.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use trainyard_profile::{
    analyse::{Summary, clock_offsets},
    merge::{self, Merger},
};

use super::files::{self, TraceFile};
use crate::failure::Failure;

/// Writes `path`; under another name until it is whole, so that a command that is killed leaves no half of it.
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
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let file = File::create(&part).map_err(failed)?;
    let file = BufWriter::new(file);
    let written = if path.extension().is_some_and(|it| it == "gz") {
        let mut packed = GzEncoder::new(file, Compression::fast());
        merge_into(&mut packed, traces, summaries)
            .and_then(|()| packed.finish())
            .and_then(|mut file| file.flush())
    } else {
        let mut file = file;
        merge_into(&mut file, traces, summaries).and_then(|()| file.flush())
    };
    let written = written.and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What is left of it helps nobody; the first error is the one to report.
        fs::remove_file(&part).ok();
    }
    written.map_err(failed)
}

fn merge_into(out: &mut impl Write, traces: &[TraceFile], summaries: &[Summary]) -> io::Result<()> {
    let offsets = clock_offsets(summaries);
    let first = offsets.iter().flatten().min().copied().unwrap_or(0);
    let mut buffer = Vec::new();
    merge::begin(u64::try_from(first).unwrap_or(0), &mut buffer);
    for ((trace, summary), offset) in traces.iter().zip(summaries).zip(offsets) {
        // A rank whose clock is unknown begins with the first.
        let shift = offset.unwrap_or(first).abs_diff(first);
        let mut merger = Merger::new(summary.values.rank, shift);
        let mut failed = None;
        files::blocks(&trace.path, |block| {
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
