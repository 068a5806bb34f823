//! The controller and what it sees.
//!
//! One [`Adapter`] is one life of a controller: five watches that each bring their news in order
//! but late, a work queue of one, and the pass of the contract: observe, decide, write the status
//! on top of the one observed, act. It may be killed between any two of these; the next one
//! starts with a fresh list. Two may live at once for a while.
//!
//! Invariant: a view is always what the world was at some time; only the time differs by watch.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use jiff::Timestamp;
use trainyard_core::{
    job::{
        Action, Decision, IndexSet, JobStatus, NodeHealth, Observed, ObservedPod, Refusal,
        SharedInputs,
    },
    reason::Code,
    spec::{Job, Role, Slot},
};

use super::{EPOCH, Happening, World};
use crate::{
    coverage::Mark,
    invariants::{self, Pass},
};

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

/// What befalls one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// It never arrives, and nobody tells the controller.
    Lost,
    /// It arrives this much later; nobody tells the controller.
    Delayed(i64),
    /// It arrives now and again this much later.
    Twice(i64),
    /// The other side refuses it.
    Refused,
}

/// The objects beside the pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Objects {
    pub(crate) services: BTreeMap<Role, IndexSet>,
    pub(crate) shared: Option<SharedInputs>,
    pub(crate) autoscaler: bool,
}

/// The job object without its status.
#[derive(Clone, Debug)]
pub(crate) struct SpecNews {
    version: u64,
    job: Rc<Job>,
    exists: bool,
    being_deleted: bool,
}

/// One change that a watch brings.
#[derive(Clone, Debug)]
enum News {
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
    job: Rc<Job>,
    job_exists: bool,
    view: Observed,
    status_version: u64,
    spec_version: u64,
    inbox: [VecDeque<News>; 5],
    stalled_until: [i64; 5],
    pass_due: bool,
    pending: VecDeque<Action>,
    /// A pass was wanted while actions were under way.
    wanted: bool,
    /// Only the last wish to be woken counts.
    wake: u64,
    crash: Option<(u8, i64)>,
}

