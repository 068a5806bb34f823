//! The pods and the Services of the files by their labels: what a Service and a monitor select from.
//!
//! Invariant: a look-up costs as much as the rarest of its labels has pods, not as much as there are pods.

use std::collections::{BTreeMap, BTreeSet};

use super::{companions::at, objects, scene::is_gpu};
use crate::spec::{self, Document, Entry, Kind, Node, Role, Value, annotation};

/// Pods of one template, or a Service.
#[derive(Debug)]
pub(super) struct Labelled<'a> {
    labels: BTreeMap<&'a str, Option<&'a str>>,
    /// Names of its ports.
    pub(super) ports: BTreeSet<&'a str>,
    /// Whether a controller adds labels and ports that the files do not show.
    pub(super) open: bool,
    /// Whether the pods ask for GPUs.
    pub(super) on_gpus: bool,
}

impl Labelled<'_> {
    /// Whether the files show all of `wanted` on it.
    pub(super) fn has_all(&self, wanted: &[(&str, &str)]) -> bool {
        wanted.iter().all(|(key, value)| {
            let found = self.labels.get(key);
            found.is_some_and(|found| found.is_none_or(|found| found == *value))
        })
    }
}

/// Gangs of a namespace that are kept: of more than that, those beyond are not judged.
const GANGS: usize = 64;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Index<'a> {
    sets: Vec<Labelled<'a>>,
    by_label: BTreeMap<(&'a str, &'a str, &'a str), Vec<usize>>,
    /// Those that may have any label, and those with a label of any value.
    open: BTreeMap<&'a str, Vec<usize>>,
    any_value: BTreeMap<(&'a str, &'a str), Vec<usize>>,
    namespaces: BTreeSet<&'a str>,
    /// Those whose pods are the ranks of one job.
    gangs: BTreeMap<&'a str, Vec<usize>>,
}

/// Kinds whose pods have no labels but their own and a few of Kubernetes.
const PLAIN: [&str; 7] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Pod",
    "ReplicaSet",
    "StatefulSet",
];

impl<'a> Index<'a> {
    /// Takes in `document`, which is a Service.
    pub(super) fn add_service(&mut self, document: &'a Document) {
        let namespace = document.namespace().unwrap_or(spec::DEFAULT_NAMESPACE);
        let mut labels = BTreeMap::new();
        own_labels(Some(&document.tree), &mut labels);
        let spec = at(&document.tree, &["spec"]);
        let ports = spec.map(|spec| names_of(spec, "ports"));
        self.push(namespace, labels, ports.unwrap_or_default(), false);
    }

    /// Takes in the pods of `document`.
    pub(super) fn add_pods(&mut self, document: &'a Document) {
        let namespace = document.namespace().unwrap_or(spec::DEFAULT_NAMESPACE);
        let name = document.name().map(|(name, _)| name);
        if document.job_kind() == Some(Kind::Train) {
            // Its pods have these labels, and those of a runtime that the files need not show.
            let labels = BTreeMap::from([
                ("training.kubeflow.org/job-name", name),
                (
                    "training.kubeflow.org/operator-name",
                    Some(Kind::Train.controller()),
                ),
                ("jobset.sigs.k8s.io/jobset-name", name),
                ("jobset.sigs.k8s.io/replicatedjob-name", None),
                ("batch.kubernetes.io/job-completion-index", None),
                (annotation::ATTEMPT, None),
            ]);
            return self.push(namespace, labels, BTreeSet::new(), true);
        }
        if let Some(kind) = document.job_kind() {
            let roles = at(&document.tree, &["spec", kind.replica_map()]);
            let Some(Value::Map(roles)) = roles.map(|roles| &roles.value) else {
                return;
            };
            let pods = |entry: &Entry| match at(&entry.value, &["replicas"]).map(|it| &it.value) {
                Some(Value::Int(count)) => *count,
                _ => 1,
            };
            let is_gang = roles.iter().map(pods).fold(0, i64::saturating_add) > 1;
            for entry in roles {
                let role = Role::ALL.into_iter().find(|role| role.name() == entry.key);
                let mut labels: BTreeMap<&str, Option<&str>> = BTreeMap::from([
                    ("training.kubeflow.org/job-name", name),
                    (
                        "training.kubeflow.org/operator-name",
                        Some(kind.controller()),
                    ),
                    ("training.kubeflow.org/replica-type", role.map(Role::lower)),
                    ("training.kubeflow.org/replica-index", None),
                    ("training.kubeflow.org/job-role", None),
                    (annotation::ATTEMPT, None),
                ]);
                // Pods of this kind have `job-role` instead.
                if kind == Kind::MpiV2 {
                    labels.remove("training.kubeflow.org/replica-type");
                }
                let template = entry.value.get("template").map(|entry| &entry.value);
                let spec = template.and_then(|template| at(template, &["spec"]));
                own_labels(template, &mut labels);
                if is_gang {
                    self.note_gang(namespace);
                }
                self.push(
                    namespace,
                    labels,
                    spec.map(port_names).unwrap_or_default(),
                    false,
                );
                if let Some(set) = self.sets.last_mut() {
                    set.on_gpus = spec.is_some_and(asks_for_gpus);
                }
            }
            return;
        }
        let kind = document.kind().unwrap_or_default();
        // A `Job` of Volcano is another one.
        let version = document.api_version().unwrap_or_default();
        let of_kubernetes =
            version == "v1" || version.starts_with("apps/") || version.starts_with("batch/");
        let open = !of_kubernetes || !PLAIN.contains(&kind);
        let mut found = Vec::new();
        objects::pod_specs(&document.tree, None, &mut found);
        for (holder, spec) in found {
            let mut labels = BTreeMap::new();
            match kind {
                "Job" | "CronJob" => {
                    let name = name.filter(|_| kind == "Job");
                    labels.insert("job-name", name);
                    labels.insert("batch.kubernetes.io/job-name", name);
                    labels.insert("batch.kubernetes.io/job-completion-index", None);
                }
                "StatefulSet" => {
                    labels.insert("statefulset.kubernetes.io/pod-name", None);
                    labels.insert("apps.kubernetes.io/pod-index", None);
                }
                _ => {}
            }
            own_labels(holder, &mut labels);
            let parallel = at(&document.tree, &["spec", "parallelism"]).map(|it| &it.value);
            if kind == "Job" && !open && matches!(parallel, Some(Value::Int(count)) if *count > 1) {
                self.note_gang(namespace);
            }
            self.push(namespace, labels, port_names(spec), open);
            if let Some(set) = self.sets.last_mut() {
                set.on_gpus = asks_for_gpus(spec);
            }
        }
    }

