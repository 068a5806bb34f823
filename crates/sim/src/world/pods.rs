//! The life of a pod: waits, starts, runs, ends, is removed.
//!
//! A [`Pod`] is an object of the API with the process behind it. A [`Birth`] is what truly became
//! of it, kept after the object is gone: the invariants ask births, never the status.
//!
//! Invariant: at most one pod object per slot, as names are unique.

use trainyard_core::{
    job::{Disruption, Exit, ObservedPod, PodPhase, Removal, Seat, Wait},
    spec::Slot,
};

use super::{
    Happening, World,
    script::{Ending, GRACE_SECONDS, Script, bad_exit, exit, restarts_in_place, stream_of},
};
use crate::{coverage::Mark, dice::Dice};

/// A pod object and the process behind it.
#[derive(Debug)]
pub(crate) struct Pod {
    /// What the API shows of it.
    pub(crate) shown: ObservedPod,
    /// Index of its [`Birth`].
    pub(crate) birth: usize,
    /// Index of its node.
    pub(crate) node: Option<usize>,
    /// Index of the node that it is bound to.
    pub(crate) pinned: Option<usize>,
    pub(super) script: Script,
}

/// The streams that restarted containers draw from begin here.
const RESTARTS: u64 = 1 << 40;

/// What truly became of a pod.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) slot: Slot,
    pub(crate) attempt: u32,
    /// It ran at some time, as far as the API could show.
    pub(crate) ran: bool,
    /// Its process ended with code 0, as far as the API could show.
    pub(crate) succeeded: bool,
    /// It ended badly before anyone had asked for its deletion.
    pub(crate) failed_alone: Option<Exit>,
    /// Something happened to it that may cost an attempt: it failed, was removed, vanished, or
    /// its node did not respond.
    pub(crate) troubled: bool,
    /// Restarts in place.
    pub(crate) restarts: u32,
}

/// One step in the life of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its gates are removed.
    Ungated,
    /// It gets a node.
    Seated,
    /// Its image is there.
    Pulled,
    /// Its containers run.
    Started,
    /// It is ready.
    Ready,
    /// Its process ends on its own.
    Ended,
    /// Its process ends because it was stopped.
    Stopped,
    /// Its object goes.
    Removed,
}

impl World {
    /// Where a pod object of `slot` is, if there is one.
    pub(crate) fn pod_at(&self, slot: Slot) -> Option<usize> {
        self.cluster
            .pods
            .iter()
            .position(|pod| pod.shown.slot == slot)
    }

    fn pod_of(&self, birth: usize) -> Option<usize> {
        self.cluster.pods.iter().position(|pod| pod.birth == birth)
    }

    /// A pod object appears.
    pub(crate) fn create_pod(&mut self, slot: Slot, attempt: u32, seat: &Seat) {
        if self.pod_at(slot).is_some() {
            self.trace
                .note(self.now, format_args!("api     {slot} exists already"));
            return;
        }
        let birth = self.cluster.births.len();
        let script = self.script(slot, birth);
        self.cluster.births.push(Birth {
            slot,
            attempt,
            ran: false,
            succeeded: false,
            failed_alone: None,
            troubled: false,
            restarts: 0,
        });
        let shown = ObservedPod {
            uid: format!("pod-{birth}"),
            slot,
            attempt,
            phase: PodPhase::Pending,
            ready: false,
            deleted_at: None,
            grace_seconds: GRACE_SECONDS,
            node: None,
            restarts: 0,
            ends: 0,
            exit: None,
            start_error: None,
            wait: Some(if script.gate > 0 || *seat == Seat::Gated {
                Wait::Gate
            } else {
                Wait::Seat("0/4 nodes are available".to_owned())
            }),
            disruption: None,
            gated: *seat == Seat::Gated,
        };
        self.trace.note(
            self.now,
            format_args!("api     pod-{birth} created in {slot}, attempt {attempt}"),
        );
        self.cluster.pods.push(Pod {
            shown,
            birth,
            node: None,
            pinned: match seat {
                Seat::Node(node) => self.cluster.nodes.iter().position(|one| one.name == *node),
                Seat::Open | Seat::Gated => None,
            },
            script,
        });
        self.pod_changed(self.cluster.pods.len() - 1);
        if *seat != Seat::Gated {
            self.schedule(script.gate, Happening::Pod(birth, Step::Ungated));
        }
        if !self.stored.exists {
            // The collector finds that the owner is gone.
            self.call_collector();
        }
    }

    /// Deletion of a pod object is asked for, by whomever.
    pub(crate) fn delete_pod(&mut self, at: usize, removal: Removal) {
        if removal == Removal::Forced {
            self.remove_pod(at);
            return;
        }
        if self.cluster.pods[at].shown.deleted_at.is_some() {
            return;
        }
        let deleted_at = self.whole_second();
        let pod = &mut self.cluster.pods[at];
        pod.shown.deleted_at = Some(deleted_at);
        let (birth, stop) = (pod.birth, pod.script.stop);
        let waits = pod.shown.node.is_none();
        let ended = matches!(pod.shown.phase, PodPhase::Succeeded | PodPhase::Failed);
        self.pod_changed(at);
        match (waits, ended) {
            (true, _) => self.schedule(5, Happening::Pod(birth, Step::Removed)),
            (_, true) => self.schedule(20, Happening::Pod(birth, Step::Removed)),
            _ => self.schedule(stop, Happening::Pod(birth, Step::Stopped)),
        }
    }