/// Between news and the pass it causes.
const QUEUE_DELAY: i64 = 4;
/// A watch brings news after this.
const WATCH_DELAY: i64 = 6;
/// Between two calls of a pass.
const CALL: i64 = 3;
/// A controller whose call failed decides again after this.
const RETRY: i64 = 1_000;

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
            job: Rc::clone(&self.job),
            job_exists: self.job_exists,
            view: Observed {
                version: self.pods_version,
                status: JobStatus::clone(&self.status),
                being_deleted: self.being_deleted,
                pods: self.pods.iter().map(|pod| pod.shown.clone()).collect(),
                services: self.objects.services.clone(),
                nodes: self.sick_nodes(),
                shared: self.objects.shared.clone(),
                autoscaler: self.objects.autoscaler,
                refusals: Vec::new(),
                progress: self.progress,
            },
            status_version: self.status_version,
            spec_version: self.spec_version,
            inbox: Default::default(),
            stalled_until: [0; 5],
            pass_due: false,
            pending: VecDeque::new(),
            wanted: false,
            wake: 0,
            crash: None,
        };
        let number = self.adapters.len();
        self.trace.note(
            self.now,
            format_args!("ctrl {number}  starts with a fresh list"),
        );
        self.adapters.push(adapter);
        self.want_pass(number, QUEUE_DELAY);
    }

    /// The controller of the moment: the one started last.
    fn leader(&self) -> Option<usize> {
        self.adapters.iter().rposition(|adapter| adapter.alive)
    }

    pub(crate) fn plan_crash(&mut self, after_steps: u8, down: i64) {
        if let Some(leader) = self.leader() {
            self.adapters[leader].crash = Some((after_steps, down));
        }
    }

    /// Another controller takes over; the old one does not know for a while.
    pub(crate) fn fail_over(&mut self, overlap: i64) {
        let Some(old) = self.leader() else { return };
        if self.adapters.iter().filter(|adapter| adapter.alive).count() > 1 {
            return;
        }
        self.coverage.mark(Mark::Failover);
        self.start_adapter();
        self.schedule(overlap, Happening::Retire(old));
    }

    /// A controller is killed; unless another has taken over, one starts after a while.
    fn kill(&mut self, number: usize, down: i64) {
        self.trace
            .note(self.now, format_args!("ctrl {number}  is killed"));
        self.retire(number);
        if number + 1 == self.adapters.len() {
            self.schedule(down, Happening::StartAdapter);
        }
    }

    pub(crate) fn retire(&mut self, number: usize) {
        let adapter = &mut self.adapters[number];
        adapter.alive = false;
        adapter.pending.clear();
        adapter.inbox = Default::default();
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
        for adapter in self.adapters.iter_mut().filter(|adapter| adapter.alive) {
            adapter.stalled_until[channel as usize] = until;
        }
    }

    /// A watch tells its last news again: nothing changes, but the controller looks.
    pub(crate) fn repeat(&mut self) {
        if let Some(leader) = self.leader() {
            self.coverage.mark(Mark::Repeated);
            self.want_pass(leader, QUEUE_DELAY);
        }
    }

    pub(crate) fn pod_changed(&mut self, at: usize) {
        self.pods_version += 1;
        let shown = self.pods[at].shown.clone();
        self.tell(
            Channel::Pods,
            &News::Pod(self.pods_version, Box::new(shown)),
        );
    }

    pub(crate) fn pod_vanished(&mut self, uid: &str) {
        self.pods_version += 1;
        self.tell(
            Channel::Pods,
            &News::PodGone(self.pods_version, uid.to_owned()),
        );
    }

    /// Whether some controller has not heard yet that the node answers again: it may give up a
    /// pod there that is well, and nobody could tell it better.
    pub(crate) fn believed_sick(&self, node: usize) -> bool {
        let name = &self.nodes[node].name;
        self.adapters
            .iter()
            .any(|adapter| adapter.alive && adapter.view.nodes.contains_key(name))
    }

    /// A controller hears of nodes that do not answer. It may give up their pods, even if the news
    /// is so late that they are well again.
    fn distrust_pods(&mut self, number: usize) {
        let sick = &self.adapters[number].view.nodes;
        for pod in &self.pods {
            if pod
                .shown
                .node
                .as_ref()
                .is_some_and(|node| sick.contains_key(node))
            {
                self.births[pod.birth].troubled = true;
            }
        }
    }

    pub(crate) fn nodes_changed(&mut self) {
        let nodes = self.sick_nodes();
        self.tell(Channel::Nodes, &News::Nodes(nodes));
    }

    pub(crate) fn objects_changed(&mut self) {
        let objects = Box::new(self.objects.clone());
        self.tell(Channel::Objects, &News::Objects(objects));
    }

    pub(crate) fn spec_changed(&mut self) {
        self.spec_version += 1;
        let news = SpecNews {
            version: self.spec_version,
            job: Rc::clone(&self.job),
            exists: self.job_exists,
            being_deleted: self.being_deleted,
        };
        self.tell(Channel::Spec, &News::Spec(news));
    }

    fn tell(&mut self, channel: Channel, news: &News) {
        for number in 0..self.adapters.len() {
            if self.adapters[number].alive {
                self.adapters[number].inbox[channel as usize].push_back(news.clone());
                self.schedule(WATCH_DELAY, Happening::Deliver(number, channel));
            }
        }
    }

    /// A watch brings its next news.
    pub(crate) fn deliver(&mut self, number: usize, channel: Channel) {
        let adapter = &mut self.adapters[number];
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
                view.services = objects.services;
                view.shared = objects.shared;
                view.autoscaler = objects.autoscaler;
            }
        }
        self.want_pass(number, QUEUE_DELAY);
    }

    /// Progress of the training is not an object: the controller reads it as it looks.
    pub(crate) fn progress_changed(&mut self) {
        for number in 0..self.adapters.len() {
            if self.adapters[number].alive {
                self.adapters[number].view.progress = self.progress;
                self.want_pass(number, QUEUE_DELAY);
            }
        }
    }

    fn want_pass(&mut self, number: usize, delay: i64) {
        let adapter = &mut self.adapters[number];
        if !adapter.pending.is_empty() {
            adapter.wanted = true;
        } else if !adapter.pass_due {
            adapter.pass_due = true;
            self.schedule(delay, Happening::Pass(number));
        }
    }

    /// The controller wakes because a pass asked for it.
    pub(crate) fn wake(&mut self, number: usize, wake: u64) {
        if self.adapters[number].alive && self.adapters[number].wake == wake {
            self.want_pass(number, 0);
        }
    }

    /// One pass up to its actions.
    pub(crate) fn pass(&mut self, number: usize) {
        let adapter = &mut self.adapters[number];
        adapter.pass_due = false;
        if !adapter.alive || !adapter.job_exists {
            return;
        }
        if !adapter.pending.is_empty() {
            adapter.wanted = true;
            return;
        }
        self.passes += 1;
        let now = self.timestamp();
        let adapter = &self.adapters[number];
        let decision = (self.decide)(&adapter.job, &adapter.view, now);
        self.check_pass(number, &decision, now);
        self.note_pass(number, &decision);
        let adapter = &self.adapters[number];
        let replaced: Vec<String> = invariants::replaced(&Pass {
            job: &adapter.job,
            observed: &adapter.view,
            decision: &decision,
            now,
        })
        .map(ToOwned::to_owned)
        .collect();
        self.adapters[number].view.refusals.clear();
        self.set_wake(number, decision.wake_at);
        if self.crashes(number, 0) {
            self.coverage.mark(Mark::CrashBeforeWrite);
            return;
        }
        let Decision {
            actions,
            status,
            events,
            ..
        } = decision;
        if status != self.adapters[number].view.status && !self.write_status(number, status) {
            return;
        }
        for event in &events {
            self.trace.note(
                self.now,
                format_args!("ctrl {number}  event {}: {}", event.reason, event.message),
            );
        }
        if self.crashes(number, 1) {
            self.coverage.mark(Mark::CrashAfterWrite);
            return;
        }
        if !replaced.is_empty() {
            self.replaced.extend(replaced);
            let verdict = invariants::check_actions(self);
            self.judge(verdict);
        }
        if !actions.is_empty() {
            self.adapters[number].pending = actions.into();
            self.schedule(CALL, Happening::Act(number));
        }
    }

    /// Whether the controller is killed after this many steps of its pass.
    fn crashes(&mut self, number: usize, steps: u8) -> bool {
        match self.adapters[number].crash {
            Some((after, down)) if after == steps => {
                self.kill(number, down);
                true
            }
            _ => false,
        }
    }

    fn check_pass(&mut self, number: usize, decision: &Decision, now: Timestamp) {
        if decision
            .reasons
            .iter()
            .any(|reason| reason.code == Code::StaleView)
        {
            self.coverage.mark(Mark::StaleViewRefused);
        }
        let adapter = &self.adapters[number];
        let pass = Pass {
            job: &adapter.job,
            observed: &adapter.view,
            decision,
            now,
        };
        let first = invariants::check_pass(&pass, self);
        // A second look costs as much as the first; every fourth pass is enough to catch a
        // decision that is not settled.
        let second = if self.passes.is_multiple_of(4) {
            invariants::check_second_look(&pass, self.decide)
        } else {
            Ok(())
        };
        self.judge(first);
        self.judge(second);
        if number + 1 == self.adapters.len() {
            self.last_reasons.clone_from(&decision.reasons);
        }
    }

    fn note_pass(&mut self, number: usize, decision: &Decision) {
        let adapter = &self.adapters[number];
        let changed = decision.status != adapter.view.status;
        self.trace.note(
            self.now,
            format_args!(
                "ctrl {number}  pass on view {} and status {}{}: {}{}",
                adapter.view.version,
                adapter.status_version,
                if changed { ", status changes" } else { "" },
                decision
                    .reasons
                    .first()
                    .map_or("", |reason| reason.message.as_str()),
                Actions(&decision.actions),
            ),
        );
    }

    fn set_wake(&mut self, number: usize, wake_at: Option<Timestamp>) {
        self.adapters[number].wake += 1;
        if let Some(wake_at) = wake_at {
            let wake = self.adapters[number].wake;
            // A wake-up never comes early: the millisecond after a fraction.
            let millisecond = wake_at.as_nanosecond().div_euclid(1_000_000)
                + i128::from(wake_at.as_nanosecond().rem_euclid(1_000_000) != 0);
            let at = i64::try_from(millisecond).unwrap_or(i64::MAX) - EPOCH;
            self.schedule((at - self.now).max(0), Happening::Wake(number, wake));
        }
    }

    /// Writes on top of the job observed; says whether the pass goes on. The object has one
    /// version for its spec and its status, so a write on top of either of before is refused.
    fn write_status(&mut self, number: usize, status: JobStatus) -> bool {
        let adapter = &self.adapters[number];
        let seen = (adapter.status_version, adapter.spec_version);
        if seen != (self.status_version, self.spec_version) || !self.job_exists {
            self.coverage.mark(Mark::Conflict);
            self.trace
                .note(self.now, format_args!("ctrl {number}  write conflict"));
            return false;
        }
        let verdict =
            invariants::check_write(&self.adapters[number].job, &self.status, &status, self);
        self.judge(verdict);
        self.trace.note(
            self.now,
            format_args!("ctrl {number}  writes {}", Brief(&status)),
        );
        let status = Rc::new(status);
        self.status = Rc::clone(&status);
        self.status_version += 1;
        let version = self.status_version;
        if self.temper.reads_its_writes {
            let adapter = &mut self.adapters[number];
            adapter.view.status = JobStatus::clone(&status);
            adapter.status_version = version;
        }
        self.tell(Channel::Status, &News::Status(version, status));
        if std::mem::take(&mut self.write_times_out) {
            self.coverage.mark(Mark::WriteTimeout);
            self.want_pass(number, RETRY);
            return false;
        }
        true
    }

    /// One action of the pass is carried out, or meets its mishap.
    pub(crate) fn act(&mut self, number: usize) {
        if !self.adapters[number].alive {
            return;
        }
        let Some(action) = self.adapters[number].pending.pop_front() else {
            return;
        };
        let mishap = self.mishaps.pop_front();
        self.trace.note(
            self.now,
            format_args!(
                "ctrl {number}  {action:?}{}",
                mishap.map_or(String::new(), |mishap| format!(" meets {mishap:?}"))
            ),
        );
        match mishap {
            None => self.apply(&action),
            Some(Mishap::Lost) => self.coverage.mark(Mark::ActionLost),
            Some(Mishap::Delayed(delay)) => {
                self.coverage.mark(Mark::ActionDelayed);
                self.schedule(delay, Happening::Late(Box::new(action)));
            }
            Some(Mishap::Twice(delay)) => {
                self.coverage.mark(Mark::ActionTwice);
                self.apply(&action);
                self.schedule(delay, Happening::Late(Box::new(action)));
            }
            Some(Mishap::Refused) => {
                self.coverage.mark(Mark::ActionRefused);
                self.adapters[number].view.refusals.push(Refusal {
                    tried: format!("{action:?}"),
                    message: "exceeded quota".to_owned(),
                });
                self.schedule(RETRY, Happening::Retry(number));
            }
        }
        if let Some((after, down)) = &mut self.adapters[number].crash {
            *after = after.saturating_sub(1);
            if *after <= 1 {
                let down = *down;
                self.coverage.mark(Mark::CrashBetweenActions);
                self.kill(number, down);
                return;
            }
        }
        let adapter = &mut self.adapters[number];
        if !adapter.pending.is_empty() {
            self.schedule(CALL, Happening::Act(number));
        } else if std::mem::take(&mut adapter.wanted) {
            self.want_pass(number, QUEUE_DELAY);
        }
    }

    /// A controller whose call failed decides again.
    pub(crate) fn retry(&mut self, number: usize) {
        if self.adapters[number].alive {
            self.want_pass(number, 0);
        }
    }

    /// An action reaches the API.
    pub(crate) fn apply(&mut self, action: &Action) {
        match action {
            Action::CreatePod { slot, attempt } => self.create_pod(*slot, *attempt),
            Action::DeletePod { slot, uid, removal } => match self.pod_at(*slot) {
                Some(at) if self.pods[at].shown.uid == *uid => {
                    self.delete_pod(at, *removal);
                }
                _ => self.coverage.mark(Mark::ActionMissed),
            },
            Action::CreateService(slot) => self.change_service(*slot, true),
            Action::DeleteService(slot) => self.change_service(*slot, false),
            Action::ApplyShared(inputs) => {
                self.objects.shared = Some(inputs.clone());
                self.objects_changed();
            }
            Action::ApplyAutoscaler | Action::DeleteAutoscaler => {
                self.objects.autoscaler = *action == Action::ApplyAutoscaler;
                self.objects_changed();
            }
            Action::DeleteJob => self.delete_job(),
        }
        if !self.job_exists {
            self.schedule(500, Happening::Collect);
        }
    }

    fn change_service(&mut self, slot: Slot, wanted: bool) {
        let services = &mut self.objects.services;
        let there = services
            .get(&slot.role)
            .is_some_and(|indices| indices.contains(slot.index));
        if there == wanted {
            return;
        }
        let indices = services.entry(slot.role).or_default();
        if wanted {
            indices.insert(slot.index);
        } else {
            *indices = indices
                .iter()
                .filter(|index| *index != slot.index)
                .collect();
            if indices.is_empty() {
                services.remove(&slot.role);
            }
        }
        self.objects_changed();
    }
}

/// Actions in one line.
struct Actions<'a>(&'a [Action]);

impl std::fmt::Display for Actions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, "; {} actions", self.0.len())
    }
}

/// A status in one line.
pub(crate) struct Brief<'a>(pub(crate) &'a JobStatus);

impl std::fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for condition in &self.0.conditions {
            write!(f, "{}={:?} ", condition.kind.name(), condition.status)?;
        }
        for (role, counts) in &self.0.replica_statuses {
            write!(
                f,
                "{role} {}/{}/{} ",
                counts.active, counts.succeeded, counts.failed
            )?;
        }
        let yard = &self.0.trainyard;
        write!(f, "attempt {} spent {:?}", yard.attempt, yard.spent)?;
        if let Some(waiting) = &yard.waiting {
            write!(f, " waiting {:?}: {}", waiting.code, waiting.message)?;
        }
        Ok(())
    }
}
