//! What is known of the checkpoints of a job, as the status keeps it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    JobRecord,
    progress::{elapsed, time_words},
};
use crate::checkpoint::{CompleteStep, ResumedFrom};

/// `status.trainyard.checkpoint`: what was seen in the folder that `trainyard.dev/checkpoints` names, and what the attempt resumes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointRecord {
    /// The newest complete step; where the store cannot be read, the last one that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<CompleteStep>,
    /// A later step that is not committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<u64>,
    /// Why no step is complete, why a later one is not restored, or why the store cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Since when the store cannot be read; nothing while it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable_since: Option<Timestamp>,
    /// How many attempts the store had before the first of this job, once that is known. The store counts an attempt as this number more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier_attempts: Option<u32>,
    /// The attempt that what follows is about.
    pub attempt: u32,
    /// The complete step that was known when the pods of the attempt were created: what they are given. Nothing where none was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_step: Option<u64>,
    /// What the attempt resumed from, as its record in the store says. That decides over `resume_step`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<ResumedFrom>,
    /// Whether it was reported that the attempt began at its first step although a step was complete.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_restored: bool,
    /// Whether it was reported that a save takes longer than the grace time of the pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub short_grace: bool,
    /// The last save of the attempt whose stall the ledger has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_step: Option<u64>,
}

impl CheckpointRecord {
    /// How the store counts `attempt` of the job, where that is known.
    pub fn store_attempt(&self, attempt: u32) -> Option<u32> {
        self.earlier_attempts?.checked_add(attempt)
    }

    /// Whether a complete step was saved by `attempt` of the job.
    pub fn saved_by(&self, attempt: u32) -> Option<&CompleteStep> {
        let store = self.store_attempt(attempt)?;
        self.newest
            .as_ref()
            .filter(|newest| newest.attempt == store)
    }

    /// Whether an attempt of this job saved a step, so that the store shows how long training stands still for a save.
    pub fn measures_saves(&self) -> bool {
        let newest = self.newest.as_ref().map(|newest| newest.attempt);
        matches!((newest, self.earlier_attempts), (Some(newest), Some(earlier)) if newest > earlier)
    }

    /// The newest step in words, such as `step 1200, 40 s ago, 2.1 GB in 1.3 s (1.6 GB/s)`.
    pub fn words(&self, now: Timestamp) -> String {
        let newest = match &self.newest {
            None => "no complete step".to_owned(),
            Some(newest) => step_words(newest, now),
        };
        let uncommitted = self.uncommitted;
        let uncommitted = uncommitted.map(|step| format!("step {step} is not committed"));
        let why = match (&self.why, self.unreadable_since) {
            (Some(why), Some(since)) => {
                let time = time_words(elapsed(since, now));
                Some(format!("not readable for {time}: {why}"))
            }
            (why, _) => why.clone(),
        };
        let parts = [Some(newest), uncommitted, why];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join("; ")
    }
}

impl JobRecord {
    /// The furthest step that this attempt trains again, where an earlier one trained further than it resumed from.
    pub fn redone_until(&self) -> Option<u64> {
        let best = self.ledger.best_step?;
        let record = self.checkpoint.as_ref();
        let record = record.filter(|record| record.attempt == self.attempt);
        match record.and_then(|record| record.resumed_from) {
            Some(ResumedFrom::Step(step)) if step >= best => None,
            _ => Some(best),
        }
    }
}

fn step_words(newest: &CompleteStep, now: Timestamp) -> String {
    // A clock that is ahead of this one gives no age rather than a wrong one.
    let age = match newest.saved_at {
        Some(at) if at <= now => format!("{} ago", time_words(elapsed(at, now))),
        _ => "age unknown".to_owned(),
    };
    let time = newest.write_ms.map(|millis| {
        let time = time_words(Duration::from_millis(millis));
        format!(" in {time}")
    });
    let rate = newest.bytes_per_second();
    let rate = rate.map(|rate| format!(" ({}/s)", bytes_words(rate)));
    format!(
        "step {}, {age}, {}{}{}",
        newest.step,
        bytes_words(newest.bytes),
        time.unwrap_or_default(),
        rate.unwrap_or_default()
    )
}

/// Bytes in words, such as `2.1 GB`.
pub fn bytes_words(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TB", 1_000_000_000_000),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
    ];
    let found = UNITS.into_iter().find(|(_, unit)| bytes >= *unit);
    let Some((name, unit)) = found else {
        return format!("{bytes} B");
    };
    let tenths = u128::from(bytes) * 10 / u128::from(unit);
    if tenths >= 1_000 {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::testing::at;

    fn newest() -> CompleteStep {
        CompleteStep {
            step: 1200,
            attempt: 3,
            bytes: 2_100_000_000,
            snapshot_ms: Some(3),
            write_ms: Some(1_300),
            saved_at: Some(at(0)),
        }
    }

    #[test]
    fn newest_step_in_words() {
        let whole = CheckpointRecord {
            newest: Some(newest()),
            ..CheckpointRecord::default()
        };
        let unknown = CompleteStep {
            snapshot_ms: None,
            write_ms: None,
            saved_at: Some(at(99)),
            ..newest()
        };
        let cases = [
            (
                whole.clone(),
                "step 1200, 40 s ago, 2.1 GB in 1.3 s (1.6 GB/s)",
            ),
            (
                CheckpointRecord {
                    newest: Some(unknown),
                    uncommitted: Some(1300),
                    ..whole.clone()
                },
                "step 1200, age unknown, 2.1 GB; step 1300 is not committed",
            ),
            (
                CheckpointRecord {
                    newest: None,
                    why: Some("it hangs".to_owned()),
                    unreadable_since: Some(at(10)),
                    ..whole.clone()
                },
                "no complete step; not readable for 30 s: it hangs",
            ),
            (
                CheckpointRecord {
                    newest: None,
                    why: Some("step 5: suspect: torn".to_owned()),
                    ..whole
                },
                "no complete step; step 5: suspect: torn",
            ),
        ];
        for (record, want) in cases {
            assert_eq!(record.words(at(40)), want);
        }
    }

    #[test]
    fn bytes_in_words() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (2_150_000, "2.1 MB"),
            (123_456_000_000, "123 GB"),
            (u64::MAX, "18446744 TB"),
        ];
        for (bytes, want) in cases {
            assert_eq!(bytes_words(bytes), want);
        }
    }

    #[test]
    fn nothing_is_redone_behind_the_furthest_step() {
        let record = |resumed_from, best_step| {
            let mut record = JobRecord {
                attempt: 2,
                checkpoint: Some(CheckpointRecord {
                    attempt: 2,
                    resumed_from,
                    ..CheckpointRecord::default()
                }),
                ..JobRecord::default()
            };
            record.ledger.best_step = best_step;
            record.redone_until()
        };
        let cases = [
            (None, Some(50), Some(50)),
            (Some(ResumedFrom::Unknown), Some(50), Some(50)),
            (Some(ResumedFrom::Nothing), Some(50), Some(50)),
            (Some(ResumedFrom::Step(40)), Some(50), Some(50)),
            (Some(ResumedFrom::Step(50)), Some(50), None),
            (Some(ResumedFrom::Step(40)), None, None),
        ];
        for (from, best, want) in cases {
            assert_eq!(record(from, best), want, "{from:?} {best:?}");
        }
    }
}
