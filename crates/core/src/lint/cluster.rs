//! What a cluster must have for a job to run there: nodes, networks, claims and classes.
//!
//! Owns these rules and what they need to know of a cluster. The caller reads these facts from a cluster; without
//! them no rule here reports anything.
//!
//! Invariant: what could not be read is not judged. What the files bring with them counts as being there.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Profile, Rule,
    advice::{Advice, Look, RISKY, WRONG, rule},
    companions::{Companion, Companions, at},
    fabric::network::attachments,
    objects,
    scene::Scene,
};
use crate::{
    fabric::{ATTACHMENT_KIND, NETWORKS},
    gang::{Constraints, Node, Resources},
    spec::{self, Collector, File, Place},
};

/// What a cluster has. Each part is there if it could be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    /// Where objects go that name no namespace.
    pub namespace: String,
    /// The nodes by name.
    pub nodes: Option<BTreeMap<String, Node>>,
    /// Access modes of the claims, by namespace and name. A namespace that is not here was not read.
    pub claims: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Network attachments, likewise.
    pub attachments: BTreeMap<String, BTreeSet<String>>,
    /// Storage classes.
    pub storage_classes: Option<BTreeSet<String>>,
    /// Priority classes.
    pub priority_classes: Option<BTreeSet<String>>,
}

impl ClusterFacts {
    /// The access modes of a claim in the namespace of the job, where it is there.
    pub(super) fn claim(&self, scene: &Scene<'_>, name: &str) -> Option<&[String]> {
        let claims = self.claims.get(self.namespace_of(scene))?;
        claims.get(name).map(Vec::as_slice)
    }

    /// Where the job of `scene` goes.
    fn namespace_of<'a>(&'a self, scene: &'a Scene<'_>) -> &'a str {
        if scene.root.key("metadata").key("namespace").is_there() {
            scene.job.namespace.as_str()
        } else {
            &self.namespace
        }
    }

    /// The namespace of the cluster that the files mean by `namespace`.
    fn cluster_namespace<'a>(&'a self, scene: &'a Scene<'_>, namespace: &'a str) -> &'a str {
        if namespace == scene.job.namespace.as_str() {
            self.namespace_of(scene)
        } else {
            namespace
        }
    }
}

/// The namespaces whose claims and networks the jobs of `files` need; `namespace` is that of jobs that name
/// none.
pub fn namespaces(files: &[&File], namespace: &str) -> BTreeSet<String> {
    let facts = ClusterFacts {
        namespace: namespace.to_owned(),
        ..ClusterFacts::default()
    };
    let companions = Companions::default();
    let mut needed = BTreeSet::new();
    let inner: Vec<_> = files.iter().flat_map(|file| objects::inner(file)).collect();
    let documents = files.iter().flat_map(|file| &file.documents);
    for document in documents.chain(inner.iter().map(|inner| &inner.document)) {
        let document = document.as_named();
        let Some(job) = spec::check(&document).job else {
            continue;
        };
        let collector = Collector::default();
        let root = Place::root(&document.tree, &collector);
        let scene = Scene::new(&job, root, &companions, None, Profile::default());
        needed.insert(facts.namespace_of(&scene).to_owned());
        for attachment in scene.pods.iter().flat_map(|pod| attachments(&scene, pod)) {
            needed.insert(
                facts
                    .cluster_namespace(&scene, &attachment.namespace)
                    .to_owned(),
            );
        }
    }
    needed
}

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY801",
            RISKY,
            "no node matches",
            "No node of the cluster has the labels that `nodeSelector` or the required node affinity asks for, so the \
             pods stay Pending. Where nodes come and go with demand, allow the finding with that reason.",
        ),
        look: Look::Cluster(no_node),
    },
    Advice {
        rule: rule(
            "TY802",
            RISKY,
            "more devices than any node has",
            "A pod is on one node. If it asks for a device that no node of the cluster offers, or for more than the \
             largest one has, it stays Pending. Where nodes come and go with demand, allow the finding with that reason.",
        ),
        look: Look::Cluster(no_device),
    },
    Advice {
        rule: rule(
            "TY803",
            WRONG,
            "network attachment that is not there",
            "The annotation names a NetworkAttachmentDefinition that neither the files nor the cluster have. The \
             pods are created and never get a network.",
        ),
        look: Look::Cluster(no_attachment),
    },
    Advice {
        rule: rule(
            "TY804",
            WRONG,
            "claim that is not there",
            "A volume names a PersistentVolumeClaim that neither the files nor the namespace have. The pods wait \
             until somebody creates it.",
        ),
        look: Look::Cluster(no_claim),
    },
    Advice {
        rule: rule(
            "TY805",
            WRONG,
            "storage class that is not there",
            "The claim asks for a storage class that neither the files nor the cluster have. It is never bound, and \
             the pods that mount it wait.",
        ),
        look: Look::ClusterCompanion(no_storage_class),
    },
    Advice {
        rule: rule(
            "TY806",
            WRONG,
            "priority class that is not there",
            "The API server refuses a pod whose PriorityClass it does not have.",
        ),
        look: Look::Cluster(no_priority_class),
    },
];

