//! Restart in place: programs of a gang are stopped everywhere, the next attempt is stored, programs start together.
//!
//! Pods, addresses, volumes and nodes stay. Three state machines, values in and values out; adapters own sockets, processes and
//! the API server. Time is a `Duration` since a monotonic origin of the process that calls; none is compared across processes.
//!
//! # Flow
//! [`choose()`] says whether a failure is handled in place. The operator stores a [`Barrier`] made by [`Barrier::begin`] and from then on
//! calls [`Coordinator::step`] in every pass:
//!
//! ```text
//! Running(a) ─ Stop(a) ─▶ all kept members Stopped ─ store a+1, relabel, Prepare(a+1) ─▶ all Ready ─ Go(a+1) ─▶ Running(a+1)
//! ```
//!
//! Between Running(a) and Stop(a) a broken gang may be held for inspection: Hold(a) lets containers stay whose program has ended, and changes
//! nothing else.
//!
//! Its orders go to the [`Leader`], in the supervisor of one pod, which forwards them to every [`Member`], the supervisor of each pod,
//! and sums up in one [`Summary`] what members report.
//!
//! # Guarantees
//! - Every order has a [`Fence`], the attempt and the stage in it. Fences only grow: an older order changes nothing, a newer one overrides,
//!   and the same one twice is the same as once. So messages may be lost, late, doubled or reordered.
//! - What members report has the same order, so an old report never hides a newer one. A report is bound to the uid of its pod.
//! - No step depends on memory that a crash loses: the operator continues from what it stored, the leader from the reports of members.
//! - Go is sent only after the attempt is stored, every pod carries it as its label, and every member is ready.
//! - Every wait has a bound ([`Limits`]); a barrier ends in Go, in new pods, or in no pods at all.
//!
//! # Assumptions
//! - A slot has at most one pod object at a time, and a new one only once the old one is gone: Kubernetes names see to it.
//! - A write of the status is refused where the stored one is not the one observed.
//! - While a barrier is stored, pods are created only where [`Step::create`] names them, and start as [`Begin::Wait`].
//!
//! # Caveats
//! - A pod on a lost node is deleted by force, and its program may still run there, as with new pods.

mod choose;
mod coordinator;
pub mod frame;
mod leader;
mod limits;
mod member;
mod message;
mod record;
mod redial;
mod slots;
mod words;

pub use choose::{FailureFacts, FailureKind, FailurePlace, NewPodsReason, RestartWay, choose};
pub use coordinator::{
    Coordinator, CreateWaiting, LostMember, LostWhy, Outcome, PodHealth, Relabel, SeenJob, SeenPod,
    Step, Wish,
};
pub use leader::{ConnectionId, Leader, LeaderAction};
pub use limits::{
    Limits, MAX_ENDED, MAX_GROUPS, MAX_MEMBERS, MAX_MESSAGE, MAX_SAVES, MAX_SENTENCE, MAX_TEXT,
};
pub use member::{
    Begin, EXIT_CANNOT_STOP, EXIT_STOPPED, Member, MemberAction, MemberSetup, OnSuccess,
};
pub use message::{
    Bounded, Command, EndedMember, Envelope, Fence, Group, HangReport, Hello, LeaderMessage,
    MemberState, MessageError, OperatorMessage, Order, ProgramExit, Stage, StateName, StopHow,
    StoreReport, Summary,
};
pub use record::{Barrier, Phase, Stored};
pub use redial::Redial;
pub use slots::{Roster, SlotSet};
pub use words::status_sentence;
