//! What goes wrong, and what users do, until the chaos ends.

use trainyard_core::{
    gang::{GangKey, PodKey},
    job::{PodPhase, Removal},
    spec::Role,
};

use super::{World, coverage::Mark, pods::Step, watch::Channel, world::Happening};

/// One thing that goes wrong.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    CreateJob(usize),
    DeleteJob(usize),
    Suspend(usize),
    Resume(usize),
    Scale(usize, u32),
    PodFails,
    PodDeleted,
    /// Somebody else's pod takes so many GPUs of a node for so long.
    ForeignPod(i64, i64),
    /// A node does not respond for so long.
    NodeSilent(i64),
    NodeResponds(String, u32),
    NodeDeleted(i64),
    NodeJoins(String),
    NodeCordoned(i64),
    NodeUncordoned(String),
    /// So many nodes become bad at once.
    NodesBreak(u32),
    NodeRepaired,
    /// A watch is late by so much.
    Stall(Channel, i64),
    /// The leader crashes after so many steps, and starts again so much later.
    Crash(u32, i64),
    /// The leader loses the lease after so many steps.
    TakeOver(u32),
}

impl World {
    pub(super) fn strike(&mut self, fault: Fault) {
        if self.is_calm {
            return;
        }
        self.note(format_args!("fault   {fault:?}"));
        match fault {
            Fault::CreateJob(plan) => self.create_job(plan),
            Fault::DeleteJob(plan) => self.delete_job(plan),
            Fault::Suspend(plan) => self.set_suspended(plan, true),
            Fault::Resume(plan) => self.set_suspended(plan, false),
            Fault::Scale(plan, workers) => self.scale(plan, workers),
            Fault::PodFails => self.fail_a_pod(),
            Fault::PodDeleted => self.delete_a_pod(),
            Fault::ForeignPod(gpus, length) => {
                if let Some(name) = self.any_node() {
                    self.create_foreign_pod(&name, gpus, length);
                }
            }
            Fault::NodeSilent(length) => {
                if let Some(name) = self.any_node()
                    && let Some(silence) = self.silence_node(&name)
                {
                    let end = Fault::NodeResponds(name, silence);
                    self.after(length, Happening::Fault(end));
                }
            }
            Fault::NodeResponds(name, silence) => {
                let node = self.nodes.get(&name);
                if node.is_some_and(|node| node.silences == silence) {
                    self.wake_node(&name);
                }
            }
            Fault::NodeDeleted(length) => {
                if let Some(name) = self.any_node().filter(|_| self.nodes.len() > 1) {
                    self.delete_node(&name);
                    self.after(length, Happening::Fault(Fault::NodeJoins(name)));
                }
            }
            Fault::NodeJoins(name) => self.join_node(&name),
            Fault::NodeCordoned(length) => {
                if let Some(name) = self.any_node() {
                    self.coverage.mark(Mark::NodeCordoned);
                    self.cordon(&name, true);
                    self.after(length, Happening::Fault(Fault::NodeUncordoned(name)));
                }
            }
            Fault::NodeUncordoned(name) => self.cordon(&name, false),
            Fault::NodesBreak(count) => {
                for _ in 0..count {
                    self.set_bad(true);
                }
            }
            Fault::NodeRepaired => self.set_bad(false),
            Fault::Stall(channel, length) => self.stall(channel, length),
            Fault::Crash(steps, down) => {
                if let Some(leader) = self.leader {
                    self.operators[leader].crash = Some((steps, down));
                }
            }
            Fault::TakeOver(steps) => {
                if let Some(leader) = self.leader {
                    self.operators[leader].loses_lease = Some(steps);
                }
            }
        }
    }

    /// Sometimes the job that another is evicted for is suspended before that one has left.
    pub(super) fn disturb_eviction(&mut self, beneficiary: &str) {
        let mut plans = self.plans.iter();
        let plan = plans.position(|plan| GangKey::of(&plan.job).to_string() == beneficiary);
        if let Some(plan) = plan.filter(|_| !self.is_calm && self.dice.chance(30)) {
            self.after(1, Happening::Fault(Fault::Suspend(plan)));
        }
    }

