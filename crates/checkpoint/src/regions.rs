//! Reading parts of tensors of one commit: whole chunks are read and verified, and only wanted bytes are put.
//!
//! A commit is opened by folder and checksum, as the record of the attempt names it: every rank reads the same one.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use trainyard_core::checkpoint::{
    COMMIT_FILE, Commit, CommitPiece, CommitRef, Index, Layout, LayoutRef, Objects, Plan,
    ReshardError, Sealed, StepFile, TensorFile, Tier, WantedRegion, reshard,
};

use crate::{
    clock::Clock,
    load::{TierStore, data_name, known_piece, other_file, read_objects},
    read::{ReadError, read_chunks},
    storage::within,
    store::{Store, StoreError},
    verify::read_layout,
};

/// The first and the longest pause between two looks for a commit that is known to exist.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Most sentences about tiers that are kept.
const MAX_NOTES: usize = 64;

/// Why parts of tensors could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The commit, or a file of it, is not there.
    #[error("`{0}` is missing")]
    NoCommit(String),
    /// A file of the commit is missing, damaged or not the one that was committed.
    #[error("{0}")]
    Damaged(String),
    /// The commit does not have what is wanted.
    #[error(transparent)]
    Reshard(#[from] ReshardError),
    /// The taker of the bytes failed.
    #[error("cannot take the restored bytes: {0}")]
    Sink(io::Error),
}

/// Takes verified bytes of a wanted region, by its place in what was asked and the offset in it. Called by several threads.
pub type PutRegion<'a> = dyn Fn(usize, u64, &[u8]) -> io::Result<()> + Sync + 'a;

/// A commit that is being restored.
#[derive(Debug)]
pub struct Opened {
    /// Where it is read from, the nearest first.
    tiers: Vec<TierStore>,
    reference: CommitRef,
    commit: Commit,
    index: Index,
    notes: Mutex<Vec<String>>,
}

/// A contiguous part of a file that goes to one place.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    wanted: usize,
    to: u64,
    length: u64,
}

impl Opened {
    /// Opens a commit; waits for one that the volume does not show yet, at most for `timeout`.
    pub fn open(
        store: Arc<Store>,
        clock: &dyn Clock,
        reference: CommitRef,
        timeout: Duration,
    ) -> Result<Self, RegionsError> {
        let tier = TierStore {
            tier: Tier::Shared,
            place: "store".to_owned(),
            store,
        };
        Self::open_tiers(vec![tier], clock, reference, timeout)
    }

    /// The same from several tiers, the nearest first. What is missing or damaged on one is read from the next, see [`Self::notes`].
    pub fn open_tiers(
        tiers: Vec<TierStore>,
        clock: &dyn Clock,
        reference: CommitRef,
        timeout: Duration,
    ) -> Result<Self, RegionsError> {
        let folder = &reference.folder;
        let name = within(&folder.path(), COMMIT_FILE);
        let start = clock.now();
        let mut pause = FIRST_PAUSE;
        let notes = Mutex::default();
        let commit = loop {
            let found = first(&tiers, &notes, |store| {
                known_commit(store, &name, &reference)
            });
            match found {
                Err(RegionsError::NoCommit(_)) => {}
                other => break other?,
            }
            let waited = clock.now().saturating_sub(start);
            if waited >= timeout {
                return Err(RegionsError::NoCommit(name));
            }
            clock.wait(pause.min(timeout.saturating_sub(waited)));
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        let mut layouts = BTreeMap::new();
        for known in &commit.document.layouts {
            let layout = first(&tiers, &notes, |store| layout_of(store, &reference, known))?;
            layouts.insert(known.id, layout);
        }
        let index = Index::new(&commit.document, layouts)?;
        Ok(Self {
            tiers,
            reference,
            commit: commit.document,
            index,
            notes,
        })
    }

    /// What was damaged on one tier and read from the next, one sentence each, since the last call.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *notes)
    }

    /// How records refer to the commit.
    pub fn reference(&self) -> &CommitRef {
        &self.reference
    }

    /// What it says.
    pub fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Which tensors it has.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The small state of a rank; `None` where that rank has none.
    pub fn objects(&self, rank: u32) -> Result<Option<Objects>, RegionsError> {
        let Some(line) = self.commit.pieces.get(rank as usize) else {
            return Ok(None);
        };
        first(&self.tiers, &self.notes, |store| {
            has_piece(store, &self.reference, line)?;
            read_objects(store, &self.reference.folder, line).map_err(RegionsError::Damaged)
        })
    }

    /// Reads regions; of replicas that of rank `prefer`. Returns the bytes that were read from files.
    pub fn read(
        &self,
        wanted: &[WantedRegion],
        prefer: Option<u32>,
        put: &PutRegion<'_>,
    ) -> Result<u64, RegionsError> {
        let plan = reshard(&self.index, wanted, prefer)?;
        let mut bytes = 0;
        for (file, runs) in runs_by_file(&plan) {
            bytes += first(&self.tiers, &self.notes, |store| {
                self.read_runs(store, &file, &runs, put)
            })?;
        }
        Ok(bytes)
    }

