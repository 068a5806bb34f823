//! Whether a job may be written as it is, given what it was before.
//!
//! Owns what a change may not change. [`super::review_object`] finds what is wrong in a job by
//! itself, so that a review of the file reports the same before it is written.
//!
//! Invariant: a mistake that was stored before refuses no change, and a change of nothing that is judged is
//! not judged. Whoever wrote the job under an older rule must be able to mend, label and delete it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::review_with_runtime;
use crate::{
    finding::{Finding, Severity, Span, catalogue},
    spec::annotation,
};

/// The result for whoever writes a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Why the job must not be written; it may be where this is empty.
    pub refusals: Vec<Finding>,
    /// Findings that do not refuse the job.
    pub warnings: Vec<Finding>,
}

/// Whether `new` may be written, where `old` is what is there.
pub fn admit(old: Option<&Value>, new: &Value) -> Admitted {
    admit_with_runtime(old, new, None)
}

/// The same of what may be a `TrainJob` with this runtime; without one, a built-in runtime is meant.
pub fn admit_with_runtime(old: Option<&Value>, new: &Value, runtime: Option<&Value>) -> Admitted {
    if old.is_some_and(|old| has_same_judged_fields(old, new)) {
        return Admitted::default();
    }
    let mut found = review_with_runtime(new, runtime, None);
    let mut before = Vec::new();
    if let Some(old) = old {
        before = review_with_runtime(old, runtime, None);
        found.extend(changes(old, new));
    }
    // By their place, not by their words: the numbers in them change when somebody else scales the job.
    let known = |finding: &Finding| {
        let same = |known: &Finding| {
            known.severity == finding.severity
                && known.code == finding.code
                && known.path == finding.path
        };
        before.iter().any(same)
    };
    let (refusals, warnings) = found
        .into_iter()
        .partition(|finding| finding.severity == Severity::Error && !known(finding));
    Admitted { refusals, warnings }
}

/// Whether nothing differs that is judged: the spec, and our own annotations.
fn has_same_judged_fields(old: &Value, new: &Value) -> bool {
    fn ours(job: &Value) -> BTreeMap<&str, &Value> {
        let annotations = job
            .pointer("/metadata/annotations")
            .and_then(Value::as_object);
        let all = annotations.into_iter().flatten();
        all.map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| name.starts_with(annotation::PREFIX))
            .collect()
    }
    old.get("spec") == new.get("spec") && ours(old) == ours(new)
}

/// What was changed and must not be.
fn changes(old: &Value, new: &Value) -> Option<Finding> {
    let (old, new) = (managed_by(old), managed_by(new));
    if old == new {
        return None;
    }
    let shown = |value: Option<&str>| {
        value.map_or_else(|| "nothing".to_owned(), |value| format!("`{value}`"))
    };
    let message = format!(
        "`managedBy` is {} since the job was created and cannot become {}",
        shown(old),
        shown(new)
    );
    let path = "spec.runPolicy.managedBy";
    let hint = "delete the job and create it again with the other value";
    Some(Finding::new(&catalogue::IMMUTABLE, path, Span::default(), message).with_hint(hint))
}

fn managed_by(job: &Value) -> Option<&str> {
    job.pointer("/spec/runPolicy/managedBy")?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::examples, *};
    use crate::spec;

    /// A job without findings, but for the name of the worker's container.
    fn job(managed_by: Option<&str>, container: &str) -> Value {
        let file = spec::read(examples::PYTORCH.as_bytes()).unwrap();
        let mut job = file.documents[0].tree.to_json();
        trainer(&mut job)["name"] = json!(container);
        if let Some(manager) = managed_by {
            job["spec"]["runPolicy"]["managedBy"] = json!(manager);
        }
        job
    }

    fn trainer(job: &mut Value) -> &mut Value {
        let worker = &mut job["spec"]["pytorchReplicaSpecs"]["Worker"];
        &mut worker["template"]["spec"]["containers"][0]
    }

    /// Name, before, after, codes of the refusals, codes of the warnings.
    type Case = (
        &'static str,
        Option<Value>,
        Value,
        &'static [&'static str],
        &'static [&'static str],
    );

    #[test]
    fn what_may_be_written() {
        const OWN: Option<&str> = Some("kubeflow.org/training-operator");
        const OTHER: Option<&str> = Some("kueue.x-k8s.io/multikueue");
        let right = || job(None, "pytorch");
        let wrong = || job(None, "trainer");
        let mut labelled = wrong();
        labelled["metadata"]["labels"] = json!({"team": "a"});
        let mut worse = wrong();
        worse["spec"]["runPolicy"]["backoffLimit"] = json!(-1);
        let image = |annotations: Value| {
            let mut job = right();
            job["metadata"]["annotations"] = annotations;
            trainer(&mut job)["image"] = json!("train");
            job
        };
        let demo = || image(json!({}));
        let production = || image(json!({"trainyard.dev/profile": "production"}));
        let mut scaled = production();
        scaled["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(4);
        let allowed = image(json!({"trainyard.dev/profile": "production",
            "trainyard.dev/lint-allow": "TY601: built every night"}));
        let cases: [Case; 18] = [
            ("a risk in a demo", None, demo(), &[], &["TY601"]),
            ("a risk in production", None, production(), &["TY601"], &[]),
            ("a risk that is meant", None, allowed, &[], &[]),
            (
                "a mistake that is another one at the same place",
                Some(wrong()),
                job(None, "other"),
                &[],
                &["TY125"],
            ),
            (
                "a demo that is promoted",
                Some(demo()),
                production(),
                &["TY601"],
                &[],
            ),
            (
                "a risk that was there before",
                Some(production()),
                scaled,
                &[],
                &["TY601"],
            ),
            ("a right job", None, right(), &[], &[]),
            ("a wrong job", None, wrong(), &["TY125"], &[]),
            ("a right job, the same", Some(right()), right(), &[], &[]),
            (
                "a right job made wrong",
                Some(right()),
                wrong(),
                &["TY125"],
                &[],
            ),
            ("a wrong job made right", Some(wrong()), right(), &[], &[]),
            ("a wrong job, labelled", Some(wrong()), labelled, &[], &[]),
            (
                "a wrong job made worse",
                Some(wrong()),
                worse,
                &["TY120"],
                &["TY125"],
            ),
            ("a manager, stated", None, job(OTHER, "pytorch"), &[], &[]),
            (
                "a manager, kept",
                Some(job(OTHER, "pytorch")),
                job(OTHER, "pytorch"),
                &[],
                &[],
            ),
            (
                "a manager, added",
                Some(right()),
                job(OWN, "pytorch"),
                &["TY147"],
                &[],
            ),
            (
                "a manager, changed",
                Some(job(OWN, "pytorch")),
                job(OTHER, "pytorch"),
                &["TY147"],
                &[],
            ),
            (
                "a manager, removed",
                Some(job(OTHER, "pytorch")),
                right(),
                &["TY147"],
                &[],
            ),
        ];
        for (name, old, new, refusals, warnings) in cases {
            let admitted = admit(old.as_ref(), &new);
            let codes = |findings: &[Finding]| findings.iter().map(|f| f.code).collect::<Vec<_>>();
            assert_eq!(codes(&admitted.refusals), refusals, "{name}");
            assert_eq!(codes(&admitted.warnings), warnings, "{name}");
        }
    }
}
