//! Secrets in the files, and the values of a chart.

use super::{
    super::{
        Rule,
        companions::{Companion, Companions},
        hygiene::{is_example, is_moving, is_secret},
        objects::is_values,
    },
    is,
};
use crate::spec::{Node, Place, Value, placeholder::is_placeholder};

pub(super) fn secret(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    if !is(companion, "Secret") {
        return;
    }
    for key in ["stringData", "data"] {
        let data = companion.tree.get(key).map(|entry| &entry.value.value);
        let Some(Value::Map(entries)) = data else {
            continue;
        };
        // A Secret to be filled in holds none.
        let real = entries.iter().find(|entry| {
            let text = entry.value.as_str().unwrap_or_default();
            !text.is_empty() && !is_placeholder(text) && !is_example(text)
        });
        if let Some(entry) = real {
            companion.place.key(key).key(&entry.key).report_with(
                rule,
                format!(
                    "`{}` of the Secret `{}` is in the file",
                    entry.key, companion.name
                ),
                "keep it out of the files, and change it",
            );
            return;
        }
    }
}

pub(super) fn chart(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    if companion.kind.is_empty() && is_values(companion.tree) {
        walk(rule, companion.tree, &companion.place);
    }
}

fn walk(rule: &Rule, node: &Node, place: &Place<'_>) {
    match &node.value {
        Value::Map(entries) => {
            let text = |key: &str| node.get(key).and_then(|entry| entry.value.as_str());
            if let Some(repository) = text("repository") {
                if is_example(repository) {
                    place.key("repository").report_with(
                        rule,
                        format!("the image `{repository}` is an example, not an image"),
                        "write what it stands for",
                    );
                }
                // A chart commonly takes its own version where the tag is empty.
                if let Some(tag) = text("tag").filter(|tag| is_moving(tag)) {
                    place.key("tag").report_with(
                        rule,
                        format!("the image `{repository}` has the tag `{tag}`, it may be another one at the next start"),
                        "name a version, or better a digest",
                    );
                }
            }
            let has_tag = ["digest", "imageTag", "image_tag", "tag", "version"]
                .iter()
                .any(|key| node.get(key).is_some());
            for entry in entries {
                let place = place.key(&entry.key);
                match entry.value.as_str() {
                    // Its tag has a key of its own.
                    Some(_) if entry.key == "image" && has_tag => {}
                    Some(text) => value(rule, &entry.key, text, &place),
                    // Variables have rules of their own.
                    None if entry.key == "env" && matches!(entry.value.value, Value::List(_)) => {}
                    None => walk(rule, &entry.value, &place),
                }
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(rule, item, &place.index(index));
            }
        }
        _ => {}
    }
}

fn value(rule: &Rule, key: &str, text: &str, place: &Place<'_>) {
    // `hfToken` and `hf_token` are the same word.
    let mut name = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    // The name of a Secret, or of a key of one, is no secret.
    let is_reference = name.ends_with("SECRET")
        || name.ends_with("SECRET_NAME")
        || name.contains("EXISTING_SECRET");
    if !is_reference && !is_placeholder(text) && is_secret(&name, text) {
        place.report_with(
            rule,
            format!("`{key}` has a secret in plain text"),
            "name a Secret of the cluster instead, and change it",
        );
    } else if key == "image" && !text.is_empty() && !text.contains('@') {
        let last = text.rsplit('/').next().unwrap_or(text);
        if last.split_once(':').is_none_or(|(_, tag)| is_moving(tag)) && !is_placeholder(text) {
            place.report_with(
                rule,
                format!("the image `{text}` may be another one at the next start"),
                "name a version, or better a digest",
            );
        }
    }
}
