//! Files of a `ConfigMap` as a pod finds them, and names that are almost those of an object of the files.

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, WRONG, rule},
    command::{SHELLS, base_name, is_script_option},
    companions::at,
    scene::{Pod, Scene},
};
use crate::spec::{Place, distance};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY621",
            WRONG,
            "program that nobody may execute",
            "The files of a ConfigMap or Secret have the mode 0644 unless `defaultMode` or `mode` says otherwise. A command that \
             is one of them, and not the argument of a shell or of Python, ends with `permission denied`.",
        ),
        look: Look::Job(not_executable),
    },
    Advice {
        rule: rule(
            "TY622",
            WRONG,
            "file that is mounted as a folder",
            "Without `subPath` a volume is mounted as a folder, with all its files in it, also where the path looks like a file. The \
             program finds a folder in place of its file.",
        ),
        look: Look::Beside(folder_for_file),
    },
    Advice {
        rule: rule(
            "TY623",
            ODD,
            "name that is almost that of an object of the files",
            "The pods name a claim, ConfigMap, Secret or service account that the files do not have, and the files have one with almost \
             the same name that these pods do not use. Unless the cluster has the other one, the pods wait for it.",
        ),
        look: Look::Beside(almost_a_name),
    },
    Advice {
        rule: rule(
            "TY624",
            WRONG,
            "bucket that nothing mounts",
            "The driver of Cloud Storage FUSE mounts a bucket by a sidecar, which it adds only to pods with the annotation \
             `gke-gcsfuse/volumes: \"true\"`. Without it the mount fails, and the pod never starts.",
        ),
        look: Look::Job(no_sidecar),
    },
];

fn no_sidecar(rule: &Rule, scene: &Scene<'_>) {
    const ANNOTATION: &str = "gke-gcsfuse/volumes";
    for pod in &scene.pods {
        let on = pod
            .annotation(ANNOTATION)
            .is_some_and(|(value, _)| value == "true");
        let list = pod.at().key("volumes");
        for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
            let csi = volume.csi.as_ref();
            if !on && csi.is_some_and(|csi| csi.driver == "gcsfuse.csi.storage.gke.io") {
                list.index(index).key("csi").report_with(
                    rule,
                    format!(
                        "the volume `{}` needs the annotation `{ANNOTATION}` on the pod",
                        volume.name
                    ),
                    format!("add `{ANNOTATION}: \"true\"` to the annotations of the template"),
                );
            }
        }
    }
}

/// The mode of the files of a `ConfigMap` or Secret unless it is stated.
const PLAIN_MODE: i32 = 0o644;

/// The path that a container executes by itself, with its place.
fn executed<'a>(pod: &Pod<'a>) -> Option<(&'a str, Place<'a>)> {
    let command = pod.trainer.command.as_ref()?;
    let first = command.first()?.as_str();
    if !SHELLS.contains(&base_name(first)) {
        return Some((first, pod.command_at(0)));
    }
    let items: Vec<&str> = command
        .iter()
        .chain(pod.trainer.args.iter().flatten())
        .map(String::as_str)
        .collect();
    let at = items.iter().position(|item| is_script_option(item))? + 1;
    let word = items.get(at)?.split_whitespace().next()?;
    Some((word, pod.command_at(at)))
}

fn not_executable(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let Some((path, place)) = executed(pod).filter(|(path, _)| path.starts_with('/')) else {
            continue;
        };
        let Some((mount, _, Some(volume))) = pod.mount_of(path) else {
            continue;
        };
        let (kind, stated, items) = if let Some(map) = &volume.config_map {
            ("ConfigMap", map.default_mode, &map.items)
        } else if let Some(secret) = &volume.secret {
            ("Secret", secret.default_mode, &secret.items)
        } else {
            continue;
        };
        let file = match &mount.sub_path {
            Some(path) => path.as_str(),
            None => path
                .trim_start_matches(mount.mount_path.as_str())
                .trim_start_matches('/'),
        };
        let item = items.iter().flatten().find(|item| item.path == file);
        let mode = item
            .and_then(|item| item.mode)
            .or(stated)
            .unwrap_or(PLAIN_MODE);
        if mode & 0o111 == 0 && !file.is_empty() {
            place.report_with(
                rule,
                format!("`{path}` is a file of a {kind} with the mode {mode:04o}, nobody may execute it"),
                "write `defaultMode: 0755` in the volume, or give the file to its interpreter, such as `[bash, FILE]`",
            );
        }
    }
}

fn folder_for_file(rule: &Rule, scene: &Scene<'_>) {
    const FILES: [&str; 8] = ["cfg", "conf", "ini", "json", "py", "sh", "toml", "yaml"];
    let namespace = scene.job.namespace.as_str();
    for pod in &scene.pods {
        let command = pod.command();
        for (mount, place, volume) in pod.mounts() {
            let path = mount.mount_path.as_str();
            let name = base_name(path);
            let is_file = name.rsplit_once('.').is_some_and(|(start, end)| {
                !start.is_empty() && (FILES.contains(&end) || end == "yml")
            });
            let by_part = mount.sub_path.is_some() || mount.sub_path_expr.is_some();
            let Some(map) = volume.and_then(|volume| volume.config_map.as_ref()) else {
                continue;
            };
            if !is_file || by_part {
                continue;
            }
            let object = scene.companions.find("ConfigMap", namespace, &map.name);
            let has_key = object.is_some_and(|tree| at(tree, &["data", name]).is_some());
            let has_item = map.items.iter().flatten().any(|item| item.path == name);
            let used = command
                .words
                .iter()
                .any(|word| word.text.rsplit('=').next().unwrap_or(word.text) == path);
            if has_key || has_item || used {
                place.key("mountPath").report_with(
                    rule,
                    format!(
                        "`{path}` is a folder: the ConfigMap `{}` is mounted without `subPath`",
                        map.name
                    ),
                    format!("add `subPath: {name}`, or mount the ConfigMap at the folder above"),
                );
            }
        }
    }
}

