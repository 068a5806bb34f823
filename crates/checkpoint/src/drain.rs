//! The drain: commits of the local tier are published on the shared one, byte for byte, in the background.
//!
//! Rank 0 decides which step is next and shows it to the other ranks by `DRAIN.json` in the folder of the step on the shared tier. Each
//! process copies its pieces, verified by their checksums; rank 0 publishes the commit when all are there. What a killed drain has
//! published is not copied again.

mod background;
mod copy;
mod pace;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use trainyard_core::checkpoint::{
    AttemptId, COMMIT_FILE, Commit, CommitSeen, DRAIN_FILE, Document as _, DrainNext,
    LOCAL_COMMIT_FILE, Lineage, Policy, StepFile, StepName, TimeLeft, decode, drain_next,
    ranks_named,
};

pub use self::{
    background::{Drainer, Ended},
    pace::Pace,
};
use crate::{
    clock::Clock,
    load::known_piece,
    publish::Published,
    remove::{self, Bounds},
    storage::{read_small, within},
    store::{Store, StoreError},
    tiers::Tiers,
    verify::{check_size, has_all_files},
};

/// Why a step did not reach the shared tier. It is complete on the local one all the same.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// A store could not be used, or a higher attempt has begun.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No room, also after what may be removed was removed.
    #[error("no room on the shared tier for step {step}: {needed} bytes needed: {source}")]
    Full {
        /// The step.
        step: u64,
        /// The bytes that this process copies.
        needed: u64,
        /// The answer of the storage.
        source: StoreError,
    },
    /// What the local tier has is not what was committed.
    #[error("step {step} is damaged on the local tier: {why}")]
    Damaged {
        /// The step.
        step: u64,
        /// Which file, and what is wrong.
        why: String,
    },
    /// Other processes have not copied their pieces in time.
    #[error(
        "step {step} was not copied to the shared tier in time: no piece of {}",
        ranks_named(ranks)
    )]
    Missing {
        /// The step.
        step: u64,
        /// The ranks without a piece there.
        ranks: Vec<u32>,
    },
    /// Another process could not copy its pieces.
    #[error(
        "step {step} was not copied to the shared tier: another rank could not copy its pieces"
    )]
    GivenUp {
        /// The step.
        step: u64,
    },
    /// The time was over.
    #[error("step {step} was not copied to the shared tier in time")]
    Late {
        /// The step.
        step: u64,
    },
    /// A name on the shared tier has other contents.
    #[error("`{0}` on the shared tier has other contents")]
    Taken(String),
}

impl DrainError {
    fn is_full(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_full())
    }
}

/// What one turn of a drain did.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Nothing: there is nothing to copy, or it would not be ready in time.
    Nothing(String),
    /// This process has copied its pieces; rank 0 will publish the commit.
    Copied(StepName),
    /// The commit is on the shared tier.
    Committed(StepName),
}

/// Bounds of a drain.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimits {
    /// How long one step may take.
    pub deadline: Duration,
    /// The first pause between two looks for pieces of others; doubled up to `longest_pause`.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for DrainLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_mins(30),
            first_pause: Duration::from_millis(20),
            longest_pause: Duration::from_secs(2),
        }
    }
}

/// The drain of one process.
#[derive(Clone, Debug)]
pub struct Drain {
    /// Its tiers.
    pub tiers: Tiers,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The fenced attempt.
    pub id: AttemptId,
    /// This rank.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// The place of this process among those of its node, and how many they are: they divide the pieces of earlier attempts.
    pub seat: (u32, u32),
    /// What is kept on the shared tier.
    pub keep: Policy,
    /// How fast it may copy.
    pub pace: Arc<Pace>,
    /// Bounds.
    pub limits: DrainLimits,
}

impl Drain {
    /// Copies what is next. With `left`, the process ends after that time: the newest step is taken if it can be ready by then.
    pub fn turn(&self, left: Option<Duration>) -> Result<Turn, DrainError> {
        let behind = &self.tiers.behind;
        if let Err(error) = self.tiers.shared.check_fence(self.id) {
            if let StoreError::Fenced { by, .. } = &error {
                behind.board.lock().fenced = Some(*by);
            }
            return Err(error.into());
        }
        let history = self.tiers.local_history()?;
        behind.board.lock().forget(&history);
        for seen in &history.commits {
            let is_known = behind.board.lock().safe.contains(&seen.folder);
            if !is_known && self.tiers.is_shared(&seen.folder)? {
                behind.board.lock().safe.insert(seen.folder.clone());
            }
        }
        let deadline = left
            .unwrap_or(self.limits.deadline)
            .min(self.limits.deadline);
        let until = self.clock.now().saturating_add(deadline);
        let seen = match self.next(&history, left) {
            Ok(seen) => seen,
            Err(why) => return Ok(Turn::Nothing(why)),
        };
        behind.board.lock().under_way = Some(seen.folder.clone());
        let ended = self.copy_or_give_up(&seen, until);
        let mut known = behind.board.lock();
        known.under_way = None;
        match &ended {
            Ok(Turn::Committed(folder)) => {
                known.safe.insert(folder.clone());
            }
            Ok(_) => {}
            Err(error) => {
                known.failed.insert(seen.folder, error.to_string());
            }
        }
        drop(known);
        if let Ok(Turn::Committed(_)) = &ended {
            // What cannot be removed stays for the next time.
            drop(remove::prune(
                &self.tiers.shared,
                Some(self.id),
                &self.keep,
                false,
            ));
        }
        ended
    }

