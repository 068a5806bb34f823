//! `trainyard.dev/hold-on-failure`: a broken gang is kept for inspection before its failure is handled.
//!
//! A hold only delays: while it lasts the failure is charged to nobody, no pod is created or deleted, and no program is stopped. When it is
//! over, the failure is handled in the same pass as if it had just been seen.
//!
//! Invariants:
//! - An attempt is held once: what is stored of a hold stays until the attempt ends.
//! - Nothing is held longer than the setting says. An eviction, a restart that is asked for and another number of pods end a hold; so do
//!   suspension, deletion, success and the deadline of the job.
//! - Only a failure of a program is held. It is stored, and it is the one that is handled when the hold is over: a pod that is deleted and a
//!   node that is lost meanwhile neither end the hold nor hide what the attempt failed for. Their pods are replaced with the restart.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    barrier::RestartWay,
    job::{
        Cause, EventKind, EventReason, HeldFailure, Hold, Seating, SeenGang,
        cause::Failure,
        pass::Pass,
        restart::{self, Response},
        status::time_words,
    },
    mutant::{self, Mutant},
    reason::Reason,
    resources::{Resources, is_accelerator},
    spec::Job,
};

/// Characters of the reason that are kept, at most.
const MAX_WHY: usize = 256;
/// Devices that are whole GPUs.
const GPUS: [&str; 2] = ["amd.com/gpu", "nvidia.com/gpu"];

/// What a hold leaves to be decided about the gang.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::job) enum Held {
    /// Nothing: the gang is held now.
    Now,
    /// The failure is to be handled, where there is one.
    Not(Option<Failure>),
}

/// Whether the gang is held now, and which failure is to be handled otherwise. `seen` is the one that explains what is seen.
pub(in crate::job) fn hold(pass: &mut Pass<'_>, seen: Option<&Failure>) -> Held {
    let attempt = pass.status.trainyard.attempt;
    pass.status
        .trainyard
        .hold
        .take_if(|hold| hold.attempt != attempt);
    let Some(hold) = pass.status.trainyard.hold.clone() else {
        return match seen {
            Some(failure) if begin(pass, failure) => Held::Now,
            seen => Held::Not(seen.cloned()),
        };
    };
    if !hold.ended
        && let Some(until) = lasts_until(pass, &hold)
    {
        report(pass, &hold, until);
        return Held::Now;
    }
    // An earlier version stored no failure: then it is handled once it is seen again.
    let failure = held_failure(pass, &hold).or_else(|| seen.cloned());
    if !hold.ended {
        end(pass, hold, failure.is_some());
    } else if failure.is_some() {
        pass.failed_at = Some(hold.since);
        pass.status.trainyard.hold = None;
    }
    Held::Not(failure)
}

/// The failure that `hold` began with, unless the job is meanwhile one that ignores it.
fn held_failure(pass: &Pass<'_>, hold: &Hold) -> Option<Failure> {
    let HeldFailure { slot, cause } = hold.failure?;
    let failure = Failure {
        slot,
        cause,
        at: None,
    };
    (restart::response(pass.job, &failure) != Response::Bear).then_some(failure)
}

/// Whether what was decided about the gang is that it is held.
pub(in crate::job) fn is_held(pass: &Pass<'_>) -> bool {
    let record = &pass.status.trainyard;
    let hold = record.hold.as_ref();
    hold.is_some_and(|hold| hold.attempt == record.attempt && !hold.ended)
}

/// For how long members keep their containers, as far as it is stored: not at all once the hold is over, so that the containers of a job
/// that fails then end by themselves and their logs are kept.
pub(super) fn order(pass: &Pass<'_>) -> Option<Duration> {
    let record = &pass.observed.status.trainyard;
    let hold = record.hold.as_ref()?;
    let lasts = !hold.ended && lasts_until(pass, hold).is_some();
    let within = pass.job.settings.hold_on_failure.filter(|_| lasts);
    (hold.attempt == record.attempt && !mutant::is(Mutant::HoldsWithoutOrder))
        .then(|| within.unwrap_or_default())
}

/// What a failure that is not held loses, for the event of the restart; nothing where nobody asked for a hold or one has been.
pub(in crate::job) fn lost_words(
    pass: &Pass<'_>,
    failure: &Failure,
    way: Option<&RestartWay>,
) -> String {
    if pass.job.settings.hold_on_failure.is_none() || pass.failed_at.is_some() {
        return String::new();
    }
    let Some(why) = obstacle(pass, failure) else {
        return String::new();
    };
    let lost = match way {
        Some(RestartWay::InPlace) => match super::choice::lost_slots(pass).len() {
            0 => "the processes of all pods".to_owned(),
            1 => "the processes of all pods and the files of the pod that is replaced".to_owned(),
            count => format!(
                "the processes of all pods and the files of the {count} pods that are replaced"
            ),
        },
        Some(RestartWay::NewPods(_)) | None => "processes and files of all pods".to_owned(),
    };
    format!(" Nothing is held for inspection, because {why}: {lost} are lost.")
}

