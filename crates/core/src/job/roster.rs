//! The pods of a job, sorted once; later code only talks about what they are.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{NodeHealth, Observed, ObservedPod, PodPhase, RoleStatus, Yard, mutant};
use crate::spec::{Job, Kind, Role, Slot};

/// Pods by what they are to the current attempt.
#[derive(Debug)]
pub(super) struct Roster<'a> {
    /// The pod in each wanted slot, of the current attempt.
    pub(super) slots: BTreeMap<Role, Vec<Option<&'a ObservedPod>>>,
    /// Pods of earlier attempts.
    pub(super) stale: Vec<&'a ObservedPod>,
    /// Pods of the current attempt that have no slot.
    pub(super) excess: Vec<&'a ObservedPod>,
    /// The attempt of a pod that is ahead of the status, which is then an old one.
    pub(super) ahead: Option<u32>,
}

impl<'a> Roster<'a> {
    pub(super) fn new(job: &Job, observed: &'a Observed, attempt: u32) -> Self {
        let mut roster = Self {
            slots: job
                .roles
                .iter()
                .map(|(role, spec)| (*role, vec![None; spec.replicas as usize]))
                .collect(),
            stale: Vec::new(),
            excess: Vec::new(),
            ahead: None,
        };
        for pod in &observed.pods {
            let counts_old = mutant::is(mutant::Mutant::CountsOldAttempts);
            if pod.attempt > attempt {
                roster.ahead = roster.ahead.max(Some(pod.attempt));
            } else if pod.attempt < attempt && !counts_old {
                roster.stale.push(pod);
            } else {
                let place = roster
                    .slots
                    .get_mut(&pod.slot.role)
                    .and_then(|places| places.get_mut(pod.slot.index as usize));
                match place {
                    Some(place @ None) => *place = Some(pod),
                    Some(Some(_)) | None => roster.excess.push(pod),
                }
            }
        }
        roster
    }

    /// Every wanted slot with its pod.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, Option<&'a ObservedPod>)> + '_ {
        self.slots.iter().flat_map(|(role, places)| {
            (0u32..)
                .zip(places)
                .map(|(index, pod)| (Slot::new(*role, index), *pod))
        })
    }

    /// The counts of `replicaStatuses`: pods that run, ended well (whether or not they still
    /// exist) and ended badly, of the current attempt alone.
    pub(super) fn counts(&self, job: &Job, yard: &Yard) -> BTreeMap<Role, RoleStatus> {
        let mut counts: BTreeMap<Role, RoleStatus> = BTreeMap::new();
        for (role, places) in &self.slots {
            let mut status = RoleStatus {
                succeeded: yard.succeeded.get(role).map_or(0, super::IndexSet::len),
                selector: selector(job, *role),
                ..RoleStatus::default()
            };
            for pod in places.iter().flatten() {
                match pod.phase {
                    PodPhase::Running if is_active(pod, yard) => status.active += 1,
                    PodPhase::Failed if !yard.dismissed.contains(&pod.uid) => status.failed += 1,
                    _ => {}
                }
            }
            counts.insert(*role, status);
        }
        counts
    }
}

/// Whether a pod runs and is meant to.
pub(super) fn is_active(pod: &ObservedPod, yard: &Yard) -> bool {
    pod.phase == PodPhase::Running && pod.deleted_at.is_none() && !yard.dismissed.contains(&pod.uid)
}

/// What a pod's node says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contact {
    /// The node answers, or the pod needs none any more.
    Fine,
    /// The node is silent; the pod is lost at that time.
    LostAt(Timestamp),
    /// The pod is lost.
    Lost,
}

/// Whether the node of `pod` can still be asked about it.
pub(super) fn contact(
    job: &Job,
    observed: &Observed,
    pod: &ObservedPod,
    now: Timestamp,
) -> Contact {
    let health = pod.node.as_ref().and_then(|node| observed.nodes.get(node));
    match health {
        None | Some(NodeHealth::Ready) => Contact::Fine,
        Some(_) if mutant::is(mutant::Mutant::WaitsForDeadNodes) => Contact::Fine,
        Some(NodeHealth::Deleted) => Contact::Lost,
        Some(NodeHealth::SilentSince(_)) if mutant::is(mutant::Mutant::GivesUpNodesAtOnce) => {
            Contact::Lost
        }
        Some(NodeHealth::SilentSince(since)) => {
            let lost_at = since
                .checked_add(job.knobs.lost_after)
                .unwrap_or(Timestamp::MAX);
            if now >= lost_at {
                Contact::Lost
            } else {
                Contact::LostAt(lost_at)
            }
        }
    }
}

/// The label selector of a role, for the kinds that can be scaled by others.
fn selector(job: &Job, role: Role) -> Option<String> {
    matches!(job.kind, Kind::PyTorch | Kind::Paddle | Kind::Jax).then(|| {
        format!(
            "training.kubeflow.org/job-name={},training.kubeflow.org/operator-name={},training.kubeflow.org/replica-type={}",
            job.name,
            job.kind.controller(),
            role.lower()
        )
    })
}
