//! A step that is being restored.

use std::{collections::BTreeMap, time::Duration};

use pyo3::prelude::*;
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

    /// The name of its folder.
    #[getter]
    fn folder(&self) -> String {
        self.0.reference().folder.to_string()
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
}
