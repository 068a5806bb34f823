//! Autoscalers, schedules, batch Jobs and quotas.

use super::{
    super::{
        Rule,
        companions::{Companion, Companions, at},
        scene::{Pod, Scene, is_gpu},
    },
    is, items, text,
};
use crate::{
    quantity,
    spec::{Kind, Node, Value},
};

/// An autoscaler that gives pods of another size, for which it evicts them.
fn resizer(rule: &Rule, companion: &Companion<'_>) {
    let target = text(companion.tree, &["spec", "targetRef", "kind"]).unwrap_or_default();
    let mode = text(companion.tree, &["spec", "updatePolicy", "updateMode"]);
    let evicts = !matches!(mode, Some("Off" | "Initial"));
    let trains = Kind::ALL.into_iter().any(|kind| kind.name() == target)
        || matches!(target, "Job" | "JobSet" | "RayJob");
    if evicts && trains {
        let place = companion.place.key("spec").key("updatePolicy");
        place.key("updateMode").report_with(
            rule,
            format!("pods of a {target} are evicted to give them other requests"),
            "write `updateMode: \"Off\"`, and read what it recommends before the next run",
        );
    }
}

pub(super) fn autoscaler(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    if is(companion, "VerticalPodAutoscaler") {
        resizer(rule, companion);
    }
    if !is(companion, "HorizontalPodAutoscaler") {
        return;
    }
    let target = text(companion.tree, &["spec", "scaleTargetRef", "kind"]).unwrap_or_default();
    if !Kind::ALL.into_iter().any(|kind| kind.name() == target) {
        return;
    }
    let list = companion.place.key("spec").key("metrics");
    for (index, metric) in items(companion.tree, &["spec", "metrics"])
        .iter()
        .enumerate()
    {
        let name = ["resource", "containerResource"]
            .iter()
            .find_map(|key| text(metric, &[key, "name"]));
        if let Some(name) = name.filter(|name| matches!(*name, "cpu" | "memory")) {
            list.index(index).report_with(
                rule,
                format!("workers of a {target} are added and removed by the use of `{name}`"),
                "remove the autoscaler, or scale by a metric of the training",
            );
        }
    }
    let old = "targetCPUUtilizationPercentage";
    if at(companion.tree, &["spec", old]).is_some() {
        companion.place.key("spec").key(old).report_with(
            rule,
            format!("workers of a {target} are added and removed by the use of `cpu`"),
            "remove the autoscaler, or scale by a metric of the training",
        );
    }
}

/// Whether a GPU is asked for anywhere in the tree.
fn asks_for_gpus(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .any(|entry| is_gpu(&entry.key) || asks_for_gpus(&entry.value)),
        Value::List(items) => items.iter().any(asks_for_gpus),
        _ => false,
    }
}

/// Whether pods of the tree mount a claim.
fn mounts_claim(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .any(|entry| entry.key == "persistentVolumeClaim" || mounts_claim(&entry.value)),
        Value::List(items) => items.iter().any(mounts_claim),
        _ => false,
    }
}

pub(super) fn overlapping(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let policy = text(companion.tree, &["spec", "concurrencyPolicy"]);
    let trains = || asks_for_gpus(companion.tree) || mounts_claim(companion.tree);
    if is(companion, "CronJob") && matches!(policy, None | Some("Allow")) && trains() {
        companion
            .place
            .key("spec")
            .key("concurrencyPolicy")
            .report_with(
                rule,
                format!(
                    "runs of `{}` overlap where one takes longer than its interval",
                    companion.name
                ),
                "write `concurrencyPolicy: Forbid`",
            );
    }
}

pub(super) fn restart_policy(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let path: &[&str] = match companion.kind {
        "Job" => &["spec", "template", "spec"],
        "CronJob" => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => return,
    };
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    let Some(spec) = at(companion.tree, path).filter(|_| version.starts_with("batch/")) else {
        return;
    };
    let policy = text(spec, &["restartPolicy"]);
    if !matches!(policy, Some("OnFailure" | "Never")) {
        let place = path
            .iter()
            .fold(companion.place.clone(), |place, key| place.key(key));
        place.key("restartPolicy").report_with(
            rule,
            format!(
                "the restart policy of `{}` is `{}`",
                companion.name,
                policy.unwrap_or("Always")
            ),
            "write `restartPolicy: Never`, or `OnFailure` to start the container again in its pod",
        );
    }
}

pub(super) fn quota(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    let quotas = scene.companions.quotas(namespace).iter();
    for (name, tree) in quotas {
        // With scopes it counts some pods only.
        let scoped = ["scopes", "scopeSelector"]
            .iter()
            .any(|key| at(tree, &["spec", key]).is_some());
        let hard = at(tree, &["spec", "hard"]).map(|hard| &hard.value);
        let Some(Value::Map(entries)) = hard.filter(|_| !scoped) else {
            continue;
        };
        let exceeded = entries.iter().find_map(|entry| {
            let device = entry.key.strip_prefix("requests.")?;
            let allowed: u64 = match &entry.value.value {
                Value::Int(count) => u64::try_from(*count).ok()?,
                Value::String(text) => text.parse().ok()?,
                _ => return None,
            };
            let wanted = devices(scene, device);
            (is_gpu(device) && allowed < wanted).then_some((device, wanted, allowed))
        });
        if let Some((device, wanted, allowed)) = exceeded {
            scene.spec().key(scene.job.kind.replica_map()).report_with(
                rule,
                format!("the job asks for {wanted} `{device}`, the quota `{name}` of `{namespace}` allows {allowed}"),
                "ask for fewer, or have the quota raised",
            );
        }
    }
}

/// How many of `device` all pods of the job ask for.
fn devices(scene: &Scene<'_>, device: &str) -> u64 {
    let of_pod = |pod: &Pod<'_>| {
        let containers = pod.spec.containers.iter();
        let limits =
            containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
        let counts = limits.filter_map(|limits| quantity::units(limits.get(device)?));
        counts.fold(0, u64::saturating_add)
    };
    let pods = scene.pods.iter();
    pods.map(|pod| of_pod(pod).saturating_mul(u64::from(pod.replicas)))
        .fold(0, u64::saturating_add)
}
