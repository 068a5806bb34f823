//! What Events say and how they are folded. Pure: no clock, no calls.
//!
//! # Bounds
//! - A job of at most [`SINGLE`] pods has an Event for each pod and reason, with the Go operator's message.
//! - A larger job has one Event for each reason and attempt: its `count` is the number of pods, its message names the first
//!   [`NAMED`] and the number of the others.
//! - Failures to create or delete pods are one Event for each reason and attempt, whatever the size of the job, because their
//!   messages name the pod. The message is that of the last failure.

use std::collections::BTreeMap;

use trainyard_core::{
    job::{Event, EventKind},
    probe::fingerprint,
};

/// Jobs of at most so many pods have an Event for each of them.
pub(crate) const SINGLE: u32 = 8;
/// Pods that an Event names.
pub(crate) const NAMED: usize = 3;
/// Longest message of an Event, below the 1,024 bytes that `events.k8s.io` allows.
const MESSAGE_BYTES: usize = 1_000;

/// What happened to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PodChange {
    Created,
    /// A worker of an `MPIJob` v1, for which the Go operator has another message.
    CreatedWorker,
    CreateFailed,
    Deleted,
    DeleteFailed,
    Exited,
}

impl PodChange {
    fn reason(self) -> &'static str {
        match self {
            Self::Created | Self::CreatedWorker => "SuccessfulCreatePod",
            Self::CreateFailed => "FailedCreatePod",
            Self::Deleted => "SuccessfulDeletePod",
            Self::DeleteFailed => "FailedDeletePod",
            Self::Exited => "ExitedWithCode",
        }
    }

    /// What comes before the name of one pod, and before those of several; or before an error.
    fn prefix(self) -> (&'static str, &'static str) {
        match self {
            Self::Created => ("Created pod: ", "Created pods: "),
            Self::CreatedWorker => ("Created worker pod: ", "Created worker pods: "),
            Self::CreateFailed => ("Error creating: ", "Error creating: "),
            Self::Deleted => ("Deleted pod: ", "Deleted pods: "),
            Self::DeleteFailed => ("Error deleting: ", "Error deleting: "),
            Self::Exited => ("Pod: ", "Pods: "),
        }
    }
}

/// Something that happened to a pod of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    pub(crate) change: PodChange,
    pub(crate) attempt: u32,
    /// The pod; the error, where something failed; the pod and its exit code.
    pub(crate) text: String,
}

/// An Event before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) kind: EventKind,
    pub(crate) reason: String,
    pub(crate) attempt: u32,
    /// How often it happened.
    pub(crate) count: u32,
    /// Whether an Event that is stored may have counted this already, because an operator that has just started cannot
    /// know what the one before it reported.
    pub(crate) may_be_counted: bool,
    text: Text,
}

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Text {
    /// Always this: another message is another Event.
    Exact(String),
    /// Whatever was said last.
    Last(String),
    /// The names of the first pods, after `prefix`.
    Pods {
        prefix: &'static str,
        first: Vec<String>,
    },
}

impl Draft {
    /// One event of a job.
    pub(crate) fn of(event: &Event, attempt: u32) -> Self {
        Self {
            kind: event.kind,
            reason: event.reason.clone(),
            attempt,
            count: 1,
            may_be_counted: false,
            text: Text::Exact(shorten(&event.message)),
        }
    }

    /// What distinguishes it from other Events of all jobs, in hexadecimal.
    pub(crate) fn id(&self, uid: &str) -> String {
        let text = match &self.text {
            Text::Exact(message) => message,
            Text::Last(_) => "",
            Text::Pods { prefix, .. } => *prefix,
        };
        fingerprint(&(
            uid,
            self.kind == EventKind::Warning,
            &self.reason,
            self.attempt,
            text,
        ))
    }

    /// Adds what happened since; both have the same id.
    pub(crate) fn add(&mut self, later: Self) {
        self.count = self.count.saturating_add(later.count);
        self.may_be_counted |= later.may_be_counted;
        match (&mut self.text, later.text) {
            (Text::Pods { first, .. }, Text::Pods { first: more, .. }) => {
                first.extend(more);
                first.truncate(NAMED);
            }
            (text, later) => *text = later,
        }
    }

    /// The message of an Event that counts `total`.
    pub(crate) fn message(&self, total: u32) -> String {
        let Text::Pods { prefix, first } = &self.text else {
            let (Text::Exact(message) | Text::Last(message)) = &self.text else {
                return String::new();
            };
            return message.clone();
        };
        let named = u32::try_from(first.len()).unwrap_or(u32::MAX);
        let more = match total.saturating_sub(named) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        shorten(&format!("{prefix}{}{more}", first.join(", ")))
    }
}

/// The Events of what happened to pods of a job of `pods` pods.
pub(crate) fn fold(pods: u32, happened: &[PodEvent]) -> Vec<Draft> {
    let mut folded: BTreeMap<_, Draft> = BTreeMap::new();
    for (at, event) in happened.iter().enumerate() {
        let PodEvent {
            change, attempt, ..
        } = *event;
        let (one, many) = change.prefix();
        let failed = matches!(change, PodChange::CreateFailed | PodChange::DeleteFailed);
        let message = || shorten(&format!("{one}{}", event.text));
        let (order, text) = if failed {
            (0, Text::Last(message()))
        } else if pods <= SINGLE {
            (at, Text::Exact(message()))
        } else {
            let first = vec![event.text.clone()];
            (
                0,
                Text::Pods {
                    prefix: many,
                    first,
                },
            )
        };
        let draft = Draft {
            kind: if failed {
                EventKind::Warning
            } else {
                EventKind::Normal
            },
            reason: change.reason().to_owned(),
            attempt,
            count: 1,
            may_be_counted: false,
            text,
        };
        match folded.entry((attempt, change, order)) {
            std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(draft)),
            std::collections::btree_map::Entry::Occupied(mut there) => there.get_mut().add(draft),
        }
    }
    folded.into_values().collect()
}

fn shorten(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
