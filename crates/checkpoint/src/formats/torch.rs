//! One item of `torch.save`: a zip archive with a pickle and, for a tensor, its storage.

use serde_json::Value as Json;
use trainyard_core::checkpoint::{Dtype, Region};

use super::{
    pickle::{Class, Id, Pickle, Value, Writer},
    ranges,
    tree::node,
    zip::{Archive, Entry, Window, entries},
};

/// The most bytes of the pickle of a tensor, which has a few hundred.
const MAX_TENSOR_PICKLE: u64 = 1 << 20;
/// The most bytes of the pickle of an object.
pub(super) const MAX_OBJECT: u64 = 64 << 20;

/// A tensor as an item has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its first byte, counted from the beginning of the item.
    pub start: u64,
    /// Steps in elements where it is not row-major.
    pub strides: Option<Vec<u64>>,
}

/// The entry with this name below the folder of the archive.
fn find<'a>(found: &'a [Entry], name: &str) -> Option<&'a Entry> {
    found.iter().find(|entry| {
        entry
            .name
            .split_once('/')
            .is_some_and(|(_, rest)| rest == name)
    })
}

fn pickle(window: &Window<'_>, found: &[Entry], limit: u64) -> Result<Pickle, String> {
    let entry = find(found, "data.pkl").ok_or("the archive has no `data.pkl`")?;
    if entry.length > limit {
        return Err(format!(
            "its pickle has {} bytes, and at most {limit} are read",
            entry.length
        ));
    }
    if let Some(order) = find(found, "byteorder") {
        let order = window.bytes(order.start, order.length.min(16))?;
        if order != b"little" {
            return Err("its numbers are not little-endian".into());
        }
    }
    Pickle::read(&window.bytes(entry.start, entry.length)?)
}

/// The tensor of an item; what is wrong is a sentence.
pub fn tensor(window: &Window<'_>) -> Result<Stored, String> {
    let found = entries(window)?;
    let pickle = pickle(window, &found, MAX_TENSOR_PICKLE)?;
    let mut root = pickle.root();
    if let Value::Call(Class::RebuildParameter, arguments) = pickle.get(root) {
        root = *tuple(&pickle, *arguments)?
            .first()
            .ok_or("a parameter has no data")?;
    }
    let (arguments, is_typed) = match pickle.get(root) {
        Value::Call(Class::RebuildTensor, arguments) => (*arguments, false),
        Value::Call(Class::RebuildTensorWithType, arguments) => (*arguments, true),
        _ => return Err("the item is not a tensor".into()),
    };
    let arguments = tuple(&pickle, arguments)?;
    let [storage, offset, shape, strides, ..] = arguments else {
        return Err("the tensor has too few arguments".into());
    };
    let Value::Outside(storage) = pickle.get(*storage) else {
        return Err("the tensor has no storage".into());
    };
    let [_, class, key, ..] = tuple(&pickle, *storage)? else {
        return Err("the storage has too few arguments".into());
    };
    let dtype = if is_typed {
        match arguments.get(6).map(|id| pickle.get(*id)) {
            Some(Value::Class(Class::Dtype(dtype))) => *dtype,
            _ => return Err("the tensor has no type".into()),
        }
    } else {
        match pickle.get(*class) {
            Value::Class(Class::Storage(dtype)) => *dtype,
            _ => return Err("the storage has no type".into()),
        }
    };
    let Value::Text(key) = pickle.get(*key) else {
        return Err("the storage has no name".into());
    };
    let data = find(&found, &format!("data/{key}")).ok_or("the storage is not in the archive")?;
    let shape = counts(&pickle, *shape)?;
    let strides = counts(&pickle, *strides)?;
    let offset = count(&pickle, *offset)?;
    if strides.len() != shape.len() {
        return Err("the tensor has other strides than dimensions".into());
    }
    let region = Region::whole(&shape);
    let size = dtype.bytes();
    let needed = if region.is_empty() {
        0
    } else {
        ranges::span(&region, &region, &strides).1.saturating_add(1)
    };
    let end = offset.saturating_add(needed).saturating_mul(size);
    if region.elements().is_none() || end > data.length {
        return Err(format!(
            "the tensor has shape {shape:?}, and its storage has {} bytes",
            data.length
        ));
    }
    let ordered = ranges::row_major(&shape);
    let is_row_major = region.is_empty()
        || (shape.iter().zip(&strides))
            .zip(&ordered)
            .all(|((size, step), ordered)| *size == 1 || step == ordered);
    Ok(Stored {
        dtype,
        shape,
        start: data.start + offset * size,
        strides: (!is_row_major).then_some(strides),
    })
}

