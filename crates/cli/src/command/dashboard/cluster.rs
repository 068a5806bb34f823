//! Answers what a page of the dashboard asks, from a cluster, with the rights of whoever started it.
//!
//! Jobs and pods are watched; logs, events and nodes are read when a page asks for them, and kept for seconds. What a document shows is decided in
//! [`trainyard_core::view`].
//!
//! Invariants: nothing is written, and nothing is installed. Credentials are in no document. What may not be read is said in words, and stops nothing
//! else. An API server that does not answer leaves the pages as they were, with their age.

mod buffer;
mod folded;
mod health;
mod history;
mod index;
mod jobs;
mod logs;
mod pages;
mod run;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use trainyard_core::view::{State, VERSION};
use trainyard_kube::look::{Health, Live, Look};
use trainyard_web::{Document, Problem, ProblemCode, Question};

pub(crate) use self::watch::Watching;
use self::{buffer::Buffers, index::Index, pages::Nodes, run::RunSlot};
use crate::{
    args::{PLUGIN_PROGRAM, Place},
    cluster,
    failure::Failure,
};

/// How long the first question waits until the jobs are listed.
const LISTED_WITHIN: Duration = Duration::from_secs(15);
/// Jobs whose history is kept, those that pages looked at last.
const SLOTS_KEPT: usize = 32;

/// The jobs of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    look: Look,
    live: Arc<Live>,
    place: Place,
    index: Mutex<Index>,
    slots: Mutex<VecDeque<Arc<RunSlot>>>,
    nodes: Mutex<Nodes>,
    buffers: Buffers,
}

impl Cluster {
    /// Connects to the cluster that `place` names, to show one namespace of it or all. Whether it answers is not waited for.
    pub(crate) fn connect(place: &Place, all_namespaces: bool) -> Result<Self, Failure> {
        let server = place.server.clone();
        let look = Look::connect(server.kubeconfig, server.context).map_err(cluster::refused)?;
        let namespace = place.namespace.as_deref().unwrap_or(look.namespace());
        let live = Live::new((!all_namespaces).then_some(namespace));
        Ok(Self {
            live: Arc::new(live),
            look,
            place: place.clone(),
            index: Mutex::default(),
            slots: Mutex::default(),
            nodes: Mutex::default(),
            buffers: Buffers::default(),
        })
    }

    /// What it shows, in words.
    pub(crate) fn words(&self) -> String {
        let server = self.look.server();
        match self.live.namespace() {
            Some(namespace) => format!("namespace `{namespace}` of the cluster at {server}"),
            None => format!("all namespaces of the cluster at {server}"),
        }
    }

    /// Answers one question. It may call the API server: call it where blocking is allowed, from as many threads as you like.
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
            Question::Nodes => self.nodes(now),
            Question::Queue => self.queue(now),
        }
    }

    fn about(&self, now: Timestamp) -> impl Serialize {
        let health = self.live.health();
        let states = State::ALL.map(|state| {
            let colours = state.colours();
            json!({
                "name": state.name(),
                "word": spaced(state.name()),
                "sign": state.sign(),
                "light": colours.light,
                "dark": colours.dark,
            })
        });
        json!({
            "version": VERSION,
            "build": { "version": env!("CARGO_PKG_VERSION") },
            "mode": "cluster",
            "readOnly": true,
            "features": [
                "checkpoints", "events", "failures", "folded", "ledger", "logs", "nodes", "queue", "seats", "series", "spec",
                "strip", "trace", "verdicts",
            ],
            "now": now.as_millisecond(),
            "root": self.words(),
            "asOf": health.answered_at,
            "palette": { "states": states },
        })
    }

    /// What is known of the cluster, once anything is.
    fn known(&self) -> Result<Health, Problem> {
        let health = self.live.wait_until_known(LISTED_WITHIN);
        if health.sources.iter().any(|it| it.listed) {
            return Ok(health);
        }
        health::nothing(&health).map_or(Ok(health), Err)
    }

    /// How this program is called.
    fn program(&self) -> &'static str {
        if self.place.plugin {
            PLUGIN_PROGRAM
        } else {
            "trainyard"
        }
    }
}

/// `notObserved` as `not observed`.
fn spaced(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            word.push(' ');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// What a thread that panicked left behind is a cache: it is used as it is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A document of a run: its fields, with the id of the run beside them.
#[derive(Serialize)]
struct OfRun<'a, T> {
    run: &'a str,
    #[serde(flatten)]
    document: T,
}

fn document(value: &impl Serialize) -> Result<Document, Problem> {
    let json = serde_json::to_vec(value).map_err(|error| {
        problem(
            ProblemCode::Unreadable,
            format!("the answer cannot be written as JSON: {error}"),
            "report this as a bug",
        )
    })?;
    Ok(Document::json(json))
}

fn of_run(run: &str, document: impl Serialize) -> Result<Document, Problem> {
    self::document(&OfRun { run, document })
}

fn problem(code: ProblemCode, message: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem {
        code,
        message: message.into(),
        hint: hint.into(),
    }
}
