//! The JSON configuration of `DeepSpeed`, where the files hold it, against the job that uses it.
//!
//! Owns what a `ConfigMap` of the same files shows. A configuration in the image is not seen.

use serde_json::Value as Json;

use super::{
    Rule,
    advice::{Advice, Look, RISKY, WRONG, rule},
    command::Word,
    companions::{Companion, Companions, at},
    objects::is_deepspeed,
    scene::{Pod, Scene},
    shape::world,
};
use crate::spec::{Node, Value, is_within};

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
    },
    Advice {
        rule: rule(
            "TY702",
            WRONG,
            "DeepSpeed configuration without valid JSON",
            "The configuration cannot be read, so every rank ends at its start.",
        ),
        look: Look::Beside(invalid),
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
    },
    Advice {
        rule: rule(
            "TY705",
            WRONG,
            "DeepSpeed configuration that contradicts itself",
            "`train_batch_size` is a multiple of `train_micro_batch_size_per_gpu` times `gradient_accumulation_steps` whatever \
             the number of ranks, and a model is trained in fp16 or in bf16. DeepSpeed ends at its start where it is not so.",
        ),
        look: Look::Companion(contradicts),
    },
];

/// What the files have of the configuration that the command of a pod names.
enum Config<'a> {
    /// The `ConfigMap` and the key that it lacks.
    Missing(&'a str, &'a str),
    /// Its text.
    Text(&'a str),
    /// A file by itself.
    File(&'a Node),
}

fn config<'a>(scene: &Scene<'a>, pod: &Pod<'a>) -> Option<(Word<'a>, Config<'a>)> {
    let word = pod
        .command()
        .option(&["--deepspeed_config", "--deepspeed"])?;
    let mounted = pod
        .mount_of(word.text)
        .and_then(|(mount, _, volume)| Some((mount, volume?.config_map.as_ref()?)));
    let Some((mount, map)) = mounted else {
        // The one configuration among the files is the one that is meant.
        let file = scene.companions.deepspeed()?;
        return Some((word, Config::File(file)));
    };
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
        match config(scene, pod) {
            Some((word, Config::Text(text))) => {
                look(pod, word.item, serde_json::from_str(text));
            }
            Some((word, Config::File(file))) => look(pod, word.item, Ok(file.to_json())),
            _ => {}
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

fn batches(rule: &Rule, scene: &Scene<'_>) {
    let Some(ranks) = world::total_ranks(scene) else {
        return;
    };
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
        let wrong = json.ok().and_then(|json| wrong_stage(&json));
        if let Some(wrong) = wrong {
            pod.command_at(item).report_with(
                rule,
                wrong,
                "change `zero_optimization.stage`, or remove the offload",
            );
        }
    });
}

/// What is wrong with the stage of `ZeRO`.
fn wrong_stage(json: &Json) -> Option<String> {
    let zero = json.get("zero_optimization")?;
    let stage = zero.get("stage").and_then(Json::as_u64)?;
    let offloads = |key: &str| {
        let device = zero
            .get(key)
            .and_then(|part| part.get("device"))
            .and_then(Json::as_str);
        device.is_some_and(|device| device != "none")
    };
    if stage > 3 {
        Some(format!("ZeRO has no stage {stage}"))
    } else if offloads("offload_param") && stage < 3 {
        Some(format!(
            "parameters are offloaded in ZeRO stage 3 only, the stage is {stage}"
        ))
    } else if offloads("offload_optimizer") && stage < 1 {
        Some(
            "the state of the optimizer is offloaded from ZeRO stage 1 on, the stage is 0"
                .to_owned(),
        )
    } else {
        None
    }
}

/// What a configuration says against itself, and the key where it does.
fn contradiction(json: &Json) -> Option<(&'static str, String)> {
    let number = |key: &str| json.get(key).and_then(Json::as_u64);
    let on = |key: &str| {
        json.get(key)
            .and_then(|part| part.get("enabled"))
            .and_then(Json::as_bool)
            == Some(true)
    };
    if on("fp16") && on("bf16") {
        return Some(("bf16", "`fp16` and `bf16` are both enabled".to_owned()));
    }
    let total = number("train_batch_size")?;
    let micro = number("train_micro_batch_size_per_gpu")?;
    let steps = number("gradient_accumulation_steps").unwrap_or(1);
    let product = micro.saturating_mul(steps);
    (product > 0 && total % product != 0).then(|| {
        let message = format!(
            "`train_batch_size` is {total}, which is no multiple of {micro} per GPU × {steps} steps"
        );
        ("train_batch_size", message)
    })
}

fn contradicts(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    const HINT: &str = "make the configuration agree with itself";
    if companion.kind.is_empty() && is_deepspeed(companion.tree) {
        let json = companion.tree.to_json();
        let wrong =
            contradiction(&json).or_else(|| Some(("zero_optimization", wrong_stage(&json)?)));
        if let Some((key, wrong)) = wrong {
            companion.place.key(key).report_with(rule, wrong, HINT);
        }
    }
    if companion.kind != "ConfigMap" {
        return;
    }
    let data = at(companion.tree, &["data"]).map(|data| &data.value);
    let Some(Value::Map(entries)) = data else {
        return;
    };
    for entry in entries {
        let text = entry.value.as_str().unwrap_or_default();
        if !text.contains("train_batch_size") && !text.contains("zero_optimization") {
            continue;
        }
        let json = serde_json::from_str(text).ok();
        if let Some((_, wrong)) = json.and_then(|json| contradiction(&json)) {
            let place = companion.place.key("data").key(&entry.key);
            place.report_with(rule, wrong, HINT);
        }
    }
}
