//! Copies from a local tier to the root.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use pyo3::prelude::*;
use trainyard_checkpoint_engine::drain::{self, DrainError, DrainLimits, Drainer, Ended, Pace};
use trainyard_core::checkpoint::Policy;

use crate::{
    error::{Damaged, of_store, plain},
    save::Session,
    store::{Store, seconds, step_name},
};

fn of_drain(error: &DrainError) -> PyErr {
    match error {
        DrainError::Store(error) => of_store(error),
        // The step cannot be had: the one before is restored.
        DrainError::Damaged { .. } | DrainError::GivenUp { .. } => {
            Damaged::new_err(error.to_string())
        }
        other => plain(other),
    }
}

/// Copies steps of the local tier to the root.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Drain {
    drain: drain::Drain,
    running: OnceLock<Drainer>,
}

#[pymethods]
impl Drain {
    /// `seat` of `seats` processes of this node; `bandwidth` in bytes per second.
    #[new]
    #[pyo3(signature = (store, session, seat, seats, keep, every, bandwidth, deadline))]
    #[expect(clippy::too_many_arguments, reason = "Python names each of them")]
    fn new(
        store: &Store,
        session: &Session,
        seat: u32,
        seats: u32,
        keep: u32,
        every: Option<u64>,
        bandwidth: Option<u64>,
        deadline: f64,
    ) -> PyResult<Self> {
        let session = session.0.session();
        Ok(Self {
            drain: drain::Drain {
                tiers: store.tiers()?.clone(),
                clock: Arc::clone(&store.clock),
                id: session.id,
                rank: session.rank,
                world: session.world,
                seat: (seat, seats),
                keep: Policy { last: keep, every },
                pace: Arc::new(Pace::new(bandwidth)),
                limits: DrainLimits {
                    deadline: seconds(deadline)?,
                    ..DrainLimits::default()
                },
            },
            running: OnceLock::new(),
        })
    }

    /// Copies in the background from now on.
    fn start(&self) {
        self.running
            .get_or_init(|| Drainer::start(self.drain.clone()));
    }

    /// Begins no copy until `close`, or begins them again.
    fn hold(&self, is_held: bool) {
        if let Some(running) = self.running.get() {
            running.hold(is_held);
        }
    }

    /// Copies the pieces of this process of a step to the root, and waits for no other rank.
    fn offer(&self, py: Python<'_>, folder: &str, timeout: f64) -> PyResult<()> {
        let (folder, timeout) = (step_name(folder)?, seconds(timeout)?);
        py.detach(|| self.drain.offer(&folder, timeout))
            .map_err(|error| of_drain(&error))
    }

    /// Brings a step to the root now, because ranks of other nodes restore from it.
    fn bring(&self, py: Python<'_>, folder: &str, timeout: f64) -> PyResult<()> {
        let (folder, timeout) = (step_name(folder)?, seconds(timeout)?);
        py.detach(|| self.drain.bring(&folder, timeout))
            .map(|_| ())
            .map_err(|error| of_drain(&error))
    }

    /// Ends it: copies the newest step if it can be ready in time. Returns why the root does not have that step, where it does not.
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let timeout = seconds(timeout)?;
        Ok(py.detach(
            || match self.running.get().map(|running| running.close(timeout)) {
                Some(Ended::Behind(why)) => Some(why),
                Some(Ended::Unfinished) => Some("the copy was not finished in time".to_owned()),
                Some(Ended::Finished) | None => None,
            },
        ))
    }

    /// Steps that could not be copied, with the reason.
    fn failures(&self) -> BTreeMap<String, String> {
        let failures = self.drain.failures();
        failures
            .into_iter()
            .map(|(folder, why)| (folder.to_string(), why))
            .collect()
    }
}
