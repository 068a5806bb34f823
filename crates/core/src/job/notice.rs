//! The notice that an attempt is to end: what the file says that `TRAINYARD_NOTICE` names, and what came of it.
//!
//! Flow: whoever ends the pods of an attempt writes [`Notice::file`] before the first of them gets SIGTERM, so all ranks learn of one deadline at once.
//! When no pod is left and the store of checkpoints was read after that, [`Notice::outcome`] says whether the job saved.
//!
//! Does not write a file or end a pod, and does not decide that one ends.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{EventKind, EventReason, SeenStore, status::progress::time_words};

/// The form of the file.
const VERSION: u32 = 1;

/// Why an attempt is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NoticeReason {
    /// Somebody stopped the run.
    Stop,
    /// Somebody suspended the job.
    Suspend,
    /// The job was active for `activeDeadlineSeconds`.
    Deadline,
}

/// A notice to all ranks of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Why.
    pub reason: NoticeReason,
    /// The attempt.
    pub attempt: u32,
    /// When it was given.
    pub at: Timestamp,
    /// When the first pod gets SIGKILL.
    pub deadline: Timestamp,
    /// The newest complete step before.
    newest: Option<u64>,
}

/// The file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    version: u32,
    reason: NoticeReason,
    attempt: u32,
    /// Unix seconds.
    deadline: i64,
    seconds_left: u64,
}

impl Notice {
    /// A notice that is given now, where the shortest grace period is `grace` and `store` is what was last seen of the checkpoints.
    pub fn new(
        reason: NoticeReason,
        attempt: u32,
        now: Timestamp,
        grace: Duration,
        store: &SeenStore,
    ) -> Self {
        let newest = match store {
            SeenStore::Seen { store, .. } => store.newest.as_ref().map(|newest| newest.step),
            SeenStore::Unused | SeenStore::Unknown(_) => None,
        };
        Self {
            reason,
            attempt,
            at: now,
            // A grace period beyond the end of time is none.
            deadline: now.checked_add(grace).unwrap_or(Timestamp::MAX),
            newest,
        }
    }

    /// What the file says: one line of JSON.
    pub fn file(&self) -> String {
        let left = self.deadline.duration_since(self.at).as_secs();
        let file = File {
            version: VERSION,
            reason: self.reason,
            attempt: self.attempt,
            deadline: self.deadline.as_second(),
            seconds_left: left.try_into().unwrap_or(0),
        };
        // Numbers and names of our own.
        let mut line = serde_json::to_string(&file).unwrap_or_default();
        line.push('\n');
        line
    }

    /// What came of it, as an event; nothing where the job does not name its checkpoints. `store` was read when no pod was left.
    pub fn outcome(&self, store: &SeenStore) -> Option<(EventKind, EventReason, String)> {
        let (store, at) = match store {
            SeenStore::Unused => return None,
            SeenStore::Unknown(why) => {
                let message = format!("whether the job saved is not known: {why}");
                return Some((EventKind::Warning, EventReason::SaveUnknown, message));
            }
            SeenStore::Seen { store, at } => (store, *at),
        };
        let newest = store.newest.as_ref();
        // Clocks of ranks say whole seconds.
        let is_new = |saved: Timestamp| saved.as_second() >= self.at.as_second();
        let saved = newest.filter(|newest| match newest.saved_at {
            Some(saved) => is_new(saved) && saved <= at,
            None => self.newest.is_none_or(|before| newest.step > before),
        });
        if let Some(newest) = saved {
            let step = newest.step;
            let message = match newest.saved_at {
                Some(saved) => format!("saved at step {step}, {}", self.distance(saved)),
                None => format!("saved at step {step}; when is not recorded"),
            };
            return Some((EventKind::Normal, EventReason::SavedOnNotice, message));
        }
        let mut why = match (store.uncommitted, newest) {
            (Some(step), _) => format!("step {step} is not complete"),
            (None, Some(newest)) => {
                let saved = newest.saved_at.map(|saved| self.at.duration_since(saved));
                let ago = saved.and_then(|ago| Duration::try_from(ago).ok());
                let ago = ago.map_or(String::new(), |ago| {
                    format!(", saved {} before the notice", time_words(ago))
                });
                format!("the newest complete step is {}{ago}", newest.step)
            }
            (None, None) => "no step is complete".to_owned(),
        };
        if let Some(reason) = &store.why {
            why = format!("{why}: {reason}");
        }
        let message = format!("did not save: {why}");
        Some((EventKind::Warning, EventReason::NotSavedOnNotice, message))
    }

