//! Findings over files: every job document checked, and what can be seen of all files together.
//!
//! Owns the rules and two entry points. [`lint`] reports whether a file can be run at all, as
//! [`crate::spec::check`] finds it. [`review`] also reports what would go wrong.
//!
//! Invariant: `review` never leaves out what `lint` reports of a job, whatever profile or annotation. Both
//! take the same documents for jobs ([`Contents`]), and judge a job with `generateName` as the cluster
//! would name it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    fabric::fit,
    finding::{Finding, Span},
    spec::{self, Collector, Contents, Document, File, Part, Place, RoleInFile},
};

mod admit;
mod advice;
mod allow;
pub(crate) mod catalogue;
mod cluster;
mod command;
mod companions;
mod deepspeed;
mod fabric;
mod fix;
mod hygiene;
mod memory_devices;
mod placement;
pub(crate) mod recovery;
mod rule;
pub(crate) mod scene;
mod shape;
#[cfg(test)]
mod tests;

use advice::Look;
use companions::{Companion, Companions};
use scene::Scene;

pub use admit::{Admitted, admit};
pub use advice::Example;
pub use cluster::{ClusterFacts, namespaces};
pub use fix::{Fixed, fix};
pub use rule::{Profile, Rule};

/// Every rule, in the order of its code.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    catalogue::RULES
        .iter()
        .chain(advice::all().map(|advice| &advice.rule))
}

/// The rule with `code`.
pub fn rule(code: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.code == code)
}

/// A manifest that the rule with `code` catches and a near miss that it spares, where the rule is not
/// about files that cannot be read or jobs that are not valid.
pub fn examples(code: &str) -> Option<(Example, Example)> {
    advice::all()
        .find(|advice| advice.rule.code == code)
        .map(|advice| (advice.catches, advice.spares))
}

/// The findings of every job document of `file`, in the order of their position.
pub fn lint(file: &File) -> Vec<Finding> {
    lint_together(&[file]).concat()
}

/// The same for files that belong together, one list for each. Where one of them holds a job, the others
/// need not, and objects of other kinds are skipped ([`Contents::foreign`]).
pub fn lint_together(files: &[&File]) -> Vec<Vec<Finding>> {
    let contents = Contents::of(files.iter().copied());
    files.iter().map(|file| lint_one(file, contents)).collect()
}

fn lint_one(file: &File, contents: Contents) -> Vec<Finding> {
    let mut findings = file_findings(file, contents);
    for (part, document) in contents.parts(file) {
        match part {
            Part::Fabric => findings.extend(crate::fabric::read(document).findings),
            Part::Job(_) | Part::Refused => {
                findings.extend(spec::check(&document.as_named()).findings);
            }
            Part::Companion | Part::Foreign => {}
        }
    }
    sort(&mut findings);
    findings
}

/// What can only be seen with all documents of a file at hand.
fn file_findings(file: &File, contents: Contents) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<(&str, String, String), Span> = BTreeMap::new();
    let mut companions_only = true;
    let mut fabrics: BTreeMap<&str, Span> = BTreeMap::new();
    for document in &file.documents {
        if document.is_fabric() {
            companions_only = false;
            if let Some((name, span)) = document.name() {
                match fabrics.get(name) {
                    Some(first) => findings.push(crate::fabric::twice(name, span, first.line)),
                    None => drop(fabrics.insert(name, span)),
                }
            }
        }
        if document.role_in_file() == RoleInFile::Companion {
            continue;
        }
        companions_only = false;
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
    if let (true, false, Some(first)) =
        (companions_only, contents.has_job(), file.documents.first())
    {
        findings.push(
            Finding::new(
                &catalogue::NO_JOB,
                "",
                first.tree.head(),
                "the file has no job in it, only objects that go with one",
            )
            .with_hint(format!("the supported kinds are {}", spec::kinds_read())),
        );
    }
    findings
}

/// The findings of files that belong together, one list for each, in the order of their position.
///
/// `profile` decides for all jobs; without one the annotation `trainyard.dev/profile` of a job does, and
/// without that it is a demo. Where the files hold a job, those that hold none and documents of kinds
/// that are not ours are skipped: they are the rest of a folder or of a chart.
pub fn review(files: &[&File], profile: Option<Profile>) -> Vec<Vec<Finding>> {
    let context = Context::of(files, profile);
    files.iter().map(|file| context.review(file)).collect()
}

/// The findings of [`review`], and of what the files need and `cluster` does not have.
pub fn review_in(
    files: &[&File],
    profile: Option<Profile>,
    cluster: &ClusterFacts,
) -> Vec<Vec<Finding>> {
    let mut context = Context::of(files, profile);
    context.companions.cluster = Some(cluster);
    files.iter().map(|file| context.review(file)).collect()
}

