//! What one object has otherwise than another.
//!
//! Ours is what would have been made; theirs is what is in the cluster, with all that the API server,
//! the scheduler and other controllers have added. So only what ours sets counts, and of what theirs has
//! besides only what an operator of jobs would have put there.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use trainyard_core::job::{Condition, ConditionStatus};

use super::quantity;

#[cfg(test)]
mod tests;

/// Characters of a value that are shown.
const SHOWN: usize = 200;
/// Lists in which what only theirs has was put there by their operator.
const WHOLE_LISTS: &[&str] = &[
    "args",
    "command",
    "containers",
    "env",
    "envFrom",
    "initContainers",
    "ports",
    "schedulingGates",
    "volumeMounts",
    "volumes",
];
/// Maps of which the same holds.
const WHOLE_MAPS: &[&str] = &["data", "nodeSelector", "selector"];
/// Domains whose labels and annotations operators of jobs and of gangs set.
const OPERATOR_DOMAINS: &[&str] = &[
    "kubeflow.org",
    "scheduling.k8s.io",
    "scheduling.x-k8s.io",
    "volcano.sh",
];
/// What is ours alone by design; see the list of differences.
const OWN_DOMAIN: &str = "trainyard.dev";
/// The token of a pod, which the API server mounts.
const TOKEN_VOLUME: &str = "kube-api-access-";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Difference {
    /// The field, such as `spec.containers[pytorch].env[RANK].value`.
    pub(super) path: String,
    /// What would have been there; empty for nothing.
    pub(super) ours: String,
    /// What is there; empty for nothing.
    pub(super) theirs: String,
}

/// What `ours` has otherwise than `theirs`.
pub(super) fn objects(ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    let (Some(ours), Some(theirs)) = (ours.as_object(), theirs.as_object()) else {
        return found;
    };
    let none = Value::Null;
    for (key, value) in ours {
        let other = theirs.get(key).unwrap_or(&none);
        match key.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => metadata("metadata", value, other, &mut found),
            _ => walk(key, value, other, &mut found),
        }
    }
    found
}

