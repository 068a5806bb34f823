//! What is read: files, folders, compressed files, stdin, the logs of a local run.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use trainyard_core::diagnose::{self, Dump, End, Known};
use trainyard_host::{Outcome, store::LogFile};

use crate::{
    args::{Doctor, Which},
    command::expand::{self, Bounds, Counted, Expanded},
    failure::Failure,
    source,
    stored::{self, Stored},
};

/// Room for what is read at once, twice. Both halves stay in the cache of a core while they are gone over.
pub(super) const BUFFER: usize = 512 << 10;
/// Bytes of a file that are read to detect its format.
const HEAD: usize = 4096;
/// The largest Flight Recorder dump that is read: 20,000 collectives take a few MiB.
const MAX_DUMP: u64 = 256 << 20;
/// How deep folders are followed.
const MAX_DEPTH: usize = 16;
/// The most files that are taken out of folders.
const MAX_FILES: usize = 100_000;

/// One thing to read.
#[derive(Debug)]
pub(super) enum Input {
    Stdin,
    File {
        path: PathBuf,
        /// Named by the user, not found in a folder.
        named: bool,
    },
    Log {
        log: LogFile,
        name: String,
        rank: Option<u32>,
    },
}

/// Everything that the arguments name.
pub(super) fn find(args: &Doctor) -> Result<Vec<Input>, Failure> {
    if let Some(job) = &args.job {
        let run = run_of(args, job)?;
        return logs(args, &run);
    }
    let mut inputs = Vec::new();
    for path in &args.paths {
        if path.as_os_str() == "-" {
            inputs.push(Input::Stdin);
        } else if path.is_dir() {
            let mut found = Vec::new();
            walk(path, 0, &mut found)?;
            found.sort();
            inputs.extend(
                found
                    .into_iter()
                    .map(|path| Input::File { path, named: false }),
            );
        } else {
            inputs.push(Input::File {
                path: path.clone(),
                named: true,
            });
        }
    }
    Ok(inputs)
}

/// The run of the job that the arguments name.
pub(super) fn run_of(args: &Doctor, job: &str) -> Result<Stored, Failure> {
    let store = stored::open(&args.state)?;
    let which = Which {
        job: job.to_owned(),
        run: None,
    };
    stored::find(&store, &which)
}

/// How the pod of the attempt that is read failed first, where a job is named and its run knows.
pub(super) fn known(args: &Doctor) -> Result<Vec<Known>, Failure> {
    let Some(job) = &args.job else {
        return Ok(Vec::new());
    };
    let run = run_of(args, job)?;
    let attempts = run.folder.attempts().map_err(stored::refused)?;
    let attempt = args.attempt.or_else(|| attempts.into_iter().max());
    Ok(known_of(&run, attempt))
}

/// Whether the run is known to have succeeded in the attempt that is read.
pub(super) fn succeeded(args: &Doctor) -> Result<bool, Failure> {
    let Some(job) = &args.job else {
        return Ok(false);
    };
    let run = run_of(args, job)?;
    Ok(succeeded_in(&run, args.attempt))
}

/// The same of a run; `attempt` is the one that is read, else the last.
pub(super) fn succeeded_in(run: &Stored, attempt: Option<u32>) -> bool {
    let outcome = run.report.as_ref().map(|report| report.outcome);
    let is_last = attempt.is_none_or(|attempt| attempt == run.attempts());
    outcome == Some(Outcome::Succeeded) && is_last && !run.live
}

/// How the pod that failed first in `attempt` ended.
pub(super) fn known_of(run: &Stored, attempt: Option<u32>) -> Vec<Known> {
    // An attempt that is running, or that succeeded, has recovered from what failed in it.
    let outcome = run.report.as_ref().map(|report| report.outcome);
    let went_on = run.live || outcome == Some(Outcome::Succeeded);
    if went_on && attempt == Some(run.attempts()) {
        return Vec::new();
    }
    let of_attempt = run
        .failures
        .iter()
        .filter(|failed| Some(failed.attempt) == attempt);
    let known = of_attempt.map(|failed| Known {
        pod: failed.pod.clone(),
        rank: failed.rank.filter(|_| failed.ranks == 1),
        node: Some(failed.pod.clone()),
        end: End::of_exit(failed.code, failed.out_of_memory),
        at: Some(failed.at),
        memory_limit: None,
        on_purpose: failed.injected.clone(),
    });
    known.collect()
}