fn no_node(rule: &Rule, scene: &Scene<'_>, cluster: &ClusterFacts) {
    let Some(nodes) = cluster.nodes.as_ref().filter(|nodes| !nodes.is_empty()) else {
        return;
    };
    for pod in &scene.pods {
        let mut constraints = Constraints::of(pod.spec);
        if nodes
            .iter()
            .any(|(name, node)| constraints.selects(name, node))
        {
            continue;
        }
        constraints.node_affinity = None;
        let by_labels = nodes
            .iter()
            .any(|(name, node)| constraints.selects(name, node));
        let (place, message) = if by_labels {
            let place = pod.at().key("affinity").key("nodeAffinity");
            (place, "the required node affinity leaves none".to_owned())
        } else {
            let labels = constraints.node_selector.iter();
            let labels: Vec<String> = labels
                .map(|(key, value)| format!("`{key}={value}`"))
                .collect();
            let message = format!("none has {}", labels.join(" and "));
            (pod.at().key("nodeSelector"), message)
        };
        place.report_with(
            rule,
            format!("of the {} nodes of the cluster {message}", nodes.len()),
            "`kubectl get nodes --show-labels` lists what they have",
        );
    }
}

fn no_device(rule: &Rule, scene: &Scene<'_>, cluster: &ClusterFacts) {
    let Some(nodes) = cluster.nodes.as_ref().filter(|nodes| !nodes.is_empty()) else {
        return;
    };
    for pod in &scene.pods {
        let place = pod.trainer_at().key("resources").key("limits");
        for (name, wanted) in Resources::of_pod(pod.spec).iter() {
            // What every node has is a matter of room, not of what there is.
            if !name.contains('/') {
                continue;
            }
            let most = nodes.values().map(|node| node.allocatable.get(name)).max();
            let most = most.unwrap_or(0);
            if wanted <= most {
                continue;
            }
            let found = if most == 0 {
                format!("no node of the cluster has `{name}`")
            } else {
                format!(
                    "a pod of {} asks for {wanted} `{name}`, the largest node of the cluster has {most}",
                    pod.role
                )
            };
            let hint = if most == 0 {
                "check the name, and whether the device plugin runs on the nodes".to_owned()
            } else {
                format!("ask for at most {most} in a pod, and for more pods")
            };
            place.key(name).report_with(rule, found, hint);
        }
    }
}

fn no_attachment(rule: &Rule, scene: &Scene<'_>, cluster: &ClusterFacts) {
    for pod in &scene.pods {
        for attachment in attachments(scene, pod) {
            let (namespace, name) = (attachment.namespace.as_str(), attachment.name.as_str());
            let here = cluster.cluster_namespace(scene, namespace);
            let Some(known) = cluster.attachments.get(here) else {
                continue;
            };
            let in_files = scene
                .companions
                .find(ATTACHMENT_KIND, namespace, name)
                .is_some();
            let Some((_, place)) = pod.annotation(NETWORKS).filter(|_| !in_files) else {
                continue;
            };
            if !known.contains(name) {
                place.report_with(
                    rule,
                    format!("namespace `{here}` of the cluster has no network attachment `{name}`"),
                    name_hint(
                        name,
                        known,
                        &format!("`kubectl get net-attach-def -n {here}` lists what there is"),
                    ),
                );
            }
        }
    }
}

