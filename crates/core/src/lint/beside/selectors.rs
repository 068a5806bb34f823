//! What a Service or a monitor selects, and whether it has the port that is asked for.

use std::collections::BTreeSet;

use super::{
    super::{
        Rule,
        companions::{Companion, Companions, at},
        labels::{Index, Labelled, pairs},
    },
    is, items, text,
};
use crate::spec::Node;

/// The pods that the selector of a Service matches; `None` where it has none, or the files make no pods there.
fn selected<'a>(
    tree: &Node,
    namespace: &str,
    all: &'a Companions<'_>,
) -> Option<Vec<&'a Labelled<'a>>> {
    let selector = pairs(at(tree, &["spec", "selector"])?);
    (!selector.is_empty() && all.pods.has(namespace)).then(|| all.pods.select(namespace, &selector))
}

fn shown(selector: &Node) -> String {
    let labels: Vec<String> = pairs(selector)
        .iter()
        .map(|(key, value)| format!("`{key}: {value}`"))
        .collect();
    labels.join(", ")
}

pub(super) fn service(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    if !is(companion, "Service") {
        return;
    }
    let found = selected(companion.tree, companion.namespace, all);
    if found.is_some_and(|found| found.is_empty()) {
        let selector = at(companion.tree, &["spec", "selector"]);
        companion.place.key("spec").key("selector").report_with(
            rule,
            format!(
                "no pod of the files in `{}` has the labels {}",
                companion.namespace,
                selector.map(shown).unwrap_or_default()
            ),
            "select `training.kubeflow.org/job-name`, or label the templates of the pods",
        );
    }
}

pub(super) fn target_port(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    if !is(companion, "Service") {
        return;
    }
    let Some(found) = selected(companion.tree, companion.namespace, all) else {
        return;
    };
    for (index, port) in items(companion.tree, &["spec", "ports"]).iter().enumerate() {
        let Some(name) = text(port, &["targetPort"]) else {
            continue;
        };
        let has = found.iter().any(|set| set.open || set.ports.contains(name));
        if !found.is_empty() && !has && name.parse::<u16>().is_err() {
            let place = companion.place.key("spec").key("ports").index(index);
            place.key("targetPort").report_with(
                rule,
                format!("no container of the pods has a port named `{name}`"),
                "name the port in `ports` of the container, or write its number",
            );
        }
    }
}

/// The labels that a monitor selects by, where it has only those. The Services that the operator makes for a job
/// are not in the files, so a selector of their labels is left out.
fn monitored<'a>(companion: &Companion<'a>) -> Vec<(&'a str, &'a str)> {
    let tree = companion.tree;
    let by_labels = at(tree, &["spec", "selector", "matchLabels"]);
    let others = at(tree, &["spec", "selector", "matchExpressions"]).is_some()
        || at(tree, &["spec", "namespaceSelector"]).is_some();
    let wanted = by_labels.filter(|_| !others).map(pairs).unwrap_or_default();
    let of_operator = |(key, _): &(&str, &str)| key.starts_with("training.kubeflow.org/");
    if is(companion, "ServiceMonitor") && wanted.iter().any(of_operator) {
        return Vec::new();
    }
    wanted
}

/// What a monitor selects from: the word for one, and all of them.
fn monitored_objects<'a>(
    kind: &str,
    all: &'a Companions<'_>,
) -> Option<(&'static str, &'a Index<'a>)> {
    match kind {
        "ServiceMonitor" => Some(("Service", &all.services)),
        "PodMonitor" => Some(("pod", &all.pods)),
        _ => None,
    }
}

pub(super) fn monitor(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let wanted = monitored(companion);
    let namespace = companion.namespace;
    let Some((what, index)) = monitored_objects(companion.kind, all) else {
        return;
    };
    if wanted.is_empty() || !index.has(namespace) || !index.select(namespace, &wanted).is_empty() {
        return;
    }
    let labels = at(companion.tree, &["spec", "selector", "matchLabels"]);
    let place = companion.place.key("spec").key("selector");
    place.key("matchLabels").report_with(
        rule,
        format!(
            "no {what} of the files in `{namespace}` has the labels {}",
            labels.map(shown).unwrap_or_default()
        ),
        format!("give the {what} these labels, or select those that it has"),
    );
}

pub(super) fn monitor_port(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let wanted = monitored(companion);
    let Some((what, index)) = monitored_objects(companion.kind, all) else {
        return;
    };
    let found = index.select(companion.namespace, &wanted);
    if wanted.is_empty() || found.is_empty() || found.iter().any(|set| set.open) {
        return;
    }
    let ports: BTreeSet<&str> = found
        .iter()
        .flat_map(|set| set.ports.iter().copied())
        .collect();
    let list = if what == "pod" {
        "podMetricsEndpoints"
    } else {
        "endpoints"
    };
    for (index, endpoint) in items(companion.tree, &["spec", list]).iter().enumerate() {
        let Some(name) = text(endpoint, &["port"]).filter(|name| !ports.contains(name)) else {
            continue;
        };
        let there: Vec<String> = ports.iter().map(|port| format!("`{port}`")).collect();
        let place = companion.place.key("spec").key(list).index(index);
        place.key("port").report_with(
            rule,
            match there.len() {
                0 => format!("`port` is `{name}`, and no port has a name"),
                _ => format!(
                    "`port` is `{name}`, the ports are named {}",
                    there.join(", ")
                ),
            },
            "write the name of a port, not its number",
        );
    }
}
