//! Objects of Kubernetes by their own types: fields that do not exist, values of another type, amounts that cannot be read.
//!
//! Owns which objects are read so: those of Kubernetes itself, and the pods in jobs of others that embed its
//! templates unchanged. What it finds has the codes of the contract, as the same mistake in a job has.
//!
//! Invariant: a `kind` of another `apiVersion` than the one that is named here is never read by these types.

use k8s_openapi::{
    Resource,
    api::{
        apps::v1 as apps, autoscaling::v2 as autoscaling, batch::v1 as batch, core::v1 as core,
        networking::v1 as networking, policy::v1 as policy, scheduling::v1 as scheduling,
        storage::v1 as storage,
    },
};
use serde::Deserialize;

use super::companions::at;
use crate::{
    finding::Finding,
    spec::{
        Collector, Document, Node, Value, decode, placeholder::is_placeholder, push_index, push_key,
    },
};

/// Groups whose objects hold templates of Kubernetes, unchanged.
const EMBEDDING: [&str; 4] = [
    "batch.volcano.sh",
    "jobset.x-k8s.io",
    "leaderworkerset.x-k8s.io",
    "ray.io",
];

/// What the API server refuses or drops of `document`.
pub(super) fn read(document: &Document) -> Vec<Finding> {
    let mut found = whole(document).unwrap_or_else(|| embedded(document));
    // The marks of a patch are no fields, and the cluster reads base64 in several lines, too.
    let has_base64 = |path: &str| {
        let in_secret = path.starts_with("data") && document.kind() == Some("Secret");
        path.starts_with("binaryData") || in_secret
    };
    found.retain(|finding| {
        let skipped = finding.path.contains('$') || has_base64(&finding.path);
        !skipped && !is_open(&finding.message)
    });
    found
}

/// Whether what a message quotes last is still to be filled in: by whom is not known of an object of others.
fn is_open(message: &str) -> bool {
    let quoted = message.rsplit('`').nth(1);
    quoted.is_some_and(is_placeholder)
}

fn by<'a, T: Deserialize<'a> + Default>(document: &'a Document) -> Vec<Finding> {
    let collector = Collector::default();
    drop(decode::<T>(&document.tree, &document.source, &collector));
    collector.finish()
}

/// The findings of an object of Kubernetes itself; `None` where it is none.
fn whole(document: &Document) -> Option<Vec<Finding>> {
    fn is<T: Resource>(document: &Document) -> bool {
        document.kind() == Some(T::KIND) && document.api_version() == Some(T::API_VERSION)
    }
    macro_rules! first {
        ($($kind:ty,)*) => {
            $(
                if is::<$kind>(document) {
                    return Some(by::<$kind>(document));
                }
            )*
        };
    }
    first![
        apps::DaemonSet,
        apps::Deployment,
        apps::ReplicaSet,
        apps::StatefulSet,
        autoscaling::HorizontalPodAutoscaler,
        batch::CronJob,
        batch::Job,
        core::ConfigMap,
        core::LimitRange,
        core::PersistentVolume,
        core::PersistentVolumeClaim,
        core::Pod,
        core::ResourceQuota,
        core::Secret,
        core::Service,
        core::ServiceAccount,
        networking::NetworkPolicy,
        policy::PodDisruptionBudget,
        scheduling::PriorityClass,
        storage::StorageClass,
    ];
    None
}

/// The findings of the templates in an object of others.
fn embedded(document: &Document) -> Vec<Finding> {
    let version = document.api_version().unwrap_or_default();
    let group = version.split('/').next().unwrap_or_default();
    let mut found = Vec::new();
    if EMBEDDING.contains(&group)
        && let Some(spec) = at(&document.tree, &["spec"])
    {
        templates(spec, &document.source, &mut "spec".to_owned(), &mut found);
    }
    found
}

