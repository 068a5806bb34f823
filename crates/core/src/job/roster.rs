//! The pods of a job, sorted once; later code only talks about what they are.
//!
//! Invariant: what it holds depends on the pods, not on the order in which they were listed.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{JobRecord, NodeHealth, Observed, ObservedPod, PodPhase, RoleStatus, mutant};
use crate::spec::{Job, Kind, Role, Slot};

/// Pods by what they are to the current attempt.
///
/// In a large gang nearly every pod just runs. Those are only counted, and the policies look at
/// the rest, so that a pass over a healthy gang reads each pod once.
#[derive(Debug, Default)]
pub(super) struct Roster<'a> {
    /// How many pods of each role run, are ready, and need no attention.
    healthy: BTreeMap<Role, u32>,
    /// All other pods in a wanted slot, by slot.
    pub(super) notable: Vec<&'a ObservedPod>,
    /// Wanted slots without a pod of the current attempt, by slot.
    pub(super) missing: Vec<Slot>,
    /// Pods of earlier attempts.
    pub(super) stale: Vec<&'a ObservedPod>,
    /// Pods of the attempt before in which this one is prepared: they are neither stale nor counted.
    pub(super) kept: Vec<&'a ObservedPod>,
    /// Pods of the current attempt that have no slot.
    pub(super) excess: Vec<&'a ObservedPod>,
}

impl<'a> Roster<'a> {
    /// Sorts the pods for the attempt that `record` is in.
    pub(super) fn new(job: &Job, observed: &'a Observed, record: &JobRecord) -> Self {
        let mut roster = Self::default();
        let mut taken: BTreeMap<Role, Vec<bool>> = job
            .roles
            .iter()
            .map(|(role, spec)| (*role, vec![false; spec.replicas as usize]))
            .collect();
        for pod in &observed.pods {
            let counts_old = mutant::is(mutant::Mutant::CountsOldAttempts);
            // An initializer is no part of a gang, so it outlives one.
            let old =
                pod.attempt < record.attempt && !counts_old && !pod.slot.role.is_initializer();
            let kept = record.keeps_pods_of() == Some(pod.attempt);
            if old && !kept {
                roster.stale.push(pod);
                continue;
            }
            let place = taken
                .get_mut(&pod.slot.role)
                .and_then(|places| places.get_mut(pod.slot.index as usize));
            let Some(place @ false) = place else {
                roster.excess.push(pod);
                continue;
            };
            *place = true;
            if old {
                roster.kept.push(pod);
                continue;
            }
            let node_in_question = !observed.nodes.is_empty()
                && pod
                    .node
                    .as_ref()
                    .is_some_and(|node| observed.nodes.contains_key(node));
            if pod.ready && pod.restarts == 0 && !node_in_question && is_active(pod, record) {
                *roster.healthy.entry(pod.slot.role).or_default() += 1;
            } else {
                roster.notable.push(pod);
            }
        }
        for pods in [&mut roster.notable, &mut roster.stale, &mut roster.excess] {
            pods.sort_by_key(|pod| pod.slot);
        }
        for (role, places) in &taken {
            let free = (0u32..).zip(places).filter(|(_, taken)| !**taken);
            roster
                .missing
                .extend(free.map(|(index, _)| Slot::new(*role, index)));
        }
        roster
    }

    /// How many pods of `role` run and are ready without anything to be said about them.
    pub(super) fn healthy(&self, role: Role) -> u32 {
        self.healthy.get(&role).copied().unwrap_or(0)
    }

    /// How many pods of `role` run and are meant to.
    pub(super) fn active(&self, role: Role, record: &JobRecord) -> u32 {
        let others = self.notable.iter().filter(|pod| pod.slot.role == role);
        others.fold(self.healthy(role), |sum, pod| {
            sum + u32::from(is_active(pod, record))
        })
    }

    /// The counts of `replicaStatuses`: pods that run, ended well (whether or not they still
    /// exist) and ended badly, of the current attempt alone.
    pub(super) fn counts(&self, job: &Job, record: &JobRecord) -> BTreeMap<Role, RoleStatus> {
        let failed = |role| {
            let failed = self.notable.iter().filter(|pod| {
                pod.slot.role == role
                    && pod.phase == PodPhase::Failed
                    && !record.dismissed.contains(&pod.uid)
            });
            failed.fold(0, |sum, _| sum + 1)
        };
        job.roles
            .keys()
            .map(|role| {
                let status = RoleStatus {
                    active: self.active(*role, record),
                    succeeded: record.succeeded_in(job, *role),
                    failed: failed(*role),
                    selector: selector(job, *role),
                };
                (*role, status)
            })
            .collect()
    }
}

/// Whether a pod runs and is meant to.
pub(super) fn is_active(pod: &ObservedPod, record: &JobRecord) -> bool {
    pod.phase == PodPhase::Running
        && pod.deleted_at.is_none()
        && !record.dismissed.contains(&pod.uid)
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
                .checked_add(job.settings.lost_after)
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
