//! The wait queue of an operator: when gangs are placed.

use trainyard_core::gang::GangKey;

use super::{World, coverage::Mark, invariants, world::Happening};

/// Gangs that come together are placed together.
const GATHER: i64 = 5;
/// Gangs are placed this often even if nothing changes: patience runs out by itself.
const AT_LEAST_EVERY: i64 = 10_000;

impl World {
    /// Has the gangs placed, if something has changed for them.
    pub(super) fn look_at_queue(&mut self, number: usize) {
        let operator = &mut self.operators[number];
        if operator.fleet.queue.take_placement_due() && !operator.is_place_due {
            operator.is_place_due = true;
            self.after(GATHER, Happening::Place(number));
        }
    }

    pub(super) fn place_again(&mut self, number: usize, places: u64) {
        let operator = &self.operators[number];
        if operator.places == places && !operator.is_place_due {
            self.place(number);
        }
    }

    pub(super) fn place(&mut self, number: usize) {
        let now = self.timestamp();
        let operator = &mut self.operators[number];
        operator.is_place_due = false;
        if !operator.alive || self.leader != Some(number) {
            return;
        }
        operator.places += 1;
        let looked = operator.fleet.queue.place(now);
        let waiting = operator.fleet.queue.waiting();
        let places = operator.places;
        for key in &looked.seated {
            self.coverage.mark(Mark::Assigned);
            if self.facts.evicted.remove(key) {
                self.coverage.mark(Mark::EvictedReturned);
            }
        }
        for _ in &looked.out_of_scope {
            self.coverage.mark(Mark::OutOfScope);
        }
        let changed: Vec<GangKey> = looked
            .seated
            .iter()
            .chain(&looked.changed)
            .cloned()
            .collect();
        for key in &changed {
            let delay = self.turn();
            self.want_pass(number, key, delay);
        }
        if waiting > 0 {
            self.coverage.mark(Mark::Refused);
            self.after(AT_LEAST_EVERY, Happening::PlaceAgain(number, places));
        }
        let verdict = invariants::check_queue(self, number);
        self.judge(verdict);
        self.note(format_args!(
            "oper {number}  places: assigned {:?}, changed {:?}, {waiting} wait",
            looked
                .seated
                .iter()
                .map(|key| &key.name)
                .collect::<Vec<_>>(),
            looked
                .changed
                .iter()
                .map(|key| &key.name)
                .collect::<Vec<_>>(),
        ));
    }
}
