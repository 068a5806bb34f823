//! From a document to a [`Job`], or to every reason why not.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use super::{
    Document, Job, Kind, Node, RoleInFile,
    collector::{Collector, Place},
    decode::decode,
    nearest::nearest,
    placeholder, trainjob,
    tree::{Value, push_index, push_key},
    validate,
    wire::{self, Object},
};
use crate::finding::{Finding, Span, catalogue};

/// What came of checking a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The job; there unless a finding is an error.
    pub job: Option<Job>,
    /// Everything found, in the order of position.
    pub findings: Vec<Finding>,
}

/// Checks one document of a file.
pub fn check(document: &Document) -> Checked {
    let draft = draft(document);
    Checked {
        job: draft.job.filter(|_| !draft.failed),
        findings: placeholder::gather(draft.findings, &document.source),
    }
}

/// A document as far as it could be read, for a linter that looks further than the first error.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The job, where the document is one. Parts with errors have a value that stands in for them.
    pub(crate) job: Option<Job>,
    /// Whether a finding is an error.
    pub(crate) failed: bool,
    /// Everything found, in the order of position; each placeholder by itself.
    pub(crate) findings: Vec<Finding>,
}

/// Reads one document and does not stop at its errors.
pub(crate) fn draft(document: &Document) -> Draft {
    let collector = Collector::default();
    let job = if let Some(kind) = document.job_kind() {
        // A `TrainJob` has its roles from another document.
        let sheet = Sheet::decode(kind, document, &collector);
        Some(sheet.map_or_else(|| trainjob::job(document, &collector), validate::job))
    } else {
        collector.add(not_a_job(document));
        None
    };
    Draft {
        job,
        failed: collector.failed(),
        findings: collector.finish(),
    }
}

/// Checks an object of the API, which has no positions.
pub fn job_from_value(value: &serde_json::Value) -> Checked {
    match document_from_value(value) {
        Ok(document) => check(&document),
        Err(finding) => Checked {
            job: None,
            findings: vec![*finding],
        },
    }
}

/// An object of the API as a document, which has no positions.
pub(crate) fn document_from_value(value: &serde_json::Value) -> Result<Document, Box<Finding>> {
    let tree = Node::from_json(value).ok_or_else(|| {
        Box::new(Finding::new(
            &catalogue::TOO_DEEP,
            "",
            Span::default(),
            format!(
                "lists and maps are nested more than {} deep",
                super::MAX_DEPTH
            ),
        ))
    })?;
    Ok(Document {
        tree,
        source: "".into(),
        runtimes: std::sync::Arc::default(),
    })
}

/// The supported kinds, for a sentence.
pub(crate) fn kinds_read() -> String {
    let mut names: Vec<String> = Vec::new();
    for kind in Kind::READ {
        let name = kind.name();
        if !names.iter().any(|known| known.contains(name)) {
            names.push(format!("`{name}`"));
        }
    }
    names.join(", ")
}

/// A decoded job of any kind, with its places.
pub(super) struct Sheet<'a> {
    pub(super) kind: Kind,
    pub(super) root: Place<'a>,
    pub(super) metadata: ObjectMeta,
    pub(super) run_policy: wire::RunPolicy,
    pub(super) roles: Option<wire::ReplicaSpecs>,
    pub(super) own: Own,
}

/// What only one kind has.
pub(super) enum Own {
    PyTorch {
        nproc_per_node: Option<String>,
        elastic: Option<wire::ElasticPolicy>,
    },
    Tf {
        success_policy: Option<String>,
        dynamic_worker: bool,
    },
    MpiV1 {
        slots_per_worker: Option<i64>,
        clean_pod_policy: Option<String>,
        main_container: Option<String>,
    },
    MpiV2 {
        slots_per_worker: Option<i64>,
        run_launcher_as_worker: bool,
        ssh_auth_mount_path: Option<String>,
        launcher_creation_policy: Option<String>,
        mpi_implementation: Option<String>,
    },
    XgBoost,
    Paddle {
        elastic: Option<wire::PaddleElasticPolicy>,
    },
    Jax,
}

