//! What the operator has seen of the cluster, by job.
//!
//! Owns the memory of all feeds. Reading and changing it never waits.
//!
//! Invariant: a change of anything that a job's next pass would see names that job.

mod fabrics;
mod groups;
mod nodes;
mod runtimes;
mod seats;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use tokio::time::Instant;
use trainyard_core::{
    fleet::Fleet,
    job::{IndexSet, Observed, ObservedPod, PodPhase, Unreadable, Wait},
    launch::{GroupApi, slot_of, supervise::HowEnded},
    spec::{Job, Kind, Role, Slot, annotation},
};

pub(crate) use self::groups::{GroupEntry, Known};
pub(crate) use self::runtimes::{SeenRuntime, TrainApi};
use self::{fabrics::Fabrics, groups::Groups, runtimes::Runtimes, seats::LauncherRooms};
use crate::{
    feed::News,
    key::JobKey,
    node::NodeEntry,
    pod::PodEntry,
    room,
    view::{Bare, BatchView, JobView, PodView},
};

/// The memory of the operator.
#[derive(Debug, Default)]
pub(crate) struct Store {
    jobs: BTreeMap<JobKey, Arc<JobView>>,
    children: BTreeMap<JobKey, Children>,
    nodes: BTreeMap<Arc<str>, NodeEntry>,
    /// The pods that are counted under the name of their batch Job.
    launcher_rooms: LauncherRooms,
    /// The jobs with pods on each node.
    seats: BTreeMap<Arc<str>, BTreeSet<JobKey>>,
    /// How new the view of the pods is.
    version: u64,
    /// How new those of the Services and of the launchers are.
    services_version: u64,
    launchers_version: u64,
    /// Whether nodes are watched at all.
    pub(crate) nodes_known: bool,
    /// When the leases of nodes were read last.
    leases_read: Option<Instant>,
    /// The namespace whose jobs are watched; all namespaces if there is none.
    pub(crate) namespace: Option<String>,
    /// What is decided about nodes that all jobs share.
    pub(crate) fleet: Fleet,
    /// The pod groups of gangs that other schedulers start.
    groups: BTreeMap<GroupApi, Groups>,
    /// The fabrics of the cluster.
    fabrics: Fabrics,
    /// The runtimes of `TrainJob`s.
    runtimes: Runtimes,
}

/// What belongs to one job, by name.
#[derive(Debug, Default)]
struct Children {
    pods: BTreeMap<Box<str>, PodEntry>,
    services: BTreeMap<Box<str>, ServiceEntry>,
    launchers: BTreeMap<Box<str>, Launcher>,
}

impl Children {
    fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.services.is_empty() && self.launchers.is_empty()
    }
}

/// A Service, of which only its being there matters.
#[derive(Debug)]
struct ServiceEntry {
    uid: Box<str>,
    owner: Box<str>,
    labels: BTreeMap<String, String>,
}

/// A batch Job that is the launcher of an `MPIJob`.
#[derive(Clone, Debug)]
struct Launcher {
    uid: Box<str>,
    owner: Box<str>,
    attempt: u32,
    deleted_at: Option<Timestamp>,
    ended: Option<PodPhase>,
}

impl Store {
    pub(crate) fn job(&self, key: &JobKey) -> Option<Arc<JobView>> {
        self.jobs.get(key).cloned()
    }

    pub(crate) fn job_keys(&self) -> Vec<JobKey> {
        self.jobs.keys().cloned().collect()
    }

