//! Where the pods of a job go: all of them, on neighbouring nodes, or none.
//!
//! [`place`] takes a frozen cluster and the gangs that want seats, and returns seats, or for each gang the
//! reason why not, with the numbers in it. It owns the choice of seats and nothing else: pods are made by
//! [`crate::launch`], and whether a job should have any is decided by [`crate::job`].
//!
//! ```text
//! Snapshot ──▶ table: nodes in the order of the topology, amounts in arrays
//! Gang ──────▶ ask: pods in groups, who talks to whom      ──▶ seat ──▶ Seating
//!                                                               └─────▶ Refusal, reservation, victims
//! ```
//!
//! # Guarantees
//! - A gang gets all its seats, or as many as its minimum asks for, or none.
//! - No node is given more pods than it has room for, and no pod a node that Kubernetes would refuse it.
//! - Of several gangs the one with the higher claim goes first, then one that had its seats before, then
//!   the older. The first that has to wait is promised seats, which no other gang gets.
//! - Gangs are evicted only for a gang whose pods were admitted with a higher priority, and only as far as
//!   [`Snapshot::preemption`] reaches.
//! - The same arguments give the same answer.
//!
//! # Caveats
//! Volumes that are bound to zones, and limits of the cluster's own on pods of a node beside `pods`, are
//! ignored.

mod amounts;
mod ask;
mod eligible;
mod lay;
mod mutual;
mod node_table;
mod placement;
mod preempt;
mod priority;
mod refusal;
mod reserve;
mod seat;
mod snapshot;
mod survey;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod topology;
mod traffic;
mod wanted;

use jiff::Timestamp;

use self::{
    ask::{Ask, Eligibility},
    node_table::NodeTable,
    seat::{Room, Seats},
};

pub use placement::{Eviction, Place, Placement, Seat, Seating, Span};
pub use priority::{PreemptionScope, PriorityClass, PriorityClasses};
pub use refusal::{Change, Refusal};
pub use snapshot::{
    GangKey, Node, NotACluster, PodKey, QUARANTINED, Resident, Snapshot, Taint, TaintEffect,
};
pub use survey::{Area, Held, Host, Tally, survey};
pub use topology::{Level, Topology};
pub use traffic::weight;
pub use wanted::{Constraints, Gang, Member, Shape};

pub use crate::resources::Resources;

/// Seats for the gangs that want some, in the cluster as it is at `now`.
///
/// Gangs that have all their seats only count as holders of them.
pub fn place(snapshot: &Snapshot, gangs: &[Gang], now: Timestamp) -> Placement {
    let mut placer = Placer {
        table: NodeTable::new(snapshot, gangs),
        gangs,
        scope: snapshot.preemption,
        eligibility: Eligibility::default(),
        placement: Placement {
            warnings: snapshot.warnings.clone(),
            ..Placement::default()
        },
        promised: None,
        now,
    };
    for gang in waiting_order(gangs) {
        placer.place(gang);
    }
    placer.placement
}

/// Seats for one gang as a whole, or none: without a reason, a reservation or an eviction. Pods of other gangs hold what they
/// hold.
pub fn seat_alone(snapshot: &Snapshot, gang: &Gang) -> Option<Seating> {
    let table = NodeTable::new(snapshot, std::slice::from_ref(gang));
    let ask = Ask::new(&table, &mut Eligibility::default(), gang, gang.pods.len());
    let mut amounts = table.usable.clone();
    let mut room = Room {
        table: &table,
        amounts: &mut amounts,
    };
    let seats = seat::seat(&mut room, &ask)?;
    Some(Seating::new(&table, &ask, &seats))
}

/// The gangs that want seats, in the order in which [`place`] considers them: the higher claim first, then one that had its seats before, then the older.
pub fn waiting_order(gangs: &[Gang]) -> Vec<&Gang> {
    let mut waiting: Vec<&Gang> = gangs.iter().filter(|gang| !gang.is_seated()).collect();
    waiting.sort_by(|a, b| {
        b.claim
            .cmp(&a.claim)
            .then_with(|| b.is_returning().cmp(&a.is_returning()))
            .then_with(|| a.created.cmp(&b.created))
            .then_with(|| a.key.cmp(&b.key))
    });
    waiting
}

