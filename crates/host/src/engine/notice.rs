//! The notice to all ranks that their attempt is to end: a file that `TRAINYARD_NOTICE` names, written before the first of them gets SIGTERM.
//!
//! Owns the file and when it is written and removed. What it says, and what came of it, is [`trainyard_core::job::Notice`]'s.
//!
//! Invariants: one notice for an attempt, and the same deadline for all its ranks. The file is there as a whole or not at all; it is removed before a
//! pod of a later attempt starts. Nothing that programs write there is read.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use trainyard_core::job::{Event, FailedBy, Notice, NoticeReason, SeenStore};

use super::{Engine, table::Key};
use crate::{request::RunEvent, store::write_notice};

/// The notice of a run.
#[derive(Debug)]
pub(super) struct Notices {
    file: PathBuf,
    given: Option<Given>,
}

#[derive(Debug)]
struct Given {
    notice: Notice,
    /// When no pod of its attempt was left.
    over_at: Option<Timestamp>,
    is_reported: bool,
}

impl Notices {
    /// Where the file is, once it is written.
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, given: None }
    }

    /// Where the file is, once it is written.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}

impl Engine<'_> {
    /// Writes the notice of the attempt of this pod, which gets SIGTERM next, where users or the deadline end it. An attempt that ends for a failure is not
    /// given one: its ranks cannot save together any more.
    pub(super) fn give_notice(&mut self, key: Key) {
        let entry = self
            .pods
            .get(key)
            .filter(|entry| entry.deleted_at.is_none());
        let (Some(reason), Some(entry)) = (self.notice_reason(), entry) else {
            return;
        };
        let attempt = entry.attempt;
        let is_given = self.notices.given.as_ref();
        if is_given.is_some_and(|given| given.notice.attempt == attempt) {
            return;
        }
        let ends = self.pods.entries.values();
        let ends = ends.filter(|entry| {
            entry.attempt == attempt && entry.deleted_at.is_none() && !entry.has_ended()
        });
        let graces = ends.map(|entry| entry.grace_seconds);
        // Pods that have all ended need no notice.
        let Some(grace) = graces.min() else { return };
        let grace = Duration::from_secs(grace.into());
        let store = self.checkpoints.seen();
        let notice = Notice::new(reason, attempt, Timestamp::now(), grace, &store);
        let written = write_notice(&self.notices.file, notice.file().as_bytes());
        if let Err(error) = written {
            let file = self.notices.file.display();
            let note = format!(
                "cannot write the notice (`TRAINYARD_NOTICE`) to `{file}`: {error}; ranks get SIGTERM only"
            );
            self.outlet.note(note);
        }
        self.notices.given = Some(Given {
            notice,
            over_at: None,
            is_reported: false,
        });
    }

    fn notice_reason(&self) -> Option<NoticeReason> {
        let failed_by = self.stored.status.trainyard.failed_by;
        if self.wanted.is_stopped() {
            Some(NoticeReason::Stop)
        } else if failed_by == Some(FailedBy::DeadlineExceeded) {
            Some(NoticeReason::Deadline)
        } else if self.wanted.job().run_policy.suspend {
            Some(NoticeReason::Suspend)
        } else {
            None
        }
    }

    /// Removes the notice of an earlier attempt, before a pod of `attempt` starts.
    pub(super) fn withdraw_notice(&mut self, attempt: u32) {
        let given = self.notices.given.as_ref();
        if given.is_none_or(|given| given.notice.attempt >= attempt) {
            return;
        }
        // The store was read before this attempt may start.
        self.report_notice();
        self.notices.given = None;
        if let Err(error) = fs::remove_file(&self.notices.file)
            && error.kind() != io::ErrorKind::NotFound
        {
            let file = self.notices.file.display();
            let note = format!("cannot remove the notice of an earlier attempt, `{file}`: {error}");
            self.outlet.note(note);
        }
    }

    /// Reports what came of the notice, as soon as the store was read after the last pod had ended.
    pub(super) fn report_notice_once_known(&mut self) {
        let no_pod_is_left = self.pods.live().is_empty();
        let Some(given) = &mut self.notices.given else {
            return;
        };
        if !no_pod_is_left {
            return;
        }
        let over_at = *given.over_at.get_or_insert_with(Timestamp::now);
        let is_known = match self.checkpoints.seen() {
            SeenStore::Seen { at, .. } => at >= over_at,
            SeenStore::Unused | SeenStore::Unknown(_) => false,
        };
        if is_known {
            self.report_notice();
        }
    }

    /// Reports what came of the notice at the end of the run. Where pods were killed at once, nobody has looked since.
    pub(super) fn report_last_notice(&mut self) {
        if self.checkpoints.is_over(Instant::now()) {
            self.report_notice();
        }
    }

    /// Reports what came of the notice, once.
    fn report_notice(&mut self) {
        let Some(given) = &mut self.notices.given else {
            return;
        };
        if std::mem::replace(&mut given.is_reported, true) {
            return;
        }
        let outcome = given.notice.outcome(&self.checkpoints.seen());
        if let Some((kind, reason, message)) = outcome {
            let reason = reason.of(self.job.kind);
            self.outlet.emit(RunEvent::Event(Event {
                kind,
                reason,
                message,
            }));
        }
    }
}
