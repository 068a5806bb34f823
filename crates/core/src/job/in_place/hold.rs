//! `trainyard.dev/hold-on-failure`: a broken gang is kept for inspection before its failure is handled.
//!
//! A hold only delays: while it lasts the failure is charged to nobody, no pod is created or deleted, and no program is stopped. When it is
//! over, the failure is handled in the same pass as if it had just been seen.
//!
//! Invariants:
//! - An attempt is held once: what is stored of a hold stays until the attempt ends.
//! - Nothing is held longer than the setting says. A failure of something other than a program, an eviction, a restart that is asked for
//!   and another number of pods are not held, and end a hold; so do suspension, deletion, success and the deadline of the job.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    job::{
        Cause, EventKind, EventReason, Hold, Seating, SeenGang, cause::Failure, pass::Pass,
        status::time_words,
    },
    mutant::{self, Mutant},
    reason::Reason,
    resources::Resources,
    spec::Job,
};

/// Characters of the reason that are kept, at most.
const MAX_WHY: usize = 256;

/// Whether the gang is held now, so that nothing else is decided about it. `failure` is the one that would be handled, where one is seen.
pub(in crate::job) fn holds(pass: &mut Pass<'_>, failure: Option<&Failure>) -> bool {
    let attempt = pass.status.trainyard.attempt;
    pass.status
        .trainyard
        .hold
        .take_if(|hold| hold.attempt != attempt);
    match (pass.status.trainyard.hold.clone(), failure) {
        (None, None) => false,
        (None, Some(failure)) => begin(pass, failure),
        (Some(hold), _) if !hold.ended => {
            let until = lasts_until(pass, &hold);
            if let Some(until) = until {
                report(pass, &hold, until);
            } else {
                end(pass, hold, failure.is_some());
            }
            until.is_some()
        }
        (Some(hold), failure) => {
            // It is over already; what it was for is seen again only now.
            if failure.is_some() {
                pass.failed_at = Some(hold.since);
                pass.status.trainyard.hold = None;
            }
            false
        }
    }
}

/// Whether what was decided about the gang is that it is held.
pub(in crate::job) fn is_held(pass: &Pass<'_>) -> bool {
    let record = &pass.status.trainyard;
    let hold = record.hold.as_ref();
    hold.is_some_and(|hold| hold.attempt == record.attempt && !hold.ended)
}

/// For how long members keep their containers, as far as it is stored.
pub(super) fn order(pass: &Pass<'_>) -> Option<Duration> {
    let record = &pass.observed.status.trainyard;
    let hold = record.hold.as_ref()?;
    let within = pass.job.settings.hold_on_failure.filter(|_| !hold.ended);
    (hold.attempt == record.attempt && !mutant::is(Mutant::HoldsWithoutOrder))
        .then(|| within.unwrap_or_default())
}

/// What a failure that is not held loses, for the event of the restart; nothing where nobody asked for a hold or one has been.
pub(in crate::job) fn lost_words(pass: &Pass<'_>, failure: &Failure) -> String {
    if pass.job.settings.hold_on_failure.is_none() || pass.failed_at.is_some() {
        return String::new();
    }
    let Some(why) = obstacle(pass, failure) else {
        return String::new();
    };
    format!(
        " Nothing is held for inspection, because {why}: processes and files of the pods are lost, the end of the log of `{}` is kept.",
        pass.job.pod_name(failure.slot)
    )
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

/// `4 pods with 8 GPUs`.
fn held(job: &Job) -> String {
    let plural = |count: u64, noun: &str| match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    let mut devices: u64 = 0;
    for role in job.roles.values() {
        let spec = role.template.spec.as_ref();
        let of_pod = spec.map_or(0, |spec| Resources::of_pod(spec).accelerators());
        let of_pod = u64::try_from(of_pod).unwrap_or(0);
        devices = devices.saturating_add(of_pod.saturating_mul(u64::from(role.replicas)));
    }
    let pods = plural(u64::from(job.total_replicas()), "pod");
    match devices {
        0 => pods,
        devices => format!("{pods} with {}", plural(devices, "GPU")),
    }
}
