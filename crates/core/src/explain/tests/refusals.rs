//! What was refused.

use super::*;

pub(super) fn of_refusals() -> Vec<Named> {
    use Standing::Waits;
    let quota = "cannot create pod `j-worker-0`: pods \"j-worker-0\" is forbidden: exceeded quota: \
                 gpus, requested: cpu=1,requests.nvidia.com/gpu=8, used: cpu=3,\
                 requests.nvidia.com/gpu=56, limited: cpu=4,requests.nvidia.com/gpu=60";
    let webhook = "cannot create pod `j-worker-0`: admission webhook \"pods.example.com\" denied the \
                   request: no owner label";
    let refusals: Vec<(&'static str, &'static str, Cause, Vec<&'static str>)> = vec![
        (
            "quota",
            quota,
            Cause::QuotaExceeded,
            vec![
                "`gpus`",
                "`requests.nvidia.com/gpu` needs 8 more, 56 of 60 are used",
                "`cpu` needs 1 more, 3 of 4 are used",
                "describe quota gpus",
                "40 of 60 used now",
            ],
        ),
        (
            "quota that needs limits",
            "cannot create pod `j-worker-0`: pods \"j-worker-0\" is forbidden: failed quota: small: \
             must specify limits.cpu for: pytorch",
            Cause::QuotaNeedsLimits,
            vec!["`small`", "must specify limits.cpu for: pytorch"],
        ),
        (
            "webhook says no",
            webhook,
            Cause::WebhookDenied,
            vec!["`pods.example.com`", "no owner label"],
        ),
        (
            "webhook is down",
            "cannot create pod `j-worker-0`: Internal error occurred: failed calling webhook \
             \"pods.example.com\": failed to call webhook: connection refused",
            Cause::WebhookDown,
            vec!["`pods.example.com` does not respond", "connection refused"],
        ),
        (
            "pod security",
            "cannot create pod `j-worker-0`: pods \"j-worker-0\" is forbidden: violates PodSecurity \
             \"restricted:latest\": runAsNonRoot != true (pod must set runAsNonRoot)",
            Cause::PodSecurity,
            vec![
                "`restricted:latest`",
                "runAsNonRoot != true",
                "securityContext",
            ],
        ),
        (
            "service account",
            "cannot create pod `j-worker-0`: pods \"j-worker-0\" is forbidden: error looking up \
             service account team/trainer: serviceaccount \"trainer\" not found",
            Cause::ServiceAccountMissing,
            vec!["`trainer`", "kubectl -n team create serviceaccount trainer"],
        ),
        (
            "rights",
            "cannot create pod `j-worker-0`: pods is forbidden: User \"system:serviceaccount:a:b\" \
             cannot create resource \"pods\" in API group \"\" in the namespace \"team\"",
            Cause::Forbidden,
            vec!["system:serviceaccount:a:b", "create resource \"pods\""],
        ),
        (
            "something else",
            "cannot create pod `j-worker-0`: Pod \"j-worker-0\" is invalid: spec.x: Required value",
            Cause::Refused,
            vec!["spec.x: Required value"],
        ),
    ];
    let quotas = vec![Quota {
        name: "gpus".into(),
        resources: BTreeMap::from([("requests.nvidia.com/gpu".into(), ("40".into(), "60".into()))]),
    }];
    let taken = facts().waits(&Reason::Refused {
        tried: "create pod `j-worker-0`".into(),
        message: "it exists and belongs to TFJob `j`; rename the job, or delete this pod if it is not needed".into(),
        more: 0,
        taken_by: Some("TFJob `j`".into()),
    });
    let said = vec!["belongs to TFJob `j`", "create pod `j-worker-0`"];
    let other = [
        ("name taken", taken.clone(), Cause::NameTaken, Waits, said),
        (
            "by an earlier version",
            taken.without_params(),
            Cause::Refused,
            Waits,
            vec!["cannot create pod `j-worker-0`: it exists and belongs to TFJob `j`"],
        ),
        (
            "a quota, by an earlier version",
            facts().refused(quota).without_params(),
            Cause::QuotaExceeded,
            Waits,
            vec!["`requests.nvidia.com/gpu` needs 8 more"],
        ),
    ];
    refusals
        .into_iter()
        .map(|(name, message, cause, words)| {
            let facts = facts()
                .refused(message)
                .with(|facts| facts.quotas.clone_from(&quotas));
            (name, facts, cause, Waits, words)
        })
        .chain(other)
        .collect()
}