    fn read_runs(
        &self,
        store: &Store,
        file: &TensorFile,
        runs: &[Run],
        put: &PutRegion<'_>,
    ) -> Result<u64, RegionsError> {
        let TensorFile::Rank { rank, file } = file else {
            let why = "the step refers to shared tensor files, which this version cannot read";
            return Err(RegionsError::Damaged(why.to_owned()));
        };
        let folder = &self.reference.folder;
        let line = self.commit.pieces.get(*rank as usize).ok_or_else(|| {
            RegionsError::Damaged(format!("the commit has no piece of rank {rank}"))
        })?;
        has_piece(store, &self.reference, line)?;
        let piece = known_piece(store, folder, line).map_err(RegionsError::Damaged)?;
        let name = data_name(folder, *rank, *file);
        let size = piece.document.chunk_bytes.max(1);
        let place = usize::try_from(*file).unwrap_or(usize::MAX);
        let written = piece
            .document
            .files
            .get(place)
            .ok_or_else(|| RegionsError::Damaged(format!("`{name}` is not in the piece")))?;
        let chunks = chunks(size, written.chunks.len() as u64, runs);
        let numbers: Vec<u64> = chunks.keys().copied().collect();
        let bytes = AtomicU64::new(0);
        let take = |start: u64, part: &[u8]| {
            bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
            for run in chunks.get(&(start / size)).into_iter().flatten() {
                let from = usize::try_from(run.from - start).unwrap_or(usize::MAX);
                let to = from.saturating_add(usize::try_from(run.length).unwrap_or(usize::MAX));
                let wanted = part.get(from..to).ok_or(io::ErrorKind::UnexpectedEof)?;
                put(run.wanted, run.to, wanted)?;
            }
            Ok(())
        };
        let storage = &*store.storage;
        match read_chunks(storage, &name, written, size, &numbers, &take) {
            Ok(()) => Ok(bytes.into_inner()),
            Err(ReadError::Bad(bad)) => Err(RegionsError::Damaged(bad.to_string())),
            Err(ReadError::Put(error)) => Err(RegionsError::Sink(error)),
        }
    }
}

/// Reads something from the first tier that has it as it was written. That a tier does not have it is no failure where a later one does.
fn first<T>(
    tiers: &[TierStore],
    notes: &Mutex<Vec<String>>,
    read: impl Fn(&Store) -> Result<T, RegionsError>,
) -> Result<T, RegionsError> {
    let mut failures = Vec::new();
    let mut worst = None;
    for tier in tiers {
        match read(&tier.store) {
            Ok(found) => {
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                for (from, why) in failures {
                    let text = format!("{why} on {from}; read from {}", tier.tier.name());
                    // One file is asked for many times.
                    if notes.len() < MAX_NOTES && !notes.contains(&text) {
                        notes.push(text);
                    }
                }
                return Ok(found);
            }
            Err(error @ (RegionsError::Sink(_) | RegionsError::Reshard(_))) => return Err(error),
            Err(error @ RegionsError::NoCommit(_)) => {
                worst.get_or_insert(error);
            }
            Err(error) => {
                failures.push((tier.tier.name(), error.to_string()));
                // Damage says more than that something is missing.
                if !matches!(worst, Some(RegionsError::Damaged(_))) {
                    worst = Some(error);
                }
            }
        }
    }
    Err(worst.unwrap_or_else(|| RegionsError::Damaged("there is no tier".to_owned())))
}

fn known_commit(
    store: &Store,
    name: &str,
    reference: &CommitRef,
) -> Result<Sealed<Commit>, RegionsError> {
    match store.read::<Commit>(name)? {
        Some(commit) if commit.crc32c == reference.crc32c => Ok(commit),
        Some(_) => Err(RegionsError::Damaged(other_file(name))),
        None => Err(RegionsError::NoCommit(name.to_owned())),
    }
}

fn layout_of(
    store: &Store,
    reference: &CommitRef,
    known: &LayoutRef,
) -> Result<Layout, RegionsError> {
    let name = StepFile::Layout(known.id);
    is_there(store, reference, &name)?;
    read_layout(store, &reference.folder, known)
        .map_err(|problem| RegionsError::Damaged(problem.why))
}

fn has_piece(store: &Store, reference: &CommitRef, line: &CommitPiece) -> Result<(), RegionsError> {
    is_there(store, reference, &StepFile::Piece(line.rank))
}

/// Fails with `NoCommit` where a tier does not have a file: the local tier of a node has the files of its own ranks.
fn is_there(store: &Store, reference: &CommitRef, file: &StepFile) -> Result<(), RegionsError> {
    let name = within(&reference.folder.path(), &file.to_string());
    match store.storage.stat(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RegionsError::NoCommit(name)),
        _ => Ok(()),
    }
}

/// The runs of a plan by file, in the order of their offsets.
fn runs_by_file(plan: &Plan) -> BTreeMap<TensorFile, Vec<Run>> {
    let mut files: BTreeMap<TensorFile, Vec<Run>> = BTreeMap::new();
    for read in &plan.reads {
        let runs = files.entry(read.file.clone()).or_default();
        for copy in &read.copies {
            for (from, to, length) in copy.runs() {
                runs.push(Run {
                    from: read.offset + from,
                    wanted: copy.wanted,
                    to,
                    length,
                });
            }
        }
    }
    for runs in files.values_mut() {
        runs.sort_unstable_by_key(|run| run.from);
    }
    files
}

/// The chunks of a file that have wanted bytes, each with its runs cut to it.
fn chunks(size: u64, known: u64, runs: &[Run]) -> BTreeMap<u64, Vec<Run>> {
    let mut chunks: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
    for run in runs {
        let mut done = 0;
        while done < run.length {
            let at = run.from + done;
            // What lies beyond the last chunk is refused with that chunk.
            let chunk = (at / size).min(known);
            let end = ((at / size + 1) * size).min(run.from + run.length);
            chunks.entry(chunk).or_default().push(Run {
                from: at,
                wanted: run.wanted,
                to: run.to + done,
                length: end - at,
            });
            done = end - run.from;
        }
    }
    chunks
}
