//! The JSON configuration of `DeepSpeed`, where the files hold it, against the job that uses it.
//!
//! Owns what a `ConfigMap` of the same files shows. A configuration in the image is not seen.

use serde_json::Value as Json;

use super::{
    Rule,
    advice::{Advice, Look, PYTORCH, RISKY, WRONG, example, rule},
    command::Word,
    companions::at,
    scene::{Pod, Scene, is_within},
};
use crate::spec::{Framework, Role};

/// A job that reads `/etc/ds/ds.json` from a `ConfigMap`.
macro_rules! with_config {
    ($json:literal) => {
        &[
            ("args: [--save-dir, /checkpoints]", "args: [--deepspeed_config, /etc/ds/ds.json]"),
            ("            - name: shm\n              mountPath", "            - name: ds\n              mountPath: /etc/ds\n            - name: shm\n              mountPath"),
            ("          - name: shm\n            emptyDir", "          - name: ds\n            configMap:\n              name: ds\n          - name: shm\n            emptyDir"),
            ("---\napiVersion: v1\n", concat!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ds\n  namespace: team\ndata:\n  ", $json, "\n---\napiVersion: v1\n")),
        ]
    };
}

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY701",
            WRONG,
            "DeepSpeed configuration that is not there",
            "The command names a file in a folder that a ConfigMap of the files fills, and the ConfigMap has no \
             such key. Every rank ends at its start.",
        ),
        look: Look::Beside(missing),
        catches: example(PYTORCH, with_config!("zero3.json: '{}'")),
        spares: example(PYTORCH, with_config!("ds.json: '{}'")),
    },
    Advice {
        rule: rule(
            "TY702",
            WRONG,
            "DeepSpeed configuration without valid JSON",
            "The configuration cannot be read, so every rank ends at its start.",
        ),
        look: Look::Beside(invalid),
        catches: example(
            PYTORCH,
            with_config!("ds.json: '{\"train_batch_size\": 64,}'"),
        ),
        spares: example(
            PYTORCH,
            with_config!("ds.json: '{\"train_batch_size\": 64}'"),
        ),
    },
    Advice {
        rule: rule(
            "TY703",
            RISKY,
            "batch sizes that do not multiply",
            "DeepSpeed ends at its start unless `train_batch_size` is `train_micro_batch_size_per_gpu` times \
             `gradient_accumulation_steps` times the ranks that share the batch.",
        ),
        look: Look::Beside(batches),
        catches: example(
            PYTORCH,
            with_config!(
                "ds.json: '{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1}'"
            ),
        ),
        spares: example(
            PYTORCH,
            with_config!(
                "ds.json: '{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1}'"
            ),
        ),
    },
    Advice {
        rule: rule(
            "TY704",
            RISKY,
            "ZeRO stage that cannot do it",
            "ZeRO has the stages 0 to 3. Parameters can be offloaded in stage 3 only, the state of the optimizer \
             from stage 1 on.",
        ),
        look: Look::Beside(stage),
        catches: example(
            PYTORCH,
            with_config!(
                "ds.json: '{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}}'"
            ),
        ),
        spares: example(
            PYTORCH,
            with_config!(
                "ds.json: '{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}}'"
            ),
        ),
    },
];

/// What the files have of the configuration that the command of a pod names.
enum Config<'a> {
    /// The `ConfigMap` and the key that it lacks.
    Missing(&'a str, &'a str),
    /// Its text.
    Text(&'a str),
}

fn config<'a>(scene: &Scene<'a>, pod: &Pod<'a>) -> Option<(Word<'a>, Config<'a>)> {
    let word = pod
        .command()
        .option(&["--deepspeed_config", "--deepspeed"])?;
    let (mount, _, volume) = pod.mount_of(word.text)?;
    let map = volume?.config_map.as_ref()?;
    // Renamed keys and parts of a folder are rare, and not followed.
    if map.items.is_some() || mount.sub_path.is_some() {
        return None;
    }
    let rest = word
        .text
        .strip_prefix(mount.mount_path.trim_end_matches('/'))?;
    let key = rest.trim_start_matches('/');
    let namespace = scene.job.namespace.as_str();
    let object = scene.companions.find("ConfigMap", namespace, &map.name)?;
    let found = at(object, &["data", key]).and_then(|node| node.as_str());
    let config = found.map_or(Config::Missing(map.name.as_str(), key), Config::Text);
    is_within(word.text, &mount.mount_path).then_some((word, config))
}