    /// A pod object goes; its process, on a silent node, may live on.
    pub(crate) fn remove_pod(&mut self, at: usize) {
        let pod = self.cluster.pods.swap_remove(at);
        if let Some(node) = pod.node
            && self.cluster.nodes[node].is_silent()
            && matches!(pod.shown.phase, PodPhase::Running | PodPhase::Unknown)
        {
            self.coverage.mark(Mark::Zombie);
        }
        self.trace
            .note(self.now, format_args!("api     {} is gone", pod.shown.uid));
        self.pod_vanished(&pod.shown.uid);
        self.finish_deletion();
    }

    /// The pod takes its next step, unless its node cannot report it.
    pub(crate) fn step_pod(&mut self, birth: usize, step: Step) {
        let Some(at) = self.pod_of(birth) else {
            return;
        };
        if let Some(node) = self.cluster.pods[at].node {
            if self.cluster.nodes[node].is_silent() {
                self.cluster.nodes[node].held_back.push((birth, step));
                return;
            }
            if self.cluster.nodes[node].is_deleted() && step != Step::Removed {
                return;
            }
        }
        let phase = self.cluster.pods[at].shown.phase;
        let over = matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
        match step {
            Step::Removed => self.remove_pod(at),
            Step::Stopped => self.stop_pod(at, over),
            Step::Ended if !over => self.end_pod(at),
            Step::Ready if phase == PodPhase::Running => {
                self.cluster.pods[at].shown.ready = true;
                self.pod_changed(at);
            }
            Step::Ungated | Step::Seated | Step::Pulled | Step::Started
                if phase == PodPhase::Pending
                    && self.cluster.pods[at].shown.deleted_at.is_none() =>
            {
                self.advance_pod(at, step);
            }
            _ => {}
        }
    }

    fn advance_pod(&mut self, at: usize, step: Step) {
        let free_node = (step == Step::Seated).then(|| self.free_node(&self.cluster.pods[at]));
        let distrusted = free_node
            .flatten()
            .is_some_and(|node| self.cluster.nodes[node].is_silent() || self.believed_sick(node));
        // The scheduler says nothing new of a pod that is bound to a node that it cannot have; where the
        // node is gone it never tries again.
        if let (Step::Seated, Some(node), None | Some(None)) =
            (step, self.cluster.pods[at].pinned, free_node)
        {
            if !self.cluster.nodes[node].is_deleted() {
                let birth = self.cluster.pods[at].birth;
                self.schedule(60_000, Happening::Pod(birth, Step::Seated));
            }
            return;
        }
        let pod = &mut self.cluster.pods[at];
        let (birth, script) = (pod.birth, pod.script);
        let next = match step {
            Step::Ungated => {
                pod.shown.wait = Some(Wait::Seat("0/4 nodes are available".to_owned()));
                script.seat.map(|delay| (delay, Step::Seated))
            }
            Step::Seated => match free_node.flatten() {
                None => Some((5_000, Step::Seated)),
                Some(node) => {
                    pod.node = Some(node);
                    self.cluster.births[birth].troubled |= distrusted;
                    pod.shown.node = Some(self.cluster.nodes[node].name.clone());
                    pod.shown.wait = Some(match script.pull {
                        Some(_) => Wait::Pull,
                        None => Wait::PullFailed("image not found".to_owned()),
                    });
                    script.pull.map(|delay| (delay, Step::Pulled))
                }
            },
            Step::Pulled => {
                pod.shown.wait = Some(Wait::Create);
                Some((script.start, Step::Started))
            }
            _ => {
                pod.shown.wait = None;
                pod.shown.phase = PodPhase::Running;
                self.cluster.births[birth].ran = true;
                self.schedule(script.ready, Happening::Pod(birth, Step::Ready));
                script.run.map(|delay| (delay, Step::Ended))
            }
        };
        self.trace
            .note(self.now, format_args!("pod     pod-{birth} {step:?}"));
        self.pod_changed(at);
        if let Some((delay, step)) = next {
            self.schedule(delay, Happening::Pod(birth, step));
        }
    }

    /// The process ends on its own.
    fn end_pod(&mut self, at: usize) {
        let pod = &self.cluster.pods[at];
        if pod.shown.phase == PodPhase::Pending {
            return;
        }
        let (birth, ending) = (pod.birth, pod.script.ending);
        let slot = pod.shown.slot;
        if restarts_in_place(&self.stored.job, slot.role, ending) && pod.shown.deleted_at.is_none()
        {
            self.restart_container(at);
            return;
        }
        self.trace.note(
            self.now,
            format_args!("pod     pod-{birth} ends {ending:?}"),
        );
        match ending {
            Ending::Well => self.pod_ends(at, PodPhase::Succeeded, exit(0)),
            Ending::Badly(exit) => self.pod_ends(at, PodPhase::Failed, exit),
        }
    }

