//! A folder of `torch.distributed.checkpoint`: `.metadata` (a pickle) and files of items, each a `torch.save` archive.

mod metadata;
mod write;

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value as Json, json};
use trainyard_core::checkpoint::Region;

pub use self::{
    metadata::{Item, Metadata, Tensor as TensorSeen},
    write::{MetadataWriter, Written},
};
use super::{
    Contents, DataFile, Format, FormatError, Part, PlainFile, Reopened, Tensor, base64,
    open::{is_plain, read_file},
    torch,
    tree::{Key, OPAQUE, tree},
    zip::Window,
};
use crate::storage::Input as _;

/// The name of the metadata.
pub const METADATA: &str = ".metadata";
/// The most bytes of the metadata; about 1.8 million parts of tensors.
const MAX_METADATA: u64 = 256 << 20;
/// The most files.
const MAX_FILES: usize = 1 << 17;

/// Opens a folder.
pub fn open(folder: &Path) -> Result<Contents, FormatError> {
    let path = folder.join(METADATA);
    let bad = |why: String| FormatError::new(path.display().to_string(), why);
    let metadata = Metadata::read(&read_file(&path, MAX_METADATA)?).map_err(bad)?;
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut files = Vec::new();
    for item in &metadata.items {
        if places.contains_key(item.file.as_str()) {
            continue;
        }
        if !is_plain(&item.file) || places.len() == MAX_FILES {
            let why = format!(
                "`{}` is not a file of the folder, or one too many",
                item.file
            );
            return Err(bad(why));
        }
        places.insert(&item.file, files.len());
        let path = folder.join(&item.file);
        files.push(DataFile {
            name: path.display().to_string(),
            input: Box::new(Reopened(path)),
        });
    }
    let mut tensors: BTreeMap<String, Tensor> = metadata
        .tensors
        .iter()
        .map(|(name, tensor)| {
            let tensor = Tensor {
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
                parts: Vec::new(),
            };
            (name.clone(), tensor)
        })
        .collect();
    let mut leaves = Vec::new();
    let path_of = |name: &str| {
        let known = metadata.paths.get(name).cloned();
        known.unwrap_or_else(|| vec![Key::Name(name.to_owned())])
    };
    let mut opened: Option<(usize, PlainFile, u64)> = None;
    // In the order of files, so that each is opened once.
    let mut items: Vec<&Item> = metadata.items.iter().collect();
    items.sort_by_key(|item| (places.get(item.file.as_str()), item.start));
    for item in items {
        let place = places.get(item.file.as_str()).copied().unwrap_or(0);
        if opened.as_ref().is_none_or(|(known, _, _)| *known != place) {
            let path = folder.join(&item.file);
            let file = PlainFile::open(&path)?;
            let size = file
                .size()
                .map_err(|error| FormatError::io(&path, &error))?;
            opened = Some((place, file, size));
        }
        let Some((_, file, size)) = &opened else {
            continue;
        };
        let wrong = |why: String| {
            let short: String = item.name.chars().take(80).collect();
            FormatError::new(files[place].name.clone(), format!("item `{short}`: {why}"))
        };
        let end = item.start.checked_add(item.length);
        if end.is_none_or(|end| end > *size) {
            return Err(wrong("the file is truncated".into()));
        }
        let window = Window {
            input: file,
            start: item.start,
            length: item.length,
        };
        match tensors.get_mut(&item.name) {
            Some(tensor) => {
                let known = &metadata.tensors[&item.name];
                let part = part(item, known, place, &window).map_err(wrong)?;
                tensor.parts.push(part);
            }
            None => leaves.push((path_of(&item.name), object(&window).map_err(wrong)?)),
        }
    }
    for name in tensors.keys() {
        leaves.push((path_of(name), json!({"$tensor": name})));
    }
    let mut contents = Contents::new(Format::Dcp, tensors, files)?;
    contents.state = Some(tree(leaves));
    Ok(contents)
}

/// Where the part of a tensor is that an item has.
fn part(item: &Item, known: &TensorSeen, file: usize, window: &Window<'_>) -> Result<Part, String> {
    let stored = torch::tensor(window)?;
    let offsets = item
        .offsets
        .clone()
        .unwrap_or_else(|| vec![0; known.shape.len()]);
    let chunk = known.chunks.iter().find(|chunk| chunk.offsets == offsets);
    let sizes = chunk.map_or(&known.shape, |chunk| &chunk.sizes);
    if stored.dtype != known.dtype || stored.shape != *sizes {
        return Err(format!(
            "it has type {:?} and shape {:?}, and the metadata says {:?} and {sizes:?}",
            stored.dtype, stored.shape, known.dtype
        ));
    }
    Ok(Part {
        file,
        start: window.start + stored.start,
        region: Region {
            offsets,
            sizes: stored.shape,
        },
        strides: stored.strides,
    })
}

/// The object of an item; one that is not plain data is kept as it is.
fn object(window: &Window<'_>) -> Result<Json, String> {
    if window.length > torch::MAX_OBJECT {
        return Err(format!(
            "it has {} bytes, and at most {} are read of an object",
            window.length,
            torch::MAX_OBJECT
        ));
    }
    if let Ok(node) = torch::object(window) {
        return Ok(node);
    }
    let bytes = window.bytes(0, window.length)?;
    Ok(json!({OPAQUE: base64::encode(&bytes)}))
}
