//! Ray clusters and jobs: what stays when the job has ended, what every start installs, parts that do not fit.

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    companions::{Companion, Companions, at},
    scene::is_gpu,
};
use super::{items, number, text};
use crate::spec::{self, Node, Place, Value};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY920",
            ODD,
            "Ray cluster that stays after its job",
            "A RayJob makes a cluster, and deletes it at the end only with `shutdownAfterJobFinishes: true`, which is not the default. \
             Without it the workers keep their GPUs until somebody deletes the RayJob.",
        ),
        look: Look::Companion(stays),
    },
    Advice {
        rule: rule(
            "TY921",
            ODD,
            "packages that Ray installs at every start",
            "What `runtimeEnvYAML` names under `pip`, `uv` or `conda`, Ray installs on every node when the job starts, while the GPUs \
             wait, and the run depends on what the other end serves that day. An image has it already.",
        ),
        look: Look::Companion(installs),
    },
    Advice {
        rule: rule(
            "TY922",
            RISKY,
            "different versions of Ray",
            "The nodes of a Ray cluster must have the same version of Ray, and refuse each other where they do not. `rayVersion` \
             is the one that the operator expects of the images.",
        ),
        look: Look::Companion(versions),
    },
    Advice {
        rule: rule(
            "TY923",
            WRONG,
            "field of a Ray cluster that cannot be",
            "The values of `rayStartParams` are text, so a number needs quotes, or the cluster refuses the object. The \
             number of workers of a group is between `minReplicas` and `maxReplicas`.",
        ),
        look: Look::Companion(refused),
    },
];

/// The spec of the Ray cluster in an object, with its place.
fn cluster<'a>(companion: &Companion<'a>) -> Option<(&'a Node, Place<'a>)> {
    let version = text(companion.tree, &["apiVersion"])?;
    if !version.starts_with("ray.io/") {
        return None;
    }
    let path: &[&str] = match companion.kind {
        "RayCluster" => &["spec"],
        "RayJob" => &["spec", "rayClusterSpec"],
        "RayService" => &["spec", "rayClusterConfig"],
        _ => return None,
    };
    let place = path
        .iter()
        .fold(companion.place.clone(), |place, key| place.key(key));
    Some((at(companion.tree, path)?, place))
}

/// Whether a GPU is asked for anywhere below `node`.
fn has_gpus(node: &Node) -> bool {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .any(|entry| is_gpu(&entry.key) || has_gpus(&entry.value)),
        Value::List(items) => items.iter().any(has_gpus),
        _ => false,
    }
}

fn stays(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some((spec, _)) = cluster(companion).filter(|_| companion.kind == "RayJob") else {
        return;
    };
    let field = at(companion.tree, &["spec", "shutdownAfterJobFinishes"]).map(|it| &it.value);
    // Another way to say what is deleted, and when.
    let by_strategy = at(companion.tree, &["spec", "deletionStrategy"]).is_some();
    if matches!(field, None | Some(Value::Bool(false))) && !by_strategy && has_gpus(spec) {
        let place = companion.place.key("spec").key("shutdownAfterJobFinishes");
        place.report_with(
            rule,
            "the Ray cluster and its GPUs stay when the job has ended",
            "write `shutdownAfterJobFinishes: true`, and `ttlSecondsAfterFinished` for how long logs are kept",
        );
    }
}

fn installs(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some(source) = text(companion.tree, &["spec", "runtimeEnvYAML"]) else {
        return;
    };
    let Some(file) = cluster(companion).and_then(|_| spec::read(source.as_bytes()).ok()) else {
        return;
    };
    let found = file.documents.iter().find_map(|document| {
        ["pip", "uv", "conda"]
            .into_iter()
            .find(|key| document.tree.get(key).is_some())
    });
    if let Some(key) = found {
        companion
            .place
            .key("spec")
            .key("runtimeEnvYAML")
            .report_with(
                rule,
                format!(
                    "`{key}` installs packages on every node of the Ray cluster, at every start"
                ),
                "build them into the image of the workers",
            );
    }
}

