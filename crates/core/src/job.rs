//! The lifecycle of a job: `decide(job, observed, now)`.

mod action;
mod index_set;
mod observed;
mod status;

pub use action::{Action, Decision, Event, EventKind, Removal};
pub use index_set::IndexSet;
pub use observed::{
    Disruption, Exit, NodeHealth, Observed, ObservedPod, PodPhase, PodUid, Progress, Refusal,
    SharedInputs, Wait,
};
pub use status::{
    Account, Condition, ConditionStatus, ConditionType, JobStatus, RoleStatus, Spent, Yard,
};
