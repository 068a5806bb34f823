//! A root with checkpoints: opened, and seen as the values that `trainyard_core::checkpoint` decides on.

mod behind;

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use trainyard_core::checkpoint::{
    ATTEMPTS, AttemptId, COMMIT_FILE, Commit, CommitSeen, Document, FolderSeen, FolderState,
    LATEST, MAX_VIEW_BYTES, ManifestError, OBJECTS, Piece, PieceSeen, REMOVED_FILE, ROOT_FILE,
    RecordSeen, Root, STEPS, Sealed, StepFile, StepName, VERSION, commits, decode, encode,
};

pub use self::behind::TierOptions;
pub(crate) use self::behind::{Behind, Board, Known};
use crate::{
    clock::Clock,
    publish::{Published, publish},
    storage::{Kind, Shared, Stat, is_full, read_small, within},
    token::Random,
};

/// How often a record is taken by exclusive create until an attempt gives up: each failure means that another one began.
pub(crate) const CLAIM_RETRIES: usize = 16;

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
    #[error(
        "no record could be taken in {CLAIM_RETRIES} tries; another attempt begins at the same time"
    )]
    Contended,
    /// The chosen commit did not become visible.
    #[error("the attempt should resume from `{0}`, which is not part of the history of the run")]
    NotInHistory(StepName),
    /// More commits than a reader holds.
    #[error("the commits of the store take more than {MAX_VIEW_BYTES} bytes; remove steps")]
    TooLarge,
}

impl StoreError {
    /// Whether there was no room: disk or quota.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Storage { source, .. } if is_full(source))
    }

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

/// What is below a root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The records of attempts.
    pub records: Vec<RecordSeen>,
    /// The folders of `steps/`, by name; without pieces and sizes unless they were asked for.
    pub folders: Vec<FolderSeen>,
    /// Names that are not ours. They are reported and never touched.
    pub foreign: Vec<String>,
}

impl View {
    /// The commits that could be read.
    pub fn commits(&self) -> Vec<CommitSeen> {
        commits(&self.folders)
    }
}

/// A root of one run.
#[derive(Debug)]
pub struct Store {
    pub(crate) storage: Shared,
    pub(crate) clock: Arc<dyn Clock>,
    run: String,
    tokens: Mutex<Random>,
    /// Where this is the local tier of a node: what is behind it.
    pub(crate) behind: Option<Arc<Behind>>,
}

