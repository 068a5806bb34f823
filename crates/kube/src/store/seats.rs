//! Watch events for the wait queue.

use std::collections::BTreeMap;

use jiff::Timestamp;
use trainyard_core::{
    fleet::GangRevision,
    gang::{PodKey, Resident},
    job::{self, JobStatus, Seating},
    launch::Cluster,
    spec::Job,
};

use super::Store;
use crate::{
    feed::News,
    key::JobKey,
    room,
    view::{JobView, Meta, PriorityView, RoomView},
};

/// The pods that are counted under the name of their batch Job, and under which: one pod for each name.
#[derive(Debug, Default)]
pub(super) struct LauncherRooms {
    names: BTreeMap<PodKey, PodKey>,
    pods: BTreeMap<PodKey, PodKey>,
}

impl LauncherRooms {
    fn insert(&mut self, pod: PodKey, name: PodKey) {
        self.pods.insert(name.clone(), pod.clone());
        self.names.insert(pod, name);
    }

    /// Forgets a pod; the name that it had.
    fn remove_pod(&mut self, pod: &PodKey) -> Option<PodKey> {
        let name = self.names.remove(pod)?;
        self.pods.remove(&name);
        Some(name)
    }

    /// Frees a name; the pod that had it.
    fn remove_name(&mut self, name: &PodKey) -> Option<PodKey> {
        let pod = self.pods.remove(name)?;
        self.names.remove(&pod);
        Some(pod)
    }
}

impl Store {
    /// What the gang of `job` may do, if this operator assigns nodes.
    pub(crate) fn seating(
        &mut self,
        key: &JobKey,
        view: &JobView,
        job: &Job,
        status: &JobStatus,
        cluster: &Cluster,
    ) -> Seating {
        let meta = &view.metadata;
        let created = meta.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
        let revision = GangRevision {
            generation: meta.generation,
            created,
            attempt: status.trainyard.attempt,
            released: status.trainyard.released,
            runs_since: job::runs_since(status),
            saved_at: job::saved_at(status),
        };
        let children = self.children.get(key);
        let launchers = children.into_iter().flat_map(|children| {
            let pods = children.pods.values();
            pods.filter_map(|pod| {
                let mut launchers = children.launchers.iter();
                let own = launchers.find(|(_, launcher)| launcher.uid == pod.owner);
                own.map(|(name, _)| (&**name, pod))
            })
        });
        let pods = children.into_iter().flat_map(|children| {
            let pods = children.pods.iter();
            pods.filter(|(_, pod)| *pod.owner == *meta.uid)
                .map(|(name, pod)| (&**name, pod))
        });
        let gang_pods = pods.chain(launchers).map(|(name, pod)| pod.gang_pod(name));
        self.fleet
            .queue
            .seating(job, revision, cluster, gang_pods, crate::clock::now())
    }

    /// Applies watch events of all other pods, for the resources that they use.
    pub(crate) fn update_room(&mut self, news: News<RoomView>) {
        match news {
            News::All(pods, _) => {
                self.fleet
                    .queue
                    .keep_pods(|resident| resident.gang.is_some());
                for pod in &pods {
                    self.put_room(pod);
                }
            }
            News::Is(pod) => self.put_room(&pod),
            News::Gone(pod) if !self.has_own_feed(&pod.metadata) => {
                self.remove_room(&room::own_key(&pod.metadata), false);
            }
            News::Gone(_) | News::Version(_) => {}
        }
    }

    fn put_room(&mut self, pod: &RoomView) {
        if !self.has_own_feed(&pod.metadata) {
            let own = room::own_key(&pod.metadata);
            match room::of_others(pod) {
                Some(resident) => self.put_room_as(own, resident),
                None => self.remove_room(&own, false),
            }
        }
    }

    /// Whether the watch of job pods covers this pod, also when its job is gone. An entry that two watches wrote
    /// would stay forever: one may add it after the other removed it.
    fn has_own_feed(&self, meta: &Meta) -> bool {
        let followed = self.namespace.as_ref();
        JobKey::of_child(meta).is_some() && followed.is_none_or(|own| *own == meta.namespace)
    }

