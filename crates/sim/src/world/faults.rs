//! What goes wrong, and when.
//!
//! A run's faults are planned before it begins, so that a shrunk run is the same run with fewer
//! of them. A fault names its victim by a number that is taken modulo what there is when it
//! strikes.

use trainyard_core::job::{Disruption, PodPhase, Removal};

use super::{
    Happening, World, controller::Mishap, nodes::NodeState, script::bad_exit, users::Deed,
    view::Channel,
};
use crate::{coverage::Mark, dice::Dice};

/// One thing that goes wrong, or that someone does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The controller is killed in its next pass, after this many of its steps.
    Crash { after_steps: u8, down: i64 },
    /// Another controller takes over while this one continues for a while.
    Failover { overlap: i64 },
    /// A watch delivers nothing for a while.
    Stall { channel: Channel, length: i64 },
    /// A watch delivers its last event again.
    Repeat,
    /// The next actions meet a mishap.
    Actions { mishap: Mishap, count: u8 },
    /// The next status write is done, but its answer is lost.
    WriteTimeout,
    /// A node falls silent.
    NodeSilent { node: u32, length: Option<i64> },
    /// A node is deleted.
    NodeDeleted { node: u32 },
    /// The platform removes a pod.
    Disrupt { victim: u32, disruption: Disruption },
    /// A user deletes a pod.
    DeletePod { victim: u32, removal: Removal },
    /// The process of a pod fails.
    FailPod { victim: u32, exit: u32 },
    /// All processes fail, one after the other.
    BlowUp { exit: u32, spread: i64 },
    /// A finished pod is collected.
    CollectFinished { victim: u32 },
    /// A user does something.
    User(Deed),
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: i64,
    pub(crate) fault: Fault,
}

/// The faults of a run whose chaos lasts for `chaos` milliseconds.
pub(crate) fn plan(dice: &mut Dice, chaos: i64) -> Vec<Planned> {
    let count = 8 + dice.below(28);
    let mut at = 0;
    let mut plan: Vec<Planned> = (0..count)
        .map(|_| {
            // Bursts meet in one pass; lone faults meet a settled world.
            at = if dice.chance(45) {
                at + dice.within(1..=1_500)
            } else {
                dice.within(0..=chaos)
            };
            Planned {
                at: at.min(chaos),
                fault: fault(dice),
            }
        })
        .collect();
    plan.sort_by_key(|planned| planned.at);
    plan
}

fn fault(dice: &mut Dice) -> Fault {
    let victim = dice.below(1 << 16);
    match dice.below(100) {
        0..=9 => Fault::Crash {
            after_steps: u8::try_from(dice.below(8)).expect("below 8"),
            down: match dice.below(3) {
                0 => dice.within(1..=50),
                1 => dice.within(50..=5_000),
                _ => dice.within(5_000..=90_000),
            },
        },
        10..=13 => Fault::Failover {
            // A lease runs out within 15 s; the controller that lost it stops by then.
            overlap: dice.within(10..=15_000),
        },
        14..=26 => Fault::Stall {
            channel: dice.pick(&Channel::ALL),
            length: if dice.chance(50) {
                dice.within(100..=3_000)
            } else {
                dice.within(3_000..=60_000)
            },
        },
        27..=28 => Fault::Repeat,
        29..=42 => Fault::Actions {
            mishap: match dice.below(8) {
                0..=1 => Mishap::Lost,
                2..=3 => Mishap::Delayed(dice.within(1..=45_000)),
                4..=5 => Mishap::Twice(dice.within(1..=45_000)),
                _ => Mishap::Refused,
            },
            count: u8::try_from(1 + dice.below(4)).expect("below 5"),
        },
        43 => Fault::WriteTimeout,
        44..=50 => Fault::NodeSilent {
            node: victim,
            length: dice.chance(75).then(|| dice.within(100..=240_000)),
        },
        51..=52 => Fault::NodeDeleted { node: victim },
        53..=61 => Fault::Disrupt {
            victim,
            disruption: dice.pick(&[
                Disruption::Preempted,
                Disruption::Evicted,
                Disruption::NodePressure,
                Disruption::NodeShutdown,
            ]),
        },
        62..=66 => Fault::DeletePod {
            victim,
            removal: if dice.chance(70) {
                Removal::Graceful
            } else {
                Removal::Forced
            },
        },
        67..=75 => Fault::FailPod {
            victim,
            exit: dice.below(6),
        },
        76..=79 => Fault::BlowUp {
            exit: dice.below(6),
            spread: dice.within(1..=3_000),
        },
        80..=83 => Fault::CollectFinished { victim },
        _ => Fault::User(deed(dice)),
    }
}

fn deed(dice: &mut Dice) -> Deed {
    match dice.below(100) {
        0..=29 => Deed::Scale(dice.below(7)),
        30..=41 => Deed::Limit(dice.chance(80).then(|| dice.below(5))),
        42..=51 => Deed::Deadline(dice.chance(70).then(|| u64::from(dice.below(900)))),
        52..=65 => Deed::Suspend(true),
        66..=83 => Deed::Suspend(false),
        84..=93 => Deed::Restart,
        94..=96 => Deed::Delete,
        _ => Deed::DeleteInForeground,
    }
}

