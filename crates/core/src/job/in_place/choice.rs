//! Whether a failed gang restarts in its pods: the facts for [`choose`].

use crate::{
    barrier::{
        EXIT_CANNOT_STOP, EndedMember, FailureFacts, FailureKind, FailurePlace, NewPodsReason,
        PodHealth, RestartWay, SlotSet, Step, choose,
    },
    job::{
        Cause, EventKind, EventReason, NodeHealth, Observed, ObservedPod, PodPhase, SeenGang,
        cause::Failure, pass::Pass, recover, verdict,
    },
    spec::{Job, RestartIn, RestartScope, Slot, Supervise, leading_slot},
};

/// The slots of this attempt whose pods cannot be kept: gone, ended or about to, or on a node that does not respond.
pub(in crate::job) fn lost_slots(pass: &Pass<'_>) -> SlotSet {
    let attempt = pass.status.trainyard.attempt;
    let pods = pass.observed.pods.iter();
    let kept: SlotSet = pods
        .filter(|pod| pod.attempt == attempt && is_kept(pass, pod))
        .map(|pod| pod.slot)
        .collect();
    let slots = pass.job.slots();
    slots.filter(|slot| !kept.contains(*slot)).collect()
}

fn is_kept(pass: &Pass<'_>, pod: &ObservedPod) -> bool {
    let node = pod.node.as_ref();
    let health = node.and_then(|node| pass.observed.nodes.get(node));
    // A node that is silent may be lost: the others do not wait until that is certain.
    let responds = health.is_none_or(|health| *health == NodeHealth::Ready);
    let health = super::health(pass, pod);
    responds && matches!(health, PodHealth::Well | PodHealth::Starting)
}

/// Programs that ended by themselves and hangs, as failures of their pods, which still run.
pub(in crate::job) fn programs(pass: &Pass<'_>, step: &Step) -> Vec<Failure> {
    let failed = |ended: &&EndedMember| ended.exit.container_code() != 0;
    let ended = step.ended.iter().filter(failed).map(|ended| Failure {
        slot: ended.slot,
        cause: Cause::Exited {
            code: ended.exit.container_code(),
            out_of_memory: false,
        },
        at: None,
    });
    let silent = super::hang::silent_log(pass.job, pass.observed);
    let hang = step.hang.as_ref();
    let hang = hang.filter(|hang| super::hang::acts_on(pass.job, hang));
    let hang = hang.or(silent.as_ref());
    let hang = hang.map(|hang| Failure {
        slot: hang.slot,
        cause: Cause::NotTraining,
        at: None,
    });
    ended.chain(hang).collect()
}

/// Whether the program of a pod that still runs has ended by itself: its supervisor ends the container a little later.
pub(in crate::job) fn program_ended(pass: &Pass<'_>, pod: &ObservedPod) -> bool {
    let SeenGang::Here(gang) = &pass.observed.gang else {
        return false;
    };
    let attempt = pass.observed.status.trainyard.attempt;
    let mut ended = gang.coordinator.ended().iter();
    ended.any(|ended| ended.uid == pod.uid && ended.attempt == attempt)
}

/// Why pods have no supervisor.
pub(super) fn unsupervised(observed: &Observed) -> &str {
    match &observed.gang {
        SeenGang::Unused => "this operator runs none",
        SeenGang::Unable(why) => why,
        SeenGang::Here(_) => "the job has no pods",
    }
}

/// Says when a job begins why its pods have no supervisor, unless its kind or its settings say so already.
pub(in crate::job) fn note_unsupervised(pass: &mut Pass<'_>) {
    let SeenGang::Unable(why) = &pass.observed.gang else {
        return;
    };
    let (job, settings) = (pass.job, &pass.job.settings);
    let by_kind = job.kind.is_mpi() || job.elastic().is_some();
    let by_settings = settings.supervise == Supervise::Off
        || settings.restart_in == RestartIn::Pods
        || !settings.compat.is_empty()
        || job.restart_scope() != RestartScope::Gang;
    if by_kind || by_settings {
        return;
    }
    let message =
        format!("Pods get no supervisor: {why}. If the gang fails, it restarts with new pods.");
    pass.emit(EventKind::Normal, EventReason::Unsupervised, message);
}

