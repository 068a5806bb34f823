//! Keys of a `ConfigMap` or Secret that are not there, and devices that are mounted as folders.

use super::super::{
    Rule,
    advice::{Advice, Look, WRONG, rule},
    companions::at,
    scene::{Pod, Scene},
};
use crate::spec::{Node, Place, Value};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY619",
            WRONG,
            "key that is not there",
            "A variable or a volume takes a key of a ConfigMap or Secret, and the object of the files does not have it. The \
             pod waits with `CreateContainerConfigError`, or its volume is never mounted.",
        ),
        look: Look::Beside(missing_keys),
    },
    Advice {
        rule: rule(
            "TY620",
            WRONG,
            "block device mounted as a folder",
            "A claim with `volumeMode: Block` is a device without a file system. It goes into `volumeDevices` of the container; \
             a pod that mounts it as a folder never starts.",
        ),
        look: Look::Beside(block_devices),
    },
];

/// Whether an object of the files has no entry `key`, though it has others.
fn lacks(tree: &Node, key: &str) -> bool {
    let parts = ["data", "binaryData", "stringData"];
    let has = parts.iter().any(|part| at(tree, &[part, key]).is_some());
    let filled = parts.iter().any(|part| {
        let part = at(tree, &[part]).map(|part| &part.value);
        matches!(part, Some(Value::Map(entries)) if !entries.is_empty())
    });
    filled && !has
}

/// Reports `key` where the object of the files lacks it.
fn check(rule: &Rule, scene: &Scene<'_>, kind: &str, name: &str, key: &str, place: &Place<'_>) {
    let namespace = scene.job.namespace.as_str();
    // Another part of the object may have the key.
    if scene.companions.is_repeated(kind, namespace, name) || key.contains(['$', '{']) {
        return;
    }
    let object = scene.companions.find(kind, namespace, name);
    if object.is_some_and(|tree| lacks(tree, key)) {
        place.report_with(
            rule,
            format!("{kind} `{name}` has no key `{key}`"),
            format!("add `{key}` to the {kind}, or name a key that it has"),
        );
    }
}

fn missing_keys(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let list = place.key("env");
            for (index, variable) in container.env.iter().flatten().enumerate() {
                let Some(from) = &variable.value_from else {
                    continue;
                };
                let place = list.index(index).key("valueFrom");
                if let Some(from) = &from.config_map_key_ref
                    && from.optional != Some(true)
                {
                    let place = place.key("configMapKeyRef").key("key");
                    check(rule, scene, "ConfigMap", &from.name, &from.key, &place);
                }
                if let Some(from) = &from.secret_key_ref
                    && from.optional != Some(true)
                {
                    let place = place.key("secretKeyRef").key("key");
                    check(rule, scene, "Secret", &from.name, &from.key, &place);
                }
            }
        }
        volumes(rule, scene, pod);
    }
}

fn volumes(rule: &Rule, scene: &Scene<'_>, pod: &Pod<'_>) {
    let list = pod.at().key("volumes");
    for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
        let place = list.index(index);
        let (kind, name, items, optional, field) = if let Some(map) = &volume.config_map {
            (
                "ConfigMap",
                map.name.as_str(),
                &map.items,
                map.optional,
                "configMap",
            )
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            ("Secret", name, &secret.items, secret.optional, "secret")
        } else {
            continue;
        };
        if optional == Some(true) {
            continue;
        }
        let list = place.key(field).key("items");
        for (index, item) in items.iter().flatten().enumerate() {
            let place = list.index(index).key("key");
            check(rule, scene, kind, name, &item.key, &place);
        }
        if items.is_some() {
            continue;
        }
        for (container, place) in pod.containers() {
            let list = place.key("volumeMounts");
            let mounts = container.volume_mounts.iter().flatten().enumerate();
            for (index, mount) in mounts.filter(|(_, mount)| mount.name == volume.name) {
                let key = mount.sub_path.as_deref().unwrap_or_default();
                if !key.is_empty() && !key.contains(['/', '$']) {
                    let place = list.index(index).key("subPath");
                    check(rule, scene, kind, name, key, &place);
                }
            }
        }
    }
}

fn block_devices(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let list = place.key("volumeMounts");
            for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
                let mut volumes = pod.spec.volumes.iter().flatten();
                let volume = volumes.find(|volume| volume.name == mount.name);
                let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
                let Some(claim) = claim.map(|claim| claim.claim_name.as_str()) else {
                    continue;
                };
                let kind = "PersistentVolumeClaim";
                let tree = scene.companions.find(kind, namespace, claim);
                let mode = tree.and_then(|tree| at(tree, &["spec", "volumeMode"])?.as_str());
                if mode == Some("Block") {
                    list.index(index).report_with(
                        rule,
                        format!(
                            "the claim `{claim}` is a block device, and is mounted at `{}`",
                            mount.mount_path
                        ),
                        "remove `volumeMode: Block` from the claim, or use `volumeDevices`",
                    );
                }
            }
        }
    }
}