    pub(crate) fn job_count(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn pod_count(&self) -> usize {
        self.children
            .values()
            .map(|children| children.pods.len())
            .sum()
    }

    /// The name of the pod that `uid` stands for: itself, or the newest of a launcher.
    pub(crate) fn pod_called(&self, key: &JobKey, uid: &str) -> Option<String> {
        let pods = self.children.get(key)?.pods.iter();
        let own = pods.filter(|(_, pod)| &*pod.uid == uid || &*pod.owner == uid);
        let (name, _) = own.max_by_key(|(_, pod)| pod.version)?;
        Some(name.to_string())
    }

    /// The last line of the program of the pod `uid` in `attempt`, as its supervisor left it in the pod's status.
    pub(crate) fn last_line(&self, key: &JobKey, uid: &str, attempt: u32) -> Option<String> {
        let mut pods = self.children.get(key)?.pods.values();
        let pod = pods.find(|pod| &*pod.uid == uid)?;
        let words = pod.last_words.as_ref()?;
        let own = words.attempt == attempt && words.how == HowEnded::Ended;
        words.last_line.clone().filter(|_| own)
    }

    /// Who owns the pod `uid` of a job: the job, or the batch Job of its launcher.
    pub(crate) fn pod_owner(&self, key: &JobKey, uid: &str) -> Option<String> {
        let mut pods = self.children.get(key)?.pods.values();
        let pod = pods.find(|pod| &*pod.uid == uid)?;
        Some(pod.owner.to_string())
    }

    /// The hash of the authority by which the supervisor of the pod `uid` authenticates the operator.
    pub(crate) fn gang_ca(&self, key: &JobKey, uid: &str) -> Option<u64> {
        let mut pods = self.children.get(key)?.pods.values();
        pods.find(|pod| &*pod.uid == uid)?.gang_ca()
    }

    /// Whether the training container of the pod `uid` has been started again after its last end.
    pub(crate) fn runs_again(&self, key: &JobKey, uid: &str) -> bool {
        let children = self.children.get(key);
        let mut pods = children.into_iter().flat_map(|children| &children.pods);
        pods.any(|(_, pod)| &*pod.uid == uid && pod.runs_again())
    }

    /// What `decide` may know of `job`; nothing is decided on a status that cannot be read.
    pub(crate) fn observe(
        &self,
        key: &JobKey,
        view: &JobView,
        job: &Job,
    ) -> Result<Observed, Unreadable> {
        let uid = view.metadata.uid.as_str();
        let mut observed = Observed {
            version: self.version,
            status: view.read_status()?,
            being_deleted: view.metadata.deletion_timestamp.is_some(),
            ..Observed::default()
        };
        let Some(children) = self.children.get(key) else {
            return Ok(observed);
        };
        let launchers = &children.launchers;
        for pod in children.pods.values() {
            // The pod of a launcher belongs to its batch Job, which stands for it.
            if &*pod.owner != uid {
                continue;
            }
            observed.pods.extend(pod.observed(job));
        }
        for launcher in launchers
            .values()
            .filter(|launcher| &*launcher.owner == uid)
        {
            let pods = children.pods.values();
            let pods = pods.filter(|pod| pod.owner == launcher.uid);
            let newest = pods.max_by_key(|pod| pod.version);
            let Some(mut pod) = launcher.pod(newest, job) else {
                continue;
            };
            pod.uid = launcher.uid.to_string();
            observed.pods.push(pod);
        }
        let mut services: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for service in children
            .services
            .values()
            .filter(|service| &*service.owner == uid)
        {
            if let Some(slot) = slot_of(job, &service.labels) {
                services.entry(slot.role).or_default().push(slot.index);
            }
        }
        observed.services = services
            .into_iter()
            .map(|(role, indices)| (role, indices.into_iter().collect::<IndexSet>()))
            .collect();
        observed.nodes = self.silent_nodes(&observed);
        Ok(observed)
    }

    /// Applies watch events of the jobs of one API resource; returns the jobs that changed.
    pub(crate) fn update_jobs(&mut self, news: News<JobView>, kinds: &[Kind]) -> Vec<JobKey> {
        let key = |view: &JobView| {
            Some(JobKey {
                kind: view.kind?,
                namespace: view.metadata.namespace.as_str().into(),
                name: view.metadata.name.as_str().into(),
            })
        };
        match news {
            News::All(views, _) => {
                let mut changed: Vec<JobKey> = Vec::new();
                let before: Vec<JobKey> = self
                    .jobs
                    .keys()
                    .filter(|key| kinds.contains(&key.kind))
                    .cloned()
                    .collect();
                let mut there = BTreeSet::new();
                for view in views {
                    if let Some(key) = key(&view) {
                        there.insert(key.clone());
                        self.jobs.insert(key.clone(), Arc::new(view));
                        changed.push(key);
                    }
                }
                for key in before {
                    if !there.contains(&key) {
                        self.jobs.remove(&key);
                        changed.push(key);
                    }
                }
                changed
            }
            News::Is(view) => {
                let Some(key) = key(&view) else {
                    return Vec::new();
                };
                let mut changed = self.forget_other_kinds(&key, kinds);
                self.jobs.insert(key.clone(), Arc::new(view));
                changed.push(key);
                changed
            }
            News::Gone(view) => {
                let Some(key) = key(&view) else {
                    return Vec::new();
                };
                let mut changed = self.forget_other_kinds(&key, kinds);
                self.jobs.remove(&key);
                changed.push(key);
                changed
            }
            News::Version(_) => Vec::new(),
        }
    }

    /// Forgets the same object as the job of another kind of its resource: an annotation says which version an `MPIJob` was
    /// created in, and its author can edit it. The job that it was would stay forever, with its nodes.
    fn forget_other_kinds(&mut self, key: &JobKey, kinds: &[Kind]) -> Vec<JobKey> {
        let others = kinds.iter().filter(|kind| **kind != key.kind);
        let others = others.map(|kind| JobKey {
            kind: *kind,
            ..key.clone()
        });
        others
            .filter(|other| self.jobs.remove(other).is_some())
            .collect()
    }

    /// Takes the answer to a write of this operator in, unless the feed is further or the job is gone.
    pub(crate) fn remember_job(&mut self, key: &JobKey, view: JobView) {
        let Some(known) = self.jobs.get_mut(key) else {
            return;
        };
        if known.metadata.uid == view.metadata.uid
            && known.metadata.resource_version < view.metadata.resource_version
        {
            *known = Arc::new(view);
        }
    }

    pub(crate) fn update_pods(&mut self, news: News<PodView>) -> Vec<JobKey> {
        match news {
            News::All(pods, version) => {
                let mut changed: BTreeSet<JobKey> = BTreeSet::new();
                for (key, children) in &mut self.children {
                    if !children.pods.is_empty() {
                        children.pods.clear();
                        changed.insert(key.clone());
                    }
                }
                self.seats.clear();
                self.launcher_rooms = LauncherRooms::default();
                self.fleet
                    .queue
                    .keep_pods(|resident| resident.gang.is_none());
                for pod in pods {
                    changed.extend(self.put_pod(&pod));
                }
                self.children.retain(|_, children| !children.is_empty());
                self.version = self.version.max(version);
                changed.into_iter().collect()
            }
            News::Is(pod) => {
                self.version = self.version.max(pod.metadata.resource_version);
                self.put_pod(&pod).into_iter().collect()
            }
            News::Gone(pod) => {
                self.version = self.version.max(pod.metadata.resource_version);
                let Some(key) = JobKey::of_child(&pod.metadata) else {
                    return Vec::new();
                };
                let name = pod.metadata.name.as_str();
                // One that had ended gave its room up then; another of its name may be there by now.
                if room::of_ours(&pod, &key).is_some() {
                    self.put_own_room(&pod.metadata, None);
                }
                let mut was_known = false;
                self.change_children(&key, |children| {
                    let known = children.pods.get(name);
                    if known.is_some_and(|known| *known.uid == *pod.metadata.uid) {
                        was_known = true;
                        children.pods.remove(name);
                    }
                });
                if was_known {
                    self.fleet.queue.set_tied(room::key_of(&pod.metadata), None);
                }
                vec![key]
            }
            News::Version(version) => {
                self.version = self.version.max(version);
                Vec::new()
            }
        }
    }

    /// Takes a pod in that this operator has just made or changed, unless the feed is further.
    pub(crate) fn remember_pod(&mut self, pod: &PodView) {
        if pod.metadata.resource_version > self.version {
            self.put_pod(pod);
        }
    }

    fn put_pod(&mut self, pod: &PodView) -> Option<JobKey> {
        let key = JobKey::of_child(&pod.metadata)?;
        let node = (!pod.spec.node_name.is_empty()).then(|| self.node_name(&pod.spec.node_name));
        if let Some(node) = &node {
            self.seats
                .entry(Arc::clone(node))
                .or_default()
                .insert(key.clone());
        }
        self.put_own_room(&pod.metadata, room::of_ours(pod, &key));
        let entry = PodEntry::new(pod, node);
        let pods = &mut self.children.entry(key.clone()).or_default().pods;
        match pods.get_mut(pod.metadata.name.as_str()) {
            // A late watch event, also of the pod that had this name before.
            Some(known) if known.version > entry.version => return Some(key),
            Some(known) => *known = entry,
            None => {
                pods.insert(pod.metadata.name.as_str().into(), entry);
            }
        }
        self.fleet
            .queue
            .set_tied(room::key_of(&pod.metadata), room::of_unbound(pod, &key));
        Some(key)
    }

    /// The one copy of a node's name.
    fn node_name(&self, name: &str) -> Arc<str> {
        self.nodes
            .get_key_value(name)
            .map(|(name, _)| name)
            .or_else(|| self.seats.get_key_value(name).map(|(name, _)| name))
            .map_or_else(|| name.into(), Arc::clone)
    }

    pub(crate) fn update_services(&mut self, news: News<Bare>) -> Vec<JobKey> {
        match news {
            News::All(items, version) => {
                self.services_version = self.services_version.max(version);
                let mut changed: BTreeSet<JobKey> = BTreeSet::new();
                for (key, children) in &mut self.children {
                    if !children.services.is_empty() {
                        children.services.clear();
                        changed.insert(key.clone());
                    }
                }
                for item in items {
                    changed.extend(self.put_service(item));
                }
                self.children.retain(|_, children| !children.is_empty());
                changed.into_iter().collect()
            }
            News::Is(item) => {
                let version = item.metadata.resource_version;
                self.services_version = self.services_version.max(version);
                self.put_service(item).into_iter().collect()
            }
            News::Gone(item) => {
                let version = item.metadata.resource_version;
                self.services_version = self.services_version.max(version);
                let Some(key) = JobKey::of_child(&item.metadata) else {
                    return Vec::new();
                };
                self.change_children(&key, |children| {
                    children.services.remove(item.metadata.name.as_str());
                });
                vec![key]
            }
            News::Version(_) => Vec::new(),
        }
    }

    /// Takes a Service in that this operator has just made, unless the feed is further.
    pub(crate) fn remember_service(&mut self, item: Bare) {
        if item.metadata.resource_version > self.services_version {
            self.put_service(item);
        }
    }

    /// The uid of the Service `name` of the job of `key`, where it is that of the incarnation `owner`.
    pub(crate) fn service(&self, key: &JobKey, owner: &str, name: &str) -> Option<String> {
        let service = self.children.get(key)?.services.get(name)?;
        (&*service.owner == owner).then(|| service.uid.to_string())
    }

    fn put_service(&mut self, item: Bare) -> Option<JobKey> {
        let key = JobKey::of_child(&item.metadata)?;
        let service = ServiceEntry {
            uid: item.metadata.uid.as_str().into(),
            owner: item.metadata.owner().into(),
            labels: item.metadata.labels,
        };
        let children = self.children.entry(key.clone()).or_default();
        children.services.insert(item.metadata.name.into(), service);
        Some(key)
    }

    pub(crate) fn update_launchers(&mut self, news: News<BatchView>) -> Vec<JobKey> {
        match news {
            News::All(items, version) => {
                self.launchers_version = self.launchers_version.max(version);
                let mut changed: BTreeSet<JobKey> = BTreeSet::new();
                for (key, children) in &mut self.children {
                    if !children.launchers.is_empty() {
                        children.launchers.clear();
                        changed.insert(key.clone());
                    }
                }
                for item in items {
                    changed.extend(self.put_launcher(&item));
                }
                self.children.retain(|_, children| !children.is_empty());
                changed.into_iter().collect()
            }
            News::Is(item) => {
                let version = item.metadata.resource_version;
                self.launchers_version = self.launchers_version.max(version);
                self.put_launcher(&item).into_iter().collect()
            }
            News::Gone(item) => {
                let version = item.metadata.resource_version;
                self.launchers_version = self.launchers_version.max(version);
                let Some(key) = JobKey::of_owned(&item.metadata) else {
                    return Vec::new();
                };
                self.change_children(&key, |children| {
                    children.launchers.remove(item.metadata.name.as_str());
                });
                vec![key]
            }
            News::Version(_) => Vec::new(),
        }
    }

    /// Takes a launcher in that this operator has just made, unless the feed is further.
    pub(crate) fn remember_launcher(&mut self, item: &BatchView) {
        if item.metadata.resource_version > self.launchers_version {
            self.put_launcher(item);
        }
    }

    fn put_launcher(&mut self, item: &BatchView) -> Option<JobKey> {
        let key = JobKey::of_owned(&item.metadata)?;
        let holds = |kind: &str| {
            let mut conditions = item.status.conditions.iter();
            conditions.any(|condition| condition.kind == kind && condition.status == "True")
        };
        let launcher = Launcher {
            uid: item.metadata.uid.as_str().into(),
            owner: item.metadata.owner().into(),
            attempt: attempt(&item.metadata.labels),
            deleted_at: item.metadata.deletion_timestamp,
            ended: match (holds("Complete"), holds("Failed")) {
                (true, _) => Some(PodPhase::Succeeded),
                (_, true) => Some(PodPhase::Failed),
                _ => None,
            },
        };
        let children = self.children.entry(key.clone()).or_default();
        let name = item.metadata.name.as_str().into();
        children.launchers.insert(name, launcher);
        Some(key)
    }

    fn change_children(&mut self, key: &JobKey, change: impl FnOnce(&mut Children)) {
        if let Some(children) = self.children.get_mut(key) {
            change(children);
            if children.pods.is_empty() {
                for jobs in self.seats.values_mut() {
                    jobs.remove(key);
                }
                self.seats.retain(|_, jobs| !jobs.is_empty());
            }
            if children.is_empty() {
                self.children.remove(key);
            }
        }
    }
}

impl Launcher {
    /// The launcher as one pod: its newest, or one that is still to come.
    fn pod(&self, newest: Option<&PodEntry>, job: &Job) -> Option<ObservedPod> {
        let mut pod = match newest {
            Some(pod) => pod.observed(job)?,
            None => ObservedPod {
                uid: String::new(),
                slot: Slot::new(Role::Launcher, 0),
                attempt: self.attempt,
                phase: PodPhase::Pending,
                ready: false,
                deleted_at: None,
                grace_seconds: 30,
                node: None,
                restarts: 0,
                ends: 0,
                exit: None,
                start_error: None,
                wait: Some(Wait::Create),
                disruption: None,
                gated: false,
            },
        };
        pod.deleted_at = self.deleted_at.or(pod.deleted_at);
        // A pod that failed is replaced by the batch Job until that gives up.
        pod.phase = match (self.ended, pod.phase) {
            (Some(ended), _) => ended,
            (None, PodPhase::Failed | PodPhase::Succeeded) => PodPhase::Pending,
            (None, phase) => phase,
        };
        Some(pod)
    }
}

fn attempt(labels: &BTreeMap<String, String>) -> u32 {
    labels
        .get(annotation::ATTEMPT)
        .and_then(|attempt| attempt.parse().ok())
        .unwrap_or(1)
}

#[cfg(test)]
mod tests;
