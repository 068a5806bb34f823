//! Placement: constraints that nothing satisfies, and what comes between the pods of a gang.

use std::collections::BTreeMap;

use super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, rule},
    scene::{Pod, Scene},
};
use crate::spec::{GangBy, Kind, Role, Switch, annotation};

mod affinity;
mod nodes;
mod spread;

pub(super) use affinity::RULES as AFFINITY_RULES;
pub(super) use nodes::RULES as NODE_RULES;

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY501",
            ODD,
            "spread constraint without pods",
            "A topology spread constraint counts the pods that its label selector matches. One that matches no \
             pod of the job spreads nothing.",
        ),
        look: Look::Job(spread_selector),
    },
    Advice {
        rule: rule(
            "TY502",
            RISKY,
            "spread constraint against the gang",
            "The placement of the job asks for one part of the topology, and a spread constraint forbids the \
             scheduler to put the pods there together. No node satisfies both.",
        ),
        look: Look::Job(spread_against_gang),
    },
    Advice {
        rule: rule(
            "TY503",
            RISKY,
            "service mesh between the ranks",
            "A sidecar of a service mesh takes over the connections of the pod, slows or breaks those of NCCL and \
             Gloo, and keeps running after the training has ended, so that the pod never ends.",
        ),
        look: Look::Beside(mesh),
    },
    Advice {
        rule: rule(
            "TY504",
            RISKY,
            "every pod on one node by name",
            "`nodeName` puts every pod of the role on one node and bypasses the scheduler: nothing checks \
             whether they fit, and seats are not reserved.",
        ),
        look: Look::Job(node_name),
    },
    Advice {
        rule: rule(
            "TY505",
            RISKY,
            "gang divided among schedulers",
            "The pods of a gang start together only if one scheduler places all of them.",
        ),
        look: Look::Job(schedulers),
    },
    Advice {
        rule: rule(
            "TY506",
            ODD,
            "gang divided by priority",
            "The pods of a gang are useless without each other, but with different priorities one role can be \
             preempted while the others keep their GPUs and wait.",
        ),
        look: Look::Job(priorities),
    },
    Advice {
        rule: rule(
            "TY507",
            RISKY,
            "priority as a number",
            "Only the API server may write `priority` of a pod: it takes the value of the class that \
             `priorityClassName` names, and refuses a pod that states another one. The operator goes by the priority \
             that the pods were admitted with and never reads the number of a template.",
        ),
        look: Look::Job(priority_number),
    },
    Advice {
        rule: rule(
            "TY508",
            ODD,
            "preemption without a priority",
            "A job that asks for preemption takes the nodes of gangs of lower priority. The priority of a gang is the \
             lowest one of its pods, and a template without `priorityClassName` gets the default of the cluster. \
             `schedulingPolicy.priorityClass` is for Volcano alone.",
        ),
        look: Look::Job(preemption_without_class),
    },
    Advice {
        rule: rule(
            "TY509",
            ODD,
            "gang that must be spread",
            "A spread constraint with `DoNotSchedule` over zones or racks counts every part of the topology that has nodes, also those without a \
             free GPU. Where one part is full the whole gang waits, and where it starts, its ranks are as far from each other as can be. \
             Spreading over hosts is fine. The same holds for required anti-affinity.",
        ),
        look: Look::Job(spread::spread_gang),
    },
    Advice {
        rule: rule(
            "TY510",
            ODD,
            "gang scheduler without a PodGroup",
            "`schedulerName` alone gives the pods to another scheduler. It starts them together only where a PodGroup says that they belong \
             together, which is made for a job with `trainyard.dev/gang` or `schedulingPolicy`, or by an operator that is set up for \
             it. Without one the pods are placed one by one, and half a gang holds its GPUs and waits.",
        ),
        look: Look::Job(spread::no_pod_group),
    },
    Advice {
        rule: rule(
            "TY511",
            ODD,
            "queue on the pods instead of the job",
            "Kueue reads the queue of a job from the labels of the job. On the templates of its pods the label does nothing for the gang.",
        ),
        look: Look::Job(spread::queue_on_pods),
    },
];

/// The labels that a pod has: those of its template, and those it is given.
fn labels<'a>(scene: &'a Scene<'_>, pod: &'a Pod<'_>) -> BTreeMap<&'a str, Option<&'a str>> {
    let job = Some(scene.job.name.as_str());
    let mut labels = BTreeMap::from([
        ("training.kubeflow.org/job-name", job),
        (
            "training.kubeflow.org/operator-name",
            Some(scene.job.kind.controller()),
        ),
        ("training.kubeflow.org/replica-type", Some(pod.role.lower())),
        ("training.kubeflow.org/replica-index", None),
        ("training.kubeflow.org/job-role", None),
        (annotation::ATTEMPT, None),
    ]);
    // Pods of this kind have `job-role` instead.
    if scene.job.kind == Kind::MpiV2 {
        labels.remove("training.kubeflow.org/replica-type");
    }
    let metadata = pod.template.metadata.as_ref();
    let own = metadata.and_then(|metadata| metadata.labels.as_ref());
    labels.extend(
        own.into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), Some(value.as_str()))),
    );
    labels
}

