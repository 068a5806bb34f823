//! `spec.runPolicy`: how a job runs and ends.

use super::{number, number32, word};
use crate::{
    finding::catalogue,
    spec::{
        CleanPodPolicy, RunPolicy, SchedulingPolicy,
        check::{Own, Sheet},
        collector::Place,
        wire,
    },
};

/// The queueing system that runs jobs in other clusters; the only other owner of a job.
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// The run policy, with what is wrong in it left out.
pub(super) fn run_policy(sheet: &Sheet<'_>) -> RunPolicy {
    let place = sheet.spec().key("runPolicy");
    let written = &sheet.run_policy;
    let limit = |key: &str, value: Option<i64>| {
        number32(&place.key(key), &catalogue::NEGATIVE_LIMIT, value, 0).map(i32::unsigned_abs)
    };
    let deadline = number(
        &place.key("activeDeadlineSeconds"),
        &catalogue::NEGATIVE_LIMIT,
        written.active_deadline_seconds,
        0,
        i64::MAX,
    );
    managed_by(sheet, &place);
    RunPolicy {
        clean_pod_policy: clean_pod_policy(sheet, &place),
        ttl_seconds_after_finished: limit(
            "ttlSecondsAfterFinished",
            written.ttl_seconds_after_finished,
        ),
        active_deadline_seconds: deadline.map(i64::unsigned_abs),
        backoff_limit: limit("backoffLimit", written.backoff_limit),
        suspend: written.suspend.unwrap_or(false),
        managed_by: written.managed_by.clone(),
        scheduling: written
            .scheduling_policy
            .as_ref()
            .map(|policy| scheduling(policy, &place.key("schedulingPolicy"))),
    }
}

/// The policy of `runPolicy`, else the older field beside it that `MPIJob` v1 has.
fn clean_pod_policy(sheet: &Sheet<'_>, place: &Place<'_>) -> Option<CleanPodPolicy> {
    const WORDS: [(&str, CleanPodPolicy); 3] = [
        ("All", CleanPodPolicy::All),
        ("Running", CleanPodPolicy::Running),
        ("None", CleanPodPolicy::None),
    ];
    let read = |place: &Place<'_>, text: &Option<String>| {
        let text = text.as_deref()?;
        word(place, &catalogue::BAD_CLEAN_POD_POLICY, text, &WORDS)
    };
    let older = match &sheet.own {
        Own::MpiV1 {
            clean_pod_policy, ..
        } => read(&sheet.spec().key("cleanPodPolicy"), clean_pod_policy),
        _ => None,
    };
    read(
        &place.key("cleanPodPolicy"),
        &sheet.run_policy.clean_pod_policy,
    )
    .or(older)
}

fn managed_by(sheet: &Sheet<'_>, place: &Place<'_>) {
    let own = sheet.kind.own_manager();
    if let Some(text) = sheet.run_policy.managed_by.as_deref() {
        word(
            &place.key("managedBy"),
            &catalogue::BAD_MANAGED_BY,
            text,
            &[(own, ()), (MULTIKUEUE, ())],
        );
    }
}

fn scheduling(written: &wire::SchedulingPolicy, place: &Place<'_>) -> SchedulingPolicy {
    let limit = |key: &str, value: Option<i64>| {
        number32(&place.key(key), &catalogue::NEGATIVE_LIMIT, value, 0).map(i32::unsigned_abs)
    };
    SchedulingPolicy {
        min_available: limit("minAvailable", written.min_available),
        queue: written.queue.clone(),
        min_resources: written.min_resources.clone(),
        priority_class: written.priority_class.clone(),
        schedule_timeout_seconds: limit("scheduleTimeoutSeconds", written.schedule_timeout_seconds),
    }
}