/// The version of Ray that an image of Ray has in its tag.
fn version_of_image(image: &str) -> Option<&str> {
    let (name, tag) = image.rsplit_once(':')?;
    let is_ray = name
        .rsplit('/')
        .next()
        .is_some_and(|name| matches!(name, "ray" | "ray-ml" | "ray-llm"));
    let version = tag.split('-').next().unwrap_or(tag);
    let is_version = version.split('.').count() == 3
        && version.split('.').all(|part| part.parse::<u32>().is_ok());
    (is_ray && is_version).then_some(version)
}

fn versions(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some((spec, place)) = cluster(companion) else {
        return;
    };
    let stated = text(spec, &["rayVersion"]).map(|it| (it.to_owned(), "`rayVersion`".to_owned()));
    let mut first = stated.filter(|(version, _)| version.split('.').count() == 3);
    let head = at(spec, &["headGroupSpec"]).map(|group| (group, place.key("headGroupSpec")));
    let workers = items(spec, &["workerGroupSpecs"]).iter().enumerate();
    let list = place.key("workerGroupSpecs");
    let workers = workers.map(|(index, group)| (group, list.index(index)));
    for (group, place) in head.into_iter().chain(workers) {
        let containers = items(group, &["template", "spec", "containers"]);
        let list = place.key("template").key("spec").key("containers");
        for (index, container) in containers.iter().enumerate() {
            let image = text(container, &["image"]).unwrap_or_default();
            let Some(version) = version_of_image(image) else {
                continue;
            };
            match &first {
                Some((other, whose)) if other != version => {
                    list.index(index).key("image").report_with(
                        rule,
                        format!("the image has Ray {version}, {whose} is {other}"),
                        format!(
                            "use the images and the `rayVersion` of one version, such as {version}"
                        ),
                    );
                    return;
                }
                Some(_) => {}
                None => first = Some((version.to_owned(), format!("the one of `{image}`"))),
            }
        }
    }
}

fn refused(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some((spec, place)) = cluster(companion) else {
        return;
    };
    let params = |group: &Node, place: &Place<'_>| {
        let map = at(group, &["rayStartParams"]).map(|map| &map.value);
        let Some(Value::Map(entries)) = map else {
            return;
        };
        for entry in entries {
            if entry.value.as_str().is_none() {
                place.key("rayStartParams").key(&entry.key).report_with(
                    rule,
                    format!("`{}` must be text, found another type of value", entry.key),
                    "put it in quotes",
                );
            }
        }
    };
    if let Some(head) = at(spec, &["headGroupSpec"]) {
        params(head, &place.key("headGroupSpec"));
    }
    let list = place.key("workerGroupSpecs");
    for (index, group) in items(spec, &["workerGroupSpecs"]).iter().enumerate() {
        let place = list.index(index);
        params(group, &place);
        let count = |key: &str| number(group, &[key]);
        let (least, wanted, most) = (
            count("minReplicas"),
            count("replicas"),
            count("maxReplicas"),
        );
        let above = least.zip(most).filter(|(least, most)| least > most);
        let outside = wanted.filter(|wanted| {
            least.is_some_and(|least| *wanted < least) || most.is_some_and(|most| *wanted > most)
        });
        if let Some((least, most)) = above {
            place.key("maxReplicas").report_with(
                rule,
                format!("`minReplicas` is {least} and `maxReplicas` {most}"),
                "write the smaller number as `minReplicas`",
            );
        } else if let Some(wanted) = outside {
            place.key("replicas").report_with(
                rule,
                format!(
                    "`replicas` is {wanted}, which is not between `minReplicas` and `maxReplicas`"
                ),
                "change one of the three; the operator never makes a number outside",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_say_their_version_of_ray() {
        for (image, want) in [
            ("rayproject/ray:2.41.0-py311-gpu", Some("2.41.0")),
            ("registry.example.com/a/ray-ml:2.9.0", Some("2.9.0")),
            ("rayproject/ray:latest-gpu", None),
            ("team/train:2.41.0", None),
            ("rayproject/ray", None),
        ] {
            assert_eq!(version_of_image(image), want, "{image}");
        }
    }
}
