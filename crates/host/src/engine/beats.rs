//! Heartbeats: files that programs write, named by `TRAINYARD_BEAT`, one for each pod.
//!
//! Owns the folder, which file is whose, and how it is read. What a heartbeat says is
//! [`trainyard_core::watch::Heartbeat`]'s.
//!
//! A file is named after the uid of its pod; a pod with several ranks may write one for each, with `.RANK` behind it. The
//! kernel reports writes (inotify), and nothing is read between them.
//!
//! Invariants: programs can put anything into the folder. Only regular files under names that are expected are opened, no link
//! is followed, no open waits, and at most [`HEARTBEAT_BYTES`] are read. However often programs write, the files are read
//! [`REST`] apart. What is kept is bounded by the number of ranks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{DirBuilder, File},
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt as _, FileExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{OFlag, open, openat},
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        stat::Mode,
    },
    unistd::{UnlinkatFlags, unlinkat},
};
use trainyard_core::watch::{HEARTBEAT_BYTES, Heartbeat};

use super::{Engine, table::Key};
use crate::{HostError, Ranks};

/// The shortest time between two readings.
const REST: Duration = Duration::from_millis(50);
/// Batches of events that are taken at once; what is left is reported again.
const MOST_BATCHES: usize = 64;

/// The file of a pod, or of one rank of it.
type FileId = (Key, Option<u32>);

/// The heartbeats of a run.
#[derive(Debug)]
pub(super) struct Beats {
    folder: PathBuf,
    /// Nothing where heartbeats cannot be read.
    open: Option<Open>,
    /// What each file said last.
    last: BTreeMap<FileId, Heartbeat>,
    /// Until when nothing is read, and under which number the kernel reports.
    rest: Option<(Instant, u64)>,
}

#[derive(Debug)]
struct Open {
    inotify: Inotify,
    /// Held, so that it does not matter what becomes of the path.
    folder: OwnedFd,
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(path)?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let folder = open(path, flags, Mode::empty())?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let written = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(path, written)?;
        Ok(Self { inotify, folder })
    }

    /// The heartbeat in the file `name`, where it is a regular file that holds one.
    fn read(&self, name: &str) -> Option<Heartbeat> {
        // A pipe, a lease or a device must not make the engine wait.
        let flags = OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.folder, name, flags, Mode::empty()).ok()?);
        let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let from = found.len().saturating_sub(HEARTBEAT_BYTES as u64);
        let mut bytes = [0; HEARTBEAT_BYTES];
        let count = file.read_at(&mut bytes, from).ok()?;
        Heartbeat::parse(bytes.get(..count)?, from == 0)
    }
}

/// What the kernel reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    names: BTreeSet<String>,
    /// More was written than the kernel could keep.
    overflow: bool,
}

impl Beats {
    /// Makes the folder. A note where heartbeats cannot be read: the run goes on without.
    pub(super) fn new(folder: PathBuf) -> (Self, Option<String>) {
        let (open, note) = match Open::new(&folder) {
            Ok(open) => (Some(open), None),
            Err(error) => {
                let note = format!("heartbeats (`TRAINYARD_BEAT`) are not read: {error}");
                (None, Some(note))
            }
        };
        let beats = Self {
            folder,
            open,
            last: BTreeMap::new(),
            rest: None,
        };
        (beats, note)
    }

    /// The folder, where programs may write.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.open.as_ref().map(|_| self.folder.as_path())
    }

    /// Readable when something was written.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|open| open.inotify.as_fd())
    }

    /// When files may be read again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.rest.map(|(until, _)| until)
    }

    /// Takes what the kernel reports.
    fn take_written(&self) -> Written {
        let mut written = Written::default();
        let Some(open) = &self.open else {
            return written;
        };
        for _ in 0..MOST_BATCHES {
            // No event is left, which is no error.
            let Ok(events) = open.inotify.read_events() else {
                break;
            };
            for event in events {
                written.overflow |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                let name = event.name.and_then(|name| name.into_string().ok());
                written.names.extend(name);
            }
        }
        written
    }

    /// The heartbeat of a file and what it said before, where it can be read.
    fn read(&mut self, id: FileId, uid: &str) -> Option<(Heartbeat, Option<Heartbeat>)> {
        let found = self.open.as_ref()?.read(&file_name(uid, id.1))?;
        Some((found, self.last.insert(id, found)))
    }

    /// Removes the files of a pod that is gone.
    fn forget(&mut self, key: Key, uid: &str) {
        let Some(open) = &self.open else {
            return;
        };
        let read = self.last.range((key, None)..=(key, Some(u32::MAX)));
        let read: Vec<FileId> = read.map(|(id, _)| *id).collect();
        for id in read {
            self.last.remove(&id);
            let name = file_name(uid, id.1);
            // One that is not there any more, or is a folder by now, is removed with the folder of all.
            unlinkat(&open.folder, name.as_str(), UnlinkatFlags::NoRemoveDir).ok();
        }
    }
}

