//! What is kept in memory of the runs that pages look at, and how a change of their files is noticed.

use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use trainyard_host::store::RunFolder;
use trainyard_web::Problem;

use super::{Local, lock, names, run::RunSlot};

/// Runs whose history is kept. One takes a few megabytes.
const RUNS_KEPT: usize = 8;
/// File systems keep times to a few milliseconds: what changed this recently may change once more and have the same time.
const SETTLED: Duration = Duration::from_millis(100);

/// What the files of a run looked like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    folder: FileStamp,
    report: FileStamp,
}

impl Stamp {
    /// Files of a run are replaced as a whole, which changes the time of their folder.
    pub(super) fn of(folder: &RunFolder) -> Self {
        Self {
            folder: stamp(&folder.path),
            report: stamp(&folder.path.join("report.json")),
        }
    }

    /// Whether the files did not change just now.
    pub(super) fn is_settled(&self) -> bool {
        is_settled(self.folder) && is_settled(self.report)
    }
}

/// When a file was changed last, its size, and its number in the file system, which is another after it was replaced. Nothing where it is not there.
pub(super) type FileStamp = Option<(SystemTime, u64, u64)>;

/// What a file looks like. No link is followed.
pub(super) fn stamp(path: &Path) -> FileStamp {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.modified().ok()?, found.len(), found.ino()))
}

/// Whether a file did not change just now.
pub(super) fn is_settled(stamp: FileStamp) -> bool {
    stamp.is_none_or(|(at, ..)| at.elapsed().is_ok_and(|age| age > SETTLED))
}

/// The runs that pages look at, the last one first.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<VecDeque<Arc<RunSlot>>>);

impl Local {
    /// The run with this id, as it is kept or new.
    pub(super) fn run(&self, id: &str) -> Result<Arc<RunSlot>, Problem> {
        let folder = self.folder(id)?;
        Ok(self.runs.slot(folder))
    }
}

impl Runs {
    pub(super) fn slot(&self, folder: RunFolder) -> Arc<RunSlot> {
        let mut slots = lock(&self.0);
        let id = names::id(&folder);
        let known = slots.iter().position(|slot| slot.id == id);
        let slot = known
            .and_then(|at| slots.remove(at))
            .unwrap_or_else(|| Arc::new(RunSlot::new(folder)));
        slots.push_front(Arc::clone(&slot));
        slots.truncate(RUNS_KEPT);
        slot
    }
}
