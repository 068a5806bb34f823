//! Pods as the API stores them. The scheduler and the kubelets are in `kubelet`.

use trainyard_core::{
    gang::{GangKey, PodKey, Resident, Resources},
    job::{ObservedPod, PodPhase, Removal, Seat, Wait},
    spec::{Kind, Role, Slot},
};

use super::{World, coverage::Mark, draw::GPU, watch::News, world::Happening};

/// The cluster deletes pods of a deleted node after this.
const LOST_AFTER: i64 = 20_000;

/// One pod, in truth or as an operator sees it.
#[derive(Clone, Debug)]
pub(super) struct StoredPod {
    pub(super) shown: ObservedPod,
    pub(super) job: GangKey,
    /// The incarnation of the job.
    pub(super) owner: String,
    /// The node that it was assigned to.
    pub(super) tied: Option<String>,
    pub(super) requests: Resources,
    pub(super) priority: i32,
    pub(super) version: u64,
    /// Steps that its node could not take while it did not respond.
    pub(super) waits: Vec<Step>,
}

/// What a pod does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Run,
    Succeed,
    Fail(i32),
    /// It is gone after its grace period.
    Go,
    /// It is gone with its node.
    Lose,
}

impl StoredPod {
    pub(super) fn gpus(&self) -> i64 {
        self.requests.get(GPU)
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.shown.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// The room that it takes, as an operator reports it to the wait queue.
    pub(super) fn resident(&self) -> Option<Resident> {
        let node = self.shown.node.clone().filter(|_| !self.has_ended())?;
        Some(Resident {
            node,
            gang: (!self.is_foreign()).then(|| self.job.clone()),
            requests: self.requests.clone(),
            priority: self.priority,
            leaving: self.shown.deleted_at.is_some(),
            ..Resident::default()
        })
    }

    /// Whether it is somebody else's.
    pub(super) fn is_foreign(&self) -> bool {
        self.owner.is_empty()
    }

    /// The room that it will take, where it is tied to a node and not bound to it yet.
    pub(super) fn tied_resident(&self) -> Option<Resident> {
        let is_unbound = self.shown.node.is_none() && !self.has_ended();
        let node = self.tied.clone().filter(|_| is_unbound)?;
        Some(Resident {
            node,
            gang: Some(self.job.clone()),
            requests: self.requests.clone(),
            priority: self.priority,
            leaving: self.shown.deleted_at.is_some(),
            ..Resident::default()
        })
    }

    /// Whether the scheduler has to bind it.
    pub(super) fn waits_for_node(&self) -> bool {
        self.shown.phase == PodPhase::Pending
            && self.shown.node.is_none()
            && !self.shown.gated
            && self.shown.deleted_at.is_none()
    }
}

impl World {
    pub(super) fn create_pod(
        &mut self,
        key: &GangKey,
        owner: &str,
        slot: Slot,
        attempt: u32,
        seat: &Seat,
    ) {
        let Some(job) = self.jobs.get(key).filter(|job| job.uid == owner) else {
            return;
        };
        let name = PodKey {
            namespace: key.namespace.clone(),
            name: job.job.pod_name(slot),
        };
        let (requests, priority) = (job.requests(slot.role), job.priority());
        if self.pods.contains_key(&name) {
            return;
        }
        self.births += 1;
        let gated = *seat == Seat::Gated;
        let uid = format!("{}.{}", name.name, self.births);
        let mut shown = unbound(uid, slot, attempt);
        shown.gated = gated;
        if gated {
            shown.wait = Some(Wait::Gate);
        }
        let pod = StoredPod {
            shown,
            job: key.clone(),
            owner: owner.to_owned(),
            tied: match seat {
                Seat::Node(node) => Some(node.clone()),
                Seat::Open | Seat::Gated => None,
            },
            requests,
            priority,
            version: 0,
            waits: Vec::new(),
        };
        self.pods.insert(name.clone(), pod);
        self.pod_changed(&name);
        self.want_schedule();
    }

