//! Finds traces, reads them, and says which rank each is of.
//!
//! Invariants: whatever a folder holds, a bounded number of files is opened, only regular ones, and none is read into memory as a
//! whole; what compressed ones expand to is bounded, too. A file that cannot be read costs only itself.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use flate2::read::MultiGzDecoder;
use trainyard_profile::{ReadError, Reader, analyse::Summary};

use super::Missing;
use crate::{
    command::expand::{Bounds, Counted, Expanded},
    failure::Failure,
    printer::Printer,
    words,
};

/// Files that are analysed at once.
const MOST_FILES: usize = 1024;
/// Entries of folders that are looked at, and folders within folders.
const MOST_ENTRIES: usize = 20_000;
const MOST_DEPTH: usize = 6;
/// Unpacked bytes of one trace: half an hour of a busy rank.
const MOST_BYTES: u64 = 64 << 30;
/// Bytes that are read at once.
const BLOCK: usize = 256 << 10;
/// Files that are read at once; each holds the events of one rank in memory.
const MOST_READERS: usize = 4;
/// So many bytes take longer than a second.
const SLOW: u64 = 100 << 20;

/// A trace that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceFile {
    pub(super) path: PathBuf,
    /// The rank, where it is known from elsewhere.
    pub(super) rank: Option<u32>,
    /// Whether the user named this file. One that was only found in a folder may be something else.
    pub(super) named: bool,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Traces {
    pub(super) summaries: Vec<(TraceFile, Summary)>,
    pub(super) missing: Vec<Missing>,
    pub(super) warnings: Vec<String>,
}

/// The traces that `targets` name: files, and all traces in folders.
pub(super) fn find(targets: &[String]) -> Result<Vec<TraceFile>, Failure> {
    let mut found = Vec::new();
    for target in targets {
        let path = Path::new(target);
        let about = fs::metadata(path).map_err(|error| cannot_read(path, error))?;
        if about.is_dir() {
            let before = found.len();
            let mut entries = MOST_ENTRIES;
            walk(path, 0, &mut entries, &mut found)?;
            if found.len() == before {
                return Err(Failure::new(format!(
                    "no traces in `{target}`: expected files ending in `.json` or `.json.gz`"
                ))
                .hint("`torch.profiler.tensorboard_trace_handler` and `export_chrome_trace` write such files"));
            }
        } else if about.is_file() {
            found.push(TraceFile {
                path: path.to_owned(),
                rank: None,
                named: true,
            });
        } else {
            return Err(Failure::new(format!(
                "cannot read `{target}`: it is neither a file nor a folder"
            )));
        }
    }
    found.sort_by(|one, two| one.path.cmp(&two.path));
    found.dedup_by(|one, two| one.path == two.path);
    if found.len() > MOST_FILES {
        return Err(Failure::new(format!(
            "{} files are too many: at most {MOST_FILES} traces are analysed together",
            found.len()
        ))
        .hint("name the files of one moment, one for each rank"));
    }
    Ok(found)
}

fn cannot_read(path: &Path, error: io::Error) -> Failure {
    Failure::from(anyhow::Error::new(error).context(format!("cannot read `{}`", path.display())))
}

fn is_trace_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let unpacked = name.strip_suffix(".gz").unwrap_or(&name);
    unpacked.strip_suffix(".json").is_some()
}

/// Adds the traces in `folder`. Links to folders are not followed.
fn walk(
    folder: &Path,
    depth: usize,
    entries: &mut usize,
    found: &mut Vec<TraceFile>,
) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(|error| cannot_read(folder, error))? {
        let Some(left) = entries.checked_sub(1) else {
            return Ok(());
        };
        *entries = left;
        let entry = entry.map_err(|error| cannot_read(folder, error))?;
        let path = entry.path();
        let kind = entry
            .file_type()
            .map_err(|error| cannot_read(&path, error))?;
        if kind.is_dir() && depth < MOST_DEPTH {
            walk(&path, depth + 1, entries, found)?;
        } else if !kind.is_dir()
            && is_trace_name(&entry.file_name().to_string_lossy())
            && path.is_file()
        {
            found.push(TraceFile {
                path,
                rank: None,
                named: false,
            });
        }
    }
    Ok(())
}

