//! The wait queue: which gangs wait for nodes, and which nodes they were assigned.
//!
//! Owns the snapshot of the cluster that [`place`] looks at, kept up to date object by object, and the seats
//! that no pod carries yet. An adapter passes in watch events and asks it what a gang may do; which seats a gang
//! gets is [`place`]'s, and what a gang without seats does is [`crate::job`]'s.
//!
//! Invariant: a seat is held from the moment it is assigned until its pod has ended or the gang releases
//! it. What pods carry is enough to know all seats again after a restart.

mod admission;
mod entry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;

use self::entry::Entry;
use crate::{
    gang::{
        Eviction, Gang, GangKey, Node, PodKey, PreemptionScope, PriorityClass, PriorityClasses,
        Resident, Resources, Snapshot, place,
    },
    job::{NoNodes, Seating},
    launch::{Cluster, GangScheduler, HOSTNAME},
    mutant::{self, Mutant},
    pod::PodPhase,
    spec::{GangBy, Job},
};

/// The scheduler that pods without another one go to.
const OWN_SCHEDULER: &str = "default-scheduler";

/// Pods of all gangs together of which is known what each wants: a gang of 100,000 is a few lines of its author, and takes
/// megabytes here…
const PODS_MAX: usize = 1_000_000;
/// …and of the gangs of one namespace.
const NAMESPACE_PODS_MAX: usize = 250_000;

/// Whether a job waits for seats for all of its pods: every job does, unless it says otherwise or another
/// scheduler or, `queued`, another queue manages it.
pub fn waits_for_seats(job: &Job, cluster: &Cluster, queued: bool) -> bool {
    let foreign = job.roles.values().any(|role| {
        let spec = role.template.spec.as_ref();
        let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref());
        scheduler.is_some_and(|name| !name.is_empty() && name != OWN_SCHEDULER)
    });
    let grouped = GangScheduler::of(job, cluster).is_some();
    job.settings.gang != Some(GangBy::Nobody) && !foreign && !grouped && !queued
}

/// The version of a job that a gang belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangRevision {
    /// The generation of its spec.
    pub generation: i64,
    /// When the job was made.
    pub created: Timestamp,
    /// Its attempt.
    pub attempt: u32,
    /// The last attempt that released its seats; 0 where none did.
    pub released: u32,
    /// Since when it runs, where it does.
    pub runs_since: Option<Timestamp>,
    /// When its newest complete checkpoint was saved, where one was seen.
    pub saved_at: Option<Timestamp>,
}

/// A pod of a gang, with what matters for its seat.
#[derive(Clone, Copy, Debug)]
pub struct GangPod<'a> {
    /// Its name; that of its batch Job where one stands for it.
    pub name: &'a str,
    /// Its phase.
    pub phase: PodPhase,
    /// The attempt that it carries.
    pub attempt: u32,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// The node that it is on.
    pub node: Option<&'a str>,
    /// The node that it is tied to.
    pub tied: Option<&'a str>,
    /// Its priority, as the API server stored it.
    pub priority: i32,
    /// Whether its `preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// What it asks for, where it has no node yet.
    pub requests: Option<&'a Resources>,
}

/// What a placement of the wait queue changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueChanges {
    /// The gangs that got seats.
    pub seated: Vec<GangKey>,
    /// The others for which something has changed.
    pub changed: Vec<GangKey>,
    /// The gangs that now wait because of the scope of preemption.
    pub out_of_scope: Vec<GangKey>,
    /// Inconsistencies of the topology, where the levels were detected again.
    pub warnings: Vec<String>,
}

/// What a gang holds, and what it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// The gang.
    pub key: &'a GangKey,
    /// The nodes that its pods were assigned, by name of the pod.
    pub assigned: &'a BTreeMap<String, String>,
    /// Since when it waits for nodes, where it does.
    pub waits_since: Option<Timestamp>,
    /// For whom it has to leave its nodes.
    pub evicted: Option<&'a Eviction>,
    gang: &'a Gang,
}

impl Holding<'_> {
    /// What the pod named `pod` asks for.
    pub fn requests(&self, pod: &str) -> Resources {
        let mut pods = self.gang.pods.iter();
        let member = pods.find(|member| member.name == pod);
        let shape = member.and_then(|member| self.gang.shapes.get(member.shape));
        shape.map_or_else(Resources::default, |shape| shape.requests.clone())
    }
}

