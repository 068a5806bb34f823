//! Preflight: from what was measured on machines and between them to what is fit for a job.
//!
//! Owns the catalogue of checks: a measurement and an expectation become one [`Check`] with both
//! numbers, the likely cause, the next step and who owns the layer. It measures nothing itself: what
//! goes in are values that an adapter read, what comes out is a [`Report`].
//!
//! Invariant: whatever could not be measured is a check of its own with the reason. Nothing passes
//! because it was not checked.

mod amounts;
mod brief;
mod catalogue;
mod check;
mod compare;
mod compose;
mod examine;
mod judge;
mod leave;
mod links;
mod needs;
pub mod pairs;
pub mod paths;
mod probation;
mod reading;
pub mod ring;
pub mod search;
mod started;
mod suspects;
pub mod tools;
mod trust;

pub use catalogue::{CATALOGUE, Entry};
pub use check::{Check, Layer, NodeReport, Outcome, Owner, Report};
pub use compose::compose;
pub use examine::examine;
pub use judge::{Fault, Incomplete, Judgement, NodeRecord, fingerprint, judge, sentence};
pub(crate) use needs::GPU;
pub use needs::{Needs, VolumeNeeds, needs};
pub use probation::{Cap, CapReached, PROBATION, PROBATION_UNTIL, Probation};
pub use reading::{
    Gid, Gpu, Interface, Limits, Memory, Pcie, Probed, Processors, RdmaPort, Reading, RemappedRows,
    Space, Versions, VolumeTrial, XidSeen,
};
pub use started::{POD_STARTS, pod_not_placed, pod_not_started};
pub use suspects::{Blamed, Suspect, Suspects};
pub use trust::{
    Consequences, Found, Marks, REPORT_MOST, Rejected, Source, accept, clean, consequences,
    downgrade_unseen_gpus, report_most,
};
