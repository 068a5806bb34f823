//! One run, from the first step to the last.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::{
    dice::Dice,
    world::{Length, Path, World},
};
use crate::{ledger::Phase, plan::recovery::Saving};

const DAY: f64 = 86_400.0;
/// Interruptions after which a run is abandoned: a world in which nothing can be trained must end too.
const MOST_INTERRUPTIONS: u64 = 200_000;

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Seconds by phase, in the order of [`Phase::ALL`].
    pub seconds: [f64; Phase::ALL.len()],
    /// Failures of hardware.
    pub hardware: u64,
    /// Failures of software.
    pub software: u64,
    /// Bursts.
    pub bursts: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// How often no standby was left.
    pub chosen: u64,
    /// How often another job had to release one.
    pub lent: u64,
    /// Whether it was abandoned.
    pub given_up: bool,
    /// Its spans in order, where they were asked for.
    pub spans: Vec<Span>,
}

/// A stretch of time in one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// From.
    pub from: f64,
    /// To.
    pub to: f64,
    /// In this phase.
    pub phase: Phase,
}

impl Run {
    /// Seconds of one phase.
    pub fn of(&self, phase: Phase) -> f64 {
        let at = Phase::ALL.iter().position(|other| *other == phase);
        at.map_or(0.0, |at| self.seconds[at])
    }

    /// All seconds.
    pub fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Share of the time that trained.
    pub fn ettr(&self) -> f64 {
        self.of(Phase::Training) / self.total().max(f64::MIN_POSITIVE)
    }

    /// Failures and preemptions.
    pub fn interruptions(&self) -> u64 {
        self.hardware + self.software + self.bursts + self.preemptions
    }
}

/// A machine in repair.
#[derive(Clone, Copy, Debug, PartialEq)]
struct InRepair {
    back: f64,
    bad: bool,
}

impl Eq for InRepair {}

impl Ord for InRepair {
    /// The one that is back first is the greatest, for a max-heap.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .back
            .total_cmp(&self.back)
            .then_with(|| self.bad.cmp(&other.bad))
    }
}

impl PartialOrd for InRepair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Machines of one place, good and bad.
#[derive(Clone, Copy, Debug, Default)]
struct Machines {
    good: u32,
    bad: u32,
}

impl Machines {
    fn stock(machines: u32, bad_share: f64, dice: &mut Dice) -> Self {
        let bad = (0..machines).filter(|_| dice.chance(bad_share)).count();
        let bad = u32::try_from(bad).unwrap_or(machines);
        Self {
            good: machines - bad,
            bad,
        }
    }

    fn all(self) -> u32 {
        self.good + self.bad
    }

    /// Takes one; which one is chance.
    fn take(&mut self, dice: &mut Dice) -> Option<bool> {
        if self.all() == 0 {
            return None;
        }
        let bad = dice.share() * f64::from(self.all()) < f64::from(self.bad);
        if bad {
            self.bad -= 1;
        } else {
            self.good -= 1;
        }
        Some(bad)
    }

    fn put(&mut self, bad: bool) {
        if bad {
            self.bad += 1;
        } else {
            self.good += 1;
        }
    }
}

/// What interrupts training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interruption {
    Hardware { bad: bool },
    Software,
    Burst,
    Preemption,
}

struct Simulation<'a> {
    world: &'a World,
    dice: Dice,
    run: Run,
    now: f64,
    gang: Machines,
    standbys: Machines,
    pool: Machines,
    lent: Machines,
    away: BinaryHeap<InRepair>,
    /// Trained and saved, in seconds of training.
    saved: f64,
    /// Saved on storage, where memory holds more.
    stored: f64,
    /// The furthest that was ever trained.
    furthest: f64,
    spans: bool,
}

/// Runs `world` once, with the dice of `seed` for run `number`; keeps every span where asked to.
pub fn run(world: &World, seed: u64, number: u64, spans: bool) -> Run {
    let mut dice = Dice::new(seed, number);
    let share = world.failures.bad_share;
    let gang = Machines::stock(world.machines, share, &mut dice);
    let mut simulation = Simulation {
        gang,
        standbys: Machines::stock(world.spares.standbys, share, &mut dice),
        pool: Machines::stock(world.spares.pool, share, &mut dice),
        lent: Machines::stock(world.spares.lent, share, &mut dice),
        dice,
        world,
        run: Run::default(),
        now: 0.0,
        away: BinaryHeap::new(),
        saved: 0.0,
        stored: 0.0,
        furthest: 0.0,
        spans,
    };
    while simulation.train_until_interrupted() {}
    simulation.run
}

