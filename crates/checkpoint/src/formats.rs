//! Checkpoints of other programs: tensors and small state of a file or a folder, whatever its format.
//!
//! [`Contents`] is what `diff` and `convert` work on: for each tensor its type, its shape and where its parts are, and the small state as
//! JSON. It is made by [`open()`] from a step of ours, one safetensors file, a folder of Hugging Face shards or a folder of
//! `torch.distributed.checkpoint` (DCP). Tensors are read by ranges of bytes, so memory is bounded whatever the size of a tensor.
//!
//! Files of others are input from anybody: every length is checked before it is used, pickles are read by a stack machine with a list of
//! allowed classes ([`pickle`]), and whatever is wrong is one sentence.

pub mod base64;
pub mod compare;
pub mod convert;
pub mod dcp;
pub mod diff;
pub mod hf;
pub mod open;
pub mod ours;
pub mod pickle;
mod ranges;
pub mod safetensors;
pub mod torch;
pub mod tree;
pub mod zip;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use trainyard_core::checkpoint::{Dtype, Region};

pub use self::open::open;
use crate::storage::Input;

/// The largest storage of a tensor that is not row-major, which is held in memory to bring it in order.
const MAX_STRIDED: u64 = 1 << 30;
/// How many bytes of tensors are handled at once.
pub const BLOCK_BYTES: u64 = 32 << 20;

/// Why a file or folder cannot be used: where, and one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{place}`: {why}")]
pub struct FormatError {
    /// The file, the folder or the tensor.
    pub place: String,
    /// What is wrong.
    pub why: String,
}

impl FormatError {
    /// An error at a place.
    pub fn new(place: impl Into<String>, why: impl Into<String>) -> Self {
        let place: String = place.into();
        Self {
            place: place.chars().take(300).collect(),
            why: why.into(),
        }
    }

    /// An answer of the operating system about a path.
    pub fn io(path: &Path, error: &io::Error) -> Self {
        Self::new(path.display().to_string(), io_words(error))
    }
}

fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the file is truncated".into(),
        io::ErrorKind::NotFound => "no such file or folder".into(),
        _ => error.to_string(),
    }
}

/// A file of the operating system; links are followed, since the caller named it.
#[derive(Debug)]
pub(crate) struct PlainFile(File);

impl PlainFile {
    pub(crate) fn open(path: &Path) -> Result<Self, FormatError> {
        let file = File::open(path).map_err(|error| FormatError::io(path, &error))?;
        let found = file
            .metadata()
            .map_err(|error| FormatError::io(path, &error))?;
        if found.is_file() {
            Ok(Self(file))
        } else {
            Err(FormatError::new(
                path.display().to_string(),
                "it is not a regular file",
            ))
        }
    }
}

impl Input for PlainFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
}

/// A file that is opened for each read: a checkpoint may have more files than a process may hold open.
#[derive(Debug)]
pub(crate) struct Reopened(pub(crate) PathBuf);

impl Input for Reopened {
    fn size(&self) -> io::Result<u64> {
        Ok(std::fs::metadata(&self.0)?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        File::open(&self.0)?.read_exact_at(buffer, offset)
    }
}

/// A part of a tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file, by its place in [`Contents::files`].
    pub file: usize,
    /// Its first byte there.
    pub start: u64,
    /// Which part of the tensor.
    pub region: Region,
    /// Steps in elements of each dimension where it is not row-major.
    pub strides: Option<Vec<u64>>,
}

/// A tensor and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its parts; together they are the whole.
    pub parts: Vec<Part>,
}

impl Tensor {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        let elements = Region::whole(&self.shape).elements().unwrap_or(0);
        elements.saturating_mul(self.dtype.bytes())
    }

    /// Whether the parts are inside and together the whole; where not, a sentence.
    fn check(&self) -> Result<(), String> {
        let elements = Region::whole(&self.shape).elements();
        let bytes = elements.and_then(|count| count.checked_mul(self.dtype.bytes()));
        if bytes.is_none_or(|bytes| bytes > 1 << 60) {
            return Err("it has more elements than any file".into());
        }
        let mut left = vec![Region::whole(&self.shape)];
        left.retain(|region| !region.is_empty());
        for part in &self.parts {
            if !part.region.is_in(&self.shape) {
                return Err(format!("the part {} is not inside it", part.region));
            }
            left = left
                .iter()
                .flat_map(|open| open.minus(&part.region))
                .collect();
            if left.len() > 65_536 {
                return Err("its parts lie in no order that can be followed".into());
            }
        }
        match left.first() {
            Some(region) => Err(format!("the part {region} is missing")),
            None => Ok(()),
        }
    }
}

