//! Keeps a cluster watched on a thread of its own, and publishes what changes.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_web::{Hub, Topic};

use super::Cluster;

/// Facts of a job that are published at once; of more, pages ask for the whole.
const FACTS_MAX: usize = 256;
/// Rows that are published at once; where more have changed, pages ask for the list again.
const ROWS_MAX: usize = 200;
/// The parts of a job that a change of it may change.
const PARTS: [&str; 5] = ["status", "strip", "checkpoints", "verdicts", "series"];

/// A cluster that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    cluster: Arc<Cluster>,
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
            thread: Some(thread),
        })
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