impl World {
    /// Something goes wrong.
    pub(crate) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { after_steps, down } => self.plan_crash(after_steps, down),
            Fault::Failover { overlap } => self.fail_over(overlap),
            Fault::Stall { channel, length } => self.stall(channel, length),
            Fault::Repeat => self.repeat(),
            Fault::Actions { mishap, count } => {
                for _ in 0..count {
                    self.controllers.mishaps.push_back(mishap);
                }
            }
            Fault::WriteTimeout => self.controllers.write_times_out = true,
            Fault::NodeSilent { node, length } => {
                self.coverage.mark(if length.is_some() {
                    Mark::NodeSilent
                } else {
                    Mark::NodeLost
                });
                let index = node as usize % self.cluster.nodes.len();
                self.silence_node(index, length);
            }
            Fault::NodeDeleted { node } => {
                self.coverage.mark(Mark::NodeDeleted);
                let index = node as usize % self.cluster.nodes.len();
                self.delete_node(index);
            }
            // A gang with seats is moved as a whole as often as one pod of it.
            Fault::Disrupt {
                victim,
                disruption: Disruption::Preempted,
            } if self.temper.gives_seats && victim.is_multiple_of(2) => self.evict_gang(),
            Fault::Disrupt { victim, disruption } => self.disrupt(victim, disruption),
            Fault::DeletePod { victim, removal } => self.lose_pod(victim, removal),
            Fault::FailPod { victim, exit } => {
                if let Some(at) = self.victim(victim, runs) {
                    self.coverage.mark(Mark::Failed);
                    self.fail_pod(at, exit);
                }
            }
            Fault::BlowUp { exit, spread } => self.blow_up(exit, spread),
            Fault::CollectFinished { victim } => {
                let finished = |phase| matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
                if let Some(at) = self.victim(victim, finished) {
                    self.coverage.mark(Mark::Collected);
                    let birth = self.cluster.pods[at].birth;
                    self.cluster.births[birth].troubled = true;
                    self.trace
                        .note(self.now, format_args!("fault   pod-{birth} is collected"));
                    self.remove_pod(at);
                }
            }
            Fault::User(deed) => self.user_does(deed),
        }
    }

    fn victim(&self, number: u32, wanted: impl Fn(PodPhase) -> bool) -> Option<usize> {
        let candidates: Vec<usize> = (0..self.cluster.pods.len())
            .filter(|at| wanted(self.cluster.pods[*at].shown.phase))
            .collect();
        if candidates.is_empty() {
            return None;
        }
        Some(candidates[number as usize % candidates.len()])
    }

    fn disrupt(&mut self, victim: u32, disruption: Disruption) {
        let Some(at) = self.victim(victim, |phase| {
            matches!(phase, PodPhase::Pending | PodPhase::Running)
        }) else {
            return;
        };
        if self.cluster.pods[at]
            .node
            .is_none_or(|node| self.cluster.nodes[node].state != NodeState::Ready)
        {
            return;
        }
        let fails = matches!(
            disruption,
            Disruption::NodePressure | Disruption::NodeShutdown
        );
        self.coverage.mark(match disruption {
            Disruption::Preempted => Mark::Preempted,
            Disruption::Evicted => Mark::Evicted,
            _ => Mark::Pressured,
        });
        self.disrupt_pod(at, disruption, fails);
    }

    fn lose_pod(&mut self, victim: u32, removal: Removal) {
        let Some(at) = self.victim(victim, |_| true) else {
            return;
        };
        self.coverage.mark(match removal {
            Removal::Graceful => Mark::UserDeletedPod,
            Removal::Forced => Mark::UserForcedPod,
        });
        let birth = self.cluster.pods[at].birth;
        self.cluster.births[birth].troubled = true;
        self.trace.note(
            self.now,
            format_args!("user    deletes pod-{birth}, {removal:?}"),
        );
        self.delete_pod(at, removal);
    }

    /// The process of a pod fails now, if its node can report it.
    pub(crate) fn fail_pod(&mut self, at: usize, exit: u32) {
        let reachable = self.cluster.pods[at]
            .node
            .is_some_and(|node| self.cluster.nodes[node].state == NodeState::Ready);
        if !reachable || !runs(self.cluster.pods[at].shown.phase) {
            return;
        }
        let birth = self.cluster.pods[at].birth;
        self.trace
            .note(self.now, format_args!("fault   pod-{birth} fails"));
        self.pod_fails(at, bad_exit(exit));
    }

    fn blow_up(&mut self, exit: u32, spread: i64) {
        self.coverage.mark(Mark::BlowUp);
        let births: Vec<usize> = self.cluster.pods.iter().map(|pod| pod.birth).collect();
        for (delay, birth) in (0..).step_by(37).zip(births) {
            self.schedule(delay % spread, Happening::Fail(birth, exit));
        }
    }
}

fn runs(phase: PodPhase) -> bool {
    phase == PodPhase::Running
}
