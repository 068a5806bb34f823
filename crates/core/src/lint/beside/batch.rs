//! Fields of a batch Job and a `CronJob` that exclude each other or leave nothing behind.

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, WRONG, rule},
    companions::{Companion, Companions, at},
};
use super::{is, number, text};
use crate::spec::{Node, Place};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY928",
            WRONG,
            "fields of a Job that exclude each other",
            "The API server refuses a Job with a `podFailurePolicy` or a `backoffLimitPerIndex` unless its pods have the restart policy \
             `Never`, with a limit, a success policy or failures for each index unless it is `Indexed`, and an `Indexed` one without \
             `completions`.",
        ),
        look: Look::Companion(excluded),
    },
    Advice {
        rule: rule(
            "TY929",
            ODD,
            "schedule that leaves out or forgets runs",
            "The controller looks at a CronJob every ten seconds, so with a `startingDeadlineSeconds` below 10 a run may never start. With \
             a `failedJobsHistoryLimit` of 0 a failed run is deleted with its pods and logs at once.",
        ),
        look: Look::Companion(forgets),
    },
];

fn excluded(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let path: &[&str] = match companion.kind {
        "Job" => &["spec"],
        "CronJob" => &["spec", "jobTemplate", "spec"],
        _ => return,
    };
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    let Some(spec) = at(companion.tree, path).filter(|_| version.starts_with("batch/")) else {
        return;
    };
    let place = path
        .iter()
        .fold(companion.place.clone(), |place, key| place.key(key));
    of_spec(rule, spec, &place);
}

fn of_spec(rule: &Rule, spec: &Node, place: &Place<'_>) {
    let has = |key: &str| at(spec, &[key]).is_some();
    let indexed = text(spec, &["completionMode"]) == Some("Indexed");
    let never = text(spec, &["template", "spec", "restartPolicy"]) == Some("Never");
    for key in ["podFailurePolicy", "backoffLimitPerIndex"] {
        if has(key) && !never {
            place.key(key).report_with(
                rule,
                format!("`{key}` needs pods with the restart policy `Never`"),
                "write `restartPolicy: Never` in the template",
            );
        }
    }
    for key in ["backoffLimitPerIndex", "successPolicy"] {
        if has(key) && !indexed {
            place.key(key).report_with(
                rule,
                format!("`{key}` needs `completionMode: Indexed`"),
                "write `completionMode: Indexed`, or remove the field",
            );
        }
    }
    if has("maxFailedIndexes") && !has("backoffLimitPerIndex") {
        place.key("maxFailedIndexes").report_with(
            rule,
            "`maxFailedIndexes` needs `backoffLimitPerIndex`",
            "write `backoffLimitPerIndex`, or remove the field",
        );
    }
    if indexed && !has("completions") {
        place.key("completionMode").report_with(
            rule,
            "an `Indexed` Job needs `completions`, the number of its indices",
            "write `completions`",
        );
    }
}

fn forgets(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    if !is(companion, "CronJob") {
        return;
    }
    let place = companion.place.key("spec");
    let deadline = number(companion.tree, &["spec", "startingDeadlineSeconds"]);
    if let Some(seconds) = deadline.filter(|seconds| (0..10).contains(seconds)) {
        place.key("startingDeadlineSeconds").report_with(
            rule,
            format!(
                "a run may start {seconds} s late at most, and the controller looks every 10 s"
            ),
            "allow minutes, such as `startingDeadlineSeconds: 600`",
        );
    }
    if number(companion.tree, &["spec", "failedJobsHistoryLimit"]) == Some(0) {
        place.key("failedJobsHistoryLimit").report_with(
            rule,
            "a failed run is deleted at once, with its pods and logs",
            "keep one at least, which is the default",
        );
    }
}