/// A file with tensors, and what it is called in messages.
#[derive(Debug)]
pub struct DataFile {
    /// What it is called.
    pub name: String,
    /// Its bytes.
    pub input: Box<dyn Input>,
}

/// What kind of checkpoint something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A step of ours.
    Trainyard,
    /// One safetensors file.
    Safetensors,
    /// Safetensors shards with an index, as Hugging Face writes them.
    Hf,
    /// A folder of `torch.distributed.checkpoint`.
    Dcp,
}

impl Format {
    /// Its name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trainyard => "trainyard",
            Self::Safetensors => "safetensors",
            Self::Hf => "hf",
            Self::Dcp => "dcp",
        }
    }
}

/// The storage of a tensor that is not row-major, kept because its parts are read one after the other.
type Kept = Option<((usize, u64), Arc<Vec<u8>>)>;

/// The tensors and the small state of a checkpoint.
#[derive(Debug)]
pub struct Contents {
    /// What it is.
    pub format: Format,
    /// The step, where the format has one.
    pub step: Option<u64>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// The files that their parts are in.
    pub files: Vec<DataFile>,
    /// The small state of rank 0, as the Python package writes it (the member `state`); `None` where the format has none.
    pub state: Option<Value>,
    /// Other small state by its place, such as `rank 1: rng`.
    pub other_state: BTreeMap<String, Value>,
    /// Checksums of chunks by file, where the format has them.
    pub checksums: BTreeMap<usize, ours::Chunks>,
    kept: Mutex<Kept>,
}

impl Contents {
    /// Contents of parts that together make every tensor whole, or which one is not.
    fn new(
        format: Format,
        tensors: BTreeMap<String, Tensor>,
        files: Vec<DataFile>,
    ) -> Result<Self, FormatError> {
        for (name, tensor) in &tensors {
            tensor
                .check()
                .map_err(|why| FormatError::new(name.clone(), why))?;
        }
        Ok(Self {
            format,
            step: None,
            tensors,
            files,
            state: None,
            other_state: BTreeMap::new(),
            checksums: BTreeMap::new(),
            kept: Mutex::new(None),
        })
    }

    /// The bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let sizes = self.tensors.values().map(Tensor::bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Keeps the tensors whose names begin with `only`, and takes `strip` off the names that begin with it.
    pub fn select(&mut self, only: Option<&str>, strip: Option<&str>) -> Result<(), FormatError> {
        if only.is_none() && strip.is_none() {
            return Ok(());
        }
        let mut renamed = BTreeMap::new();
        for (name, tensor) in std::mem::take(&mut self.tensors) {
            if only.is_some_and(|only| !name.starts_with(only)) {
                continue;
            }
            let short = strip.and_then(|strip| name.strip_prefix(strip));
            let short = short.unwrap_or(&name).to_owned();
            if short.is_empty() || renamed.insert(short.clone(), tensor).is_some() {
                let why =
                    format!("without the prefix its name is `{short}`, which is empty or taken");
                return Err(FormatError::new(name, why));
            }
        }
        self.tensors = renamed;
        // The small state refers to tensors by their old names.
        self.state = None;
        self.other_state.clear();
        Ok(())
    }

    /// Fills the buffer with the bytes of a tensor from `offset` on, as if it were one row-major array.
    pub fn read(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let tensor = self
            .tensors
            .get(name)
            .ok_or_else(|| FormatError::new(name, "there is no such tensor"))?;
        let size = tensor.dtype.bytes();
        let end = offset.saturating_add(buffer.len() as u64);
        if end > tensor.bytes() {
            return Err(FormatError::new(name, "more was asked for than it has"));
        }
        if !offset.is_multiple_of(size) || !end.is_multiple_of(size) {
            let from = offset / size * size;
            let to = end.div_ceil(size) * size;
            let mut whole = vec![0; bytes_of(to - from)];
            self.read(name, from, &mut whole)?;
            let first = bytes_of(offset - from);
            buffer.copy_from_slice(&whole[first..first + buffer.len()]);
            return Ok(());
        }
        let mut done = 0;
        for region in ranges::regions(&tensor.shape, offset / size, end / size) {
            let length = bytes_of(region.elements().unwrap_or(0).saturating_mul(size));
            let target = &mut buffer[done..done + length];
            for part in &tensor.parts {
                if let Some(both) = region.intersection(&part.region) {
                    self.copy(name, part, &region, &both, size, target)?;
                }
            }
            done += length;
        }
        Ok(())
    }

