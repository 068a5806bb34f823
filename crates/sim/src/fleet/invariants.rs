//! What must hold in a fleet, whatever goes wrong.
//!
//! Each invariant is a function of its own. They look at the truth of the cluster, and at what an operator knew when it
//! decided; never at what a decider says about itself alone.

mod gangs;
mod nodes;
mod queue;
mod settled;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use trainyard_core::{
    fleet::{Change, Purpose, Trial},
    gang::GangKey,
    job::{ConditionStatus, ConditionType, Decision, JobStatus, Observed},
};

use super::{World, jobs::StoredJob, operator::Operator};
use crate::violation::{Verdict, ensure};

const LIVELOCK: &str = "events come to an end";

/// What has to be remembered of a run.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The version up to which the truth was checked.
    checked: u64,
    /// The names of all jobs that there were.
    pub(super) names: BTreeSet<GangKey>,
    /// Gangs that were evicted and have no nodes since.
    pub(super) evicted: BTreeSet<GangKey>,
    /// Since when only a part of a gang runs, by incarnation of the job and attempt.
    pub(super) partial: BTreeMap<(String, u32), i64>,
}

/// What has to be remembered of one life of an operator.
#[derive(Debug, Default)]
pub(super) struct OperatorFacts {
    /// The nodes that did not serve a gang, and since when.
    pub(super) avoided: BTreeMap<GangKey, BTreeMap<String, Timestamp>>,
    /// Nodes that jobs blamed and that were not tried yet.
    pub(super) blamed: BTreeSet<String>,
    /// The purpose of the last trial.
    pub(super) last: Option<Purpose>,
    /// The nodes that the last trial judged, and which of them passed.
    pub(super) judged: BTreeSet<String>,
    pub(super) passed: BTreeSet<String>,
}

impl OperatorFacts {
    pub(super) fn forget(&mut self, key: &GangKey) {
        self.avoided.remove(key);
    }

    pub(super) fn avoid(&mut self, key: &GangKey, nodes: &[String], now: Timestamp) {
        let avoided = self.avoided.entry(key.clone()).or_default();
        avoided.extend(nodes.iter().map(|node| (node.clone(), now)));
    }

    /// A trial has ended, and these nodes passed.
    pub(super) fn tried(&mut self, trial: &Trial, passed: &BTreeSet<String>) {
        self.judged.clone_from(&trial.nodes);
        self.passed.clone_from(passed);
    }
}

/// One pass of an operator over a job.
pub(super) struct Pass<'a> {
    pub(super) key: &'a GangKey,
    pub(super) view: &'a StoredJob,
    pub(super) observed: &'a Observed,
    pub(super) decision: &'a Decision,
    pub(super) now: Timestamp,
}

/// Everything that must hold of a decision about a job.
pub(super) fn check_pass(pass: &Pass<'_>, operator: &mut Operator) -> Verdict {
    waits::have_a_reason(pass)?;
    gangs::start_whole(pass)?;
    gangs::go_to_open_nodes(pass, operator)?;
    gangs::avoid_nodes_that_did_not_serve(pass, operator)
}

/// Everything that must hold of a wait queue once its gangs are placed.
pub(super) fn check_queue(world: &mut World, number: usize) -> Verdict {
    queue::no_gpu_is_assigned_twice(world, number)?;
    queue::nobody_holds_a_part_for_long(world, number)?;
    queue::evictions_have_a_beneficiary(world, number)?;
    queue::jobs_that_are_gone_hold_nothing(world, number)?;
    queue::note_evictions(world, number);
    Ok(())
}

/// Everything that must hold of what is decided about trials while none runs.
pub(super) fn check_trial(world: &mut World, number: usize, trial: Option<&Trial>) -> Verdict {
    if let Some(trial) = trial {
        nodes::are_tried_in_time(world, number, trial)?;
        nodes::partners_are_fit(world, number, trial)?;
    }
    nodes::blamed_nodes_take_turns(world, number, trial)
}

/// Everything that must hold of a change of a node.
pub(super) fn check_change(world: &World, number: usize, node: &str, change: &Change) -> Verdict {
    nodes::only_trials_change_nodes(world, number, node, change)?;
    nodes::only_a_passed_trial_ends_probation(world, number, node, change)
}

/// At most as many nodes are on probation as the cap allows.
pub(super) fn check_cap(world: &World) -> Verdict {
    nodes::stay_within_the_cap(world)
}

/// Everything that must hold of the cluster after every event that changed something.
pub(super) fn check_truth(world: &mut World) -> Verdict {
    if world.facts.checked == world.version {
        return Ok(());
    }
    world.facts.checked = world.version;
    gangs::no_gpu_is_used_twice(world)?;
    gangs::no_gpu_is_promised_twice(world)?;
    gangs::partial_gangs_are_given_up(world)
}

/// Everything that must hold once the chaos is over for long enough.
pub(super) fn check_settled(world: &World) -> Verdict {
    settled::no_node_is_on_probation(world)?;
    settled::blamed_nodes_were_tried(world)?;
    settled::evicted_gangs_returned(world)?;
    settled::jobs_that_fit_have_ended(world)?;
    settled::others_wait_for_a_reason(world)
}

/// No livelock: the number of events is bounded.
pub(super) fn check_bound(world: &World, events: u64, most: u64) -> Verdict {
    ensure!(
        LIVELOCK,
        events < most,
        "{events} events by {} ms, and no end",
        world.now
    );
    Ok(())
}

/// Whether a job of this status has succeeded.
pub(super) fn has_succeeded(status: &JobStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| {
        condition.kind == ConditionType::Succeeded && condition.status == ConditionStatus::True
    })
}