/// Bounds on what traces expand to, for all that one command reads.
pub(super) fn bounds() -> Bounds {
    Bounds {
        most: MOST_BYTES,
        ..Bounds::default()
    }
}

/// Passes the unpacked bytes of a trace on until `take` wants no more. An archive that is cut off ends there, which is what the end of a
/// program that was killed looks like.
pub(super) fn blocks(
    path: &Path,
    bounds: &Bounds,
    take: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut magic = Vec::new();
    file.by_ref().take(2).read_to_end(&mut magic)?;
    let whole = io::Cursor::new(magic.clone()).chain(file);
    if magic != [0x1f, 0x8b] {
        return pass_on(whole.take(MOST_BYTES), take);
    }
    let read = Cell::new(0);
    let packed = BufReader::with_capacity(
        BLOCK,
        Counted {
            inner: whole,
            count: &read,
        },
    );
    let decoder = MultiGzDecoder::new(packed);
    pass_on(Expanded::new(decoder, &read, bounds), take)
}

fn pass_on(mut bytes: impl Read, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut any = false;
    loop {
        let count = match bytes.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let is_cut = error.kind() == io::ErrorKind::UnexpectedEof
                    || error.kind() == io::ErrorKind::InvalidData
                    || error.kind() == io::ErrorKind::InvalidInput;
                return if any && is_cut { Ok(()) } else { Err(error) };
            }
        };
        any = true;
        if !take(block.get(..count).unwrap_or_default()) {
            return Ok(());
        }
    }
}

/// One trace as it was read: the rank that it names itself, and what it shows.
type Outcome = Result<(Option<u32>, Summary), Refused>;

#[derive(Debug)]
enum Refused {
    Read(ReadError),
    System(io::Error),
}

fn read_one(file: &TraceFile, bounds: &Bounds) -> Outcome {
    let mut reader = Reader::new(trainyard_profile::read::Bounds::default());
    blocks(&file.path, bounds, |block| reader.push(block)).map_err(Refused::System)?;
    let trace = reader.finish().map_err(Refused::Read)?;
    let rank = file
        .rank
        .or(trace.rank)
        .or_else(|| rank_in_name(&file.path));
    let summary = Summary::of(&trace, rank.unwrap_or(0), &file.path.display().to_string());
    Ok((rank, summary))
}

/// Reads `found`, several at once.
pub(super) fn read(found: Vec<TraceFile>, printer: &mut Printer) -> Result<Traces, Failure> {
    let sizes = found
        .iter()
        .map(|file| fs::metadata(&file.path).map_or(0, |it| it.len()));
    let bytes: u64 = sizes.sum();
    if bytes > SLOW {
        let traces = words::counted(found.len() as u64, "trace");
        printer.summary(&format!("reading {traces}, {} MB", bytes >> 20));
    }
    let bounds = bounds();
    let next = AtomicUsize::new(0);
    let readers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let readers = readers.min(MOST_READERS).min(found.len()).max(1);
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    thread::scope(|scope| {
        let work = || {
            let mut own = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = found.get(at) else {
                    return own;
                };
                own.push((at, read_one(file, &bounds)));
            }
        };
        let threads: Vec<_> = (1..readers).map(|_| scope.spawn(work)).collect();
        outcomes.extend(work());
        for thread in threads {
            // A reader that panics costs its traces, which are reported below.
            outcomes.extend(thread.join().unwrap_or_default());
        }
    });
    let mut traces = Traces::default();
    for (at, file) in found.into_iter().enumerate() {
        let source = file.path.display().to_string();
        match outcomes.remove(&at) {
            Some(Ok((rank, summary))) => {
                traces.summaries.push((TraceFile { rank, ..file }, summary));
            }
            // A folder may hold other JSON.
            Some(Err(Refused::Read(ReadError::NoTrace | ReadError::Empty))) if !file.named => {
                printer.note(&format!("{source}: no trace, skipped"));
            }
            Some(Err(Refused::Read(error))) => traces.missing.push(Missing {
                source,
                reason: error.to_string(),
            }),
            Some(Err(Refused::System(error))) => {
                let reason = Failure::from(anyhow::Error::new(error)).line();
                traces.missing.push(Missing { source, reason });
            }
            None => traces.missing.push(Missing {
                source,
                reason: "reading it failed in this program; please report that".to_owned(),
            }),
        }
    }
    if traces.summaries.is_empty() && traces.missing.is_empty() {
        return Err(Failure::new(
            "none of the files is a trace: expected JSON objects with `traceEvents`, as `torch.profiler` writes them",
        ));
    }
    settle_ranks(&mut traces);
    Ok(traces)
}

