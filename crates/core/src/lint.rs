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
    finding::{Finding, Severity, Span, catalogue},
    spec::{self, Collector, Contents, Document, File, Kind, Part, Place, RoleInFile},
};

mod admit;
mod advice;
mod allow;
mod beside;
mod cluster;
mod command;
mod companions;
mod deepspeed;
#[cfg(test)]
pub(crate) mod examples;
mod fabric;
mod fix;
mod hygiene;
mod labels;
mod memory_devices;
mod objects;
mod placement;
mod recovery;
mod scene;
mod script;
mod shape;
mod strict;
#[cfg(test)]
mod tests;
mod unhidden;

use advice::Look;
use companions::{Companion, Companions};
use objects::Inner;
use scene::Scene;

pub use crate::finding::{Profile, Rule};
pub use admit::{Admitted, admit, admit_with_runtime};
pub use cluster::{ClusterFacts, namespaces};
pub use fix::{Fixed, fix};

/// Every rule, in the order of its code.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    // Each of the two is in order; the contract of a TrainJob has codes between those of advice.
    let mut contract = catalogue::RULES.iter().peekable();
    let mut advice = advice::all().map(|advice| &advice.rule).peekable();
    std::iter::from_fn(move || match (contract.peek(), advice.peek()) {
        (Some(ours), Some(theirs)) if ours.code > theirs.code => advice.next(),
        (Some(_), _) => contract.next(),
        (None, _) => advice.next(),
    })
}

/// The rule with `code`.
pub fn rule(code: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.code == code)
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
/// without that it is a demo. An object that is no job is judged for what it is: its pods, and what its kind
/// must be beside the others. A job inside of another object is judged as if it stood alone.
pub fn review(files: &[&File], profile: Option<Profile>) -> Vec<Vec<Finding>> {
    review_with(files, profile, None, files.len())
}

/// The findings of [`review`], and of what the files need and `cluster` does not have.
pub fn review_in(
    files: &[&File],
    profile: Option<Profile>,
    cluster: &ClusterFacts,
) -> Vec<Vec<Finding>> {
    review_with(files, profile, Some(cluster), files.len())
}

/// The findings of the first `count` files, judged together with all of them.
fn review_with(
    files: &[&File],
    profile: Option<Profile>,
    cluster: Option<&ClusterFacts>,
    count: usize,
) -> Vec<Vec<Finding>> {
    let mut inner: Vec<Vec<Inner>> = files.iter().map(|file| objects::inner(file)).collect();
    share_with_inner(files, &mut inner);
    let mut context = Context::of(files, &inner, profile);
    context.companions.cluster = cluster;
    let judged = files.iter().zip(&inner).take(count);
    judged
        .map(|(file, inner)| context.review(file, inner))
        .collect()
}

/// Shows the `TrainJob`s inside of other objects the runtimes of the files and those that are inside, too.
fn share_with_inner(files: &[&File], inner: &mut [Vec<Inner>]) {
    let documents = files.iter().flat_map(|file| &file.documents);
    let outer: Vec<&Document> = documents.filter(|document| document.is_runtime()).collect();
    let inside = inner.iter_mut().flatten().map(|inner| &mut inner.document);
    spec::add_runtimes(inside, &outer);
}

/// The findings of one object of the API: what [`review`] finds in a file with nothing else in it.
///
/// Findings have no positions, and the objects that go with a job are unknown.
pub fn review_object(object: &serde_json::Value, profile: Option<Profile>) -> Vec<Finding> {
    review_with_runtime(object, None, profile)
}

/// The same of an object that may be a `TrainJob` with this runtime.
fn review_with_runtime(
    object: &serde_json::Value,
    runtime: Option<&serde_json::Value>,
    profile: Option<Profile>,
) -> Vec<Finding> {
    match spec::document_with_runtime(object, runtime) {
        Ok(document) => {
            let as_what = As::of(&document);
            review_document(&document, as_what, &Companions::default(), profile)
        }
        Err(finding) => vec![*finding],
    }
}

/// Objects of the files that no rule looks at, in words: kind and name.
pub fn passed_over(files: &[&File]) -> Vec<String> {
    let contents = Contents::of(files.iter().copied());
    let parts = files.iter().flat_map(|file| contents.parts(file));
    let unread = parts.filter(|(part, document)| {
        let known = match As::of(document) {
            As::Part => true,
            As::Object => objects::is_judged(document),
            As::Job => false,
        };
        let without_finding = match part {
            Part::Foreign => true,
            Part::Refused => As::of(document) == As::Object && document.tree.get("spec").is_some(),
            Part::Job(_) | Part::Fabric | Part::Companion => false,
        };
        without_finding && !known
    });
    unread.map(|(_, document)| spec::words(document)).collect()
}

