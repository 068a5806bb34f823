//! Why a pod failed, and on whose account that is.
//!
//! A crash of the program never removes a node, but a lost node makes every other rank crash.
//! So where both are seen, what came from outside is the cause.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Account, Disruption, ObservedPod, mutant};
use crate::spec::Slot;

/// One failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Where.
    pub(super) slot: Slot,
    /// Why.
    pub(super) cause: Cause,
    /// When, where it is known.
    pub(super) at: Option<Timestamp>,
}

/// Why a pod failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Cause {
    /// Its node is gone or silent for too long.
    NodeLost,
    /// The platform removed it.
    Disrupted {
        /// How.
        by: Disruption,
    },
    /// Someone deleted it.
    Deleted,
    /// It no longer exists, and the reason is unknown.
    Vanished,
    /// Its program ended.
    Exited {
        /// With this code.
        code: i32,
        /// For its memory.
        out_of_memory: bool,
    },
    /// It failed without an exit code.
    NoExitCode,
    /// Its program runs and does not train any more: the watch found a hang, or a loss that stays NaN.
    NotTraining,
}

impl Cause {
    /// The cause of a pod in phase Failed.
    pub(super) fn of_failed(pod: &ObservedPod) -> Self {
        // A program that ends after its pod's deletion was requested was stopped.
        let stopped = pod.deleted_at.is_some_and(|deleted_at| {
            pod.exit
                .and_then(|exit| exit.at)
                .is_none_or(|ended_at| ended_at >= deleted_at)
        });
        match (pod.disruption, pod.exit) {
            (Some(by), _) => Self::Disrupted { by },
            (None, _) if stopped => Self::Deleted,
            (None, Some(exit)) => Self::Exited {
                code: exit.code,
                out_of_memory: exit.out_of_memory,
            },
            (None, None) => Self::NoExitCode,
        }
    }

    /// The cause of a pod that someone else is deleting.
    pub(super) fn of_deleted(pod: &ObservedPod) -> Self {
        pod.disruption
            .map_or(Self::Deleted, |by| Self::Disrupted { by })
    }

    /// Who pays.
    pub(super) fn account(self) -> Account {
        match self {
            Self::NodeLost if mutant::is(mutant::Mutant::UserPaysForNodes) => Account::User,
            Self::NodeLost
            | Self::NoExitCode
            | Self::Disrupted {
                by: Disruption::NodePressure | Disruption::NodeShutdown | Disruption::NodeGone,
            } => Account::Infrastructure,
            Self::Disrupted {
                by: Disruption::Preempted,
            } => Account::Preemption,
            Self::Disrupted {
                by: Disruption::Evicted,
            }
            | Self::Deleted
            | Self::Vanished => Account::Platform,
            Self::Exited { .. } | Self::NotTraining => Account::User,
        }
    }

    /// Whether the kernel ended it for its memory.
    pub fn is_out_of_memory(self) -> bool {
        matches!(
            self,
            Self::Exited {
                out_of_memory: true,
                ..
            }
        )
    }

    /// The exit code, where there is one.
    pub(super) fn exit_code(self) -> Option<i32> {
        match self {
            Self::Exited { code, .. } => Some(code),
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeLost => f.write_str("its node is gone"),
            Self::Disrupted { by } => f.write_str(match by {
                Disruption::Preempted => "a pod of higher priority preempted it",
                Disruption::Evicted => "it was evicted",
                Disruption::NodePressure => "its node ran short of memory or disk",
                Disruption::NodeShutdown => "its node shut down",
                Disruption::NodeGone => "its node was removed",
            }),
            Self::Deleted => f.write_str("it was deleted"),
            Self::Vanished => f.write_str("it no longer exists"),
            Self::Exited {
                out_of_memory: true,
                code,
            } => {
                write!(f, "it ran out of memory (exit code {code})")
            }
            Self::Exited { code, .. } => write!(f, "it ended with exit code {code}"),
            Self::NoExitCode => f.write_str("it failed without an exit code"),
            Self::NotTraining => f.write_str("its program runs and does not train"),
        }
    }
}