    /// How far a time is from the deadline.
    fn distance(&self, saved: Timestamp) -> String {
        let left = self.deadline.as_second() - saved.as_second();
        if left >= 0 {
            format!("{left} s before the deadline")
        } else {
            format!("{} s after the deadline", left.unsigned_abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{CompleteStep, StoreSeen};

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn step(step: u64, saved_at: Option<i64>) -> CompleteStep {
        CompleteStep {
            step,
            attempt: 1,
            bytes: 1,
            snapshot_ms: None,
            write_ms: None,
            saved_at: saved_at.map(time),
        }
    }

    fn seen(newest: Option<CompleteStep>, uncommitted: Option<u64>) -> SeenStore {
        let store = StoreSeen {
            newest,
            uncommitted,
            ..StoreSeen::default()
        };
        SeenStore::Seen {
            store: Box::new(store),
            at: time(1_100),
        }
    }

    fn notice() -> Notice {
        let before = seen(Some(step(40, Some(900))), None);
        let grace = Duration::from_secs(30);
        Notice::new(NoticeReason::Suspend, 2, time(1_000), grace, &before)
    }

    #[test]
    fn file_has_reason_and_deadline() {
        let file = notice().file();
        let want = "{\"version\":1,\"reason\":\"suspend\",\"attempt\":2,\"deadline\":1030,\"secondsLeft\":30}\n";
        assert_eq!(file, want);
        let endless = Notice::new(
            NoticeReason::Stop,
            1,
            time(0),
            Duration::MAX,
            &SeenStore::Unused,
        );
        assert_eq!(endless.deadline, Timestamp::MAX);
    }

    #[test]
    fn outcome_says_what_was_saved() {
        let cases = [
            (SeenStore::Unused, None),
            (
                SeenStore::Unknown("permission denied".to_owned()),
                Some((
                    EventReason::SaveUnknown,
                    "whether the job saved is not known: permission denied",
                )),
            ),
            (
                seen(Some(step(60, Some(1_018))), None),
                Some((
                    EventReason::SavedOnNotice,
                    "saved at step 60, 12 s before the deadline",
                )),
            ),
            (
                seen(Some(step(60, Some(1_031))), None),
                Some((
                    EventReason::SavedOnNotice,
                    "saved at step 60, 1 s after the deadline",
                )),
            ),
            (
                seen(Some(step(60, None)), None),
                Some((
                    EventReason::SavedOnNotice,
                    "saved at step 60; when is not recorded",
                )),
            ),
            (
                seen(Some(step(40, None)), None),
                Some((
                    EventReason::NotSavedOnNotice,
                    "did not save: the newest complete step is 40",
                )),
            ),
            (
                seen(Some(step(40, Some(900))), None),
                Some((
                    EventReason::NotSavedOnNotice,
                    "did not save: the newest complete step is 40, saved 100 s before the notice",
                )),
            ),
            (
                seen(Some(step(40, Some(900))), Some(60)),
                Some((
                    EventReason::NotSavedOnNotice,
                    "did not save: step 60 is not complete",
                )),
            ),
            (
                seen(None, None),
                Some((
                    EventReason::NotSavedOnNotice,
                    "did not save: no step is complete",
                )),
            ),
            (
                // A clock that is ahead of the look that saw it is no proof.
                seen(Some(step(40, Some(5_000))), None),
                Some((
                    EventReason::NotSavedOnNotice,
                    "did not save: the newest complete step is 40",
                )),
            ),
        ];
        for (store, want) in cases {
            let outcome = notice().outcome(&store);
            let got = outcome
                .as_ref()
                .map(|(_, reason, message)| (*reason, &**message));
            assert_eq!(got, want, "{store:?}");
        }
    }
}
