//! A root with checkpoints: opened, and seen as the values that `trainyard_core::checkpoint` decides on.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptFile, AttemptId, COMMIT_FILE, Claim, Commit, CommitSeen, Document, Fence,
    ManifestError, Piece, PieceSeen, REMOVED_FILE, ROOT_FILE, RecordSeen, Restored, Root, STEPS,
    Sealed, StepFile, StepName, VERSION, claim, decode, encode, fenced_by, lineage,
};

use crate::{
    publish::{Published, is_unfinished, publish},
    storage::{Kind, Shared, Stat, read_small, within},
    token::Random,
};

/// How often a record is taken by exclusive create until an attempt gives up: each failure means that another one began.
const CLAIM_RETRIES: usize = 16;

/// Why a root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The storage answered an error.
    #[error("cannot {action} `{name}`: {source}")]
    Storage {
        /// What was tried.
        action: &'static str,
        /// On which name, relative to the root.
        name: String,
        /// The answer.
        source: io::Error,
    },
    /// A file that must be readable is not.
    #[error("`{name}`: {source}")]
    Manifest {
        /// Its name, relative to the root.
        name: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// No store.
    #[error("the folder is not a checkpoint store: it has no `trainyard.json`")]
    NotAStore,
    /// A store of another run.
    #[error("the checkpoints are of run `{found}`, and this is run `{wanted}`")]
    OtherRun {
        /// Whose it is.
        found: String,
        /// Who asks.
        wanted: String,
    },
    /// A higher attempt has begun.
    #[error("fenced: attempt {by} has begun, and this is attempt {mine}")]
    Fenced {
        /// This attempt.
        mine: AttemptId,
        /// The higher one.
        by: AttemptId,
    },
    /// Others took every record that this attempt tried.
    #[error("no record could be taken in {CLAIM_RETRIES} tries; another attempt begins at the same time")]
    Contended,
}

impl StoreError {
    pub(crate) fn storage(action: &'static str, name: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Storage {
            action,
            name: name.to_owned(),
            source,
        }
    }

    pub(crate) fn manifest(name: &str) -> impl FnOnce(ManifestError) -> Self {
        move |source| Self::Manifest {
            name: name.to_owned(),
            source,
        }
    }
}

/// What a step folder has in place of a commit that can be read.
#[derive(Clone, Debug, PartialEq)]
pub enum FolderState {
    /// A commit.
    Committed(Box<Sealed<Commit>>),
    /// A commit that cannot be read, with the reason.
    Damaged(String),
    /// Its removal has begun.
    Removed,
    /// Neither: the save was not finished.
    Partial,
}

/// A step folder as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FolderSeen {
    /// Its name.
    pub name: StepName,
    /// What it is.
    pub state: FolderState,
}

/// What is below a root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The records of attempts.
    pub records: Vec<RecordSeen>,
    /// The step folders, by name.
    pub folders: Vec<FolderSeen>,
    /// Names that are not ours. They are reported and never touched.
    pub foreign: Vec<String>,
}

impl View {
    /// The commits that could be read.
    pub fn commits(&self) -> Vec<CommitSeen> {
        let commits = self.folders.iter().filter_map(|folder| match &folder.state {
            FolderState::Committed(commit) => Some(CommitSeen {
                folder: folder.name.clone(),
                commit: (**commit).clone(),
            }),
            _ => None,
        });
        commits.collect()
    }
}

/// A root of one run.
#[derive(Debug)]
pub struct Store {
    pub(crate) storage: Shared,
    run: String,
    tokens: Mutex<Random>,
}