    /// Counts the room of a pod of ours, or forgets it.
    ///
    /// Of several pods that one batch Job made, one at a time has the name that placement looks for. The others are counted
    /// under their own. Labels and owners of a pod are its author's, who may edit them: none of his pods hides another, and none
    /// stays counted under a name that it had.
    pub(super) fn put_own_room(&mut self, meta: &Meta, resident: Option<Resident>) {
        let (own, shared) = (room::own_key(meta), room::key_of(meta));
        let Some(resident) = resident else {
            if let Some(name) = self.launcher_rooms.remove_pod(&own) {
                self.remove_room(&name, true);
            } else if !self.launcher_rooms.pods.contains_key(&own) {
                self.remove_room(&own, true);
            }
            return;
        };
        if self.launcher_rooms.names.get(&own) == Some(&shared) {
            self.fleet.queue.update_pod(shared, Some(resident));
            return;
        }
        if let Some(before) = self.launcher_rooms.remove_pod(&own) {
            self.remove_room(&before, true);
        }
        let is_taken = self.fleet.queue.snapshot().pods.contains_key(&shared);
        if own == shared || is_taken {
            self.put_room_as(own, resident);
            return;
        }
        if !self.launcher_rooms.pods.contains_key(&own) {
            self.remove_room(&own, true);
        }
        self.launcher_rooms.insert(own, shared.clone());
        self.fleet.queue.update_pod(shared, Some(resident));
    }

    /// Counts the room of a pod under its own name. A launcher that was counted under it is counted under its own from now on.
    fn put_room_as(&mut self, own: PodKey, resident: Resident) {
        let (mut name, mut resident) = (own, resident);
        loop {
            let launcher = self.launcher_rooms.remove_name(&name);
            let moved = launcher.and_then(|launcher| {
                let pods = &self.fleet.queue.snapshot().pods;
                Some((launcher, pods.get(&name)?.clone()))
            });
            self.fleet.queue.update_pod(name, Some(resident));
            match moved {
                Some(next) => (name, resident) = next,
                None => return,
            }
        }
    }

    /// Forgets the room of a pod that is ours, or that is not. A pod whose labels were edited moves from one watch to the other, and the new
    /// one may have it before the old one lets it go.
    fn remove_room(&mut self, name: &PodKey, is_ours: bool) {
        let queue = &mut self.fleet.queue;
        let room = queue.snapshot().pods.get(name);
        if room.is_some_and(|room| room.gang.is_some() == is_ours) {
            queue.update_pod(name.clone(), None);
        }
    }

    /// Forgets what pods claim that are tied to a node and belong to no job that is there: the annotation of a pod is its
    /// author's, and nobody would ever time such a pod out.
    pub(crate) fn drop_claims_without_job(&mut self) {
        let (jobs, children) = (&self.jobs, &self.children);
        self.fleet.queue.retain_tied(|pod, resident| {
            let Some(key) = resident.gang.as_ref().map(JobKey::of_gang) else {
                return false;
            };
            let (Some(job), Some(children)) = (jobs.get(&key), children.get(&key)) else {
                return false;
            };
            let uid = job.metadata.uid.as_str();
            let own = children.pods.get(pod.name.as_str());
            let launcher = children.launchers.get(pod.name.as_str());
            own.is_some_and(|pod| *pod.owner == *uid)
                || launcher.is_some_and(|launcher| *launcher.owner == *uid)
        });
    }

    /// Takes changes of the priority classes in.
    pub(crate) fn update_priorities(&mut self, news: News<PriorityView>) {
        match news {
            News::All(classes, _) => {
                let classes = classes.iter();
                let classes = classes.map(|class| (class.metadata.name.clone(), class.class()));
                self.fleet.queue.set_classes(classes.collect());
            }
            News::Is(class) => {
                let name = &class.metadata.name;
                self.fleet.queue.set_class(name, Some(class.class()));
            }
            News::Gone(class) => self.fleet.queue.set_class(&class.metadata.name, None),
            News::Version(_) => {}
        }
    }
}
