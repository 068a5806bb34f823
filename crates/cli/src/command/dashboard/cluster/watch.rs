//! Keeps a cluster watched on a thread of its own, and publishes what changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_web::{Hub, Topic};

use super::{
    Cluster,
    reader::{NODES, subject},
};

/// Facts of a job that are published at once; of more, pages ask for the whole.
const FACTS_MAX: usize = 256;
/// Rows that are published at once; where more have changed, pages ask for the list again.
const ROWS_MAX: usize = 200;
/// Everything is to be asked for again.
const STALE: &str = r#"{"stale":true}"#;
/// The parts of a job that a change of it may change.
const PARTS: [&str; 5] = ["status", "strip", "checkpoints", "verdicts", "series"];

/// A cluster that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    cluster: Arc<Cluster>,
    /// The subject of each job that was seen: of one that is gone nothing else says whose it was.
    subjects: BTreeMap<String, Arc<str>>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// Begins to watch.
    pub(crate) fn start(cluster: Arc<Cluster>) -> io::Result<Self> {
        let watched = Arc::clone(&cluster);
        let thread = thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || watched.look.watch(&watched.live))?;
        Ok(Self {
            cluster,
            subjects: BTreeMap::new(),
            thread: Some(thread),
        })
    }

    /// Takes in what has changed since the last call, for somebody who asks again; whether anything has.
    pub(crate) fn observe(&self, now: Timestamp) -> bool {
        let changed = self.cluster.live.changed();
        for run in &changed.jobs {
            if let Some(slot) = self.cluster.known_slot(run) {
                // What it is refused with, the next answer says.
                slot.observe(now).ok();
            }
        }
        changed.health || !changed.jobs.is_empty() || !changed.gone.is_empty()
    }

    /// Notifies those who may see it of what has changed since the last call. What has changed is in no notice: it is asked for again, by each as he may.
    pub(crate) fn notify(&mut self, hub: &Hub, now: Timestamp) {
        let changed = self.cluster.live.changed();
        let mut touched: BTreeSet<Arc<str>> = BTreeSet::new();
        for run in &changed.gone {
            touched.extend(self.subjects.remove(run));
        }
        for run in &changed.jobs {
            let Some(job) = self.cluster.live.job(run) else {
                continue;
            };
            let subject: Arc<str> = subject(job.kind().name(), job.namespace()).into();
            if let Some(slot) = self.cluster.known_slot(run)
                && let Ok(facts) = slot.observe(now)
            {
                drop(facts);
                let data = json!({ "run": run, "changed": PARTS, "logs": [] }).to_string();
                hub.notify(&subject, &Topic::Run(run.clone()), &data);
            }
            self.subjects.insert(run.clone(), Arc::clone(&subject));
            touched.insert(subject);
        }
        if hub.readers() == 0 {
            return;
        }
        for subject in &touched {
            hub.notify(subject, &Topic::Jobs, r#"{"changed":["jobs"]}"#);
            hub.notify(subject, &Topic::Queue, STALE);
        }
        if !touched.is_empty() {
            hub.notify(NODES, &Topic::Nodes, STALE);
        }
        if changed.health {
            for topic in [Topic::Jobs, Topic::Queue, Topic::Nodes] {
                hub.notify("", &topic, STALE);
            }
        }
    }

    /// Publishes what has changed since the last call.
    pub(crate) fn publish(&self, hub: &Hub, now: Timestamp) {
        let cluster = &self.cluster;
        let changed = cluster.live.changed();
        let send = |topic: &Topic, event, key: &str, data: Value| {
            hub.publish_keyed(topic, event, key, data.to_string().into_bytes());
        };
        let has_readers = hub.readers() > 0;
        let is_many = changed.jobs.len() + changed.gone.len() > ROWS_MAX;
        for run in changed.gone.iter().filter(|_| has_readers && !is_many) {
            send(&Topic::Jobs, "job", run, json!({ "gone": run }));
        }
        for run in &changed.jobs {
            if let Some(slot) = cluster.known_slot(run) {
                let topic = Topic::Run(run.clone());
                let facts = slot.observe(now).unwrap_or_default();
                for fact in facts.iter().take(FACTS_MAX) {
                    let data = json!({ "run": run, "fact": fact });
                    send(&topic, "fact", &fact.seq.to_string(), data);
                }
                let data = json!({ "run": run, "changed": PARTS, "logs": [] });
                send(&topic, "run", "", data);
            }
            if has_readers
                && !is_many
                && let Some(row) = cluster.row(run, now)
            {
                send(&Topic::Jobs, "job", run, json!({ "row": row }));
            }
        }
        if changed.health || is_many {
            send(&Topic::Jobs, "job", "", json!({ "stale": true }));
        }
        if changed.health || !changed.jobs.is_empty() || !changed.gone.is_empty() {
            send(&Topic::Queue, "queue", "", json!({ "stale": true }));
            send(&Topic::Nodes, "nodes", "", json!({ "stale": true }));
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.cluster.live.end();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say at its end.
            drop(thread.join());
        }
    }
}
