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
    error::{of_save, plain},
    store::{Store, seconds},
};

/// One rank of one attempt.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Session(pub(crate) Saver);

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
        let (place, keep) = match &store.tiers {
            Some(tiers) => (&tiers.local, Policy::LOCAL),
            None => (&store.shared, Policy { last: keep, every }),
        };
        Ok(Self(Saver::new(Saving {
            store: Arc::clone(place),
            clock: Arc::clone(&store.clock),
            id: AttemptId { attempt, restart },
            rank,
            world,
            limits: Limits::default(),
            keep,
        })))
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
            let state = state(arena, layout, objects, snapshot)?;
            let shared = self.0.session();
            let (clock, abandon) = abandonable(Arc::clone(&shared.clock));
            // A clock for each save, so that each can be abandoned by itself.
            let session = Saving {
                clock,
                ..self.within(deadline)
            };
            match self.0.save_by(Arc::new(session), step, state) {
                Started::Save(running) => Ok(Save { running, abandon }),
                Started::Skipped { busy } => Err(plain(format!("step {busy} is being saved"))),
            }
        })
    }

    /// Waits until nothing is under way, the removal of older steps included. Returns whether that is so.
    fn settle(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let timeout = seconds(timeout)?;
        let settled = interruptible(py, timeout, |slice| self.0.settle(slice).then_some(()));
        Ok(settled?.is_some())
    }

    /// How many folders retention has removed after commits of this rank, and why it failed the last time.
    fn removed(&self) -> (u64, Option<String>) {
        let counts = self.0.counts();
        (counts.removed, counts.last_not_removed)
    }

    /// Writes what is in the arena and returns its bytes when they are durable; `commit` makes the step visible.
    #[expect(clippy::too_many_arguments, reason = "Python names each of them")]
    fn write(
        &self,
        py: Python<'_>,
        step: u64,
        arena: &Arena,
        layout: &Layout,
        objects: &str,
        snapshot: f64,
        deadline: f64,
    ) -> PyResult<u64> {
        let session = self.within(seconds(deadline)?);
        py.detach(|| {
            let state = state(arena, layout, objects, snapshot)?;
            session
                .write_part(step, &state)
                .map_err(|error| of_save(&error))
        })
    }

    /// Commits a step that every rank has written. Returns its folder and checksum, and why older steps were not removed.
    fn commit(
        &self,
        py: Python<'_>,
        step: u64,
        deadline: f64,
    ) -> PyResult<(String, String, Option<String>)> {
        let session = self.within(seconds(deadline)?);
        let saved = py
            .detach(|| session.commit_parts(step))
            .map_err(|error| of_save(&error))?;
        let commit = saved.commit;
        let (folder, crc32c) = (commit.folder.to_string(), commit.crc32c.to_string());
        Ok((folder, crc32c, saved.not_removed))
    }
}

impl Session {
    fn within(&self, deadline: Duration) -> Saving {
        Saving {
            limits: Limits {
                deadline,
                ..self.0.session().limits
            },
            ..self.0.session().clone()
        }
    }
}

/// What a rank hands over: the file image at the start of an arena, and its small state.
fn state(arena: &Arena, layout: &Layout, objects: &str, snapshot: f64) -> PyResult<State> {
    let (data, size) = layout.image();
    let source = Arc::new(arena.0.image(size).map_err(plain)?);
    Ok(State {
        images: vec![Image { source, data }],
        layout: Some(layout.document.clone()),
        at: layout.at.clone(),
        objects: Some(serde_json::from_str(objects).map_err(plain)?),
        snapshot,
        ..State::default()
    })
}

/// How long a wait may keep Python from its signals.
const SLICE: Duration = Duration::from_millis(100);

/// Waits in slices and runs the handlers of signals between them, so that Ctrl-C ends a wait.
fn interruptible<T: Send>(
    py: Python<'_>,
    timeout: Duration,
    wait: impl Fn(Duration) -> Option<T> + Sync,
) -> PyResult<Option<T>> {
    let mut left = timeout;
    loop {
        let slice = left.min(SLICE);
        if let Some(found) = py.detach(|| wait(slice)) {
            return Ok(Some(found));
        }
        left -= slice;
        if left.is_zero() {
            return Ok(None);
        }
        py.check_signals()?;
    }
}

/// A save under way.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Save {
    running: Running,
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
        match interruptible(py, timeout, |slice| self.running.committed(slice))? {
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
            ])),
        }
    }

    /// Lets the deadline pass now: another rank has failed, so the step will never be complete.
    fn abandon(&self) {
        self.abandon.now();
    }
}
