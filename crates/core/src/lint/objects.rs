//! Objects that are not jobs: the objects inside of them, the pods in them, and parts of manifests.
//!
//! Owns where pods and jobs are found in an object of whatever kind. It judges nothing.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::scene::{PodPlaces, Template};
use crate::{
    finding::{Span, catalogue},
    spec::{
        self, Collector, Document, Entry, File, Framework, Job, JobName, JobSettings, Kind,
        Namespace, Node, Place, PyTorch, RoleInFile, RunPolicy, Value, decode, push_index,
        push_key,
    },
};

/// An object inside of a document, such as a job inside of an `AppWrapper`.
#[derive(Debug)]
pub(super) struct Inner {
    /// Where in the document.
    pub(super) path: String,
    /// The document that it is in, counted in the file.
    pub(super) outer: usize,
    /// Whether what stands in it for a value is filled in by the object around it.
    pub(super) filled: bool,
    pub(super) document: Document,
}

/// Every object inside of the documents of `file`.
pub(super) fn inner(file: &File) -> Vec<Inner> {
    let mut found = Vec::new();
    for (outer, document) in file.documents.iter().enumerate() {
        let mut walk = Walk {
            outer,
            document,
            found: &mut found,
            path: String::new(),
            fills: is_filler(document),
        };
        match document.role_in_file() {
            RoleInFile::Unsupported => walk.children(&document.tree),
            RoleInFile::Companion if document.kind() == Some("ConfigMap") => walk.jobs_of_map(),
            RoleInFile::Companion | RoleInFile::Job(_) => {}
        }
    }
    found
}

struct Walk<'a> {
    outer: usize,
    document: &'a Document,
    found: &'a mut Vec<Inner>,
    path: String,
    /// Whether something fills in what is inside, names included, before the cluster gets it.
    fills: bool,
}

