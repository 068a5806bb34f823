//! Queues of Kueue: jobs that no queue ever admits, and queues that name what is not there.
//!
//! Where the files hold none of the objects that a name may mean, the cluster may have it, and nothing is reported.

use super::super::{
    Rule,
    advice::{Advice, Look, RISKY, WRONG, rule},
    companions::{Companion, Companions, at},
    scene::{Pod, Scene},
};
use super::{items, text};
use crate::{
    quantity,
    spec::{Node, Value},
};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY932",
            RISKY,
            "job that its queue never admits",
            "Kueue admits a job when its ClusterQueue has the quota for all of its pods. A job that asks for more of a device than the queue \
             may ever use, or for a device that the queue does not cover, stays suspended. A queue of a cohort may borrow, and is not judged.",
        ),
        look: Look::Beside(never_admitted),
    },
    Advice {
        rule: rule(
            "TY933",
            RISKY,
            "queue that names what is not there",
            "A job names a LocalQueue of its own namespace, a LocalQueue names a ClusterQueue, and that names the flavors of its quota. The files \
             have such objects, but not the one that is named, so the jobs stay suspended.",
        ),
        look: Look::Beside(no_queue),
    },
    Advice {
        rule: rule(
            "TY934",
            WRONG,
            "ClusterQueue that cannot be",
            "Every flavor of a group has a quota for each of the `coveredResources`, in their order. The webhook of Kueue refuses a \
             ClusterQueue in which they differ. Beside ResourceFlavors it names one of them, and beside ClusterQueues a LocalQueue names one.",
        ),
        look: Look::Companion(queues),
    },
];

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The name of the queue of an object.
fn queue_of<'a>(scene: &Scene<'a>) -> Option<&'a str> {
    scene.root.text_at(&["metadata", "labels", QUEUE])
}

