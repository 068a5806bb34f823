//! Writing the folder of a run, by the one engine that holds its lock.

use std::{
    fs::{File, Permissions},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use trainyard_core::{
    job::{ConditionStatus, ConditionType, JobStatus},
    spec::Job,
};

use super::{
    ATTEMPTS, FACTS, FAILURES, FactsWriter, FailedRank, LOCK, PODS, PROGRESS, RECORD, REPORT,
    RunFolder, RunRecord, RunReport, STATUS, Store, StoreError, StoredFailures, StoredPod,
    StoredPods, StoredProgress, StoredStatus, VERSION,
    files::{self, Durably},
    trust,
};

/// The longest lock file that is read.
const MAX_HOLDER: u64 = 4 << 10;

/// How often the lock of a job is asked for that somebody has, and how long to wait in between: a reader has it for less.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Who holds the lock of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Holder {
    pub(super) pid: u32,
    pub(super) run_id: String,
}

impl Holder {
    pub(super) fn read(lock: &File) -> Option<Self> {
        let mut text = String::new();
        lock.take(MAX_HOLDER).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// The folder of the run that is going on.
#[derive(Debug)]
pub(crate) struct RunWriter {
    folder: RunFolder,
    started_at: Timestamp,
    /// Held until the engine ends, however it ends.
    _lock: Flock<File>,
}

impl RunWriter {
    /// Takes the lock of `job` and makes the folder of its next run.
    pub(crate) fn begin(store: &Store, job: &Job, now: Timestamp) -> Result<Self, StoreError> {
        let name = job.name.as_str();
        let parent = store.job_folder(name);
        let not_writable = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::NotWritable { path, source }
        };
        trust::make_folder(&parent)?;
        let path = parent.join(LOCK);
        let file = files::open_or_create(&path).map_err(not_writable(&path))?;
        // A user who can open it can lock it, and no run of the job could start.
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(not_writable(&path))?;
        let mut lock = match take_lock(file) {
            Ok(lock) => lock,
            Err((file, nix::Error::EWOULDBLOCK)) => {
                return Err(StoreError::Running {
                    job: name.to_owned(),
                    pid: Holder::read(&file).map_or(0, |holder| holder.pid),
                });
            }
            Err((_, errno)) => return Err(not_writable(&path)(errno.into())),
        };
        let id = new_run_id(&parent, now);
        let folder = RunFolder {
            path: parent.join(&id),
            job: name.to_owned(),
            id: id.clone(),
        };
        trust::make_private_folder(&folder.path).map_err(not_writable(&folder.path))?;
        let holder = Holder {
            pid: std::process::id(),
            run_id: id,
        };
        let written = (|| {
            lock.set_len(0)?;
            lock.rewind()?;
            lock.write_all(&json(&holder))
        })();
        written.map_err(not_writable(&path))?;
        Ok(Self {
            folder,
            started_at: now,
            _lock: lock,
        })
    }

    /// When the run began; its name says the same.
    pub(crate) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(crate) fn folder(&self) -> &RunFolder {
        &self.folder
    }

    pub(crate) fn write_record(&self, record: &RunRecord) -> Result<(), StoreError> {
        self.write(RECORD, record, Durably::No)
    }

    pub(crate) fn write_status(&self, view: u64, status: &JobStatus) -> Result<(), StoreError> {
        let stored = StoredStatus {
            version: VERSION,
            view,
            status: status.clone(),
        };
        // Before the end a status is replaced every second, and nothing goes on from it: what a power loss takes is how
        // far a run was that it ended.
        let over = status.conditions.iter().any(|condition| {
            matches!(
                condition.kind,
                ConditionType::Succeeded | ConditionType::Failed
            ) && condition.status == ConditionStatus::True
        });
        let durably = if over { Durably::Yes } else { Durably::No };
        self.write(STATUS, &stored, durably)
    }

    pub(crate) fn write_failures(&self, failures: &[FailedRank]) -> Result<(), StoreError> {
        let stored = StoredFailures {
            version: VERSION,
            failures: failures.to_vec(),
        };
        self.write(FAILURES, &stored, Durably::No)
    }

    pub(crate) fn write_progress(&self, progress: &StoredProgress) -> Result<(), StoreError> {
        self.write(PROGRESS, progress, Durably::No)
    }

    pub(crate) fn write_pods(&self, pods: Vec<StoredPod>) -> Result<(), StoreError> {
        let version = VERSION;
        self.write(PODS, &StoredPods { version, pods }, Durably::No)
    }

    pub(crate) fn write_report(&self, report: &RunReport) -> Result<(), StoreError> {
        self.write(REPORT, report, Durably::Yes)
    }

    /// The file of facts, empty.
    pub(crate) fn create_facts(&self) -> Result<FactsWriter, StoreError> {
        let path = self.folder.path.join(FACTS);
        FactsWriter::create(&path).map_err(|source| StoreError::NotWritable { path, source })
    }

    /// What could not be written to the file of facts.
    pub(crate) fn facts_failed(&self, source: io::Error) -> StoreError {
        let path = self.folder.path.join(FACTS);
        StoreError::NotWritable { path, source }
    }

    /// The folder of a pod's logs.
    pub(crate) fn pod_folder(&self, attempt: u32, pod: &str) -> PathBuf {
        self.folder
            .path
            .join(ATTEMPTS)
            .join(attempt.to_string())
            .join(pod)
    }

    fn write(
        &self,
        name: &str,
        value: &impl Serialize,
        durably: Durably,
    ) -> Result<(), StoreError> {
        let path = self.folder.path.join(name);
        files::write_atomically(&path, &json(value), durably)
            .map_err(|source| StoreError::NotWritable { path, source })
    }
}

/// Takes the lock of a job. Whoever asks whether a run lives has it for a moment: that is not a run, and is waited for.
fn take_lock(mut file: File) -> Result<Flock<File>, (File, nix::Error)> {
    for _ in 0..LOCK_TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((same, nix::Error::EWOULDBLOCK)) => file = same,
            taken => return taken,
        }
        thread::sleep(LOCK_PAUSE);
    }
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes =
        serde_json::to_vec_pretty(value).expect("stored types have string keys and finite numbers");
    bytes.push(b'\n');
    bytes
}

/// The time in a form that sorts, and a number where two runs begin in the same second.
fn new_run_id(parent: &Path, now: Timestamp) -> String {
    let base = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut id = base.clone();
    let mut number = 1;
    while parent.join(&id).exists() {
        number += 1;
        id = format!("{base}-{number:03}");
    }
    id
}