impl Simulation<'_> {
    /// Trains until something strikes or the run is over; then recovers. False when it is over.
    fn train_until_interrupted(&mut self) -> bool {
        let (interruption, after) = self.next_interruption();
        let begun = self.saved;
        let cycle = self.world.checkpoints.every + self.world.checkpoints.blocking;
        let left = match self.world.length {
            Length::Trained(goal) => {
                let more = goal - begun;
                more + (more / self.world.checkpoints.every).floor()
                    * self.world.checkpoints.blocking
            }
            Length::Passed(end) => end - self.now,
        };
        let over = after >= left;
        let active = after.min(left).max(0.0);
        let cycles = (active / cycle).floor();
        let rest = (active - cycles * cycle).min(self.world.checkpoints.every);
        let trained = cycles * self.world.checkpoints.every + rest;
        let saving = (active - trained).max(0.0);
        self.book_training(begun, trained, saving);
        if over {
            return false;
        }
        self.update_saved(begun, cycles, rest, interruption);
        self.recover(interruption);
        if self.run.interruptions() >= MOST_INTERRUPTIONS {
            self.run.given_up = true;
        }
        let ended = matches!(self.world.length, Length::Passed(end) if self.now >= end);
        !(ended || self.run.given_up)
    }

    /// The next interruption, and after how many seconds of activity.
    fn next_interruption(&mut self) -> (Interruption, f64) {
        let failures = self.world.failures;
        let good = f64::from(self.gang.good) * failures.hardware;
        let bad = f64::from(self.gang.bad) * failures.hardware * failures.bad_times;
        let software = f64::from(self.gang.all()) * failures.software;
        let bursts = self.world.bursts.per_day;
        let preemptions = self.world.preemptions.per_day;
        let rate = good + bad + software + bursts + preemptions;
        if rate <= 0.0 {
            return (Interruption::Software, f64::INFINITY);
        }
        let after = self.dice.wait(DAY / rate);
        let mut at = self.dice.share() * rate;
        let kinds = [
            (good, Interruption::Hardware { bad: false }),
            (bad, Interruption::Hardware { bad: true }),
            (software, Interruption::Software),
            (bursts, Interruption::Burst),
        ];
        for (part, interruption) in kinds {
            if at < part {
                return (interruption, after);
            }
            at -= part;
        }
        (Interruption::Preemption, after)
    }

    /// Books a stretch of training: what was trained before counts as redone.
    fn book_training(&mut self, begun: f64, trained: f64, saving: f64) {
        let again = (self.furthest - begun).clamp(0.0, trained);
        self.spend(Phase::Redoing, again);
        self.spend(Phase::Training, trained - again);
        self.spend(Phase::Saving, saving);
        self.furthest = self.furthest.max(begun + trained);
    }

    /// What of the stretch is safe.
    fn update_saved(&mut self, begun: f64, cycles: f64, rest: f64, interruption: Interruption) {
        let checkpoints = &self.world.checkpoints;
        // The last checkpoint is safe only some time after its beginning.
        let unsafe_yet = cycles > 0.0 && rest + checkpoints.blocking < checkpoints.safe_after;
        let whole = if unsafe_yet { cycles - 1.0 } else { cycles };
        self.saved = begun + whole * checkpoints.every;
        if checkpoints.saving == Saving::InMemory {
            let every = checkpoints.storage_every.max(checkpoints.every);
            self.stored = self.stored.max((self.saved / every).floor() * every);
            let lost = interruption == Interruption::Burst
                && self.world.bursts.machines > checkpoints.memory_survives;
            if lost {
                self.saved = self.stored;
            }
        }
    }

    fn recover(&mut self, interruption: Interruption) {
        let world = self.world;
        let silent =
            interruption != Interruption::Preemption && self.dice.chance(world.notice.silent_share);
        let notice = match interruption {
            Interruption::Preemption => 0.0,
            _ if silent => world.notice.silent_seconds,
            _ => world.notice.seconds,
        };
        let mut failed = Vec::new();
        match interruption {
            Interruption::Hardware { bad } => {
                self.run.hardware += 1;
                failed.push(bad);
            }
            Interruption::Software => self.run.software += 1,
            Interruption::Burst => {
                self.run.bursts += 1;
                let machines = world.bursts.machines.min(self.gang.all());
                for _ in 0..machines {
                    let bad =
                        self.dice.share() * f64::from(self.gang.all()) < f64::from(self.gang.bad);
                    failed.push(bad);
                }
            }
            Interruption::Preemption => self.run.preemptions += 1,
        }
        self.spend(Phase::Stalled, notice);
        if interruption == Interruption::Preemption {
            self.spend(Phase::Queued, world.preemptions.wait);
        }
        for bad in &failed {
            self.send_to_repair(*bad);
        }
        self.return_repaired();
        let mut struck_again = true;
        while struck_again {
            let placing = self.replace(u32::try_from(failed.len()).unwrap_or(u32::MAX));
            failed.clear();
            let restarting = self.restart_seconds(interruption);
            let all = placing + restarting + world.start_seconds;
            let again = if world.failures.while_restarting {
                self.next_interruption().1
            } else {
                f64::INFINITY
            };
            struck_again = again < all && self.run.interruptions() < MOST_INTERRUPTIONS;
            if struck_again {
                // What struck is booked as the failure of a good machine, whatever it was.
                self.run.hardware += 1;
                self.spend(Phase::Restarting, again);
                if self.gang.good > 0 {
                    self.send_to_repair(false);
                    failed.push(false);
                }
                self.return_repaired();
            } else {
                self.spend(Phase::Placing, placing);
                self.spend(Phase::Restarting, restarting);
                self.spend(Phase::Starting, world.start_seconds);
            }
            if matches!(world.length, Length::Passed(end) if self.now >= end) {
                return;
            }
        }
    }

    fn restart_seconds(&self, interruption: Interruption) -> f64 {
        let seconds = &self.world.path_seconds;
        match (self.world.path, interruption) {
            (Path::InPlace, Interruption::Software) => seconds.in_place,
            (Path::Requeue, _) | (_, Interruption::Preemption) => seconds.requeue,
            (Path::Replace, _) => seconds.replace,
            (Path::Standby | Path::InPlace, _) => seconds.standby,
        }
    }

    /// A machine leaves the gang and goes to repair.
    fn send_to_repair(&mut self, bad: bool) {
        if bad && self.gang.bad > 0 {
            self.gang.bad -= 1;
        } else if self.gang.good > 0 {
            self.gang.good -= 1;
        } else {
            return;
        }
        let repair = self.world.repair;
        let mut away = self.dice.wait(repair.automatic);
        let mut still_bad = bad;
        if self.dice.chance(repair.automatic_fails) {
            if self.dice.chance(repair.escalated) {
                away += self.dice.wait(repair.manual);
                still_bad = bad && self.dice.chance(repair.manual_fails);
            }
        } else {
            still_bad = false;
        }
        self.away.push(InRepair {
            back: self.now + away,
            bad: still_bad,
        });
    }

    /// Machines that are repaired by now fill the standbys, then the pool.
    fn return_repaired(&mut self) {
        while let Some(machine) = self.away.peek().copied() {
            if machine.back > self.now {
                return;
            }
            self.away.pop();
            if self.standbys.all() < self.world.spares.standbys {
                self.standbys.put(machine.bad);
            } else {
                self.pool.put(machine.bad);
            }
        }
    }

    /// Fills `missing` seats; returns the seconds that it takes beyond the path's own.
    fn replace(&mut self, missing: u32) -> f64 {
        let mut waits = 0.0;
        let mut seats = missing;
        while seats > 0 {
            if let Some(bad) = self.standbys.take(&mut self.dice) {
                self.gang.put(bad);
                seats -= 1;
                continue;
            }
            // One choice fills the standbys too, so that the next failure finds some.
            if self.pool.all() > 0 {
                self.run.chosen += 1;
                waits += self.world.spares.choose_seconds;
                for _ in 0..self.world.spares.standbys.max(1) {
                    match self.pool.take(&mut self.dice) {
                        Some(bad) => self.standbys.put(bad),
                        None => break,
                    }
                }
                continue;
            }
            if let Some(bad) = self.lent.take(&mut self.dice) {
                self.run.lent += 1;
                waits += self.world.spares.lent_seconds;
                self.gang.put(bad);
                seats -= 1;
                continue;
            }
            // Nothing is left: wait for the first repair.
            let Some(machine) = self.away.peek().copied() else {
                return waits;
            };
            let until = (machine.back - self.now - waits).max(0.0);
            waits += until;
            self.away.pop();
            self.gang.put(machine.bad);
            seats -= 1;
        }
        waits
    }

    /// Lets time pass in a phase, no further than to the end of the run.
    fn spend(&mut self, phase: Phase, seconds: f64) {
        let seconds = match self.world.length {
            Length::Passed(end) => seconds.min(end - self.now),
            Length::Trained(_) => seconds,
        };
        if seconds <= 0.0 {
            return;
        }
        if let Some(at) = Phase::ALL.iter().position(|other| *other == phase) {
            self.run.seconds[at] += seconds;
        }
        if self.spans {
            self.run.spans.push(Span {
                from: self.now,
                to: self.now + seconds,
                phase,
            });
        }
        self.now += seconds;
    }
}
