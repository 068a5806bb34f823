//! The line for seats: which gangs wait, and which nodes they were given.
//!
//! Owns the snapshot of the cluster that placement looks at, and the seats that no pod carries yet. Which
//! seats a gang gets is `trainyard_core::gang`'s.
//!
//! Invariant: a seat is held from the moment it is given until its pod has ended or the gang gives it
//! back. What pods carry is enough to know all seats again after a start.

mod entry;

use std::collections::BTreeMap;

use jiff::Timestamp;
use tracing::{debug, info, warn};
use trainyard_core::{
    gang::{self, Gang, GangKey, Node, PodKey, Resident, Snapshot},
    job::Seating,
    launch::{Cluster, HOSTNAME},
    spec::{Job, Slot},
};

use self::entry::Entry;
use crate::{key::JobKey, pod::PodEntry};

/// The line, and the cluster as it looks from there.
#[derive(Debug, Default)]
pub(crate) struct Line {
    snapshot: Snapshot,
    gangs: BTreeMap<JobKey, Entry>,
    /// Priorities by class; the one of no name is the default of the cluster.
    priorities: BTreeMap<String, i32>,
    /// The levels have to be found anew.
    labels_changed: bool,
    /// Something has changed for gangs that wait.
    stirred: bool,
}

impl Line {
    /// Takes the state of a node in; whether it can seat somebody now who could not sit there before.
    pub(crate) fn hear_node(&mut self, name: &str, node: Node) {
        let known = self.snapshot.nodes.get(name);
        if known == Some(&node) {
            return;
        }
        self.labels_changed |= known.is_none_or(|known| known.labels != node.labels);
        self.stirred = true;
        self.snapshot.nodes.insert(name.to_owned(), node);
    }

    pub(crate) fn forget_node(&mut self, name: &str) {
        self.labels_changed |= self.snapshot.nodes.remove(name).is_some();
    }

    pub(crate) fn forget_nodes(&mut self) {
        self.snapshot.nodes.clear();
        self.labels_changed = true;
    }

    /// Takes in where a pod is; nothing where it holds no place any more.
    pub(crate) fn hear_pod(&mut self, key: PodKey, resident: Option<Resident>) {
        match resident {
            Some(resident) => {
                self.snapshot.pods.insert(key, resident);
            }
            None => self.stirred |= self.snapshot.pods.remove(&key).is_some(),
        }
    }

    /// Forgets every pod for which `keep` does not hold.
    pub(crate) fn keep_pods(&mut self, keep: impl Fn(&Resident) -> bool) {
        self.snapshot.pods.retain(|_, resident| keep(resident));
        self.stirred = true;
    }

    pub(crate) fn hear_priority(&mut self, class: &str, priority: Option<i32>) {
        self.stirred = true;
        match priority {
            Some(priority) => {
                self.priorities.insert(class.to_owned(), priority);
            }
            None => {
                self.priorities.remove(class);
            }
        }
    }

