//! How far the gang of an attempt is on its way to its assigned nodes (its seats).
//!
//! Stored as the loose fields `seatedAt`, `whole`, `heldFirst` and `givenBack`, as earlier versions read and write them. A mix of
//! them that no version can have decided is read as the phase that is furthest.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::is_zero;

/// What the gang of this attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredPhase", into = "StoredPhase")]
pub enum GangPhase {
    /// For nodes.
    Asking(FailedStarts),
    /// Its pods may start on their nodes since then; not all of them have run at once.
    Assigned {
        /// When the first pod was allowed to its node.
        since: Timestamp,
        /// The starts before this one.
        failed: FailedStarts,
    },
    /// For nothing: all of it has run at once.
    Whole,
    /// For pods that were replaced or added after all of it had run.
    Refilling {
        /// When the first of them was allowed to its node.
        since: Timestamp,
    },
}

/// Starts of a gang in a row that failed: it released its nodes because it did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedStarts {
    /// How many.
    pub times: u32,
    /// Whether the pods are created gated before nodes are requested: some were refused the last time.
    pub pods_first: bool,
}

impl Default for GangPhase {
    fn default() -> Self {
        Self::Asking(FailedStarts::default())
    }
}

impl GangPhase {
    /// Since when pods are starting on their nodes.
    pub fn starting_since(self) -> Option<Timestamp> {
        match self {
            Self::Assigned { since, .. } | Self::Refilling { since } => Some(since),
            Self::Asking(_) | Self::Whole => None,
        }
    }

    /// Whether all of the gang has run at once in this attempt.
    pub fn has_run(self) -> bool {
        matches!(self, Self::Whole | Self::Refilling { .. })
    }

    /// The starts that failed since all of the gang last ran.
    pub fn failed_starts(self) -> FailedStarts {
        match self {
            Self::Asking(failed) | Self::Assigned { failed, .. } => failed,
            Self::Whole | Self::Refilling { .. } => FailedStarts::default(),
        }
    }

    /// The phase once pods are allowed to their nodes.
    #[must_use]
    pub(in crate::job) fn assigned(self, now: Timestamp) -> Self {
        match self {
            Self::Asking(failed) => Self::Assigned { since: now, failed },
            Self::Whole => Self::Refilling { since: now },
            Self::Assigned { .. } | Self::Refilling { .. } => self,
        }
    }

    /// The phase in which the next attempt begins.
    #[must_use]
    pub(in crate::job) fn next_attempt(self) -> Self {
        Self::Asking(self.failed_starts())
    }

    /// The phase in which the attempt after a failed start begins. `refused` where a pod could not be created.
    #[must_use]
    pub(in crate::job) fn after_failed_start(self, refused: bool) -> Self {
        let failed = self.failed_starts();
        Self::Asking(FailedStarts {
            times: failed.times.saturating_add(1),
            pods_first: failed.pods_first || refused,
        })
    }
}

/// The phase as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredPhase {
    #[serde(skip_serializing_if = "Option::is_none")]
    seated_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    whole: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    held_first: bool,
    #[serde(skip_serializing_if = "is_zero")]
    given_back: u32,
}

impl From<StoredPhase> for GangPhase {
    fn from(stored: StoredPhase) -> Self {
        let failed = FailedStarts {
            times: stored.given_back,
            pods_first: stored.held_first,
        };
        match (stored.whole, stored.seated_at) {
            (false, None) => Self::Asking(failed),
            (false, Some(since)) => Self::Assigned { since, failed },
            (true, None) => Self::Whole,
            (true, Some(since)) => Self::Refilling { since },
        }
    }
}

impl From<GangPhase> for StoredPhase {
    fn from(phase: GangPhase) -> Self {
        let failed = phase.failed_starts();
        Self {
            seated_at: phase.starting_since(),
            whole: phase.has_run(),
            held_first: failed.pods_first,
            given_back: failed.times,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stored_fields_stay() {
        let since = Timestamp::UNIX_EPOCH;
        let failed = FailedStarts {
            times: 3,
            pods_first: true,
        };
        let cases = [
            (GangPhase::default(), json!({})),
            (
                GangPhase::Asking(failed),
                json!({ "heldFirst": true, "givenBack": 3 }),
            ),
            (
                GangPhase::Assigned { since, failed },
                json!({ "seatedAt": since, "heldFirst": true, "givenBack": 3 }),
            ),
            (GangPhase::Whole, json!({ "whole": true })),
            (
                GangPhase::Refilling { since },
                json!({ "seatedAt": since, "whole": true }),
            ),
        ];
        for (phase, stored) in cases {
            assert_eq!(serde_json::to_value(phase).unwrap(), stored);
            assert_eq!(serde_json::from_value::<GangPhase>(stored).unwrap(), phase);
        }
    }

    #[test]
    fn impossible_mix_reads_as_furthest_phase() {
        let stored = json!({ "whole": true, "heldFirst": true, "givenBack": 3 });
        let read: GangPhase = serde_json::from_value(stored).unwrap();
        assert_eq!(read, GangPhase::Whole);
        assert_eq!(read.next_attempt(), GangPhase::default());
    }
}
