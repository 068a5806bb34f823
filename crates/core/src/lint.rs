//! Findings over a file: every job document checked, and the file as a whole.
//!
//! Owns the catalogue of rules and what can only be seen with all documents of a file at hand.
//! What is wrong with one document is found by [`crate::spec::check`].

use std::collections::BTreeMap;

use crate::{
    finding::{Finding, Span},
    spec::{self, File, RoleInFile},
};

pub(crate) mod catalogue;
#[cfg(test)]
mod tests;

pub use catalogue::{Rule, rule, rules};

/// The findings of every job document of `file`, in the order of their position.
pub fn lint(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<(&str, String, String), Span> = BTreeMap::new();
    let mut companions_only = true;
    for document in &file.documents {
        if document.role_in_file() == RoleInFile::Companion {
            continue;
        }
        companions_only = false;
        findings.extend(spec::check(document).findings);
        let Some((name, span)) = document.name() else {
            continue;
        };
        if document.job_kind().is_none() {
            continue;
        }
        let kind = document.kind().unwrap_or_default();
        let namespace = document.namespace().unwrap_or(spec::DEFAULT_NAMESPACE);
        let object = (kind, namespace.to_owned(), name.to_owned());
        if let Some(first) = seen.get(&object) {
            findings.push(
                Finding::new(
                    &catalogue::SAME_JOB_TWICE,
                    "metadata.name",
                    span,
                    format!(
                        "{kind} `{name}` of namespace `{namespace}` is already in this file, on line {}",
                        first.line
                    ),
                )
                .with_hint("give one of the two another name"),
            );
        } else {
            seen.insert(object, span);
        }
    }
    if let (true, Some(first)) = (companions_only, file.documents.first()) {
        findings.push(
            Finding::new(
                &catalogue::NO_JOB,
                "",
                first.tree.head(),
                "the file has no job in it, only objects that go with one",
            )
            .with_hint(format!("the kinds read are {}", spec::kinds_read())),
        );
    }
    findings.sort_by_key(|finding| (finding.span.line, finding.span.column));
    findings
}
