//! One gang, waiting or with seats.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use super::{
    GangPod,
    admission::{Admission, Standing},
};
use crate::{
    gang::{Eviction, Gang, PodKey, PriorityClasses, Seat, Shape, Snapshot},
    job::{NoNodes, Seating},
    mutant::{self, Mutant},
    pod::PodPhase,
    spec::{Job, Slot},
};

/// A node that failed for a gang is not given to it again for this long.
const AVOIDED_FOR: Duration = Duration::from_mins(5);
/// Nodes that are avoided at once; the oldest is tried again first.
const AVOIDED_MOST: usize = 64;

/// One gang.
#[derive(Debug)]
pub(super) struct Entry {
    /// What it wants; the seats that it was given are its `held`.
    pub(super) gang: Gang,
    /// Of which version of the job.
    pub(super) generation: i64,
    pub(super) is_waiting: bool,
    /// Since when it waits.
    pub(super) since: Timestamp,
    /// How long it may hold some seats while it waits for the rest.
    patience: Duration,
    /// Why it has no seats.
    pub(super) why: Option<NoNodes>,
    /// The pods of `attempt` that have ended well and need no seat any more.
    done: BTreeSet<String>,
    attempt: u32,
    /// The pods of `attempt` that exist and stay, or have ended well.
    there: BTreeSet<String>,
    /// The nodes that failed for this gang, and since when.
    avoided: BTreeMap<String, Timestamp>,
    /// For which gang it is evicted, until it has released its seats.
    pub(super) evicted: Option<Eviction>,
    /// What the API server admitted of it.
    admission: Admission,
    /// Whether it waits because of the scope of preemption.
    pub(super) out_of_scope: bool,
}

impl Entry {
    /// The gang of a job that is new, or has been edited since `before`.
    pub(super) fn new(
        gang: Gang,
        generation: i64,
        patience: Duration,
        before: Option<Self>,
    ) -> Self {
        let mut entry = Self {
            generation,
            is_waiting: false,
            since: gang.created,
            patience,
            why: None,
            done: BTreeSet::new(),
            attempt: 0,
            there: BTreeSet::new(),
            avoided: BTreeMap::new(),
            evicted: None,
            admission: Admission::default(),
            out_of_scope: false,
            gang,
        };
        if let Some(before) = before {
            let names: BTreeSet<&str> = entry.gang.pods.iter().map(|pod| &*pod.name).collect();
            entry.gang.held = before.gang.held;
            entry
                .gang
                .held
                .retain(|pod, _| names.contains(pod.as_str()));
            entry.gang.remembered = before.gang.remembered;
            entry.gang.leaving = before.gang.leaving;
            entry.evicted = before.evicted;
            entry.is_waiting = before.is_waiting;
            entry.since = before.since;
            entry.avoided = before.avoided;
            entry.done = before.done;
            entry.attempt = before.attempt;
            entry.admission = before.admission;
            entry.out_of_scope = before.out_of_scope;
        }
        entry
    }

