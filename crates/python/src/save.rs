//! Saves of one rank of an attempt, in the background.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pyo3::{exceptions::PyTimeoutError, prelude::*};
use trainyard_checkpoint_engine::{
    abandon::{Abandon, abandonable},
    save::{Image, Limits, Save as Running, Saver, Session as Saving, Started, State},
};
use trainyard_core::checkpoint::{AttemptId, Policy};

use crate::{
    arena::{Arena, Layout},
    error::{of_save, of_store, plain},
    store::{Store, seconds},
    tiers,
};

/// One rank of one attempt.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Session(pub(crate) Saving);

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (store, attempt, restart, rank, world, keep, every))]
    fn new(
        store: &Store,
        attempt: u32,
        restart: u32,
        rank: u32,
        world: u32,
        keep: u32,
        every: Option<u64>,
    ) -> PyResult<Self> {
        if world == 0 || rank >= world {
            return Err(plain(format!("rank {rank} of {world} ranks")));
        }
        // The local tier is passed on; what stays is decided on the shared one.
        let (place, keep) = match &store.tiers {
            Some(tiers) => (&tiers.local, tiers::LOCAL_KEEP),
            None => (&store.store, Policy { last: keep, every }),
        };
        Ok(Self(Saving {
            store: Arc::clone(place),
            clock: Arc::clone(&store.clock),
            id: AttemptId { attempt, restart },
            rank,
            world,
            limits: Limits::default(),
            keep,
        }))
    }

    /// Fails if a later attempt has begun.
    fn check_fence(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.store.check_fence(self.0.id))
            .map_err(|error| of_store(&error))
    }

    /// Begins to write what is in the arena and returns at once. The arena must not change until the save has ended.
    #[expect(clippy::too_many_arguments, reason = "Python names each of them")]
    fn save(
        &self,
        py: Python<'_>,
        step: u64,
        arena: &Arena,
        layout: &Layout,
        objects: &str,
        snapshot: f64,
        deadline: f64,
    ) -> PyResult<Save> {
        let deadline = seconds(deadline)?;
        py.detach(|| {
            let (data, size) = layout.image();
            let source = Arc::new(arena.0.image(size).map_err(plain)?);
            let state = State {
                images: vec![Image { source, data }],
                layout: Some(layout.document.clone()),
                objects: Some(serde_json::from_str(objects).map_err(plain)?),
                snapshot,
                ..State::default()
            };
            let (clock, abandon) = abandonable(Arc::clone(&self.0.clock));
            let session = Saving {
                clock,
                limits: Limits {
                    deadline,
                    ..self.0.limits
                },
                ..self.0.clone()
            };
            // One for each save: Python knows which one is in flight, and each can be abandoned by itself.
            let saver = Saver::new(session);
            match saver.save(step, state) {
                Started::Save(running) => Ok(Save {
                    running,
                    saver,
                    abandon,
                }),
                Started::Skipped { busy } => Err(plain(format!("step {busy} is being saved"))),
            }
        })
    }
}

/// A save under way.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Save {
    running: Running,
    saver: Saver,
    abandon: Abandon,
}

#[pymethods]
impl Save {
    /// The step.
    #[getter]
    fn step(&self) -> u64 {
        self.running.step()
    }

    /// Whether it has ended, committed or not.
    fn done(&self) -> bool {
        self.running.committed(Duration::ZERO).is_some()
    }

    /// Waits until it is committed, durably. Raises `TimeoutError` if it takes longer, and its own error if it failed.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<BTreeMap<&'static str, f64>> {
        let timeout = seconds(timeout)?;
        match py.detach(|| self.running.committed(timeout)) {
            None => {
                let step = self.running.step();
                let text = format!("step {step} is not committed after {timeout:?}");
                Err(PyTimeoutError::new_err(text))
            }
            Some(Err(error)) => Err(of_save(&error)),
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            Some(Ok(saved)) => Ok(BTreeMap::from([
                ("bytes", saved.bytes as f64),
                ("write_seconds", saved.write),
                ("commit_seconds", saved.wait),
                ("removed", saved.removed.len() as f64),
            ])),
        }
    }

    /// Waits until nothing of it is under way, the removal of older steps included. Returns whether that is so.
    fn settle(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = seconds(timeout)?;
        Ok(py.detach(|| self.saver.settle(timeout)))
    }

    /// Lets the deadline pass now: another rank has failed, so the step will never be complete.
    fn abandon(&self) {
        self.abandon.now();
    }
}
