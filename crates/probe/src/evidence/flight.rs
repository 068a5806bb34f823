//! Asks the Flight Recorders of ranks for dumps, and reads them.
//!
//! A byte in the pipe that a rank of `PyTorch` opened makes it write a dump, one to seven seconds later with 2.11, which imports modules for it. The files belong to the program:
//! nothing but a pipe is written to and nothing but a regular file is read, links are not followed, no call waits, and no more than
//! [`MAX_DUMP`] bytes are read. The reader of dumps runs nothing ([`trainyard_core::diagnose::Dump`]).

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    ops::RangeInclusive,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use nix::fcntl::OFlag;
use trainyard_core::{diagnose::Dump, watch::Collective};

/// Bytes of one dump: 2,000 collectives take about one megabyte.
const MAX_DUMP: u64 = 16 << 20;
/// Ranks of one pod.
const MAX_RANKS: usize = 256;
/// How often a dump that is incomplete is read again.
const MAX_TRIES: u32 = 32;

/// A file as it is now: where it differs, it was written.
type Stamp = (u64, i64, i64, u64);

/// The Flight Recorders of the ranks of one pod.
#[derive(Clone, Debug)]
pub struct FlightRecorder {
    dumps: String,
    pipes: String,
    /// Ranks that were asked, with the dump before that and the readings since.
    asked: BTreeMap<u32, (Option<Stamp>, u32)>,
}

impl FlightRecorder {
    /// Those whose dumps and pipes have names that begin so.
    pub fn new(dumps: String, pipes: String) -> Self {
        Self {
            dumps,
            pipes,
            asked: BTreeMap::new(),
        }
    }

    /// Asks `ranks` for dumps. One without a recorder is left out.
    pub fn ask(&mut self, ranks: RangeInclusive<u32>) {
        self.asked.clear();
        for rank in ranks.take(MAX_RANKS) {
            let before = stamp(Path::new(&self.dump(rank)));
            if write_byte(Path::new(&format!("{}{rank}.pipe", self.pipes))) {
                self.asked.insert(rank, (before, 0));
            }
        }
    }

    /// What arrived since, each once. A dump that was read is removed.
    pub fn read(&mut self) -> Vec<(u32, Vec<Collective>)> {
        let mut found = Vec::new();
        let (dumps, asked) = (self.dumps.clone(), &mut self.asked);
        asked.retain(|rank, (before, tries)| {
            let path = format!("{dumps}{rank}");
            let path = Path::new(&path);
            if stamp(path) == *before {
                return true;
            }
            *tries += 1;
            // One that is being written is incomplete.
            let Some(dump) = read(path, *rank) else {
                return *tries < MAX_TRIES;
            };
            // The volume is small.
            fs::remove_file(path).ok();
            found.push((*rank, Collective::of_dump(&dump)));
            false
        });
        found
    }

    fn dump(&self, rank: u32) -> String {
        format!("{}{rank}", self.dumps)
    }
}

fn flags() -> i32 {
    (OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY).bits()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}

/// Whether a process reads the pipe, and a byte was written.
fn write_byte(path: &Path) -> bool {
    let mut options = OpenOptions::new();
    let Ok(mut pipe) = options.write(true).custom_flags(flags()).open(path) else {
        return false;
    };
    let is_pipe = |pipe: &File| pipe.metadata().is_ok_and(|file| file.file_type().is_fifo());
    is_pipe(&pipe) && pipe.write(b"1").is_ok_and(|count| count == 1)
}

fn read(path: &Path, rank: u32) -> Option<Dump> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags()).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > MAX_DUMP {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_DUMP).read_to_end(&mut bytes).ok()?;
    Dump::read(&format!("trace_rank_{rank}"), &bytes).ok()
}

#[cfg(test)]
mod tests {
    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    const DUMP: &str = r#"{"version": "2.10", "pg_config": {}, "entries": [{"process_group": ["0", "default_pg"],
        "collective_seq_id": 7, "profiling_name": "nccl:all_reduce", "input_sizes": [[4, 2]],
        "output_sizes": [[4, 2]], "state": "started", "is_p2p": false}]}"#;

    #[test]
    fn dumps_are_asked_for_and_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let prefix = |name: &str| path(name).display().to_string();
        let mut recorder = FlightRecorder::new(prefix("trace_"), prefix("pipe_"));
        mkfifo(&path("pipe_3.pipe"), Mode::S_IRWXU).unwrap();
        let options = OpenOptions::new().read(true).custom_flags(flags()).clone();
        let mut pipe = options.open(path("pipe_3.pipe")).unwrap();
        // No recorder: a pipe that nobody reads, a plain file, nothing.
        mkfifo(&path("pipe_4.pipe"), Mode::S_IRWXU).unwrap();
        fs::write(path("pipe_5.pipe"), "").unwrap();
        fs::write(path("trace_3"), "an old one").unwrap();
        recorder.ask(3..=6);
        assert_eq!(recorder.asked.keys().collect::<Vec<_>>(), [&3]);
        let mut byte = [0; 8];
        assert_eq!(pipe.read(&mut byte).unwrap(), 1);
        assert_eq!(fs::read(path("pipe_5.pipe")).unwrap(), b"");
        assert!(recorder.read().is_empty());
        let head = DUMP.split_at(40).0;
        fs::write(path("trace_3"), head).unwrap();
        assert!(recorder.read().is_empty(), "incomplete");
        fs::write(path("trace_3"), DUMP).unwrap();
        let found = recorder.read();
        let [(3, began)] = &found[..] else {
            panic!("{found:?}");
        };
        let pending = began[0].pending.as_ref().unwrap();
        assert_eq!(
            (pending.sequence, pending.elements, pending.started),
            (7, Some(8), true)
        );
        assert!(recorder.read().is_empty(), "once");
        assert!(!path("trace_3").exists());
    }

    #[test]
    fn links_and_pipes_are_no_dumps() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("other"), DUMP).unwrap();
        std::os::unix::fs::symlink(path("other"), path("trace_1")).unwrap();
        mkfifo(&path("trace_2"), Mode::S_IRWXU).unwrap();
        fs::create_dir(path("trace_3")).unwrap();
        for rank in 0..4 {
            assert!(read(&path(&format!("trace_{rank}")), rank).is_none());
        }
        assert!(read(&path("other"), 0).is_some());
    }
}
