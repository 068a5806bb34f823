//! Pods, containers, supervisors and programs.

use trainyard_core::barrier::{
    Begin, Leader, Member, MemberAction, MemberSetup, MemberState, OnSuccess, Phase, StateName,
    StopHow,
};

use super::{
    coverage::Mark,
    invariants,
    world::{Container, Happening, JOB, Pod, World, in_millis, leader_slot, limits},
};
use trainyard_core::spec::Slot;

impl World {
    pub(super) fn create_pod(&mut self, slot: Slot, attempt: u32, begin: Begin) {
        if self.api.pods.contains_key(&slot) {
            return;
        }
        self.births += 1;
        let birth = self.births;
        self.trace.note(
            self.now,
            format_args!("api     pod p{birth} of {slot}, attempt {attempt}, {begin:?}"),
        );
        let pod = Pod {
            birth,
            attempt,
            booted: false,
            failed: None,
            node_lost: false,
            terminating: None,
        };
        self.api.pods.insert(slot, pod);
        if begin == Begin::Wait {
            let verdict = invariants::replaced(self, slot);
            self.judge(verdict);
        }
        // The supervisor starts with its container; until then it does nothing.
        let delay = self.dice.within(300..=3_000) + self.pod_delay;
        let setup = MemberSetup {
            job: JOB.to_owned(),
            uid: format!("p{birth}"),
            slot,
            attempt,
            begin,
            on_success: OnSuccess::Hold,
            limits: limits(),
        };
        let start = super::world::millis(0);
        let (member, actions) = Member::new(setup, start);
        let leads = slot == leader_slot();
        let container = Container {
            slot,
            born: self.now + delay,
            member,
            leader: leads.then(|| Leader::new(JOB.to_owned(), limits(), start)),
            program: None,
            up: false,
            cut_off: false,
            kubelet_gone: false,
            ghost: false,
            forced_at: 0,
            half_open: false,
            stuck: false,
            frozen_until: 0,
            connection: None,
            connected_at: 0,
            dials: 0,
            operator_dials: 0,
            member_wake: i64::MAX,
            leader_wake: i64::MAX,
            // Nothing, before it runs.
            reached: (0, StateName::Ready),
            state_since: self.now + delay,
            delivered: None,
            ordered: None,
            found_hung: None,
        };
        self.containers.insert(birth, Box::new(container));
        // Nothing else can have been asked for before the container runs.
        debug_assert!(actions.len() <= 1);
        self.schedule(delay, Happening::Boot(birth));
        self.pods_changed();
    }

    pub(super) fn boot(&mut self, birth: u32) {
        let Some(pod) = self.pod_of(birth) else {
            return;
        };
        if pod.terminating.is_some() {
            return;
        }
        pod.booted = true;
        self.pods_changed();
        let container = self.container(birth);
        container.up = true;
        let attempt = container.member.attempt();
        let runs = container.member.state() == MemberState::Running;
        container.reached = (attempt, container.member.state().name());
        container.dials = 1;
        container.operator_dials = 1;
        let leads = container.leader.is_some();
        if runs {
            self.start_program(birth, attempt);
        }
        let delay = self.dice.within(20..=400);
        self.schedule(delay, Happening::Dial(birth, 1));
        if leads {
            self.schedule(delay / 2, Happening::DialOperator(birth, 1));
        }
    }

    pub(super) fn pod_of(&mut self, birth: u32) -> Option<&mut Pod> {
        let slot = self.containers.get(&birth)?.slot;
        self.api
            .pods
            .get_mut(&slot)
            .filter(|pod| pod.birth == birth)
    }

    /// What a member wants is done.
    pub(super) fn carry_out(&mut self, birth: u32, actions: Vec<MemberAction>) {
        for action in actions {
            match action {
                MemberAction::Start { attempt } => self.start_program(birth, attempt),
                MemberAction::Stop { attempt, how } => {
                    let now = self.now;
                    let container = self.container(birth);
                    let ended = container.reached == (attempt, StateName::Ended);
                    if ended && now - container.state_since > in_millis(limits().hold) {
                        self.coverage.mark(Mark::StayedForHold);
                    }
                    self.stop_program(birth, attempt, how);
                }
                MemberAction::Send(hello) => self.send_hello(birth, &hello),
                MemberAction::Redial { after } => {
                    let container = self.container(birth);
                    let gone = container.connection.take();
                    container.dials += 1;
                    let number = container.dials;
                    if let Some(connection) = gone {
                        self.close(connection);
                    }
                    self.schedule(in_millis(after), Happening::Dial(birth, number));
                }
                MemberAction::Exit { code } => {
                    self.trace
                        .note(self.now, format_args!("p{birth:<6} exits with {code}"));
                    if code == 1 {
                        self.coverage.mark(Mark::HeldOut);
                    }
                    self.container_ends(birth, code);
                }
            }
        }
        self.after_member(birth);
    }

    /// Remembers how far the member came, and when it wakes.
    fn after_member(&mut self, birth: u32) {
        let now = self.now;
        let container = self.container(birth);
        let position = (container.member.attempt(), container.member.state().name());
        if position != container.reached {
            container.state_since = now;
        }
        let before = container.reached;
        container.reached = position.max(before);
        let backwards = position < before;
        let cannot = position != before && position.1 == StateName::CannotStop;
        let wake = container.member.wake_at();
        let due = wake.map(|at| container.born + in_millis(at));
        if let Some(due) =
            due.filter(|due| *due < container.member_wake || container.member_wake <= now)
        {
            container.member_wake = due;
            let delay = (due - now).max(1);
            self.schedule(delay, Happening::MemberTick(birth));
        }
        if cannot {
            self.coverage.mark(Mark::CannotStop);
        }
        if backwards {
            let verdict = invariants::backwards(birth, before, position);
            self.judge(verdict);
        }
    }

