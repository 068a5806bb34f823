//! The `.trainyard` folder: what ran and runs here.
//!
//! ```text
//! .trainyard/
//!   version                          the layout of the folder
//!   volumes/<claim>/                 persistent volumes; they outlive runs
//!   replaced/<run id>/<claim>/       what they held before a run that started fresh
//!   runs/<job>/run.lock              held while a run of the job lives; names its process
//!   runs/<job>/<run id>/job.json     what was asked for
//!                       status.json  the status as last decided
//!                       failures.json  what failed first in each attempt, as it happens
//!                       progress.json  how far the attempt is, at most once a second
//!                       pods.json    the pods that are there, with their processes
//!                       facts.jsonl  what happened, one fact a line; a run of an older version has none
//!                       notice.json  that the attempt is to end, and until when: `TRAINYARD_NOTICE` names it; usually there is none
//!                       report.json  the report, once the run is over
//!                       attempts/<n>/<pod>/<container>.log
//! ```
//!
//! Owns the layout, reading it (from any process, during a run and after it) and writing it (from
//! the one engine that holds the lock). It never removes a run.
//!
//! Invariant: every JSON file is replaced as a whole, so a reader sees the old one or the new one. `facts.jsonl` only grows, by whole lines:
//! an engine that was killed leaves a last line without its end, which readers pass over.
//! A folder that cannot be understood is reported and left as it is. No link is followed, except one
//! of our own in `volumes`; the folder of a run is its owner's alone (0700), whatever the umask is.

mod error;
mod facts;
mod files;
mod log;
mod outline;
mod record;
mod report;
mod ring;
mod times;
mod trust;
mod view;
mod writer;

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use serde::de::DeserializeOwned;
use trainyard_core::job::JobStatus;

use self::{files::MAX_JSON, trust::Purpose};
use crate::{
    profile::{Recorded, Recording},
    remote::{Answer, Request},
    stacks::RunStacks,
};

pub use error::StoreError;
pub use facts::FactsRead;
pub use log::{LogFile, LogReader};
pub use outline::{OutlineFailure, OutlineReport, RunOutline};
pub use record::{RunRecord, StoredFailures, StoredPod, StoredPods, StoredProgress, StoredStatus};
pub use report::{FailedRank, InjectionResult, Outcome, RunReport};
pub use view::LogView;

pub(crate) use facts::FactsWriter;
pub(crate) use log::LogWriter;
pub(crate) use trust::check_volume;
pub(crate) use writer::RunWriter;

/// Writes the file of a notice as a whole, or leaves the old one.
pub(crate) fn write_notice(path: &Path, bytes: &[u8]) -> io::Result<()> {
    files::write_atomically(path, bytes, files::Durably::No)
}

/// The layout that this program writes and reads.
pub const VERSION: u32 = 1;

const VERSION_FILE: &str = "version";
const LOCK: &str = "run.lock";
const RECORD: &str = "job.json";
const STATUS: &str = "status.json";
const FAILURES: &str = "failures.json";
const PROGRESS: &str = "progress.json";
const PODS: &str = "pods.json";
const REPORT: &str = "report.json";
const FACTS: &str = "facts.jsonl";
const ATTEMPTS: &str = "attempts";
const RUNS: &str = "runs";
const VOLUMES: &str = "volumes";
const REPLACED: &str = "replaced";
/// How long the engine may take to read the stacks of all ranks: a process in the middle of a large mapping cannot be read until
/// that is done.
const STACKS_WITHIN: Duration = Duration::from_mins(1);
/// How long the engine may take to note a request: it does so between two turns of its loop.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// More than any version takes.
const MAX_VERSION: u64 = 64;