impl<'a> Sheet<'a> {
    /// Nothing for a `TrainJob`, which is not a map of roles.
    fn decode(kind: Kind, document: &'a Document, collector: &'a Collector) -> Option<Self> {
        let (metadata, run_policy, roles, own) = match kind {
            Kind::PyTorch => {
                let (metadata, spec) = object::<wire::PyTorchJobSpec>(document, collector);
                let own = Own::PyTorch {
                    nproc_per_node: spec.nproc_per_node,
                    elastic: spec.elastic_policy,
                };
                (metadata, spec.run_policy, spec.pytorch_replica_specs, own)
            }
            Kind::Tf => {
                let (metadata, spec) = object::<wire::TfJobSpec>(document, collector);
                let own = Own::Tf {
                    success_policy: spec.success_policy,
                    dynamic_worker: spec.enable_dynamic_worker.unwrap_or(false),
                };
                (metadata, spec.run_policy, spec.tf_replica_specs, own)
            }
            Kind::MpiV1 => {
                let (metadata, spec) = object::<wire::MpiJobV1Spec>(document, collector);
                let own = Own::MpiV1 {
                    slots_per_worker: spec.slots_per_worker,
                    clean_pod_policy: spec.clean_pod_policy,
                    main_container: spec.main_container,
                };
                (metadata, spec.run_policy, spec.mpi_replica_specs, own)
            }
            Kind::MpiV2 => {
                let (metadata, spec) = object::<wire::MpiJobV2Spec>(document, collector);
                let own = Own::MpiV2 {
                    slots_per_worker: spec.slots_per_worker,
                    run_launcher_as_worker: spec.run_launcher_as_worker.unwrap_or(false),
                    ssh_auth_mount_path: spec.ssh_auth_mount_path,
                    launcher_creation_policy: spec.launcher_creation_policy,
                    mpi_implementation: spec.mpi_implementation,
                };
                (metadata, spec.run_policy, spec.mpi_replica_specs, own)
            }
            Kind::XgBoost => {
                let (metadata, spec) = object::<wire::XgBoostJobSpec>(document, collector);
                (
                    metadata,
                    spec.run_policy,
                    spec.xgb_replica_specs,
                    Own::XgBoost,
                )
            }
            Kind::Paddle => {
                let (metadata, spec) = object::<wire::PaddleJobSpec>(document, collector);
                let own = Own::Paddle {
                    elastic: spec.elastic_policy,
                };
                (metadata, spec.run_policy, spec.paddle_replica_specs, own)
            }
            Kind::Jax => {
                let (metadata, spec) = object::<wire::JaxJobSpec>(document, collector);
                (metadata, spec.run_policy, spec.jax_replica_specs, Own::Jax)
            }
            Kind::Train => return None,
        };
        Some(Self {
            kind,
            root: Place::root(&document.tree, collector),
            metadata,
            run_policy: run_policy.unwrap_or_default(),
            roles,
            own,
        })
    }

    /// The place of `spec`.
    pub(super) fn spec(&self) -> Place<'a> {
        self.root.key("spec")
    }
}

fn object<S: DeserializeOwned + Default>(
    document: &Document,
    collector: &Collector,
) -> (ObjectMeta, S) {
    let object: Object<S> = decode(&document.tree, &document.source, collector);
    (object.metadata, object.spec)
}

fn not_a_job(document: &Document) -> Finding {
    let at = |key: &str| match document.tree.get(key) {
        Some(entry) => entry.value.head(),
        None => document.tree.head(),
    };
    let read = format!("the supported kinds are {}", kinds_read());
    let (Some(kind), Some(version)) = (document.kind(), document.api_version()) else {
        let missing = if document.kind().is_none() {
            "kind"
        } else {
            "apiVersion"
        };
        let message = format!("the document has no `{missing}`");
        return Finding::new(&catalogue::NOT_A_JOB, missing, at(missing), message).with_hint(read);
    };
    let versions: Vec<&str> = Kind::READ
        .into_iter()
        .filter(|known| known.name() == kind)
        .map(Kind::api_version)
        .collect();
    if !versions.is_empty() {
        let message = format!("`{kind}` is not supported in apiVersion `{version}`");
        let right: Vec<String> = versions
            .iter()
            .map(|right| format!("`apiVersion: {right}`"))
            .collect();
        let rule = &catalogue::WRONG_API_VERSION;
        return Finding::new(rule, "apiVersion", at("apiVersion"), message)
            .with_hint(format!("write {}", right.join(" or ")));
    }
    if kind.ends_with("List") {
        let message = format!("`{kind}` wraps several objects in one, which is not supported");
        return Finding::new(&catalogue::LIST_OBJECT, "kind", at("kind"), message)
            .with_hint("write each object as a document of its own, separated by `---`");
    }
    let message = match document.role_in_file() {
        RoleInFile::Companion => format!("`{kind}` goes with a job but is not a job"),
        _ => format!("`{kind}` of apiVersion `{version}` is not a supported job"),
    };
    let names = Kind::READ.map(Kind::name);
    let hint = match (
        nearest(kind, names),
        inner_job(&document.tree, &mut String::new()),
    ) {
        (Some(meant), _) => format!("did you mean `{meant}`? {read}"),
        (None, Some((inner, path))) => {
            format!("write the {inner} at `{path}` as a document of its own to check it")
        }
        (None, None) => read,
    };
    Finding::new(&catalogue::NOT_A_JOB, "kind", at("kind"), message).with_hint(hint)
}

/// The kind and the path of the first job that is a part of another object.
fn inner_job(node: &Node, path: &mut String) -> Option<(&'static str, String)> {
    let text = |key: &str| node.get(key)?.value.as_str();
    let here = text("apiVersion").zip(text("kind"));
    if let Some(kind) = here.and_then(|(version, kind)| Kind::find(version, kind)) {
        return Some((kind.name(), path.clone()));
    }
    let length = path.len();
    match &node.value {
        Value::Map(entries) => entries.iter().find_map(|entry| {
            push_key(path, &entry.key);
            let found = inner_job(&entry.value, path);
            path.truncate(length);
            found
        }),
        Value::List(items) => items.iter().enumerate().find_map(|(index, item)| {
            push_index(path, index);
            let found = inner_job(item, path);
            path.truncate(length);
            found
        }),
        _ => None,
    }
}