    /// Brings one step of the history to the shared tier now, because other nodes restore from it.
    pub fn bring(&self, folder: &StepName, timeout: Duration) -> Result<Turn, DrainError> {
        let until = self.clock.now().saturating_add(timeout);
        if let Some(seen) = self.seen(folder)? {
            self.copy_or_give_up(&seen, until)?;
        }
        let mut pause = self.limits.first_pause;
        let mut was_shown = false;
        while !self.tiers.is_shared(folder)? {
            let is_shown = self.is_shown(folder);
            // Rank 0 publishes the commit, then nobody removes what it has shown: a step that is neither was given up.
            if was_shown && !is_shown && !self.tiers.is_shared(folder)? {
                return Err(DrainError::GivenUp { step: folder.step });
            }
            was_shown |= is_shown;
            if self.clock.now() >= until {
                return Err(DrainError::Late { step: folder.step });
            }
            self.clock.wait(pause);
            pause = pause.saturating_mul(2).min(self.limits.longest_pause);
        }
        self.tiers.behind.board.lock().safe.insert(folder.clone());
        Ok(Turn::Committed(folder.clone()))
    }

    /// Copies the pieces of this process of one step to the shared tier, and waits for nobody: a process that cannot must be known to the others
    /// before they wait for its pieces in [`Drain::bring`].
    pub fn offer(&self, folder: &StepName, timeout: Duration) -> Result<(), DrainError> {
        let until = self.clock.now().saturating_add(timeout);
        let Some(seen) = self.seen(folder)? else {
            return Ok(());
        };
        let (shared, path) = (&*self.tiers.shared, folder.path());
        self.with_room(&seen, || {
            (shared.storage.make_folder(&path)).map_err(StoreError::storage("create", &path))?;
            shared.sync_folder(trainyard_core::checkpoint::STEPS)?;
            self.copy_pieces(&seen, until)
        })
    }

    /// A step as this node knows it.
    fn seen(&self, folder: &StepName) -> Result<Option<CommitSeen>, DrainError> {
        let history = self.tiers.local_history()?;
        let here = history.commits.iter().find(|seen| seen.folder == *folder);
        // A node that was killed before it had the commit may have pieces all the same, and rank 0 publishes the commit without it.
        Ok(match here {
            Some(seen) => Some(seen.clone()),
            None => self.tiers.commit_of_nodes(folder)?,
        })
    }

    /// The step to copy, or why there is none.
    fn next(&self, history: &Lineage, left: Option<Duration>) -> Result<CommitSeen, String> {
        if self.rank != 0 {
            return self.next_shown(history, left.is_some());
        }
        let next = self.planned(history, left);
        match &next {
            DrainNext::Begin { folder, .. } => {
                let mut commits = history.commits.iter();
                let seen = commits.find(|seen| seen.folder == *folder);
                seen.cloned().ok_or_else(|| next.to_string())
            }
            _ => Err(next.to_string()),
        }
    }

    /// The newest step that rank 0 has shown and of which a piece of this process is missing. One that failed here is tried again at the end,
    /// as rank 0 does.
    fn next_shown(&self, history: &Lineage, is_ending: bool) -> Result<CommitSeen, String> {
        let board = &self.tiers.behind.board;
        let (mut shown, mut next) = (None, None);
        for seen in history.commits.iter().rev() {
            let (is_safe, has_failed) = {
                let known = board.lock();
                let has_failed = known.failed.contains_key(&seen.folder);
                (known.safe.contains(&seen.folder), has_failed)
            };
            // An older one would not be restored.
            if is_safe || next.is_some() {
                break;
            }
            let name = within(&seen.folder.path(), DRAIN_FILE);
            if self.tiers.shared.storage.stat(&name).is_err() {
                continue;
            }
            shown.get_or_insert_with(|| seen.folder.clone());
            let is_missing = |rank| !self.has_piece(seen, rank);
            if (is_ending || !has_failed) && self.own_ranks(seen).into_iter().any(is_missing) {
                next = Some(seen.clone());
            }
        }
        board.lock().shown = shown;
        next.ok_or_else(|| "rank 0 has shown no step to copy".to_owned())
    }