    /// Somebody else's pod takes GPUs of a node, if there are any, for so long.
    pub(super) fn create_foreign_pod(&mut self, node: &str, gpus: i64, length: i64) {
        let stored = self.nodes.get(node).filter(|node| node.is_open());
        let free = stored.map_or(0, |stored| stored.gpus() - self.used_gpus(node));
        if free < gpus {
            return;
        }
        self.births += 1;
        let job = GangKey {
            kind: Kind::PyTorch,
            namespace: "others".to_owned(),
            name: "others".to_owned(),
        };
        let name = PodKey {
            namespace: "others".to_owned(),
            name: format!("pod-{}", self.births),
        };
        let mut requests = Resources::default();
        requests.set(GPU, gpus);
        let mut shown = unbound(name.name.clone(), Slot::new(Role::Worker, 0), 1);
        shown.node = Some(node.to_owned());
        shown.phase = PodPhase::Running;
        shown.wait = None;
        let pod = StoredPod {
            shown,
            job,
            owner: String::new(),
            tied: None,
            requests,
            priority: 0,
            version: 0,
            waits: Vec::new(),
        };
        self.coverage.mark(Mark::ForeignPod);
        self.pods.insert(name.clone(), pod);
        self.pod_changed(&name);
        let step = Happening::Pod(name.clone(), name.name, Step::Go);
        self.after(length, step);
    }

    pub(super) fn tie_pod(&mut self, name: &PodKey, uid: &str, node: &str) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.shown.uid == uid) else {
            return;
        };
        if pod.shown.gated {
            pod.shown.gated = false;
            pod.shown.wait = Some(Wait::Seat(String::new()));
            pod.tied = Some(node.to_owned());
            self.pod_changed(name);
            self.want_schedule();
        }
    }

    pub(super) fn pod_changed(&mut self, name: &PodKey) {
        let version = self.next_version();
        let Some(pod) = self.pods.get_mut(name) else {
            return;
        };
        pod.version = version;
        let news = News::Pod(name.clone(), Box::new(pod.clone()));
        self.publish(&news);
    }

    pub(super) fn remove_pod(&mut self, name: &PodKey) {
        let version = self.next_version();
        let Some(mut pod) = self.pods.remove(name) else {
            return;
        };
        pod.version = version;
        let job = pod.job.clone();
        self.publish(&News::PodGone(name.clone(), Box::new(pod)));
        self.want_schedule();
        self.collect_job(&job);
    }

    pub(super) fn delete_pod(&mut self, name: &PodKey, uid: &str, removal: Removal) {
        let now = self.timestamp();
        let grace = self.dice.within(200..=30_000);
        let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.shown.uid == uid) else {
            return;
        };
        if removal == Removal::Forced || pod.shown.node.is_none() || pod.has_ended() {
            return self.remove_pod(name);
        }
        if pod.shown.deleted_at.is_none() {
            pod.shown.deleted_at = Some(now);
            pod.shown.ready = false;
            let step = Happening::Pod(name.clone(), uid.to_owned(), Step::Go);
            self.pod_changed(name);
            self.after(grace, step);
        }
    }

    /// The cluster finds that a node is gone, and ends its pods a while later.
    pub(super) fn lose_pods_of(&mut self, node: &str) {
        let on_it = self.pods.iter();
        let on_it = on_it.filter(|(_, pod)| pod.shown.node.as_deref() == Some(node));
        let on_it: Vec<(PodKey, String)> = on_it
            .map(|(name, pod)| (name.clone(), pod.shown.uid.clone()))
            .collect();
        for (name, uid) in on_it {
            self.after(LOST_AFTER, Happening::Pod(name, uid, Step::Lose));
        }
    }

    /// Steps that a node could not take while it did not respond.
    pub(super) fn catch_up_pods(&mut self, node: &str) {
        let mut late = Vec::new();
        for (name, pod) in &mut self.pods {
            if pod.shown.node.as_deref() == Some(node) {
                let uid = &pod.shown.uid;
                let steps = pod.waits.drain(..);
                late.extend(steps.map(|step| (name.clone(), uid.clone(), step)));
            }
        }
        for (name, uid, step) in late {
            self.after(100, Happening::Pod(name, uid, step));
        }
    }
}

/// A pod that waits for a node.
fn unbound(uid: String, slot: Slot, attempt: u32) -> ObservedPod {
    ObservedPod {
        uid,
        slot,
        attempt,
        phase: PodPhase::Pending,
        ready: false,
        deleted_at: None,
        grace_seconds: 30,
        node: None,
        restarts: 0,
        ends: 0,
        exit: None,
        start_error: None,
        wait: Some(Wait::Seat(String::new())),
        disruption: None,
        gated: false,
    }
}