/// The wait queue, and its snapshot of the cluster.
#[derive(Debug, Default)]
pub struct WaitQueue {
    snapshot: Snapshot,
    gangs: BTreeMap<GangKey, Entry>,
    /// Gangs that are not known because others have all the room there is for them, with how many pods each has.
    crowded: BTreeMap<GangKey, usize>,
    /// The pods that are tied to a node and not bound to it yet, as if they were there.
    tied: BTreeMap<PodKey, Resident>,
    /// The priority classes of the cluster.
    classes: PriorityClasses,
    /// The levels have to be detected again.
    labels_changed: bool,
    /// Something has changed for waiting gangs, so that placement should run.
    placement_due: bool,
}

impl WaitQueue {
    /// The cluster as the wait queue sees it.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Adds or updates a node.
    pub fn update_node(&mut self, name: &str, node: Node) {
        let known = self.snapshot.nodes.get(name);
        if known == Some(&node) {
            return;
        }
        self.labels_changed |= known.is_none_or(|known| known.labels != node.labels);
        self.placement_due = true;
        self.snapshot.nodes.insert(name.to_owned(), node);
    }

    /// Sets whether a node responds.
    pub fn set_node_responding(&mut self, name: &str, answers: bool) {
        if let Some(node) = self.snapshot.nodes.get_mut(name)
            && node.ready != answers
        {
            node.ready = answers;
            self.placement_due = true;
        }
    }

    /// Forgets a node.
    pub fn forget_node(&mut self, name: &str) {
        self.labels_changed |= self.snapshot.nodes.remove(name).is_some();
    }

    /// Forgets all nodes.
    pub fn forget_nodes(&mut self) {
        self.snapshot.nodes.clear();
        self.labels_changed = true;
    }

    /// Adds or updates a pod; `None` removes it.
    pub fn update_pod(&mut self, key: PodKey, resident: Option<Resident>) {
        match resident {
            Some(resident) => {
                self.snapshot.pods.insert(key, resident);
            }
            None => self.placement_due |= self.snapshot.pods.remove(&key).is_some(),
        }
    }

    /// Takes in a pod that is tied to a node and not bound to it yet, with what it will take there; nothing where it is bound,
    /// gone or tied to none. The scheduler may bind it at any moment, so its node has no room for others even if its gang has
    /// given the seat back.
    pub fn set_tied(&mut self, key: PodKey, resident: Option<Resident>) {
        match resident {
            Some(resident) => {
                self.tied.insert(key, resident);
            }
            None => self.placement_due |= self.tied.remove(&key).is_some(),
        }
    }

    /// Forgets every pod that is tied to a node and not bound to it for which `keep` does not hold.
    pub fn retain_tied(&mut self, keep: impl Fn(&PodKey, &Resident) -> bool) {
        let before = self.tied.len();
        self.tied.retain(|key, resident| keep(key, resident));
        self.placement_due |= self.tied.len() < before;
    }

    /// Forgets every pod for which `keep` does not hold.
    pub fn keep_pods(&mut self, keep: impl Fn(&Resident) -> bool) {
        self.snapshot.pods.retain(|_, resident| keep(resident));
        self.tied.retain(|_, resident| keep(resident));
        self.placement_due = true;
    }

    /// Sets which gangs may be evicted for gangs of higher priority.
    pub fn set_preemption(&mut self, scope: PreemptionScope) {
        self.snapshot.preemption = scope;
    }

    /// Adds or replaces a priority class; `None` removes it.
    pub fn set_class(&mut self, name: &str, class: Option<PriorityClass>) {
        self.placement_due |= match class {
            Some(class) => self.classes.insert(name, class),
            None => self.classes.remove(name),
        };
    }

    /// Replaces all priority classes.
    pub fn set_classes(&mut self, classes: PriorityClasses) {
        self.placement_due |= self.classes != classes;
        self.classes = classes;
    }

