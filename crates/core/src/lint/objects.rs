//! Objects that are not jobs: the objects inside of them, the pods in them, and parts of manifests.
//!
//! Owns where pods and jobs are found in an object of whatever kind. It judges nothing.

mod inside;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use inside::is_object;
pub(super) use inside::{Inner, inner, is_filler};

use super::scene::{PodPlaces, Template};
use crate::{
    finding::catalogue,
    spec::{
        self, Collector, Document, Framework, Job, JobName, JobSettings, Kind, Namespace, Node,
        Place, PyTorch, RunPolicy, Value, decode,
    },
};

/// Keys of the spec of a pod that tell a part of a manifest from other text.
const OF_PODS: [&str; 5] = [
    "containers",
    "hostNetwork",
    "initContainers",
    "topologySpreadConstraints",
    "volumes",
];

/// Whether pods of a whole object are anywhere in the tree.
pub(super) fn has_pods(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => {
            is_pod_spec(node) || entries.iter().any(|entry| holds_pods(&entry.value))
        }
        Value::List(items) => items.iter().any(holds_pods),
        _ => false,
    }
}

/// The same of a part of an object. An object in another one is judged by itself.
fn holds_pods(node: &Node) -> bool {
    !is_object(node) && has_pods(node)
}

fn is_pod_spec(node: &Node) -> bool {
    let entry = node
        .get("containers")
        .or_else(|| node.get("initContainers"));
    entry.is_some_and(|entry| match &entry.value.value {
        Value::List(items) => items.iter().any(is_container),
        _ => false,
    })
}

fn is_container(node: &Node) -> bool {
    node.get("name").is_some() && (node.get("image").is_some() || node.get("command").is_some())
}

fn has_variables(node: &Node) -> bool {
    node.get("env")
        .is_some_and(|entry| match &entry.value.value {
            Value::List(items) => items.iter().any(|item| item.get("name").is_some()),
            _ => false,
        })
}

/// The pod templates of an object, or of `part`s of one.
pub(super) fn templates<'a>(root: &Place<'a>, tree: &'a Node, part: bool) -> Vec<Template<'a>> {
    let mut found = Vec::new();
    let unheard = Collector::default();
    let replicas = if part { 2 } else { 1 };
    if part || has_pods(tree) {
        collect(tree, root, None, replicas, part, &unheard, &mut found);
    }
    if unheard.is_overfull() {
        root.report_with(
            &catalogue::TOO_MANY_VALUES,
            "the pods of the document have too many objects in them, not all are checked",
            "split it into several documents",
        );
    }
    found
}

/// The key of the one container of a step of a workflow, which is no list.
fn container_of_step(node: &Node) -> Option<&'static str> {
    let mut keys = ["container", "script"].into_iter();
    keys.find(|key| {
        let container = node.get(key).map(|entry| &entry.value);
        container.is_some_and(|container| container.get("image").is_some())
    })
}

/// What the trainer of a `TrainJob` says of the container of its runtime.
fn trainer_of(node: &Node, unheard: &Collector) -> Option<Container> {
    let says = ["image", "command", "args", "env", "resourcesPerNode"];
    says.iter().find_map(|key| node.get(key))?;
    let mut container: Container = decode(node, "", unheard);
    if let Some(entry) = node.get("resourcesPerNode") {
        container.resources = Some(decode(&entry.value, "", unheard));
    }
    Some(container)
}