fn missing(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        if let Some((word, Config::Missing(map, key))) = config(scene, pod) {
            pod.command_at(word.item).report_with(
                rule,
                format!(
                    "`{}` is not there: ConfigMap `{map}` has no key `{key}`",
                    word.text
                ),
                format!("add `{key}` to `data` of the ConfigMap"),
            );
        }
    }
}

/// Calls `look` with every configuration that can be read.
fn each(scene: &Scene<'_>, look: impl Fn(&Pod<'_>, usize, Result<Json, serde_json::Error>)) {
    for pod in &scene.pods {
        if let Some((word, Config::Text(text))) = config(scene, pod) {
            look(pod, word.item, serde_json::from_str(text));
        }
    }
}

fn invalid(rule: &Rule, scene: &Scene<'_>) {
    each(scene, |pod, item, json| {
        if let Err(error) = json {
            pod.command_at(item).report_with(
                rule,
                format!("the configuration of DeepSpeed is not valid JSON: {error}"),
                "lines are counted within the key of the ConfigMap; check it with `jq .`",
            );
        }
    });
}

/// Ranks of the job, where they can be counted.
fn ranks(scene: &Scene<'_>) -> Option<u64> {
    match &scene.job.framework {
        Framework::PyTorch(pytorch) if pytorch.elastic.is_none() => {
            let per_pod = match pytorch.nproc_per_node.as_deref() {
                Some("gpu") => scene.ranks().next()?.gpus(),
                Some(count) => count.parse().ok()?,
                None => return None,
            };
            Some(per_pod * u64::from(scene.pod_count()))
        }
        Framework::MpiV1(mpi) => {
            Some(u64::from(mpi.slots_per_worker) * u64::from(scene.job.role_replicas(Role::Worker)))
        }
        Framework::MpiV2(mpi) => {
            Some(u64::from(mpi.slots_per_worker) * u64::from(scene.job.role_replicas(Role::Worker)))
        }
        _ => None,
    }
}

fn batches(rule: &Rule, scene: &Scene<'_>) {
    let Some(ranks) = ranks(scene) else { return };
    each(scene, |pod, item, json| {
        let Ok(json) = json else { return };
        let number = |key: &str| json.get(key).and_then(Json::as_u64);
        // Ranks that share a batch, by whatever name, count once, and their number is unknown.
        let is_axis = |word: &Word<'_>| word.text.contains("parallel");
        let divided = scene.job.settings.parallelism.is_some()
            || pod.command().words.iter().any(is_axis)
            || json
                .as_object()
                .is_some_and(|keys| keys.keys().any(|key| key.contains("parallel")));
        if divided {
            return;
        }
        let (Some(total), Some(micro)) = (
            number("train_batch_size"),
            number("train_micro_batch_size_per_gpu"),
        ) else {
            return;
        };
        let Some(steps) = number("gradient_accumulation_steps") else {
            return;
        };
        let product = micro.saturating_mul(steps).saturating_mul(ranks);
        if product != total {
            pod.command_at(item).report_with(
                rule,
                format!("`train_batch_size` is {total}, but {micro} per GPU × {steps} steps × {ranks} ranks is {product}"),
                format!("write {product}, or leave one of the three out"),
            );
        }
    });
}

fn stage(rule: &Rule, scene: &Scene<'_>) {
    each(scene, |pod, item, json| {
        let Ok(json) = json else { return };
        let Some(zero) = json.get("zero_optimization") else {
            return;
        };
        let Some(stage) = zero.get("stage").and_then(Json::as_u64) else {
            return;
        };
        let offloads = |key: &str| {
            let device = zero
                .get(key)
                .and_then(|part| part.get("device"))
                .and_then(Json::as_str);
            device.is_some_and(|device| device != "none")
        };
        let wrong = if stage > 3 {
            format!("ZeRO has no stage {stage}")
        } else if offloads("offload_param") && stage < 3 {
            format!("parameters are offloaded in ZeRO stage 3 only, the stage is {stage}")
        } else if offloads("offload_optimizer") && stage < 1 {
            "the state of the optimizer is offloaded from ZeRO stage 1 on, the stage is 0"
                .to_owned()
        } else {
            return;
        };
        pod.command_at(item).report_with(
            rule,
            wrong,
            "change `zero_optimization.stage`, or remove the offload",
        );
    });
}
