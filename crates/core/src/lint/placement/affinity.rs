//! Nodes that a gang may use: none, one alone, or nodes of different kinds.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    scene::{Pod, Scene},
};
use crate::spec::Role;

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY513",
            WRONG,
            "gang larger than the job",
            "`schedulingPolicy.minAvailable` is how many pods must have a node before the gang starts. With more than the job \
             ever has, it never starts.",
        ),
        look: Look::Job(larger_than_job),
    },
    Advice {
        rule: rule(
            "TY514",
            WRONG,
            "affinity that no node satisfies",
            "`nodeSelector` and the required affinity contradict each other, so every node is refused and the pods stay Pending.",
        ),
        look: Look::Job(contradiction),
    },
    Advice {
        rule: rule(
            "TY515",
            RISKY,
            "gang that one node has to hold",
            "The pods select one node by its name. The largest nodes have 16 GPUs, and the pods that find none there stay Pending.",
        ),
        look: Look::Job(one_node),
    },
    Advice {
        rule: rule(
            "TY516",
            ODD,
            "ranks on different GPUs",
            "The roles select nodes with different GPUs. A collective waits for its slowest rank, so the faster GPUs idle, and \
             batches that fit one kind may not fit the other.",
        ),
        look: Look::Job(different_gpus),
    },
];

const HOST: &str = "kubernetes.io/hostname";

fn larger_than_job(rule: &Rule, scene: &Scene<'_>) {
    let policy = scene.job.run_policy.scheduling.as_ref();
    let Some(least) = policy.and_then(|policy| policy.min_available) else {
        return;
    };
    let pods = match scene.job.elastic() {
        Some(elastic) => {
            let workers = scene.job.role_replicas(Role::Worker);
            let others = scene.pod_count().saturating_sub(workers);
            others.saturating_add(elastic.max_replicas.max(workers))
        }
        None => scene.pod_count(),
    };
    if least > pods {
        let place = scene.run_policy().key("schedulingPolicy");
        place.key("minAvailable").report_with(
            rule,
            format!("the gang starts with {least} pods, the job has {pods}"),
            format!("remove `minAvailable`, or write `minAvailable: {pods}`"),
        );
    }
}

/// The required terms of the node affinity of a pod.
fn terms<'a>(pod: &Pod<'a>) -> &'a [NodeSelectorTerm] {
    let affinity = pod.spec.affinity.as_ref();
    let by_node = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = by_node.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    required.map_or(&[], |required| required.node_selector_terms.as_slice())
}

/// What one label of a node must be.
#[derive(Debug, Default)]
struct Wanted<'a> {
    /// The values that are left, where they are listed.
    among: Option<BTreeSet<&'a str>>,
    not: BTreeSet<&'a str>,
    present: bool,
    absent: bool,
}

impl<'a> Wanted<'a> {
    fn only(&mut self, values: BTreeSet<&'a str>) {
        self.present = true;
        self.among = Some(match self.among.take() {
            Some(before) => before.intersection(&values).copied().collect(),
            None => values,
        });
    }

    fn is_impossible(&self) -> bool {
        let none_left = self
            .among
            .as_ref()
            .is_some_and(|among| among.iter().all(|value| self.not.contains(value)));
        none_left || self.present && self.absent
    }
}

/// What the selector and the expressions of a term say of every label.
fn wanted<'a>(
    selector: Option<&'a BTreeMap<String, String>>,
    expressions: impl Iterator<Item = &'a NodeSelectorRequirement>,
) -> BTreeMap<&'a str, Wanted<'a>> {
    let mut found: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
    for (key, value) in selector.into_iter().flatten() {
        let values = BTreeSet::from([value.as_str()]);
        found.entry(key).or_default().only(values);
    }
    for expression in expressions {
        let values = expression.values.iter().flatten().map(String::as_str);
        let entry = found.entry(&expression.key).or_default();
        match expression.operator.as_str() {
            "In" => entry.only(values.collect()),
            "NotIn" => entry.not.extend(values),
            "Exists" | "Gt" | "Lt" => entry.present = true,
            "DoesNotExist" => entry.absent = true,
            _ => {}
        }
    }
    found
}

