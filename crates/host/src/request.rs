//! What a caller asks for, and the events it gets while the job runs.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde_json::Value;
use trainyard_core::{
    diagnose::Rules,
    job::{Event, Exit, JobStatus},
    spec::{Job, Role, Slot},
};

use crate::{
    inject::Injection,
    store::{FailedRank, RunReport},
};

/// One job to run on this machine, to its end.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The job.
    pub job: Job,
    /// The same as it was written, to be kept with the run.
    pub manifest: Value,
    /// The other objects of its files: `ConfigMap`s, Secrets, `PersistentVolumeClaim`s.
    pub companions: Vec<Value>,
    /// The `.trainyard` folder: runs and volumes.
    pub state_dir: PathBuf,
    /// How it runs here.
    pub options: RunOptions,
}

/// How a job runs on this machine.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where GPUs come from.
    pub accelerators: Accelerators,
    /// Role sizes other than the file's.
    pub replicas: BTreeMap<Role, u32>,
    /// Images that stand for a virtual environment: (image, path of the environment). The image is
    /// matched without its tag or digest unless it states one.
    pub image_env: Vec<(String, PathBuf)>,
    /// Injected faults.
    pub inject: Vec<Injection>,
    /// Start with empty volumes; what they hold is moved aside.
    pub fresh: bool,
    /// Rules that progress and verdicts are read with; `None` for those of the program.
    pub rules: Option<Arc<Rules>>,
    /// The environment that containers inherit beneath their own.
    pub environment: Vec<(String, String)>,
    /// The folder in which containers without `workingDir` start.
    pub working_dir: PathBuf,
    /// The program that understands `pod-init` and `pod-exec`: this one.
    pub program: PathBuf,
}

/// Where the GPUs of a run come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Accelerators {
    /// Those that the driver of this machine lists.
    #[default]
    Detect,
    /// These, named as `CUDA_VISIBLE_DEVICES` names them.
    Devices(
        /// Their names.
        Vec<String>,
    ),
    /// None: limits on GPUs are ignored and containers see no device.
    Ignore,
}

/// One thing that happened in a run, in the order in which it was seen.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// The run has its folder, ports and addresses; nothing runs yet.
    Prepared {
        /// The name of the run.
        run_id: String,
        /// Its folder in the store.
        folder: PathBuf,
        /// How many pods the job wants, after `replicas` was applied.
        pods: u32,
    },
    /// The status changed and is stored.
    Status(
        /// All of it.
        Box<JobStatus>,
    ),
    /// A pod was started; its containers may still be waiting for init containers.
    PodStarted {
        /// Where.
        slot: Slot,
        /// Of this attempt.
        attempt: u32,
        /// Its first process, as this machine numbers it.
        pid: u32,
    },
    /// All containers of a pod run.
    PodRunning {
        /// Where.
        slot: Slot,
        /// Of this attempt.
        attempt: u32,
    },
    /// A container wrote this.
    ///
    /// `bytes` holds whole lines, or none where only `left_out` is reported; only a piece of a line longer
    /// than 64 KiB, or the last line of a container, may lack its newline.
    Output {
        /// Where.
        slot: Slot,
        /// Of this attempt.
        attempt: u32,
        /// The container's name.
        container: Arc<str>,
        /// Which of its two streams.
        stream: Stream,
        /// What it wrote.
        bytes: Vec<u8>,
        /// Lines that came with it and are only in the log: too many to be read as they pass.
        left_out: u64,
    },
    /// Step and loss, as found in the output of a pod.
    Progress {
        /// Where.
        slot: Slot,
        /// Of this attempt.
        attempt: u32,
        /// The last step reported.
        step: u64,
        /// The last loss reported with it.
        loss: Option<f64>,
    },
    /// The first failure of an attempt, after the output that the pod wrote before it.
    FailedFirst(
        /// The failure; its last lines come with the store.
        Box<FailedRank>,
    ),
    /// A pod is over and no process of it is left.
    PodEnded {
        /// Where.
        slot: Slot,
        /// Of this attempt.
        attempt: u32,
        /// How its training container ended; `None` where it never ran.
        exit: Option<Exit>,
        /// Whether the engine ended it before it ended by itself.
        stopped: bool,
    },
    /// An event of the job, as the operator would post it.
    Event(
        /// The event.
        Event,
    ),
    /// One sentence about a difference between this machine and a cluster, said once.
    Note(
        /// The sentence.
        String,
    ),
    /// An injected fault takes place.
    Injected(
        /// The sentence.
        String,
    ),
    /// The run is over; the report is stored.
    Finished(
        /// The same as [`run`](crate::run) returns.
        Box<RunReport>,
    ),
}

/// One of a container's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Lines in `bytes`, the last of which may lack its newline.
pub fn count_lines(bytes: &[u8]) -> u64 {
    // This runs for every byte that ranks write. Summing up in single bytes, as far as one holds, took
    // 0.05 s of processor time for a gigabyte; a plain count took 0.5 s.
    let newlines: u64 = bytes
        .chunks(usize::from(u8::MAX))
        .map(|block| {
            let count: u8 = block.iter().map(|byte| u8::from(*byte == b'\n')).sum();
            u64::from(count)
        })
        .sum();
    newlines + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
}