/// The logs of one attempt of a run: the last that wrote any, unless another is named.
pub(super) fn logs(args: &Doctor, run: &Stored) -> Result<Vec<Input>, Failure> {
    logs_of(run, args.attempt)
}

/// The same where the attempt is known.
pub(super) fn logs_of(run: &Stored, attempt: Option<u32>) -> Result<Vec<Input>, Failure> {
    let attempts = run.folder.attempts().map_err(stored::refused)?;
    let attempt = attempt.or_else(|| attempts.into_iter().max());
    let Some(attempt) = attempt else {
        let message = format!("job `{}` has no log yet", run.record.name);
        return Err(Failure::new(message).hint("`trainyard status` shows its state"));
    };
    let logs = run.folder.logs(attempt).map_err(stored::refused)?;
    if logs.is_empty() {
        let message = format!("attempt {attempt} of job `{}` has no log", run.record.name);
        return Err(Failure::new(message).hint("`trainyard logs` prints the existing logs"));
    }
    Ok(logs
        .into_iter()
        .map(|log| {
            let slot = run.slot_called(&log.pod);
            Input::Log {
                name: format!("{}/{}", log.pod, log.container),
                rank: slot.and_then(|slot| {
                    let record = &run.record;
                    record.ranks.only_of_pod(&record.replicas, slot)
                }),
                log,
            }
        })
        .collect())
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let cannot = || format!("cannot list `{}`", folder.display());
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let kind = entry.file_type().with_context(cannot)?;
        if hidden || found.len() >= MAX_FILES {
            continue;
        }
        if kind.is_dir() && depth < MAX_DEPTH {
            walk(&entry.path(), depth + 1, found)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}

impl Input {
    /// How it is called in evidence.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stdin => "stdin".to_owned(),
            Self::File { path, .. } => path.display().to_string(),
            Self::Log { name, .. } => name.clone(),
        }
    }

    /// Reads it to its end; what is returned says why a part of it was not.
    pub(super) fn read(
        &self,
        doctor: &mut diagnose::Doctor,
        buffer: &mut [u8],
        bounds: &Bounds,
    ) -> Result<Option<Failure>, Failure> {
        let name = self.name();
        match self {
            Self::Stdin => {
                let id = doctor.source(&name);
                feed(doctor, id, &mut io::stdin().lock(), buffer).context("cannot read stdin")?;
            }
            Self::Log { log, rank, .. } => {
                let id = doctor.source(&name);
                doctor.set_rank_and_node(id, *rank, Some(&log.pod));
                let mut reader = log.open(0).map_err(stored::refused)?;
                feed(doctor, id, &mut reader, buffer)
                    .with_context(|| format!("cannot read `{name}`"))?;
            }
            Self::File { path, named } => {
                let cannot = || format!("cannot read `{name}`");
                let mut file = File::open(path).map_err(|error| source::refusal(path, error))?;
                let mut head = Vec::with_capacity(HEAD);
                Read::by_ref(&mut file)
                    .take(HEAD as u64)
                    .read_to_end(&mut head)
                    .with_context(cannot)?;
                if diagnose::looks_like_dump(&name, &head) {
                    return read_dump(&name, head, file, *named, doctor).map(|()| None);
                }
                let mut whole = io::Cursor::new(head.clone()).chain(file);
                let taken = Cell::new(0);
                let packed = |whole| Counted {
                    inner: whole,
                    count: &taken,
                };
                let read = match head.as_slice() {
                    [0x1f, 0x8b, ..] => {
                        let id = doctor.source(&name);
                        let decoder = MultiGzDecoder::new(packed(whole));
                        let mut text = Expanded::new(decoder, &taken, bounds);
                        feed(doctor, id, &mut text, buffer)
                    }
                    [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                        let id = doctor.source(&name);
                        let decoder = StreamingDecoder::new(packed(whole))
                            .map_err(|error| Failure::new(format!("{}: {error}", cannot())))?;
                        let mut text = Expanded::new(decoder, &taken, bounds);
                        feed(doctor, id, &mut text, buffer)
                    }
                    // A model, an image, a program: found beside the logs, and none of them.
                    head if !named && head.contains(&0) => return Ok(None),
                    head if *named && is_binary(head) => {
                        let message = format!("{}: it is not a text file", cannot());
                        let hint = "name logs, folders of logs, or a Flight Recorder dump";
                        return Err(Failure::new(message).hint(hint));
                    }
                    _ => {
                        let id = doctor.source(&name);
                        feed(doctor, id, &mut whole, buffer)
                    }
                };
                if let Err(error) = &read
                    && let Some(reason) = expand::too_large(error)
                {
                    let message = format!("cannot read all of `{name}`: {reason}");
                    let hint = "decompress it and pass the relevant part: \
                                `zcat FILE | tail -c 1G | trainyard doctor -`";
                    return Ok(Some(Failure::new(message).hint(hint)));
                }
                let packed = taken.get() > 0;
                if let Err(error) = &read
                    && packed
                {
                    let message = format!(
                        "cannot read all of `{name}`: it is truncated or corrupt ({error})"
                    );
                    let hint = "the verdict covers the part before that place";
                    return Ok(Some(Failure::new(message).hint(hint)));
                }
                read.with_context(cannot)?;
            }
        }
        Ok(None)
    }
}

