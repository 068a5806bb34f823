//! The header of a shard: a safetensors file that any reader opens, with the regions of its tensors in its metadata.

use serde_json::{Map, Value, json};

use super::layout::Layout;

/// Data begins at a multiple of this, so that a file can be written without the page cache.
pub const DATA_ALIGNMENT: u64 = 4_096;
/// The key in `__metadata__` whose text says which region of which tensor each entry is.
pub const BOXES_KEY: &str = "trainyard.boxes";
/// The longest header that readers of safetensors accept.
const MAX_HEADER: usize = 100_000_000;

/// The bytes in front of the tensors in file `file` of the rank at these coordinates: the length of the header, the header, and spaces
/// up to [`DATA_ALIGNMENT`]. Entries must follow each other without holes, as safetensors demands.
pub fn header(layout: &Layout, at: &[u32], file: u32) -> Result<Vec<u8>, String> {
    layout.check_layout()?;
    let inside = at
        .iter()
        .zip(&layout.mesh)
        .all(|(at, axis)| *at < axis.size);
    if at.len() != layout.mesh.len() || !inside {
        return Err(format!(
            "coordinates {at:?} are not in the mesh of the layout"
        ));
    }
    let mut tensors = Map::new();
    let mut boxes = Map::new();
    let mut end = 0;
    let own = |entry: &&super::Entry| entry.shared.is_none() && entry.file == file;
    for entry in layout.tensors.iter().filter(own) {
        let key = entry.key.as_ref().unwrap_or(&entry.name);
        let region = entry.region(&layout.mesh, at);
        if region.sizes != entry.local {
            return Err(format!(
                "tensor `{key}`: the layout stores {:?}, and the coordinates give {region}",
                entry.local
            ));
        }
        if entry.start != end {
            return Err(format!(
                "tensor `{key}` begins at byte {}, and the one before ends at {end}",
                entry.start
            ));
        }
        end += entry.bytes().unwrap_or(0);
        let value = json!({
            "dtype": entry.dtype,
            "shape": entry.local,
            "data_offsets": [entry.start, end],
        });
        let place = json!({
            "name": entry.name,
            "shape": entry.shape,
            "offsets": region.offsets,
        });
        if key == "__metadata__" || tensors.insert(key.clone(), value).is_some() {
            return Err(format!("the key `{key}` is taken"));
        }
        boxes.insert(key.clone(), place);
    }
    let mut object = Map::new();
    let metadata = json!({ BOXES_KEY: Value::Object(boxes).to_string() });
    object.insert("__metadata__".into(), metadata);
    object.extend(tensors);
    let mut json = Value::Object(object).to_string().into_bytes();
    let alignment = usize::try_from(DATA_ALIGNMENT).unwrap_or(4_096);
    json.resize((8 + json.len()).next_multiple_of(alignment) - 8, b' ');
    if json.len() > MAX_HEADER {
        return Err(format!(
            "the header has {} bytes, and readers accept {MAX_HEADER}",
            json.len()
        ));
    }
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json);
    Ok(bytes)
}