impl Store {
    /// Opens a root for saving; creates what is missing. `seed` makes names unique and must be random outside of tests.
    ///
    /// Where `run` is given, a root of another run is refused.
    pub fn create(storage: Shared, run: Option<&str>, seed: u64) -> Result<Self, StoreError> {
        let mut random = Random::new(seed);
        for folder in [ATTEMPTS, STEPS] {
            storage
                .make_folder(folder)
                .map_err(StoreError::storage("create", folder))?;
        }
        // Another process may have created them and been killed before they were durable.
        storage
            .sync_folder("")
            .map_err(StoreError::storage("sync", "."))?;
        let root = match read_root(&storage) {
            Err(StoreError::NotAStore) => {
                let fresh = Root {
                    version: VERSION,
                    run: run.map_or_else(|| format!("{:016x}", random.draw()), str::to_owned),
                    other: serde_json::Map::new(),
                };
                let bytes = encode(&fresh).map_err(StoreError::manifest(ROOT_FILE))?;
                let published = publish(&*storage, ROOT_FILE, &bytes, random.draw());
                match published.map_err(StoreError::storage("create", ROOT_FILE))? {
                    Published::Done => fresh,
                    Published::Other(_) => read_root(&storage)?,
                }
            }
            other => other?,
        };
        if let Some(wanted) = run
            && root.run != wanted
        {
            return Err(StoreError::OtherRun {
                found: root.run,
                wanted: wanted.to_owned(),
            });
        }
        Ok(Self {
            storage,
            run: root.run,
            tokens: Mutex::new(random),
        })
    }

    /// Opens a root that exists, for reading and removing.
    pub fn existing(storage: Shared, seed: u64) -> Result<Self, StoreError> {
        let root = read_root(&storage)?;
        Ok(Self {
            storage,
            run: root.run,
            tokens: Mutex::new(Random::new(seed)),
        })
    }

