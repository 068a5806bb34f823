//! What a controller sees.
//!
//! One [`Adapter`] is one life of a controller with its five watches, which each deliver their events
//! in order but late. What it does with them is in `controller`.
//!
//! Invariant: a view is always what the world was at some time; only the time differs by watch.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use trainyard_core::{
    job::{
        Action, Grouping, JobStatus, NodeHealth, Observed, ObservedPod, SeenFabric, SeenGang,
        SeenStore,
    },
    spec::Job,
};

use super::{Happening, World, api::Objects, controller::QUEUE_DELAY};
use crate::coverage::Mark;

/// What a watch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Pods,
    Status,
    Spec,
    Nodes,
    Objects,
}

impl Channel {
    pub(crate) const ALL: [Self; 5] = [
        Self::Pods,
        Self::Status,
        Self::Spec,
        Self::Nodes,
        Self::Objects,
    ];
}

/// The job object without its status.
#[derive(Clone, Debug)]
pub(crate) struct SpecNews {
    version: u64,
    job: Rc<Job>,
    exists: bool,
    being_deleted: bool,
}

/// One watch event.
#[derive(Clone, Debug)]
pub(super) enum News {
    Pod(u64, Box<ObservedPod>),
    PodGone(u64, String),
    Status(u64, Rc<JobStatus>),
    Spec(SpecNews),
    Nodes(BTreeMap<String, NodeHealth>),
    Objects(Box<Objects>),
}

/// One life of a controller.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a state of its own, not one of several"
)]
pub(crate) struct Adapter {
    pub(crate) alive: bool,
    pub(super) job: Rc<Job>,
    pub(super) job_exists: bool,
    pub(super) view: Observed,
    pub(super) status_version: u64,
    pub(super) spec_version: u64,
    pub(super) inbox: [VecDeque<News>; 5],
    pub(super) stalled_until: [i64; 5],
    pub(super) pass_due: bool,
    pub(super) pending: VecDeque<Action>,
    /// A pass was wanted while actions were under way.
    pub(super) wanted: bool,
    /// Requests for seats so far; only the last is answered.
    pub(super) asked: u64,
    /// The nodes that did not serve.
    pub(super) avoided: BTreeSet<String>,
    /// Only the last wish to be woken counts.
    pub(super) wake: u64,
    pub(super) crash: Option<(u8, i64)>,
    /// When it last wrote the status.
    pub(super) wrote_at: Option<i64>,
}

/// A watch delivers an event after this.
const WATCH_DELAY: i64 = 6;

impl Adapter {
    /// Faults stop.
    pub(crate) fn calm(&mut self) {
        self.stalled_until = [0; 5];
        self.crash = None;
    }
}

impl World {
    /// A controller starts with a fresh list.
    pub(crate) fn start_adapter(&mut self) {
        let adapter = Adapter {
            alive: true,
            job: Rc::clone(&self.stored.job),
            job_exists: self.stored.exists,
            view: Observed {
                version: self.cluster.pods_version,
                status: JobStatus::clone(&self.stored.status),
                being_deleted: self.stored.being_deleted,
                pods: self
                    .cluster
                    .pods
                    .iter()
                    .map(|pod| pod.shown.clone())
                    .collect(),
                services: self.cluster.objects.services.clone(),
                nodes: self.sick_nodes(),
                shared: self.cluster.objects.shared.clone(),
                autoscaler: self.cluster.objects.autoscaler(),
                refusals: Vec::new(),
                progress: self.cluster.progress,
                seating: self.remembered_seats(),
                grouping: Grouping::Unused,
                verdict: None,
                judged: Vec::new(),
                transports: None,
                fabric: SeenFabric::Unused,
                preflight: self.remembered_preflights(),
                gang: SeenGang::Unused,
                store: SeenStore::Unused,
                watches_ranks: true,
                attended: false,
            },
            status_version: self.stored.status_version,
            spec_version: self.stored.spec_version,
            inbox: Default::default(),
            stalled_until: [0; 5],
            pass_due: false,
            pending: VecDeque::new(),
            wanted: false,
            asked: 0,
            avoided: BTreeSet::new(),
            wake: 0,
            crash: None,
            wrote_at: None,
        };
        let number = self.controllers.adapters.len();
        self.trace.note(
            self.now,
            format_args!("ctrl {number}  starts with a fresh list"),
        );
        self.controllers.adapters.push(adapter);
        self.want_pass(number, QUEUE_DELAY);
    }

