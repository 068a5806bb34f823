//! Reading parts of tensors of one commit: whole chunks are read and verified, and only wanted bytes are put.
//!
//! A commit is opened by folder and checksum, as the record of the attempt names it: every rank reads the same one.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use trainyard_core::checkpoint::{
    COMMIT_FILE, Commit, CommitRef, Index, Objects, Plan, ReshardError, TensorFile, WantedRegion,
    reshard,
};

use crate::{
    clock::Clock,
    load::{data_name, known_piece, other_file, read_objects},
    read::{ReadError, read_chunks},
    storage::within,
    store::{Store, StoreError},
    verify::read_layout,
};

/// The first and the longest pause between two looks for a commit that is known to exist.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why parts of tensors could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The commit is not there.
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
    store: Arc<Store>,
    reference: CommitRef,
    commit: Commit,
    index: Index,
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
        let folder = &reference.folder;
        let name = within(&folder.path(), COMMIT_FILE);
        let start = clock.now();
        let mut pause = FIRST_PAUSE;
        let commit = loop {
            if let Some(commit) = store.read::<Commit>(&name)? {
                break commit;
            }
            let waited = clock.now().saturating_sub(start);
            if waited >= timeout {
                return Err(RegionsError::NoCommit(name));
            }
            clock.wait(pause.min(timeout.saturating_sub(waited)));
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        if commit.crc32c != reference.crc32c {
            return Err(RegionsError::Damaged(other_file(&name)));
        }
        let mut layouts = BTreeMap::new();
        for known in &commit.document.layouts {
            let layout = read_layout(&store, folder, known)
                .map_err(|problem| RegionsError::Damaged(problem.why))?;
            layouts.insert(known.id, layout);
        }
        let index = Index::new(&commit.document, layouts)?;
        Ok(Self {
            store,
            reference,
            commit: commit.document,
            index,
        })
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
        read_objects(&self.store, &self.reference.folder, line).map_err(RegionsError::Damaged)
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
            bytes += self.read_runs(&file, &runs, put)?;
        }
        Ok(bytes)
    }

    fn read_runs(
        &self,
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
        let piece = known_piece(&self.store, folder, line).map_err(RegionsError::Damaged)?;
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
        let storage = &*self.store.storage;
        match read_chunks(storage, &name, written, size, &numbers, &take) {
            Ok(()) => Ok(bytes.into_inner()),
            Err(ReadError::Bad(bad)) => Err(RegionsError::Damaged(bad.to_string())),
            Err(ReadError::Put(error)) => Err(RegionsError::Sink(error)),
        }
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