    /// The id of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    pub(crate) fn token(&self) -> u64 {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.draw()
    }

    /// Publishes a document durably; `Other` where the name has other contents.
    pub(crate) fn publish<D: Document>(
        &self,
        name: &str,
        document: &D,
    ) -> Result<Published, StoreError> {
        let bytes = encode(document).map_err(StoreError::manifest(name))?;
        publish(&*self.storage, name, &bytes, self.token())
            .map_err(StoreError::storage("publish", name))
    }

    /// Reads a document; `None` where there is no such file.
    pub fn read<D: Document>(&self, name: &str) -> Result<Option<Sealed<D>>, StoreError> {
        match read_small(&*self.storage, name, D::MAX_BYTES as u64) {
            Ok(bytes) => {
                let document = decode(&bytes).map_err(StoreError::manifest(name))?;
                Ok(Some(document))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::storage("read", name)(error)),
        }
    }

    /// Everything below the root but the pieces.
    pub fn view(&self) -> Result<View, StoreError> {
        let mut view = View::default();
        view.records = self.records(&mut view.foreign)?;
        let entries = self
            .storage
            .list(STEPS)
            .map_err(StoreError::storage("list", STEPS))?;
        for entry in entries {
            let name = within(STEPS, &entry.name);
            match entry.name.parse::<StepName>() {
                Ok(step) if entry.kind == Kind::Folder => {
                    let state = self.folder_state(&step);
                    view.folders.push(FolderSeen { name: step, state });
                }
                _ => view.foreign.push(name),
            }
        }
        view.folders.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(view)
    }

    fn folder_state(&self, step: &StepName) -> FolderState {
        let path = step.path();
        match self.read::<Commit>(&within(&path, COMMIT_FILE)) {
            Ok(Some(commit)) => FolderState::Committed(Box::new(commit)),
            Err(error) => FolderState::Damaged(error.to_string()),
            Ok(None) => match self.storage.stat(&within(&path, REMOVED_FILE)) {
                Ok(_) => FolderState::Removed,
                Err(_) => FolderState::Partial,
            },
        }
    }

    /// The records of attempts, read. Names that are not ours are added to `foreign`.
    fn records(&self, foreign: &mut Vec<String>) -> Result<Vec<RecordSeen>, StoreError> {
        let mut records = Vec::new();
        let entries = self
            .storage
            .list(ATTEMPTS)
            .map_err(StoreError::storage("list", ATTEMPTS))?;
        for entry in entries {
            let name = within(ATTEMPTS, &entry.name);
            let Ok((id, kind)) = AttemptId::from_file(&entry.name) else {
                if !is_unfinished(&entry.name) {
                    foreign.push(name);
                }
                continue;
            };
            let unreadable = |why: String| RecordSeen::Unreadable { id, why };
            records.extend(match kind {
                AttemptFile::Record => Some(match self.read::<Fence>(&name) {
                    Ok(Some(fence)) if fence.document.id() == id => RecordSeen::Fence(fence.document),
                    Ok(Some(_)) => unreadable(format!("`{name}` is the record of another attempt")),
                    Ok(None) => unreadable(format!("`{name}` cannot be opened")),
                    Err(error) => unreadable(error.to_string()),
                }),
                AttemptFile::Restored => match self.read::<Restored>(&name) {
                    Ok(Some(restored)) => Some(RecordSeen::Restored(restored.document)),
                    _ => None,
                },
            });
        }
        Ok(records)
    }

    /// Fails if a higher attempt than `mine` has begun. Only names are read: a name alone fences.
    pub fn check_fence(&self, mine: AttemptId) -> Result<(), StoreError> {
        let entries = self
            .storage
            .list(ATTEMPTS)
            .map_err(StoreError::storage("list", ATTEMPTS))?;
        let records: Vec<RecordSeen> = entries
            .iter()
            .filter_map(|entry| AttemptId::from_file(&entry.name).ok())
            .filter(|(_, kind)| *kind == AttemptFile::Record)
            .map(|(id, _)| RecordSeen::Unreadable {
                id,
                why: String::new(),
            })
            .collect();
        match fenced_by(mine, &records) {
            Some(by) => Err(StoreError::Fenced { mine, by }),
            None => Ok(()),
        }
    }

    /// Takes the record of an attempt: from here on, what earlier attempts commit is not seen.
    ///
    /// `choose` gets what is there and answers which commit the attempt resumes from.
    pub fn fence(
        &self,
        attempt: Option<u32>,
        holder: &str,
        mut choose: impl FnMut(&View) -> Option<StepName>,
    ) -> Result<AttemptId, StoreError> {
        for _ in 0..CLAIM_RETRIES {
            let view = self.view()?;
            let id = match claim(attempt, holder, &view.records) {
                Claim::Mine(id) => return Ok(id),
                Claim::Fenced(by) => {
                    let mine = AttemptId::first(attempt.unwrap_or(0));
                    return Err(StoreError::Fenced { mine, by });
                }
                Claim::Take(id) => id,
            };
            let history = lineage(&self.run, &view.records, &view.commits());
            let resume = choose(&view);
            let record = history.fence(&self.run, id, holder, resume.as_ref());
            let name = within(ATTEMPTS, &id.record_file());
            match self.publish(&name, &record)? {
                Published::Done => return Ok(id),
                Published::Other(_) => {}
            }
        }
        Err(StoreError::Contended)
    }

    /// Records that every rank of an attempt has restored, so that its end is not held against the step.
    pub fn restored(&self, id: AttemptId, folder: &StepName) -> Result<(), StoreError> {
        let document = Restored {
            version: VERSION,
            run: self.run.clone(),
            attempt: id.attempt,
            restart: id.restart,
            folder: folder.clone(),
            other: serde_json::Map::new(),
        };
        let name = within(ATTEMPTS, &id.restored_file());
        self.publish(&name, &document).map(|_| ())
    }

    /// The piece of a rank, where it can be read.
    pub fn piece(&self, folder: &StepName, rank: u32) -> Result<Option<Sealed<Piece>>, StoreError> {
        let name = within(&folder.path(), &StepFile::Piece(rank).to_string());
        self.read(&name)
    }

    /// What is there of the pieces of a commit: each with the sizes of its files as they are.
    pub fn pieces_seen(&self, folder: &StepName, commit: &Commit) -> Vec<PieceSeen> {
        let seen = commit.pieces.iter().filter_map(|line| {
            let piece = self.piece(folder, line.rank).ok()??;
            let files = (0..).zip(&piece.document.files).map(|(file, _)| {
                let name = StepFile::Data {
                    rank: line.rank,
                    file,
                };
                let name = within(&folder.path(), &name.to_string());
                match self.storage.stat(&name) {
                    Ok(Stat {
                        kind: Kind::File,
                        bytes,
                    }) => bytes,
                    // Never the size of a whole file: tensors begin behind 8 bytes at least.
                    _ => 0,
                }
            });
            Some(PieceSeen {
                rank: line.rank,
                crc32c: piece.crc32c,
                files: files.collect(),
            })
        });
        seen.collect()
    }
}

fn read_root(storage: &Shared) -> Result<Root, StoreError> {
    match read_small(&**storage, ROOT_FILE, Root::MAX_BYTES as u64) {
        Ok(bytes) => Ok(decode::<Root>(&bytes)
            .map_err(StoreError::manifest(ROOT_FILE))?
            .document),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::NotAStore),
        Err(error) => Err(StoreError::storage("read", ROOT_FILE)(error)),
    }
}
