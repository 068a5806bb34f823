//! From a stored object to its job, and what is written where there is none.
//!
//! Owns the sentence about a job that cannot be read, and about a status that cannot be: each is written or reported once.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;
use trainyard_core::{
    finding::Severity,
    job::{Event, EventKind, EventReason, Unreadable},
    launch,
    reason::{Reason, StoredReason},
    spec::{self, Job, Kind},
};

use super::Operator;
use crate::{api::CallError, clock, convert, key::JobKey, metrics::cause, view::JobView};

/// A job whose runtime cannot be stored beside it is tried again after this.
const BLOCKED: Duration = Duration::from_secs(30);

/// What came of reading a job.
pub(super) enum Read {
    /// The job, and the runtime that it is to be pinned to, unless it is.
    Job(Box<Job>, Option<Arc<Value>>),
    /// It is not valid, in one sentence.
    Invalid(String),
    /// It waits for what is not there.
    Waits(Reason),
    /// Something is in its way that is not watched, in one sentence.
    Blocked(String),
    /// Nothing is to be done now.
    Leave,
}

/// A job to decide about, with the runtime that it is to be pinned to; else when to read it again.
type Readable = Result<(Job, Option<Arc<Value>>), Option<Instant>>;

impl Operator {
    /// The job of `view`. Where there is none, that is written to its status.
    pub(super) async fn read_job(
        &self,
        key: &JobKey,
        view: &JobView,
    ) -> Result<Readable, CallError> {
        let read = if key.kind == Kind::Train {
            self.read_train_job(key, view).await?
        } else {
            match read(view) {
                Ok(job) => Read::Job(Box::new(job), None),
                Err(message) => Read::Invalid(message),
            }
        };
        let (reason, event, again) = match read {
            Read::Job(job, runtime) => match self.permitted(*job) {
                Ok(job) => return Ok(Ok((job, runtime))),
                Err(why) => (Reason::Invalid { why }, invalid_event(key.kind), None),
            },
            Read::Invalid(why) => (Reason::Invalid { why }, invalid_event(key.kind), None),
            Read::Waits(reason) => {
                let event = EventReason::WaitingForRuntime.of(key.kind);
                (reason, event, None)
            }
            Read::Blocked(why) => {
                let event = EventReason::Refused.of(key.kind);
                let again = Some(Instant::now() + BLOCKED);
                (Reason::Invalid { why }, event, again)
            }
            Read::Leave => return Ok(Err(None)),
        };
        self.refuse(key, view, &reason, event).await?;
        Ok(Err(again))
    }

    /// `job`, unless its pods would run as this operator.
    fn permitted(&self, job: Job) -> Result<Job, String> {
        match launch::account_refusal(&job, &self.cluster) {
            None => Ok(job),
            Some(message) => {
                self.caller.metrics.refused(cause::OPERATOR_ACCOUNT);
                Err(message)
            }
        }
    }

    /// Marks a job that cannot be understood, or not yet; nothing else is done for it until that changes.
    async fn refuse(
        &self,
        key: &JobKey,
        view: &JobView,
        reason: &Reason,
        event: String,
    ) -> Result<(), CallError> {
        let message = reason.to_string();
        if let Some(shadow) = &self.shadow {
            self.log_refusal_in_shadow(shadow, key, view, &message);
            return Ok(());
        }
        self.release_unused_seats(key);
        let before = match view.read_status() {
            Ok(status) => status,
            Err(why) => {
                self.report_unreadable_status(key, view, &why);
                return Ok(());
            }
        };
        self.status_is_readable(key);
        let mut after = before.clone();
        after.trainyard.waiting = Some(StoredReason::from(reason));
        if after == before {
            return Ok(());
        }
        warn!(job = %key, sentence = message, "The job cannot run as it is");
        self.write_status(key, view, None, &before, &after, clock::now())
            .await?;
        let event = Event {
            kind: EventKind::Warning,
            reason: event,
            message,
        };
        self.emit_event(key, &view.metadata.uid, 0, &event);
        Ok(())
    }

    /// Reports a status that cannot be read, once for each reason. Nothing is done for the job, and nothing is
    /// written: the next write would lose what is stored.
    pub(super) fn report_unreadable_status(&self, key: &JobKey, view: &JobView, why: &Unreadable) {
        self.caller.metrics.readable(key, false);
        if why.has_ended() {
            // Whatever else its status holds, it holds no nodes any more.
            self.state.store().fleet.queue.forget(&key.gang());
            self.notify_wait_queue();
        } else {
            self.release_unused_seats(key);
        }
        let sentence = why.to_string();
        if self.state.memory(key).unreadable.as_ref() == Some(&sentence) {
            return;
        }
        warn!(job = %key, sentence, "Cannot read the status of the job");
        let event = Event {
            kind: EventKind::Warning,
            reason: "StatusUnreadable".to_owned(),
            message: sentence.clone(),
        };
        self.emit_event(key, &view.metadata.uid, 0, &event);
        self.state
            .remember(key, |memory| memory.unreadable = Some(sentence));
    }

    pub(super) fn status_is_readable(&self, key: &JobKey) {
        if self.state.memory(key).unreadable.is_some() {
            self.caller.metrics.readable(key, true);
            self.state.remember(key, |memory| memory.unreadable = None);
        }
    }
}

/// The reason of the event on a job that is not valid.
fn invalid_event(kind: Kind) -> String {
    match kind {
        Kind::MpiV2 => "ValidationError".to_owned(),
        kind => format!("{}FailedValidation", kind.name()),
    }
}

/// The job of an object, or one sentence why it is none.
fn read(view: &JobView) -> Result<Job, String> {
    let object: Value =
        serde_json::from_str(&view.text).map_err(|error| format!("it is not JSON: {error}"))?;
    let object = if view.kind.is_some_and(Kind::is_mpi) {
        convert::as_created(&object).map_err(|error| error.to_string())?
    } else {
        object
    };
    job_or_sentence(spec::job_from_value(&object))
}

/// The job of what was checked, or one sentence why it is none.
pub(super) fn job_or_sentence(checked: spec::Checked) -> Result<Job, String> {
    let spec::Checked { job, findings, .. } = checked;
    job.ok_or_else(|| {
        let mut errors = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error);
        let first = errors.next();
        let more = errors.count();
        let Some(first) = first else {
            return "the job is not valid".to_owned();
        };
        let mut text = first.to_string();
        if let Some(hint) = &first.hint {
            text = format!("{text}; {hint}");
        }
        if more > 0 {
            text = format!("{text}; and {more} more");
        }
        text
    })
}
