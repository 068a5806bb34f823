//! Pods that restart alone: which of their ends the doctor is asked about, and when the job ends because a retry does
//! not help.
//!
//! The container of such a pod is started again in place, by the kubelet, or its pod is replaced. Either way the attempt
//! continues, so what a pod ended with before is remembered by pod.
//!
//! Invariant: at most [`TRACKED`] pods are remembered. Each end is judged once.

use jiff::{SignedDuration, Timestamp};

use super::{
    Account, FailedBy, JobRecord, JudgedEnd, LastEnd, Observed, ObservedPod, PodPhase, budget,
    cause::{Cause, Failure},
    messages::Fails,
    mutant,
    pass::Pass,
    recover,
    restart::{self, Response},
    roster::Roster,
    verdict,
};
use crate::{
    diagnose::VerdictSummary,
    reason::InVain,
    spec::{Job, RestartPolicy, RestartScope, Slot},
};

/// Pods whose last end is remembered. They are stored with the status; a mistake that all pods make is found with few.
const TRACKED: usize = 32;
/// Ends about which the doctor is asked in one pass: each takes a log that is read.
const JUDGED_PER_PASS: usize = 4;
/// A container that ran for this long before it ended may have come further, where no step is known.
const STEADY: SignedDuration = SignedDuration::from_mins(10);

/// The pods about whose last end the doctor is to be asked, of a job whose pods restart alone: those first that ended
/// before, then by time.
pub fn unjudged_ends<'a>(job: &Job, observed: &'a Observed) -> Vec<&'a ObservedPod> {
    if verdict::is_over(job, observed) || job.restart_scope() != RestartScope::Pod {
        return Vec::new();
    }
    let record = &observed.status.trainyard;
    let known = |pod: &ObservedPod| record.last_ends.contains_key(&job.pod_name(pod.slot));
    let new = observed
        .pods
        .iter()
        .filter(|pod| has_new_end(job, record, pod));
    let mut pods: Vec<&ObservedPod> = new
        .filter(|pod| response(job, pod) != Response::Bear)
        .collect();
    pods.sort_by_cached_key(|pod| {
        let at = pod.exit.and_then(|exit| exit.at);
        (!known(pod), at.is_none(), at, pod.slot)
    });
    pods.truncate(JUDGED_PER_PASS);
    pods
}

/// Whether the program in `pod` failed by itself, and no verdict on that exists yet.
fn has_new_end(job: &Job, record: &JobRecord, pod: &ObservedPod) -> bool {
    let by_itself = pod.disruption.is_none()
        && pod.deleted_at.is_none()
        && pod.exit.is_some_and(|exit| exit.code != 0);
    let wanted = pod.attempt == record.attempt
        && !pod.slot.role.is_initializer()
        && pod.slot.index < job.role_replicas(pod.slot.role)
        && !record.dismissed.contains(&pod.uid);
    if !by_itself || !wanted || pod.ends == 0 {
        return false;
    }
    match record.last_ends.get(&job.pod_name(pod.slot)) {
        Some(last) => last.uid != pod.uid || last.ends < pod.ends,
        None => record.last_ends.len() < TRACKED,
    }
}

/// What the last end of `pod` means for the job.
fn response(job: &Job, pod: &ObservedPod) -> Response {
    let policy = job
        .roles
        .get(&pod.slot.role)
        .map(|role| role.restart_policy);
    let in_place = matches!(
        policy,
        Some(RestartPolicy::Always | RestartPolicy::OnFailure)
    );
    match pod.phase {
        PodPhase::Failed => restart::response(job, &failure_of(pod)),
        _ if in_place => Response::Restart,
        // Another container of the pod runs on; it has not failed yet.
        _ => Response::Bear,
    }
}

/// The last end of `pod` as a failure.
pub(super) fn failure_of(pod: &ObservedPod) -> Failure {
    Failure {
        slot: pod.slot,
        cause: Cause::of_failed(pod),
        at: pod.exit.and_then(|exit| exit.at),
    }
}

/// What the doctor says about the last end of the pod in `slot`.
pub(super) fn verdict_of<'a>(pass: &Pass<'a>, slot: Slot) -> Option<&'a VerdictSummary> {
    let observed = pass.observed;
    let is_of_slot = |judged: &&JudgedEnd| {
        let mut pods = observed.pods.iter().filter(|pod| pod.slot == slot);
        pods.any(|pod| is_about(judged, pod))
    };
    observed.judged.iter().find(is_of_slot)?.verdict.as_ref()
}

fn is_about(judged: &JudgedEnd, pod: &ObservedPod) -> bool {
    judged.uid == pod.uid && judged.ends == pod.ends
}

/// Remembers every end that was judged. The error is why the job fails, where a retry does not help
/// and its user set no limit on retries.
pub(super) fn note_ends(pass: &mut Pass<'_>, roster: &Roster<'_>) -> Result<(), Fails> {
    let observed = pass.observed;
    for judged in &observed.judged {
        let mut pods = roster.notable.iter().filter(|pod| is_about(judged, pod));
        let pod = pods.find(|pod| has_new_end(pass.job, &pass.status.trainyard, pod));
        if let Some(pod) = pod
            && response(pass.job, pod) == Response::Restart
        {
            note_end(pass, pod)?;
        }
    }
    Ok(())
}

fn note_end(pass: &mut Pass<'_>, pod: &ObservedPod) -> Result<(), Fails> {
    let failure = failure_of(pod);
    let name = pass.job.pod_name(pod.slot);
    let hopeless = verdict::hopeless(pass, &failure);
    let end = LastEnd {
        uid: pod.uid.clone(),
        ends: pod.ends,
        failure: hopeless
            .and_then(VerdictSummary::digest)
            .unwrap_or_default(),
        step: verdict::step(pass),
        at: failure.at.unwrap_or(pass.now),
    };
    let before = pass
        .status
        .trainyard
        .last_ends
        .insert(name.clone(), end.clone());
    let Some(hopeless) = hopeless.filter(|_| !verdict::has_own_limit(pass.job)) else {
        return Ok(());
    };
    let again = before.is_some_and(|before| {
        !end.failure.is_empty()
            && before.failure == end.failure
            && !came_further(&before, &end, hopeless)
    });
    let shown_by = if again && !mutant::is(mutant::Mutant::RetriesInVain) {
        InVain::Pod {
            pod: name,
            same_place: hopeless.place.is_some(),
        }
    } else if pass.observed.attended && end.step.is_none() {
        InVain::Verdict
    } else {
        return Ok(());
    };
    let reason = verdict::retry_does_not_help(pass.job, shown_by, hopeless);
    recover::remember(pass, &failure, Account::User);
    if pod.phase == PodPhase::Failed || pod.ends > pod.restarts {
        // A restart in place is charged already. The job fails whether or not the account has budget left.
        budget::charge(&mut pass.status.trainyard.spent, pass.job, Account::User, 1).ok();
    }
    let message = reason.to_string();
    pass.say(reason);
    Err(Fails::new(FailedBy::RetryDoesNotHelp, message))
}

/// Whether the job came further between two ends of a pod, or may have: where no step is known and no place in the
/// program says that it is the same one, a pod that ran for long may have.
fn came_further(before: &LastEnd, end: &LastEnd, verdict: &VerdictSummary) -> bool {
    match end.step.zip(before.step) {
        Some((step, before)) => step > before,
        None => verdict.place.is_none() && ran_for_long(before.at, end.at),
    }
}

fn ran_for_long(from: Timestamp, to: Timestamp) -> bool {
    to.duration_since(from) >= STEADY
}
