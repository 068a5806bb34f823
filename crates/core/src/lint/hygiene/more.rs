//! Values that were left to be filled in, models that every pod fetches, files that are not there, and what was
//! left from debugging.

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    scene::{Pod, Scene},
    script::{Found, files},
};
use super::image;
use crate::spec::{Role, keeps};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY613",
            RISKY,
            "value that was left to be filled in",
            "The value is an example such as `your-registry/train:1` or `s3://your-bucket`. Nothing has that name, so the image is not \
             pulled or the data is not found.",
        ),
        look: Look::Job(examples),
    },
    Advice {
        rule: rule(
            "TY614",
            ODD,
            "model that every pod downloads",
            "The command, or a variable such as `MODEL_ID`, names a model of the Hugging Face hub, and its cache is not on a volume that outlives the pod. Every pod \
             downloads the model at every start, while the GPUs wait; the hub limits how much is fetched at a time.",
        ),
        look: Look::Job(hub_models),
    },
    Advice {
        rule: rule(
            "TY615",
            WRONG,
            "file that the ConfigMap does not have",
            "The command names a file in a folder that a ConfigMap of the files fills, and the ConfigMap has no such key. Every rank \
             ends at its start.",
        ),
        look: Look::Beside(missing_files),
    },
    Advice {
        rule: rule(
            "TY616",
            ODD,
            "left from debugging",
            "The variable makes every kernel or every collective wait, or logs each of them. That finds a fault and slows every step \
             for as long as it stays.",
        ),
        look: Look::Job(debugging),
    },
    Advice {
        rule: rule(
            "TY617",
            ODD,
            "gated model without a token",
            "The owner of the model gives it to those who accepted its licence, and the hub asks for their token. The container has none, so \
             the download is refused.",
        ),
        look: Look::Job(gated_models),
    },
    Advice {
        rule: rule(
            "TY618",
            RISKY,
            "roles with different versions of one image",
            "The ranks of a job speak one protocol: a launcher and workers with different versions of MPI or NCCL, or of the training program, \
             fail when they meet, or train something else than was meant. The images of two roles differ in nothing but the tag or the digest, \
             so one of them was not changed with the other.",
        ),
        look: Look::Job(image::versions),
    },
];

/// Whether a text is an example that its reader was to replace.
pub(in crate::lint) fn is_example(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let begins = |part: &str| {
        part.starts_with("your-")
            || part.starts_with("your_")
            || part.starts_with("change-me")
            || part.starts_with("changeme")
            || part.starts_with("replace-me")
            || part.starts_with("replace_me")
            || part.starts_with("replaceme")
    };
    lower.split(['/', ':', '=', '@', ',', '.', ' ']).any(begins)
}

fn examples(rule: &Rule, scene: &Scene<'_>) {
    const HINT: &str = "write what it stands for";
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let image = container.image.as_deref().unwrap_or_default();
            if is_example(image) {
                let message = format!("the image `{image}` is an example, not an image");
                place.key("image").report_with(rule, message, HINT);
            }
            for (name, value, place) in super::variables(container, &place) {
                if is_example(value) {
                    place.report_with(rule, format!("`{name}` has the example `{value}`"), HINT);
                }
            }
            let parts = [("command", &container.command), ("args", &container.args)];
            for (key, items) in parts {
                for (index, item) in items.iter().flatten().enumerate() {
                    let word = item.split_whitespace().find(|word| is_example(word));
                    if let Some(word) = word {
                        let place = place.key(key).index(index);
                        place.report_with(rule, format!("`{word}` is an example"), HINT);
                    }
                }
            }
        }
        for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
            let claim = volume.persistent_volume_claim.as_ref();
            let name = claim.map_or("", |claim| claim.claim_name.as_str());
            if is_example(name) {
                let place = pod
                    .at()
                    .key("volumes")
                    .index(index)
                    .key("persistentVolumeClaim");
                place.key("claimName").report_with(
                    rule,
                    format!("the claim `{name}` is an example"),
                    HINT,
                );
            }
        }
        for (name, value) in pod.spec.node_selector.iter().flatten() {
            if is_example(value) {
                pod.at().key("nodeSelector").key(name).report_with(
                    rule,
                    format!("`{name}` has the example `{value}`"),
                    HINT,
                );
            }
        }
    }
}

/// Whether a text is the name of a model of the hub: an owner and a name.
fn is_hub_model(text: &str) -> bool {
    let plain = |part: &str| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(is_name)
    };
    let is_file = [
        ".py", ".json", ".yaml", ".yml", ".pt", ".bin", ".sh", ".txt",
    ]
    .iter()
    .any(|end| text.ends_with(end));
    match text.split_once('/') {
        Some((owner, name)) => !is_file && plain(owner) && plain(name),
        None => false,
    }
}

/// Options that name a model.
const MODEL_OPTIONS: &[&str] = &[
    "--model",
    "--model-id",
    "--model-name",
    "--model-name-or-path",
    "--pretrained-model",
    "--pretrained-model-name-or-path",
    "--base-model",
];

/// Variables that name a model of the hub in many programs.
const MODEL_VARIABLES: [&str; 5] = [
    "BASE_MODEL",
    "HF_MODEL",
    "HF_MODEL_ID",
    "MODEL_ID",
    "MODEL_NAME_OR_PATH",
];

