//! Faults on purpose, when they are due.

use std::time::Instant;

use trainyard_core::{
    job::{NodeHealth, PodPhase},
    spec::{Job, Slot},
};

use super::{Engine, table::Key};
use crate::{
    HostError, Ranks,
    inject::{At, Fault, Injection, Targets},
    request::RunEvent,
    wire::Order,
};

/// The faults that have not taken place yet, with the pods they befall.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<(Injection, Vec<Slot>)>);

impl Faults {
    /// Refuses a fault that names a rank or pod that the job lacks.
    pub(super) fn new(job: &Job, injections: &[Injection]) -> Result<Self, HostError> {
        let (ranks, replicas) = (Ranks::of(job), job.replicas());
        let mut faults = Vec::new();
        for injection in injections {
            let refused = |named: String| {
                move |count| HostError::NoSuchRank {
                    injection: injection.to_string(),
                    named,
                    count,
                }
            };
            let slots = match &injection.targets {
                Targets::Rank(rank) => {
                    let found = ranks.pod_of(&replicas, *rank);
                    let found = found.ok_or_else(|| ranks.count(&replicas));
                    vec![found.map_err(refused(format!("rank {rank}")))?]
                }
                Targets::Pods(pods) => pods
                    .iter()
                    .map(|pod| {
                        let found = ranks.pod_at(&replicas, *pod);
                        found.map_err(refused(format!("pod {pod}")))
                    })
                    .collect::<Result<_, _>>()?,
            };
            faults.push((injection.clone(), slots));
        }
        Ok(Self(faults))
    }

    /// When the clock next calls for one that is not overdue.
    pub(super) fn due(&self, first_pod: Option<Instant>) -> Option<Instant> {
        let first_pod = first_pod?;
        let now = Instant::now();
        let times = self
            .0
            .iter()
            .filter_map(|(injection, _)| match injection.at {
                At::Elapsed(elapsed) => Some(first_pod + elapsed),
                At::Step(_) => None,
            });
        // An overdue one waits for its pod, whose start is an event of its own.
        times.filter(|at| *at > now).min()
    }
}

impl Engine<'_> {
    /// Lets every fault that is due, and whose pods run, take place.
    pub(super) fn inject(&mut self, now: Instant) {
        let Some(first_pod) = self.first_pod else {
            return;
        };
        let step = self.last_step;
        let pending = std::mem::take(&mut self.faults.0);
        for (injection, slots) in pending {
            let due = match injection.at {
                At::Elapsed(elapsed) => first_pod + elapsed <= now,
                At::Step(wanted) => step.is_some_and(|step| step >= wanted),
            };
            let keys: Option<Vec<Key>> = slots.iter().map(|slot| self.running(*slot)).collect();
            match keys.filter(|_| due) {
                Some(keys) => self.befall(&injection, &keys),
                None => self.faults.0.push((injection, slots)),
            }
        }
    }

    fn running(&self, slot: Slot) -> Option<Key> {
        self.pods
            .iter()
            .find(|(_, entry)| {
                entry.slot == slot && entry.phase == PodPhase::Running && entry.deleted_at.is_none()
            })
            .map(|(key, _)| *key)
    }

    fn befall(&mut self, injection: &Injection, keys: &[Key]) {
        let words = injection.to_string();
        let lost_node = format!("{}-lost-{}", self.node, self.nodes.len() + 1);
        let mut names = Vec::new();
        for key in keys {
            let order = match injection.fault {
                Fault::Kill => Order::Kill {
                    container: self.training_container(*key),
                    code: None,
                },
                Fault::Exit { code } => Order::Kill {
                    container: self.training_container(*key),
                    code: Some(code),
                },
                Fault::Hang | Fault::NodeLoss => Order::Freeze,
                Fault::Slow { factor } => Order::Slow { factor },
            };
            self.order(*key, &order, &[]);
            if let Some(entry) = self.pods.get_mut(key) {
                entry.injected = Some(words.clone());
                names.push(format!("`{}`", entry.name));
                if injection.fault == Fault::NodeLoss {
                    entry.node.clone_from(&lost_node);
                }
            }
        }
        if injection.fault == Fault::NodeLoss {
            self.nodes.insert(lost_node, NodeHealth::Deleted);
            self.changed = true;
        }
        let mut sentence = format!("fault on purpose: `{words}` on {}", names.join(", "));
        if let (Targets::Rank(_), [key]) = (&injection.targets, keys)
            && let Some(others) = self.beside(*key)
        {
            sentence.push_str(&others);
        }
        (self.sink)(RunEvent::Injected(sentence));
    }

    /// The words for a rank that shares its pod, to which a fault happens as a whole.
    fn beside(&self, key: Key) -> Option<String> {
        let slot = self.pods.get(&key)?.slot;
        let held = Ranks::of(self.job).of_pod(&self.job.replicas(), slot)?;
        let (first, last) = (held.start(), held.end());
        (first < last)
            .then(|| format!(", which holds ranks {first} to {last}; it befalls them all"))
    }

    /// The name of the container that trains: the one with the kind's name, or the first that is
    /// no init container.
    pub(super) fn training_container(&self, key: Key) -> String {
        let training = self.job.kind.container();
        let Some(entry) = self.pods.get(&key) else {
            return training.to_owned();
        };
        let mut names = entry.outputs.iter().map(|output| &output.name);
        if names.any(|name| &**name == training) {
            return training.to_owned();
        }
        let first = entry
            .outputs
            .iter()
            .find(|output| output.container >= entry.init_containers);
        first.map_or_else(|| training.to_owned(), |output| output.name.to_string())
    }
}
