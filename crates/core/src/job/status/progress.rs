//! How far the training is, as the status keeps it.
//!
//! It is for people and dashboards: no decision rests on it. It is written together with what has to be written
//! anyway, and by itself at most once in [`RECORD_EVERY`], so that a thousand jobs that report ten times in a second do
//! not keep the API server busy.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::JobRecord;
use crate::{job::Progress, ledger::Phase, progress::Figure};

/// How often the record is written where nothing else of the status changes.
pub const RECORD_EVERY: Duration = Duration::from_secs(5);

/// `status.trainyard.progress`: what the training program of an attempt reported last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressRecord {
    /// The attempt that reported it.
    pub attempt: u32,
    /// The last step.
    pub step: u64,
    /// The number of steps after which the training ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    /// The last epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Figure>,
    /// The last loss, as text: it can be `NaN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Figure>,
    /// The step since which every loss was NaN or infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nan_since: Option<u64>,
    /// The step since which every norm of the gradients was NaN or infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grad_nan_since: Option<u64>,
    /// How often loss or norm were NaN or infinite and recovered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overflows: u64,
    /// When the last step was reported.
    pub last_step_at: Timestamp,
    /// The median time of one step in seconds, as text, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_seconds: Option<Figure>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl From<&Progress> for ProgressRecord {
    fn from(progress: &Progress) -> Self {
        // Three digits are as many as a person reads, and a median moves in the fourth with every step.
        let rounded = |seconds: Figure| format!("{:.2e}", seconds.0).parse().map(Figure);
        Self {
            attempt: progress.attempt,
            step: progress.step,
            total_steps: progress.total_steps,
            epoch: progress.epoch,
            loss: progress.loss,
            nan_since: progress.nan_since,
            grad_nan_since: progress.grad_nan_since,
            overflows: progress.overflows,
            last_step_at: Timestamp::from_millisecond(progress.at.as_millisecond())
                .unwrap_or(progress.at),
            step_seconds: progress.step_seconds.and_then(|time| rounded(time).ok()),
        }
    }
}

impl ProgressRecord {
    /// Whether `newer` must be written at once: it is of another attempt, or NaN began or ended.
    pub fn is_outdated_by(&self, newer: &Self) -> bool {
        (self.attempt, self.nan_since, self.grad_nan_since)
            != (newer.attempt, newer.nan_since, newer.grad_nan_since)
    }

    /// When `newer` is to be written, where nothing else is before that.
    pub fn due_at(&self) -> Timestamp {
        let due = self.last_step_at.checked_add(RECORD_EVERY);
        due.unwrap_or(Timestamp::MAX)
    }

    /// What is wrong with its numbers, such as ``loss is NaN since step 20``.
    pub fn complaint(&self) -> Option<String> {
        complaint(self.loss, self.nan_since, self.grad_nan_since)
    }
}

impl JobRecord {
    /// How far the current attempt is, once it reported a step.
    pub fn attempt_progress(&self) -> Option<&ProgressRecord> {
        let record = self.progress.as_ref();
        record.filter(|record| record.attempt == self.attempt)
    }

    /// How long no step was reported, and how long steps took, while the job counts as stalled, such as
    /// `no step for 45 s; steps took 0.1 s`.
    pub fn stall(&self, now: Timestamp) -> Option<String> {
        let open = self.ledger.open?;
        if open.phase != Phase::Stalled {
            return None;
        }
        let record = self.attempt_progress();
        let since = record.map_or(open.since, |record| record.last_step_at);
        let mut text = format!("no step for {}", time_words(elapsed(since, now)));
        let took = record.and_then(|record| record.step_seconds);
        if let Some(took) = took.and_then(|took| Duration::try_from_secs_f64(took.0).ok()) {
            text.push_str("; steps took ");
            text.push_str(&time_words(took));
        }
        Some(text)
    }
}

pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// A time in words, such as `0.1 s`, `45 s` or `12 min`.
pub fn time_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match time.as_millis() {
        0..100 => format!("{} ms", time.as_millis()),
        100..9_950 => format!("{:.1} s", time.as_secs_f64()),
        9_950..120_000 => format!("{:.0} s", time.as_secs_f64()),
        120_000..7_200_000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

/// What is wrong with the numbers of a training program.
fn complaint(
    loss: Option<Figure>,
    nan_since: Option<u64>,
    grad_nan_since: Option<u64>,
) -> Option<String> {
    if let Some(step) = nan_since {
        let what = loss.filter(|loss| !loss.0.is_nan());
        let what = what.map_or("NaN", |_| "infinite");
        return Some(format!("loss is {what} since step {step}"));
    }
    let step = grad_nan_since?;
    Some(format!("gradient norm is not finite since step {step}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{JobStatus, testing::at},
        ledger::OpenSpan,
    };

    fn record() -> ProgressRecord {
        ProgressRecord {
            loss: Some(Figure(f64::NAN)),
            nan_since: Some(20),
            step_seconds: Some(Figure(0.1)),
            ..ProgressRecord::from(&Progress::new(1, 200, at(0)))
        }
    }

    #[test]
    fn record_round_trip_keeps_nan() {
        let mut status = JobStatus::default();
        status.trainyard.progress = Some(record());
        let stored = serde_json::to_value(&status).unwrap();
        assert_eq!(
            stored["trainyard"]["progress"],
            serde_json::json!({
                "attempt": 1, "step": 200, "loss": "NaN", "nanSince": 20,
                "lastStepAt": "2027-01-15T08:00:00Z", "stepSeconds": "0.1",
            })
        );
        let read: JobStatus = serde_json::from_value(stored).unwrap();
        assert_eq!(read, status, "a status with NaN equals itself");
        assert!(read.kept.is_empty());
    }

    #[test]
    fn unreadable_record_is_kept() {
        let stored = serde_json::json!({
            "conditions": [], "trainyard": {"attempt": 1, "progress": {"step": "many"}},
        });
        let read: JobStatus = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(
            (read.trainyard.attempt, &read.trainyard.progress),
            (1, &None)
        );
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    }

    #[test]
    fn stall_in_words() {
        let mut record = JobRecord {
            attempt: 1,
            progress: Some(record()),
            ..JobRecord::default()
        };
        assert_eq!(record.stall(at(45)), None);
        record.ledger.open = Some(OpenSpan {
            attempt: 1,
            phase: Phase::Stalled,
            since: at(0),
        });
        let words = record.stall(at(45));
        assert_eq!(words.as_deref(), Some("no step for 45 s; steps took 0.1 s"));
        record.progress = None;
        assert_eq!(record.stall(at(600)).as_deref(), Some("no step for 10 min"));
    }

    #[test]
    fn complaints() {
        let of = |loss, nan, grad| complaint(Some(Figure(loss)), nan, grad);
        assert_eq!(of(0.5, None, None), None);
        let cases = [
            (f64::NAN, Some(20), None, "loss is NaN since step 20"),
            (
                f64::INFINITY,
                Some(7),
                Some(5),
                "loss is infinite since step 7",
            ),
            (
                0.0,
                None,
                Some(5),
                "gradient norm is not finite since step 5",
            ),
        ];
        for (loss, nan, grad, want) in cases {
            assert_eq!(of(loss, nan, grad).as_deref(), Some(want));
        }
    }

    #[test]
    fn times_in_words() {
        let cases = [
            (20, "20 ms"),
            (100, "0.1 s"),
            (9_949, "9.9 s"),
            (9_950, "10 s"),
            (45_000, "45 s"),
            (720_000, "12 min"),
            (7_300_000, "2 h"),
        ];
        for (millis, want) in cases {
            assert_eq!(time_words(Duration::from_millis(millis)), want);
        }
    }
}