    /// Whether the line is worth another look since this was asked last.
    pub(crate) fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred) && self.gangs.values().any(|entry| entry.in_line)
    }

    /// How many gangs wait.
    pub(crate) fn waiting(&self) -> usize {
        self.gangs.values().filter(|entry| entry.in_line).count()
    }

    /// The name by which a node selector finds `node`.
    pub(crate) fn hostname(&self, node: &str) -> String {
        let labels = self.snapshot.nodes.get(node).map(|node| &node.labels);
        labels
            .and_then(|labels| labels.get(HOSTNAME))
            .map_or(node, String::as_str)
            .to_owned()
    }

    /// What the gang of `job` may do, given the pods that it has.
    pub(crate) fn seating<'a>(
        &mut self,
        key: &JobKey,
        job: &Job,
        (generation, created, attempt): (i64, Timestamp, u32),
        cluster: &Cluster,
        pods: impl Iterator<Item = (&'a str, &'a PodEntry)>,
    ) -> Seating {
        let is_known = self
            .gangs
            .get(key)
            .is_some_and(|entry| entry.generation == generation);
        if !is_known {
            let gang = match Gang::of(job, cluster, created) {
                Ok(gang) => gang,
                Err(error) => {
                    // What cannot be laid out is refused where its pods are made.
                    debug!(job = %key, %error, "no gang");
                    return Seating::Open;
                }
            };
            let before = self.gangs.remove(key);
            let entry = Entry::new(gang, generation, job.knobs.start_within, before);
            self.gangs.insert(key.clone(), entry);
        }
        let Some(entry) = self.gangs.get_mut(key) else {
            return Seating::Open;
        };
        entry.learn(attempt, pods);
        if entry.lose_bad_seats(&self.snapshot) {
            self.stirred = true;
        }
        entry.seating(job)
    }

    /// Puts a gang in line.
    pub(crate) fn ask(&mut self, key: &JobKey, now: Timestamp) {
        if let Some(entry) = self.gangs.get_mut(key)
            && !entry.in_line
        {
            entry.in_line = true;
            entry.since = now;
            entry.why = None;
            self.stirred = true;
        }
    }

    /// Takes the seats of a gang back, and puts it out of the line.
    pub(crate) fn give_back(&mut self, key: &JobKey, avoid: Option<&str>, now: Timestamp) {
        if let Some(entry) = self.gangs.get_mut(key) {
            entry.give_back(avoid, now);
            self.stirred = true;
        }
    }

    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.stirred |= self.gangs.remove(key).is_some();
    }

    /// Gives seats to whom there are some for; returns the gangs for which something has changed.
    pub(crate) fn place(&mut self, now: Timestamp) -> Vec<JobKey> {
        if !self.gangs.values().any(|entry| entry.in_line) {
            return Vec::new();
        }
        if std::mem::take(&mut self.labels_changed) {
            self.snapshot.detect_topology();
            for warning in &self.snapshot.warnings {
                warn!(warning, "the topology is doubtful");
            }
        }
        let mut changed = Vec::new();
        for (key, entry) in &mut self.gangs {
            if entry.has_waited_long_enough(&self.snapshot, now) {
                changed.push(key.clone());
            }
        }
        let preempting = self
            .gangs
            .values()
            .any(|entry| entry.in_line && entry.gang.preempts);
        let gangs: Vec<Gang> = self
            .gangs
            .values()
            .filter(|entry| preempting || entry.matters(&self.snapshot))
            .map(|entry| entry.wish(&self.priorities))
            .collect();
        let placement = gang::place(&self.snapshot, &gangs, now);
        for entry in self.gangs.values_mut() {
            entry.gang.reserved.clear();
        }
        let GangKeys(keys) = GangKeys::of(self.gangs.keys());
        for (gang, seating) in placement.seated {
            if let Some((key, entry)) = self.of_gang(&keys, &gang) {
                info!(job = %key, cost = seating.cost, "the gang has seats");
                entry.take(seating.seats);
                changed.push(key.clone());
            }
        }
        for (gang, refusal) in placement.refused {
            if let Some((key, entry)) = self.of_gang(&keys, &gang)
                && entry.why.as_ref() != Some(&refusal.message)
            {
                entry.why = Some(refusal.message);
                changed.push(key.clone());
            }
        }
        for (gang, seats) in placement.reservations {
            if let Some((_, entry)) = self.of_gang(&keys, &gang) {
                let seats = seats.into_iter().map(|seat| (seat.pod, seat.node));
                entry.gang.reserved = seats.collect();
            }
        }
        changed
    }

    fn of_gang<'k>(
        &mut self,
        keys: &'k BTreeMap<GangKey, JobKey>,
        gang: &GangKey,
    ) -> Option<(&'k JobKey, &mut Entry)> {
        let key = keys.get(gang)?;
        Some((key, self.gangs.get_mut(key)?))
    }
}

/// The jobs by the names that placement knows them by.
struct GangKeys(BTreeMap<GangKey, JobKey>);

impl GangKeys {
    fn of<'a>(keys: impl Iterator<Item = &'a JobKey>) -> Self {
        let pairs = keys.map(|key| {
            let gang = GangKey {
                kind: key.kind,
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
            };
            (gang, key.clone())
        });
        Self(pairs.collect())
    }
}

/// The slots of `job` with a seat.
fn by_slot(job: &Job, held: &BTreeMap<String, String>) -> BTreeMap<Slot, String> {
    let slots = job.slots();
    slots
        .filter_map(|slot| Some((slot, held.get(&job.pod_name(slot))?.clone())))
        .collect()
}
