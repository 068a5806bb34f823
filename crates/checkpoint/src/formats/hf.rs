//! Safetensors shards with an index, as libraries of Hugging Face write them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Value, json};

use super::{
    Contents, DataFile, Format, FormatError, PlainFile, Reopened, Tensor, open::is_plain,
    safetensors,
};

/// The name of the index.
pub const INDEX: &str = "model.safetensors.index.json";
/// The most bytes of an index.
const MAX_INDEX: u64 = 256 << 20;
/// The most shards.
const MAX_SHARDS: usize = 4_096;

/// Opens a folder with an index.
pub fn open(folder: &Path) -> Result<Contents, FormatError> {
    let path = folder.join(INDEX);
    let bad = |why: String| FormatError::new(path.display().to_string(), why);
    let bytes = super::open::read_file(&path, MAX_INDEX)?;
    let index: Value =
        serde_json::from_slice(&bytes).map_err(|error| bad(format!("it is not JSON: {error}")))?;
    let map = index
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| bad("it has no `weight_map`".into()))?;
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (tensor, shard) in map {
        let shard = shard.as_str().filter(|shard| is_plain(shard));
        let shard = shard.ok_or_else(|| {
            bad(format!(
                "the shard of `{tensor}` is not a file of the folder"
            ))
        })?;
        wanted.entry(shard).or_default().insert(tensor);
    }
    if wanted.len() > MAX_SHARDS {
        return Err(bad(format!("it has more than {MAX_SHARDS} shards")));
    }
    let (mut tensors, mut files) = (BTreeMap::new(), Vec::new());
    for (shard, names) in wanted {
        let path = folder.join(shard);
        let file = PlainFile::open(&path)?;
        let name = path.display().to_string();
        let mut found = safetensors::header(&file, files.len())
            .map_err(|why| FormatError::new(name.clone(), why))?;
        for tensor in names {
            let part = found.remove(tensor).ok_or_else(|| {
                FormatError::new(
                    name.clone(),
                    format!("it does not have the tensor `{tensor}` that the index names"),
                )
            })?;
            tensors.insert(tensor.to_owned(), part);
        }
        files.push(DataFile {
            name,
            input: Box::new(Reopened(path)),
        });
    }
    Contents::new(Format::Hf, tensors, files)
}

/// The tensors of each shard, of which none has more than `limit` bytes unless a single tensor has.
pub fn shards<'a>(tensors: &'a BTreeMap<String, Tensor>, limit: u64) -> Vec<Vec<&'a str>> {
    let mut shards: Vec<Vec<&'a str>> = vec![Vec::new()];
    let mut room = limit;
    for (name, tensor) in tensors {
        let bytes = tensor.bytes();
        if bytes > room && shards.last().is_some_and(|shard| !shard.is_empty()) {
            shards.push(Vec::new());
            room = limit;
        }
        room = room.saturating_sub(bytes);
        if let Some(shard) = shards.last_mut() {
            shard.push(name);
        }
    }
    shards
}

/// The name of a shard.
pub fn shard_name(place: usize, count: usize) -> String {
    format!("model-{:05}-of-{count:05}.safetensors", place + 1)
}

/// The index of shards.
pub fn index(tensors: &BTreeMap<String, Tensor>, shards: &[Vec<&str>]) -> Vec<u8> {
    let total: u64 = tensors.values().map(Tensor::bytes).sum();
    let map: BTreeMap<&str, String> = shards
        .iter()
        .enumerate()
        .flat_map(|(place, names)| {
            let shard = shard_name(place, shards.len());
            names.iter().map(move |name| (*name, shard.clone()))
        })
        .collect();
    let index = json!({"metadata": {"total_size": total}, "weight_map": map});
    let mut bytes = serde_json::to_vec_pretty(&index).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
