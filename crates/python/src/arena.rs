//! Memory for tensors, and where each one lies in it.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, AsRawFd as _},
};

use pyo3::prelude::*;
use trainyard_checkpoint_engine::arena::Arena as Memory;
use trainyard_core::checkpoint::{self as core, Axis, DATA_ALIGNMENT, Dtype, Entry, Region, Split};

use crate::error::{plain, refused};

/// The version of layouts that is written.
const VERSION: u64 = core::VERSION;

/// One stored tensor as Python describes it: name, type, shape of the whole, shape of what is stored, and where that begins.
type Described = (String, String, Vec<u64>, Vec<u64>, Vec<u64>);

/// How all ranks divide a tensor evenly: the dimension, how many ranks, and which one this is.
type Divided = (u32, u32, u32);

/// The type of elements by its name in the files.
pub(crate) fn dtype(name: &str) -> PyResult<Dtype> {
    serde_json::from_value(serde_json::Value::from(name))
        .map_err(|_| plain(format!("unknown element type `{name}`")))
}

/// The name of a type in the files.
pub(crate) fn dtype_name(dtype: Dtype) -> String {
    match serde_json::to_value(dtype) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// The mesh that the splits of a layout refer to, and the coordinates of this rank.
fn mesh(splits: &[Option<Divided>]) -> PyResult<(Vec<Axis>, Vec<u32>)> {
    let mut ranks = splits.iter().flatten().map(|(_, count, at)| (*count, *at));
    let Some((size, at)) = ranks.next() else {
        return Ok((Vec::new(), Vec::new()));
    };
    if ranks.any(|other| other != (size, at)) {
        return Err(plain("the splits of a layout are of different ranks"));
    }
    let name = "ranks".to_owned();
    Ok((vec![Axis { name, size }], vec![at]))
}

/// The tensors of one rank, packed in the order given.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) document: core::Layout,
    /// The coordinates of this rank in the mesh of the layout.
    pub(crate) at: Vec<u32>,
    starts: Vec<u64>,
    header: u64,
    size: u64,
}

#[pymethods]
impl Layout {
    #[new]
    #[pyo3(signature = (tensors, splits = Vec::new()))]
    fn new(tensors: Vec<Described>, splits: Vec<Option<Divided>>) -> PyResult<Self> {
        let (mesh, at) = mesh(&splits)?;
        let (mut entries, mut starts, mut end) = (Vec::new(), Vec::new(), 0_u64);
        let mut parts: BTreeMap<String, u32> = BTreeMap::new();
        let mut splits = splits.into_iter();
        for (name, kind, shape, local, offsets) in tensors {
            let split = splits.next().flatten();
            let is_whole = local == shape || split.is_some();
            // Several parts of one tensor: keys of the file must differ.
            let part = parts.entry(name.clone()).or_default();
            let key = (*part > 0).then(|| format!("{name}#{part}"));
            *part += 1;
            let entry = Entry {
                name,
                key,
                dtype: dtype(&kind)?,
                shape,
                within: (!is_whole).then(|| Region {
                    offsets,
                    sizes: local.clone(),
                }),
                local,
                split: split
                    .map(|(dim, _, _)| Split { dim, axis: 0 })
                    .into_iter()
                    .collect(),
                file: 0,
                shared: None,
                start: end,
            };
            starts.push(end);
            let next = entry.bytes().and_then(|bytes| end.checked_add(bytes));
            end = next.ok_or_else(|| plain(format!("tensor `{}` is too large", entry.name)))?;
            entries.push(entry);
        }
        let layout = core::Layout {
            version: VERSION,
            mesh,
            tensors: entries,
            other: serde_json::Map::new(),
        };
        let header = core::header(&layout, &at, 0).map_err(plain)?.len() as u64;
        debug_assert_eq!(header % DATA_ALIGNMENT, 0);
        Ok(Self {
            document: layout,
            at,
            starts,
            header,
            size: header.saturating_add(end),
        })
    }

    /// Where each tensor begins in an arena, in the order given.
    #[getter]
    fn offsets(&self) -> Vec<u64> {
        self.starts
            .iter()
            .map(|start| self.header + start)
            .collect()
    }

    /// The bytes that it needs in an arena.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }
}

/// Memory behind a descriptor that Python maps.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Arena(pub(crate) Memory);

#[pymethods]
impl Arena {
    #[new]
    fn new(py: Python<'_>, size: u64) -> PyResult<Self> {
        let made = py.detach(|| Memory::create(size));
        made.map(Self).map_err(|error| {
            plain(format!(
                "cannot reserve {size} bytes of memory for checkpoints: {error}"
            ))
        })
    }

    /// The descriptor; it stays open as long as the arena lives.
    fn fileno(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }

    /// Its size in bytes.
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// Writes the header of a file with this layout to the begin of the arena.
    fn lay_out(&self, py: Python<'_>, layout: &Layout) -> PyResult<()> {
        py.detach(|| self.0.lay_out(&layout.document, &layout.at, 0))
            .map(|_| ())
            .map_err(|error| refused(&error))
    }
}

/// The rank among `replicas` that writes the part of a tensor that they all have.
#[pyfunction]
#[expect(
    clippy::needless_pass_by_value,
    reason = "arguments come from Python as values"
)]
pub(crate) fn owner(
    name: &str,
    offsets: Vec<u64>,
    sizes: Vec<u64>,
    replicas: Vec<u32>,
) -> Option<u32> {
    core::owner(name, &Region { offsets, sizes }, &replicas)
}

impl Layout {
    /// Where tensors begin in the file, and its size.
    pub(crate) fn image(&self) -> (u64, u64) {
        (self.header, self.size)
    }
}