/// `holder` is the map around a `spec`, which has the labels and annotations of the pod.
fn collect<'a>(
    node: &'a Node,
    place: &Place<'a>,
    holder: Option<(&'a Node, &Place<'a>)>,
    replicas: u32,
    part: bool,
    unheard: &Collector,
    found: &mut Vec<Template<'a>>,
) {
    if unheard.is_overfull() {
        return;
    }
    match &node.value {
        Value::Map(entries) => {
            if let Some(key) = container_of_step(node).filter(|_| part)
                && let Some(entry) = node.get(key)
            {
                let list = |key: &str| node.get(key).map(|entry| &entry.value);
                let spec = PodSpec {
                    containers: vec![decode(&entry.value, "", unheard)],
                    init_containers: list("initContainers").map(|list| decode(list, "", unheard)),
                    volumes: list("volumes").map(|list| decode(list, "", unheard)),
                    ..PodSpec::default()
                };
                let lone = Some(place.key(key));
                found.push(template(Some(spec), place, None, replicas, lone));
                return;
            }
            if part
                && place.path == "spec.trainer"
                && let Some(container) = trainer_of(node, unheard)
            {
                let spec = PodSpec {
                    containers: vec![container],
                    ..PodSpec::default()
                };
                let lone = Some(place.clone());
                found.push(template(Some(spec), place, None, replicas, lone));
                return;
            }
            // The volumes of a workflow are those of all its steps.
            let has_key = || {
                node.get("templates").is_none() && OF_PODS.iter().any(|key| node.get(key).is_some())
            };
            if is_pod_spec(node) || part && has_key() {
                let mut spec: PodSpec = decode(node, "", unheard);
                if spec.containers.is_empty() {
                    spec.containers.push(Container::default());
                }
                found.push(template(Some(spec), place, holder, replicas, None));
                return;
            }
            if part && has_variables(node) {
                let spec = PodSpec {
                    containers: vec![decode(node, "", unheard)],
                    ..PodSpec::default()
                };
                let lone = Some(place.clone());
                found.push(template(Some(spec), place, None, replicas, lone));
                return;
            }
            let stated = ["replicas", "parallelism"].iter().find_map(|key| {
                let Value::Int(count) = node.get(key)?.value.value else {
                    return None;
                };
                u32::try_from(count).ok()
            });
            let replicas = stated.unwrap_or(replicas);
            for entry in entries {
                if entry.value.is_collection() && !is_object(&entry.value) {
                    let holder = (entry.key == "spec").then_some((node, place));
                    let place = place.key(&entry.key);
                    collect(&entry.value, &place, holder, replicas, part, unheard, found);
                }
            }
        }
        Value::List(items) => {
            let items = items.iter().enumerate();
            for (index, item) in items.filter(|(_, item)| !is_object(item)) {
                let place = place.index(index);
                collect(item, &place, None, replicas, part, unheard, found);
            }
        }
        _ => {}
    }
}

fn template<'a>(
    spec: Option<PodSpec>,
    place: &Place<'a>,
    holder: Option<(&'a Node, &Place<'a>)>,
    replicas: u32,
    container: Option<Place<'a>>,
) -> Template<'a> {
    let metadata = holder.and_then(|(node, _)| node.get("metadata"));
    let metadata =
        metadata.map(|entry| decode::<ObjectMeta>(&entry.value, "", &Collector::default()));
    let around = holder.map_or_else(|| place.clone(), |(_, place)| place.clone());
    Template {
        replicas,
        pod: PodTemplateSpec { metadata, spec },
        place: around.clone(),
        places: PodPlaces {
            template: around,
            spec: place.clone(),
            container,
        },
    }
}

/// A job that carries the name and the namespace of an object that is none.
pub(super) fn stand_in(document: &Document) -> Job {
    let name = document
        .name()
        .and_then(|(name, _)| JobName::parse(name).ok());
    let namespace = document.namespace().unwrap_or(spec::DEFAULT_NAMESPACE);
    let namespace = Namespace::parse(namespace).ok();
    Job {
        kind: Kind::PyTorch,
        name: name.unwrap_or_else(|| JobName::parse("pods").expect("a plain word is a name")),
        namespace: namespace.unwrap_or_else(|| {
            Namespace::parse(spec::DEFAULT_NAMESPACE).expect("a plain word is a namespace")
        }),
        uid: None,
        annotations: std::collections::BTreeMap::new(),
        roles: std::collections::BTreeMap::new(),
        run_policy: RunPolicy::default(),
        framework: Framework::PyTorch(PyTorch::default()),
        settings: JobSettings::default(),
    }
}

/// The specs of pods in a tree, each with the map around it that has its labels.
pub(super) fn pod_specs<'a>(
    node: &'a Node,
    holder: Option<&'a Node>,
    found: &mut Vec<(Option<&'a Node>, &'a Node)>,
) {
    match &node.value {
        Value::Map(_) if is_pod_spec(node) => found.push((holder, node)),
        Value::Map(entries) => {
            for entry in entries.iter().filter(|entry| !is_object(&entry.value)) {
                let holder = (entry.key == "spec").then_some(node);
                pod_specs(&entry.value, holder, found);
            }
        }
        Value::List(items) => {
            let items = items.iter().filter(|item| !is_object(item));
            items.for_each(|item| pod_specs(item, None, found));
        }
        _ => {}
    }
}

/// Rules about pods of whatever object.
const FOR_PODS: [&str; 84] = [
    "TY151", "TY152", "TY157", "TY158", "TY160", "TY163", "TY164", "TY168", "TY170", "TY180",
    "TY181", "TY182", "TY201", "TY202", "TY203", "TY204", "TY205", "TY206", "TY207", "TY208",
    "TY209", "TY210", "TY212", "TY213", "TY214", "TY215", "TY217", "TY218", "TY219", "TY301",
    "TY302", "TY303", "TY309", "TY310", "TY311", "TY312", "TY313", "TY317", "TY323", "TY326",
    "TY327", "TY328", "TY402", "TY403", "TY406", "TY409", "TY413", "TY415", "TY417", "TY418",
    "TY419", "TY503", "TY504", "TY509", "TY514", "TY517", "TY518", "TY519", "TY520", "TY521",
    "TY522", "TY601", "TY602", "TY603", "TY604", "TY605", "TY606", "TY607", "TY609", "TY612",
    "TY613", "TY614", "TY615", "TY616", "TY617", "TY619", "TY620", "TY621", "TY622", "TY623",
    "TY624", "TY912", "TY932", "TY933",
];