    /// Whether placement should run again; resets the flag.
    pub fn take_placement_due(&mut self) -> bool {
        let mut gangs = self.gangs.values();
        std::mem::take(&mut self.placement_due)
            && (gangs.any(|entry| entry.is_waiting || entry.evicted.is_some())
                || !self.crowded.is_empty())
    }

    /// How many gangs wait.
    pub fn waiting(&self) -> usize {
        self.gangs.values().filter(|entry| entry.is_waiting).count()
    }

    /// Every gang with what it holds.
    pub fn holdings(&self) -> impl Iterator<Item = Holding<'_>> {
        self.gangs.iter().map(|(key, entry)| Holding {
            key,
            assigned: &entry.gang.held,
            waits_since: entry.is_waiting.then_some(entry.since),
            evicted: entry.evicted.as_ref(),
            gang: &entry.gang,
        })
    }

    /// The name by which a node selector finds `node`.
    pub fn hostname(&self, node: &str) -> String {
        let labels = self.snapshot.nodes.get(node).map(|node| &node.labels);
        labels
            .and_then(|labels| labels.get(HOSTNAME))
            .map_or(node, String::as_str)
            .to_owned()
    }

    /// What the gang of `job` may do, given the pods that it has. A job that cannot be laid out waits for no
    /// seats: it is refused where its pods are made.
    pub fn seating<'a>(
        &mut self,
        job: &Job,
        revision: GangRevision,
        cluster: &Cluster,
        pods: impl IntoIterator<Item = GangPod<'a>>,
        now: Timestamp,
    ) -> Seating {
        let key = GangKey::of(job);
        // A job that was made again under the same name has nothing of the one before it.
        let is_same = |entry: &Entry| entry.gang.created == revision.created;
        let is_known = self
            .gangs
            .get(&key)
            .is_some_and(|entry| entry.generation == revision.generation && is_same(entry));
        let mut pods = pods.into_iter();
        let mut first = Vec::new();
        self.crowded.remove(&key);
        if !is_known {
            let count = job.total_replicas() as usize;
            if let Some(why) = self.crowding(&key, count) {
                // One that is there in earnest holds nodes, and is known in any case.
                first.extend(pods.by_ref().take(count / 10 + 1));
                if first.len() <= count / 10 {
                    self.placement_due |= self.gangs.remove(&key).is_some();
                    self.crowded.insert(key, count);
                    return Seating::Queued(Some(why.into()));
                }
            }
            let Ok(gang) = Gang::of(job, cluster, revision.created) else {
                self.placement_due |= self.gangs.remove(&key).is_some();
                return Seating::Open;
            };
            let before = self.gangs.remove(&key);
            // It may have had more pods.
            self.placement_due |= before.is_some() && !self.crowded.is_empty();
            let before = before.filter(is_same);
            let entry = Entry::new(gang, revision.generation, job.settings.start_within, before);
            self.gangs.insert(key.clone(), entry);
        }
        let Some(entry) = self.gangs.get_mut(&key) else {
            return Seating::Open;
        };
        // A checkpoint that was seen comes before what a training says of itself. One of a clock that is ahead was saved by now.
        let saved_at = revision.saved_at.map(|at| at.min(now));
        entry.gang.safe_at = saved_at.or(job.settings.checkpointed_at);
        entry.gang.runs_since = revision.runs_since;
        let pods = first.into_iter().chain(pods);
        self.placement_due |= entry.update_pods(revision.attempt, revision.released, pods);
        if job.run_policy.suspend {
            self.placement_due |= entry.free_seats_of_gone_pods();
        }
        if entry.release_unusable_seats(&self.snapshot, now) {
            self.placement_due = true;
        }
        entry.seating(job, &self.classes)
    }

    /// Why there is no room for one more gang of `count` pods, beside those of its namespace and all others.
    fn crowding(&self, key: &GangKey, count: usize) -> Option<String> {
        let (mut all, mut own) = (count, count);
        for (other, entry) in &self.gangs {
            let is_own = other.namespace == key.namespace;
            if is_own && other == key {
                continue;
            }
            all += entry.gang.pods.len();
            if is_own {
                own += entry.gang.pods.len();
            }
        }
        if own > NAMESPACE_PODS_MAX {
            return Some(format!(
                "with it the jobs of namespace `{}` have {own} pods that hold or wait for nodes, and {NAMESPACE_PODS_MAX} is the \
                 maximum; waiting for others of them to end",
                key.namespace
            ));
        }
        (all > PODS_MAX).then(|| {
            format!(
                "with it the jobs of all namespaces have {all} pods that hold or wait for nodes, and {PODS_MAX} is the maximum; \
                 waiting for others to end"
            )
        })
    }

    /// Takes those of the crowded gangs that there is room for by now, all together: their passes make them known. The others get no
    /// pass: there may be thousands, and one gang ends after another.
    fn take_uncrowded(&mut self) -> Vec<GangKey> {
        if self.crowded.is_empty() {
            return Vec::new();
        }
        let mut all = 0;
        let mut namespaces: BTreeMap<&str, usize> = BTreeMap::new();
        for (key, entry) in &self.gangs {
            all += entry.gang.pods.len();
            *namespaces.entry(&key.namespace).or_default() += entry.gang.pods.len();
        }
        let mut taken = Vec::new();
        for (key, count) in &self.crowded {
            let own = namespaces.entry(&key.namespace).or_default();
            if *own + count <= NAMESPACE_PODS_MAX && all + count <= PODS_MAX {
                *own += count;
                all += count;
                taken.push(key.clone());
            }
        }
        for key in &taken {
            self.crowded.remove(key);
        }
        taken
    }

    /// Adds a gang to the wait queue.
    pub fn ask(&mut self, key: &GangKey, now: Timestamp) {
        if let Some(entry) = self.gangs.get_mut(key)
            && !entry.is_waiting
        {
            entry.is_waiting = true;
            entry.since = now;
            entry.why = None;
            self.placement_due = true;
        }
    }

    /// Releases the seats of a gang, and removes it from the wait queue.
    pub fn release_seats(&mut self, key: &GangKey, avoid: &[String], now: Timestamp) {
        if let Some(entry) = self.gangs.get_mut(key) {
            entry.release_seats(avoid, now);
            self.placement_due = true;
        }
    }

    /// Removes a gang from the wait queue that nobody processes for now, such as that of a job that was edited into an invalid
    /// one, and releases the seats that none of its pods is on or tied to: nobody would create pods for them or time
    /// them out.
    pub fn release_unused_seats(&mut self, key: &GangKey) {
        let (snapshot, tied) = (&self.snapshot, &self.tied);
        if let Some(entry) = self.gangs.get_mut(key) {
            let has_pod = |pod: &PodKey| snapshot.pods.contains_key(pod) || tied.contains_key(pod);
            self.placement_due |= entry.stop_waiting(has_pod);
        }
    }

    /// Forgets a gang and its seats.
    pub fn forget(&mut self, key: &GangKey) {
        if mutant::is(Mutant::KeepsForgottenGangs) {
            return;
        }
        self.crowded.remove(key);
        self.placement_due |= self.gangs.remove(key).is_some();
    }

    /// Forgets all gangs and their seats. An operator that begins to lead again does so: another one assigned seats meanwhile, and
    /// what pods carry is newer than what it remembers.
    pub fn forget_gangs(&mut self) {
        if !mutant::is(Mutant::RemembersOldGangs) {
            self.placement_due |= !self.gangs.is_empty();
            self.gangs.clear();
            self.crowded.clear();
        }
    }

    /// Assigns seats to the gangs that fit.
    pub fn place(&mut self, now: Timestamp) -> QueueChanges {
        let mut changes = QueueChanges {
            changed: self.cancel_evictions(),
            ..QueueChanges::default()
        };
        changes.changed.extend(self.take_uncrowded());
        if !self.gangs.values().any(|entry| entry.is_waiting) {
            return changes;
        }
        if std::mem::take(&mut self.labels_changed) {
            self.snapshot.detect_topology();
            changes.warnings.clone_from(&self.snapshot.warnings);
        }
        for (key, entry) in &mut self.gangs {
            if entry.release_if_start_timed_out(&self.snapshot, now) {
                changes.changed.push(key.clone());
            }
        }
        let reaches = self.snapshot.preemption != PreemptionScope::Off;
        let preempting = reaches && self.gangs.values().any(|entry| self.may_preempt(entry));
        let gangs: Vec<Gang> = self
            .gangs
            .values()
            .filter(|entry| preempting || entry.matters(&self.snapshot))
            .map(|entry| entry.wish(&self.classes))
            .collect();
        let unbound = self.count_tied_pods();
        let placement = place(&self.snapshot, &gangs, now);
        for key in &unbound {
            self.snapshot.pods.remove(key);
        }
        for entry in self.gangs.values_mut() {
            entry.gang.reserved.clear();
        }
        for (key, seating) in placement.seated {
            if let Some(entry) = self.gangs.get_mut(&key) {
                entry.take(seating.seats);
                changes.seated.push(key);
            }
        }
        for (key, refusal) in placement.refused {
            let Some(entry) = self.gangs.get_mut(&key) else {
                continue;
            };
            let out_of_scope = placement.out_of_scope.contains(&key);
            if out_of_scope && !entry.out_of_scope {
                changes.out_of_scope.push(key.clone());
            }
            entry.out_of_scope = out_of_scope;
            let why = Some(NoNodes {
                message: refusal.message,
                never_fits: !refusal.fits_when_empty,
            });
            if entry.why != why {
                entry.why = why;
                changes.changed.push(key);
            }
        }
        for (key, eviction) in placement.victims {
            if let Some(entry) = self.gangs.get_mut(&key) {
                entry.evicted = Some(eviction);
                changes.changed.push(key);
            }
        }
        for (key, seats) in placement.reservations {
            if let Some(entry) = self.gangs.get_mut(&key) {
                let seats = seats.into_iter().map(|seat| (seat.pod, seat.node));
                entry.gang.reserved = seats.collect();
            }
        }
        // A gang that others were to leave for may have got seats elsewhere just now; gangs that counted on theirs are placed again.
        let staying = self.cancel_evictions();
        self.placement_due |= !staying.is_empty();
        changes.changed.extend(staying);
        changes
    }

    /// Counts the pods that are tied to nodes as if they were there; which they are.
    fn count_tied_pods(&mut self) -> Vec<PodKey> {
        if mutant::is(Mutant::ForgetsTiedPods) {
            return Vec::new();
        }
        let (pods, nodes) = (&mut self.snapshot.pods, &self.snapshot.nodes);
        // One that its node could not even run alone will never be bound to it.
        let may_run = |pod: &Resident| {
            let node = nodes.get(&pod.node);
            node.is_some_and(|node| node.can_run(&pod.requests))
        };
        let tied = self.tied.iter();
        let unbound: Vec<(&PodKey, &Resident)> = tied
            .filter(|(key, pod)| !pods.contains_key(key) && may_run(pod))
            .collect();
        pods.extend(
            unbound
                .iter()
                .map(|(key, resident)| ((*key).clone(), (*resident).clone())),
        );
        unbound.into_iter().map(|(key, _)| key.clone()).collect()
    }

    /// Whether others may be evicted for a gang.
    fn may_preempt(&self, entry: &Entry) -> bool {
        let asks = entry.is_waiting && entry.gang.preempts;
        asks && {
            let standing = entry.standing(&self.classes);
            standing.is_admitted && !standing.never_preempts
        }
    }

    /// Cancels evictions of gangs that still hold their seats, where the beneficiary no longer waits, or no longer has the pods and
    /// the priority for it. Returns these gangs.
    fn cancel_evictions(&mut self) -> Vec<GangKey> {
        let none = self.gangs.values().all(|entry| entry.evicted.is_none());
        if none || mutant::is(Mutant::KeepsEvictions) {
            return Vec::new();
        }
        let waiting = self.gangs.values().filter(|entry| self.may_preempt(entry));
        let waiting: BTreeMap<String, i32> = waiting
            .map(|entry| {
                let claim = entry.standing(&self.classes).claim;
                (entry.gang.key.to_string(), claim)
            })
            .collect();
        let mut staying = Vec::new();
        for (key, entry) in &mut self.gangs {
            let priority = entry.standing(&self.classes).priority;
            let moot = |eviction: &mut Eviction| {
                let claim = waiting.get(&eviction.beneficiary);
                claim.is_none_or(|claim| *claim <= priority)
            };
            if entry.evicted.take_if(moot).is_some() {
                staying.push(key.clone());
            }
        }
        staying
    }
}