/// Which conditions would have been written otherwise.
pub(super) fn conditions(ours: &[Condition], theirs: &[Condition]) -> Vec<Difference> {
    let by_name = |conditions: &[Condition]| {
        let texts = conditions.iter().map(|it| (it.kind.name(), said(it)));
        texts.collect::<BTreeMap<_, _>>()
    };
    let (ours, theirs) = (by_name(ours), by_name(theirs));
    let mut names: Vec<&str> = ours.keys().chain(theirs.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let text = |of: &BTreeMap<&str, String>, name: &str| of.get(name).cloned().unwrap_or_default();
    names
        .into_iter()
        .map(|name| Difference {
            path: format!("status.conditions[{name}]"),
            ours: text(&ours, name),
            theirs: text(&theirs, name),
        })
        .filter(|difference| difference.ours != difference.theirs)
        .collect()
}

fn said(condition: &Condition) -> String {
    let status = match condition.status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    format!("{status} {}: {}", condition.reason, condition.message)
}

/// Labels, annotations and owner; the rest of the metadata is the API server's.
fn metadata(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<Difference>) {
    for key in ["labels", "annotations"] {
        let none = Map::new();
        let of = |value: &Value| value.get(key).and_then(Value::as_object).cloned();
        let (ours, theirs) = (of(ours), of(theirs));
        let (ours, theirs) = (
            ours.as_ref().unwrap_or(&none),
            theirs.as_ref().unwrap_or(&none),
        );
        let names = ours.keys().chain(theirs.keys().filter(|name| {
            !ours.contains_key(*name) && OPERATOR_DOMAINS.iter().any(|it| is_in(name, it))
        }));
        for name in names.filter(|name| !is_in(name, OWN_DOMAIN)) {
            let path = format!("{path}.{key}[{name}]");
            let value = |of: &Map<String, Value>| of.get(name).cloned().unwrap_or_default();
            walk(&path, &value(ours), &value(theirs), found);
        }
    }
    if let Some(owners) = ours.get("ownerReferences") {
        let other = theirs.get("ownerReferences").unwrap_or(&Value::Null);
        walk(&format!("{path}.ownerReferences"), owners, other, found);
    }
}

/// Whether a label or annotation is of `domain` or of one below it.
fn is_in(name: &str, domain: &str) -> bool {
    let own = name.split('/').next().unwrap_or_default();
    own.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn walk(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<Difference>) {
    match (ours, theirs) {
        (ours, theirs) if ours == theirs || (is_nothing(ours) && is_nothing(theirs)) => {}
        (Value::Object(ours), Value::Object(theirs)) => map(path, ours, theirs, found),
        (Value::Array(ours), Value::Array(theirs)) => list(path, ours, theirs, found),
        (Value::String(a), Value::String(b)) if same_text(path, a, b) => {}
        (ours, theirs) => found.push(Difference {
            path: path.to_owned(),
            ours: shown(ours),
            theirs: shown(theirs),
        }),
    }
}

fn map(
    path: &str,
    ours: &Map<String, Value>,
    theirs: &Map<String, Value>,
    found: &mut Vec<Difference>,
) {
    let none = Value::Null;
    for (key, value) in ours {
        let path = format!("{path}.{key}");
        // The template of a batch Job has metadata like an object.
        if key == "metadata" {
            metadata(&path, value, theirs.get(key).unwrap_or(&none), found);
        } else {
            walk(&path, value, theirs.get(key).unwrap_or(&none), found);
        }
    }
    let whole = WHOLE_MAPS.contains(&field(path));
    let lists = theirs
        .iter()
        .filter(|(key, _)| whole || WHOLE_LISTS.contains(&key.as_str()));
    for (key, value) in lists.filter(|(key, _)| !ours.contains_key(*key)) {
        let ours = if value.is_array() {
            Value::Array(Vec::new())
        } else {
            Value::Null
        };
        walk(&format!("{path}.{key}"), &ours, value, found);
    }
}

fn list(path: &str, ours: &[Value], theirs: &[Value], found: &mut Vec<Difference>) {
    let none = Value::Null;
    if let (Some(ours), Some(theirs)) = (named(path, ours), named(path, theirs)) {
        for (name, value) in &ours {
            let other = theirs.get(name).copied().unwrap_or(&none);
            walk(&format!("{path}[{name}]"), value, other, found);
        }
        let added = theirs.iter().filter(|(name, _)| !ours.contains_key(*name));
        for (name, value) in added.filter(|(name, _)| !is_token(name)) {
            if WHOLE_LISTS.contains(&field(path)) {
                walk(&format!("{path}[{name}]"), &none, value, found);
            }
        }
        return;
    }
    if field(path) == "tolerations" {
        // The API server adds some; the order means nothing.
        for value in ours.iter().filter(|value| !theirs.contains(value)) {
            walk(path, value, &none, found);
        }
    } else if ours.len() == theirs.len() {
        for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            walk(&format!("{path}[{index}]"), ours, theirs, found);
        }
    } else {
        found.push(Difference {
            path: path.to_owned(),
            ours: shown(&Value::from(ours)),
            theirs: shown(&Value::from(theirs)),
        });
    }
}

/// The items of a list by their key; nothing for a list whose order counts.
fn named<'a>(path: &str, items: &'a [Value]) -> Option<BTreeMap<String, &'a Value>> {
    let key = match field(path) {
        "volumeMounts" => "mountPath",
        _ => "name",
    };
    let mut by_name = BTreeMap::new();
    for item in items {
        let name = item.get(key)?.as_str()?;
        // Two of one name, as variables may have, are compared by place.
        if by_name.insert(name.to_owned(), item).is_some() {
            return None;
        }
    }
    Some(by_name)
}

fn is_token(name: &str) -> bool {
    name.starts_with(TOKEN_VOLUME) || name == TOKEN_PATH
}

/// The last field of a path.
fn field(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// What the API server leaves out, or writes where nothing was said.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.values().all(is_nothing),
        Value::Bool(true) => false,
    }
}

/// Whether two texts mean the same: amounts of resources, and JSON in a variable.
fn same_text(path: &str, ours: &str, theirs: &str) -> bool {
    if path.contains(".resources.") {
        return quantity::same(ours, theirs);
    }
    let parsed = |text: &str| {
        let starts = text.starts_with(['{', '[']);
        starts.then(|| serde_json::from_str::<Value>(text).ok())?
    };
    matches!((parsed(ours), parsed(theirs)), (Some(a), Some(b)) if a == b)
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
