//! What files that are given together hold.
//!
//! Owns the decision which documents are jobs, which go with one, which belong to somebody else and which are
//! refused. `lint`, `render`, `run` and every other command that reads job files ask here, so that they
//! accept the same files. Findings about a document come from elsewhere.

use super::{Document, File, Kind, RoleInFile, nearest};

/// What a document is to the files it was given with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A job of one of the kinds that are read.
    Job(Kind),
    /// A fabric, of whatever version.
    Fabric,
    /// An object that goes with a job, such as a `ConfigMap`.
    Companion,
    /// An object of somebody else beside a job, such as a `Deployment`: neither judged nor run.
    Foreign,
    /// Anything else; `spec::check` says why.
    Refused,
}

/// What all files together hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    has_job: bool,
}

impl Contents {
    /// Of files that belong together.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a File>) -> Self {
        Self {
            has_job: files.into_iter().any(has_job),
        }
    }

    /// Whether any of the files holds a job.
    pub fn has_job(&self) -> bool {
        self.has_job
    }

    /// The documents of `file`, which is one of those files, in their order.
    pub fn parts<'a>(&self, file: &'a File) -> impl Iterator<Item = (Part, &'a Document)> {
        let (any, here) = (self.has_job, has_job(file));
        let part = move |document: &Document| match document.role_in_file() {
            RoleInFile::Job(kind) => Part::Job(kind),
            RoleInFile::Companion if document.is_fabric() => Part::Fabric,
            RoleInFile::Companion => Part::Companion,
            // A file of values beside a manifest is not ours; a part of a manifest that has no kind is a mistake.
            RoleInFile::Unsupported if lacks_object_fields(document) && any && !here => {
                Part::Foreign
            }
            RoleInFile::Unsupported if document.is_of_others() && any => Part::Foreign,
            RoleInFile::Unsupported => Part::Refused,
        };
        file.documents
            .iter()
            .map(move |document| (part(document), document))
    }

    /// What of `file` belongs to somebody else, in words and in its order: kind and name.
    pub fn foreign(&self, file: &File) -> Vec<String> {
        let foreign = self.parts(file).filter(|(part, _)| *part == Part::Foreign);
        foreign.map(|(_, document)| words(document)).collect()
    }
}

fn has_job(file: &File) -> bool {
    let mut documents = file.documents.iter();
    documents.any(|document| document.job_kind().is_some())
}

/// Whether a document has nothing that an object has, as the values of a chart.
fn lacks_object_fields(document: &Document) -> bool {
    let mut keys = ["apiVersion", "kind", "metadata", "spec"].iter();
    keys.all(|key| document.tree.get(key).is_none())
}

impl Document {
    /// Whether the document is a whole object of a kind that is nothing like a job of ours.
    pub(crate) fn is_of_others(&self) -> bool {
        let (Some(version), Some(kind)) = (self.api_version(), self.kind()) else {
            return false;
        };
        let is_job_of_the_group = version.starts_with("kubeflow.org/") && kind.ends_with("Job");
        !is_job_of_the_group
            && !kind.ends_with("List")
            && (is_of_another_group(version, kind)
                || nearest(kind, Kind::READ.map(Kind::name)).is_none())
    }
}

/// Whether a kind that is not one of ours is in the group of another project. `RayJob` of `ray.io` is no
/// misspelled `JAXJob`.
fn is_of_another_group(version: &str, kind: &str) -> bool {
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let is_ours = |known: &Kind| known.name().eq_ignore_ascii_case(kind);
    group.contains('.') && !group.ends_with("kubeflow.org") && !Kind::READ.iter().any(is_ours)
}

/// Kind and name of a document, for a sentence.
pub(crate) fn words(document: &Document) -> String {
    match (document.kind(), document.name()) {
        (Some(kind), Some((name, _))) => format!("{kind} `{name}`"),
        (Some(kind), None) => kind.to_owned(),
        (None, _) => {
            let line = document.tree.head().line;
            format!("the document without a kind on line {line}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::read, *};

    const JOB: &str = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: j}\n";

    fn parts(files: &[&str]) -> Vec<Vec<Part>> {
        let files: Vec<File> = files
            .iter()
            .map(|text| read(text.as_bytes()).unwrap())
            .collect();
        let contents = Contents::of(&files);
        let of = |file| contents.parts(file).map(|(part, _)| part).collect();
        files.iter().map(of).collect()
    }

    #[test]
    fn parts_of_a_file_with_a_job() {
        let object = |version: &str, kind: &str| {
            format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n")
        };
        let cases = [
            (
                "job",
                object("kubeflow.org/v1", "TFJob"),
                Part::Job(Kind::Tf),
            ),
            ("companion", object("v1", "ConfigMap"), Part::Companion),
            (
                "fabric",
                object("trainyard.dev/v1alpha1", "Fabric"),
                Part::Fabric,
            ),
            ("apps", object("apps/v1", "Deployment"), Part::Foreign),
            (
                "dynamic resources",
                object("resource.nvidia.com/v1beta1", "ComputeDomain"),
                Part::Foreign,
            ),
            (
                "of the same group",
                object("kubeflow.org/v1", "Notebook"),
                Part::Foreign,
            ),
            (
                "unknown job of the group",
                object("kubeflow.org/v1", "MXJob"),
                Part::Refused,
            ),
            (
                "a typo",
                object("kubeflow.org/v1", "PyTorchJbo"),
                Part::Refused,
            ),
            (
                "a typo elsewhere",
                object("example.com/v1", "PyTorchjob"),
                Part::Refused,
            ),
            (
                "another version",
                object("kubeflow.org/v7", "TFJob"),
                Part::Refused,
            ),
            ("a list", object("v1", "List"), Part::Refused),
            ("no version", "kind: Deployment\n".to_owned(), Part::Refused),
            ("no object", "replicas: 3\n".to_owned(), Part::Refused),
        ];
        for (name, text, want) in cases {
            let found = parts(&[&format!("{JOB}---\n{text}")]);
            assert_eq!(found, [[Part::Job(Kind::Jax), want]], "{name}");
        }
    }

    #[test]
    fn without_a_job_nothing_is_foreign() {
        let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n";
        assert_eq!(parts(&[deployment]), [[Part::Refused]]);
        let job = Part::Job(Kind::Jax);
        assert_eq!(parts(&[deployment, JOB]), [[Part::Foreign], [job]]);
        assert_eq!(parts(&["replicas: 3\n", JOB]), [[Part::Foreign], [job]]);
    }
}
