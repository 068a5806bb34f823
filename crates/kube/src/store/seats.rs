//! Watch events for the wait queue.

use jiff::Timestamp;
use trainyard_core::{
    fleet::GangRevision,
    gang::Resident,
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
                self.fleet
                    .queue
                    .update_pod(room::own_key(&pod.metadata), None);
            }
            News::Gone(_) | News::Version(_) => {}
        }
    }

    fn put_room(&mut self, pod: &RoomView) {
        if !self.has_own_feed(&pod.metadata) {
            self.fleet
                .queue
                .update_pod(room::own_key(&pod.metadata), room::of_others(pod));
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
    /// under their own: whoever labels his pods as launchers hides none of them.
    pub(super) fn put_own_room(&mut self, meta: &Meta, resident: Option<Resident>) {
        let (own, shared) = (room::own_key(meta), room::key_of(meta));
        let queue = &mut self.fleet.queue;
        if own == shared {
            queue.update_pod(own, resident);
            return;
        }
        let holder = self.launcher_rooms.get(&shared);
        let is_free = holder.is_none_or(|uid| **uid == *meta.uid);
        match (resident, is_free) {
            (Some(resident), true) => {
                queue.update_pod(own, None);
                self.launcher_rooms
                    .insert(shared.clone(), meta.uid.as_str().into());
                queue.update_pod(shared, Some(resident));
            }
            (None, true) => {
                queue.update_pod(own, None);
                self.launcher_rooms.remove(&shared);
                queue.update_pod(shared, None);
            }
            (resident, false) => queue.update_pod(own, resident),
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