fn spread_selector(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (index, constraint) in pod
            .spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .enumerate()
        {
            let Some(selector) = constraint
                .label_selector
                .as_ref()
                .and_then(|found| found.match_labels.as_ref())
            else {
                continue;
            };
            let matched = |pod: &Pod<'_>| {
                let labels = labels(scene, pod);
                selector.iter().all(|(name, value)| {
                    labels
                        .get(name.as_str())
                        .is_some_and(|found| found.is_none_or(|found| found == value))
                })
            };
            if scene.pods.iter().any(matched) {
                continue;
            }
            let missing: Vec<String> = selector
                .iter()
                .map(|(name, value)| format!("`{name}: {value}`"))
                .collect();
            let list = pod.at().key("topologySpreadConstraints");
            list.index(index).key("labelSelector").report_with(
                rule,
                format!("no pod of the job has the labels {}", missing.join(", ")),
                format!(
                    "select `training.kubeflow.org/job-name: {}`",
                    scene.job.name
                ),
            );
        }
    }
}

fn spread_against_gang(rule: &Rule, scene: &Scene<'_>) {
    let Some(wish) = scene
        .job
        .annotations
        .get(annotation::PLACEMENT)
        .filter(|text| text.trim().starts_with("required"))
    else {
        return;
    };
    for pod in &scene.pods {
        for (index, constraint) in pod
            .spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .enumerate()
        {
            // Spreading over the nodes within the part is what a gang does anyway.
            let within = constraint.topology_key == "kubernetes.io/hostname";
            if constraint.when_unsatisfiable == "DoNotSchedule" && !within {
                pod.at()
                    .key("topologySpreadConstraints")
                    .index(index)
                    .key("topologyKey")
                    .report_with(
                        rule,
                        format!(
                            "the pods must be spread over `{}`, and together by `{wish}`",
                            constraint.topology_key
                        ),
                        "remove the constraint, or write `whenUnsatisfiable: ScheduleAnyway`",
                    );
            }
        }
    }
}

fn mesh(rule: &Rule, scene: &Scene<'_>) {
    const INJECT: [(&str, &str); 2] = [
        ("sidecar.istio.io/inject", "true"),
        ("linkerd.io/inject", "enabled"),
    ];
    let namespace = scene.job.namespace.as_str();
    let by_namespace = scene
        .companions
        .namespace_label(namespace, "istio-injection")
        == Some("enabled");
    for pod in &scene.pods {
        let stated = |name: &str| pod.label(name).or_else(|| pod.annotation(name));
        let on = INJECT.iter().find_map(|(name, on)| {
            let (_, place) = stated(name).filter(|(value, _)| value == on)?;
            Some((*name, place))
        });
        if let Some((name, place)) = on {
            let off = if name.starts_with("linkerd") {
                "disabled"
            } else {
                "false"
            };
            place.report_with(
                rule,
                format!("`{name}` puts a sidecar between the ranks"),
                format!("write `{name}: \"{off}\"`"),
            );
        } else if by_namespace && stated("sidecar.istio.io/inject").is_none() {
            pod.template_at().key("metadata").key("labels").report_with(
                rule,
                format!("the namespace `{namespace}` has `istio-injection: enabled`, and the pods do not refuse it"),
                "label the template with `sidecar.istio.io/inject: \"false\"`",
            );
        }
    }
}

fn node_name(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        if let Some(name) = &pod.spec.node_name {
            pod.at().key("nodeName").report_with(
                rule,
                format!(
                    "{} of {} is put on `{name}` without asking the scheduler",
                    match pod.replicas {
                        1 => "the pod".to_owned(),
                        count => format!("each of the {count} pods"),
                    },
                    pod.owner()
                ),
                "use `nodeSelector` or affinity",
            );
        }
    }
}

/// Reports `field` of every role that differs from the first one.
fn divided(rule: &Rule, scene: &Scene<'_>, field: &str, of: fn(&Pod<'_>) -> Option<String>) {
    if scene.job.settings.gang == Some(GangBy::Nobody) {
        return;
    }
    // The launcher of an `MPIJob` and the evaluator of a `TFJob` hold no ranks of the gang.
    let mut pods = scene.ranks().filter(|pod| pod.role != Role::Evaluator);
    let Some(first) = pods.next() else { return };
    let shown = |value: Option<String>| {
        value.map_or_else(|| "none".to_owned(), |value| format!("`{value}`"))
    };
    for pod in pods.filter(|pod| of(pod) != of(first)) {
        pod.at().key(field).report_with(
            rule,
            format!(
                "`{field}` is {} in {} and {} in {}",
                shown(of(pod)),
                pod.role,
                shown(of(first)),
                first.role
            ),
            "give all roles the same",
        );
    }
}

fn schedulers(rule: &Rule, scene: &Scene<'_>) {
    divided(rule, scene, "schedulerName", |pod| {
        pod.spec.scheduler_name.clone()
    });
}

fn priorities(rule: &Rule, scene: &Scene<'_>) {
    divided(rule, scene, "priorityClassName", |pod| {
        pod.spec.priority_class_name.clone()
    });
}

fn priority_number(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        // A pod of no class has 0, which copies of stored pods state.
        let Some(number) = pod.spec.priority.filter(|number| *number != 0) else {
            continue;
        };
        pod.at().key("priority").report_with(
            rule,
            format!(
                "`priority` of {} is {number}, which only the API server may write",
                pod.role
            ),
            "name a class with `priorityClassName` instead",
        );
    }
}

fn preemption_without_class(rule: &Rule, scene: &Scene<'_>) {
    if scene.job.settings.preemption != Some(Switch::On) {
        return;
    }
    let without = scene.ranks().find(|pod| {
        let name = pod.spec.priority_class_name.as_deref();
        name.unwrap_or_default().is_empty()
    });
    if let Some(pod) = without {
        let place = scene.root.key("metadata").key("annotations");
        place.key(annotation::PREEMPTION).report_with(
            rule,
            format!(
                "the job asks for preemption, and {} names no priority class",
                pod.role
            ),
            "give every template the same `priorityClassName`",
        );
    }
}
