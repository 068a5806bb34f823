//! Answers what a page of the dashboard asks, from a cluster, with the rights of whoever started it.
//!
//! Jobs and pods are watched; logs, events and nodes are read when a page asks for them, and kept for seconds. What a document shows is decided in
//! [`trainyard_core::view`].
//!
//! Invariants: nothing is written, and nothing is installed. Credentials are in no document. What may not be read is said in words, and stops nothing
//! else. An API server that does not answer leaves the pages as they were, with their age.

mod access;
mod buffer;
mod folded;
mod health;
pub(crate) mod history;
mod index;
mod jobs;
mod logs;
mod pages;
mod reader;
mod run;
mod sight;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_core::view::VERSION;
use trainyard_kube::look::{Health, Live, Look};
use trainyard_web::{Asker, Document, Problem, Question};

pub(crate) use self::watch::Watching;
use self::{
    buffer::Buffers,
    index::Index,
    pages::Nodes,
    reader::{Reader, Readers},
    run::RunSlot,
};
use super::shared::{document, lock, of_run, palette, problem};
use crate::{
    args::{PLUGIN_PROGRAM, Place},
    cluster,
    failure::Failure,
};

/// How long the first question waits until the jobs are listed.
const LISTED_WITHIN: Duration = Duration::from_secs(15);
/// Jobs whose history is kept, those that pages looked at last.
const SLOTS_KEPT: usize = 32;

/// Where the program runs that shows a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Beside a user, with his kubeconfig.
    Cluster,
    /// In a pod of the cluster, with an account of its own.
    InCluster,
}

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
    readers: Readers,
    mode: Mode,
}

impl Cluster {
    /// Connects to the cluster that `place` names, to show one namespace of it or all. Whether it answers is not waited for.
    pub(crate) fn connect(
        place: &Place,
        all_namespaces: bool,
        mode: Mode,
    ) -> Result<Self, Failure> {
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
            readers: Readers::default(),
            mode,
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

    /// Answers one question, as far as whoever asks may see the answer. It may call the API server: call it where blocking is allowed, from as many threads
    /// as you like.
    pub(crate) fn answer(
        &self,
        question: &Question,
        asker: &Asker,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        let reader = self.reader(question, asker, now)?;
        let answer = self.answer_to(question, &reader, now)?;
        self.covered(question, answer, &reader, now)
    }

    fn answer_to(
        &self,
        question: &Question,
        reader: &Reader<'_>,
        now: Timestamp,
    ) -> Result<Document, Problem> {
        match question {
            Question::About => document(&self.about(reader, now)),
            Question::Jobs(ask) => self.jobs(ask, reader, now),
            Question::Job {
                namespace,
                name,
                run,
            } => self.job((namespace, name), run.as_deref(), reader, now),
            Question::Run { run, part } => self.part(run, part, reader, now),
            Question::Failures { window_millis } => self.failures(*window_millis, reader, now),
            Question::Nodes => self.nodes(reader, now),
            Question::Queue => self.queue(reader, now),
        }
    }

    /// Whether the jobs were listed once; else why not.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let health = self.live.health();
        if health.sources.iter().any(|it| it.listed) {
            return Ok(());
        }
        let why = health::nothing(&health).map(|problem| problem.message);
        Err(why.unwrap_or_else(|| "no kind of job can be listed".to_owned()))
    }

    fn about(&self, reader: &Reader<'_>, now: Timestamp) -> Value {
        let health = self.live.health();
        json!({
            "version": VERSION,
            "build": { "version": env!("CARGO_PKG_VERSION") },
            "mode": match self.mode {
                Mode::Cluster => "cluster",
                Mode::InCluster => "in-cluster",
            },
            "readOnly": true,
            "features": [
                "checkpoints", "events", "failures", "folded", "ledger", "logs", "nodes", "queue", "seats", "series", "spec",
                "strip", "trace", "verdicts",
            ],
            "now": now.as_millisecond(),
            "root": self.words(),
            "asOf": reader.as_of(&health),
            "you": reader.you,
            "palette": palette(),
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