/// Gives every trace a rank of its own.
fn settle_ranks(traces: &mut Traces) {
    let unknown = traces
        .summaries
        .iter()
        .filter(|(file, _)| file.rank.is_none())
        .count();
    if unknown > 0 && traces.summaries.len() > 1 {
        traces.warnings.push(format!(
            "{unknown} of {} traces name no rank, neither inside nor in their file names (`rank-3.json.gz`); they are numbered by name",
            traces.summaries.len()
        ));
    }
    let mut taken: BTreeMap<u32, (TraceFile, Summary)> = BTreeMap::new();
    let mut unnamed = Vec::new();
    for (file, summary) in std::mem::take(&mut traces.summaries) {
        let Some(rank) = file.rank else {
            unnamed.push((file, summary));
            continue;
        };
        // The last by name is the newest wherever names hold times.
        if let Some((older, _)) = taken.insert(rank, (file, summary)) {
            traces.warnings.push(format!(
                "rank {rank} has several traces; `{}` is left out",
                older.path.display()
            ));
        }
    }
    let mut free = 0_u32..;
    for (file, mut summary) in unnamed {
        let Some(rank) = free.find(|rank| !taken.contains_key(rank)) else {
            break;
        };
        summary.values.rank = rank;
        let file = TraceFile {
            rank: Some(rank),
            ..file
        };
        taken.insert(rank, (file, summary));
    }
    traces.summaries = taken.into_values().collect();
}

/// The number behind `rank` in the name of a file.
fn rank_in_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let mut parts = name.split("rank").skip(1);
    parts.find_map(|rest| {
        let rest = rest.trim_start_matches(['-', '_', '=', ' ']);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A few kilobytes of gzip can be gigabytes.
    #[test]
    fn what_traces_expand_to_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json.gz");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(&vec![b' '; 8 << 20]).unwrap();
        fs::write(&path, packed.finish().unwrap()).unwrap();
        let bounds = |beyond: u64| Bounds {
            most: 1 << 30,
            ratio: 100,
            beyond: beyond.into(),
        };
        let read = |beyond| {
            let mut count = 0;
            let read = blocks(&path, &bounds(beyond), |block| {
                count += block.len();
                true
            });
            (count, read.map_err(|error| error.to_string()))
        };
        assert_eq!(read(8 << 20), (8 << 20, Ok(())));
        let (count, error) = read(1 << 20);
        let error = error.unwrap_err();
        assert!(count < 4 << 20, "{count}");
        assert!(error.contains("the rest was not read"), "{error}");
    }

    #[test]
    fn ranks_in_names() {
        let cases = [
            ("rank3.json", Some(3)),
            ("a/rank-12.json.gz", Some(12)),
            ("trace_rank_0_step5.pt.trace.json", Some(0)),
            ("ranks/host_1234.json", None),
            ("rankings-rank7.json", Some(7)),
            ("rank99999999999.json", None),
        ];
        for (name, want) in cases {
            assert_eq!(rank_in_name(Path::new(name)), want, "{name}");
        }
    }
}
