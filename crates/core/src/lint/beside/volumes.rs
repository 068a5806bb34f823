//! Volumes that somebody made by hand, beside the claims that name them.

use super::super::{
    Rule,
    advice::{Advice, Look, WRONG, rule},
    companions::{Companion, Companions, at},
};
use super::{is, items, text};
use crate::{
    quantity,
    spec::{Node, Value},
};

/// The rule.
pub(in crate::lint) static RULES: &[Advice] = &[Advice {
    rule: rule(
        "TY938",
        WRONG,
        "claim that its volume cannot satisfy",
        "A claim that names its volume in `volumeName` is bound to it only if the volume has its class, its access modes and at least its \
         size, and is not kept for another claim by `claimRef`. Otherwise the claim stays Pending, and the pods with it.",
    ),
    look: Look::Companion(unsatisfied),
}];

fn size(node: &Node, path: &[&str]) -> Option<u64> {
    let written = match &at(node, path)?.value {
        Value::String(text) => text.clone(),
        Value::Int(count) => count.to_string(),
        _ => return None,
    };
    quantity::units(&k8s_openapi::apimachinery::pkg::api::resource::Quantity(
        written,
    ))
}

fn unsatisfied(rule: &Rule, companion: &Companion<'_>, companions: &Companions<'_>) {
    if !is(companion, "PersistentVolumeClaim") {
        return;
    }
    let claim = companion.tree;
    let Some(name) = text(claim, &["spec", "volumeName"]) else {
        return;
    };
    // A volume has no namespace.
    let namespace = crate::spec::DEFAULT_NAMESPACE;
    let Some(volume) = companions.find("PersistentVolume", namespace, name) else {
        return;
    };
    let place = companion.place.key("spec");
    let class = |node: &Node| {
        text(node, &["spec", "storageClassName"])
            .unwrap_or_default()
            .to_owned()
    };
    let stated = text(claim, &["spec", "storageClassName"]);
    if stated.is_some_and(|stated| stated != class(volume)) {
        place.key("storageClassName").report_with(
            rule,
            format!(
                "the class is `{}`, that of the volume `{name}` is `{}`",
                class(claim),
                class(volume)
            ),
            "write the same class in both, or `\"\"` in both",
        );
    }
    let modes = |node: &Node| -> Vec<String> {
        let list = items(node, &["spec", "accessModes"]).iter();
        list.filter_map(|mode| Some(mode.as_str()?.to_owned()))
            .collect()
    };
    let has = modes(volume);
    if let Some(mode) = modes(claim).into_iter().find(|mode| !has.contains(mode)) {
        place.key("accessModes").report_with(
            rule,
            format!(
                "the claim wants `{mode}`, the volume `{name}` has {}",
                has.join(", ")
            ),
            "claim a mode that the volume has",
        );
    }
    let wanted = size(claim, &["spec", "resources", "requests", "storage"]);
    let there = size(volume, &["spec", "capacity", "storage"]);
    if let Some((wanted, there)) = wanted.zip(there)
        && wanted > there
    {
        place.key("resources").report_with(
            rule,
            format!(
                "the claim wants {} GiB, the volume `{name}` has {}",
                wanted >> 30,
                there >> 30
            ),
            "ask for no more than the volume has",
        );
    }
    let kept = text(volume, &["spec", "claimRef", "name"]);
    let space = text(volume, &["spec", "claimRef", "namespace"]);
    let other = kept.is_some_and(|kept| kept != companion.name)
        || space.is_some_and(|space| space != companion.namespace);
    if other {
        place.key("volumeName").report_with(
            rule,
            format!(
                "the volume `{name}` is kept for the claim `{}` of `{}`",
                kept.unwrap_or_default(),
                space.unwrap_or_default()
            ),
            "name this claim in `claimRef` of the volume",
        );
    }
}
