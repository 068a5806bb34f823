//! What will happen, and in which order.

use std::{cmp::Ordering, collections::BinaryHeap};

use trainyard_core::job::Action;

use super::{faults::Fault, nodes::NodeStep, pods::Step, view::Channel};

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Happening {
    /// The controller starts.
    StartAdapter,
    /// A controller that was replaced notices it.
    Retire(usize),
    /// A watch delivers an event.
    Deliver(usize, Channel),
    /// A controller looks and decides.
    Pass(usize),
    /// A controller carries out its next action.
    Act(usize),
    /// A controller wakes, if this is still its last wish.
    Wake(usize, u64),
    /// A controller tries again after a failed call.
    Retry(usize),
    /// An action arrives late.
    Late(Box<Action>),
    /// A pod takes a step.
    Pod(usize, Step),
    /// A pod is made to fail.
    Fail(usize, u32),
    /// A node takes a step of its silence.
    Node(usize, u32, NodeStep),
    /// Placement answers this request for seats of this controller.
    Seats(usize, u64),
    /// A preflight of this controller, this round and these nodes has its answer.
    Preflight(usize, u32, Vec<String>),
    /// Something goes wrong.
    Fault(Fault),
    /// The collector runs.
    Collect,
    /// The training reports how far it is.
    Progress,
    /// The chaos ends.
    Quiet,
}

/// When it happens, and the number of its turn.
#[derive(Debug)]
struct Entry {
    at: i64,
    sequence: u64,
    happening: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap gives its greatest entry, which must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// Everything that will happen, ordered by time and then by when it was put there.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    sequence: u64,
    queue: BinaryHeap<Entry>,
    /// What has happened so far.
    pub(crate) events: u64,
    /// Those that happened while one controller at most was alive: two with different views undo
    /// each other's actions until the lease of one has run out, which is not for `decide` to end.
    pub(super) events_alone: u64,
}

impl Agenda {
    /// Adds what happens at `at`.
    pub(super) fn push(&mut self, at: i64, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Entry {
            at,
            sequence: self.sequence,
            happening,
        });
    }

    /// What happens next, and when.
    pub(super) fn pop(&mut self) -> Option<(i64, Happening)> {
        let entry = self.queue.pop()?;
        Some((entry.at, entry.happening))
    }
}