/// Objects of a kind from which on their names are not compared.
const MANY: usize = 64;

/// An object that a pod names: its kind, its name and the place of the name.
type Reference<'a> = (&'static str, &'a str, Place<'a>);

fn references<'a>(pod: &Pod<'a>) -> Vec<Reference<'a>> {
    let mut found = Vec::new();
    let list = pod.at().key("volumes");
    for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
        let place = list.index(index);
        if let Some(claim) = &volume.persistent_volume_claim {
            let place = place.key("persistentVolumeClaim").key("claimName");
            found.push(("PersistentVolumeClaim", claim.claim_name.as_str(), place));
        } else if let Some(map) = volume
            .config_map
            .as_ref()
            .filter(|it| it.optional != Some(true))
        {
            let place = place.key("configMap").key("name");
            found.push(("ConfigMap", map.name.as_str(), place));
        } else if let Some(secret) = volume
            .secret
            .as_ref()
            .filter(|it| it.optional != Some(true))
        {
            let place = place.key("secret").key("secretName");
            let name = secret.secret_name.as_deref().unwrap_or_default();
            found.push(("Secret", name, place));
        }
    }
    for (container, place) in pod.containers() {
        let list = place.key("env");
        for (index, variable) in container.env.iter().flatten().enumerate() {
            let place = list.index(index).key("valueFrom");
            let from = variable.value_from.as_ref();
            if let Some(from) = from.and_then(|from| from.secret_key_ref.as_ref()) {
                found.push((
                    "Secret",
                    from.name.as_str(),
                    place.key("secretKeyRef").key("name"),
                ));
            } else if let Some(from) = from.and_then(|from| from.config_map_key_ref.as_ref()) {
                found.push((
                    "ConfigMap",
                    from.name.as_str(),
                    place.key("configMapKeyRef").key("name"),
                ));
            }
        }
        let list = place.key("envFrom");
        for (index, from) in container.env_from.iter().flatten().enumerate() {
            let place = list.index(index);
            if let Some(from) = &from.secret_ref {
                found.push((
                    "Secret",
                    from.name.as_str(),
                    place.key("secretRef").key("name"),
                ));
            } else if let Some(from) = &from.config_map_ref {
                found.push((
                    "ConfigMap",
                    from.name.as_str(),
                    place.key("configMapRef").key("name"),
                ));
            }
        }
    }
    if let Some(name) = pod.spec.service_account_name.as_deref() {
        found.push(("ServiceAccount", name, pod.at().key("serviceAccountName")));
    }
    found
}

/// Whether one name is the other one with a slip: not another number, and not another short part such as a letter of a team.
fn is_slip(one: &str, other: &str) -> bool {
    let longer = one.len().max(other.len());
    let plain = |name: &str| {
        name.chars()
            .filter(|c| !c.is_ascii_digit())
            .collect::<String>()
    };
    if longer < 6 || plain(one) == plain(other) || distance(one, other) > 2 {
        return false;
    }
    let (left, right): (Vec<&str>, Vec<&str>) =
        (one.split('-').collect(), other.split('-').collect());
    if left.len() != right.len() {
        return false;
    }
    let mut parts = left
        .iter()
        .zip(&right)
        .filter(|(left, right)| left != right);
    parts.all(|(left, right)| left.len() > 3 && right.len() > 3 && distance(left, right) < 3)
}

fn almost_a_name(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    let all: Vec<Reference<'_>> = scene.pods.iter().flat_map(references).collect();
    for (kind, name, place) in &all {
        let companions = scene.companions;
        if name.is_empty() || companions.find(kind, namespace, name).is_some() {
            continue;
        }
        // Of many objects the files are those of a whole cluster, and looking at all of them each time takes too long.
        if companions.of_kind(kind).nth(MANY).is_some() {
            continue;
        }
        let others = companions.of_kind(kind).filter(|(space, other, _)| {
            let used = all.iter().any(|(of, used, _)| of == kind && used == other);
            *space == namespace && !used && is_slip(name, other)
        });
        let others: Vec<&str> = others.map(|(_, other, _)| other).take(2).collect();
        if let [other] = others.as_slice() {
            place.report_with(
                rule,
                format!(
                    "the files have no {kind} `{name}`, but `{other}`, which the pods do not use"
                ),
                format!("did you mean `{other}`?"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_told_from_other_names() {
        for (one, other, want) in [
            ("checkpoint", "checkpoints", true),
            ("training-chekpoints", "training-checkpoints", true),
            ("data-1", "data-2", false),
            ("team-a-data", "team-b-data", false),
            ("train-cpu", "train-gpu", false),
            ("dataset", "datasets-raw", false),
            ("cache", "cach", false),
        ] {
            assert_eq!(is_slip(one, other), want, "{one} {other}");
        }
    }
}