/// Looks for templates below `node`, which is at `path`.
fn templates(node: &Node, source: &str, path: &mut String, found: &mut Vec<Finding>) {
    let length = path.len();
    match &node.value {
        Value::Map(entries) => {
            for entry in entries.iter().filter(|entry| entry.value.is_collection()) {
                push_key(path, &entry.key);
                let is_template = entry.key.ends_with("emplate");
                let has = |keys: &[&str]| at(&entry.value, keys).is_some();
                if is_template && has(&["spec", "containers"]) {
                    below::<core::PodTemplateSpec>(&entry.value, source, path, found);
                } else if is_template && has(&["spec", "template", "spec"]) {
                    below::<batch::JobTemplateSpec>(&entry.value, source, path, found);
                } else {
                    templates(&entry.value, source, path, found);
                }
                path.truncate(length);
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                push_index(path, index);
                templates(item, source, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn below<'a, T: Deserialize<'a> + Default>(
    node: &'a Node,
    source: &str,
    path: &str,
    found: &mut Vec<Finding>,
) {
    let collector = Collector::default();
    drop(decode::<T>(node, source, &collector));
    found.extend(collector.finish().into_iter().map(|mut finding| {
        finding.path = format!("{path}.{}", finding.path);
        finding
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec;

    fn found(text: &str) -> Vec<String> {
        let file = spec::read(text.as_bytes()).unwrap();
        let found = file.documents.iter().flat_map(read);
        found
            .map(|finding| format!("{} {}", finding.code, finding.path))
            .collect()
    }

    #[test]
    fn objects_are_read_by_their_own_types() {
        const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, creationTimestamp: null}\nspec:\n  parallelism: 2\n  template:\n    metadata: {annotations: {sidecar.istio.io/inject: \"false\"}}\n    spec:\n      nodeSelector: {gpu: \"true\"}\n      containers: [{name: a, image: b:1, env: [{name: A, value: \"1\"}], resources: {limits: {cpu: 0.5, memory: 1Gi}}}]\nstatus: {}\n";
        const SET: &str = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\nspec:\n  coordinator: {replicatedJob: a}\n  replicatedJobs:\n  - name: a\n    groupName: b\n    template: {spec: {template: {spec: {containers: [{name: a, image: b:1}]}}}}\n";
        let cases: &[(&str, String, &[&str])] = &[
            ("a good one", JOB.to_owned(), &[]),
            (
                "a number for text",
                JOB.replace("\"1\"", "1"),
                &["TY104 spec.template.spec.containers[0].env[0].value"],
            ),
            (
                "a word that YAML reads as a yes",
                JOB.replace("\"true\"", "true"),
                &["TY104 spec.template.spec.nodeSelector.gpu"],
            ),
            (
                "an annotation that is no text",
                JOB.replace("\"false\"", "false"),
                &["TY104 spec.template.metadata.annotations[sidecar.istio.io/inject]"],
            ),
            (
                "a field at another place",
                JOB.replace("nodeSelector:", "backoffLimit: 3\n      nodeSelector:"),
                &["TY106 spec.template.spec.backoffLimit"],
            ),
            (
                "the unit of a byte",
                JOB.replace("1Gi", "1GB"),
                &["TY104 spec.template.spec.containers[0].resources.limits.memory"],
            ),
            (
                "a number that is still to be filled in",
                JOB.replace("parallelism: 2", "parallelism: ${PODS}"),
                &[],
            ),
            (
                "a kind of another group",
                JOB.replace("batch/v1", "example.com/v1")
                    .replace("parallelism", "parts"),
                &[],
            ),
            (
                "a patch",
                JOB.replace("      containers", "      $patch: merge\n      containers"),
                &[],
            ),
            ("a template of others", SET.to_owned(), &[]),
            (
                "a field that the template of others has not",
                SET.replace("image: b:1", "image: b:1, resource: {}"),
                &[
                    "TY106 spec.replicatedJobs[0].template.spec.template.spec.containers[0].resource",
                ],
            ),
        ];
        for (name, text, want) in cases {
            assert_eq!(found(text), *want, "{name}");
        }
    }
}