/// What a file is judged with.
struct Context<'a> {
    companions: Companions<'a>,
    contents: Contents,
    profile: Option<Profile>,
}

/// As what a document is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    /// A job, or what was to be one.
    Job,
    /// Another object.
    Object,
    /// A part of a manifest, or the values of a chart.
    Part,
}

impl As {
    fn of(document: &Document) -> Self {
        match document.role_in_file() {
            RoleInFile::Companion if document.is_runtime() => Self::Part,
            RoleInFile::Companion => Self::Object,
            RoleInFile::Unsupported if objects::is_part(document) => Self::Part,
            RoleInFile::Unsupported if document.is_of_others() => {
                if objects::is_composed(document) {
                    Self::Part
                } else {
                    Self::Object
                }
            }
            // Its pods are in two documents, so that the rules judge what each has.
            RoleInFile::Job(Kind::Train) => Self::Part,
            RoleInFile::Job(_) | RoleInFile::Unsupported => Self::Job,
        }
    }
}

impl<'a> Context<'a> {
    fn of(files: &[&'a File], inner: &'a [Vec<Inner>], profile: Option<Profile>) -> Self {
        let mut companions = Companions::default();
        let documents = files.iter().flat_map(|file| &file.documents);
        let inside = inner.iter().flatten().map(|inner| &inner.document);
        let all: Vec<&Document> = documents.chain(inside).collect();
        for document in &all {
            if document.job_kind().is_none() {
                companions.add(document);
            }
        }
        if companions.selects_pods() {
            for document in &all {
                companions.pods.add_pods(document);
            }
        }
        if companions.selects_services() {
            let services = all.iter().filter(|it| it.kind() == Some("Service"));
            for document in services {
                companions.services.add_service(document);
            }
        }
        Self {
            companions,
            contents: Contents::of(files.iter().copied()),
            profile,
        }
    }

    /// The findings of `file`, which is one of those the context is made of.
    fn review(&self, file: &File, inner: &[Inner]) -> Vec<Finding> {
        let mut findings = file_findings(file, self.contents);
        // An object that is no job is judged for what it is.
        findings.retain(|finding| finding.code != catalogue::NO_JOB.code);
        let holders: BTreeSet<usize> = inner.iter().map(|inner| inner.outer).collect();
        for (index, (part, document)) in self.contents.parts(file).enumerate() {
            let as_what = As::of(document);
            let mut found = match part {
                Part::Foreign if as_what == As::Job => continue,
                _ => review_document(document, as_what, &self.companions, self.profile),
            };
            if objects::is_filler(document) {
                // A step of a workflow is there to download, once.
                found.retain(|finding| is_not_open(finding) && finding.code != "TY606");
            }
            let empty = document.tree.get("spec").is_none() && !holders.contains(&index);
            if part == Part::Refused && as_what == As::Object && empty {
                found.extend(spec::draft(document).findings);
            }
            findings.extend(found);
        }
        for inside in inner {
            let document = &inside.document;
            let as_what = match document.role_in_file() {
                RoleInFile::Job(Kind::Train) => As::Part,
                RoleInFile::Job(_) => As::Job,
                _ if objects::is_composed(document) => As::Part,
                _ => As::Object,
            };
            let mut found = review_document(document, as_what, &self.companions, self.profile);
            if inside.filled {
                found.retain(is_not_open);
            }
            findings.extend(found.into_iter().map(|mut finding| {
                let dot = match finding.path.chars().next() {
                    None | Some('[') => "",
                    Some(_) => ".",
                };
                finding.path = format!("{}{dot}{}", inside.path, finding.path);
                finding
            }));
        }
        sort(&mut findings);
        findings
    }
}

/// Whether a finding is about more than a value that is still to be filled in.
fn is_not_open(finding: &Finding) -> bool {
    finding.code != catalogue::PLACEHOLDER.code
}

fn review_document(
    document: &Document,
    as_what: As,
    companions: &Companions<'_>,
    profile: Option<Profile>,
) -> Vec<Finding> {
    let named = document.as_named();
    let document = &*named;
    let stated = document.annotation(spec::annotation::PROFILE);
    let profile = profile
        .or_else(|| Profile::parse(stated?.trim()))
        .unwrap_or_default();
    let (mut checked, mut found) = match as_what {
        As::Job => review_job(document, companions, profile),
        As::Object | As::Part => review_other(document, as_what, companions, profile),
    };
    let notes = Collector::default();
    let could_see = |code: &str| match advice::look_of(code) {
        Some(Look::Beside(_)) => !companions.is_empty() || companions.cluster.is_some(),
        Some(Look::Cluster(_) | Look::ClusterCompanion(_)) => companions.cluster.is_some(),
        // These look at objects that may be in other files.
        _ if matches!(code, "TY306" | "TY901" | "TY902" | "TY903" | "TY904") => false,
        // These find more in production.
        _ if matches!(code, "TY401" | "TY412") && profile == Profile::Demo => false,
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
    // All that is in a text inside of the file has the place of that text.
    if !document.source.is_empty() {
        found = without_duplicates(found);
    }
    checked.extend(found);
    spec::placeholder::gather(checked, &document.source)
}

/// The findings of the contract of a job, and those of all rules about jobs.
fn review_job(
    document: &Document,
    companions: &Companions<'_>,
    profile: Profile,
) -> (Vec<Finding>, Vec<Finding>) {
    let mut draft = spec::draft(document);
    let Some(job) = &mut draft.job else {
        return (draft.findings, Vec::new());
    };
    if draft.failed {
        // How many pods there are is not known, but what is in them is.
        for role in job.roles.values_mut() {
            role.replicas = role.replicas.max(1);
        }
    }
    let job = &*job;
    let collector = Collector::default();
    {
        let fabric = companions.fabric_of(job).filter(|_| !draft.failed);
        let fitted = fabric.map(|fabric| fit(job, fabric));
        let job = fitted.as_ref().map_or(job, |fitted| &fitted.job);
        let root = Place::root(&document.tree, &collector);
        let scene = Scene::new(job, root, companions, fitted.as_ref(), profile);
        for advice in advice::all() {
            if advice.rule.severity(profile).is_none() {
                continue;
            }
            match (advice.look, companions.cluster) {
                (Look::Job(look) | Look::Beside(look), _) => look(&advice.rule, &scene),
                (Look::Cluster(look), Some(cluster)) if !draft.failed => {
                    look(&advice.rule, &scene, cluster);
                }
                _ => {}
            }
        }
    }
    let mut found = collector.finish();
    if draft.failed {
        let errors: Vec<&Finding> = draft
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        found.retain(|finding| !unhidden::follows(finding, &errors));
    }
    (draft.findings, found)
}

/// The findings of an object that is no job: of its kind, and of the pods in it.
fn review_other(
    document: &Document,
    as_what: As,
    companions: &Companions<'_>,
    profile: Profile,
) -> (Vec<Finding>, Vec<Finding>) {
    let mut checked = Vec::new();
    if document.is_fabric() {
        checked = crate::fabric::read(document).findings;
    }
    if document.job_kind() == Some(Kind::Train) {
        checked = spec::draft(document).findings;
    }
    checked.extend(strict::read(document));
    let collector = Collector::default();
    {
        let root = Place::root(&document.tree, &collector);
        let companion = Companion {
            kind: document.kind().unwrap_or_default(),
            namespace: companions::namespace_of(document),
            name: document.name().map_or("", |(name, _)| name),
            tree: &document.tree,
            place: root.clone(),
        };
        let part = as_what == As::Part;
        let stand_in = objects::stand_in(document);
        let templates = objects::templates(&root, &document.tree, part);
        let scene = Scene::of_templates(&stand_in, &templates, root, companions, profile, part);
        let has_gpus = scene.gpus() > 0;
        for advice in advice::all() {
            if advice.rule.severity(profile).is_none() {
                continue;
            }
            match (advice.look, companions.cluster) {
                (Look::Companion(look), _) => look(&advice.rule, &companion, companions),
                (Look::ClusterCompanion(look), Some(cluster)) => {
                    look(&advice.rule, &companion, companions, cluster);
                }
                (Look::Job(look) | Look::Beside(look), _)
                    if !templates.is_empty()
                        && objects::holds_for_pods(
                            advice.rule.code,
                            companion.kind,
                            part,
                            has_gpus,
                        ) =>
                {
                    look(&advice.rule, &scene);
                }
                _ => {}
            }
        }
    }
    let mut found = collector.finish();
    // In place of a namespace that is none, such as `${NAMESPACE}`, stands the default one.
    if spec::Namespace::parse(companions::namespace_of(document)).is_err() {
        found.retain(|finding| !unhidden::goes_by_namespace(finding.code));
    }
    (checked, found)
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