/// A `.trainyard` folder.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store at `root` for reading. One that does not exist yet is empty.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let store = Self { root: root.into() };
        if trust::check_folder(&store.root, Purpose::Read)? {
            trust::check_folder(&store.root.join(RUNS), Purpose::Read)?;
            store.check_version()?;
        }
        Ok(store)
    }

    /// The store at `root` for writing; makes the folder where there is none.
    pub(crate) fn create(root: &Path) -> Result<Self, StoreError> {
        let not_writable = |source| StoreError::NotWritable {
            path: root.to_owned(),
            source,
        };
        if let Some(above) = root.parent().filter(|above| !above.as_os_str().is_empty()) {
            fs::create_dir_all(above).map_err(not_writable)?;
        }
        trust::make_folder(root)?;
        // Mounts and the processes of pods need a path that holds whatever their folder is.
        let root = fs::canonicalize(root).map_err(not_writable)?;
        let store = Self { root };
        if !store.check_version()? {
            let path = store.root.join(VERSION_FILE);
            let text = format!("{VERSION}\n");
            let written = files::write_atomically(&path, text.as_bytes(), files::Durably::Yes);
            // Another run that begins here at the same time writes the same.
            if let Err(source) = written
                && !store.check_version()?
            {
                let path = store.root;
                return Err(StoreError::NotWritable { path, source });
            }
        }
        for folder in [RUNS, VOLUMES] {
            trust::make_folder(&store.root.join(folder))?;
        }
        Ok(store)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The names of all jobs that ever ran here, sorted.
    pub fn jobs(&self) -> Result<Vec<String>, StoreError> {
        folder_names(&self.root.join(RUNS))
    }

    /// The runs of `job`, oldest first. Empty where it never ran.
    pub fn runs(&self, job: &str) -> Result<Vec<RunFolder>, StoreError> {
        let folder = self.job_folder(job);
        trust::check_folder(&folder, Purpose::Read)?;
        let names = folder_names(&folder)?;
        Ok(names
            .into_iter()
            .map(|id| RunFolder {
                path: folder.join(&id),
                job: job.to_owned(),
                id,
            })
            .collect())
    }

    /// The folder of persistent volumes.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join(VOLUMES)
    }

    /// The folder of what volumes held before the run `run_id` started with empty ones.
    pub(crate) fn replaced(&self, run_id: &str) -> Result<PathBuf, StoreError> {
        let root = self.root.join(REPLACED);
        trust::make_folder(&root)?;
        let folder = root.join(run_id);
        trust::make_folder(&folder)?;
        Ok(folder)
    }

    /// The run of `job` whose engine lives.
    pub fn live_run(&self, job: &str) -> Option<String> {
        holder(&self.job_folder(job))
    }

    /// The last run of `job`.
    pub fn latest(&self, job: &str) -> Result<RunFolder, StoreError> {
        let last = self.runs(job)?.pop();
        last.ok_or_else(|| StoreError::NoSuchJob {
            job: job.to_owned(),
            root: self.root.clone(),
        })
    }

    fn job_folder(&self, job: &str) -> PathBuf {
        self.root.join(RUNS).join(job)
    }

    /// Whether the folder states its layout; an error where that is not ours.
    fn check_version(&self) -> Result<bool, StoreError> {
        let path = self.root.join(VERSION_FILE);
        let text = match files::read(&path, MAX_VERSION) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(StoreError::corrupt(&path, &error)),
        };
        match text.trim().parse::<u32>() {
            Ok(VERSION) => Ok(true),
            Ok(found) if found > VERSION => Err(StoreError::Newer { path, found }),
            Ok(found) => Err(StoreError::corrupt(
                &path,
                &format!("it has version {found}, this program writes {VERSION}"),
            )),
            Err(_) => Err(StoreError::corrupt(&path, &"it does not contain a number")),
        }
    }
}

/// The folder of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    /// Where it is.
    pub path: PathBuf,
    /// The job's name.
    pub job: String,
    /// The run's name; later runs have later names.
    pub id: String,
}

impl RunFolder {
    /// What was asked for.
    pub fn record(&self) -> Result<RunRecord, StoreError> {
        let path = self.path.join(RECORD);
        let record: RunRecord = read_json(&path)?;
        outline::check_pods(&path, &record.replicas, record.ranks)?;
        Ok(record)
    }

    /// The status as last decided; the default before the first decision.
    pub fn status(&self) -> Result<JobStatus, StoreError> {
        let stored: Option<StoredStatus> = self.read_if_there(STATUS)?;
        Ok(stored.map(|stored| stored.status).unwrap_or_default())
    }

    /// What failed first in each attempt that had a failure so far, oldest first.
    pub fn failures(&self) -> Result<Vec<FailedRank>, StoreError> {
        let stored: Option<StoredFailures> = self.read_if_there(FAILURES)?;
        Ok(stored.map(|stored| stored.failures).unwrap_or_default())
    }

