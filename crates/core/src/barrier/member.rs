//! The supervisor of one pod: when its program starts, when it stops, and when the container ends.
//!
//! Owns the state of one program. Does not own the process: the adapter starts it, stops it with all that it left behind, and reports both.
//!
//! Invariant: [`Member::fence`] only grows. A program of an attempt starts once, and never after a Stop of that attempt was received.

use std::time::Duration;

use super::{
    limits::Limits,
    message::{
        Command, Envelope, Fence, Hello, LeaderMessage, MemberState, ProgramExit, Stage, StopHow,
    },
    redial::Redial,
};
use crate::{
    mutant::{self, Mutant},
    pod::PodUid,
    spec::Slot,
};

/// The exit code of a container whose program was stopped for a restart that did not come: that of a program which SIGTERM ended, so that
/// the restart policy `ExitCode` retries it, also by an operator that knows no barriers.
pub const EXIT_STOPPED: i32 = 143;

/// The exit code of a container whose program cannot be stopped.
pub const EXIT_CANNOT_STOP: i32 = 89;

/// What a pod does when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It runs its program at once: the first attempt, and every attempt with new pods.
    Run,
    /// It waits for Go: it replaces one pod of a gang that restarts in place.
    Wait,
}

/// What an exit code of 0 means for the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSuccess {
    /// It ends at once: the success rule of the job reads it from the pod.
    Exit,
    /// It waits for orders, as after a failure.
    Hold,
}

/// What a member knows at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSetup {
    /// The uid of the job.
    pub job: String,
    /// The uid of its pod.
    pub uid: PodUid,
    /// Its slot.
    pub slot: Slot,
    /// The attempt that its pod was created for.
    pub attempt: u32,
    /// What it does first.
    pub begin: Begin,
    /// What an exit code of 0 means.
    pub on_success: OnSuccess,
    /// How long it waits.
    pub limits: Limits,
}

/// What the adapter of a member is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// Start the program as this attempt. If that fails, it ended with code 127.
    Start {
        /// The attempt.
        attempt: u32,
    },
    /// Stop the program and all that it started, then call [`Member::program_stopped`] or [`Member::cannot_stop`].
    /// A second one with another `how` overrides the first.
    Stop {
        /// The attempt whose program it is.
        attempt: u32,
        /// How.
        how: StopHow,
    },
    /// Send this to the leader, if there is a connection.
    Send(Envelope<Hello>),
    /// Close the connection, and dial the leader after this pause.
    Redial {
        /// The pause.
        after: Duration,
    },
    /// End the container.
    Exit {
        /// With this code.
        code: i32,
    },
}

/// The state machine of one pod's supervisor.
#[derive(Clone, Debug)]
pub struct Member {
    setup: MemberSetup,
    attempt: u32,
    state: MemberState,
    since: Duration,
    fence: Fence,
    how: StopHow,
    /// Since when it has an order to hold, and for how long.
    held: Option<(Duration, Duration)>,
    connected: bool,
    received_at: Duration,
    sent_at: Duration,
    redial: Redial,
    exited: bool,
}

impl Member {
    /// A member as its container starts.
    pub fn new(setup: MemberSetup, now: Duration) -> (Self, Vec<MemberAction>) {
        let attempt = setup.attempt;
        let (state, fence, actions) = match setup.begin {
            Begin::Run => {
                let start = MemberAction::Start { attempt };
                let fence = Fence::new(attempt, Stage::Go);
                (MemberState::Running, fence, vec![start])
            }
            Begin::Wait => {
                let fence = Fence::new(attempt, Stage::Prepare);
                (MemberState::Ready, fence, Vec::new())
            }
        };
        let member = Self {
            setup,
            attempt,
            state,
            since: now,
            fence,
            how: StopHow::Hang,
            held: None,
            connected: false,
            received_at: now,
            sent_at: now,
            redial: Redial::default(),
            exited: false,
        };
        (member, actions)
    }

    /// The attempt that [`Member::state`] is about.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What it does.
    pub fn state(&self) -> MemberState {
        self.state
    }

    /// The newest command that it received.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Whether its container has ended.
    pub fn has_exited(&self) -> bool {
        self.exited
    }