    /// Reads from the pods which seats are taken, which are free for good, and what was admitted. Pods of attempts
    /// up to `released` have no seats any more. Returns whether placement may give another result now.
    pub(super) fn update_pods<'a>(
        &mut self,
        attempt: u32,
        released: u32,
        pods: impl IntoIterator<Item = GangPod<'a>>,
    ) -> bool {
        if self.attempt != attempt {
            self.attempt = attempt;
            self.done.clear();
        }
        let mut leaving = false;
        let mut admission = Admission::default();
        let mut there: BTreeSet<&str> = BTreeSet::new();
        for pod in pods {
            let mut members = self.gang.pods.iter();
            let Some(member) = members.find(|member| member.name == pod.name) else {
                continue;
            };
            let has_ended = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
            if pod.attempt > released && !has_ended {
                let is_current = pod.attempt == attempt && !pod.leaving;
                admission.add(&pod, &self.gang.shapes[member.shape], is_current);
                if is_current {
                    there.insert(pod.name);
                }
            }
            if pod.attempt <= released {
                leaving |= !has_ended;
            } else if pod.phase == PodPhase::Succeeded && pod.attempt == attempt {
                self.gang.held.remove(pod.name);
                self.done.insert(pod.name.to_owned());
            } else if has_ended || pod.leaving {
                // Its seat is held for the pod that replaces it.
            } else if let Some(node) = pod.node {
                self.gang.held.insert(pod.name.to_owned(), node.to_owned());
            } else if let Some(tied) = pod.tied {
                // What is remembered here is newer than what the pod was made with.
                let held = self.gang.held.entry(pod.name.to_owned());
                held.or_insert_with(|| tied.to_owned());
            }
        }
        let has_left = self.gang.leaving && !leaving;
        self.gang.leaving = leaving;
        there.extend(self.done.iter().map(String::as_str));
        admission.settle(&self.gang, &there, &self.admission);
        let affects_placement = admission.affects_placement(&self.admission, self.is_waiting);
        self.admission = admission;
        self.there = there.into_iter().map(str::to_owned).collect();
        has_left || affects_placement
    }

    /// Releases the seats whose pods do not exist or are leaving: no pod of a suspended job comes after them. Whether it did.
    pub(super) fn free_seats_of_gone_pods(&mut self) -> bool {
        let before = self.gang.held.len();
        let there = &self.there;
        self.gang.held.retain(|pod, _| there.contains(pod));
        self.gang.held.len() < before
    }

    /// Stops waiting, and releases the seats whose pods are on no node. Whether that changed anything.
    pub(super) fn stop_waiting(&mut self, has_pod: impl Fn(&PodKey) -> bool) -> bool {
        let before = self.gang.held.len();
        let namespace = &self.gang.key.namespace;
        self.gang.held.retain(|pod, _| {
            has_pod(&PodKey {
                namespace: namespace.clone(),
                name: pod.clone(),
            })
        });
        let changed = self.is_waiting || self.gang.held.len() < before;
        self.is_waiting = false;
        self.why = None;
        self.out_of_scope = false;
        self.gang.reserved.clear();
        changed
    }

    /// With what priority the gang holds its seats and asks for more.
    pub(super) fn standing(&self, classes: &PriorityClasses) -> Standing {
        self.admission.standing(&self.gang, classes)
    }

    /// Releases seats on nodes that accept no pods any more, unless its pod is on the node; whether it did.
    pub(super) fn release_unusable_seats(&mut self, snapshot: &Snapshot, now: Timestamp) -> bool {
        if mutant::is(Mutant::KeepsBadSeats) || self.gang.held.is_empty() {
            return false;
        }
        let namespace = &self.gang.key.namespace;
        let shapes = &self.gang.shapes;
        let members = self.gang.pods.iter();
        let members: BTreeMap<&str, &Shape> = members
            .filter_map(|pod| Some((pod.name.as_str(), shapes.get(pod.shape)?)))
            .collect();
        let (avoided, held) = (&self.avoided, &mut self.gang.held);
        let mut lost = Vec::new();
        held.retain(|pod, node| {
            let shape = members.get(pod.as_str());
            let seats = snapshot.nodes.get(node.as_str()).is_some_and(|node| {
                let taken = node.is_quarantined() || node.is_on_probation();
                // The author of a pod writes what it is tied to.
                let runs = shape.is_none_or(|shape| node.can_run(&shape.requests));
                node.ready && !node.unschedulable && !taken && runs
            });
            let key = PodKey {
                namespace: namespace.clone(),
                name: pod.clone(),
            };
            let has_bound_pod = || {
                let resident = snapshot.pods.get(&key);
                resident.is_some_and(|pod| pod.node == *node && !pod.leaving)
            };
            let keep = (seats && !avoided.contains_key(node.as_str())) || has_bound_pod();
            if !keep {
                lost.push((pod.clone(), node.clone()));
            }
            keep
        });
        let any = !lost.is_empty();
        self.gang.remembered.extend(lost);
        if any && !self.is_waiting {
            self.is_waiting = true;
            self.since = now;
            self.why = None;
        }
        any
    }

    pub(super) fn seating(&mut self, job: &Job, classes: &PriorityClasses) -> Seating {
        let mut first = self.gang.pods.iter().take(self.gang.minimum);
        let enough = first
            .all(|pod| self.gang.held.contains_key(&pod.name) || self.done.contains(&pod.name));
        if let Some(eviction) = &self.evicted {
            return Seating::Evicted(eviction.message.clone());
        }
        if enough && self.gang.minimum > 0 {
            return Seating::Given(by_slot(job, &self.gang.held));
        }
        match self.admission.awaited(&self.gang, classes) {
            // A gang that holds seats stays in the wait queue until its start times out.
            Some(why) if self.is_waiting && !self.gang.held.is_empty() => {
                Seating::Queued(Some(self.why.clone().unwrap_or_else(|| why.into())))
            }
            Some(why) => {
                self.is_waiting = false;
                self.why = None;
                self.gang.reserved.clear();
                Seating::Unadmitted(why)
            }
            None if self.is_waiting => Seating::Queued(self.why.clone()),
            None => Seating::Unasked,
        }
    }

    pub(super) fn take(&mut self, seats: Vec<Seat>) {
        let seats = seats.into_iter().map(|seat| (seat.pod, seat.node));
        self.gang.held.extend(seats);
        self.gang.remembered.clear();
        let mut unseated = self.gang.unseated();
        self.is_waiting = unseated.any(|at| !self.done.contains(&self.gang.pods[at].name));
        self.why = None;
        self.out_of_scope = false;
    }

    pub(super) fn release_seats(&mut self, avoid: &[String], now: Timestamp) {
        self.is_waiting = false;
        self.why = None;
        self.out_of_scope = false;
        self.gang.reserved.clear();
        // Until the pods say otherwise.
        self.gang.leaving |= self.evicted.take().is_some();
        self.gang.remembered = std::mem::take(&mut self.gang.held);
        let avoid = avoid
            .iter()
            .filter(|_| !mutant::is(Mutant::GivesAvoidedNodes));
        for node in avoid {
            if self.avoided.len() >= AVOIDED_MOST
                && let Some(oldest) = self.avoided.iter().min_by_key(|(_, at)| **at)
            {
                let oldest = oldest.0.clone();
                self.avoided.remove(&oldest);
            }
            self.gang.remembered.retain(|_, seat| seat != node);
            self.avoided.insert(node.clone(), now);
        }
    }

    /// Releases the seats of a gang that has waited too long for the rest of them, with no pod that
    /// runs; whether it did.
    pub(super) fn release_if_start_timed_out(
        &mut self,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> bool {
        self.avoided
            .retain(|_, at| at.checked_add(AVOIDED_FOR).is_ok_and(|end| end > now));
        let over = self
            .since
            .checked_add(self.patience)
            .is_ok_and(|end| end <= now);
        if !self.is_waiting || self.gang.held.is_empty() || !over || self.has_bound_pod(snapshot) {
            return false;
        }
        if mutant::is(Mutant::KeepsPartialSeats) {
            return false;
        }
        self.gang.remembered = std::mem::take(&mut self.gang.held);
        true
    }

    /// Whether a pod of the gang is on a node.
    fn has_bound_pod(&self, snapshot: &Snapshot) -> bool {
        self.gang.pods.iter().any(|pod| {
            let key = PodKey {
                namespace: self.gang.key.namespace.clone(),
                name: pod.name.clone(),
            };
            snapshot.pods.contains_key(&key)
        })
    }

    /// Whether placement has to know of it: it waits, or holds seats that no pod shows. A pod of an earlier attempt may still be
    /// on another node under the same name.
    pub(super) fn matters(&self, snapshot: &Snapshot) -> bool {
        let is_unseen = |(pod, node): (&String, &String)| {
            let key = PodKey {
                namespace: self.gang.key.namespace.clone(),
                name: pod.clone(),
            };
            let resident = snapshot.pods.get(&key);
            resident.is_none_or(|resident| resident.node != *node)
        };
        let forgets = mutant::is(Mutant::ForgetsUnboundSeats);
        self.is_waiting || !forgets && self.gang.held.iter().any(is_unseen)
    }

    /// The gang as placement is to see it.
    pub(super) fn wish(&self, classes: &PriorityClasses) -> Gang {
        let mut gang = self.gang.clone();
        let standing = self.standing(classes);
        gang.priority = standing.priority;
        gang.claim = standing.claim;
        gang.admitted = standing.is_admitted;
        gang.never_preempts = standing.never_preempts;
        gang.pods.retain(|pod| !self.done.contains(&pod.name));
        gang.leaving |= self.evicted.is_some();
        if !self.is_waiting || gang.leaving {
            // It wants no more seats, or must terminate first.
            let held = &gang.held;
            gang.pods.retain(|pod| held.contains_key(&pod.name));
        }
        gang.minimum = gang.minimum.min(gang.pods.len());
        let avoided: Vec<String> = self.avoided.keys().cloned().collect();
        if !avoided.is_empty() {
            for shape in &mut gang.shapes {
                let affinity = &mut shape.constraints.node_affinity;
                exclude(affinity.get_or_insert_with(NodeSelector::default), &avoided);
            }
        }
        gang
    }
}

/// The slots of `job` with a seat.
fn by_slot(job: &Job, held: &BTreeMap<String, String>) -> BTreeMap<Slot, String> {
    let slots = job.slots();
    slots
        .filter_map(|slot| Some((slot, held.get(&job.pod_name(slot))?.clone())))
        .collect()
}

/// Narrows every alternative of `selector` to nodes that are not `avoided`.
fn exclude(selector: &mut NodeSelector, avoided: &[String]) {
    if selector.node_selector_terms.is_empty() {
        selector
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut selector.node_selector_terms {
        let fields = term.match_fields.get_or_insert_default();
        fields.push(NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(avoided.to_vec()),
        });
    }
}
