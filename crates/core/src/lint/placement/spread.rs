//! Spreading a gang, and schedulers and queues that do not know of it.

use super::super::{
    Rule,
    scene::{Pod, Scene},
};
use crate::spec::GangBy;

const HOST: &str = "kubernetes.io/hostname";

/// Whether ranks of a gang are spread: more than one, on GPUs.
fn is_gang(scene: &Scene<'_>) -> bool {
    let ranks = scene
        .ranks()
        .map(|pod| pod.replicas)
        .fold(0, u32::saturating_add);
    scene.part || scene.is_job() && ranks > 1 && scene.gpus() > 0
}

pub(super) fn spread_gang(rule: &Rule, scene: &Scene<'_>) {
    // Another rule compares it with the placement that the job asks for.
    if !is_gang(scene) || scene.job.settings.placement.is_some() {
        return;
    }
    for pod in scene.ranks() {
        let list = pod.at().key("topologySpreadConstraints");
        let constraints = pod.spec.topology_spread_constraints.iter().flatten();
        for (index, constraint) in constraints.into_iter().enumerate() {
            let key = constraint.topology_key.as_str();
            if constraint.when_unsatisfiable == "DoNotSchedule" && key != HOST {
                list.index(index).key("whenUnsatisfiable").report_with(
                    rule,
                    format!("the ranks must be spread evenly over `{key}`, or they do not start"),
                    "remove the constraint, or write `whenUnsatisfiable: ScheduleAnyway`; ranks want to be close",
                );
            }
        }
        let affinity = pod.spec.affinity.as_ref();
        let apart = affinity.and_then(|found| found.pod_anti_affinity.as_ref());
        let terms = apart.and_then(|found| {
            found
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let place = pod.at().key("affinity").key("podAntiAffinity");
        let place = place.key("requiredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in terms.into_iter().flatten().enumerate() {
            let key = term.topology_key.as_str();
            if key != HOST {
                place.index(index).key("topologyKey").report_with(
                    rule,
                    format!("every rank must be in another `{key}`, or it does not start"),
                    format!("use `{HOST}`, or make the term preferred"),
                );
            }
        }
    }
}

/// Schedulers that start a gang together where a `PodGroup` names it.
const BY_GROUP: [&str; 4] = [
    "coscheduling",
    "scheduler-plugins-scheduler",
    "volcano",
    "scheduler-plugins",
];

pub(super) fn no_pod_group(rule: &Rule, scene: &Scene<'_>) {
    let declared = matches!(
        scene.job.settings.gang,
        Some(GangBy::Volcano | GangBy::Coscheduling | GangBy::Nobody)
    );
    if declared || scene.job.run_policy.scheduling.is_some() || scene.pod_count() < 2 {
        return;
    }
    let grouped = |pod: &Pod<'_>| {
        let names = [
            "scheduling.k8s.io/group-name",
            "scheduling.volcano.sh/group-name",
            "scheduling.x-k8s.io/pod-group",
            "pod-group.scheduling.sigs.k8s.io",
            "pod-group.scheduling.sigs.k8s.io/name",
        ];
        names
            .iter()
            .any(|name| pod.annotation(name).is_some() || pod.label(name).is_some())
    };
    for pod in scene.pods.iter().filter(|pod| !grouped(pod)) {
        let name = pod.spec.scheduler_name.as_deref().unwrap_or_default();
        if BY_GROUP.contains(&name) {
            let word = if name == "volcano" {
                "volcano"
            } else {
                "coscheduling"
            };
            pod.at().key("schedulerName").report_with(
                rule,
                format!("`{name}` places the pods of {} one by one: no PodGroup says that they are a gang", pod.role),
                format!("annotate the job with `trainyard.dev/gang: {word}`, or state `runPolicy.schedulingPolicy`"),
            );
        }
    }
}

pub(super) fn queue_on_pods(rule: &Rule, scene: &Scene<'_>) {
    const QUEUE: &str = "kueue.x-k8s.io/queue-name";
    let on_job = scene.root.key("metadata").key("labels").key(QUEUE);
    if on_job.is_there() || !scene.is_job() {
        return;
    }
    for pod in &scene.pods {
        if let Some((_, place)) = pod.label(QUEUE) {
            place.report_with(
                rule,
                format!(
                    "`{QUEUE}` is on the pods of {}, Kueue reads it on the job",
                    pod.role
                ),
                "move the label to `metadata.labels` of the job",
            );
        }
    }
}
