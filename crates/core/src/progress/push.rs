//! What a training program sends about its progress, in the form of Kubeflow Trainer's protocol.
//!
//! The body of a request is `{"trainerStatus": {"progressPercentage": 42, "metrics": [{"name": "loss", "value": "0.4"}], …}}`.
//! Metrics have any names; the table of the line reader says what they mean, so that `loss` is the same thing printed and sent.
//!
//! # Guarantees
//!
//! A body that the protocol does not allow is refused as a whole, with the field that is wrong. A metric whose name is not known, or
//! whose value is not a number, changes nothing. The percentage, the remaining time and the sender's clock are checked and not
//! kept: they are estimates, and everything that is kept of a job is counted in steps.

mod senders;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::{
    Reading,
    names::{self, Field, PARTS, Trust},
};

pub use senders::{Digest, Judgement, Senders, UPDATES_A_SECOND};

/// Bytes of a body, at most.
pub const BYTES: usize = 64 << 10;
/// Metrics of one update, at most.
const METRICS: usize = 256;
/// Characters of a name, and of a value, at most.
const CHARS: usize = 64;
/// Whole numbers up to this are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// The status; a body without one is allowed and changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trainer_status: Option<TrainerStatus>,
}

/// What the program says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrainerStatus {
    /// How much of the training is done, from 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percentage: Option<i32>,
    /// How long it takes to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_remaining_seconds: Option<i32>,
    /// Numbers as text, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<Metric>>,
    /// When that was so, by the sender's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated_time: Option<String>,
}

/// One number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The number as text.
    #[serde(default)]
    pub value: String,
}

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PushError {
    /// It is not of the form of the protocol.
    #[error("the body is not an update of the form `{{\"trainerStatus\": {{…}}}}`: {0}")]
    Form(String),
    /// A field has a value that the protocol does not allow.
    #[error("`trainerStatus.{field}` must be {needed}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        needed: &'static str,
    },
}

/// Reads a body.
pub fn update(body: &[u8]) -> Result<Update, PushError> {
    let form = |error: serde_json::Error| PushError::Form(error.to_string());
    let value: Value = serde_json::from_slice(body).map_err(form)?;
    // serde takes a list for an object whose fields it holds in order.
    let status = value.get("trainerStatus").unwrap_or(&Value::Null);
    let metrics = status.get("metrics").and_then(Value::as_array);
    let all_objects = value.is_object()
        && (status.is_object() || status.is_null())
        && metrics.into_iter().flatten().all(Value::is_object);
    if !all_objects {
        return Err(PushError::Form(
            "found a value in place of an object".to_owned(),
        ));
    }
    let update: Update = serde_json::from_value(value).map_err(form)?;
    if let Some(status) = &update.trainer_status {
        status.check()?;
    }
    Ok(update)
}

impl TrainerStatus {
    fn check(&self) -> Result<(), PushError> {
        let need = |holds: bool, field, needed| {
            if holds {
                Ok(())
            } else {
                Err(PushError::Field { field, needed })
            }
        };
        let percentage = self.progress_percentage.unwrap_or(0);
        need(
            (0..=100).contains(&percentage),
            "progressPercentage",
            "a whole number from 0 to 100",
        )?;
        need(
            self.estimated_remaining_seconds.unwrap_or(0) >= 0,
            "estimatedRemainingSeconds",
            "a whole number of seconds, 0 or more",
        )?;
        let metrics = self.metrics.as_deref().unwrap_or_default();
        need(
            metrics.len() <= METRICS,
            "metrics",
            "a list of at most 256 metrics",
        )?;
        let fits = |text: &str| (1..=CHARS).contains(&text.chars().count());
        need(
            metrics.iter().all(|metric| fits(&metric.name)),
            "metrics[].name",
            "a text of 1 to 64 characters",
        )?;
        need(
            metrics.iter().all(|metric| fits(&metric.value)),
            "metrics[].value",
            "a number as a text of 1 to 64 characters",
        )?;
        let time = self.last_updated_time.as_deref();
        need(
            time.is_none_or(|time| time.parse::<Timestamp>().is_ok()),
            "lastUpdatedTime",
            "a time with its zone, such as `2026-01-31T12:00:00Z`",
        )
    }

    /// What it reports. Of several metrics that mean the same, the surest name counts, and of equal ones the last.
    pub fn reading(&self) -> Reading {
        let metrics = self.metrics.as_deref().unwrap_or_default();
        // HF's trainer ends with means over the whole training, which are not last values.
        let is_summary = metrics.iter().any(|metric| metric.name == "train_runtime");
        let mut reading = Reading::default();
        let (mut step, mut loss, mut samples) = (None, None, None);
        for metric in metrics {
            if is_summary && metric.name.starts_with("train_") {
                continue;
            }
            let Some((field, number)) = metric.meaning() else {
                continue;
            };
            let rate = positive(number);
            match field {
                Field::Step(trust) => prefer(&mut step, trust, whole(number)),
                Field::LastStep => reading.last_step = whole(number).or(reading.last_step),
                Field::Epoch => reading.epoch = rate.or(reading.epoch),
                // A plain `loss` is surer than any other name of one.
                Field::Loss(sure) => {
                    let plain = metric.name.eq_ignore_ascii_case("loss");
                    prefer(&mut loss, (plain, sure), Some(number));
                }
                Field::GradNorm => reading.grad_norm = Some(number),
                Field::LearningRate => reading.learning_rate = rate.or(reading.learning_rate),
                Field::TokensPerSecond => {
                    reading.tokens_per_second = rate.or(reading.tokens_per_second);
                }
                Field::SamplesPerSecond(newer) => prefer(&mut samples, newer, rate),
                Field::StepSeconds => reading.step_seconds = rate.or(reading.step_seconds),
                Field::StepMillis => {
                    let seconds = rate.map(|millis| millis / 1_000.0);
                    reading.step_seconds = seconds.or(reading.step_seconds);
                }
                // A name that means something only beside other words.
                Field::Batch | Field::Seconds | Field::Time => {}
            }
        }
        reading.step = step.map(|(_, step): (Trust, u64)| step);
        reading.loss = loss.map(|(_, loss)| loss);
        reading.samples_per_second = samples.map(|(_, rate)| rate);
        let steps = reading.last_step.zip(reading.step);
        if steps.is_some_and(|(last, step)| last < step) {
            reading.last_step = None;
        }
        reading
    }
}

impl Metric {
    /// What it is, and its number.
    fn meaning(&self) -> Option<(Field, f64)> {
        let name = self.name.trim().to_ascii_lowercase();
        let mut parts = [""; PARTS];
        let count = names::split(&name, &mut parts);
        let parts = parts.get(..count)?;
        if parts.iter().any(|part| names::is_evaluation(part)) {
            return None;
        }
        let field = names::field(parts, &[])?;
        let number = self.value.trim().parse().ok()?;
        Some((field, number))
    }
}

/// Takes `new` in place of `kept` unless that is surer.
fn prefer<S: PartialOrd, T>(kept: &mut Option<(S, T)>, sure: S, new: Option<T>) {
    if let Some(new) = new
        && kept.as_ref().is_none_or(|(kept, _)| sure >= *kept)
    {
        *kept = Some((sure, new));
    }
}

/// A number of steps; some programs write it as `5.0`.
fn whole(number: f64) -> Option<u64> {
    let is_whole = number.fract() == 0.0 && (0.0..=EXACT).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number that a double holds exactly"
    )]
    is_whole.then_some(number as u64)
}

fn positive(number: f64) -> Option<f64> {
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests;