fn begin(pass: &mut Pass<'_>, failure: &Failure) -> bool {
    if pass.job.settings.hold_on_failure.is_none() || obstacle(pass, failure).is_some() {
        return false;
    }
    let why = format!(
        "pod `{}`: {}",
        pass.job.pod_name(failure.slot),
        failure.cause
    );
    let hold = Hold {
        attempt: pass.status.trainyard.attempt,
        since: pass.stamp,
        why: why.chars().take(MAX_WHY).collect(),
        failure: Some(HeldFailure {
            slot: failure.slot,
            cause: failure.cause,
        }),
        ended: false,
    };
    let Some(until) = lasts_until(pass, &hold) else {
        return false;
    };
    let within = pass.job.settings.hold_on_failure.unwrap_or_default();
    let message = format!(
        "Attempt {} failed and is held for inspection until {until} (`trainyard.dev/hold-on-failure`): {}. It holds {} for {}. Look with `trainyard stacks` and `trainyard exec`; remove the annotation to continue at once.",
        hold.attempt,
        hold.why,
        held(pass.job),
        time_words(within),
    );
    pass.emit(EventKind::Warning, EventReason::HeldOnFailure, message);
    report(pass, &hold, until);
    pass.status.trainyard.hold = Some(hold);
    true
}

/// Why `failure` is not held.
fn obstacle(pass: &Pass<'_>, failure: &Failure) -> Option<String> {
    if !matches!(pass.observed.gang, SeenGang::Here(_)) {
        let why = super::choice::unsupervised(pass.observed);
        return Some(format!("the pods have no supervisor ({why})"));
    }
    if !matches!(
        failure.cause,
        Cause::Exited { .. } | Cause::NotTraining | Cause::NoExitCode
    ) {
        return Some("the pod did not fail by itself".to_owned());
    }
    (!pass.status.trainyard.formed).then(|| "not all pods of the gang have started".to_owned())
}

/// Until when `hold` lasts; nothing where it is over.
fn lasts_until(pass: &Pass<'_>, hold: &Hold) -> Option<Timestamp> {
    let within = pass.job.settings.hold_on_failure?;
    let record = &pass.status.trainyard;
    let asked = super::choice::is_asked(pass);
    let resized = record.replicas != pass.job.replicas();
    let evicted = matches!(pass.observed.seating, Seating::Evicted(_));
    let supervised = matches!(pass.observed.gang, SeenGang::Here(_));
    let until = hold.since.checked_add(within).unwrap_or(Timestamp::MAX);
    let lasts = !asked && !resized && !evicted && supervised;
    (lasts && (pass.now < until || mutant::is(Mutant::HoldsWithoutEnd))).then_some(until)
}

fn report(pass: &mut Pass<'_>, hold: &Hold, until: Timestamp) {
    pass.wake(until);
    pass.say(Reason::HeldOnFailure {
        attempt: hold.attempt,
        until,
        held: held(pass.job),
        why: hold.why.clone(),
    });
}

fn end(pass: &mut Pass<'_>, mut hold: Hold, handled: bool) {
    let spent = pass.now.duration_since(hold.since);
    let spent = Duration::try_from(spent).unwrap_or_default();
    let message = format!(
        "The hold of attempt {} is over: {} held for {}.",
        hold.attempt,
        held(pass.job),
        time_words(spent)
    );
    pass.emit(EventKind::Normal, EventReason::HoldEnded, message);
    pass.failed_at = Some(hold.since);
    hold.ended = true;
    pass.status.trainyard.hold = (!handled).then_some(hold);
}

/// `4 pods with 8 GPUs`; other devices than whole GPUs are `accelerators`.
fn held(job: &Job) -> String {
    let plural = |count: u64, noun: &str| match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    let (mut devices, mut noun) = (0_u64, "GPU");
    for role in job.roles.values() {
        let spec = role.template.spec.as_ref();
        let of_pod = spec.map(Resources::of_pod).unwrap_or_default();
        for (name, amount) in of_pod.iter().filter(|(name, _)| is_accelerator(name)) {
            let amount = u64::try_from(amount).unwrap_or(0);
            let amount = amount.saturating_mul(u64::from(role.replicas));
            devices = devices.saturating_add(amount);
            if amount > 0 && !GPUS.contains(&name) {
                noun = "accelerator";
            }
        }
    }
    let pods = plural(u64::from(job.total_replicas()), "pod");
    match devices {
        0 => pods,
        devices => format!("{pods} with {}", plural(devices, noun)),
    }
}
