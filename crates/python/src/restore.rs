//! A step that is being restored.

use std::{collections::BTreeMap, io, time::Duration};

use pyo3::{
    buffer::PyBuffer,
    prelude::*,
    types::{PyMemoryView, PySlice},
};
use trainyard_checkpoint_engine::{
    clock::Clock,
    load::TierStore,
    regions::{Opened, RegionsError},
};
use trainyard_core::checkpoint::{CommitRef, Region, WantedRegion};

use crate::{
    arena::{Arena, dtype_name},
    error::{of_regions, plain},
};

/// A region that Python wants: tensor, where it begins, its sizes, and where it goes in the arena.
type Wish = (String, Vec<u64>, Vec<u64>, u64);

/// The same with the memory that it goes to.
type WishInto = (String, Vec<u64>, Vec<u64>, Py<PyMemoryView>);

/// A committed step.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Checkpoint(Opened);

impl Checkpoint {
    pub(crate) fn open(
        tiers: Vec<TierStore>,
        clock: &dyn Clock,
        reference: CommitRef,
        timeout: Duration,
    ) -> PyResult<Self> {
        Opened::open_tiers(tiers, clock, reference, timeout)
            .map(Self)
            .map_err(|error| of_regions(&error))
    }
}

#[pymethods]
impl Checkpoint {
    /// The step.
    #[getter]
    fn step(&self) -> u64 {
        self.0.commit().step
    }

    /// How many ranks saved it.
    #[getter]
    fn world(&self) -> u32 {
        self.0.commit().world
    }

    /// What was damaged on one tier and read from the next, since the last call.
    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    /// Its tensors: type and shape by name.
    fn tensors(&self) -> BTreeMap<String, (String, Vec<u64>)> {
        let tensors = self.0.index().tensors();
        tensors
            .map(|(name, tensor)| {
                let value = (dtype_name(tensor.dtype), tensor.shape.clone());
                (name.to_owned(), value)
            })
            .collect()
    }

    /// The small state of a rank as JSON.
    fn objects(&self, py: Python<'_>, rank: u32) -> PyResult<Option<String>> {
        let found = py
            .detach(|| self.0.objects(rank))
            .map_err(|error| of_regions(&error))?;
        found
            .map(|objects| serde_json::to_string(&objects.values).map_err(plain))
            .transpose()
    }

    /// Reads regions into an arena and verifies every chunk that is read. Returns the bytes that were read from files.
    fn read(
        &self,
        py: Python<'_>,
        arena: &Arena,
        wishes: Vec<Wish>,
        prefer: Option<u32>,
    ) -> PyResult<u64> {
        let mut wanted = Vec::with_capacity(wishes.len());
        let mut places = Vec::with_capacity(wishes.len());
        for (tensor, offsets, sizes, place) in wishes {
            let region = Region { offsets, sizes };
            wanted.push(WantedRegion { tensor, region });
            places.push(place);
        }
        let put = |number: usize, offset: u64, bytes: &[u8]| {
            let place = places.get(number).copied().unwrap_or(u64::MAX);
            arena.0.write_at(place.saturating_add(offset), bytes)
        };
        let read: Result<u64, RegionsError> = py.detach(|| self.0.read(&wanted, prefer, &put));
        read.map_err(|error| of_regions(&error))
    }

    /// Reads regions straight into memory of Python, each byte after its chunk was verified. Returns the bytes that were read.
    ///
    /// Threads take the GIL for the copy alone. The caller waits for them, so the interpreter cannot end meanwhile.
    fn read_into(
        &self,
        py: Python<'_>,
        wishes: Vec<WishInto>,
        prefer: Option<u32>,
    ) -> PyResult<u64> {
        let mut wanted = Vec::with_capacity(wishes.len());
        let mut targets = Vec::with_capacity(wishes.len());
        for (tensor, offsets, sizes, target) in wishes {
            let region = Region { offsets, sizes };
            wanted.push(WantedRegion { tensor, region });
            targets.push(target);
        }
        let put = |number: usize, offset: u64, bytes: &[u8]| {
            let copied = Python::try_attach(|py| {
                let target = targets.get(number)?.bind(py);
                let start = isize::try_from(offset).ok()?;
                let end = start.checked_add(isize::try_from(bytes.len()).ok()?)?;
                let part = target.get_item(PySlice::new(py, start, end, 1)).ok()?;
                // Fails where the memory is read-only or shorter.
                let part = PyBuffer::<u8>::get(&part).ok()?;
                part.copy_from_slice(py, bytes).ok()
            });
            copied.flatten().ok_or_else(|| {
                let why = "the memory of the tensor is read-only or has another size";
                io::Error::new(io::ErrorKind::InvalidInput, why)
            })
        };
        let read: Result<u64, RegionsError> = py.detach(|| self.0.read(&wanted, prefer, &put));
        read.map_err(|error| of_regions(&error))
    }
}