/// How the gang restarts after `failure`; nothing where pods are not supervised here.
pub(in crate::job) fn way(pass: &Pass<'_>, failure: &Failure) -> Option<RestartWay> {
    let gang = match &pass.observed.gang {
        SeenGang::Unused => return None,
        SeenGang::Unable(why) => {
            let why = why.clone();
            return Some(RestartWay::NewPods(NewPodsReason::Unsupervised { why }));
        }
        SeenGang::Here(gang) => gang,
    };
    let record = &pass.status.trainyard;
    let attempt = record.attempt;
    let last = record.last_failure.as_ref();
    let before = last.and_then(|last| {
        let slot = slot_named(pass.job, &last.pod)?;
        let attempt = last.attempt;
        Some(FailurePlace { attempt, slot })
    });
    let gone = lost_slots(pass);
    let facts = FailureFacts {
        restart_in: pass.job.settings.restart_in,
        leader_connected: gang.leader_connected,
        kind: kind(pass.observed, failure),
        place: FailurePlace {
            attempt,
            slot: failure.slot,
        },
        before,
        kept: pass.job.total_replicas().saturating_sub(gone.len()),
        leader_lost: leading_slot(pass.job).is_none_or(|leader| gone.contains(leader)),
        template_changed: template_changed(pass),
    };
    Some(match choose(&facts) {
        RestartWay::InPlace => {
            let obstacle = obstacle(pass, failure, &gone);
            obstacle.map_or(RestartWay::InPlace, RestartWay::NewPods)
        }
        pods @ RestartWay::NewPods(_) => pods,
    })
}

/// What only `decide` knows against a restart in place.
fn obstacle(pass: &Pass<'_>, failure: &Failure, lost: &SlotSet) -> Option<NewPodsReason> {
    let record = &pass.status.trainyard;
    let mut pods = pass.observed.pods.iter();
    let starts = |pod: &ObservedPod| pod.phase == PodPhase::Pending && !lost.contains(pod.slot);
    if !record.formed || pods.any(starts) {
        return Some(NewPodsReason::PodsStarting);
    }
    if is_asked(pass) {
        return Some(NewPodsReason::Asked);
    }
    if let Some(node) = verdict::blamed_node(pass, failure) {
        return Some(NewPodsReason::NodeBlamed { node });
    }
    // Programs that are stopped hold their GPUs; a job that backs off releases them.
    let failures = recover::quick_failures(pass, failure);
    recover::pause_after(failure, failures)
        .is_some()
        .then_some(NewPodsReason::QuickFailures { failures })
}

fn kind(observed: &Observed, failure: &Failure) -> FailureKind {
    let mut pods = observed.pods.iter();
    let runs = pods.any(|pod| pod.slot == failure.slot && pod.phase == PodPhase::Running);
    match failure.cause {
        Cause::NotTraining => FailureKind::Program,
        Cause::Exited { .. } if runs => FailureKind::Program,
        Cause::Exited {
            code: EXIT_CANNOT_STOP,
            ..
        } => FailureKind::CannotStop,
        _ => FailureKind::Pod,
    }
}

/// Whether the pods are not those of the templates as they are now. Where no digest is stored, nothing shows that they are.
fn template_changed(pass: &Pass<'_>) -> bool {
    let stored = pass.status.trainyard.pod_template.as_deref();
    stored != Some(&template_digest(pass.job))
}

/// What the user has changed since the barrier began, where that needs new pods.
pub(super) fn overtaken(pass: &Pass<'_>) -> Option<NewPodsReason> {
    if is_asked(pass) {
        return Some(NewPodsReason::Asked);
    }
    template_changed(pass).then_some(NewPodsReason::TemplateChanged)
}

/// Whether the user asks for a restart that has not begun.
pub(super) fn is_asked(pass: &Pass<'_>) -> bool {
    let asked = &pass.job.settings.restart;
    asked.is_some() && *asked != pass.status.trainyard.restart
}

/// A short hash of the pod templates (FNV-1a), by which a change of them is noticed. Users change only their own jobs, so nobody gains by a
/// collision.
pub(in crate::job) fn template_digest(job: &Job) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut digest = OFFSET;
    for (role, spec) in &job.roles {
        // Templates are made of text, numbers, lists and maps.
        let template = serde_json::to_vec(&spec.template).unwrap_or_default();
        let bytes = role.name().bytes().chain([0]).chain(template).chain([0]);
        for byte in bytes {
            digest = (digest ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
    format!("{digest:016x}")
}

fn slot_named(job: &Job, pod: &str) -> Option<Slot> {
    let mut slots = job.slots();
    slots.find(|slot| job.pod_name(*slot) == pod)
}
