//! Names of images: which are invalid, and which may be another image tomorrow.

use super::super::{
    Rule,
    advice::{Advice, Look, WRONG, rule},
    scene::{Pod, Scene},
};
use crate::spec::placeholder::is_placeholder;

/// The rules about names of images.
pub(in crate::lint) static RULES: &[Advice] = &[Advice {
    rule: rule(
        "TY612",
        WRONG,
        "invalid image name",
        "The cluster accepts any text as an image, and the node then finds that nothing can have that name: the pod \
         waits with `InvalidImageName`. A name has lower-case letters, digits and `.`, `_`, `-` between \
         slashes, then perhaps `:` and a tag, then perhaps `@` and a digest.",
    ),
    look: Look::Job(names),
}];

fn names(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let image = container.image.as_deref().unwrap_or_default();
            if image.is_empty() || is_image(image) {
                continue;
            }
            let hint = if is_placeholder(image) {
                "fill in what it stands for"
            } else {
                "write `REGISTRY/NAME:TAG`, the name in lower case"
            };
            place
                .key("image")
                .report_with(rule, format!("no image can be named `{image}`"), hint);
        }
    }
}

pub(super) fn latest(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            let image = container.image.as_deref().unwrap_or_default();
            let name = image.rsplit('/').next().unwrap_or(image);
            let tag = name.split_once(':').map(|(_, tag)| tag);
            let moves = tag.is_none_or(|tag| tag.is_empty() || is_moving(tag));
            // Whatever stands for the registry or the name, a tag that is written is the tag.
            let is_open = is_placeholder(image);
            let is_known = is_image(image) || is_open && tag.is_some_and(is_plain);
            if image.contains('@') || !moves || !is_known {
                continue;
            }
            let found = match tag {
                None => "has no tag".to_owned(),
                Some(tag) => format!("has the tag `{tag}`"),
            };
            place.key("image").report_with(
                rule,
                format!("the image `{image}` {found}, it may be another one at the next start"),
                "name a version, or better a digest",
            );
        }
    }
}

/// Whether a tag has nothing in it that is to be filled in.
fn is_plain(tag: &str) -> bool {
    let is_of_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !tag.is_empty() && tag.bytes().all(is_of_tag)
}

/// The name of an image without its tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    }
}

pub(super) fn versions(rule: &Rule, scene: &Scene<'_>) {
    let Some((first, others)) = scene.pods.split_first() else {
        return;
    };
    let of = |pod: &Pod<'_>| pod.trainer.image.clone().unwrap_or_default();
    let wanted = of(first);
    if wanted.is_empty() {
        return;
    }
    for pod in others {
        let image = of(pod);
        if image == wanted || repository(&image) != repository(&wanted) {
            continue;
        }
        // CPU and GPU builds of one version are two images on purpose.
        let accelerated = |pod: &Pod<'_>| pod.gpus() > 0;
        if accelerated(first) != accelerated(pod) && is_build_for_devices(&wanted, &image) {
            continue;
        }
        pod.trainer_at().key("image").report_with(
            rule,
            format!(
                "{} runs `{image}`, {} runs `{wanted}`",
                pod.role, first.role
            ),
            "write the same version for all roles",
        );
    }
}

/// Whether one of the two tags says that it is for accelerators or for CPUs.
fn is_build_for_devices(one: &str, other: &str) -> bool {
    const WORDS: [&str; 6] = ["cpu", "gpu", "cuda", "rocm", "npu", "xpu"];
    let names = |image: &str| {
        let tag = image.get(repository(image).len()..).unwrap_or_default();
        let lower = tag.to_ascii_lowercase();
        WORDS.iter().any(|word| lower.contains(word))
    };
    names(one) || names(other)
}

/// Whether a tag names whatever was built last: `latest-gpu` and `nightly` do, `nightly-20250301` does not.
pub(in crate::lint) fn is_moving(tag: &str) -> bool {
    const WORDS: [&str; 14] = [
        "canary", "current", "dev", "develop", "devel", "edge", "head", "latest", "main", "master",
        "nightly", "snapshot", "stable", "unstable",
    ];
    let lower = tag.to_ascii_lowercase();
    let mut parts = lower.split(['-', '_', '.']);
    // A date or the beginning of a commit says which build it is.
    let dated = lower.split(['-', '_', '.']).any(|part| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        digits >= 6 || part.len() >= 7 && digits > 0 && part.bytes().all(|b| b.is_ascii_hexdigit())
    });
    let alone = WORDS.contains(&lower.as_str());
    // `team-stable` has no digit that could be part of a version.
    let unnumbered = !lower.bytes().any(|byte| byte.is_ascii_digit())
        && lower
            .split(['-', '_', '.'])
            .any(|part| WORDS.contains(&part));
    let among = parts.any(|part| matches!(part, "latest" | "nightly" | "snapshot"));
    // `2.3.0-cuda12.1-cudnn8-devel` names a version.
    alone || unnumbered || among && !dated && !lower.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a node can look for the image, by the grammar of references to images.
fn is_image(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (Some(first), rest),
        _ => (None, name),
    };
    let plain = |text: &str, also: &[u8]| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
    };
    let tag_fits =
        |tag: &str| plain(tag, b"._-") && !tag.starts_with(['.', '-']) && tag.len() <= 128;
    registry.is_none_or(|registry| plain(registry, b".-:[]"))
        && path.split('/').all(is_component)
        && tag.is_none_or(tag_fits)
        && digest.is_none_or(|digest| plain(digest, b":+._-"))
}

/// Whether the first part of a name is a registry and not a folder of the default one.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':'])
        || first == "localhost"
        || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether `part` is a part of a path: lower-case words with a separator between them.
fn is_component(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(|byte| is_word(*byte));
    ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| is_word(*byte) || b"._-".contains(byte))
        && !["..", "___", "._", "_.", "-.", ".-"]
            .iter()
            .any(|pair| part.contains(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_that_move() {
        for tag in [
            "latest",
            "latest-gpu",
            "gpu-latest",
            "nightly",
            "main",
            "nightly-gpu",
            "stable",
            "team-stable",
            "main-gpu",
        ] {
            assert!(is_moving(tag), "{tag}");
        }
        let fixed = [
            "1.4.0",
            "v1",
            "24.09-py3",
            "2.3.0-cuda12.1-cudnn8-devel",
            "nightly-20250301",
            "main-1a2b3c4",
            "2.16.1-gpu",
            "stable-2",
            "jammy",
            "release-7",
            "2025.1-nightly",
        ];
        for tag in fixed {
            assert!(!is_moving(tag), "{tag}");
        }
    }

    #[test]
    fn names_of_images() {
        let right = [
            "train",
            "train:latest",
            "team/train:1.4.0",
            "registry.example.com/team/train-gpu__v2:1",
            "localhost:5000/train",
            "MYHOST/train",
            "train@sha256:4f2b",
            "host:5000/train:1@sha256:4f2b",
            "[::1]:5000/train",
        ];
        let wrong = [
            "Train",
            "MY_REGISTRY/train:1",
            "registry.example.com/Team/train",
            "${REGISTRY}train:1",
            "<account>.example.com/train:1",
            "{{ .Values.image }}",
            "train:",
            "train:a b",
            "team//train",
            "-train",
            "https://registry.example.com/train",
            "IMAGE",
        ];
        for image in right {
            assert!(is_image(image), "{image}");
        }
        for image in wrong {
            assert!(!is_image(image), "{image}");
        }
    }
}
