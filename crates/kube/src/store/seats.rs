//! What the line for seats has to hear.

use jiff::Timestamp;
use trainyard_core::{job::Seating, launch::Cluster, spec::Job};

use super::Store;
use crate::{
    feed::News,
    key::JobKey,
    room,
    view::{JobView, PriorityView, RoomView},
};

impl Store {
    /// What the gang of `job` may do, where seats are given.
    pub(crate) fn seating(
        &mut self,
        key: &JobKey,
        view: &JobView,
        job: &Job,
        attempt: u32,
        cluster: &Cluster,
    ) -> Seating {
        let meta = &view.metadata;
        let created = meta.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
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
        let pods = pods.chain(launchers);
        self.line
            .seating(key, job, (meta.generation, created, attempt), cluster, pods)
    }

    /// Takes news of the pods of anybody in, for the room that they take.
    pub(crate) fn hear_room(&mut self, news: News<RoomView>) {
        match news {
            News::All(pods, _) => {
                self.line.keep_pods(|resident| resident.gang.is_some());
                for pod in &pods {
                    self.put_room(pod);
                }
            }
            News::Is(pod) => self.put_room(&pod),
            News::Gone(pod) if JobKey::of_child(&pod.metadata).is_none() => {
                self.line.hear_pod(room::key_of(&pod.metadata), None);
            }
            News::Gone(_) | News::Version(_) => {}
        }
    }

    /// The pods of jobs that this operator follows are told by their own feed.
    fn put_room(&mut self, pod: &RoomView) {
        let ours = JobKey::of_child(&pod.metadata);
        if ours.is_none_or(|key| !self.jobs.contains_key(&key)) {
            self.line
                .hear_pod(room::key_of(&pod.metadata), room::of_others(pod));
        }
    }

    /// Takes news of the priority classes in.
    pub(crate) fn hear_priorities(&mut self, news: News<PriorityView>) {
        let mut put = |class: &PriorityView, priority: Option<i32>| {
            self.line.hear_priority(&class.metadata.name, priority);
            if class.global_default {
                self.line.hear_priority("", priority);
            }
        };
        match news {
            News::All(classes, _) => {
                for class in &classes {
                    put(class, Some(class.value));
                }
            }
            News::Is(class) => put(&class, Some(class.value)),
            News::Gone(class) => put(&class, None),
            News::Version(_) => {}
        }
    }
}
