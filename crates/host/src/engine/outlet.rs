//! Where a run goes: events to the caller, files to the store.
//!
//! Invariant: a disk that is full does not end the job, and is reported once.

use std::{error::Error as _, io};

use crate::{
    request::RunEvent,
    store::{RunWriter, StoreError},
};

/// The caller and the store of a run.
pub(super) struct Outlet<'a> {
    pub(super) writer: RunWriter,
    sink: &'a mut dyn FnMut(RunEvent),
    /// A log could not be written: no other is tried.
    logs_failed: bool,
    /// A write to the store failed and was reported.
    store_failed: bool,
}

impl<'a> Outlet<'a> {
    pub(super) fn new(writer: RunWriter, sink: &'a mut dyn FnMut(RunEvent)) -> Self {
        Self {
            writer,
            sink,
            logs_failed: false,
            store_failed: false,
        }
    }

    pub(super) fn emit(&mut self, event: RunEvent) {
        (self.sink)(event);
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.emit(RunEvent::Note(note.into()));
    }

    /// Writes to the store.
    pub(super) fn save(&mut self, write: impl FnOnce(&RunWriter) -> Result<(), StoreError>) {
        if let Err(error) = write(&self.writer)
            && !self.store_failed
        {
            self.store_failed = true;
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            self.note(format!("{error}: {cause}; the run continues without it"));
        }
    }

    /// Writes a log of `pod`.
    pub(super) fn log(&mut self, pod: &str, write: impl FnOnce() -> io::Result<()>) {
        if self.logs_failed {
            return;
        }
        if let Err(error) = write() {
            self.logs_failed = true;
            self.note(format!(
                "cannot write the log of pod `{pod}`: {error}; the job continues without logs"
            ));
        }
    }
}
