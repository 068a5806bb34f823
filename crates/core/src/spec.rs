//! The user's job: its types, its defaults, and every error of its file at once.
//!
//! Owns the way from bytes to a [`Job`] that cannot be wrong. It never acts on a job and never
//! looks at pods.
//!
//! ```text
//! bytes ─read─▶ File ─▶ Document ─check─▶ Job + findings
//! API object ──────────────job_from_value──▶ Job + findings
//! ```
//!
//! Invariant: a [`Job`] is complete. Defaults are applied, names are valid, role counts are in
//! range; no later code checks again.

mod assign;
mod check;
mod collector;
mod contents;
pub mod count;
mod decode;
mod defaults;
mod document;
mod fill;
mod kind;
mod name;
mod nearest;
pub(crate) mod placeholder;
mod placement;
mod ranks;
mod read;
mod scalar;
mod setting_error;
mod settings;
mod trainjob;
mod transport;
mod tree;
mod types;
mod validate;
mod volumes;
pub mod wire;
mod write;

pub use assign::{AssignError, assign, set_variable};
pub use check::{Checked, check, job_from_value};
pub(crate) use check::{draft, kinds_read};
pub(crate) use collector::{Collector, Place};
pub(crate) use contents::words;
pub use contents::{Contents, Part};
pub(crate) use decode::decode;
pub use document::{Document, FABRIC_API_VERSION, FABRIC_KIND, RoleInFile};
pub use fill::{Filled, fill};
pub use kind::{Kind, Role};
pub(crate) use name::is_subdomain;
pub use name::{JobName, NameError, Namespace};
pub(crate) use nearest::distance;
pub use nearest::nearest;
pub use placement::{Axis, Parallelism, Wish};
pub(crate) use ranks::{gang_minimum, is_gpu_launcher};
pub use ranks::{holds_ranks, launcher_holds_ranks, leading_slot};
pub use read::{
    File, MAX_BYTES, MAX_DEPTH, MAX_DOCUMENTS, MAX_NODES, MAX_TEXT_BYTES, read, source_text,
};
pub use setting_error::SettingError;
pub use settings::{
    AccountLimits, Compat, GangBy, JobSettings, Limit, MpiTransport, OnNan, Preflight, ProgressBy,
    RestartIn, RestartScope, Supervise, Switch, WatchMode, annotation,
};
pub use trainjob::{
    After, BUNDLED, Policy, RuntimeName, RuntimeSpec, Success, Train, TrainJobSpec, Tune,
    foreign_manager, runtime_from_text, set_in_all, share_runtimes, train_job_from_value,
    unused_runtimes,
};
pub(crate) use trainjob::{Runtimes, add_runtimes, document_with_runtime, share_runtimes_beside};
pub use transport::{RequiredTransport, is_between_nodes, is_direct};
pub use tree::{Entry, Node, Value};
pub(crate) use tree::{push_index, push_key};
pub use types::{
    CleanPodPolicy, Elastic, Framework, Job, JobUid, LauncherCreation, MpiImplementation, MpiV1,
    MpiV2, PyTorch, Replicas, RestartPolicy, RoleSpec, RunPolicy, SchedulingPolicy, Slot, Tf,
    TfSuccess,
};
pub use validate::duration;
pub(crate) use volumes::{is_within, keeps};
pub(crate) use write::yaml_word;
pub use write::{push_yaml, to_yaml};

/// The namespace of a job that states none.
pub const DEFAULT_NAMESPACE: &str = "default";