fn no_claim(rule: &Rule, scene: &Scene<'_>, cluster: &ClusterFacts) {
    const CLAIM: &str = "PersistentVolumeClaim";
    let namespace = scene.job.namespace.as_str();
    let here = cluster.namespace_of(scene);
    let Some(known) = cluster.claims.get(here) else {
        return;
    };
    for pod in &scene.pods {
        for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
            let Some(claim) = &volume.persistent_volume_claim else {
                continue;
            };
            let name = claim.claim_name.as_str();
            let in_files = scene.companions.find(CLAIM, namespace, name).is_some();
            if in_files || known.contains_key(name) {
                continue;
            }
            let place = pod.at().key("volumes").index(index);
            place
                .key("persistentVolumeClaim")
                .key("claimName")
                .report_with(
                    rule,
                    format!("namespace `{here}` of the cluster has no claim `{name}`"),
                    name_hint(
                        name,
                        known.keys(),
                        "create the claim before the job, or add it to the files",
                    ),
                );
        }
    }
}

fn no_storage_class(
    rule: &Rule,
    companion: &Companion<'_>,
    companions: &Companions<'_>,
    cluster: &ClusterFacts,
) {
    let Some(known) = &cluster.storage_classes else {
        return;
    };
    if companion.kind != "PersistentVolumeClaim" {
        return;
    }
    let class = at(companion.tree, &["spec", "storageClassName"]).and_then(|node| node.as_str());
    // An empty one asks for a volume that was made by hand.
    let Some(name) = class.filter(|name| !name.is_empty()) else {
        return;
    };
    let in_files = companions
        .of_kind("StorageClass")
        .any(|(_, own, _)| own == name);
    if !in_files && !known.contains(name) {
        let place = companion.place.key("spec").key("storageClassName");
        place.report_with(
            rule,
            format!("the cluster has no storage class `{name}`"),
            name_hint(
                name,
                known,
                "`kubectl get storageclass` lists what there is",
            ),
        );
    }
}

fn no_priority_class(rule: &Rule, scene: &Scene<'_>, cluster: &ClusterFacts) {
    let Some(known) = &cluster.priority_classes else {
        return;
    };
    for pod in &scene.pods {
        let name = pod.spec.priority_class_name.as_deref().unwrap_or_default();
        let mut own = scene.companions.of_kind("PriorityClass");
        if name.is_empty() || known.contains(name) || own.any(|(_, own, _)| own == name) {
            continue;
        }
        pod.at().key("priorityClassName").report_with(
            rule,
            format!("the cluster has no priority class `{name}`"),
            name_hint(
                name,
                known,
                "`kubectl get priorityclass` lists what there is",
            ),
        );
    }
}

/// The name that may be meant, or else what to do.
fn name_hint<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a String>,
    otherwise: &str,
) -> String {
    let names = known.into_iter().map(String::as_str);
    match spec::nearest(name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => otherwise.to_owned(),
    }
}

/// The cluster that the manifests of these rules are held against.
#[cfg(test)]
pub(super) fn example_cluster() -> ClusterFacts {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let mut node = Node::default();
    node.labels.insert("pool".to_owned(), "h100".to_owned());
    node.allocatable.set("nvidia.com/gpu", 8);
    let shared = vec!["ReadWriteMany".to_owned()];
    ClusterFacts {
        namespace: "team".to_owned(),
        nodes: Some(
            (0..4)
                .map(|at| (format!("gpu-{at}"), node.clone()))
                .collect(),
        ),
        claims: BTreeMap::from([(
            "team".to_owned(),
            BTreeMap::from(["models", "work"].map(|name| (name.to_owned(), shared.clone()))),
        )]),
        attachments: BTreeMap::from([("team".to_owned(), names(&["roce-b"]))]),
        storage_classes: Some(names(&["shared"])),
        priority_classes: Some(names(&["high"])),
    }
}
