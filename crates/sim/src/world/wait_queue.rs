//! The wait queue: gangs request seats, wait, and get nodes that may be dead by then.
//!
//! Placement itself is not simulated here: what `decide` does with its answers is. They come late,
//! refuse first, and name nodes that fall silent or go before the pods arrive.
//!
//! Invariant: an answer is the memory of one controller; the next one knows only what pods carry.

use std::collections::BTreeMap;

use trainyard_core::{
    job::{PodPhase, Seating, Wait},
    spec::{Role, Slot},
};

use super::{Happening, World, nodes::NodeState, pods::Step};
use crate::{coverage::Mark, dice::Dice};

/// The stream that the answers draw from.
const STREAM: u64 = 3 << 40;

impl World {
    /// What a controller that starts knows of seats: those that pods carry.
    pub(super) fn remembered_seats(&self) -> Seating {
        if !self.temper.gives_seats {
            return Seating::Open;
        }
        let seats: BTreeMap<Slot, String> = self
            .cluster
            .pods
            .iter()
            .filter(|pod| pod.shown.attempt > self.stored.status.trainyard.released)
            .filter_map(|pod| Some((pod.shown.slot, self.cluster.nodes[pod.pinned?].name.clone())))
            .collect();
        let whole = self
            .stored
            .job
            .slots()
            .all(|slot| seats.contains_key(&slot));
        if whole && !seats.is_empty() {
            Seating::Given(seats)
        } else {
            Seating::Unasked
        }
    }

    /// Where the priority of the job counts only once its pods were admitted, the gang leaves the wait queue while one of
    /// them does not exist.
    pub(super) fn admit(&mut self, number: usize) {
        if !self.temper.pods_first {
            return;
        }
        let adapter = &mut self.controllers.adapters[number];
        let record = &adapter.view.status.trainyard;
        let exists = |slot: Slot| {
            let mut pods = adapter.view.pods.iter();
            pods.any(|pod| {
                pod.slot == slot
                    && pod.attempt == record.attempt
                    && pod.deleted_at.is_none()
                    && !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
            })
        };
        let mut slots = adapter.job.slots();
        let whole = slots
            .all(|slot| slot.role == Role::Launcher || record.has_succeeded(slot) || exists(slot));
        match (&adapter.view.seating, whole) {
            (Seating::Unasked | Seating::Queued(_), false) => {
                // An answer that is under way is for a gang that is no longer in the wait queue.
                adapter.asked += 1;
                adapter.view.seating = Seating::Unadmitted("creating the pods first".to_owned());
                self.coverage.mark(Mark::PodsFirst);
            }
            (Seating::Unadmitted(_), true) => adapter.view.seating = Seating::Unasked,
            _ => {}
        }
    }

    /// The gang is evicted for another one, by every controller that gave it seats.
    pub(super) fn evict_gang(&mut self) {
        for number in 0..self.controllers.adapters.len() {
            let adapter = &mut self.controllers.adapters[number];
            if adapter.alive && matches!(adapter.view.seating, Seating::Given(_)) {
                adapter.view.seating = Seating::Evicted("evicted for `default/urgent`".to_owned());
                self.coverage.mark(Mark::SeatsTaken);
                self.trace
                    .note(self.now, format_args!("fault   the gang is evicted"));
                self.want_pass(number, super::controller::QUEUE_DELAY);
            }
        }
    }

    /// Whether the last controller sees the gang in the wait queue with a refusal.
    pub(crate) fn is_queued_without_seats(&self) -> bool {
        let last = self.controllers.adapters.last();
        last.is_some_and(|adapter| matches!(adapter.view.seating, Seating::Queued(Some(_))))
    }

    /// The gang enters the wait queue.
    pub(super) fn ask_seats(&mut self, number: usize) {
        let seating = &mut self.controllers.adapters[number].view.seating;
        match seating {
            Seating::Unasked => *seating = Seating::Queued(None),
            Seating::Given(_) => {}
            Seating::Open | Seating::Unadmitted(_) | Seating::Queued(_) | Seating::Evicted(_) => {
                return;
            }
        }
        self.controllers.adapters[number].asked += 1;
        let asked = self.controllers.adapters[number].asked;
        let stream = STREAM + ((number as u64) << 20) + asked;
        let delay = Dice::new(self.seed, stream).within(1..=200);
        self.schedule(delay, Happening::Seats(number, asked));
    }

    /// The gang releases its seats and leaves the wait queue.
    pub(super) fn release_seats(&mut self, number: usize, avoid: &[String]) {
        self.controllers.adapters[number]
            .avoided
            .extend(avoid.iter().cloned());
        self.coverage.mark(Mark::SeatsReleased);
        // An answer that is under way is for a gang that is no longer in the wait queue.
        self.controllers.adapters[number].asked += 1;
        self.controllers.adapters[number].view.seating = Seating::Unasked;
        self.want_pass(number, super::controller::QUEUE_DELAY);
    }

    /// Placement answers a request.
    pub(crate) fn answer(&mut self, number: usize, asked: u64) {
        if asked != self.controllers.adapters[number].asked
            || !self.controllers.adapters[number].alive
        {
            return;
        }
        let dice = &mut Dice::new(self.seed, STREAM + (self.now.unsigned_abs() << 8) + asked);
        let avoided = &self.controllers.adapters[number].avoided;
        let free: Vec<usize> = (0..self.cluster.nodes.len())
            .filter(|index| self.cluster.nodes[*index].state != NodeState::Deleted)
            .filter(|index| !avoided.contains(&self.cluster.nodes[*index].name))
            .filter(|index| self.cluster.nodes[*index].state == NodeState::Ready || dice.chance(20))
            .collect();
        let quiet = self.now > self.temper.chaos;
        // In a quiet world no room becomes free any more.
        let hopeless = quiet && (free.is_empty() || self.temper.is_starved());
        let refused = hopeless || free.is_empty() || dice.chance(30);
        let seating = if refused {
            self.coverage.mark(Mark::SeatsRefused);
            if !hopeless {
                self.schedule(dice.within(1_000..=60_000), Happening::Seats(number, asked));
            }
            Seating::Queued(Some("needs 1 node more".to_owned().into()))
        } else {
            self.coverage.mark(Mark::SeatsGiven);
            let job = std::rc::Rc::clone(&self.controllers.adapters[number].job);
            let seats = job.slots().map(|slot| {
                let node = free[dice.below(u32::try_from(free.len()).unwrap_or(1)) as usize];
                (slot, self.cluster.nodes[node].name.clone())
            });
            Seating::Given(seats.collect())
        };
        self.controllers.adapters[number].view.seating = seating;
        self.want_pass(number, super::controller::QUEUE_DELAY);
    }

    /// A pod is ungated and bound to its node.
    pub(super) fn seat_pod(&mut self, at: usize, node: &str) {
        let pinned = self.cluster.nodes.iter().position(|one| one.name == node);
        let pod = &mut self.cluster.pods[at];
        if !pod.shown.gated {
            return;
        }
        pod.shown.gated = false;
        pod.pinned = pinned;
        pod.shown.wait = Some(Wait::Seat(String::new()));
        let (birth, gate) = (pod.birth, pod.script.gate);
        self.pod_changed(at);
        self.schedule(gate, Happening::Pod(birth, Step::Ungated));
    }
}