    /// The process ends badly, whatever it would have done.
    pub(crate) fn pod_fails(&mut self, at: usize, exit: Exit) {
        self.cluster.pods[at].script.ending = Ending::Badly(exit);
        self.end_pod(at);
    }

    fn restart_container(&mut self, at: usize) {
        self.coverage.mark(Mark::RestartInPlace);
        let ended = self.whole_second();
        let pod = &mut self.cluster.pods[at];
        pod.shown.restarts += 1;
        pod.shown.ends += 1;
        pod.shown.ready = false;
        let end = match pod.script.ending {
            Ending::Well => exit(0),
            Ending::Badly(exit) => exit,
        };
        pod.shown.exit = Some(Exit {
            at: Some(ended),
            ..end
        });
        let (birth, restarts) = (pod.birth, pod.shown.restarts);
        self.cluster.births[birth].restarts += 1;
        self.cluster.births[birth].troubled |= self.cluster.pods[at].script.ending != Ending::Well;
        self.trace.note(
            self.now,
            format_args!("pod     pod-{birth} restarts in place, {restarts} so far"),
        );
        let stream = RESTARTS + stream_of(self.cluster.pods[at].shown.slot) + u64::from(restarts);
        let dice = &mut Dice::new(self.seed, stream);
        let script = &mut self.cluster.pods[at].script;
        script.run = Some(dice.within(500..=60_000));
        script.ending = if dice.chance(50) {
            Ending::Badly(bad_exit(dice.below(6)))
        } else {
            Ending::Well
        };
        let (run, ready) = (script.run, script.ready);
        self.pod_changed(at);
        self.schedule(ready, Happening::Pod(birth, Step::Ready));
        // A container that is restarted forever would never let the world settle.
        if !self.quiet()
            && restarts < 20
            && let Some(run) = run
        {
            self.schedule(run, Happening::Pod(birth, Step::Ended));
        }
    }

    /// The process of a deleted pod ends; the API shows its end for a moment, or not at all.
    fn stop_pod(&mut self, at: usize, over: bool) {
        let (birth, script) = (self.cluster.pods[at].birth, self.cluster.pods[at].script);
        if over || !script.shows_its_end {
            self.remove_pod(at);
            return;
        }
        let ending = match script.stop % 4 {
            0 => exit(0),
            1 => exit(137),
            _ => exit(143),
        };
        let phase = if ending.code == 0 {
            PodPhase::Succeeded
        } else {
            PodPhase::Failed
        };
        self.trace.note(
            self.now,
            format_args!("pod     pod-{birth} stopped with {}", ending.code),
        );
        self.pod_ends(at, phase, ending);
        self.schedule(
            20 + script.stop % 2_000,
            Happening::Pod(birth, Step::Removed),
        );
    }

    /// The API shows that the process has ended.
    pub(crate) fn pod_ends(&mut self, at: usize, phase: PodPhase, exit: Exit) {
        let ended = self.whole_second();
        let pod = &mut self.cluster.pods[at];
        pod.shown.phase = phase;
        pod.shown.ends += 1;
        pod.shown.exit = Some(Exit {
            at: Some(ended),
            ..exit
        });
        pod.shown.ready = false;
        pod.shown.wait = None;
        let birth = &mut self.cluster.births[pod.birth];
        // Whatever ends has run, even if no pass saw it in between.
        birth.ran = true;
        if phase == PodPhase::Succeeded {
            birth.succeeded = true;
        } else {
            birth.troubled = true;
            if pod.shown.deleted_at.is_none() && pod.shown.disruption.is_none() {
                birth.failed_alone = Some(exit);
            }
        }
        let deleted = pod.shown.deleted_at.is_some();
        let birth = pod.birth;
        self.pod_changed(at);
        if deleted {
            self.schedule(50, Happening::Pod(birth, Step::Removed));
        }
    }

    /// The platform removes a pod.
    pub(crate) fn disrupt_pod(&mut self, at: usize, disruption: Disruption, fails: bool) {
        let pod = &mut self.cluster.pods[at];
        if matches!(pod.shown.phase, PodPhase::Succeeded | PodPhase::Failed) {
            return;
        }
        pod.shown.disruption = Some(disruption);
        let birth = pod.birth;
        self.cluster.births[birth].troubled = true;
        self.trace.note(
            self.now,
            format_args!("fault   pod-{birth} is disrupted: {disruption:?}"),
        );
        if fails {
            // The kubelet ends it and keeps the object, as for pressure and shutdown.
            let pod = &mut self.cluster.pods[at];
            pod.shown.phase = PodPhase::Failed;
            pod.shown.ready = false;
            pod.shown.wait = None;
            if disruption == Disruption::NodePressure && birth.is_multiple_of(2) {
                pod.shown.exit = Some(exit(137));
            }
            self.pod_changed(at);
        } else {
            self.delete_pod(at, Removal::Graceful);
        }
    }
}
