//! The scheduler binds pods, and the kubelets run them until they end.
//!
//! Invariant: a node never runs pods that ask for more GPUs than it has; the scheduler sees to that.

use jiff::Timestamp;
use trainyard_core::{
    gang::PodKey,
    job::{Disruption, Exit, PodPhase, Wait},
};

use super::{
    World,
    coverage::Mark,
    pods::{Step, StoredPod},
    world::Happening,
};

impl World {
    pub(super) fn want_schedule(&mut self) {
        if !self.is_schedule_due {
            self.is_schedule_due = true;
            let delay = self.dice.within(5..=200);
            self.after(delay, Happening::Schedule);
        }
    }

    /// The scheduler binds the pods that are tied to a node with room for them.
    pub(super) fn bind_pods(&mut self) {
        self.is_schedule_due = false;
        let waiting: Vec<PodKey> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.waits_for_node())
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            self.bind_pod(&name);
        }
    }

    fn bind_pod(&mut self, name: &PodKey) {
        let pod = &self.pods[name];
        let free = pod.tied.as_ref().and_then(|tied| {
            let node = self.nodes.get(tied).filter(|node| node.is_open())?;
            Some(node.gpus() - self.used_gpus(tied))
        });
        let fits = free.is_some_and(|free| free >= pod.gpus());
        let uid = pod.shown.uid.clone();
        let is_slow = !self.is_calm && self.dice.chance(4);
        let start = self.dice.within(if is_slow {
            60_000..=400_000
        } else {
            500..=15_000
        });
        let Some(pod) = self.pods.get_mut(name) else {
            return;
        };
        if fits {
            pod.shown.node = pod.tied.clone();
            pod.shown.wait = Some(Wait::Create);
            self.pod_changed(name);
            self.after(start, Happening::Pod(name.clone(), uid, Step::Run));
            return;
        }
        let words = Wait::Seat("0 nodes are available: insufficient nvidia.com/gpu".to_owned());
        if pod.shown.wait.as_ref() != Some(&words) {
            pod.shown.wait = Some(words);
            self.coverage.mark(Mark::NotBound);
            self.pod_changed(name);
        }
    }

    /// GPUs of a node that pods use which are bound to it and have not ended.
    pub(super) fn used_gpus(&self, node: &str) -> i64 {
        let bound = self.pods.values().filter(|pod| !pod.has_ended());
        bound
            .filter(|pod| pod.shown.node.as_deref() == Some(node))
            .map(StoredPod::gpus)
            .sum()
    }

    pub(super) fn pod_steps(&mut self, name: &PodKey, uid: &str, step: Step) {
        let now = self.timestamp();
        let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.shown.uid == uid) else {
            return;
        };
        let node = pod
            .shown
            .node
            .as_ref()
            .and_then(|node| self.nodes.get(node));
        if step != Step::Lose && node.is_none_or(|node| !node.node.ready) {
            pod.waits.push(step);
            return;
        }
        match step {
            Step::Run => self.pod_runs(name),
            Step::Succeed => end(pod, now, None),
            Step::Fail(code) => {
                end(pod, now, Some(code));
                self.coverage.mark(Mark::PodFailed);
            }
            Step::Go => return self.remove_pod(name),
            Step::Lose => {
                if node.is_some() {
                    return;
                }
                end(pod, now, Some(137));
                pod.shown.disruption = Some(Disruption::NodeGone);
                self.pod_changed(name);
                return self.remove_pod(name);
            }
        }
        self.pod_changed(name);
        self.want_schedule();
    }

    fn pod_runs(&mut self, name: &PodKey) {
        let work = self.pods.get(name).and_then(|pod| self.jobs.get(&pod.job));
        let work = work.map_or(1_000, |job| job.work);
        let fails = !self.is_calm && self.dice.chance(6);
        let code = self.dice.pick(&[1, 137, 137]);
        let part = self.dice.within(1..=work.max(2));
        let more = self.dice.within(0..=2_000);
        let Some(pod) = self.pods.get_mut(name) else {
            return;
        };
        if pod.shown.phase != PodPhase::Pending || pod.shown.deleted_at.is_some() {
            return;
        }
        pod.shown.phase = PodPhase::Running;
        pod.shown.ready = true;
        pod.shown.wait = None;
        let uid = pod.shown.uid.clone();
        let (delay, step) = if fails {
            (part, Step::Fail(code))
        } else {
            (work + more, Step::Succeed)
        };
        self.after(delay, Happening::Pod(name.clone(), uid, step));
    }
}

fn end(pod: &mut StoredPod, now: Timestamp, code: Option<i32>) {
    if pod.has_ended() {
        return;
    }
    pod.shown.phase = match code {
        None => PodPhase::Succeeded,
        Some(_) => PodPhase::Failed,
    };
    pod.shown.ready = false;
    pod.shown.wait = None;
    pod.shown.ends = 1;
    pod.shown.exit = Some(Exit {
        code: code.unwrap_or(0),
        out_of_memory: false,
        at: Some(now),
    });
}
