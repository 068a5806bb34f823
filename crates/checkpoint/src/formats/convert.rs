//! Writes a checkpoint in another format: beside its place, verified by reading it back, then renamed.

mod place;
mod target;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use trainyard_core::checkpoint::Crc32c;

use self::place::Place;
use super::{BLOCK_BYTES, Contents, Format, FormatError, bytes_of};

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The format.
    pub to: Format,
    /// The most bytes of a shard of Hugging Face.
    pub max_shard_bytes: u64,
    /// The step to save under, for a store of ours.
    pub step: u64,
    /// Whether a checkpoint that is there is replaced.
    pub force: bool,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// How many tensors.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What the format cannot hold, one sentence each.
    pub left_out: Vec<String>,
}

/// The checksums of tensors as they were written.
type Sums = BTreeMap<String, Crc32c>;

/// Converts. `done` counts bytes: those of all tensors once while they are written and once while they are read back.
pub fn convert(
    contents: &Arc<Contents>,
    source: &Path,
    destination: &Path,
    options: &Options,
    done: &Arc<AtomicU64>,
) -> Result<Converted, FormatError> {
    let place = Place::new(source, destination, options.force)?;
    place.check_room(needed(contents))?;
    let result = write(contents, &place, options, done);
    match result {
        Ok(converted) => {
            place.publish()?;
            Ok(converted)
        }
        Err(error) => {
            place.remove();
            Err(error)
        }
    }
}

/// Bytes that the result takes at most: tensors, and what each needs in headers and archives.
fn needed(contents: &Contents) -> u64 {
    let names: u64 = contents.tensors.keys().map(|name| name.len() as u64).sum();
    let headers = (contents.tensors.len() as u64).saturating_mul(2_048);
    contents
        .bytes()
        .saturating_add(headers)
        .saturating_add(names.saturating_mul(8))
        .saturating_add(1 << 20)
}

fn write(
    contents: &Arc<Contents>,
    place: &Place,
    options: &Options,
    done: &Arc<AtomicU64>,
) -> Result<Converted, FormatError> {
    let mut converted = Converted {
        tensors: contents.tensors.len() as u64,
        bytes: contents.bytes(),
        left_out: Vec::new(),
    };
    let has_state = contents.state.is_some() || !contents.other_state.is_empty();
    let temporary = place.temporary();
    let sums = match options.to {
        Format::Safetensors => target::safetensors(contents, temporary, done)?,
        Format::Hf => target::hf(contents, temporary, options.max_shard_bytes, done)?,
        Format::Dcp => target::dcp(contents, temporary, done, &mut converted.left_out)?,
        Format::Trainyard => {
            target::trainyard(
                contents,
                temporary,
                options.step,
                done,
                &mut converted.left_out,
            )?;
            return Ok(converted);
        }
    };
    if has_state && options.to != Format::Dcp {
        let why = "small state (numbers and texts beside tensors): safetensors holds tensors only";
        converted.left_out.push(why.into());
    }
    verify(temporary, &sums, done)?;
    Ok(converted)
}

/// Reads everything back and compares checksums.
fn verify(path: &Path, sums: &Sums, done: &AtomicU64) -> Result<(), FormatError> {
    let written = super::open(path, None)?;
    if !written.tensors.keys().eq(sums.keys()) {
        let why = "the tensors that were written are not those that are there";
        return Err(FormatError::new(path.display().to_string(), why));
    }
    for (name, sum) in sums {
        let mut found = Checksum::default();
        blocks(&written, name, &mut |bytes| {
            found.add(bytes);
            done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(())
        })?;
        if found.finish() != *sum {
            let why = "what was read back is not what was written";
            return Err(FormatError::new(name.clone(), why));
        }
    }
    Ok(())
}

/// A checksum over blocks: the checksum of their checksums, since blocks have fixed places.
#[derive(Debug, Default)]
struct Checksum(Vec<u8>);

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend(Crc32c::of(bytes).0.to_le_bytes());
    }

    fn finish(&self) -> Crc32c {
        Crc32c::of(&self.0)
    }
}

/// Hands on a tensor block by block.
fn blocks(
    contents: &Contents,
    name: &str,
    take: &mut dyn FnMut(&[u8]) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let total = contents.tensors.get(name).map_or(0, super::Tensor::bytes);
    let mut buffer = vec![0; bytes_of(total.min(BLOCK_BYTES))];
    let mut offset = 0;
    while offset < total {
        let length = bytes_of((total - offset).min(BLOCK_BYTES));
        contents.read(name, offset, &mut buffer[..length])?;
        take(&buffer[..length])?;
        offset += length as u64;
    }
    Ok(())
}