/// The findings of one object of the API: what [`review`] finds in a file with nothing else in it.
///
/// Findings have no positions, and the objects that go with a job are unknown.
pub fn review_object(object: &serde_json::Value, profile: Option<Profile>) -> Vec<Finding> {
    match spec::document_from_value(object) {
        Ok(document) => review_document(&document, &Companions::default(), profile),
        Err(finding) => vec![*finding],
    }
}

/// What a file is judged with.
struct Context<'a> {
    companions: Companions<'a>,
    contents: Contents,
    profile: Option<Profile>,
}

impl<'a> Context<'a> {
    fn of(files: &[&'a File], profile: Option<Profile>) -> Self {
        let mut companions = Companions::default();
        for document in files.iter().flat_map(|file| &file.documents) {
            if document.role_in_file() == RoleInFile::Companion {
                companions.add(document);
            }
        }
        Self {
            companions,
            contents: Contents::of(files.iter().copied()),
            profile,
        }
    }

    /// The findings of `file`, which is one of those the context is made of.
    fn review(&self, file: &File) -> Vec<Finding> {
        let mut findings = file_findings(file, self.contents);
        for (part, document) in self.contents.parts(file) {
            if part != Part::Foreign {
                findings.extend(review_document(document, &self.companions, self.profile));
            }
        }
        sort(&mut findings);
        findings
    }
}

fn review_document(
    document: &Document,
    companions: &Companions<'_>,
    profile: Option<Profile>,
) -> Vec<Finding> {
    let named = document.as_named();
    let document = &*named;
    let collector = Collector::default();
    let root = Place::root(&document.tree, &collector);
    let stated = document.annotation(spec::annotation::PROFILE);
    let profile = profile
        .or_else(|| Profile::parse(stated?.trim()))
        .unwrap_or_default();
    let mut checked = Vec::new();
    match document.role_in_file() {
        RoleInFile::Companion => {
            if document.is_fabric() {
                checked = crate::fabric::read(document).findings;
            }
            if let Some((kind, (name, _))) = document.kind().zip(document.name()) {
                let companion = Companion {
                    kind,
                    namespace: companions::namespace_of(document),
                    name,
                    tree: &document.tree,
                    place: root.clone(),
                };
                for advice in advice::all() {
                    match (advice.look, companions.cluster) {
                        (Look::Companion(look), _) => look(&advice.rule, &companion, companions),
                        (Look::ClusterCompanion(look), Some(cluster)) => {
                            look(&advice.rule, &companion, companions, cluster);
                        }
                        _ => {}
                    }
                }
            }
        }
        RoleInFile::Job(_) | RoleInFile::Unsupported => {
            let result = spec::check(document);
            checked = result.findings;
            if let Some(job) = &result.job {
                let fitted = companions.fabric_of(job).map(|fabric| fit(job, fabric));
                let job = fitted.as_ref().map_or(job, |fitted| &fitted.job);
                let scene = Scene::new(job, root.clone(), companions, fitted.as_ref());
                for advice in advice::all() {
                    if advice.rule.severity(profile).is_none() {
                        continue;
                    }
                    match (advice.look, companions.cluster) {
                        (Look::Job(look) | Look::Beside(look), _) => look(&advice.rule, &scene),
                        (Look::Cluster(look), Some(cluster)) => {
                            look(&advice.rule, &scene, cluster);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    drop(root);
    let mut found = collector.finish();
    let notes = Collector::default();
    let could_see = |code: &str| match advice::look_of(code) {
        Some(Look::Beside(_)) => !companions.is_empty() || companions.cluster.is_some(),
        Some(Look::Cluster(_) | Look::ClusterCompanion(_)) => companions.cluster.is_some(),
        // Not looked for in this profile; in the other one the entry may be needed.
        _ => rule(code).is_none_or(|rule| rule.severity(profile).is_some()),
    };
    let root = Place::root(&document.tree, &notes);
    allow::apply(document, &root, &mut found, could_see);
    drop(root);
    found.extend(notes.finish());
    found.retain_mut(
        |finding| match rule(finding.code).and_then(|rule| rule.severity(profile)) {
            Some(severity) => {
                finding.severity = severity;
                true
            }
            None => false,
        },
    );
    checked.extend(without_duplicates(found));
    checked
}

/// Without findings that repeat the same message at the same place: two roles may share one template by an alias, and
/// then have the place in common and not the path. A script may be one place of several findings.
fn without_duplicates(findings: Vec<Finding>) -> Vec<Finding> {
    let mut seen: BTreeMap<(&str, usize, usize), (String, BTreeSet<String>)> = BTreeMap::new();
    let is_new = |finding: &Finding| {
        let place = (finding.code, finding.span.start, finding.span.end);
        let (path, messages) = seen
            .entry(place)
            .or_insert_with(|| (finding.path.clone(), BTreeSet::new()));
        finding.span.line == 0 || *path == finding.path && messages.insert(finding.message.clone())
    };
    findings.into_iter().filter(is_new).collect()
}

fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| (finding.span.line, finding.span.column));
}
