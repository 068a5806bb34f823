//! Whether a committed step can be restored, file by file.

use std::io;

use trainyard_core::checkpoint::{
    COMMIT_FILE, Commit, CommitPiece, Layout, LayoutRef, Piece, SHARED, Sealed, SharedRef,
    StepFile, StepName,
};

use crate::{
    load::{data_name, known_piece, other_file, read_objects},
    publish::is_unfinished,
    read::{BadFile, check_file},
    storage::{Kind, Stat, within},
    store::Store,
};

/// Most tensors that a finding names.
const MAX_TENSORS_NAMED: usize = 3;

/// Something that is wrong with a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, relative to the root.
    pub file: String,
    /// The chunk, from 0, where the contents of data are wrong.
    pub chunk: Option<u64>,
    /// Tensors that lie in that chunk, the first ones.
    pub tensors: Vec<String>,
    /// What is wrong, in one sentence.
    pub why: String,
}

impl Problem {
    fn of(file: String, why: String) -> Self {
        Self {
            file,
            chunk: None,
            tensors: Vec::new(),
            why,
        }
    }
}

/// What was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// What is wrong; empty if the step can be restored.
    pub problems: Vec<Problem>,
    /// Files in the folder that no commit knows. They do no harm.
    pub surplus: Vec<String>,
    /// Bytes of data that were read.
    pub bytes_read: u64,
}

impl Verified {
    /// Adds something that is wrong with a file as a whole.
    pub fn add(&mut self, file: String, why: String) {
        self.problems.push(Problem::of(file, why));
    }
}

/// The same for a step that retention may remove meanwhile: `None` where problems were found because its commit is gone.
pub fn verify_present(
    store: &Store,
    folder: &StepName,
    commit: &Commit,
    deep: bool,
) -> Option<Verified> {
    let verified = verify(store, folder, commit, deep);
    let name = within(&folder.path(), COMMIT_FILE);
    let is_gone = || matches!(store.storage.stat(&name), Err(error) if error.kind() == io::ErrorKind::NotFound);
    let is_removed = !verified.problems.is_empty() && is_gone();
    (!is_removed).then_some(verified)
}

/// Checks a committed step: every file with its size and checksum; `deep` also reads all data.
pub fn verify(store: &Store, folder: &StepName, commit: &Commit, deep: bool) -> Verified {
    let mut verified = Verified::default();
    for layout in &commit.layouts {
        if let Err(problem) = read_layout(store, folder, layout) {
            verified.problems.push(problem);
        }
    }
    for shared in &commit.shared {
        // Whether its contents are those of its name is not checked: nothing writes such files yet.
        let name = shared_name(shared);
        if let Err(bad) = check_size(store, &name, shared.bytes) {
            verified.add(name, bad.to_string());
        }
    }
    for line in &commit.pieces {
        verify_piece(store, folder, commit, line, deep, &mut verified);
    }
    verified.surplus = surplus(store, folder, commit);
    verified
}

/// Whether every file of a commit is there with its size. Nothing is read.
pub(crate) fn has_all_files(store: &Store, folder: &StepName, commit: &Commit) -> bool {
    let path = folder.path();
    let has = |name: &str, bytes| check_size(store, name, bytes).is_ok();
    let has_file = |file: StepFile, bytes| has(&within(&path, &file.to_string()), bytes);
    let is_there = |file: StepFile| {
        let stat = store.storage.stat(&within(&path, &file.to_string()));
        stat.is_ok_and(|stat| stat.kind == Kind::File && stat.bytes > 0)
    };
    let has_piece = |line: &CommitPiece| {
        is_there(StepFile::Piece(line.rank))
            && (line.objects.as_ref())
                .is_none_or(|objects| has_file(StepFile::Objects(line.rank), objects.bytes))
            && (0..)
                .zip(&line.files)
                .all(|(file, written)| has(&data_name(folder, line.rank, file), written.bytes))
    };
    commit.pieces.iter().all(has_piece)
        && (commit.layouts.iter()).all(|layout| has_file(StepFile::Layout(layout.id), layout.bytes))
        && (commit.shared.iter()).all(|shared| has(&shared_name(shared), shared.bytes))
}

/// The same for a tier that has the pieces of some ranks only: each that is there must be whole, and one must be.
pub(crate) fn has_own_files(store: &Store, folder: &StepName, commit: &Commit) -> bool {
    let pieces = store.pieces_seen(folder, commit);
    !pieces.is_empty() && pieces.iter().all(|piece| piece.is_whole_in(commit))
}

fn shared_name(shared: &SharedRef) -> String {
    within(SHARED, &format!("{}.safetensors", shared.blake3))
}