fn gated_models(rule: &Rule, scene: &Scene<'_>) {
    const GATED: [&str; 4] = [
        "meta-llama/",
        "google/gemma",
        "bigcode/starcoder",
        "black-forest-labs/",
    ];
    const TOKENS: [&str; 4] = [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HUGGINGFACE_TOKEN",
        "HF_TOKEN_PATH",
    ];
    for pod in &scene.pods {
        let command = pod.command();
        let Some(word) = command.option(MODEL_OPTIONS) else {
            continue;
        };
        let gated = GATED.iter().any(|start| word.text.starts_with(start));
        let set = pod.assigned();
        let has_token = |pod: &Pod<'_>| TOKENS.iter().any(|name| pod.has_variable(name));
        let known = scene.pods.iter().any(has_token)
            || set.iter().any(|(name, _, _)| TOKENS.contains(name))
            || pod.trainer.env_from.is_some();
        if gated && !known && !has_shared_cache(pod) {
            pod.command_at(word.item).report_with(
                rule,
                format!(
                    "`{}` is gated, and the container has no token of the hub",
                    word.text
                ),
                "add `HF_TOKEN` from a Secret with `valueFrom.secretKeyRef`",
            );
        }
    }
}

fn hub_models(rule: &Rule, scene: &Scene<'_>) {
    if scene.pod_count() < 2 {
        return;
    }
    for pod in &scene.pods {
        let command = pod.command();
        let by_option = command.option(MODEL_OPTIONS);
        let by_option = by_option.map(|word| (word.text, pod.command_at(word.item)));
        let by_variable = || {
            let mut set = pod.variables();
            let named = set.find(|(name, _, _)| MODEL_VARIABLES.contains(name));
            named.map(|(_, value, place)| (value, place))
        };
        let Some((model, place)) = by_option
            .or_else(by_variable)
            .filter(|(model, _)| is_hub_model(model))
        else {
            continue;
        };
        let downloader = match pod.role {
            Role::Launcher => scene.role(Role::Worker).unwrap_or(pod),
            _ => pod,
        };
        if has_shared_cache(downloader) || has_shared_cache(pod) {
            continue;
        }
        place.report_with(
            rule,
            format!("every pod downloads `{model}` from the hub at every start"),
            "put the model on a shared volume and name its folder, or set `HF_HOME` to a folder of one",
        );
    }
}

/// Whether the cache of the hub is on a volume that outlives the pod, or is not used.
fn has_shared_cache(pod: &Pod<'_>) -> bool {
    const CACHES: [&str; 5] = [
        "HF_HOME",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "TRANSFORMERS_CACHE",
        "XDG_CACHE_HOME",
    ];
    let set: Vec<(&str, &str)> = pod
        .variables()
        .chain(pod.assigned())
        .map(|(name, value, _)| (name, value))
        .collect();
    let offline = set.iter().any(|(name, value)| {
        matches!(*name, "HF_HUB_OFFLINE" | "TRANSFORMERS_OFFLINE") && *value != "0"
    });
    let at_default = ["/root/.cache", "/root/.cache/huggingface"];
    let paths = set
        .iter()
        .filter(|(name, _)| CACHES.contains(name))
        .map(|(_, value)| *value)
        .chain(at_default);
    let mut shared = paths
        .filter_map(|path| pod.mount_of(path))
        .filter(|(_, _, volume)| {
            // A cache that is mounted read-only is another rule's.
            volume.is_some_and(|volume| keeps(volume) || volume.host_path.is_some())
        });
    offline || shared.next().is_some() || pod.trainer.env_from.is_some()
}

fn missing_files(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        // The configuration of `DeepSpeed` has a rule of its own.
        let command = pod.command();
        let deepspeed = command.option(&["--deepspeed_config", "--deepspeed"]);
        for found in files(scene, pod) {
            if let Found::Missing(map, key, item) = found
                && deepspeed.is_none_or(|word| word.item != item)
            {
                pod.command_at(item).report_with(
                    rule,
                    format!("ConfigMap `{map}` has no key `{key}`"),
                    format!("add `{key}` to `data` of the ConfigMap"),
                );
            }
        }
    }
}

fn debugging(rule: &Rule, scene: &Scene<'_>) {
    const LEFT: [(&str, &str); 6] = [
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("HIP_LAUNCH_BLOCKING", "1"),
        ("NCCL_DEBUG", "TRACE"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        ("TORCH_CPP_LOG_LEVEL", "INFO"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
    ];
    for pod in &scene.pods {
        for (name, value, place) in pod.variables().chain(pod.assigned()) {
            if LEFT
                .iter()
                .any(|(left, on)| *left == name && value.eq_ignore_ascii_case(on))
            {
                place.report_with(
                    rule,
                    format!("`{name}` is `{value}`, which slows every step"),
                    "remove it once the cause is found",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_names() {
        for text in [
            "your-registry/train:1",
            "s3://your-bucket/a",
            "YOUR_TOKEN",
            "changeme",
        ] {
            assert!(is_example(text), "{text}");
        }
        for text in [
            "my-registry/train:1",
            "s3://data/yours",
            "team/your",
            "s3://yourteam/x",
        ] {
            assert!(!is_example(text), "{text}");
        }
        for text in ["meta-llama/Llama-3-8B", "gpt2/medium"] {
            assert!(is_hub_model(text), "{text}");
        }
        for text in [
            "/models/llama",
            "./llama",
            "gpt2",
            "configs/a.yaml",
            "s3://a/b",
            "a/b/c",
            "$MODEL/x",
        ] {
            assert!(!is_hub_model(text), "{text}");
        }
    }
}