/// The failure that explains the others: what came from outside before what the program did, then the first in time.
/// Kubelets report whole seconds: of ends in the same one, a process that was killed, for its memory before all, explains
/// those that exited. Then by slot.
pub(super) fn headline(failures: &[Failure]) -> Option<&Failure> {
    failures.iter().min_by_key(|failure| {
        let outside = match failure.cause.account() {
            Account::Infrastructure => 0,
            Account::Preemption => 1,
            Account::Platform => 2,
            Account::User => 3,
        };
        let memory = failure.cause.is_out_of_memory();
        let killed = failure.cause.exit_code().is_some_and(was_killed);
        (
            outside,
            failure.at.unwrap_or(Timestamp::MAX),
            !memory,
            !killed,
            failure.slot,
        )
    })
}

/// Whether a process with this exit code was ended by SIGBUS, SIGKILL or SIGSEGV: of ends at the same time it explains those that exited.
pub(super) fn was_killed(code: i32) -> bool {
    matches!(code, 135 | 137 | 139)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{job::Exit, job::PodPhase, spec::Role};

    #[test]
    fn accounts() {
        let exit = |code, out_of_memory| {
            Some(Exit {
                code,
                out_of_memory,
                at: None,
            })
        };
        let cases = [
            ("crash", None, exit(1, false), Account::User),
            ("killed", None, exit(137, false), Account::User),
            ("memory", None, exit(137, true), Account::User),
            (
                "evicted without status",
                None,
                None,
                Account::Infrastructure,
            ),
            (
                "preempted",
                Some(Disruption::Preempted),
                exit(143, false),
                Account::Preemption,
            ),
            (
                "drained",
                Some(Disruption::Evicted),
                exit(143, false),
                Account::Platform,
            ),
            (
                "pressure",
                Some(Disruption::NodePressure),
                None,
                Account::Infrastructure,
            ),
            (
                "shutdown",
                Some(Disruption::NodeShutdown),
                None,
                Account::Infrastructure,
            ),
            (
                "tainted",
                Some(Disruption::NodeGone),
                None,
                Account::Infrastructure,
            ),
        ];
        for (name, disruption, exit, want) in cases {
            let pod = ObservedPod {
                exit,
                disruption,
                ..ObservedPod::in_phase(PodPhase::Failed)
            };
            assert_eq!(Cause::of_failed(&pod).account(), want, "{name}");
        }
        assert_eq!(Cause::NodeLost.account(), Account::Infrastructure);
        assert_eq!(Cause::Vanished.account(), Account::Platform);
    }

    #[test]
    fn a_killed_worker_explains_the_peers_that_lost_it() {
        let failure = |index, code, out_of_memory, second| Failure {
            slot: Slot::new(Role::Worker, index),
            cause: Cause::Exited {
                code,
                out_of_memory,
            },
            at: Timestamp::from_second(second).ok(),
        };
        let cases = [
            ("memory, a second later", [(1, false, 7), (137, true, 8)], 0),
            (
                "memory, in the same second",
                [(137, false, 7), (137, true, 7)],
                1,
            ),
            (
                "killed, in the same second",
                [(1, false, 7), (137, false, 7)],
                1,
            ),
            ("killed, later", [(1, false, 7), (137, false, 8)], 0),
            (
                "stopped, in the same second",
                [(1, false, 7), (143, false, 7)],
                0,
            ),
        ];
        for (name, ends, want) in cases {
            let failures: Vec<Failure> = (0..)
                .zip(ends)
                .map(|(index, (code, memory, at))| failure(index, code, memory, at))
                .collect();
            assert_eq!(headline(&failures), failures.get(want), "{name}");
        }
    }

    #[test]
    fn a_lost_node_explains_the_crashes_around_it() {
        let failure = |index, cause, second| Failure {
            slot: Slot::new(Role::Worker, index),
            cause,
            at: Timestamp::from_second(second).ok(),
        };
        let crash = Cause::Exited {
            code: 1,
            out_of_memory: false,
        };
        let failures = [
            failure(0, crash, 9),
            failure(1, crash, 7),
            failure(2, Cause::NodeLost, 60),
        ];
        assert_eq!(headline(&failures), Some(&failures[2]));
        assert_eq!(headline(&failures[..2]), Some(&failures[1]));
        assert_eq!(headline(&[]), None);
    }
}