/// Rules that a part of a manifest can break by what it has, whatever is around it.
const FOR_PARTS: [&str; 38] = [
    "TY157", "TY160", "TY168", "TY170", "TY180", "TY181", "TY203", "TY205", "TY213", "TY214",
    "TY215", "TY309", "TY310", "TY311", "TY312", "TY313", "TY317", "TY326", "TY328", "TY403",
    "TY409", "TY419", "TY503", "TY504", "TY509", "TY514", "TY517", "TY518", "TY520", "TY521",
    "TY601", "TY602", "TY603", "TY604", "TY606", "TY612", "TY613", "TY616",
];

/// Rules about what is started to end: not about what serves.
const FOR_WORK: [&str; 5] = ["TY181", "TY182", "TY409", "TY417", "TY418"];

/// Kinds whose pods run until their work is done.
const WORK: [&str; 7] = [
    "CronJob",
    "CronWorkflow",
    "Job",
    "JobSet",
    "Pod",
    "RayJob",
    "Workflow",
];

/// Whether the rule with `code` holds for the pods of an object of `kind` that is no job.
pub(super) fn holds_for_pods(code: &str, kind: &str, part: bool, has_gpus: bool) -> bool {
    if FOR_WORK.contains(&code) && !WORK.contains(&kind) {
        return false;
    }
    // A pod by itself is there to be entered, as a rule.
    if kind == "Pod" && matches!(code, "TY182" | "TY417") {
        return false;
    }
    if part {
        return FOR_PARTS.contains(&code);
    }
    // What serves is not started and ended with a gang.
    FOR_PODS.contains(&code) && (has_gpus || code != "TY209")
}

/// Kinds that a rule looks at, besides those that go with a job.
const JUDGED: [&str; 6] = [
    "CronJob",
    "HorizontalPodAutoscaler",
    "Job",
    "PodMonitor",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
];

/// Whether any rule looks at an object that neither is a job nor goes with one.
pub(super) fn is_judged(document: &Document) -> bool {
    let kind = document.kind().unwrap_or_default();
    JUDGED.contains(&kind) || has_pods(&document.tree) || has_object(&document.tree)
}

fn has_object(node: &Node) -> bool {
    let inside = |node: &Node| is_object(node) || has_object(node);
    match &node.value {
        Value::Map(entries) => entries.iter().any(|entry| inside(&entry.value)),
        Value::List(items) => items.iter().any(inside),
        _ => false,
    }
}

/// Kinds whose pods are put together from several objects, or by marks that are filled in later, so that what is not
/// there proves nothing.
const COMPOSED: [&str; 7] = [
    "ClusterTrainingRuntime",
    "ClusterWorkflowTemplate",
    "CronWorkflow",
    "TrainJob",
    "TrainingRuntime",
    "Workflow",
    "WorkflowTemplate",
];

/// Whether an object is judged by what it has only.
pub(super) fn is_composed(document: &Document) -> bool {
    document.kind().is_some_and(|kind| COMPOSED.contains(&kind))
}

/// Whether a document is a part of a manifest, the values of a chart or a configuration of `DeepSpeed`.
pub(super) fn is_part(document: &Document) -> bool {
    let tree = &document.tree;
    let is_object = ["apiVersion", "kind", "metadata"]
        .iter()
        .any(|key| tree.get(key).is_some());
    !is_object && (is_values(tree) || is_deepspeed(tree) || has_part(tree))
}

fn has_part(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => {
            OF_PODS.iter().any(|key| node.get(key).is_some())
                || has_variables(node)
                || entries.iter().any(|entry| has_part(&entry.value))
        }
        Value::List(items) => items.iter().any(has_part),
        _ => false,
    }
}

/// Whether a document without a kind is the values of a chart.
pub(super) fn is_values(tree: &Node) -> bool {
    let image = tree.get("image").is_some_and(|entry| {
        entry.value.as_str().is_some() || entry.value.get("repository").is_some()
    });
    image || tree.get("replicaCount").is_some()
}

/// Whether a document without a kind is a configuration of `DeepSpeed`.
pub(super) fn is_deepspeed(tree: &Node) -> bool {
    [
        "zero_optimization",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
    ]
    .iter()
    .any(|key| tree.get(key).is_some())
}