/// The object of an item as small state; what is not plain data is an error.
pub fn object(window: &Window<'_>) -> Result<Json, String> {
    let found = entries(window)?;
    node(&pickle(window, &found, MAX_OBJECT)?)
}

fn tuple(pickle: &Pickle, id: Id) -> Result<&[Id], String> {
    match pickle.get(id) {
        Value::Tuple(parts) | Value::List(parts) => Ok(parts),
        Value::Call(Class::Size, arguments) => match pickle.get(*arguments) {
            Value::Tuple(parts) if parts.len() == 1 => match pickle.get(parts[0]) {
                Value::Tuple(parts) | Value::List(parts) => Ok(parts),
                _ => Err("a shape is not a tuple".into()),
            },
            _ => Err("a shape is not a tuple".into()),
        },
        _ => Err("a tuple is missing".into()),
    }
}

pub(super) fn count(pickle: &Pickle, id: Id) -> Result<u64, String> {
    match pickle.get(id) {
        Value::Int(number) => u64::try_from(*number).map_err(|_| format!("{number} is not a size")),
        _ => Err("a number is missing".into()),
    }
}

/// A shape: at most 32 numbers.
pub(super) fn counts(pickle: &Pickle, id: Id) -> Result<Vec<u64>, String> {
    let parts = tuple(pickle, id)?;
    if parts.len() > trainyard_core::checkpoint::MAX_DIMS {
        return Err("a tensor has more than 32 dimensions".into());
    }
    parts.iter().map(|id| count(pickle, *id)).collect()
}

/// The pickle of a row-major tensor.
fn tensor_pickle(dtype: Dtype, shape: &[u64]) -> Vec<u8> {
    let known = super::pickle_dtypes(dtype);
    let elements = Region::whole(shape).elements().unwrap_or(0);
    let mut out = Writer::new(2);
    let is_typed = known.1.is_empty();
    let rebuild = if is_typed {
        "_rebuild_tensor_v3"
    } else {
        "_rebuild_tensor_v2"
    };
    out.class("torch._utils", rebuild).code(b'(').code(b'(');
    out.text("storage");
    if is_typed {
        out.class("torch.storage", "UntypedStorage");
    } else {
        out.class("torch", known.1);
    }
    let length = if is_typed {
        elements * dtype.bytes()
    } else {
        elements
    };
    out.text("0")
        .text("cpu")
        .count(length)
        .code(b't')
        .code(b'Q');
    out.count(0).counts(shape).counts(&ranges::row_major(shape));
    out.boolean(false);
    out.class("collections", "OrderedDict")
        .code(b')')
        .code(b'R');
    if is_typed {
        out.class("torch", known.0);
    }
    out.code(b't').code(b'R');
    out.finish()
}

/// An archive and its first bytes: everything but the storage.
fn begin(pickle: &[u8]) -> (Archive, Vec<u8>) {
    let mut archive = Archive::default();
    let mut bytes = archive.small("archive/data.pkl", pickle);
    bytes.extend(archive.small("archive/byteorder", b"little"));
    bytes.extend(archive.small("archive/version", b"3\n"));
    (archive, bytes)
}

/// The name of the storage in an archive.
const STORAGE: &str = "archive/data/0";

/// An item of a tensor that is being written.
#[derive(Debug)]
pub struct Item {
    archive: Archive,
    before: u64,
    length: u64,
    /// The bytes in front of those of the tensor.
    pub head: Vec<u8>,
}

impl Item {
    /// An item for a row-major tensor.
    pub fn new(dtype: Dtype, shape: &[u64], length: u64) -> Self {
        let (mut archive, mut head) = begin(&tensor_pickle(dtype, shape));
        let before = archive.before_large(STORAGE, length);
        head.extend(&before);
        Self {
            archive,
            before: before.len() as u64,
            length,
            head,
        }
    }

    /// The bytes behind those of the tensor.
    pub fn tail(mut self, crc: u32) -> Vec<u8> {
        let mut bytes = self
            .archive
            .after_large(STORAGE, self.before, self.length, crc);
        bytes.extend(self.archive.finish());
        bytes
    }
}

/// An item for an object whose pickle is given.
pub fn object_item(pickle: &[u8]) -> Vec<u8> {
    let (archive, mut bytes) = begin(pickle);
    bytes.extend(archive.finish());
    bytes
}
