//! A step of ours. A chunk is verified when it is first read from; what is read afterwards comes from memory of the system.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use trainyard_core::checkpoint::{
    Commit, Crc32c, FolderSeen, PieceFile, StepLine, StepState, summary,
};

use super::{Contents, DataFile, Format, FormatError, Part, Tensor, bytes_of};
use crate::{
    Files, Store,
    clock::SystemClock,
    load::{data_name, known_piece, read_objects},
    storage::Input,
    token,
    verify::read_layout,
};

/// The checksums of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// The checksum of each.
    pub sums: Vec<Crc32c>,
}

/// Opens a step of a root: by number, by the name of its folder, or the newest complete one.
pub fn open(root: &Path, step: Option<&str>) -> Result<Contents, FormatError> {
    let place = root.display().to_string();
    let bad = |why: String| FormatError::new(place.clone(), why);
    let files = Files::existing(root).map_err(|error| FormatError::io(root, &error))?;
    let random = token::seed().map_err(|error| bad(error.to_string()))?;
    let store = Store::existing(Arc::new(files), SystemClock::start(), random)
        .map_err(|error| bad(error.to_string()))?;
    let view = store.view().map_err(|error| bad(error.to_string()))?;
    let none = BTreeMap::new();
    let seen = summary(store.run(), &view.records, &view.folders, &none, None);
    let line = match step {
        Some(step) => find(&seen.steps, step).ok_or_else(|| bad(format!("no step `{step}`")))?,
        None => seen
            .newest()
            .ok_or_else(|| bad("it has no complete step".into()))?,
    };
    let folder = line.name.to_string();
    let found = view.folders.iter().find(|one| one.folder == folder);
    let commit = found.and_then(FolderSeen::commit).ok_or_else(|| {
        let why = line.why.clone().unwrap_or_else(|| "not committed".into());
        bad(format!("step `{folder}` is {}: {why}", line.state))
    })?;
    contents(&Arc::new(store), &commit.commit.document, &place)
}

/// Of several folders of one step the newest complete one is meant.
fn find<'a>(lines: &'a [StepLine], text: &str) -> Option<&'a StepLine> {
    let number = text.parse::<u64>().ok();
    let is_meant =
        |line: &&StepLine| Some(line.name.step) == number || line.name.to_string() == text;
    let lines: Vec<&StepLine> = lines.iter().filter(is_meant).collect();
    let complete = lines
        .iter()
        .rev()
        .find(|line| line.state == StepState::Complete);
    complete.or(lines.last()).copied()
}

fn contents(store: &Arc<Store>, commit: &Commit, place: &str) -> Result<Contents, FormatError> {
    let folder = commit.folder();
    let bad = |why: String| FormatError::new(format!("{place}/{}", folder.path()), why);
    let mut layouts = BTreeMap::new();
    for known in &commit.layouts {
        let layout = read_layout(store, &folder, known).map_err(|problem| bad(problem.why))?;
        layouts.insert(known.id, layout);
    }
    // Checks that sizes, coordinates and layouts fit together.
    trainyard_core::checkpoint::Index::new(commit, layouts.clone())
        .map_err(|error| bad(error.to_string()))?;
    let mut tensors: BTreeMap<String, Tensor> = BTreeMap::new();
    let mut regions = BTreeSet::new();
    let mut files = Vec::new();
    let mut checksums = BTreeMap::new();
    let (mut state, mut other_state) = (None, BTreeMap::new());
    for line in &commit.pieces {
        let piece = known_piece(store, &folder, line).map_err(bad)?.document;
        let first = files.len();
        for (file, written) in (0..).zip(&piece.files) {
            let name = data_name(&folder, line.rank, file);
            let chunks = Chunks {
                chunk_bytes: piece.chunk_bytes,
                sums: written.chunks.clone(),
            };
            checksums.insert(files.len(), chunks);
            files.push(DataFile {
                name: format!("{place}/{name}"),
                input: Box::new(Verified {
                    store: Arc::clone(store),
                    name,
                    written: written.clone(),
                    chunk_bytes: piece.chunk_bytes.max(1),
                    done: Mutex::new(BTreeSet::new()),
                }),
            });
        }
        let layout = line.layout.and_then(|id| layouts.get(&id));
        for entry in layout.into_iter().flat_map(|layout| &layout.tensors) {
            if entry.shared.is_some() {
                let why = "the step refers to shared tensor files, which this version cannot read";
                return Err(bad(why.into()));
            }
            let mesh = layout.map(|layout| layout.mesh.as_slice());
            let region = entry.region(mesh.unwrap_or_default(), &line.at);
            if region.sizes != entry.local {
                return Err(bad(format!(
                    "rank {} stores shape {:?} of tensor `{}`, and its coordinates give {region}",
                    line.rank, entry.local, entry.name
                )));
            }
            let tensor = tensors.entry(entry.name.clone()).or_insert_with(|| Tensor {
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                parts: Vec::new(),
            });
            // Of replicas the first is read.
            if region.is_empty() || !regions.insert((entry.name.clone(), region.clone())) {
                continue;
            }
            let data = line
                .files
                .get(entry.file as usize)
                .map_or(0, |file| file.data);
            tensor.parts.push(Part {
                file: first + entry.file as usize,
                start: data + entry.start,
                region,
                strides: None,
            });
        }
        let objects = read_objects(store, &folder, line).map_err(bad)?;
        for (name, value) in objects.into_iter().flat_map(|objects| objects.values) {
            if line.rank == 0 && name == "state" {
                state = Some(value);
            } else {
                other_state.insert(format!("rank {}: {name}", line.rank), value);
            }
        }
    }
    let mut contents = Contents::new(Format::Trainyard, tensors, files)?;
    contents.step = Some(commit.step);
    contents.state = state;
    contents.other_state = other_state;
    contents.checksums = checksums;
    Ok(contents)
}

/// A data file whose chunks are checked before anything of them is handed on.
#[derive(Debug)]
struct Verified {
    store: Arc<Store>,
    name: String,
    written: PieceFile,
    chunk_bytes: u64,
    done: Mutex<BTreeSet<u64>>,
}

impl Input for Verified {
    fn size(&self) -> io::Result<u64> {
        Ok(self.written.bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let file = self.store.storage.open(&self.name)?;
        let found = file.size()?;
        if found != self.written.bytes {
            return Err(io::Error::other(format!(
                "it has {found} bytes, {} were written",
                self.written.bytes
            )));
        }
        let last = offset.saturating_add(buffer.len() as u64 - 1) / self.chunk_bytes;
        for chunk in offset / self.chunk_bytes..=last {
            let is_done = |done: &BTreeSet<u64>| done.contains(&chunk);
            if is_done(&self.done.lock().unwrap_or_else(PoisonError::into_inner)) {
                continue;
            }
            let start = chunk.saturating_mul(self.chunk_bytes);
            let length = self
                .written
                .bytes
                .saturating_sub(start)
                .min(self.chunk_bytes);
            let mut bytes = vec![0; bytes_of(length)];
            file.read_at(start, &mut bytes)?;
            if self.written.chunks.get(bytes_of(chunk)) != Some(&Crc32c::of(&bytes)) {
                return Err(io::Error::other(format!(
                    "it is damaged in chunk {chunk} (bytes {start} to {})",
                    (start + length).saturating_sub(1)
                )));
            }
            self.done
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(chunk);
        }
        file.read_at(offset, buffer)
    }
}