impl Walk<'_> {
    /// The jobs in the texts of a `ConfigMap`: templates of trials. Other objects there are somebody's data.
    fn jobs_of_map(&mut self) {
        let document = self.document;
        let Some(Value::Map(entries)) = document.tree.get("data").map(|data| &data.value.value)
        else {
            return;
        };
        self.fills = true;
        for entry in entries {
            let Some(text) = entry.value.as_str().filter(|text| may_be_job(text)) else {
                continue;
            };
            let before = self.found.len();
            push_key(&mut self.path, "data");
            push_key(&mut self.path, &entry.key);
            self.text(text, entry.value.span);
            self.path.clear();
            let texts = self.found.split_off(before);
            let jobs = texts
                .into_iter()
                .filter(|inner| inner.document.job_kind().is_some());
            self.found.extend(jobs);
        }
    }

    fn children(&mut self, node: &Node) {
        let length = self.path.len();
        match &node.value {
            Value::Map(entries) => {
                for entry in entries {
                    push_key(&mut self.path, &entry.key);
                    match entry.value.as_str() {
                        // A workflow creates objects from text.
                        Some(text) if entry.key == "manifest" => self.text(text, entry.value.span),
                        Some(_) => {}
                        None => self.node(&entry.value),
                    }
                    self.path.truncate(length);
                }
            }
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    push_index(&mut self.path, index);
                    self.node(item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn node(&mut self, node: &Node) {
        if is_object(node) {
            let mut document = Document {
                tree: node.clone(),
                source: self.document.source.clone(),
            };
            let is_job = document.job_kind().is_some();
            if self.fills && is_job {
                fill(&mut document.tree);
            }
            self.push(document);
            if is_job {
                return;
            }
        }
        self.children(node);
    }

    /// Objects in a text have no places of their own: all of them are where the text is.
    fn text(&mut self, text: &str, span: Span) {
        let Ok(file) = spec::read(text.as_bytes()) else {
            return;
        };
        let begin = Span {
            end: span.start,
            ..span
        };
        for mut document in file.documents.into_iter().filter(|it| is_object(&it.tree)) {
            if self.fills {
                fill(&mut document.tree);
            }
            move_to(&mut document.tree, begin);
            document.source = "".into();
            self.push(document);
        }
    }

    fn push(&mut self, document: Document) {
        self.found.push(Inner {
            path: self.path.clone(),
            outer: self.outer,
            filled: self.fills,
            document,
        });
    }
}

/// Kinds that fill in the names and values of what is inside of them, each by marks of its own.
const FILLERS: [&str; 6] = [
    "ClusterWorkflowTemplate",
    "CronWorkflow",
    "Experiment",
    "TriggerTemplate",
    "Workflow",
    "WorkflowTemplate",
];

pub(super) fn is_filler(document: &Document) -> bool {
    document.kind().is_some_and(|kind| FILLERS.contains(&kind))
}

/// Whether a text may hold a job, without reading it.
fn may_be_job(text: &str) -> bool {
    text.contains("apiVersion:") && Kind::ALL.iter().any(|kind| text.contains(kind.name()))
}

/// Writes something in place of the marks in the name and the images of an object, and gives it a name where it has
/// none: whoever creates the object does the same.
fn fill(object: &mut Node) {
    let entry = |key: &str, value: Value, span: Span| Entry {
        key: key.to_owned(),
        key_span: span,
        value: Node { value, span },
    };
    let span = object.span;
    let span = Span {
        end: span.start,
        ..span
    };
    let Value::Map(entries) = &mut object.value else {
        return;
    };
    if !entries.iter().any(|entry| entry.key == "metadata") {
        entries.push(entry("metadata", Value::Map(Vec::new()), span));
    }
    for metadata in entries.iter_mut().filter(|entry| entry.key == "metadata") {
        let Value::Map(fields) = &mut metadata.value.value else {
            continue;
        };
        let mut names = fields.iter_mut();
        match names.find(|field| matches!(field.key.as_str(), "name" | "generateName")) {
            Some(name) => unmark(&mut name.value),
            None => fields.push(entry("name", Value::String(FILLED.to_owned()), span)),
        }
        fields
            .iter_mut()
            .filter(|field| field.key == "namespace")
            .for_each(|field| unmark(&mut field.value));
    }
    images(object);
}

fn images(node: &mut Node) {
    match &mut node.value {
        Value::Map(entries) => {
            for entry in entries {
                if entry.key == "image" {
                    unmark(&mut entry.value);
                    if let Value::String(image) = &mut entry.value.value
                        && image.ends_with(FILLED)
                        && !image.contains(':')
                    {
                        // What fills in the name fills in a tag with it.
                        image.push_str(":1");
                    }
                }
                images(&mut entry.value);
            }
        }
        Value::List(items) => items.iter_mut().for_each(images),
        _ => {}
    }
}

/// What stands for a value that is filled in later, in a name.
const FILLED: &str = "filled-in";

/// Replaces each `{{…}}`, `${…}` and `$(…)` of a text.
fn unmark(node: &mut Node) {
    let Value::String(text) = &mut node.value else {
        return;
    };
    for (open, close) in [("{{", "}}"), ("${", "}"), ("$(", ")")] {
        let mut filled = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(open) {
            let Some((_, after)) = after.split_once(close) else {
                break;
            };
            filled.push_str(before);
            filled.push_str(FILLED);
            rest = after;
        }
        filled.push_str(rest);
        *text = filled;
    }
}

fn move_to(node: &mut Node, span: Span) {
    node.span = span;
    match &mut node.value {
        Value::Map(entries) => {
            for entry in entries {
                entry.key_span = span;
                move_to(&mut entry.value, span);
            }
        }
        Value::List(items) => items.iter_mut().for_each(|item| move_to(item, span)),
        _ => {}
    }
}

/// Whether a node is an object of the API and not a reference to one.
fn is_object(node: &Node) -> bool {
    let text = |key: &str| node.get(key).and_then(|entry| entry.value.as_str());
    let holds = ["spec", "data", "metadata"].iter().any(|key| {
        node.get(key)
            .is_some_and(|entry| entry.value.is_collection())
    });
    text("apiVersion").is_some() && text("kind").is_some() && holds
}

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
const FOR_PODS: [&str; 63] = [
    "TY157", "TY158", "TY160", "TY163", "TY164", "TY168", "TY170", "TY201", "TY202", "TY203",
    "TY204", "TY205", "TY206", "TY207", "TY208", "TY209", "TY210", "TY212", "TY213", "TY214",
    "TY215", "TY217", "TY218", "TY219", "TY301", "TY302", "TY303", "TY309", "TY310", "TY311",
    "TY312", "TY313", "TY317", "TY323", "TY326", "TY327", "TY328", "TY402", "TY403", "TY406",
    "TY413", "TY415", "TY419", "TY503", "TY504", "TY509", "TY514", "TY601", "TY602", "TY603",
    "TY604", "TY605", "TY606", "TY607", "TY609", "TY612", "TY613", "TY614", "TY615", "TY616",
    "TY617", "TY619", "TY620",
];

/// Rules that a part of a manifest can break by what it has, whatever is around it.
const FOR_PARTS: [&str; 31] = [
    "TY157", "TY160", "TY168", "TY170", "TY203", "TY205", "TY213", "TY214", "TY215", "TY309",
    "TY310", "TY311", "TY312", "TY313", "TY317", "TY326", "TY328", "TY403", "TY419", "TY503",
    "TY504", "TY509", "TY514", "TY601", "TY602", "TY603", "TY604", "TY606", "TY612", "TY613",
    "TY616",
];

/// Whether the rule with `code` holds for the pods of an object that is no job.
pub(super) fn holds_for_pods(code: &str, part: bool, has_gpus: bool) -> bool {
    if part {
        return FOR_PARTS.contains(&code);
    }
    // What serves is not started and ended with a gang.
    FOR_PODS.contains(&code) && (has_gpus || code != "TY209")
}

/// Kinds that a rule looks at, besides those that go with a job.
const JUDGED: [&str; 5] = [
    "CronJob",
    "HorizontalPodAutoscaler",
    "Job",
    "PodMonitor",
    "ServiceMonitor",
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
