//! What an operator sees: three watches, each in order and late.
//!
//! Invariant: a view is what the cluster was at some time, per kind of object; only what an operator itself wrote it knows at
//! once, as in the operator of the cluster.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use jiff::Timestamp;
use trainyard_core::{
    gang::{GangKey, PodKey},
    job::NodeHealth,
};

use super::{
    World, coverage::Mark, jobs::StoredJob, nodes::StoredNode, operator::Operator, pods::StoredPod,
    world::Happening,
};

/// What a watch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Pods,
    Jobs,
    Nodes,
}

impl Channel {
    pub(super) const ALL: [Self; 3] = [Self::Pods, Self::Jobs, Self::Nodes];
}

/// One change.
#[derive(Clone, Debug)]
pub(super) enum News {
    Pod(PodKey, Box<StoredPod>),
    PodGone(PodKey, Box<StoredPod>),
    Job(GangKey, Box<StoredJob>),
    JobGone(GangKey, u64),
    Node(String, Box<StoredNode>),
    NodeGone(String),
}

impl News {
    fn channel(&self) -> Channel {
        match self {
            Self::Pod(..) | Self::PodGone(..) => Channel::Pods,
            Self::Job(..) | Self::JobGone(..) => Channel::Jobs,
            Self::Node(..) | Self::NodeGone(..) => Channel::Nodes,
        }
    }
}

/// What an operator knows of the cluster beside what its wait queue knows.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) pods: BTreeMap<PodKey, StoredPod>,
    /// How new the pods are.
    pub(super) version: u64,
    pub(super) jobs: BTreeMap<GangKey, StoredJob>,
    /// Since when nodes do not respond; every node that exists is in it.
    pub(super) nodes: BTreeMap<String, Option<Timestamp>>,
    /// Changes that are under way.
    pub(super) inbox: [VecDeque<Rc<News>>; Channel::ALL.len()],
}

impl View {
    /// The nodes of the pods of a job that do not respond.
    pub(super) fn sick_nodes<'a>(
        &self,
        pods: impl Iterator<Item = &'a StoredPod>,
    ) -> BTreeMap<String, NodeHealth> {
        let names = pods.filter_map(|pod| pod.shown.node.as_ref());
        names
            .filter_map(|name| {
                let health = match self.nodes.get(name) {
                    None => NodeHealth::Deleted,
                    Some(None) => return None,
                    Some(Some(since)) => NodeHealth::SilentSince(*since),
                };
                Some((name.clone(), health))
            })
            .collect()
    }
}

impl Operator {
    /// Takes a change in; the jobs that it concerns.
    pub(super) fn take_in(&mut self, news: &News) -> Vec<GangKey> {
        match news {
            News::Pod(name, pod) => {
                self.view.version = self.view.version.max(pod.version);
                self.put_pod(name, pod);
                vec![pod.job.clone()]
            }
            News::PodGone(name, pod) => {
                self.view.version = self.view.version.max(pod.version);
                if pod.resident().is_some() {
                    self.fleet.queue.update_pod(name.clone(), None);
                }
                let known = self.view.pods.get(name);
                if known.is_some_and(|known| known.shown.uid == pod.shown.uid) {
                    self.view.pods.remove(name);
                    self.fleet.queue.set_tied(name.clone(), None);
                }
                vec![pod.job.clone()]
            }
            News::Job(key, job) => {
                let known = self.view.jobs.get(key);
                if known.is_none_or(|known| known.version < job.version) {
                    self.view.jobs.insert(key.clone(), (**job).clone());
                }
                vec![key.clone()]
            }
            News::JobGone(key, version) => {
                let known = self.view.jobs.get(key);
                if known.is_some_and(|known| known.version < *version) {
                    self.view.jobs.remove(key);
                }
                vec![key.clone()]
            }
            News::Node(name, node) => {
                let before = self.view.nodes.insert(name.clone(), node.silent_since);
                self.fleet.queue.update_node(name, node.node.clone());
                if before == Some(node.silent_since) {
                    return Vec::new();
                }
                self.jobs_on(name)
            }
            News::NodeGone(name) => {
                self.view.nodes.remove(name);
                self.fleet.queue.forget_node(name);
                self.jobs_on(name)
            }
        }
    }

    /// Takes a pod in that this operator has just created or changed, unless its watch is further.
    pub(super) fn remember_pod(&mut self, name: &PodKey, pod: &StoredPod) {
        if pod.version > self.view.version {
            self.put_pod(name, pod);
        }
    }

    pub(super) fn put_pod(&mut self, name: &PodKey, pod: &StoredPod) {
        self.fleet.queue.update_pod(name.clone(), pod.resident());
        let known = self.view.pods.get(name);
        if known.is_none_or(|known| known.version <= pod.version) {
            self.fleet.queue.set_tied(name.clone(), pod.tied_resident());
            self.view.pods.insert(name.clone(), pod.clone());
        }
    }

    fn jobs_on(&self, node: &str) -> Vec<GangKey> {
        let pods = self.view.pods.values();
        let on_it = pods.filter(|pod| pod.shown.node.as_deref() == Some(node));
        on_it.map(|pod| pod.job.clone()).collect()
    }
}

impl World {
    /// Sends a change to every operator that runs.
    pub(super) fn publish(&mut self, news: &News) {
        let channel = news.channel();
        let news = Rc::new(news.clone());
        for number in 0..self.operators.len() {
            if self.operators[number].alive {
                let inbox = &mut self.operators[number].view.inbox[channel as usize];
                inbox.push_back(Rc::clone(&news));
                let delay = self.dice.within(3..=40);
                self.after(delay, Happening::Deliver(number, channel));
            }
        }
    }

    pub(super) fn stall(&mut self, channel: Channel, length: i64) {
        self.coverage.mark(Mark::Stalled);
        let until = self.now + length;
        for operator in self.operators.iter_mut().filter(|one| one.alive) {
            operator.stalled_until[channel as usize] = until;
        }
    }

    pub(super) fn deliver(&mut self, number: usize, channel: Channel) {
        let operator = &mut self.operators[number];
        if !operator.alive {
            return;
        }
        let until = operator.stalled_until[channel as usize];
        if until > self.now {
            self.after(until - self.now, Happening::Deliver(number, channel));
            return;
        }
        let Some(news) = operator.view.inbox[channel as usize].pop_front() else {
            return;
        };
        let concerned = operator.take_in(&news);
        if self.leader != Some(number) {
            return;
        }
        let ours = |key: &GangKey| self.facts.names.contains(key);
        let concerned: Vec<GangKey> = concerned.into_iter().filter(ours).collect();
        for key in concerned {
            self.want_pass(number, &key, 4);
        }
        self.look_at_queue(number);
        if channel == Channel::Nodes {
            self.want_decide(number, 10);
        }
    }
}