    /// There is a connection to the leader.
    pub fn connected(&mut self, now: Duration) -> Vec<MemberAction> {
        self.connected = true;
        self.received_at = now;
        let mut actions = Vec::new();
        if !self.exited {
            self.report(now, &mut actions);
        }
        actions
    }

    /// The connection to the leader has ended, or could not be made.
    pub fn disconnected(&mut self) -> Vec<MemberAction> {
        self.connected = false;
        if self.exited {
            return Vec::new();
        }
        let after = self.redial.pause();
        vec![MemberAction::Redial { after }]
    }

    /// A message of the leader.
    pub fn receive(
        &mut self,
        envelope: &Envelope<LeaderMessage>,
        now: Duration,
    ) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        if self.exited || envelope.job != self.setup.job {
            return actions;
        }
        self.received_at = now;
        self.redial.reset();
        if let LeaderMessage::Command(command) = envelope.message {
            self.obey(command, now, &mut actions);
        }
        actions
    }

    /// The program of `attempt` ended by itself.
    pub fn program_ended(
        &mut self,
        attempt: u32,
        exit: ProgramExit,
        now: Duration,
    ) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        let runs = self.state == MemberState::Running && self.attempt == attempt;
        if self.exited || !runs {
            return actions;
        }
        self.enter(MemberState::Ended(exit), now, &mut actions);
        if exit.container_code() == 0 && self.setup.on_success == OnSuccess::Exit {
            self.exit(0, &mut actions);
        }
        actions
    }

    /// The program of `attempt` was stopped, and nothing of it is left.
    pub fn program_stopped(&mut self, attempt: u32, now: Duration) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        let stops = matches!(self.state, MemberState::Stopping | MemberState::CannotStop);
        if !self.exited && stops && self.attempt == attempt {
            self.enter(MemberState::Stopped, now, &mut actions);
            self.advance(now, &mut actions);
        }
        actions
    }

    /// The program of `attempt` does not end, whatever is sent to it.
    pub fn cannot_stop(&mut self, attempt: u32, now: Duration) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        if !self.exited && self.state == MemberState::Stopping && self.attempt == attempt {
            self.enter(MemberState::CannotStop, now, &mut actions);
        }
        actions
    }

    /// The container ends for another reason, such as the deletion of its pod: no order is obeyed any more.
    pub fn leave(&mut self) {
        self.exited = true;
    }

    /// When [`Member::tick`] has something to do, at the latest.
    pub fn wake_at(&self) -> Option<Duration> {
        if self.exited {
            return None;
        }
        let reports = self.connected.then(|| {
            let silent = self.received_at + self.setup.limits.silent_after;
            silent.min(self.sent_at + self.report_pause())
        });
        [reports, self.gives_up_at()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        if self.exited {
            return actions;
        }
        if self.gives_up_at().is_some_and(|at| now >= at) {
            self.give_up(now, &mut actions);
        }
        if self.exited || !self.connected {
            return actions;
        }
        if now.saturating_sub(self.received_at) >= self.setup.limits.silent_after {
            actions.extend(self.disconnected());
        } else if now.saturating_sub(self.sent_at) >= self.report_pause() {
            self.report(now, &mut actions);
        }
        actions
    }

    /// How long it stays in its state without an order.
    fn patience(&self) -> Option<Duration> {
        let limits = &self.setup.limits;
        match self.state {
            MemberState::Running => None,
            MemberState::Ended(_) if mutant::is(Mutant::HoldsForever) => None,
            MemberState::Ended(_) => Some(limits.hold),
            MemberState::Stopping => Some(limits.stop_within),
            MemberState::CannotStop => Some(limits.farewell),
            MemberState::Ready | MemberState::Stopped => Some(limits.idle_within()),
        }
    }

    /// When it gives up waiting for an order. A container that is held stays a little longer than the operator holds the gang, so that
    /// the operator decides first.
    fn gives_up_at(&self) -> Option<Duration> {
        let at = self.since + self.patience()?;
        let waits = matches!(self.state, MemberState::Ended(_) | MemberState::Ready);
        let ordered = self.fence == Fence::new(self.attempt, Stage::Hold);
        let held = self.held.filter(|_| waits && ordered);
        Some(held.map_or(at, |(since, within)| {
            at.max(since + within + self.setup.limits.hold)
        }))
    }

    fn report_pause(&self) -> Duration {
        let limits = &self.setup.limits;
        match self.state {
            MemberState::Running => limits.report_every,
            _ => limits.report_in_barrier,
        }
    }

    fn give_up(&mut self, now: Duration, actions: &mut Vec<MemberAction>) {
        match self.state {
            MemberState::Running => {}
            MemberState::Ended(exit) => self.exit(exit.container_code(), actions),
            MemberState::Stopping => self.enter(MemberState::CannotStop, now, actions),
            MemberState::CannotStop => self.exit(EXIT_CANNOT_STOP, actions),
            MemberState::Ready | MemberState::Stopped => self.exit(EXIT_STOPPED, actions),
        }
    }

    fn obey(&mut self, command: Command, now: Duration, actions: &mut Vec<MemberAction>) {
        let fence = command.fence();
        let old = match () {
            () if mutant::is(Mutant::ObeysOlderAttempts) => false,
            () if mutant::is(Mutant::StopsWithoutFence) => fence.attempt < self.fence.attempt,
            () => fence < self.fence,
        };
        if old {
            return;
        }
        if let Command::Stop { attempt, how } = command {
            let newer = fence > self.fence;
            let stronger = how > self.how && matches!(how, StopHow::Hang);
            if newer || stronger {
                self.how = how;
            }
            let stops = self.state == MemberState::Stopping && self.attempt == attempt;
            if stops && !newer && stronger {
                actions.push(MemberAction::Stop { attempt, how });
            }
        }
        if let Command::Hold { within, .. } = command {
            let since = self.held.filter(|_| fence == self.fence);
            self.held = Some((since.map_or(now, |(since, _)| since), within));
        }
        self.fence = fence;
        self.advance(now, actions);
    }

    /// Goes from its state as far towards the newest command as it can.
    fn advance(&mut self, now: Duration, actions: &mut Vec<MemberAction>) {
        let Fence { attempt, stage } = self.fence;
        let over = self.attempt < attempt;
        match self.state {
            MemberState::Running | MemberState::Ended(_) if over || stage == Stage::Stop => {
                // A command of a later attempt implies that this one is over.
                let how = if stage == Stage::Stop {
                    self.how
                } else {
                    StopHow::Hang
                };
                self.enter(MemberState::Stopping, now, actions);
                let attempt = self.attempt;
                actions.push(MemberAction::Stop { attempt, how });
            }
            MemberState::Ready | MemberState::Stopped => self.advance_idle(now, actions),
            _ => {}
        }
    }

    /// The same where no program runs.
    fn advance_idle(&mut self, now: Duration, actions: &mut Vec<MemberAction>) {
        let Fence { attempt, stage } = self.fence;
        let over = self.attempt < attempt;
        let ready = self.state == MemberState::Ready;
        if stage == Stage::Stop {
            // There is nothing to stop.
            if over || ready {
                self.attempt = attempt;
                self.enter(MemberState::Stopped, now, actions);
            }
            return;
        }
        let unfenced =
            mutant::is(Mutant::StopsWithoutFence) || mutant::is(Mutant::ObeysOlderAttempts);
        if over || (unfenced && !ready) {
            self.attempt = attempt;
            self.enter(MemberState::Ready, now, actions);
        }
        if stage == Stage::Go && self.state == MemberState::Ready {
            self.enter(MemberState::Running, now, actions);
            actions.push(MemberAction::Start { attempt });
        }
    }

    fn enter(&mut self, state: MemberState, now: Duration, actions: &mut Vec<MemberAction>) {
        self.state = state;
        self.since = now;
        self.report(now, actions);
    }

    fn exit(&mut self, code: i32, actions: &mut Vec<MemberAction>) {
        self.exited = true;
        actions.push(MemberAction::Exit { code });
    }

    fn report(&mut self, now: Duration, actions: &mut Vec<MemberAction>) {
        if !self.connected {
            return;
        }
        self.sent_at = now;
        // Only the last report of a call matters.
        actions.retain(|action| !matches!(action, MemberAction::Send(_)));
        actions.push(MemberAction::Send(Envelope {
            job: self.setup.job.clone(),
            message: Hello {
                uid: self.setup.uid.clone(),
                slot: self.setup.slot,
                attempt: self.attempt,
                state: self.state,
            },
        }));
    }
}

#[cfg(test)]
mod tests;