    pub(crate) fn stall(&mut self, channel: Channel, length: i64) {
        self.coverage.mark(match channel {
            Channel::Pods => Mark::StalledPods,
            Channel::Status => Mark::StalledStatus,
            Channel::Spec => Mark::StalledSpec,
            Channel::Nodes => Mark::StalledNodes,
            Channel::Objects => Mark::StalledObjects,
        });
        self.trace.note(
            self.now,
            format_args!("fault   {channel:?} watch is late by {length} ms"),
        );
        let until = self.now + length;
        for adapter in self
            .controllers
            .adapters
            .iter_mut()
            .filter(|adapter| adapter.alive)
        {
            adapter.stalled_until[channel as usize] = until;
        }
    }

    pub(crate) fn pod_changed(&mut self, at: usize) {
        self.cluster.pods_version += 1;
        let shown = self.cluster.pods[at].shown.clone();
        self.publish(
            Channel::Pods,
            &News::Pod(self.cluster.pods_version, Box::new(shown)),
        );
    }

    pub(crate) fn pod_vanished(&mut self, uid: &str) {
        self.cluster.pods_version += 1;
        self.publish(
            Channel::Pods,
            &News::PodGone(self.cluster.pods_version, uid.to_owned()),
        );
    }

    /// Whether some controller has not seen yet that the node responds again: it may give up a
    /// healthy pod there, without a way to know better.
    pub(crate) fn believed_sick(&self, node: usize) -> bool {
        let name = &self.cluster.nodes[node].name;
        self.controllers
            .adapters
            .iter()
            .any(|adapter| adapter.alive && adapter.view.nodes.contains_key(name))
    }

    /// A controller sees nodes that do not respond. It may give up their pods, even if the event
    /// is so late that they are healthy again.
    fn distrust_pods(&mut self, number: usize) {
        let sick = &self.controllers.adapters[number].view.nodes;
        for pod in &self.cluster.pods {
            if pod
                .shown
                .node
                .as_ref()
                .is_some_and(|node| sick.contains_key(node))
            {
                self.cluster.births[pod.birth].troubled = true;
            }
        }
    }

    pub(crate) fn nodes_changed(&mut self) {
        let nodes = self.sick_nodes();
        self.publish(Channel::Nodes, &News::Nodes(nodes));
    }

    pub(crate) fn objects_changed(&mut self) {
        let objects = Box::new(self.cluster.objects.clone());
        self.publish(Channel::Objects, &News::Objects(objects));
    }

    pub(crate) fn spec_changed(&mut self) {
        self.stored.spec_version += 1;
        let news = SpecNews {
            version: self.stored.spec_version,
            job: Rc::clone(&self.stored.job),
            exists: self.stored.exists,
            being_deleted: self.stored.being_deleted,
        };
        self.publish(Channel::Spec, &News::Spec(news));
    }

    pub(super) fn publish(&mut self, channel: Channel, news: &News) {
        for number in 0..self.controllers.adapters.len() {
            if self.controllers.adapters[number].alive {
                self.controllers.adapters[number].inbox[channel as usize].push_back(news.clone());
                self.schedule(WATCH_DELAY, Happening::Deliver(number, channel));
            }
        }
    }

    /// A watch delivers its next event.
    pub(crate) fn deliver(&mut self, number: usize, channel: Channel) {
        let adapter = &mut self.controllers.adapters[number];
        if !adapter.alive {
            return;
        }
        let until = adapter.stalled_until[channel as usize];
        if until > self.now {
            self.schedule(until - self.now, Happening::Deliver(number, channel));
            return;
        }
        let Some(news) = adapter.inbox[channel as usize].pop_front() else {
            return;
        };
        let view = &mut adapter.view;
        match news {
            News::Pod(version, pod) => {
                view.version = version;
                match view.pods.iter_mut().find(|known| known.uid == pod.uid) {
                    Some(known) => *known = *pod,
                    None => view.pods.push(*pod),
                }
            }
            News::PodGone(version, uid) => {
                view.version = version;
                view.pods.retain(|known| known.uid != uid);
            }
            News::Status(version, status) => {
                if version <= adapter.status_version {
                    return;
                }
                adapter.status_version = version;
                view.status = JobStatus::clone(&status);
            }
            News::Spec(news) => {
                adapter.spec_version = news.version;
                adapter.job = news.job;
                adapter.job_exists = news.exists;
                view.being_deleted = news.being_deleted;
            }
            News::Nodes(nodes) => {
                view.nodes = nodes;
                self.distrust_pods(number);
            }
            News::Objects(objects) => {
                view.autoscaler = objects.autoscaler();
                view.services = objects.services;
                view.shared = objects.shared;
            }
        }
        self.want_pass(number, QUEUE_DELAY);
    }

    /// Progress of the training is not an object: the controller reads it as it looks.
    pub(crate) fn progress_changed(&mut self) {
        for number in 0..self.controllers.adapters.len() {
            if self.controllers.adapters[number].alive {
                self.controllers.adapters[number].view.progress = self.cluster.progress;
                self.want_pass(number, QUEUE_DELAY);
            }
        }
    }
}
