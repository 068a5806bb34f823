//! A root, and the attempt that saves into it.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use pyo3::prelude::*;
use trainyard_checkpoint_engine::{
    Files,
    begin::{self, Begun},
    clock::{Clock, SystemClock},
    files::probe::Refused,
    store, token,
};
use trainyard_core::checkpoint::{AttemptId, Claimant, CommitRef, Policy, StepName, Wanted};

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
            let files = Files::open(&root).map_err(|refused: Refused| plain(refused))?;
            let clock = SystemClock::start();
            let seed = token::seed().map_err(plain)?;
            let store = store::Store::create(Arc::new(files), Arc::clone(&clock), None, seed)
                .map_err(|error| of_store(&error))?;
            Ok(Self {
                store: Arc::new(store),
                clock,
            })
        })
    }

    /// Begins an attempt as its rank 0; `unreadable` has folders that could not be read, with the reason. On a full disk, what `keep`
    /// and `every` allow is removed.
    #[pyo3(signature = (attempt, job, holder, world, unreadable, keep, every))]
    #[expect(clippy::too_many_arguments, reason = "Python names each of them")]
    fn begin(
        &self,
        py: Python<'_>,
        attempt: Option<u32>,
        job: Option<String>,
        holder: &str,
        world: u32,
        unreadable: BTreeMap<String, String>,
        keep: u32,
        every: Option<u64>,
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
        let keep = Policy { last: keep, every };
        let claimant = Claimant {
            attempt,
            job,
            holder: holder.to_owned(),
        };
        py.detach(|| begin::begin(&self.store, &claimant, &wanted, &passed_over, &keep))
            .map(Attempt)
            .map_err(|error| of_begin(&error))
    }

    /// Waits as another rank for the record of an attempt whose holder begins with `launch`.
    fn join(
        &self,
        py: Python<'_>,
        attempt: u32,
        job: Option<String>,
        launch: &str,
        timeout: f64,
    ) -> PyResult<Attempt> {
        let timeout = seconds(timeout)?;
        let claimant = Claimant {
            attempt: Some(attempt),
            job,
            holder: launch.to_owned(),
        };
        py.detach(|| begin::join(&self.store, &*self.clock, &claimant, timeout))
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
}