    pub(super) fn tick_member(&mut self, birth: u32) {
        let now = self.clock_of(birth);
        let millisecond = self.now;
        let container = self.container(birth);
        if !container.up {
            return;
        }
        if container.member_wake > millisecond {
            return;
        }
        let actions = container.member.tick(now);
        if actions
            .iter()
            .any(|action| matches!(action, MemberAction::Redial { .. }))
        {
            self.coverage.mark(Mark::SilentPeer);
        }
        self.carry_out(birth, actions);
    }

    fn start_program(&mut self, birth: u32, attempt: u32) {
        self.trace.note(
            self.now,
            format_args!("p{birth:<6} starts its program as attempt {attempt}"),
        );
        self.container(birth).program = Some(attempt);
        let verdict = invariants::started(self, birth, attempt);
        self.judge(verdict);
    }

    fn stop_program(&mut self, birth: u32, attempt: u32, how: StopHow) {
        self.trace.note(
            self.now,
            format_args!("p{birth:<6} stops attempt {attempt}, {how:?}"),
        );
        let most = match how {
            StopHow::Hang => 2_000,
            StopHow::Grace(_) => 6_000,
        };
        let container = self.container(birth);
        let stuck = container.stuck && container.program.is_some();
        let idle = container.program.is_none();
        let (delay, well) = if stuck {
            if self.dice.chance(50) {
                // Its own bound ends the wait.
                return;
            }
            (30_000, false)
        } else if idle {
            (self.dice.within(20..=300), true)
        } else {
            (self.dice.within(20..=most), true)
        };
        self.schedule(delay, Happening::Stopped(birth, attempt, well));
    }

    pub(super) fn stopped(&mut self, birth: u32, attempt: u32, well: bool) {
        let now = self.clock_of(birth);
        let container = self.container(birth);
        if !container.up {
            return;
        }
        let actions = if well {
            if container.program == Some(attempt) {
                container.program = None;
            }
            container.member.program_stopped(attempt, now)
        } else {
            container.member.cannot_stop(attempt, now)
        };
        self.carry_out(birth, actions);
    }

    /// The supervisor ends, and everything in its container with it.
    pub(super) fn container_ends(&mut self, birth: u32, code: i32) {
        let container = self.container(birth);
        if !container.up {
            return;
        }
        container.up = false;
        container.program = None;
        container.member.leave();
        self.trace
            .note(self.now, format_args!("p{birth:<6} has ended"));
        self.links_end(birth);
        // Nobody else reports that a container has ended.
        let reported = !self.container(birth).kubelet_gone;
        if let Some(pod) = self.pod_of(birth).filter(|_| reported) {
            pod.failed = Some(code);
            self.pods_changed();
        }
    }

    pub(super) fn lose_node(&mut self, birth: u32) {
        if let Some(pod) = self.pod_of(birth) {
            pod.node_lost = true;
            self.pods_changed();
            let mark = match self.barrier().map(|barrier| barrier.phase) {
                None => Mark::NodeLostRunning,
                Some(Phase::Stopping) => Mark::NodeLostStopping,
                Some(Phase::Preparing) => Mark::NodeLostWaiting,
            };
            self.coverage.mark(mark);
        }
    }

    /// The deletion of a pod is requested.
    pub(super) fn delete_pod(&mut self, birth: u32) {
        let now = self.now;
        let Some(pod) = self.pod_of(birth) else {
            return;
        };
        if pod.terminating.is_some() && !pod.node_lost {
            return;
        }
        pod.terminating.get_or_insert(now);
        let forced = pod.node_lost;
        let delay = if forced {
            500
        } else {
            let container = self.container(birth);
            if !container.kubelet_gone {
                container.member.leave();
            }
            self.dice.within(50..=3_000)
        };
        self.schedule(delay, Happening::Kill(birth));
        self.pods_changed();
    }

    /// A pod object is removed: its container has ended, or its node is gone.
    pub(super) fn kill(&mut self, birth: u32) {
        let now = self.now;
        let Some(pod) = self.pod_of(birth) else {
            return;
        };
        let (forced, failed) = (pod.node_lost, pod.failed.is_some());
        let container = self.container(birth);
        if (container.cut_off || container.kubelet_gone) && !forced {
            // The kubelet does not respond: the object stays until its node counts as lost.
            return;
        }
        let slot = container.slot;
        if forced {
            container.ghost = true;
            container.forced_at = now;
            let reachable = container.up && !container.cut_off && container.kubelet_gone;
            let runs = container.program.is_some();
            self.coverage.mark(Mark::ForcedAway);
            if reachable {
                let mark = if runs {
                    Mark::GhostRuns
                } else {
                    Mark::GhostFenced
                };
                self.coverage.mark(mark);
            } else {
                self.container(birth).up = false;
                self.links_end(birth);
            }
        } else if !failed {
            container.up = false;
            container.program = None;
            self.links_end(birth);
        }
        self.trace
            .note(self.now, format_args!("api     pod p{birth} is gone"));
        self.api.pods.remove(&slot);
        self.pods_changed();
    }
}
