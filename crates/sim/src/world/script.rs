//! What a pod will do without interference, drawn when it is created.

use trainyard_core::{
    job::Exit,
    spec::{Job, RestartPolicy, RestartScope, Role, Slot},
};

use super::World;
use crate::dice::Dice;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Well,
    Badly(Exit),
}

/// What a pod will do without interference; `None` is forever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    pub(super) gate: i64,
    pub(super) seat: Option<i64>,
    pub(super) pull: Option<i64>,
    pub(super) start: i64,
    pub(super) ready: i64,
    pub(super) run: Option<i64>,
    pub(super) ending: Ending,
    pub(super) stop: i64,
    pub(super) shows_its_end: bool,
}

/// Seconds a pod may take to end.
pub(super) const GRACE_SECONDS: u32 = 30;

/// The exit codes a training container ends with: its own, an abort, a segmentation fault, and
/// the two signals of a deletion.
const BAD_EXITS: [(i32, bool); 6] = [
    (1, false),
    (2, false),
    (137, false),
    (137, true),
    (139, false),
    (143, false),
];

/// A bad exit, by number.
pub(super) fn bad_exit(which: u32) -> Exit {
    let (code, out_of_memory) = BAD_EXITS[which as usize % BAD_EXITS.len()];
    Exit {
        code,
        out_of_memory,
        at: None,
    }
}

/// An exit with `code`.
pub(super) fn exit(code: i32) -> Exit {
    Exit {
        code,
        out_of_memory: false,
        at: None,
    }
}

/// The restart policy of the pod itself: the gang restarts as a whole, so its pods never restart
/// alone, and an exit code is judged by the controller.
pub(super) fn restarts_in_place(job: &Job, role: Role, ending: Ending) -> bool {
    if job.restart_scope() == RestartScope::Gang {
        return false;
    }
    match job.roles.get(&role).map(|spec| spec.restart_policy) {
        Some(RestartPolicy::Always) => true,
        Some(RestartPolicy::OnFailure) => ending != Ending::Well,
        _ => false,
    }
}

/// The first of the streams that the pods of `slot` draw from.
pub(super) fn stream_of(slot: Slot) -> u64 {
    (1 + slot.role as u64) << 32 | u64::from(slot.index) << 16
}

impl World {
    /// Draws what the pod will do. Births after the chaos are tame: they start, and end well or
    /// stay, as the run's temper says.
    pub(super) fn script(&self, slot: Slot, birth: usize) -> Script {
        // By slot and incarnation, so that one pod more or less elsewhere changes nothing here.
        let incarnation = self
            .cluster
            .births
            .iter()
            .filter(|birth| birth.slot == slot)
            .count();
        let stream = stream_of(slot) + incarnation as u64;
        let dice = &mut Dice::new(self.seed, stream);
        let serves = match slot.role {
            Role::Ps => true,
            Role::Worker => self.stored.job.kind.is_mpi(),
            Role::Evaluator => dice.chance(50),
            _ => false,
        };
        let tame = self.quiet() || self.tamed(birth);
        let mut script = Script {
            gate: if dice.chance(10) {
                dice.within(1..=5_000)
            } else {
                0
            },
            seat: Some(dice.within(1..=2_000)),
            pull: Some(dice.within(1..=3_000)),
            start: dice.within(1..=2_000),
            ready: dice.within(1..=3_000),
            run: Some(dice.within(1_000..=120_000)),
            ending: Ending::Well,
            stop: dice.within(1..=i64::from(GRACE_SECONDS) * 1000),
            shows_its_end: dice.chance(60),
        };
        match dice.below(100) {
            0..=7 => script.seat = Some(dice.within(2_000..=60_000)),
            8..=12 => script.pull = Some(dice.within(5_000..=60_000)),
            13..=15 if !tame => script.seat = None,
            16..=17 if !tame => script.pull = None,
            _ => {}
        }
        match dice.below(100) {
            0..=34 if !tame => script.ending = Ending::Badly(bad_exit(dice.below(6))),
            35..=44 => script.run = None,
            45..=55 => script.run = Some(dice.within(1..=1_000)),
            _ => {}
        }
        if script.ending != Ending::Well && dice.chance(30) {
            script.run = Some(dice.within(1..=500));
        }
        if serves && (tame || dice.chance(85)) {
            script.run = None;
        }
        if tame && self.temper.starved {
            script.seat = None;
        }
        if tame && !self.temper.endless && !serves {
            script.run = script.run.or(Some(5_000));
        }
        script
    }
}
