//! The second decider: who gets nodes and who is evicted, which nodes are measured in a trial, and which are put on probation.
//!
//! [`crate::job::decide`] decides about one job; this module decides about nodes that all jobs share. A [`Fleet`] is what an
//! operator remembers of them. An adapter passes in watch events, applies what is decided and runs the trials.
//!
//! ```text
//! nodes, pods ──▶ Fleet::queue ──▶ place: seats, evictions, reasons
//!                      └ nodes ──▶ decide: the next trial ──▶ conclude: marks, taints, refusals
//! ```
//!
//! Invariants: one trial at a time. Only a trial of the operator itself changes a node. Nodes on probation and nodes whose taint is
//! being written are never more than [`Cap`] allows together. A node leaves probation only by passing a trial. Neither purpose of a
//! trial can starve the other. A [`Fleet`] holds nothing that must survive a restart: what nodes and pods carry is enough.

mod conclusion;
mod leader;
#[cfg(test)]
mod tests;
mod trials;
mod wait_queue;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;

use self::conclusion::conclude;
pub use self::{
    conclusion::{Change, Conclusion, NodeOutcome},
    leader::{LeaderEnd, next_leader},
    wait_queue::{GangPod, GangRevision, Holding, QueueChanges, WaitQueue, waits_for_seats},
};
use crate::{
    gang::Node,
    probe::{Blamed, Cap, Found, Suspects},
};

/// A taint that this operator wrote is seen on its node within this time.
const SEEN_WITHIN: Duration = Duration::from_mins(1);

/// What an administrator set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many nodes may be on probation.
    pub cap: Cap,
    /// How long a node that failed stays on probation before its next trial.
    pub probation_lasts: Duration,
}

/// What an operator remembers of nodes that all jobs share.
///
/// Placement and trials are decided apart: placement when a watch event may let a gang start, a trial when the one before it has
/// ended. Both look at the same nodes.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Which gangs wait for nodes and which hold them, and the cluster as it is seen.
    pub queue: WaitQueue,
    trials: State,
}

impl Fleet {
    /// Records that a job of `namespace` blames `node`, beside which the nodes `fit` passed. With a cap of 0 a trial would change
    /// nothing, so none is queued.
    pub fn blame(
        &mut self,
        settings: &Settings,
        node: &str,
        namespace: &str,
        fit: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<Blamed> {
        self.trials.blame(settings, node, namespace, fit, now)
    }

    /// Decides which trial is run next; it runs until [`Self::conclude`].
    pub fn decide(&mut self, now: Timestamp) -> Decision {
        let decision = decide(&self.observed(), &self.trials, now);
        self.trials.clone_from(&decision.state);
        decision
    }

    /// Decides what the result of the trial that runs changes. Without such a trial, nothing changes: the decisions of this operator
    /// were forgotten meanwhile.
    pub fn conclude(
        &mut self,
        settings: &Settings,
        found: Option<&Found>,
        now: Timestamp,
    ) -> Conclusion {
        let conclusion = conclude(&self.observed(), &self.trials, settings, found, now);
        self.trials.clone_from(&conclusion.state);
        conclusion
    }

    /// The trial that runs.
    pub fn running(&self) -> Option<&Trial> {
        self.trials.running.as_ref()
    }

    /// Forgets that a taint is being written: the API server refused it.
    pub fn taint_failed(&mut self, node: &str) {
        self.trials.tainting.remove(node);
    }

    /// Forgets seats, evictions and trials, and keeps nodes and pods. An operator that does not lead any more does so: another one
    /// decides meanwhile, and what nodes and pods carry is newer.
    pub fn forget_decisions(&mut self) {
        self.queue.forget_gangs();
        self.trials = State::default();
    }

    fn observed(&self) -> Observed<'_> {
        Observed {
            nodes: &self.queue.snapshot().nodes,
        }
    }
}

/// The cluster as the operator sees it.
#[derive(Clone, Debug)]
struct Observed<'a> {
    /// Every node.
    nodes: &'a BTreeMap<String, Node>,
}

impl Observed<'_> {
    fn is_on_probation(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(Node::is_on_probation)
    }
}

/// Why a trial is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A preflight of a job blamed the node.
    Blamed,
    /// The node is on probation and its time is over.
    Probation,
}

impl Purpose {
    /// The value of the metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Blamed => "blamed",
            Self::Probation => "probation",
        }
    }
}

/// A measurement that the operator runs in its own image and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Why.
    pub purpose: Purpose,
    /// The nodes that are judged.
    pub nodes: BTreeSet<String>,
    /// Nodes that paths are measured with; nothing is concluded about them.
    pub beside: BTreeSet<String>,
}

/// What is remembered of trials.
#[derive(Clone, Debug, Default)]
struct State {
    suspects: Suspects,
    /// The nodes whose taint was written and not seen yet, and since when.
    tainting: BTreeMap<String, Timestamp>,
    /// The trial that runs.
    running: Option<Trial>,
    /// The purpose of the last trial, so that the other one is next.
    last: Option<Purpose>,
}

impl State {
    fn blame(
        &mut self,
        settings: &Settings,
        node: &str,
        namespace: &str,
        fit: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<Blamed> {
        let is_off = settings.cap.of(100) == 0;
        (!is_off).then(|| self.suspects.blame(node, namespace, fit, now))
    }

    /// Drops the taints that are seen on their nodes by now, or never came.
    fn settle(&mut self, observed: &Observed<'_>, now: Timestamp) {
        let is_recent = |since: &Timestamp| {
            let end = since.checked_add(SEEN_WITHIN);
            end.is_ok_and(|end| now < end)
        };
        self.tainting
            .retain(|node, since| is_recent(since) && !observed.is_on_probation(node));
    }
}

/// What happens next.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What is remembered from now on.
    state: State,
    /// The trial to run now.
    pub trial: Option<Trial>,
    /// When to decide again, if nothing else happens before; none while a trial runs or nothing is due.
    pub wake_at: Option<Timestamp>,
}

fn decide(observed: &Observed<'_>, state: &State, now: Timestamp) -> Decision {
    let mut state = state.clone();
    state.settle(observed, now);
    let trial = match &state.running {
        Some(_) => None,
        None => trials::next(observed, &mut state, now),
    };
    if let Some(trial) = &trial {
        state.last = Some(trial.purpose);
        state.running = Some(trial.clone());
    }
    let wake_at = match &state.running {
        Some(_) => None,
        None => trials::next_due(observed),
    };
    Decision {
        state,
        trial,
        wake_at,
    }
}
