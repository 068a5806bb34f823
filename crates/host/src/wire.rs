//! What the engine says to a pod init and to the keeper, and what they answer.
//!
//! Both are the same program, so these types have no version. Everything that needs the job, its
//! files or this machine's state is worked out by the engine; a pod init gets plain facts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One pod, ready to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PodSpec {
    /// The host name.
    pub(crate) name: String,
    /// An empty folder on which the pod may mount what it needs in between.
    pub(crate) stage: PathBuf,
    /// The file that becomes `/etc/hosts`.
    pub(crate) hosts: PathBuf,
    /// The user's own folder: it is never covered by a copy.
    pub(crate) working_dir: PathBuf,
    /// How many files programs may have open.
    pub(crate) open_files: u64,
    /// Volumes, by the name that mounts use.
    pub(crate) volumes: Vec<Volume>,
    /// Init containers, one after another; sidecars among them stay.
    pub(crate) init_containers: Vec<Container>,
    /// Containers, all at once.
    pub(crate) containers: Vec<Container>,
    /// Which containers start again in place.
    pub(crate) restart: Restart,
    /// How long sidecars may take to end.
    pub(crate) grace_millis: u64,
}

/// Which containers start again in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) name: String,
    /// The program and its arguments, expanded. Never empty.
    pub(crate) command: Vec<String>,
    /// The whole environment.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) working_dir: PathBuf,
    pub(crate) mounts: Vec<Mount>,
    /// An init container that runs beside the others and always starts again.
    pub(crate) sidecar: bool,
    /// The cgroup folders that hold its limits.
    pub(crate) cgroups: Vec<PathBuf>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) volume: String,
    pub(crate) path: PathBuf,
    /// The part of the volume that is mounted.
    pub(crate) sub_path: Option<String>,
    pub(crate) read_only: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) source: VolumeSource,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum VolumeSource {
    /// Files that live in memory only.
    Files(Vec<VolumeFile>),
    /// A folder or file of this machine.
    Path(PathBuf),
    /// Memory, with a size limit in bytes.
    Memory(Option<u64>),
}

/// One file of a `ConfigMap`, a Secret or the downward API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolumeFile {
    /// Relative to the volume.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

/// From the engine to the keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Charge {
    /// Start a pod init. Carries its end of the socket on which it gets its orders.
    Start { pod: u64 },
    /// End a pod at once.
    End { pod: u64 },
}

/// From the keeper to the engine: no process of a pod is left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub(crate) pod: u64,
}

/// From the engine to a pod init.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Make the namespaces and say whether that works.
    Probe,
    /// Start the pod. Carries the [`PodSpec`] as a memory file, then the two streams of each
    /// container, init containers first.
    Start,
    /// Ask every container to end, and end the pod when it has or when the time is over.
    Stop { grace_millis: u64 },
    /// End a container at once; it is said to have ended with `code`, where given.
    Kill { container: String, code: Option<u8> },
    /// Start a container again that has ended, after its pause: what it wrote was read.
    Again { container: String },
    /// Stop every process where it is.
    Freeze,
    /// Let every process run for a share of the time only.
    Slow { factor: f64 },
    /// Put other files into a volume. Carries a `Vec<VolumeFile>` as a memory file.
    Update { volume: String },
    /// Run a command beside `container`. Carries its three streams.
    Exec {
        id: u64,
        container: Option<String>,
        command: Vec<String>,
    },
    /// Nobody waits for the command any more.
    EndExec { id: u64 },
}

/// From a pod init to the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The pod init runs, as this process of the machine.
    Started { pid: u32 },
    /// The namespaces could be made.
    Isolated,
    /// The namespaces cannot be made.
    NotIsolated { step: String, reason: String },
    /// The pod cannot be set up as it was asked for.
    Broken { message: String },
    /// All init containers are done and all containers run.
    Running,
    /// A container ended and starts again in place, as soon as [`Order::Again`] comes.
    Restarted {
        container: String,
        code: i32,
        /// Whether a signal ended it; a program may say the same code by itself.
        signaled: bool,
        restarts: u32,
    },
    /// A container ended for good.
    Exited {
        container: String,
        code: i32,
        signaled: bool,
    },
    /// The pod is over; this is the last word.
    Ended { succeeded: bool },
    /// A command that was run beside a container ended.
    ExecEnded { id: u64, code: i32 },
}
