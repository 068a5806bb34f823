//! What goes wrong, and when.

use std::time::Duration;

use super::{
    coverage::Mark,
    world::{Happening, World, leader_slot},
};
use crate::dice::Dice;
use trainyard_core::barrier::{
    Command, Envelope, HangReport, LeaderMessage, MemberState, ProgramExit, Stage,
};

/// The longest time that a gang of a run is kept for inspection.
pub(super) const LONGEST_HOLD: Duration = Duration::from_mins(1);

/// Something that goes wrong. Slots are taken modulo the size of the gang.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    ProgramFails(u32),
    Hangs,
    SupervisorCrashes(u32),
    /// Nothing gets in or out of a pod any more.
    NodeLost(u32),
    /// The kubelet of a pod's node does not respond any more; the pod runs on and has its network.
    KubeletLost(u32),
    PodDeleted(u32),
    CannotStop(u32),
    /// A supervisor does nothing for so long.
    Frozen {
        slot: u32,
        length: i64,
    },
    /// New pods take so much longer to start.
    SlowPods {
        length: i64,
    },
    OperatorCrashes {
        down: i64,
    },
    OperatorCrashesAfter {
        calls: u32,
        down: i64,
    },
    MemberCut(u32),
    MemberHalfOpen(u32),
    OperatorCut,
    OperatorHalfOpen,
    Storm {
        percent: u32,
        length: i64,
    },
    Foreign(u32),
    Suspend {
        length: i64,
    },
    Delete,
    Resize(u32),
    /// The user has seen enough of a gang that is held.
    EndHold,
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) at: i64,
    pub(super) fault: Fault,
}

/// The faults of a run. The first is a failed program or a lost pod, so that there is a barrier; most others strike near a failure.
pub(super) fn plan(seed: u64) -> Vec<Planned> {
    let dice = &mut Dice::new(seed, 1);
    let mut plan = Vec::new();
    let mut failed_at = dice.within(4_000..=5_000);
    for _ in 0..dice.pick(&[1, 1, 1, 2, 3]) {
        let slot = dice.below(8);
        let fault = match dice.below(100) {
            0..15 => Fault::Hangs,
            15..22 => Fault::NodeLost(slot),
            22..32 => Fault::KubeletLost(slot),
            32..36 => Fault::PodDeleted(slot),
            36..40 => Fault::SupervisorCrashes(slot),
            _ => Fault::ProgramFails(slot),
        };
        plan.push(Planned {
            at: failed_at,
            fault,
        });
        for _ in 0..dice.below(4) {
            // Soon after the failure: inside the barrier.
            let most = dice.pick(&[600, 2_500, 8_000, 15_000]);
            let at = failed_at + dice.within(0..=most);
            let fault = draw(dice);
            plan.push(Planned { at, fault });
        }
        failed_at += dice.within(3_000..=15_000);
    }
    plan
}