impl Store {
    /// Opens a root for saving; creates what is missing. `seed` makes names unique and must be random outside of tests.
    ///
    /// Where `run` is given, a root of another run is refused.
    pub fn create(
        storage: Shared,
        clock: Arc<dyn Clock>,
        run: Option<&str>,
        seed: u64,
    ) -> Result<Self, StoreError> {
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
                let published = publish(&*storage, &*clock, ROOT_FILE, &bytes, random.draw());
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
            clock,
            run: root.run,
            tokens: Mutex::new(random),
            behind: None,
        })
    }

    /// Opens a root that exists, for reading and removing.
    pub fn existing(storage: Shared, clock: Arc<dyn Clock>, seed: u64) -> Result<Self, StoreError> {
        let root = read_root(&storage)?;
        Ok(Self {
            storage,
            clock,
            run: root.run,
            tokens: Mutex::new(Random::new(seed)),
            behind: None,
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

    /// Makes the entries of a folder durable.
    pub(crate) fn sync_folder(&self, name: &str) -> Result<(), StoreError> {
        let synced = self.storage.sync_folder(name);
        synced.map_err(StoreError::storage("sync", name))
    }

    /// Publishes a document durably; `Other` where the name has other contents.
    pub(crate) fn publish<D: Document>(
        &self,
        name: &str,
        document: &D,
    ) -> Result<Published, StoreError> {
        let bytes = encode(document).map_err(StoreError::manifest(name))?;
        publish(&*self.storage, &*self.clock, name, &bytes, self.token())
            .map_err(StoreError::storage("publish", name))
    }

    /// Publishes bytes as they are.
    pub(crate) fn publish_bytes(&self, name: &str, bytes: &[u8]) -> Result<Published, StoreError> {
        publish(&*self.storage, &*self.clock, name, bytes, self.token())
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
        let mut held: u64 = 0;
        for entry in entries {
            match entry.name.parse::<StepName>() {
                Ok(step) if entry.kind == Kind::Folder => {
                    let folder = self.folder(&step);
                    if let FolderState::Committed(commit) = &folder.state {
                        held = held.saturating_add(commit.bytes);
                    }
                    if held > MAX_VIEW_BYTES {
                        return Err(StoreError::TooLarge);
                    }
                    view.folders.push(folder);
                }
                _ => view.foreign.push(within(STEPS, &entry.name)),
            }
        }
        // A listing may lag behind a commit that another node published. The hint names one more folder to open; what counts
        // is the commit in it.
        if let Some(step) = self.latest()
            && !view
                .folders
                .iter()
                .any(|known| known.name().as_ref() == Some(&step))
            && self.is_folder(&step.path())
        {
            let folder = self.folder(&step);
            if matches!(folder.state, FolderState::Committed(_)) {
                view.folders.push(folder);
            }
        }
        view.folders.sort_by_key(FolderSeen::name);
        Ok(view)
    }

    /// The same with the pieces and sizes of every folder, which takes a look at every file.
    pub fn whole_view(&self) -> Result<View, StoreError> {
        let mut view = self.view()?;
        for folder in &mut view.folders {
            let Some(name) = folder.name() else { continue };
            folder.bytes = self.bytes_of(&name);
            folder.pieces = Some(match &folder.state {
                FolderState::Committed(commit) => self.pieces_seen(&name, &commit.document),
                _ => self.pieces_listed(&name),
            });
        }
        Ok(view)
    }

    /// Whether a name is a folder and not a link to one.
    fn is_folder(&self, name: &str) -> bool {
        let found = self.storage.stat(name);
        found.is_ok_and(|stat| stat.kind == Kind::Folder)
    }

    /// What `latest` names.
    fn latest(&self) -> Option<StepName> {
        let bytes = read_small(&*self.storage, LATEST, 256).ok()?;
        String::from_utf8(bytes).ok()?.trim_end().parse().ok()
    }

    fn folder(&self, step: &StepName) -> FolderSeen {
        FolderSeen {
            folder: step.to_string(),
            state: self.folder_state(step),
            other_run: None,
            pieces: None,
            bytes: 0,
        }
    }

    /// The bytes of all files of a step folder.
    fn bytes_of(&self, step: &StepName) -> u64 {
        let path = step.path();
        let folders = [path.clone(), within(&path, OBJECTS)];
        let names = folders.iter().flat_map(|folder| {
            let entries = self.storage.list(folder).unwrap_or_default();
            let files = entries.into_iter().filter(|entry| entry.kind == Kind::File);
            files.map(|entry| within(folder, &entry.name))
        });
        names
            .filter_map(|name| self.storage.stat(&name).ok())
            .fold(0, |sum: u64, file| sum.saturating_add(file.bytes))
    }

    /// The pieces that the files of a folder without commit show.
    fn pieces_listed(&self, step: &StepName) -> Vec<PieceSeen> {
        let entries = self.storage.list(&step.path()).unwrap_or_default();
        let ranks = entries.iter().filter_map(|entry| match entry.name.parse() {
            Ok(StepFile::Piece(rank)) => Some(rank),
            _ => None,
        });
        ranks
            .filter_map(|rank| self.piece_seen(step, rank))
            .collect()
    }

    fn folder_state(&self, step: &StepName) -> FolderState {
        let path = step.path();
        match self.read::<Commit>(&within(&path, COMMIT_FILE)) {
            Ok(Some(commit)) => FolderState::Committed(Box::new(commit)),
            Err(error) => FolderState::Unreadable {
                why: error.to_string(),
            },
            Ok(None) => match self.storage.stat(&within(&path, REMOVED_FILE)) {
                Ok(_) => FolderState::Removed,
                Err(_) => FolderState::Partial,
            },
        }
    }

    /// The piece of a rank, where it can be read.
    pub fn piece(&self, folder: &StepName, rank: u32) -> Result<Option<Sealed<Piece>>, StoreError> {
        let name = within(&folder.path(), &StepFile::Piece(rank).to_string());
        self.read(&name)
    }

    /// What is there of the pieces of a commit: each with the sizes of its files as they are.
    pub fn pieces_seen(&self, folder: &StepName, commit: &Commit) -> Vec<PieceSeen> {
        let ranks = commit.pieces.iter().map(|line| line.rank);
        ranks
            .filter_map(|rank| self.piece_seen(folder, rank))
            .collect()
    }

    fn piece_seen(&self, folder: &StepName, rank: u32) -> Option<PieceSeen> {
        let piece = self.piece(folder, rank).ok()??;
        let files = (0..).zip(&piece.document.files).map(|(file, _)| {
            let name = within(&folder.path(), &StepFile::Data { rank, file }.to_string());
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
            rank,
            crc32c: piece.crc32c,
            files: files.collect(),
        })
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
