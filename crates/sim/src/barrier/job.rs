//! The job as users wrote it, what an operator observes of it, and what a write of its status means.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use trainyard_core::{
    barrier::{NewPodsReason, Outcome, Phase},
    job::{
        self, Decision, Exit, IndexSet, NodeHealth, Observed, ObservedPod, PodPhase, SeenGang,
        Supervised,
    },
    spec::{
        Framework, Job, JobName, JobSettings, Kind, Namespace, RestartPolicy, Role, RoleSpec,
        RunPolicy, Slot,
    },
};

use super::{
    coverage::Mark,
    operator::Operator,
    world::{Api, JOB, Pod, World, is_held, is_suspended, leader_slot, limits, worker},
};

/// The moment at which a world begins, in seconds.
const BEGINNING: i64 = 1_800_000_000;

/// A write of the status, with all that follows once it is stored.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) decision: Decision,
    /// What it is written on top of.
    pub(super) version: u64,
    /// Another operator began the barrier.
    pub(super) found: bool,
}

/// The wall clock at `now`.
pub(super) fn instant(now: i64) -> Timestamp {
    Timestamp::from_millisecond(BEGINNING * 1_000 + now).unwrap_or(Timestamp::MAX)
}

/// From `now` until `at`.
pub(super) fn milliseconds_until(at: Timestamp, now: i64) -> i64 {
    at.as_millisecond() - BEGINNING * 1_000 - now
}

impl Operator {
    /// The job as this operator has seen it.
    pub(super) fn job(&self) -> Job {
        let spec = RoleSpec {
            replicas: self.size,
            restart_policy: RestartPolicy::OnFailure,
            ..RoleSpec::default()
        };
        let parse = "the name is valid";
        Job {
            kind: Kind::Jax,
            name: JobName::parse("j").expect(parse),
            namespace: Namespace::parse("n").expect(parse),
            uid: Some(JOB.to_owned()),
            annotations: BTreeMap::new(),
            roles: [(Role::Worker, spec)].into(),
            run_policy: RunPolicy {
                suspend: self.suspend,
                ..RunPolicy::default()
            },
            framework: Framework::Jax,
            settings: JobSettings {
                start_within: limits().start_within,
                hold_on_failure: self.hold,
                ..JobSettings::default()
            },
        }
    }

    /// What it observes, with a monotonic clock at `now`. Services and shared objects are seen at once: nothing depends on them here.
    pub(super) fn observe(&self, api: &Api, now: Duration) -> Observed {
        let lost = self.pods.values().filter(|pod| pod.node_lost);
        let nodes = lost.map(|pod| (node_of(pod), NodeHealth::Deleted));
        let indices: IndexSet = api.services.iter().map(|slot| slot.index).collect();
        Observed {
            version: self.pods_version,
            status: self.status.clone(),
            being_deleted: self.being_deleted,
            pods: self
                .pods
                .iter()
                .map(|(slot, pod)| observed(*slot, pod))
                .collect(),
            services: [(Role::Worker, indices)].into(),
            nodes: nodes.collect(),
            shared: self.shared.clone(),
            gang: SeenGang::Here(Box::new(Supervised {
                coordinator: self.coordinator.clone(),
                leader_connected: self.leader.is_some(),
                now,
            })),
            ..Observed::default()
        }
    }
}

fn node_of(pod: &Pod) -> String {
    format!("n{}", pod.birth)
}

fn observed(slot: Slot, pod: &Pod) -> ObservedPod {
    let phase = match () {
        () if pod.failed.is_some() => PodPhase::Failed,
        () if pod.booted => PodPhase::Running,
        () => PodPhase::Pending,
    };
    ObservedPod {
        uid: format!("p{}", pod.birth),
        slot,
        attempt: pod.attempt,
        phase,
        ready: phase == PodPhase::Running,
        deleted_at: pod.terminating.map(instant),
        grace_seconds: 3,
        node: Some(node_of(pod)),
        restarts: 0,
        ends: 0,
        exit: pod.failed.map(|code| Exit {
            code,
            out_of_memory: false,
            at: None,
        }),
        start_error: None,
        wait: None,
        disruption: None,
        gated: false,
    }
}

impl World {
    /// Counts what a write means for what a run has met.
    pub(super) fn mark_write(&mut self, write: &Write) {
        let before = self.api.stored();
        let after = &write.decision.status;
        let record = &after.trainyard;
        let lost = |slot: Slot| {
            let barrier = record.barrier.as_ref();
            let known = before.barrier.as_ref();
            barrier.is_some_and(|barrier| barrier.lost.contains(slot))
                && known.is_none_or(|known| !known.lost.contains(slot))
        };
        let well = |slot: &Slot| {
            let pod = self.api.pods.get(slot);
            pod.is_some_and(|pod| {
                pod.failed.is_none() && !pod.node_lost && pod.terminating.is_none()
            })
        };
        let held_before = is_held(&self.api.status);
        if !held_before && is_held(after) {
            self.coverage.mark(Mark::Held);
        }
        if held_before && before.barrier.is_none() && record.barrier.is_some() {
            self.coverage.mark(Mark::RestartedAfterHold);
        }
        let mut slots = (0..self.api.size).map(worker);
        let newly = slots.any(|slot| lost(slot) && well(&slot));
        let marks = match (&before.barrier, &record.barrier) {
            (None, Some(barrier)) if !barrier.lost.is_empty() => {
                vec![Mark::Began, Mark::BeganWithLost]
            }
            (None, Some(_)) => vec![Mark::Began],
            (Some(was), Some(is)) if newly => match (was.phase, is.phase) {
                (Phase::Preparing, _) => vec![Mark::LostPreparing],
                (Phase::Stopping, _) => vec![Mark::LostStopping],
            },
            (Some(was), None) if record.attempt == before.attempt => {
                let mut marks = vec![Mark::WentInPlace];
                if job::has_ended(after) || is_suspended(after) {
                    marks = vec![Mark::EndedWithoutPods];
                } else {
                    marks.extend((!was.lost.is_empty()).then_some(Mark::WentWithNewMember));
                    let replaced = was.lost.contains(leader_slot());
                    marks.extend(replaced.then_some(Mark::LeaderReplaced));
                    marks.extend(write.found.then_some(Mark::WentAfterCrash));
                }
                marks
            }
            (Some(_), None) => new_pods_for(&write.decision).into_iter().collect(),
            (None, None) if record.attempt > before.attempt && charges(self, write) > 0 => {
                vec![Mark::NewPodsChosen]
            }
            _ => Vec::new(),
        };
        for mark in marks {
            self.coverage.mark(mark);
        }
    }
}

/// Why a barrier ended in new pods.
fn new_pods_for(decision: &Decision) -> Option<Mark> {
    let outcome = decision.gang.as_ref()?.outcome.as_ref()?;
    let Outcome::NewPods { reason, .. } = outcome else {
        return None;
    };
    match reason {
        NewPodsReason::LeaderLost => Some(Mark::LeaderLost),
        NewPodsReason::LeaderSilent => Some(Mark::LeaderSilent),
        NewPodsReason::NobodyKept => Some(Mark::NobodyKept),
        NewPodsReason::TooLong { .. } => Some(Mark::TooLong),
        NewPodsReason::Resized => Some(Mark::ResizedInside),
        _ => None,
    }
}

/// How much a write charges to the failure budgets.
pub(super) fn charges(world: &World, write: &Write) -> u32 {
    let sum =
        |spent: job::Spent| spent.user + spent.platform + spent.infrastructure + spent.preemption;
    let after = sum(write.decision.status.trainyard.spent);
    after - sum(world.api.status.trainyard.spent)
}