struct Placer<'a> {
    table: NodeTable<'a>,
    gangs: &'a [Gang],
    scope: PreemptionScope,
    eligibility: Eligibility,
    placement: Placement,
    /// The gang that is promised seats, where one is.
    promised: Option<&'a Gang>,
    now: Timestamp,
}

impl<'a> Placer<'a> {
    fn place(&mut self, gang: &'a Gang) {
        let ask = Ask::new(&self.table, &mut self.eligibility, gang, gang.pods.len());
        match self.seat(&ask) {
            Some(seats) => self.accept(&ask, &seats),
            None => match self.seat_fewer(gang) {
                Some((ask, seats)) => self.accept(&ask, &seats),
                None => self.refuse(&ask),
            },
        }
    }

    fn seat(&mut self, ask: &Ask<'a>) -> Option<Seats> {
        let mut amounts = std::mem::take(&mut self.table.usable);
        let mut room = Room {
            table: &self.table,
            amounts: &mut amounts,
        };
        let seats = seat::seat(&mut room, ask).or_else(|| reserve::as_promised(&mut room, ask));
        self.table.usable = amounts;
        seats
    }

    /// The most pods of an elastic gang that fit, from its minimum.
    fn seat_fewer(&mut self, gang: &'a Gang) -> Option<(Ask<'a>, Seats)> {
        let fewest = gang.minimum.max(gang.held.len() + 1).max(1);
        let mut best = None;
        let (mut low, mut high) = (fewest, gang.pods.len());
        while low < high {
            let count = if best.is_none() {
                low
            } else {
                usize::midpoint(low, high)
            };
            let ask = Ask::new(&self.table, &mut self.eligibility, gang, count);
            match self.seat(&ask) {
                Some(seats) => {
                    best = Some((ask, seats));
                    low = count + 1;
                }
                None => high = count,
            }
        }
        best
    }

    fn accept(&mut self, ask: &Ask<'a>, seats: &Seats) {
        let gang = ask.gang;
        let seating = Seating::new(&self.table, ask, seats);
        for (pod, node) in (0..).zip(seats) {
            let (Some(node), false) = (node, gang.held.contains_key(&gang.pods[pod as usize].name))
            else {
                continue;
            };
            let shape = ask.shape(pod);
            self.table.take(*node, &ask.needs[shape]);
            self.table.add_placed_pod(gang, &gang.shapes[shape], *node);
        }
        self.placement.seated.insert(gang.key.clone(), seating);
    }

    /// Refuses with the reason, and reserves seats: for the first that waits, for one that had seats before, and
    /// for one that others are evicted for.
    fn refuse(&mut self, ask: &Ask<'a>) {
        let gang = ask.gang;
        let (mut refusal, mut named) =
            refusal::refusal(&mut self.table, &mut self.eligibility, ask, self.promised);
        let promised = match self.preempt(ask) {
            Ok(preempt::Preemption { victims, seats }) => {
                reserve::keep(&mut self.table, ask, &seats);
                refusal.waits_for(victims.iter().map(|(victim, _)| &victim.key));
                named.extend(victims.iter().map(|(victim, _)| victim.key.clone()));
                for (victim, eviction) in victims {
                    self.placement.victims.insert(victim.key.clone(), eviction);
                }
                Some(seats)
            }
            Err(why) => {
                if let Some(why) = why {
                    refusal.may_not_preempt(why);
                    if why.is_scope() {
                        self.placement.out_of_scope.insert(gang.key.clone());
                    }
                }
                let reserves = self.promised.is_none() || gang.is_returning();
                reserves
                    .then(|| reserve::reserve(&mut self.table, ask))
                    .flatten()
            }
        };
        if let Some(seats) = promised {
            let seated = placement::seats_of(&self.table, ask, &seats);
            self.placement.reservations.insert(gang.key.clone(), seated);
            self.promised.get_or_insert(gang);
        }
        self.placement.named.insert(gang.key.clone(), named);
        self.placement.refused.insert(gang.key.clone(), refusal);
    }
}