fn file_name(uid: &str, rank: Option<u32>) -> String {
    match rank {
        Some(rank) => format!("{uid}.{rank}"),
        None => uid.to_owned(),
    }
}

/// The uid and the rank in the name of a file, and the key that the uid ends in.
fn parse_name(name: &str) -> Option<(&str, FileId)> {
    let of_rank = name.rsplit_once('.').and_then(|(uid, rank)| {
        let rank: u32 = rank.parse().ok()?;
        // Not `+1` or `01`: every rank has one name.
        (file_name(uid, Some(rank)) == name).then_some((uid, Some(rank)))
    });
    let (uid, rank) = of_rank.unwrap_or((name, None));
    let (_, key) = uid.rsplit_once('-')?;
    Some((uid, (key.parse().ok()?, rank)))
}

impl Engine<'_> {
    /// The kernel reports that heartbeats were written.
    pub(super) fn beats_written(&mut self, number: u64) -> Result<(), HostError> {
        self.read_beats();
        if let Some(descriptor) = self.beats.descriptor() {
            self.watches.set_reported(descriptor, number, false)?;
            self.beats.rest = Some((Instant::now() + REST, number));
        }
        Ok(())
    }

    /// Lets the kernel report again, where it is time.
    pub(super) fn end_rest_of_beats(&mut self, now: Instant) -> Result<(), HostError> {
        let over = self.beats.rest.filter(|(until, _)| *until <= now);
        if let (Some((_, number)), Some(descriptor)) = (over, self.beats.descriptor()) {
            self.watches.set_reported(descriptor, number, true)?;
            self.beats.rest = None;
        }
        Ok(())
    }

    /// Reads all files that were written since.
    pub(super) fn read_beats(&mut self) {
        let written = self.beats.take_written();
        let named = written.names.iter().filter_map(|name| parse_name(name));
        let mut files: BTreeSet<FileId> = named
            .filter(|(uid, id)| self.is_beat_of_pod(uid, *id))
            .map(|(_, id)| id)
            .collect();
        if written.overflow {
            for (key, entry) in &self.pods.entries {
                files.insert((*key, None));
                let held = Ranks::of(self.job).of_pod(&self.job.replicas(), entry.slot);
                files.extend(held.into_iter().flatten().map(|rank| (*key, Some(rank))));
            }
        }
        for id in files {
            self.read_beat(id);
        }
    }

    /// Whether a pod with that uid is there, and holds the rank.
    fn is_beat_of_pod(&self, uid: &str, (key, rank): FileId) -> bool {
        let entry = self.pods.get(key).filter(|entry| entry.uid == uid);
        entry.is_some_and(|entry| {
            rank.is_none_or(|rank| {
                let held = Ranks::of(self.job).of_pod(&self.job.replicas(), entry.slot);
                held.is_some_and(|held| held.contains(&rank))
            })
        })
    }

    fn read_beat(&mut self, id: FileId) {
        let (key, rank) = id;
        let Some(entry) = self.pods.get(key) else {
            return;
        };
        let (slot, attempt) = (entry.slot, entry.attempt);
        let Some((beat, before)) = self.beats.read(id, &entry.uid) else {
            return;
        };
        self.hangs
            .take_beat(slot, attempt, rank, &beat, before.as_ref());
        let changed = before != Some(beat);
        if let Some(reading) = beat.reading().filter(|_| changed) {
            // Streams of output are counted from the other end.
            let stream = usize::MAX - rank.map_or(0, |rank| rank as usize + 1);
            self.take_readings(slot, attempt, (key, stream), &[reading]);
        }
    }

    /// Reads the last heartbeats of a pod that is gone, and removes its files.
    pub(super) fn end_beats_of(&mut self, key: Key) {
        self.read_beats();
        if let Some(entry) = self.pods.get(key) {
            self.beats.forget(key, &entry.uid);
        }
    }
}

#[cfg(test)]
mod tests;