    fn push(
        &mut self,
        namespace: &'a str,
        labels: BTreeMap<&'a str, Option<&'a str>>,
        ports: BTreeSet<&'a str>,
        open: bool,
    ) {
        let index = self.sets.len();
        self.namespaces.insert(namespace);
        if open {
            self.open.entry(namespace).or_default().push(index);
        }
        for (key, value) in &labels {
            let list = match value {
                Some(value) => self.by_label.entry((namespace, key, value)).or_default(),
                None => self.any_value.entry((namespace, key)).or_default(),
            };
            list.push(index);
        }
        self.sets.push(Labelled {
            labels,
            ports,
            open,
            on_gpus: false,
        });
    }

    /// Says that the pods that are taken in next are ranks of one job.
    fn note_gang(&mut self, namespace: &'a str) {
        let gangs = self.gangs.entry(namespace).or_default();
        if gangs.len() < GANGS {
            gangs.push(self.sets.len());
        }
    }

    /// Pods of `namespace` that are ranks of one job and talk to each other.
    pub(super) fn gangs(&self, namespace: &str) -> Vec<&Labelled<'a>> {
        let indices = self.gangs.get(namespace).into_iter().flatten();
        indices.filter_map(|index| self.sets.get(*index)).collect()
    }

    /// Whether the files have any in `namespace`.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace)
    }

    /// Those of `namespace` that have all of `selector`.
    pub(super) fn select(&self, namespace: &str, selector: &[(&str, &str)]) -> Vec<&Labelled<'a>> {
        let with = |(key, value): &(&str, &str)| -> Vec<usize> {
            let exact = self.by_label.get(&(namespace, *key, *value));
            let any = self.any_value.get(&(namespace, *key));
            let lists = exact.into_iter().chain(any).flatten();
            lists.copied().collect()
        };
        let mut rarest: Option<Vec<usize>> = None;
        for pair in selector {
            let found = with(pair);
            if rarest
                .as_ref()
                .is_none_or(|rarest| found.len() < rarest.len())
            {
                rarest = Some(found);
            }
        }
        let open = self.open.get(namespace).into_iter().flatten().copied();
        let indices: BTreeSet<usize> = rarest.into_iter().flatten().chain(open).collect();
        let sets = indices.into_iter().filter_map(|index| self.sets.get(index));
        sets.filter(|set| {
            set.open
                || selector.iter().all(|(key, value)| {
                    let found = set.labels.get(key);
                    found.is_some_and(|found| found.is_none_or(|found| found == *value))
                })
        })
        .collect()
    }
}

/// Whether a container of a pod has a GPU among its limits.
fn asks_for_gpus(spec: &Node) -> bool {
    items(spec, "containers").iter().any(|container| {
        match at(container, &["resources", "limits"]).map(|limits| &limits.value) {
            Some(Value::Map(entries)) => entries.iter().any(|entry| is_gpu(&entry.key)),
            _ => false,
        }
    })
}

fn own_labels<'a>(template: Option<&'a Node>, labels: &mut BTreeMap<&'a str, Option<&'a str>>) {
    let own = template.and_then(|template| at(template, &["metadata", "labels"]));
    if let Some(Value::Map(entries)) = own.map(|own| &own.value) {
        for entry in entries {
            labels.insert(entry.key.as_str(), entry.value.as_str());
        }
    }
}

/// The names of the ports of the containers of a pod, sidecars among the init containers included.
fn port_names(spec: &Node) -> BTreeSet<&str> {
    let containers = items(spec, "containers").iter();
    containers
        .chain(items(spec, "initContainers"))
        .flat_map(|container| names_of(container, "ports"))
        .collect()
}

/// The names of the items of the list `key`.
fn names_of<'a>(node: &'a Node, key: &str) -> BTreeSet<&'a str> {
    let items = items(node, key).iter();
    items
        .filter_map(|item| item.get("name")?.value.as_str())
        .collect()
}

fn items<'a>(node: &'a Node, key: &str) -> &'a [Node] {
    match node.get(key).map(|entry| &entry.value.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

/// The pairs of a map of labels.
pub(super) fn pairs(node: &Node) -> Vec<(&str, &str)> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .filter_map(|entry| Some((entry.key.as_str(), entry.value.as_str()?)))
            .collect(),
        _ => Vec::new(),
    }
}
