//! Why a preflight has no result.

use thiserror::Error;
use trainyard_core::{
    launch::LaunchError,
    probe::{Incomplete, Rejected},
};

use super::{LEAVES, LIMIT};
use crate::api::{Answer, CallError};

/// Why a preflight has no result, or its pods could not be removed.
#[derive(Debug, Error)]
pub(crate) enum PreflightError {
    #[error("the system provides no random numbers")]
    NoRandomNumbers,
    /// The operator was given no image for it.
    #[error(transparent)]
    NoImage(LaunchError),
    #[error("cannot build its pods")]
    Build(#[source] LaunchError),
    #[error(
        "the operator runs in namespace `{own}` and has rights only in `{jobs}`, where trials could be tampered with"
    )]
    NoNamespace { own: String, jobs: String },
    #[error("there are no nodes to check")]
    NoNodes,
    #[error("cannot create pod `{pod}`")]
    Create {
        pod: String,
        #[source]
        source: CallError,
    },
    #[error("cannot delete its pods")]
    Delete(#[source] CallError),
    #[error("cannot list its pods: {0}")]
    List(Answer),
    #[error("its pod `{0}` is still terminating after {seconds} s", seconds = LEAVES.as_secs())]
    Terminating(String),
    #[error("the watch of its pods ended")]
    WatchEnded,
    #[error("it did not end within {} s", LIMIT.as_secs())]
    Late,
    /// The only pod is in a state that says nothing about its node.
    #[error("{0}")]
    OnlyPod(String),
    #[error("the leader pod on node `{node}` did not start: {state}")]
    LeaderNotStarted { node: String, state: String },
    #[error("the leader pod on node `{node}` ended: {state}")]
    LeaderEnded { node: String, state: String },
    #[error("cannot read the log of the leader pod")]
    Log(#[source] CallError),
    #[error("cannot list the leader pod `{pod}`: {answer}")]
    ListLeader { pod: String, answer: Answer },
    #[error("the leader pod wrote no report; its last log line is: {0}")]
    NoReport(String),
    /// The report is not one of this preflight.
    #[error(transparent)]
    Rejected(Rejected),
    #[error("no pod started on node `{node}`: {why}")]
    NotStarted { node: String, why: String },
    /// The report does not speak about every node.
    #[error(transparent)]
    Incomplete(Incomplete),
}

impl PreflightError {
    /// Whether the leader is at fault, so that another one may work.
    pub(super) fn is_of_leader(&self) -> bool {
        matches!(
            self,
            Self::LeaderNotStarted { .. } | Self::LeaderEnded { .. }
        )
    }
}
