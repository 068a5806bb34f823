//! A root, and the attempt that saves into it.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use pyo3::prelude::*;
use trainyard_checkpoint_engine::{
    begin::{self, Begun},
    clock::{Clock, SystemClock},
    open::{self, OpenError},
    remove, store, token,
};
use trainyard_core::checkpoint::{AttemptId, CommitRef, Policy, StepName, Wanted};

use crate::{
    error::{of_begin, of_store, plain},
    restore::Checkpoint,
};

/// A bounded time that Python gives in seconds.
pub(crate) fn seconds(time: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(time)
        .map_err(|_| plain(format!("a time must be 0 or more seconds, found {time}")))
}

pub(crate) fn step_name(text: &str) -> PyResult<StepName> {
    text.parse().map_err(plain)
}

/// An attempt that has its record.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Attempt(Begun);

#[pymethods]
impl Attempt {
    /// The number of the attempt.
    #[getter]
    fn attempt(&self) -> u32 {
        self.0.id.attempt
    }

    /// The restart inside it.
    #[getter]
    fn restart(&self) -> u32 {
        self.0.id.restart
    }

    /// What it resumes from, as folder and checksum.
    #[getter]
    fn resumes_from(&self) -> Option<(String, String)> {
        let from = self.0.resumes_from.as_ref()?;
        Some((from.folder.to_string(), from.crc32c.to_string()))
    }

    /// Newer steps that were passed over, one sentence each.
    #[getter]
    fn passed(&self) -> Vec<String> {
        self.0.passed.iter().map(ToString::to_string).collect()
    }
}

/// A root of one run.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) store: Arc<store::Store>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[pymethods]
impl Store {
    /// Opens a root for saving; creates what is missing and tries what its volume can do.
    #[new]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments come from Python as values"
    )]
    fn new(py: Python<'_>, root: PathBuf) -> PyResult<Self> {
        py.detach(|| {
            let storage = open::for_saving(&root).map_err(|refused: OpenError| plain(refused))?;
            let clock = SystemClock::start();
            let seed = token::seed().map_err(plain)?;
            let store = store::Store::create(storage, Arc::clone(&clock), None, seed)
                .map_err(|error| of_store(&error))?;
            Ok(Self {
                store: Arc::new(store),
                clock,
            })
        })
    }

    /// The id of the run.
    #[getter]
    fn run(&self) -> &str {
        self.store.run()
    }

    /// Begins an attempt as its rank 0; `unreadable` has folders that could not be read, with the reason.
    #[pyo3(signature = (attempt, holder, world, unreadable))]
    fn begin(
        &self,
        py: Python<'_>,
        attempt: Option<u32>,
        holder: &str,
        world: u32,
        unreadable: BTreeMap<String, String>,
    ) -> PyResult<Attempt> {
        let mut passed_over = BTreeMap::new();
        for (folder, why) in unreadable {
            passed_over.insert(step_name(&folder)?, why);
        }
        let wanted = Wanted {
            world,
            reshard: true,
            ..Wanted::default()
        };
        py.detach(|| begin::begin(&self.store, attempt, holder, &wanted, &passed_over))
            .map(Attempt)
            .map_err(|error| of_begin(&error))
    }

    /// Waits as another rank for the record of an attempt whose holder begins with `launch`.
    fn join(&self, py: Python<'_>, attempt: u32, launch: &str, timeout: f64) -> PyResult<Attempt> {
        let timeout = seconds(timeout)?;
        py.detach(|| begin::join(&self.store, &*self.clock, attempt, launch, timeout))
            .map(Attempt)
            .map_err(|error| of_begin(&error))
    }

    /// Opens a step for reading; waits for one that the volume does not show yet.
    fn open(
        &self,
        py: Python<'_>,
        folder: &str,
        crc32c: &str,
        timeout: f64,
    ) -> PyResult<Checkpoint> {
        let reference = CommitRef {
            folder: step_name(folder)?,
            crc32c: crc32c.parse().map_err(plain)?,
        };
        let timeout = seconds(timeout)?;
        py.detach(|| Checkpoint::open(&self.store, &*self.clock, reference, timeout))
    }

    /// Records that every rank of the attempt has restored the step.
    fn restored(&self, py: Python<'_>, attempt: u32, restart: u32, folder: &str) -> PyResult<()> {
        let folder = step_name(folder)?;
        let id = AttemptId { attempt, restart };
        py.detach(|| self.store.restored(id, &folder))
            .map_err(|error| of_store(&error))
    }

    /// Removes what need not be kept; returns folders and reasons.
    #[pyo3(signature = (attempt, restart, keep, every, dry))]
    fn prune(
        &self,
        py: Python<'_>,
        attempt: u32,
        restart: u32,
        keep: u32,
        every: Option<u64>,
        dry: bool,
    ) -> PyResult<Vec<(String, String)>> {
        let id = AttemptId { attempt, restart };
        let policy = Policy { last: keep, every };
        let pruned = py
            .detach(|| remove::prune(&self.store, Some(id), &policy, dry))
            .map_err(|error| of_store(&error))?;
        let removed = pruned.removed.into_iter();
        Ok(removed
            .map(|(folder, why)| (folder.to_string(), why.to_string()))
            .collect())
    }
}
