//! A root, and the attempt that saves into it.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pyo3::prelude::*;
use trainyard_checkpoint_engine::{
    begin::{self, Begun},
    clock::{Clock, SystemClock},
    load::TierStore,
    open::{self, OpenError},
    store,
    tiers::{TierBegun, TierOptions, Tiers},
    token,
};
use trainyard_core::checkpoint::{
    AttemptId, Claimant, CommitRef, DrainPolicy, Policy, StepName, Tier, Wanted,
};

use crate::{
    error::{NotFound, of_begin, of_store, plain},
    restore::Checkpoint,
    tiers::{self, Holds},
};

/// A bounded time that Python gives in seconds.
pub(crate) fn seconds(time: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(time)
        .map_err(|_| plain(format!("a time must be 0 or more seconds, found {time}")))
}

pub(crate) fn step_name(text: &str) -> PyResult<StepName> {
    text.parse().map_err(plain)
}

/// Why a root could not be opened for reading. Only one that is not there is not found: a program that starts a run on `NotFound` must
/// not do so because a volume did not answer.
fn of_open(root: &Path, error: OpenError) -> PyErr {
    match error {
        OpenError::Existing(source) => {
            let text = format!("`{}` cannot be opened: {source}", root.display());
            if source.kind() == io::ErrorKind::NotFound {
                NotFound::new_err(text)
            } else {
                plain(text)
            }
        }
        other => plain(other),
    }
}

/// Why a root could not be opened. What of it is not ours to repair is named with a way out.
fn of_root(root: &Path, error: &store::StoreError) -> PyErr {
    let root = root.display();
    match error {
        store::StoreError::Manifest { .. } => plain(format!(
            "`{root}` cannot be opened: {error}; nothing was changed: put `trainyard.json` back from a copy, or give another root"
        )),
        store::StoreError::NotAStore => NotFound::new_err(format!(
            "`{root}` cannot be opened: {error}; give the root that the job saves into"
        )),
        _ => plain(format!("`{root}` cannot be opened: {error}")),
    }
}

/// An attempt that has its record.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Attempt(Begun, Option<String>, Option<String>);

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

    /// Which tier it restores from and what the others have; None without a local tier and for a start at step 0.
    #[getter]
    fn source(&self) -> Option<&str> {
        self.1.as_deref()
    }

    /// Why the local tier could not be looked at.
    #[getter]
    fn failure(&self) -> Option<&str> {
        self.2.as_deref()
    }
}

impl From<Begun> for Attempt {
    fn from(begun: Begun) -> Self {
        Self(begun, None, None)
    }
}

impl From<TierBegun> for Attempt {
    fn from(found: TierBegun) -> Self {
        Self(found.begun, found.from, found.failure)
    }
}

/// A root of one run.
#[pyclass(frozen, module = "trainyard_checkpoint._engine")]
#[derive(Debug)]
pub(crate) struct Store {
    /// The root itself.
    pub(crate) shared: Arc<store::Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tiers: Option<Tiers>,
}

impl Store {
    /// Where steps are read from, the nearest first.
    fn sources(&self) -> Vec<TierStore> {
        match &self.tiers {
            Some(tiers) => tiers.stores(),
            None => vec![TierStore {
                tier: Tier::Shared,
                place: "store".to_owned(),
                store: Arc::clone(&self.shared),
            }],
        }
    }

    pub(crate) fn tiers(&self) -> PyResult<&Tiers> {
        let tiers = self.tiers.as_ref();
        tiers.ok_or_else(|| plain("the store has no local tier"))
    }
}