    /// What would be next if this process chose.
    fn planned(&self, history: &Lineage, left: Option<Duration>) -> DrainNext {
        let behind = &self.tiers.behind;
        let held = behind.held(history, &|seen| self.bytes_of(seen));
        let left = left.map(|left| TimeLeft {
            seconds: left.as_secs_f64(),
            bytes_per_second: self.bytes_per_second(),
        });
        drain_next(&held, behind.options.drain, left)
    }

    /// Whether the newest step does not fit into the time that is left, by what this process copies of it.
    fn is_too_late(&self, history: &Lineage, left: Duration) -> bool {
        matches!(self.planned(history, Some(left)), DrainNext::TooLate { .. })
    }

    /// The ranks whose pieces this process copies.
    fn own_ranks(&self, seen: &CommitSeen) -> Vec<u32> {
        let commit = &seen.commit.document;
        if commit.id() == self.id {
            return vec![self.rank];
        }
        let (seat, seats) = self.seat;
        let here = self.tiers.local.pieces_seen(&seen.folder, commit);
        (here.iter().map(|piece| piece.rank))
            .filter(|rank| rank % seats.max(1) == seat)
            .collect()
    }

    fn bytes_of(&self, seen: &CommitSeen) -> u64 {
        let lines = &seen.commit.document.pieces;
        let own = self.own_ranks(seen).into_iter();
        own.filter_map(|rank| lines.get(rank as usize))
            .flat_map(|line| &line.files)
            .fold(0, |sum: u64, file| sum.saturating_add(file.bytes))
    }

    /// Whether the shared tier has a piece with its data. A piece is published when its data is durable, so sizes are enough. Its record
    /// is read once: no name is used for other contents.
    fn has_piece(&self, seen: &CommitSeen, rank: u32) -> bool {
        let Some(line) = seen.commit.document.pieces.get(rank as usize) else {
            return false;
        };
        let shared = &*self.tiers.shared;
        let board = &self.tiers.behind.board;
        let key = (seen.folder.clone(), rank);
        let was_read = board.lock().read.contains(&key);
        let has_record = if was_read {
            let name = within(&seen.folder.path(), &StepFile::Piece(rank).to_string());
            shared.storage.stat(&name).is_ok()
        } else {
            known_piece(shared, &seen.folder, line).is_ok()
        };
        if has_record && !was_read {
            board.lock().remember(key);
        }
        has_record
            && (0..).zip(&line.files).all(|(file, written)| {
                let name = crate::load::data_name(&seen.folder, rank, file);
                check_size(shared, &name, written.bytes).is_ok()
            })
    }

