//! Answers what a page of the dashboard asks, from the runs that are stored on this machine.
//!
//! Owns what is read and when, and what is kept in memory. What a document shows is decided in [`trainyard_core::view`].
//!
//! Invariants: nothing is written. Nothing in a folder of runs is trusted: a file that cannot be read is reported, never followed elsewhere. An answer
//! is bounded whatever a run has stored, and what was left out is in it.

mod cache;
mod folded;
pub(crate) mod history;
mod index;
mod jobs;
mod logs;
pub(crate) mod names;
mod run;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verdicts;
mod watch;
mod window;

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use trainyard_core::view::{VERSION, rows::Row};
use trainyard_host::store::{RunFolder, Store, StoreError};
use trainyard_web::{Document, Problem, ProblemCode, Question};

use self::{
    cache::{Runs, Stamp},
    index::Index,
};
use super::shared::{document, lock, of_run, palette, problem};
use crate::failure::Failure;

pub(crate) use self::watch::{Change, Watcher};

/// The runs that are stored on this machine.
#[derive(Debug)]
pub(crate) struct Local {
    root: PathBuf,
    index: Mutex<Index>,
    runs: Runs,
    /// Rows of the list, by run.
    rows: Mutex<BTreeMap<String, (Stamp, Row)>>,
}

impl Local {
    /// The runs below `root`, a state folder. One that does not exist yet is empty.
    pub(crate) fn open(root: &Path) -> Result<Self, Failure> {
        Store::open(root).map_err(crate::stored::refused)?;
        Ok(Self {
            root: root.to_owned(),
            index: Mutex::default(),
            runs: Runs::default(),
            rows: Mutex::default(),
        })
    }

    /// Answers one question. It reads files: call it where blocking is allowed, from as many threads as you like.
    pub(crate) fn answer(&self, question: &Question, now: Timestamp) -> Result<Document, Problem> {
        match question {
            Question::About => document(&self.about(now)),
            Question::Jobs(ask) => self.jobs(ask, now),
            Question::Job {
                namespace,
                name,
                run,
            } => self.job(namespace, name, run.as_deref(), now),
            Question::Run { run, part } => self.part(run, part, now),
            Question::Failures { window_millis } => self.failures(*window_millis, now),
            Question::Nodes => Err(problem(
                ProblemCode::NotHere,
                "this dashboard shows the runs of one machine, and its nodes are that machine",
                "run `trainyard nodes` against a cluster to see its nodes",
            )),
            Question::Queue => Err(problem(
                ProblemCode::NotHere,
                "this dashboard shows the runs of one machine, which has no queue",
                "run `trainyard ps --all-namespaces` against a cluster to see what waits there",
            )),
        }
    }

    /// The row of a run, for a list that is shown already; nothing where it cannot be made. Whoever watches runs must not end with one of them, so a
    /// defect here is no more than that.
    pub(crate) fn row(&self, run: &str, now: Timestamp) -> Option<Row> {
        let row = || {
            let store = self.store().ok()?;
            let folder = names::find(&store, run).ok()?;
            let live = self.index().live_run(&store, &folder.job);
            let is_live = live.as_ref() == Some(&folder.id);
            self.row_of(&folder, is_live, now).ok()
        };
        std::panic::catch_unwind(AssertUnwindSafe(row)).unwrap_or_default()
    }

    fn about(&self, now: Timestamp) -> impl Serialize {
        json!({
            "version": VERSION,
            "build": { "version": env!("CARGO_PKG_VERSION") },
            "mode": "local",
            "readOnly": true,
            "features": [
                "checkpoints", "events", "failures", "folded", "ledger", "logs", "seats", "series", "spec", "strip",
                "trace", "verdicts",
            ],
            "now": now.as_millisecond(),
            "root": self.root.display().to_string(),
            "palette": palette(),
        })
    }

    fn store(&self) -> Result<Store, Problem> {
        Store::open(&self.root).map_err(|error| unreadable(&error))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// The folder of a run by its id.
    fn folder(&self, id: &str) -> Result<RunFolder, Problem> {
        names::find(&self.store()?, id)
    }
}

/// What is wrong with a store, for a page.
fn unreadable(error: &StoreError) -> Problem {
    let code = match error {
        StoreError::NoSuchJob { .. } => ProblemCode::NotFound,
        _ => ProblemCode::Unreadable,
    };
    let hint = error.hint().unwrap_or_default();
    problem(code, error.to_string(), hint)
}
