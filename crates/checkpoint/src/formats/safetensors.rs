//! One safetensors file: 8 bytes with the length of the header, the header (JSON), the tensors.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value, json};
use trainyard_core::checkpoint::{DATA_ALIGNMENT, Dtype, MAX_DIMS, MAX_NAME, MAX_TENSORS, Region};

use super::{Contents, DataFile, Format, FormatError, Part, PlainFile, Tensor, bytes_of, io_words};
use crate::storage::Input;

/// The longest header that readers of safetensors accept.
const MAX_HEADER: u64 = 100_000_000;

/// Opens one file.
pub fn open(path: &Path) -> Result<Contents, FormatError> {
    let file = PlainFile::open(path)?;
    let name = path.display().to_string();
    let tensors = header(&file, 0).map_err(|why| FormatError::new(name.clone(), why))?;
    let files = vec![DataFile {
        name,
        input: Box::new(file),
    }];
    Contents::new(Format::Safetensors, tensors, files)
}

/// The tensors of a file, whose place in the list of files is given; what is wrong is a sentence.
pub fn header(input: &dyn Input, file: usize) -> Result<BTreeMap<String, Tensor>, String> {
    let size = input.size().map_err(|error| io_words(&error))?;
    let mut length = [0; 8];
    input
        .read_at(0, &mut length)
        .map_err(|_| "it is not a safetensors file: it has fewer than 8 bytes".to_owned())?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length.saturating_add(8) > size {
        return Err(format!(
            "it is not a safetensors file, or it is truncated: its header should have {length} bytes, and the file has {size}"
        ));
    }
    let mut text = vec![0; bytes_of(length)];
    input
        .read_at(8, &mut text)
        .map_err(|error| io_words(&error))?;
    parse(&text, 8 + length, size, file)
}

/// The tensors of a header; `data` is where the tensors begin in a file of `size` bytes.
pub fn parse(
    text: &[u8],
    data: u64,
    size: u64,
    file: usize,
) -> Result<BTreeMap<String, Tensor>, String> {
    let header: Map<String, Value> =
        serde_json::from_slice(text).map_err(|error| format!("the header is not JSON: {error}"))?;
    if header.len() > MAX_TENSORS {
        return Err(format!("it has more than {MAX_TENSORS} tensors"));
    }
    let mut tensors = BTreeMap::new();
    for (name, value) in header {
        if name == "__metadata__" {
            continue;
        }
        let short: String = name.chars().take(80).collect();
        let bad = |why: &str| format!("tensor `{short}`: {why}");
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(bad("its name is empty or too long"));
        }
        let dtype: Dtype = value
            .get("dtype")
            .and_then(|dtype| serde_json::from_value(dtype.clone()).ok())
            .ok_or_else(|| bad(&format!("unknown type {}", value["dtype"])))?;
        let numbers = |key: &str| -> Option<Vec<u64>> {
            let list = value.get(key)?.as_array()?;
            list.iter().map(Value::as_u64).collect()
        };
        let shape = numbers("shape").filter(|shape| shape.len() <= MAX_DIMS);
        let shape = shape.ok_or_else(|| bad("it has no shape"))?;
        let offsets = numbers("data_offsets").unwrap_or_default();
        let [start, end] = offsets[..] else {
            return Err(bad("it has no `data_offsets`"));
        };
        let bytes = Region::whole(&shape)
            .elements()
            .and_then(|elements| elements.checked_mul(dtype.bytes()));
        let in_file = data.checked_add(end).is_some_and(|end| end <= size);
        if end.checked_sub(start) != bytes || !in_file {
            return Err(bad(&format!(
                "its bytes {start} to {end} do not fit its shape {shape:?} or the file, which may be truncated"
            )));
        }
        let part = Part {
            file,
            start: data + start,
            region: Region::whole(&shape),
            strides: None,
        };
        let tensor = Tensor {
            dtype,
            shape,
            parts: vec![part],
        };
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// The order in which tensors are written: larger elements first, so that each begins at a multiple of its element size.
pub fn order<'a>(tensors: impl IntoIterator<Item = (&'a String, &'a Tensor)>) -> Vec<&'a str> {
    let mut names: Vec<(u64, &str)> = tensors
        .into_iter()
        .map(|(name, tensor)| (u64::MAX - tensor.dtype.bytes(), name.as_str()))
        .collect();
    names.sort_unstable();
    names.into_iter().map(|(_, name)| name).collect()
}

/// The bytes in front of tensors that follow each other in this order.
pub fn write_header<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
) -> Result<Vec<u8>, String> {
    let mut header = Map::new();
    // Libraries of Hugging Face read a file only if it says for which framework it is.
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for (name, tensor) in tensors {
        let start = end;
        end += tensor.bytes();
        let value = json!({
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [start, end],
        });
        if header.insert(name.to_owned(), value).is_some() {
            return Err(format!(
                "no tensor can be called `{name}` in a safetensors file"
            ));
        }
    }
    let mut json = Value::Object(header).to_string().into_bytes();
    let alignment = bytes_of(DATA_ALIGNMENT);
    json.resize((8 + json.len()).next_multiple_of(alignment) - 8, b' ');
    if json.len() as u64 > MAX_HEADER {
        return Err(format!(
            "the header has {} bytes, and readers accept {MAX_HEADER}",
            json.len()
        ));
    }
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json);
    Ok(bytes)
}