fn verify_piece(
    store: &Store,
    folder: &StepName,
    commit: &Commit,
    line: &CommitPiece,
    deep: bool,
    verified: &mut Verified,
) {
    let piece = match known_piece(store, folder, line) {
        Ok(piece) => piece,
        Err(why) => {
            let file = within(&folder.path(), &StepFile::Piece(line.rank).to_string());
            verified.problems.push(Problem::of(file, why));
            return;
        }
    };
    if let Err(why) = read_objects(store, folder, line) {
        let file = within(&folder.path(), &StepFile::Objects(line.rank).to_string());
        verified.problems.push(Problem::of(file, why));
    }
    for (file, written) in (0..).zip(&piece.document.files) {
        let name = data_name(folder, line.rank, file);
        let checked = if deep {
            let (bytes, read) =
                check_file(&*store.storage, &name, written, piece.document.chunk_bytes);
            verified.bytes_read += bytes;
            read
        } else {
            check_size(store, &name, written.bytes)
        };
        let Err(bad) = checked else { continue };
        let why = bad.to_string();
        let mut problem = Problem::of(name, why);
        if let BadFile::Chunk {
            chunk, start, end, ..
        } = bad
        {
            problem.chunk = Some(chunk);
            problem.tensors = tensors_in(store, folder, commit, &piece, file, start, end);
        }
        verified.problems.push(problem);
    }
}

pub(crate) fn check_size(store: &Store, name: &str, wanted: u64) -> Result<(), BadFile> {
    match store.storage.stat(name) {
        Ok(Stat {
            kind: Kind::File,
            bytes,
        }) if bytes == wanted => Ok(()),
        Ok(Stat { bytes, .. }) => Err(BadFile::Size {
            name: name.to_owned(),
            found: bytes,
            wanted,
        }),
        Err(error) => Err(BadFile::Unreadable {
            name: name.to_owned(),
            why: error.to_string(),
        }),
    }
}

/// A layout that a commit knows.
pub fn read_layout(
    store: &Store,
    folder: &StepName,
    wanted: &LayoutRef,
) -> Result<Layout, Problem> {
    let name = within(&folder.path(), &StepFile::Layout(wanted.id).to_string());
    let found = store.read::<Layout>(&name);
    match found {
        Ok(Some(layout)) if layout.crc32c == wanted.crc32c => Ok(layout.document),
        Ok(Some(_)) => Err(Problem::of(name.clone(), other_file(&name))),
        Ok(None) => Err(Problem::of(name.clone(), format!("`{name}` is missing"))),
        Err(error) => Err(Problem::of(name, error.to_string())),
    }
}

/// The tensors of a rank that have bytes between `start` and `end` of a file.
fn tensors_in(
    store: &Store,
    folder: &StepName,
    commit: &Commit,
    piece: &Sealed<Piece>,
    file: u32,
    start: u64,
    end: u64,
) -> Vec<String> {
    let document = &piece.document;
    let wanted = document.layout.as_ref().map(|layout| layout.id);
    let layout = commit
        .layouts
        .iter()
        .find(|layout| Some(layout.id) == wanted)
        .and_then(|layout| read_layout(store, folder, layout).ok());
    let data = document
        .files
        .get(file as usize)
        .map_or(0, |file| file.data);
    let is_in = |first: u64, bytes: u64| {
        let first = data.saturating_add(first);
        bytes > 0 && first <= end && first.saturating_add(bytes) > start
    };
    let entries = layout.into_iter().flat_map(|layout| layout.tensors);
    entries
        .filter(|entry| entry.file == file && entry.shared.is_none())
        .filter(|entry| is_in(entry.start, entry.bytes().unwrap_or(0)))
        .map(|entry| entry.name)
        .take(MAX_TENSORS_NAMED)
        .collect()
}

/// Files that the commit does not know.
fn surplus(store: &Store, folder: &StepName, commit: &Commit) -> Vec<String> {
    let path = folder.path();
    let entries = store.storage.list(&path).unwrap_or_default();
    let is_known = |name: &str| match name.parse::<StepFile>() {
        Ok(StepFile::Data { rank, file }) => commit
            .pieces
            .get(rank as usize)
            .is_some_and(|piece| (file as usize) < piece.files.len()),
        Ok(StepFile::Piece(rank) | StepFile::Objects(rank) | StepFile::LocalPiece(rank)) => {
            rank < commit.world
        }
        Ok(StepFile::Layout(id)) => commit.layouts.iter().any(|layout| layout.id == id),
        Ok(StepFile::Commit | StepFile::LocalCommit | StepFile::Drain) => true,
        Ok(StepFile::Removed) => false,
        Err(_) => name == trainyard_core::checkpoint::OBJECTS || is_unfinished(name),
    };
    entries
        .into_iter()
        .filter(|entry| !is_known(&entry.name))
        .map(|entry| within(&path, &entry.name))
        .collect()
}
