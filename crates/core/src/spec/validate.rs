//! The rules of a job: from what was written to a [`Job`], with everything that is wrong.
//!
//! One file per concern. Each takes the decoded job with its places, reports what it finds there,
//! and returns its part of the job as far as there is one. Parts of a job with errors are never
//! used, so they need only be good enough to look for the next error.

pub use annotations::duration;
use std::collections::BTreeMap;

use super::{
    DEFAULT_NAMESPACE, Job, JobName, Namespace,
    check::Sheet,
    collector::Place,
    nearest::{nearest, one_of},
};
use crate::finding::{Fix, Rule};

pub(super) mod annotations;
mod elastic;
mod framework;
pub(super) mod metadata;
mod roles;
mod run_policy;
mod template;
#[cfg(test)]
mod tests;

/// Most pods of a role and of a job. The largest training runs have some ten thousand; more
/// would not fit a cluster.
pub(crate) const MAX_REPLICAS: u32 = 100_000;

/// The name of a job whose own cannot be one.
const NO_NAME: &str = "unnamed";

/// The job of `sheet`. Where an error was reported, something stands in for what is wrong.
pub(super) fn job(mut sheet: Sheet<'_>) -> Job {
    let metadata = sheet.root.key("metadata");
    let annotations: BTreeMap<String, String> =
        sheet.metadata.annotations.take().unwrap_or_default();
    let name = metadata::name(&metadata, &sheet.metadata);
    let namespace = metadata::namespace(&metadata, &sheet.metadata);
    let settings = annotations::settings(&metadata.key("annotations"), sheet.kind, &annotations);
    let roles = roles::roles(&mut sheet);
    let framework = framework::framework(&sheet, &roles);
    let run_policy = run_policy::run_policy(&sheet);
    let has_name = name.is_some();
    let job = Job {
        kind: sheet.kind,
        name: name.unwrap_or_else(|| JobName::parse(NO_NAME).expect("a plain word is a name")),
        namespace: namespace.unwrap_or_else(|| {
            Namespace::parse(DEFAULT_NAMESPACE).expect("a plain word is a namespace")
        }),
        uid: sheet.metadata.uid,
        annotations,
        roles,
        run_policy,
        framework,
        settings,
    };
    if has_name {
        metadata::pod_names(&metadata.key("name"), &job);
    }
    if !sheet.root.has_failed() {
        let map = sheet.root.key("spec").key(job.kind.replica_map());
        roles::nothing_to_run(&map, &job.roles);
    }
    job
}

/// The meaning of `word`, one of `known`; `rule` reports an unknown word.
pub(super) fn word<T: Copy>(
    place: &Place<'_>,
    rule: &Rule,
    word: &str,
    known: &[(&str, T)],
) -> Option<T> {
    let found = known.iter().find(|(name, _)| *name == word);
    if found.is_none() {
        let names = || known.iter().map(|(name, _)| *name);
        let field = place.name();
        let message = format!("`{field}` must be {}, found `{word}`", one_of(names()));
        match nearest(word, names()) {
            Some(meant) => {
                let same = meant.eq_ignore_ascii_case(word);
                let fix = same.then(|| Fix::Scalar(meant.to_owned()));
                place.report_fix(rule, message, format!("did you mean `{meant}`?"), fix);
            }
            None => place.report(rule, message),
        }
    }
    found.map(|(_, meaning)| *meaning)
}

/// A number from `least` to `most` where one is stated; reported by `rule` where it is outside.
pub(super) fn number(
    place: &Place<'_>,
    rule: &Rule,
    value: Option<i64>,
    least: i64,
    most: i64,
) -> Option<i64> {
    let value = value?;
    if (least..=most).contains(&value) {
        return Some(value);
    }
    let field = place.name();
    let message = if most == i64::MAX {
        format!("`{field}` must be at least {least}, found {value}")
    } else {
        format!("`{field}` must be from {least} to {most}, found {value}")
    };
    place.report(rule, message);
    None
}

/// A number that the API keeps in 32 bits, where one of at least `least` is stated.
fn number32(place: &Place<'_>, rule: &Rule, value: Option<i64>, least: i32) -> Option<i32> {
    number(place, rule, value, least.into(), i32::MAX.into())
        .and_then(|value| i32::try_from(value).ok())
}