/// How long a failed gang is kept for inspection: not at all in most runs.
pub(super) fn hold(seed: u64) -> Option<Duration> {
    let dice = &mut Dice::new(seed, 3);
    let seconds = dice.pick(&[0, 0, 0, 5, 20, LONGEST_HOLD.as_secs()]);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// When faults stop.
pub(super) fn quiet_at(plan: &[Planned]) -> i64 {
    let last = plan.iter().map(|planned| planned.at).max();
    last.unwrap_or(0) + 3_000
}

fn draw(dice: &mut Dice) -> Fault {
    let slot = dice.below(8);
    let down = dice.pick(&[200, 3_000, 5_000, 10_000, 45_000]);
    match dice.below(100) {
        0..12 => Fault::OperatorCrashes { down },
        12..30 => Fault::OperatorCrashesAfter {
            calls: dice.below(12),
            down,
        },
        30..38 => Fault::SupervisorCrashes(slot),
        38..42 => Fault::NodeLost(slot),
        42..45 => Fault::KubeletLost(slot),
        45..50 => Fault::PodDeleted(slot),
        50..55 => Fault::CannotStop(slot),
        55..58 => Fault::Frozen {
            slot,
            length: dice.pick(&[5_000, 20_000, 50_000, 100_000]),
        },
        58..60 => Fault::SlowPods {
            length: dice.pick(&[30_000, 90_000, 250_000]),
        },
        60..64 => Fault::ProgramFails(slot),
        64..69 => Fault::MemberCut(slot),
        69..76 => Fault::MemberHalfOpen(slot),
        76..79 => Fault::OperatorCut,
        79..84 => Fault::OperatorHalfOpen,
        84..90 => Fault::Storm {
            percent: dice.pick(&[20, 50, 95]),
            length: dice.within(1_000..=30_000),
        },
        90..92 => Fault::Foreign(slot),
        92..95 => Fault::Suspend {
            length: dice.within(500..=20_000),
        },
        95..97 => Fault::Delete,
        97 => Fault::EndHold,
        _ => Fault::Resize(dice.below(4) + 2),
    }
}

impl World {
    pub(super) fn strike(&mut self, fault: Fault) {
        self.trace.note(self.now, format_args!("fault   {fault:?}"));
        match fault {
            Fault::ProgramFails(slot) => {
                let Some(birth) = self.container_in(slot) else {
                    return;
                };
                self.fail_program(birth);
            }
            Fault::Hangs => {
                self.api.hangs = Some(self.api.status.trainyard.attempt);
                self.find_hang();
            }
            Fault::SupervisorCrashes(slot) => {
                if let Some(birth) = self.container_in(slot) {
                    self.container_ends(birth, 137);
                }
            }
            Fault::NodeLost(slot) => {
                if let Some(birth) = self.container_in(slot) {
                    let container = self.container(birth);
                    container.cut_off = true;
                    let delay = self.dice.within(2_000..=30_000);
                    self.schedule(delay, Happening::NodeLost(birth));
                }
            }
            Fault::KubeletLost(slot) => {
                if let Some(birth) = self.container_in(slot) {
                    self.container(birth).kubelet_gone = true;
                    let delay = self.dice.within(0..=30_000);
                    self.schedule(delay, Happening::NodeLost(birth));
                }
            }
            Fault::PodDeleted(slot) => {
                if let Some(birth) = self.container_in(slot) {
                    self.delete_pod(birth);
                }
            }
            Fault::CannotStop(slot) => {
                if let Some(birth) = self.container_in(slot) {
                    self.container(birth).stuck = true;
                }
            }
            Fault::Frozen { slot, length } => {
                let until = self.now + length;
                if let Some(birth) = self.container_in(slot) {
                    self.container(birth).frozen_until = until;
                }
            }
            Fault::SlowPods { length } => self.pod_delay = length,
            Fault::OperatorCrashes { down } => self.crash_operator(down),
            Fault::OperatorCrashesAfter { calls, down } => {
                if let Some(operator) = &mut self.operator {
                    operator.crash_after = Some((calls, down));
                }
            }
            Fault::MemberCut(slot) => {
                if let Some(birth) = self.container_in(slot) {
                    self.cut_member(birth);
                }
            }
            Fault::MemberHalfOpen(slot) => {
                if let Some(birth) = self.container_in(slot) {
                    self.container(birth).half_open = true;
                }
            }
            Fault::OperatorCut => self.cut_operator(),
            Fault::OperatorHalfOpen => {
                if let Some(operator) = &mut self.operator {
                    operator.half_open = true;
                }
            }
            Fault::Storm { percent, length } => {
                self.storm = (percent, self.now + length);
            }
            Fault::Foreign(slot) => self.send_foreign(slot),
            Fault::Suspend { length } => {
                if !self.api.suspend {
                    self.api.suspend = true;
                    self.schedule(length, Happening::Resume);
                    self.pods_changed();
                }
            }
            Fault::Delete => {
                self.api.being_deleted = true;
                self.pods_changed();
            }
            Fault::EndHold => {
                self.api.hold = None;
                self.pods_changed();
            }
            Fault::Resize(size) => {
                self.api.size = size;
                self.pods_changed();
            }
        }
    }

    fn fail_program(&mut self, birth: u32) {
        let now = self.clock_of(birth);
        let inside = self.barrier().is_some();
        let container = self.container(birth);
        let Some(attempt) = container.program else {
            return;
        };
        let runs = container.member.state() == MemberState::Running;
        if runs && container.member.attempt() == attempt {
            container.program = None;
            let exit = ProgramExit {
                code: 1,
                signal: None,
            };
            let actions = container.member.program_ended(attempt, exit, now);
            if inside {
                self.coverage.mark(Mark::FailedInside);
            }
            self.carry_out(birth, actions);
        }
    }

    /// The watch of the leader that runs finds that an attempt hangs, once it is there.
    pub(super) fn find_hang(&mut self) {
        let Some(attempt) = self.api.hangs else {
            return;
        };
        let Some(birth) = self.container_in(leader_slot().index) else {
            return;
        };
        let now = self.clock_of(birth);
        let container = self.container(birth);
        let hangs = container.program == Some(attempt) && container.found_hung != Some(attempt);
        let Some(leader) = container.leader.as_mut().filter(|_| hangs) else {
            return;
        };
        container.found_hung = Some(attempt);
        let hang = HangReport {
            attempt,
            slot: leader_slot(),
            rank: Some(0),
            label: "hang_cpu_side".to_owned(),
            sentence: "rank 0 is apart".to_owned(),
        };
        let actions = leader.report_hang(hang, now);
        self.carry_out_leader(birth, actions);
    }

    /// A command of another job, and of a later attempt, reaches a member.
    fn send_foreign(&mut self, slot: u32) {
        let Some(birth) = self.container_in(slot) else {
            return;
        };
        let attempt = self.api.status.trainyard.attempt + 7;
        let stage = self.dice.pick(&[Stage::Prepare, Stage::Go]);
        let command = match stage {
            Stage::Go => Command::Go { attempt },
            _ => Command::Prepare { attempt },
        };
        let message = Envelope {
            job: "another".to_owned(),
            message: LeaderMessage::Command(command),
        };
        self.schedule(1, Happening::ToMember(birth, Box::new(message)));
    }
}