fn contradiction(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let selector = pod.spec.node_selector.as_ref();
        let terms = terms(pod);
        let impossible = |term: &NodeSelectorTerm| {
            let expressions = term.match_expressions.iter().flatten();
            let found = wanted(selector, expressions);
            let key = found.iter().find(|(_, wanted)| wanted.is_impossible());
            key.map(|(key, _)| (*key).to_owned())
        };
        let keys: Option<Vec<String>> = terms.iter().map(impossible).collect();
        if let Some(key) = keys.and_then(|keys| keys.into_iter().next()) {
            let place = pod.at().key("affinity").key("nodeAffinity");
            let place = place.key("requiredDuringSchedulingIgnoredDuringExecution");
            place.report_with(
                rule,
                format!(
                    "no node can have the label `{key}` as `nodeSelector` and the affinity want it"
                ),
                "remove one of the two conditions",
            );
        }
        together_and_apart(rule, pod);
    }
}

/// Pods that must be on the host of others with a label, and must not.
fn together_and_apart(rule: &Rule, pod: &Pod<'_>) {
    let Some(affinity) = pod.spec.affinity.as_ref() else {
        return;
    };
    let together = affinity.pod_affinity.as_ref();
    let together = together.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let place = pod.at().key("affinity").key("podAntiAffinity");
    let place = place.key("requiredDuringSchedulingIgnoredDuringExecution");
    for (index, term) in apart.into_iter().flatten().enumerate() {
        // Terms over other namespaces, or with other `matchLabelKeys`, select other pods.
        let mut same = together.into_iter().flatten();
        if same.any(|other| other == term) {
            place.index(index).report_with(
                rule,
                format!(
                    "the pods must be in one `{}` with others, and must not",
                    term.topology_key
                ),
                "remove one of the two terms",
            );
        }
    }
}

/// The one host that a pod selects by its name.
fn host<'a>(pod: &Pod<'a>) -> Option<&'a str> {
    if let Some(name) = pod.spec.node_selector.as_ref().and_then(|it| it.get(HOST)) {
        return Some(name);
    }
    let [term] = terms(pod) else {
        return None;
    };
    let expressions = term.match_expressions.iter().flatten();
    let found = wanted(None, expressions);
    let among = found.get(HOST)?.among.as_ref()?;
    let mut names = among.iter();
    names.next().copied().filter(|_| names.next().is_none())
}

fn one_node(rule: &Rule, scene: &Scene<'_>) {
    // The largest nodes of clouds.
    const GPUS_OF_A_NODE: u64 = 16;
    // A node has several parts of each GPU that is divided.
    let divided = |name: &str| name.starts_with("nvidia.com/mig-");
    let mut held: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for pod in scene.ranks().filter(|pod| !pod.asks_for(divided)) {
        if let Some(name) = host(pod) {
            let count = u64::from(pod.replicas);
            let (pods, gpus) = held.entry(name).or_default();
            *pods = pods.saturating_add(count);
            *gpus = gpus.saturating_add(count.saturating_mul(pod.gpus()));
        }
    }
    for pod in scene.ranks() {
        let Some((name, (pods, gpus))) =
            host(pod).and_then(|name| Some((name, held.remove(name)?)))
        else {
            continue;
        };
        if pods > 1 && gpus > GPUS_OF_A_NODE {
            let by_selector = pod
                .spec
                .node_selector
                .iter()
                .flatten()
                .any(|(key, _)| key == HOST);
            let place = if by_selector {
                pod.at().key("nodeSelector").key(HOST)
            } else {
                pod.at().key("affinity").key("nodeAffinity")
            };
            place.report_with(
                rule,
                format!("{pods} pods with {gpus} GPUs must be on the node `{name}`"),
                "select nodes by a label that several have, such as `nvidia.com/gpu.product`",
            );
        }
    }
}

fn different_gpus(rule: &Rule, scene: &Scene<'_>) {
    const PRODUCTS: [&str; 5] = [
        "amd.com/gpu.product-name",
        "cloud.google.com/gke-accelerator",
        "k8s.amazonaws.com/accelerator",
        "karpenter.k8s.aws/instance-gpu-name",
        "nvidia.com/gpu.product",
    ];
    let ranks: Vec<&Pod<'_>> = scene
        .ranks()
        .filter(|pod| pod.gpus() > 0 && !matches!(pod.role.lower(), "evaluator" | "ps"))
        .collect();
    for key in PRODUCTS {
        let of = |pod: &Pod<'_>| pod.spec.node_selector.as_ref()?.get(key).cloned();
        let mut selected = ranks.iter().filter_map(|pod| Some((pod, of(pod)?)));
        let Some((first, wanted)) = selected.next() else {
            continue;
        };
        for (pod, product) in selected.filter(|(_, product)| *product != wanted) {
            pod.at().key("nodeSelector").key(key).report_with(
                rule,
                format!(
                    "{} trains on `{product}`, {} on `{wanted}`",
                    pod.owner(),
                    first.owner()
                ),
                "select the same GPUs for all roles",
            );
        }
    }
}