    /// The last progress that the run reported.
    pub fn progress(&self) -> Result<Option<StoredProgress>, StoreError> {
        self.read_if_there(PROGRESS)
    }

    /// The pods of a live run, in listing order.
    pub fn pods(&self) -> Result<Vec<StoredPod>, StoreError> {
        let stored: Option<StoredPods> = self.read_if_there(PODS)?;
        Ok(stored.map(|stored| stored.pods).unwrap_or_default())
    }

    /// The report, once the run is over. A run whose engine was killed has none.
    pub fn report(&self) -> Result<Option<RunReport>, StoreError> {
        self.read_if_there(REPORT)
    }

    fn read_if_there<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        match read_json(&self.path.join(name)) {
            Err(StoreError::Missing { .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Whether its engine lives.
    pub fn is_live(&self) -> bool {
        let parent = self.path.parent();
        parent.and_then(holder).as_deref() == Some(self.id.as_str())
    }

    /// The attempts that have logs, in order.
    pub fn attempts(&self) -> Result<Vec<u32>, StoreError> {
        let names = folder_names(&self.path.join(ATTEMPTS))?;
        let mut attempts: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        attempts.sort_unstable();
        Ok(attempts)
    }

    /// The logs of `attempt`, by pod and container.
    pub fn logs(&self, attempt: u32) -> Result<Vec<LogFile>, StoreError> {
        let folder = self.path.join(ATTEMPTS).join(attempt.to_string());
        let mut logs = Vec::new();
        for pod in folder_names(&folder)? {
            logs.extend(LogFile::list(&folder.join(&pod), attempt, &pod)?);
        }
        Ok(logs)
    }

    /// Asks the engine to stop the run, as Ctrl-C does in its terminal: in its grace period, or
    /// `now`.
    pub fn request_stop(&self, now: bool) -> Result<(), StoreError> {
        self.ask(&Request::Stop { now })
    }

    /// Asks the engine to let the job have no pods, or to let it have them again.
    pub fn request_suspend(&self, suspend: bool) -> Result<(), StoreError> {
        self.ask(&Request::Suspend { suspend })
    }

    /// Asks the engine for one new attempt of the whole gang. A name that was used before has no effect.
    pub fn request_restart(&self, name: &str) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.ask(&Request::Restart { name })
    }

    /// Asks the engine what `ranks` do, or all ranks where none is named; with `native` also threads without a Python stack.
    pub fn request_stacks(&self, ranks: &[u32], native: bool) -> Result<RunStacks, StoreError> {
        let ranks = ranks.to_vec();
        let request = Request::Stacks { ranks, native };
        let (answer, descriptors) = self.ask_within(&request, &[], Some(STACKS_WITHIN))?;
        let memory = match answer {
            Answer::Refused { message } => return Err(StoreError::Refused { message }),
            Answer::Stacks => descriptors.into_iter().next(),
            Answer::Ended { .. } | Answer::Done | Answer::Profile => None,
        };
        let memory = memory.ok_or_else(unexpected);
        let stacks = memory.and_then(crate::channel::from_memory);
        stacks.map_err(|source| self.no_answer(source))
    }

    /// Has ranks record traces; what came of it, once all have written theirs or the time of `recording` is over.
    pub fn request_profile(&self, recording: &Recording) -> Result<Recorded, StoreError> {
        // The engine answers at its limit; a second more is for the answer itself.
        let limit = Duration::from_secs(u64::from(recording.timeout_seconds) + 10);
        let request = Request::Profile(recording.clone());
        let (answer, descriptors) = self.ask_within(&request, &[], Some(limit))?;
        let memory = match answer {
            Answer::Refused { message } => return Err(StoreError::Refused { message }),
            Answer::Profile => descriptors.into_iter().next(),
            Answer::Ended { .. } | Answer::Done | Answer::Stacks => None,
        };
        let memory = memory.ok_or_else(unexpected);
        let recorded = memory.and_then(crate::channel::from_memory);
        recorded.map_err(|source| self.no_answer(source))
    }

    /// Runs `command` in the pod of `rank` with the three streams of this process, beside `container` or beside the one that
    /// trains. Returns its exit code; 128 + n for signal n.
    pub fn exec(
        &self,
        rank: u32,
        container: Option<&str>,
        command: &[String],
    ) -> Result<i32, StoreError> {
        let request = Request::Exec {
            rank,
            container: container.map(str::to_owned),
            command: command.to_vec(),
        };
        // A command may take as long as it likes.
        match self.ask_within(&request, &[0, 1, 2], None)?.0 {
            Answer::Refused { message } => Err(StoreError::Refused { message }),
            Answer::Ended { code } => Ok(code),
            Answer::Done | Answer::Stacks | Answer::Profile => Err(self.no_answer(unexpected())),
        }
    }

    fn ask(&self, request: &Request) -> Result<(), StoreError> {
        match self.ask_within(request, &[], Some(ANSWER_WITHIN))?.0 {
            Answer::Refused { message } => Err(self.no_answer(io::Error::other(message))),
            Answer::Ended { .. } | Answer::Done | Answer::Stacks | Answer::Profile => Ok(()),
        }
    }

    /// Asks the engine, unless it is stopped: then it would answer whenever somebody continues it.
    fn ask_within(
        &self,
        request: &Request,
        streams: &[i32],
        limit: Option<Duration>,
    ) -> Result<(Answer, Vec<OwnedFd>), StoreError> {
        if let Some(error) = self.stopped_engine() {
            return Err(error);
        }
        let answer = crate::remote::ask_within(&self.path, request, streams, limit);
        // It may have been stopped since.
        answer.map_err(|source| {
            let stopped = self.stopped_engine();
            stopped.unwrap_or_else(|| self.no_answer(source))
        })
    }

    /// What is wrong where the engine is stopped.
    fn stopped_engine(&self) -> Option<StoreError> {
        let pid = self.path.parent().and_then(live_holder)?.pid;
        is_stopped(pid).then(|| StoreError::EngineStopped {
            job: self.job.clone(),
            pid,
        })
    }

    /// Nobody listens once a run has ended; where an engine listens and there is no answer, the run is there.
    fn no_answer(&self, source: io::Error) -> StoreError {
        let job = self.job.clone();
        let is_over = matches!(
            source.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
        );
        if is_over {
            StoreError::NotRunning { job, source }
        } else {
            StoreError::NoAnswer { job, source }
        }
    }

    /// Removes all that is kept of a run that is over.
    pub fn remove(&self) -> Result<(), StoreError> {
        if self.is_live() {
            return Err(StoreError::Running {
                job: self.job.clone(),
                pid: self.record().map_or(0, |record| record.pid),
            });
        }
        fs::remove_dir_all(&self.path).map_err(|source| StoreError::NotWritable {
            path: self.path.clone(),
            source,
        })
    }
}

fn unexpected() -> io::Error {
    io::Error::other("its engine sent an unexpected answer")
}

/// The run that holds the lock in the folder of a job.
fn holder(folder: &Path) -> Option<String> {
    live_holder(folder).map(|holder| holder.run_id)
}

/// Who holds the lock in the folder of a job.
fn live_holder(folder: &Path) -> Option<writer::Holder> {
    let lock = files::open(&folder.join(LOCK)).ok()?;
    let holder = writer::Holder::read(&lock)?;
    let held = Flock::lock(lock, FlockArg::LockSharedNonblock).is_err();
    held.then_some(holder)
}

/// Whether a process was stopped, by Ctrl-Z, `SIGSTOP` or a debugger.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may hold anything.
    let state = stat.rsplit_once(") ");
    state.is_some_and(|(_, state)| state.starts_with(['T', 't']))
}

/// The names of the folders in `path`, sorted; none where `path` does not exist. A link is not a folder, and `path` is none.
fn folder_names(path: &Path) -> Result<Vec<String>, StoreError> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(StoreError::Linked {
            path: path.to_owned(),
        });
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::corrupt(path, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| StoreError::corrupt(path, &error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let bytes = files::read(path, MAX_JSON).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::Missing {
            path: path.to_owned(),
        },
        _ => StoreError::corrupt(path, &error),
    })?;
    if bytes.is_empty() {
        return Err(StoreError::corrupt(
            path,
            &"it is empty, perhaps after a power loss",
        ));
    }
    serde_json::from_slice(&bytes).map_err(|error| StoreError::corrupt(path, &error))
}

#[cfg(test)]
mod tests;