    /// Whether rank 0 shows that a step is being copied. What cannot be read is taken as shown.
    fn is_shown(&self, folder: &StepName) -> bool {
        let found = (self.tiers.shared.storage).stat(&within(&folder.path(), DRAIN_FILE));
        !matches!(found, Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Copies a step. Where that fails, no other rank waits for this one: the step is no longer shown.
    fn copy_or_give_up(&self, seen: &CommitSeen, until: Duration) -> Result<Turn, DrainError> {
        let ended = self.copy_step(seen, until);
        let is_fenced = matches!(&ended, Err(DrainError::Store(StoreError::Fenced { .. })));
        if ended.is_err() && !is_fenced && self.world > 1 {
            let name = within(&seen.folder.path(), DRAIN_FILE);
            drop(self.tiers.shared.storage.remove(&name));
        }
        ended
    }

    /// Copies those pieces of this process that the shared tier does not have.
    fn copy_pieces(&self, seen: &CommitSeen, until: Duration) -> Result<(), DrainError> {
        let start = self.clock.now();
        let mut bytes: u64 = 0;
        for rank in self.own_ranks(seen) {
            if !self.has_piece(seen, rank) {
                bytes = bytes.saturating_add(self.copy_piece(seen, rank, until)?);
            }
        }
        let seconds = self.clock.now().saturating_sub(start).as_secs_f64();
        if bytes > 0 && seconds > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let rate = bytes as f64 / seconds;
            self.tiers.behind.board.lock().bytes_per_second = Some(rate);
        }
        Ok(())
    }

    fn copy_step(&self, seen: &CommitSeen, until: Duration) -> Result<Turn, DrainError> {
        let shared = &*self.tiers.shared;
        let (folder, step) = (&seen.folder, seen.folder.step);
        let path = folder.path();
        let commit = self.commit_bytes(seen)?;
        self.with_room(seen, || {
            (shared.storage.make_folder(&path)).map_err(StoreError::storage("create", &path))?;
            shared.sync_folder(trainyard_core::checkpoint::STEPS)?;
            if self.rank == 0 && self.world > 1 {
                same(shared, &within(&path, DRAIN_FILE), &commit)?;
            }
            self.copy_pieces(seen, until)
        })?;
        if self.rank != 0 {
            return Ok(Turn::Copied(folder.clone()));
        }
        let mut pause = self.limits.first_pause;
        let all_ranks = || seen.commit.document.pieces.iter().map(|line| line.rank);
        let mut ranks: Vec<u32> = all_ranks().collect();
        loop {
            ranks.retain(|rank| !self.has_piece(seen, *rank));
            if ranks.is_empty() {
                if has_all_files(shared, folder, &seen.commit.document) {
                    break;
                }
                // Something is gone again.
                ranks = all_ranks().collect();
            }
            // A process that ends waits no longer than its grace time.
            let ends_at = self.tiers.behind.board.lock().ends_at;
            let (now, until) = (self.clock.now(), until.min(ends_at.unwrap_or(until)));
            if now >= until {
                return Err(DrainError::Missing { step, ranks });
            }
            if self.world > 1 && !self.is_shown(folder) {
                return Err(DrainError::GivenUp { step });
            }
            self.clock.wait(pause.min(until.saturating_sub(now)));
            pause = pause.saturating_mul(2).min(self.limits.longest_pause);
        }
        self.with_room(seen, || {
            // Names that others have just published must not be lost behind a commit that is not.
            shared.sync_folder(&path)?;
            shared.check_fence(self.id)?;
            same(shared, &within(&path, COMMIT_FILE), &commit)
        })?;
        Ok(Turn::Committed(folder.clone()))
    }

    /// The bytes of the commit as the local tier has them, or as local tiers of other nodes have them.
    fn commit_bytes(&self, seen: &CommitSeen) -> Result<Vec<u8>, DrainError> {
        let (local, shared) = (&self.tiers.local, &self.tiers.shared);
        let mut name = within(&seen.folder.path(), COMMIT_FILE);
        let mut read = read_small(&*local.storage, &name, Commit::MAX_BYTES as u64);
        if matches!(&read, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            name = within(&seen.folder.path(), LOCAL_COMMIT_FILE);
            read = read_small(&*shared.storage, &name, Commit::MAX_BYTES as u64);
        }
        let bytes = read.map_err(StoreError::storage("read", &name))?;
        match decode::<Commit>(&bytes) {
            Ok(found) if found.crc32c == seen.commit.crc32c => Ok(bytes),
            _ => Err(DrainError::Damaged {
                step: seen.folder.step,
                why: crate::load::other_file(&name),
            }),
        }
    }

    /// Does something that may find the shared tier full: then removes what may go, and does it once more.
    fn with_room(
        &self,
        seen: &CommitSeen,
        mut work: impl FnMut() -> Result<(), DrainError>,
    ) -> Result<(), DrainError> {
        match work() {
            Err(error) if error.is_full() => {}
            other => return other,
        }
        // A step of an earlier attempt is a save that nobody finishes, for whoever does not know that it is being copied.
        let bounds = Bounds {
            pinned: [seen.folder.clone()].into(),
            ..Bounds::default()
        };
        drop(remove::prune_within(
            &self.tiers.shared,
            Some(self.id),
            &self.keep,
            false,
            &bounds,
        ));
        match work() {
            Err(DrainError::Store(source)) if source.is_full() => Err(DrainError::Full {
                step: seen.folder.step,
                needed: self.bytes_of(seen),
                source,
            }),
            other => other,
        }
    }

    /// Steps that could not be copied, with the reason.
    pub fn failures(&self) -> BTreeMap<StepName, String> {
        self.tiers.behind.board.lock().failed.clone()
    }

    /// How fast this process copies: as measured the last time, and no faster than its limit.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let measured = self.tiers.behind.board.lock().bytes_per_second;
        match (measured, self.pace.bytes_per_second()) {
            (Some(measured), Some(limit)) => Some(measured.min(limit)),
            (measured, limit) => measured.or(limit),
        }
    }
}

/// Publishes bytes that must be the same for everybody.
fn same(store: &Store, name: &str, bytes: &[u8]) -> Result<(), DrainError> {
    match store.publish_bytes(name, bytes)? {
        Published::Done => Ok(()),
        Published::Other(_) => Err(DrainError::Taken(name.to_owned())),
    }
}

/// An error of the storage, or that the time is over.
fn in_time(step: u64, error: io::Error, action: &'static str, name: &str) -> DrainError {
    if error.kind() == io::ErrorKind::TimedOut {
        DrainError::Late { step }
    } else {
        StoreError::storage(action, name)(error).into()
    }
}