/// Amounts of `device` that all pods ask for.
fn wanted(scene: &Scene<'_>, device: &str) -> u64 {
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

/// A number of devices that is written as a number or as text.
fn devices(node: &Node) -> Option<u64> {
    match &node.value {
        Value::Int(count) => u64::try_from(*count).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// What a `ClusterQueue` may use of `device` at most: `None` where it does not cover it.
fn quota(queue: &Node, device: &str) -> Option<u64> {
    let groups = items(queue, &["spec", "resourceGroups"]).iter();
    let flavors = groups.flat_map(|group| items(group, &["flavors"]));
    let resources = flavors.flat_map(|flavor| items(flavor, &["resources"]));
    let of_device = resources.filter(|it| text(it, &["name"]) == Some(device));
    let quotas: Vec<u64> = of_device
        .map(|it| {
            at(it, &["nominalQuota"])
                .and_then(devices)
                .unwrap_or(u64::MAX)
        })
        .collect();
    // The pods of one template have one flavor, those of two may have two.
    (!quotas.is_empty()).then(|| quotas.into_iter().fold(0, u64::saturating_add))
}

fn never_admitted(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    let queue =
        queue_of(scene).and_then(|name| scene.companions.find("LocalQueue", namespace, name));
    let Some(name) = queue.and_then(|queue| text(queue, &["spec", "clusterQueue"])) else {
        return;
    };
    // A ClusterQueue has no namespace; without one it is kept as of the default one.
    let space = crate::spec::DEFAULT_NAMESPACE;
    let Some(queue) = scene.companions.find("ClusterQueue", space, name) else {
        return;
    };
    let in_cohort = ["cohort", "cohortName"]
        .iter()
        .any(|key| at(queue, &["spec", key]).is_some());
    if in_cohort {
        return;
    }
    let mut names: Vec<&str> = Vec::new();
    for pod in &scene.pods {
        let resources = pod
            .spec
            .containers
            .iter()
            .filter_map(|it| it.resources.as_ref());
        let limits = resources.filter_map(|it| it.limits.as_ref());
        names.extend(limits.flat_map(|it| it.keys()).map(String::as_str));
    }
    names.sort_unstable();
    names.dedup();
    for device in names.into_iter().filter(|device| device.contains('/')) {
        let asked = wanted(scene, device);
        let found = match quota(queue, device) {
            None => format!("does not cover `{device}`, of which the job asks for {asked}"),
            Some(most) if most < asked => {
                format!("may use {most} `{device}` at most, the job asks for {asked}")
            }
            Some(_) => continue,
        };
        scene
            .root
            .key("metadata")
            .key("labels")
            .key(QUEUE)
            .report_with(
                rule,
                format!("the ClusterQueue `{name}` {found}"),
                "ask for fewer, have the quota raised, or name another queue",
            );
    }
}

fn no_queue(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    let Some(name) = queue_of(scene).filter(|name| !name.contains(['$', '{'])) else {
        return;
    };
    if scene
        .companions
        .find("LocalQueue", namespace, name)
        .is_some()
    {
        return;
    }
    // A cluster has other queues than those of the files; one of the files that has no job is the one that was meant.
    let elsewhere = scene.companions.elsewhere("LocalQueue", namespace, name);
    let mut here = scene.companions.of_kind("LocalQueue").take(2);
    let (first, second) = (here.next(), here.next());
    let only = first.filter(|(space, other, _)| {
        second.is_none() && *space == namespace && crate::spec::nearest(name, [*other]).is_some()
    });
    let wrong = match (elsewhere, only) {
        (Some(space), _) => format!("it is in `{space}`"),
        (None, Some((_, other, _))) => format!("the files have `{other}`"),
        (None, None) => return,
    };
    scene
        .root
        .key("metadata")
        .key("labels")
        .key(QUEUE)
        .report_with(
            rule,
            format!("there is no LocalQueue `{name}` in `{namespace}`: {wrong}"),
            "name a LocalQueue of the namespace of the job",
        );
}

fn queues(rule: &Rule, companion: &Companion<'_>, companions: &Companions<'_>) {
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    if !version.starts_with("kueue.x-k8s.io/") {
        return;
    }
    let place = companion.place.key("spec");
    // Of many objects the files are those of a whole cluster, and looking at all of them each time takes too long.
    let missing = |kind: &str, name: &str| {
        let all: Vec<&str> = companions
            .of_kind(kind)
            .map(|(_, name, _)| name)
            .take(33)
            .collect();
        !all.is_empty() && all.len() < 33 && !all.contains(&name) && !name.contains(['$', '{'])
    };
    if companion.kind == "LocalQueue" {
        let name = text(companion.tree, &["spec", "clusterQueue"]).unwrap_or_default();
        if missing("ClusterQueue", name) {
            place.key("clusterQueue").report_with(
                rule,
                format!("the files have ClusterQueues, and none is `{name}`"),
                "name one of them",
            );
        }
    }
    if companion.kind != "ClusterQueue" {
        return;
    }
    let list = place.key("resourceGroups");
    for (index, group) in items(companion.tree, &["spec", "resourceGroups"])
        .iter()
        .enumerate()
    {
        let place = list.index(index);
        let covered = items(group, &["coveredResources"])
            .iter()
            .filter_map(Node::as_str);
        let covered: Vec<&str> = covered.collect();
        let flavors = place.key("flavors");
        for (index, flavor) in items(group, &["flavors"]).iter().enumerate() {
            let place = flavors.index(index);
            let name = text(flavor, &["name"]).unwrap_or_default();
            let resources = items(flavor, &["resources"]).iter();
            let found: Vec<&str> = resources.filter_map(|it| text(it, &["name"])).collect();
            if found != covered {
                place.key("resources").report_with(
                    rule,
                    format!(
                        "the flavor `{name}` has quotas for {}, the group covers {}",
                        shown(&found),
                        shown(&covered)
                    ),
                    "write the same resources in the same order",
                );
            }
            if missing("ResourceFlavor", name) {
                place.key("name").report_with(
                    rule,
                    format!("the files have ResourceFlavors, and none is `{name}`"),
                    "name one of them",
                );
            }
        }
    }
}

fn shown(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}