/// Whether this is the beginning of a file that is not text. Terminals' codes are text, and
/// so are the holes that a log has at its beginning after it was cut.
fn is_binary(head: &[u8]) -> bool {
    let codes = head
        .iter()
        .filter(|byte| matches!(byte, 0x01..=0x06 | 0x0e..=0x1a | 0x1c..=0x1f));
    codes.count() * 32 > head.len()
}

fn read_dump(
    name: &str,
    head: Vec<u8>,
    file: File,
    named: bool,
    doctor: &mut diagnose::Doctor,
) -> Result<(), Failure> {
    let mut bytes = head;
    file.take(MAX_DUMP)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read `{name}`"))?;
    match Dump::read(name, &bytes) {
        Ok(dump) => doctor.dump(dump),
        // Pickles that are not dumps may lie beside logs.
        Err(error) if named => {
            let failure = Failure::from(
                anyhow::Error::new(error)
                    .context(format!("cannot use `{name}` as a Flight Recorder dump")),
            );
            return Err(failure);
        }
        Err(_) => {}
    }
    Ok(())
}

/// Reads to the end. A block is handed on once it is known what comes behind it: of a log that goes on for more
/// than another one, it is the middle.
fn feed(
    doctor: &mut diagnose::Doctor,
    id: diagnose::SourceId,
    reader: &mut dyn Read,
    buffer: &mut [u8],
) -> io::Result<()> {
    let (mut held, mut next) = buffer.split_at_mut(buffer.len() / 2);
    let (mut known, mut read) = fill(reader, held);
    while read.is_ok() && known == held.len() {
        let count;
        (count, read) = fill(reader, next);
        let block = held.get(..known).unwrap_or_default();
        if count == next.len() {
            doctor.middle_bytes(id, block);
        } else {
            doctor.bytes(id, block);
        }
        (held, next, known) = (next, held, count);
    }
    doctor.bytes(id, held.get(..known).unwrap_or_default());
    read
}

/// Reads until the buffer is full or nothing comes any more: how much was read, and why it ended early.
fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> (usize, io::Result<()>) {
    let mut filled = 0;
    while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
        match reader.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Err(error)),
        }
    }
    (filled, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Gives a few bytes at a time, and fails behind the last.
    struct Slow<'a>(&'a [u8], usize, bool);

    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(room.len());
            if count == 0 && self.2 {
                return Err(io::Error::other("gone"));
            }
            let (now, later) = self.0.split_at(count);
            room[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    #[test]
    fn every_byte_is_read_however_it_comes() {
        let rules = Arc::new(diagnose::Rules::builtin());
        for lines in [0_usize, 1, 7, 8, 9, 40] {
            // What is at the end of the log is not searched for in its middle.
            let text = "a step\n".repeat(300 + lines) + "GPU is lost\n";
            for (piece, size, fails) in [(3, 64, false), (64, 64, true), (1000, 512, false)] {
                let mut doctor = diagnose::Doctor::new(Arc::clone(&rules));
                let id = doctor.source("rank0.log");
                let mut buffer = vec![0; size];
                let mut reader = Slow(text.as_bytes(), piece, fails);
                let read = feed(&mut doctor, id, &mut reader, &mut buffer);
                assert_eq!(read.is_err(), fails);
                let report = doctor.finish();
                let verdict = report.verdicts.first().unwrap();
                let evidence = verdict.evidence.first().unwrap();
                assert_eq!(verdict.label, "gpu_fallen_off_bus", "{lines} {piece}");
                assert_eq!(evidence.line, 301 + lines as u64, "{lines} {piece}");
            }
        }
    }
}
