//! The user's job: its types, its defaults, and every error of its file at once.
//!
//! Owns the way from bytes to a [`Job`] that cannot be wrong. It never acts on a job and never
//! looks at pods.
//!
//! Invariant: a [`Job`] is complete. Defaults are applied, names are valid, role counts are in
//! range; no later code checks again.

mod kind;
mod knobs;
mod name;
mod types;

pub use kind::{Kind, Role};
pub use knobs::{AccountLimits, Compat, Knobs, Limit, RestartScope, annotation};
pub use name::{JobName, NameError, Namespace};
pub use types::{
    CleanPodPolicy, Elastic, Framework, Job, JobUid, LauncherCreation, MpiImplementation, MpiV1,
    MpiV2, PyTorch, Replicas, RestartPolicy, RoleSpec, RunPolicy, SchedulingPolicy, Slot, Tf,
    TfSuccess,
};