    /// Copies what a part has of a region.
    fn copy(
        &self,
        name: &str,
        part: &Part,
        region: &Region,
        both: &Region,
        size: u64,
        target: &mut [u8],
    ) -> Result<(), FormatError> {
        let steps = part
            .strides
            .clone()
            .unwrap_or_else(|| ranges::row_major(&part.region.sizes));
        let (first, last) = ranges::span(both, &part.region, &steps);
        let (kept, base);
        let mut read;
        let source: &[u8] = if part.strides.is_some() {
            kept = self.strided(name, part, size)?;
            base = 0;
            &kept
        } else {
            base = first;
            read = vec![0; bytes_of((last + 1 - first).saturating_mul(size))];
            let file = &self.files[part.file];
            file.input
                .read_at(part.start + first * size, &mut read)
                .map_err(|error| FormatError::new(file.name.clone(), io_words(&error)))?;
            &read
        };
        for run in ranges::runs(both, &part.region, &steps, region) {
            let from = bytes_of((run.from - base) * size);
            let to = bytes_of(run.to * size);
            let length = bytes_of(run.length * size);
            let bytes = source.get(from..from + length);
            let place = target.get_mut(to..to + length);
            match (bytes, place) {
                (Some(bytes), Some(place)) => place.copy_from_slice(bytes),
                _ => return Err(FormatError::new(name, "a part of it ends before its data")),
            }
        }
        Ok(())
    }

    /// The whole storage of a part that is not row-major.
    fn strided(&self, name: &str, part: &Part, size: u64) -> Result<Arc<Vec<u8>>, FormatError> {
        let key = (part.file, part.start);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bytes)) = &*kept
            && *known == key
        {
            return Ok(Arc::clone(bytes));
        }
        let steps = part.strides.clone().unwrap_or_default();
        let (_, last) = ranges::span(&part.region, &part.region, &steps);
        let length = (last + 1).saturating_mul(size);
        if length > MAX_STRIDED {
            let why = format!(
                "it is not row-major and has {length} bytes; at most {MAX_STRIDED} can be brought in order"
            );
            return Err(FormatError::new(name, why));
        }
        let mut bytes = vec![0; bytes_of(length)];
        let file = &self.files[part.file];
        file.input
            .read_at(part.start, &mut bytes)
            .map_err(|error| FormatError::new(file.name.clone(), io_words(&error)))?;
        let bytes = Arc::new(bytes);
        *kept = Some((key, Arc::clone(&bytes)));
        Ok(bytes)
    }
}

/// A length that was checked against one that fits into memory.
pub(crate) fn bytes_of(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// The names that torch has for a type and for its storage, which may have none.
pub(crate) fn pickle_dtypes(dtype: Dtype) -> (&'static str, &'static str) {
    let known = pickle::DTYPES.iter().find(|(own, _, _)| *own == dtype);
    known.map_or(("uint8", "ByteStorage"), |(_, name, storage)| {
        (name, storage)
    })
}

/// Gives bytes from anybody to every reader of this module; for fuzzing and for tests. Nothing may panic.
pub fn feed(bytes: &[u8]) {
    if let Ok(pickle) = pickle::Pickle::read(bytes) {
        drop(tree::node(&pickle));
    }
    drop(dcp::Metadata::read(bytes));
    let file = bytes.to_vec();
    let window = zip::Window {
        input: &file,
        start: 0,
        length: bytes.len() as u64,
    };
    drop(torch::tensor(&window));
    drop(torch::object(&window));
    drop(safetensors::header(&file, 0));
    drop(safetensors::parse(bytes, 0, bytes.len() as u64, 0));
}
