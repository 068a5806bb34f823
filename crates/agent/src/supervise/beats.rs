//! Heartbeats: files that the program writes, named by `TRAINYARD_BEAT`, one for the pod or one for each of its ranks.
//!
//! Owns which files are read and when. What a heartbeat says is [`trainyard_core::watch::Heartbeat`]'s; `trainyard run` reads the same.
//!
//! Invariants: the program can put anything into the folder. Only regular files under names of its own ranks are opened, no link is followed,
//! no open waits, and at most [`HEARTBEAT_BYTES`] are read of each. Files are read when a report is due, however often they are written, and a
//! heartbeat is about the rank of its file alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::Path,
};

use nix::{
    fcntl::{OFlag, open, openat},
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        stat::Mode,
    },
};
use trainyard_core::{
    launch::supervise::{BEAT, SupervisedRanks},
    watch::{HEARTBEAT_BYTES, Heartbeat},
};

use super::signs::Sign;

/// Ranks of a pod whose heartbeats are read, at most.
pub(crate) const MOST_RANKS: u32 = 64;
/// Batches of events that are taken at once; what is left is reported again.
const MOST_BATCHES: usize = 64;

/// Whose file it is: that of a rank, counted from the first of the pod, or that of the pod itself.
type Owner = Option<u32>;

/// The heartbeats of a pod.
#[derive(Debug)]
pub(crate) struct Beats {
    inotify: Inotify,
    /// Held, so that it does not matter what becomes of the path.
    folder: OwnedFd,
    held: SupervisedRanks,
    /// The files that were written since the last report.
    written: BTreeSet<Owner>,
    /// What each said last.
    last: BTreeMap<Owner, Heartbeat>,
}

impl Beats {
    /// The heartbeats in `folder` of a pod with these ranks.
    pub(crate) fn open(folder: &Path, held: SupervisedRanks) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = open(folder, flags, Mode::empty())?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let written = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(folder, written)?;
        Ok(Self {
            inotify,
            folder: opened,
            held,
            written: BTreeSet::new(),
            last: BTreeMap::new(),
        })
    }

    /// Another program is started: what the one before wrote says nothing about it.
    pub(crate) fn forget(&mut self) {
        self.has_news();
        self.written.clear();
        self.last.clear();
    }

    /// Whether something was written since the last report.
    pub(crate) fn has_news(&mut self) -> bool {
        for _ in 0..MOST_BATCHES {
            // No event is left, which is no error.
            let Ok(events) = self.inotify.read_events() else {
                break;
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    let ranks = 0..self.held.count.min(MOST_RANKS);
                    self.written.extend(ranks.map(Some).chain([None]));
                }
                let name = event.name.and_then(|name| name.into_string().ok());
                self.written
                    .extend(name.and_then(|name| self.parse_name(&name)));
            }
        }
        !self.written.is_empty()
    }

    /// What was written since the last report.
    pub(crate) fn take(&mut self) -> Vec<Sign> {
        let mut signs = Vec::new();
        for owner in std::mem::take(&mut self.written) {
            let Some(beat) = self.read(owner) else {
                continue;
            };
            let before = self.last.insert(owner, beat);
            let rank = owner.unwrap_or(0);
            let signals = beat.signals(before.as_ref());
            signs.extend(signals.filter_map(|signal| Sign::beaten(rank, &signal)));
        }
        signs
    }

    /// Whose file has this name.
    fn parse_name(&self, name: &str) -> Option<Owner> {
        if name == BEAT {
            return Some(None);
        }
        let rank: u32 = name.strip_prefix(BEAT)?.strip_prefix('.')?.parse().ok()?;
        let own = rank.checked_sub(self.held.first)?;
        // Not `+1` or `01`: every rank has one name.
        (own < self.held.count.min(MOST_RANKS) && name == self.file_name(Some(own)))
            .then_some(Some(own))
    }

    fn file_name(&self, owner: Owner) -> String {
        match owner {
            Some(own) => format!("{BEAT}.{}", self.held.first.saturating_add(own)),
            None => BEAT.to_owned(),
        }
    }

    /// The heartbeat in a file, where it is a regular file that holds one.
    fn read(&self, owner: Owner) -> Option<Heartbeat> {
        // A pipe, a lease or a device must not make the supervisor wait.
        let flags = OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        let name = self.file_name(owner);
        let file = openat(&self.folder, name.as_str(), flags, Mode::empty()).ok()?;
        let file = File::from(file);
        let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let from = found.len().saturating_sub(HEARTBEAT_BYTES as u64);
        let mut bytes = [0; HEARTBEAT_BYTES];
        let count = file.read_at(&mut bytes, from).ok()?;
        Heartbeat::parse(bytes.get(..count)?, from == 0)
    }
}

impl AsFd for Beats {
    /// Readable when something was written.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::supervise::signs::Report;

    fn beats(folder: &Path) -> Beats {
        let held = SupervisedRanks {
            first: 4,
            count: 2,
            all: 8,
        };
        Beats::open(folder, held).unwrap()
    }

    /// The ranks of what was written, and how much is said of each.
    fn taken(beats: &mut Beats) -> Vec<u32> {
        beats.has_news();
        let report = Report {
            job: "j".to_owned(),
            attempt: 1,
            first: 4,
            count: 2,
            asked: None,
            signs: beats.take(),
        };
        let report = Report::decode(&report.encode()).unwrap();
        report.signals().map(|(rank, _)| rank).collect()
    }

    #[test]
    fn heartbeats_of_own_ranks_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut beats = beats(folder.path());
        assert!(!beats.has_news());
        let cases: [(&str, &str, &[u32]); 9] = [
            ("beat", "step=1 loss=0.5", &[4]),
            ("beat.5", "step=1 phase=train", &[5, 5]),
            // The same again is a sign of life.
            ("beat.5", "step=1 phase=train", &[5]),
            ("beat.4", "nothing that is understood", &[]),
            ("beat.3", "step=9", &[]),
            ("beat.6", "step=9", &[]),
            ("beat.05", "step=9", &[]),
            ("beats", "step=9", &[]),
            ("beat.4294967295", "step=9", &[]),
        ];
        for (name, text, want) in cases {
            fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(taken(&mut beats), want, "{name}: {text}");
        }
        beats.forget();
        fs::write(folder.path().join("beat.5"), "step=1 phase=train").unwrap();
        assert_eq!(taken(&mut beats), [5, 5], "another program");
    }

    #[test]
    fn only_the_end_of_regular_files_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let mut beats = beats(folder.path());
        let beat = folder.path().join("beat");
        let real = elsewhere.path().join("real");
        fs::write(&real, "step=7").unwrap();
        symlink(&real, folder.path().join("link")).unwrap();
        fs::rename(folder.path().join("link"), &beat).unwrap();
        assert!(taken(&mut beats).is_empty(), "a link");
        fs::remove_file(&beat).unwrap();
        fs::write(&beat, format!("{}\nstep=8\n", "x".repeat(1 << 20))).unwrap();
        assert_eq!(taken(&mut beats), [4], "a huge file");
    }
}
