//! Jobs that crash or panic the operator are set aside, so that they cost no other job anything.
//!
//! A pass that panics is caught: the third in a row sets the job aside. A crash (abort, stack overflow, a kill for
//! memory or for an endless loop) ends the process: the next one finds in a folder of this machine
//! ([`journal`]) which job was in work, and the second crash sets that job aside. The operator computes on one
//! thread, so exactly one job is in work at any moment, and the others are not suspected.
//!
//! The folder must outlive the container, not the pod (an `emptyDir`). Where there is none, panics are counted all
//! the same and crashes are not.

mod journal;
mod suspects;

use std::{
    any::Any,
    future::poll_fn,
    io,
    path::Path,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tracing::{error, warn};

pub(crate) use self::suspects::{Judgement, Mark};
use self::{
    journal::{Journal, record_of},
    suspects::{CRASHES, Suspects},
};
use crate::{key::JobKey, view::JobView};

/// Annotations that change what is done for a job.
const OWN_ANNOTATIONS: &str = "trainyard.dev/";

/// What is known of the jobs that harmed the operator.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    suspects: Mutex<Suspects>,
    journal: Option<Journal>,
}

impl Poison {
    /// Reads what the last process left in `folder`.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let (journal, left) = Journal::open(folder)?;
        let now = crate::clock::now().as_second();
        let crashed = left.crashed.as_ref();
        let suspects = Suspects::recover(left.stored, crashed, env!("CARGO_PKG_VERSION"), now);
        let poison = Self {
            suspects: Mutex::new(suspects),
            journal: Some(journal),
        };
        if let Some(mark) = crashed {
            let count = poison.suspects().crashes(&mark.uid);
            error!(
                job = mark.job,
                crashes = count,
                limit = CRASHES,
                "The operator crashed while processing this job"
            );
            poison.save();
        }
        Ok(poison)
    }

    /// What is to become of a job.
    pub(crate) fn judge(&self, mark: &Mark, view: &JobView) -> Judgement {
        let judgement = self.suspects().judge(mark, || content(view));
        if judgement == Judgement::Released {
            self.save();
        }
        judgement
    }

    /// Does `work` for the job of `mark`, which is the suspect should the process crash in it.
    pub(crate) async fn watch<T>(&self, mark: &Mark, work: impl Future<Output = T>) -> T {
        let record = record_of(mark);
        let mut work = pin!(work);
        let done = poll_fn(|context| {
            let _in_work = self.journal.as_ref().map(|journal| journal.enter(&record));
            work.as_mut().poll(context)
        })
        .await;
        self.suspects().passed(mark);
        done
    }

    /// A pass over the job of `view` panicked.
    pub(crate) fn panicked(&self, mark: &Mark, view: &JobView, message: &str) -> Judgement {
        let content = content(view);
        let judgement = self.suspects().panicked(mark, content, message);
        if judgement != Judgement::Clear {
            self.save();
        }
        judgement
    }

    /// The job is gone, and what was known of it with it.
    pub(crate) fn forget(&self, key: &JobKey) {
        self.suspects().forget(&key.to_string());
    }

    fn save(&self) {
        let stored = self.suspects().to_store();
        if let Some(journal) = &self.journal
            && let Err(error) = journal.save(&stored)
        {
            warn!(%error, "Cannot store which jobs are set aside");
        }
    }

    fn suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mark {
    pub(crate) fn new(key: &JobKey, view: &JobView) -> Self {
        Self {
            uid: view.metadata.uid.clone(),
            job: key.to_string(),
        }
    }
}

/// The words of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

/// A digest of what the user wrote: the spec and our annotations. Status and bookkeeping of others do not count.
fn content(view: &JobView) -> u64 {
    let object: Value = serde_json::from_str(&view.text).unwrap_or_default();
    let annotations = object.pointer("/metadata/annotations");
    let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
    let ours = annotations.filter(|(key, _)| key.starts_with(OWN_ANNOTATIONS));
    let text = ours.fold(object["spec"].to_string(), |text, (key, value)| {
        text + "\n" + key + "=" + &value.to_string()
    });
    // FNV-1a: the same in every process.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The annotation of tests that makes every pass over a job panic.
#[cfg(test)]
pub(crate) const PANICS_ON: &str = "trainyard.dev/test-panics";

/// Panics where a test asks for it.
#[cfg(test)]
pub(crate) fn trip(view: &JobView) {
    assert!(!view.text.contains(PANICS_ON), "tripped by a test");
}

#[cfg(test)]
mod tests;