#[pymethods]
impl Store {
    /// Opens a root for saving; creates what is missing and tries what its volume can do. With `local`, saves commit in that folder of the
    /// node first.
    #[new]
    #[pyo3(signature = (root, local=None, several_nodes=false, drain_every=None))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments come from Python as values"
    )]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        local: Option<PathBuf>,
        several_nodes: bool,
        drain_every: Option<u64>,
    ) -> PyResult<Self> {
        py.detach(|| {
            let storage = open::for_saving(&root).map_err(|refused: OpenError| plain(refused))?;
            let clock = SystemClock::start();
            let seed = token::seed().map_err(plain)?;
            let store = store::Store::create(storage, Arc::clone(&clock), None, seed)
                .map_err(|error| of_root(&root, &error))?;
            let store = Arc::new(store);
            let options = TierOptions {
                drain: DrainPolicy { every: drain_every },
                several_nodes,
            };
            let tiers = match local {
                Some(folder) => Some(tiers::open(&store, &clock, &folder, options)?),
                None => None,
            };
            Ok(Self {
                shared: store,
                clock,
                tiers,
            })
        })
    }

    /// Opens a root that exists for reading; nothing is created or tried.
    #[staticmethod]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments come from Python as values"
    )]
    fn existing(py: Python<'_>, root: PathBuf) -> PyResult<Self> {
        py.detach(|| {
            let storage = open::existing(&root).map_err(|error| of_open(&root, error))?;
            let clock = SystemClock::start();
            let seed = token::seed().map_err(plain)?;
            let store = store::Store::existing(storage, Arc::clone(&clock), seed)
                .map_err(|error| of_root(&root, &error))?;
            Ok(Self {
                shared: Arc::new(store),
                tiers: None,
                clock,
            })
        })
    }

    /// Begins an attempt as its rank 0; `unreadable` has folders that could not be read, with the reason. On a full disk, what `keep`
    /// and `every` allow is removed. `nodes` has what the local tiers of other nodes hold, by a name of the node.
    #[pyo3(signature = (attempt, job, holder, world, unreadable, keep, every, nodes=None))]
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
        nodes: Option<BTreeMap<String, Holds>>,
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
        let nodes = tiers::of_nodes(nodes.unwrap_or_default())?;
        py.detach(|| match &self.tiers {
            Some(tiers) => tiers
                .begin(&claimant, &wanted, &passed_over, &keep, &nodes)
                .map(Attempt::from),
            None => begin::begin(&self.shared, &claimant, &wanted, &passed_over, &keep)
                .map(Attempt::from),
        })
        .map_err(|error| of_begin(&error))
    }

    /// Folder and checksum of the newest step that can be restored, or of the one with this number. Nobody is fenced by it.
    #[pyo3(signature = (step, world))]
    fn find(
        &self,
        py: Python<'_>,
        step: Option<u64>,
        world: u32,
    ) -> PyResult<Option<(String, String)>> {
        let wanted = Wanted {
            world,
            reshard: true,
            ..Wanted::default()
        };
        let found = py
            .detach(|| begin::find(&self.shared, step, &wanted))
            .map_err(|error| of_begin(&error))?;
        Ok(found.map(|one| (one.folder.to_string(), one.crc32c.to_string())))
    }

    /// The steps after one that was loaded, with the reason, as `begin` takes them.
    fn later_than(&self, py: Python<'_>, folder: &str) -> PyResult<BTreeMap<String, String>> {
        let loaded = step_name(folder)?;
        let found = py
            .detach(|| begin::later_than(&self.shared, &loaded))
            .map_err(|error| of_begin(&error))?;
        let found = found.into_iter();
        Ok(found.map(|(name, why)| (name.to_string(), why)).collect())
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
        py.detach(|| begin::join(&self.shared, &*self.clock, &claimant, timeout))
            .map(Attempt::from)
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
        py.detach(|| Checkpoint::open(self.sources(), &*self.clock, reference, timeout))
    }

    /// Copies the record of the attempt to the local tier, as a rank that did not take it.
    fn adopt(&self, py: Python<'_>, attempt: u32, restart: u32) -> PyResult<()> {
        let tiers = self.tiers()?;
        py.detach(|| tiers.adopt(AttemptId { attempt, restart }))
            .map_err(|error| of_store(&error))
    }

    /// What the local tier of this node holds.
    fn holds(&self, py: Python<'_>) -> PyResult<Holds> {
        let tiers = self.tiers()?;
        let holds = py.detach(|| tiers.holds());
        Ok(tiers::to_python(holds.map_err(|error| of_store(&error))?))
    }

    /// Whether the shared tier has the commit of a step.
    fn is_shared(&self, py: Python<'_>, folder: &str) -> PyResult<bool> {
        let (tiers, folder) = (self.tiers()?, step_name(folder)?);
        py.detach(|| tiers.is_shared(&folder))
            .map_err(|error| of_store(&error))
    }

    /// Records that every rank of the attempt has restored the step.
    fn restored(&self, py: Python<'_>, attempt: u32, restart: u32, folder: &str) -> PyResult<()> {
        let folder = step_name(folder)?;
        let id = AttemptId { attempt, restart };
        py.detach(|| self.shared.restored(id, &folder))
            .map_err(|error| of_store(&error))
    }
}