    /// Sometimes the news that a node is on probation is late.
    pub(super) fn disturb_taint(&mut self) {
        if !self.is_calm && self.dice.chance(40) {
            let length = self.dice.within(5_000..=45_000);
            self.stall(Channel::Nodes, length);
        }
    }

    fn set_suspended(&mut self, plan: usize, suspend: bool) {
        let changed = self.edit_job(plan, |job| {
            std::mem::replace(&mut job.run_policy.suspend, suspend) != suspend
        });
        if changed {
            let mark = if suspend {
                Mark::Suspended
            } else {
                Mark::Resumed
            };
            self.coverage.mark(mark);
        }
    }

    fn scale(&mut self, plan: usize, workers: u32) {
        let changed = self.edit_job(plan, |job| {
            let bounds = job
                .elastic()
                .map(|elastic| (elastic.min_replicas, elastic.max_replicas));
            let (least, most) = bounds.unwrap_or((1, 5));
            let workers = workers.clamp(least, most);
            let role = job.roles.get_mut(&Role::Worker);
            role.is_some_and(|role| std::mem::replace(&mut role.replicas, workers) != workers)
        });
        if changed {
            self.coverage.mark(Mark::Scaled);
        }
    }

    fn any_running_pod(&mut self) -> Option<(PodKey, String)> {
        let running = self.pods.iter().filter(|(_, pod)| !pod.is_foreign());
        let running = running.filter(|(_, pod)| pod.shown.phase == PodPhase::Running);
        let running: Vec<(&PodKey, &str)> = running
            .map(|(name, pod)| (name, pod.shown.uid.as_str()))
            .collect();
        let count = u32::try_from(running.len()).unwrap_or(0);
        (count > 0).then(|| {
            let (name, uid) = running[self.dice.below(count) as usize];
            (name.clone(), uid.to_owned())
        })
    }

    fn fail_a_pod(&mut self) {
        if let Some((name, uid)) = self.any_running_pod() {
            self.pod_steps(&name, &uid, Step::Fail(137));
        }
    }

    fn delete_a_pod(&mut self) {
        if let Some((name, uid)) = self.any_running_pod() {
            self.coverage.mark(Mark::PodDeleted);
            self.delete_pod(&name, &uid, Removal::Graceful);
        }
    }

    fn cordon(&mut self, name: &str, closed: bool) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.node.unschedulable = closed;
            self.node_changed(name);
        }
    }

    fn set_bad(&mut self, is_bad: bool) {
        let nodes = self.nodes.iter();
        let others: Vec<String> = nodes
            .filter(|(_, node)| node.is_bad != is_bad)
            .map(|(name, _)| name.clone())
            .collect();
        let Some(count) = u32::try_from(others.len()).ok().filter(|count| *count > 0) else {
            return;
        };
        let name = &others[self.dice.below(count) as usize];
        if let Some(node) = self.nodes.get_mut(name) {
            node.is_bad = is_bad;
            let mark = if is_bad {
                Mark::NodeBroke
            } else {
                Mark::NodeRepaired
            };
            self.coverage.mark(mark);
        }
    }

    /// From now on nothing goes wrong.
    pub(super) fn mend_everything(&mut self) {
        let deleted: Vec<String> = self.deleted_nodes.keys().cloned().collect();
        for name in deleted {
            self.join_node(&name);
        }
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in &names {
            self.wake_node(name);
            self.cordon(name, false);
        }
        for node in self.nodes.values_mut() {
            node.is_bad = false;
        }
        for operator in &mut self.operators {
            operator.crash = None;
            operator.loses_lease = None;
            operator.stalled_until = [0; Channel::ALL.len()];
        }
        for plan in 0..self.plans.len() {
            if self.dice.chance(70) {
                self.edit_job(plan, |job| std::mem::take(&mut job.run_policy.suspend));
            }
        }
    }
}
