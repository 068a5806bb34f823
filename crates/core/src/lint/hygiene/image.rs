//! Names of images: which are invalid, and which may be another image tomorrow.

use super::super::{
    Rule,
    advice::{Advice, Look, PYTORCH, WRONG, example, rule},
    scene::Scene,
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
    catches: example(
        PYTORCH,
        &[(
            "registry.example.com/team/train:1.4.0",
            "MY_REGISTRY/team/train:1.4.0",
        )],
    ),
    spares: example(
        PYTORCH,
        &[(
            "registry.example.com/team/train:1.4.0",
            "Registry.Example.com:5000/team/train__gpu:1.4.0-RC1",
        )],
    ),
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
            let fixed = image.contains('@') || !matches!(tag, None | Some("latest" | ""));
            if fixed || !is_image(image) {
                continue;
            }
            let found = if tag.is_none() {
                "has no tag"
            } else {
                "has the tag `latest`"
            };
            place.key("image").report_with(
                rule,
                format!("the image `{image}` {found}, it may be another one at the next start"),
                "name a version, or better a digest",
            );
        }
    }
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
