//! Advice about a job that is not valid: what follows from an error is not reported as well.
//!
//! A job with an error is read as far as it goes, and something stands in for what is wrong. A rule that
//! looks at such a value would report the stand-in.

use crate::finding::{Finding, catalogue};

/// Errors about a list or a name that leave what is in the list as it is written.
const LEAVE_THE_REST: [&str; 6] = [
    catalogue::BAD_CONTAINER_NAME.code,
    catalogue::BAD_NAME.code,
    catalogue::NO_CONTAINERS.code,
    catalogue::NO_DEFAULT_CONTAINER.code,
    catalogue::NO_IMAGE.code,
    catalogue::POD_NAME_TOO_LONG.code,
];

/// Errors after which pods and processes cannot be counted.
const UNCOUNTED: [&str; 11] = [
    catalogue::WRONG_TYPE.code,
    catalogue::OUT_OF_RANGE.code,
    catalogue::NO_ROLES.code,
    catalogue::UNKNOWN_ROLE.code,
    catalogue::MISSING_ROLE.code,
    catalogue::BAD_REPLICAS.code,
    catalogue::BAD_NPROC_PER_NODE.code,
    catalogue::TWO_NPROC_PER_NODE.code,
    catalogue::BAD_ELASTIC.code,
    catalogue::ELASTIC_WITHOUT_WORKER.code,
    catalogue::BAD_SLOTS.code,
];

/// Rules that count pods, processes or GPUs of the whole job.
const COUNTING: [&str; 15] = [
    "TY150", "TY151", "TY152", "TY153", "TY154", "TY155", "TY156", "TY159", "TY169", "TY171",
    "TY216", "TY401", "TY404", "TY513", "TY703",
];

/// Rules that go by the name of the job.
const BY_NAME: [&str; 2] = ["TY156", "TY501"];

/// Rules that look for objects in the namespace of the job.
const BY_NAMESPACE: [&str; 18] = [
    "TY208", "TY212", "TY303", "TY323", "TY402", "TY415", "TY503", "TY605", "TY609", "TY615",
    "TY619", "TY620", "TY622", "TY623", "TY701", "TY912", "TY932", "TY933",
];

/// Whether the rule with `code` looks for objects in the namespace of what it judges.
pub(super) fn goes_by_namespace(code: &str) -> bool {
    BY_NAMESPACE.contains(&code)
}

/// Whether `finding` may only be there because of one of `errors`.
pub(super) fn follows(finding: &Finding, errors: &[&Finding]) -> bool {
    errors.iter().any(|error| {
        let code = error.code;
        let by_place = !LEAVE_THE_REST.contains(&code) && overlaps(&finding.path, &error.path);
        let by_count = UNCOUNTED.contains(&code) && COUNTING.contains(&finding.code);
        let by_name = code == catalogue::BAD_NAME.code && BY_NAME.contains(&finding.code);
        let by_namespace = code == catalogue::BAD_NAMESPACE.code && goes_by_namespace(finding.code);
        by_place || by_count || by_name || by_namespace
    })
}

/// Whether one of two fields is the other, or lies in it.
fn overlaps(left: &str, right: &str) -> bool {
    let within = |path: &str, field: &str| {
        let rest = path.strip_prefix(field);
        field.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    within(left, right) || within(right, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_overlap_where_one_is_in_the_other() {
        assert!(overlaps("spec.a", "spec.a"));
        assert!(overlaps("spec.a[0].b", "spec.a"));
        assert!(overlaps("spec.a", "spec.a.b"));
        assert!(!overlaps("spec.ab", "spec.a"));
        assert!(overlaps("spec", ""));
    }
}
