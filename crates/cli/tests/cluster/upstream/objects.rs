//! Objects as paths and values, so that two operators' can be compared.

use std::collections::BTreeMap;

use serde_json::Value;

/// What the API server gives each object itself, or what depends on where a pod is.
const NOT_COMPARED: &[&str] = &[
    "clusterIP",
    "clusterIPs",
    "creationTimestamp",
    "generation",
    "managedFields",
    "namespace",
    "nodeName",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// An object's paths and values, by what it is and its name.
type Objects = BTreeMap<(String, String), BTreeMap<String, String>>;

/// One thing that differs.
#[derive(Debug)]
pub(super) struct Difference {
    /// The kind of the job and of the object, such as `PyTorchJob/Pod`.
    pub(super) object: String,
    /// Where in it.
    pub(super) path: String,
    /// Name and both values.
    pub(super) detail: String,
}

/// Whether a condition of a job is true.
pub(super) fn holds(job: &Value, condition: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == condition && one["status"] == "True")
}

/// The objects of jobs among `items`, the jobs' status, and their events.
pub(super) fn flat(namespace: &str, phase: &str, items: &[Value]) -> Objects {
    let mut objects = Objects::new();
    let plain = |text: &str| text.replace(namespace, "NAMESPACE");
    for item in items {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&item["kind"]), text(&item["metadata"]["name"]));
        let is_of_jobs = |value: &Value| text(&value["apiVersion"]).starts_with("kubeflow.org/");
        let mut paths = BTreeMap::new();
        let key = if is_of_jobs(item) {
            status_of(item, phase, &mut paths);
            (format!("{kind}/status"), name)
        } else if kind == "Event" {
            let about = &item["involvedObject"];
            if !is_of_jobs(about) {
                continue;
            }
            let message = plain(&text(&item["message"])).replace(&text(&about["name"]), "JOB");
            let path = format!(
                "{} {}: {}",
                text(&item["type"]),
                text(&item["reason"]),
                without_numbers(&message)
            );
            let key = (format!("{}/Event", text(&about["kind"])), String::new());
            let there: &mut BTreeMap<String, String> = objects.entry(key).or_default();
            there.insert(path, "sent".to_owned());
            continue;
        } else {
            let owner = &item["metadata"]["ownerReferences"][0];
            if !is_of_jobs(owner) {
                continue;
            }
            let mut compared = item.clone();
            if let Some(fields) = compared.as_object_mut() {
                fields.remove("status");
            }
            walk(&compared, String::new(), &mut paths);
            (format!("{}/{kind}", text(&owner["kind"])), name)
        };
        let paths = paths.into_iter();
        objects.insert(
            key,
            paths.map(|(path, value)| (path, plain(&value))).collect(),
        );
    }
    objects
}

/// Conditions with all they say except times, which fields there are, and the counts while nothing ends.
fn status_of(job: &Value, phase: &str, paths: &mut BTreeMap<String, String>) {
    let Some(fields) = job["status"].as_object() else {
        return;
    };
    for (name, value) in fields {
        match name.as_str() {
            "conditions" => {
                let mut order = Vec::new();
                for one in value.as_array().into_iter().flatten() {
                    let kind = one["type"].as_str().unwrap_or_default();
                    let text = format!("{} {} {}", one["status"], one["reason"], one["message"]);
                    paths.insert(format!("conditions[{kind}]"), text);
                    order.push(kind);
                }
                paths.insert("conditions in order".to_owned(), order.join(","));
            }
            // Which pods of an ending job were counted depends on the moment.
            "replicaStatuses" if phase != "running" => {}
            "replicaStatuses" => walk(value, name.clone(), paths),
            _ => {
                paths.insert(name.clone(), "there".to_owned());
            }
        }
    }
}

fn walk(value: &Value, path: String, paths: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                if !NOT_COMPARED.contains(&name.as_str()) {
                    let dot = if path.is_empty() { "" } else { "." };
                    walk(value, format!("{path}{dot}{name}"), paths);
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                let at = at.to_string();
                let name = item["name"].as_str().unwrap_or(&at);
                // The volume of a pod's token has a random name.
                if !name.starts_with("kube-api-access-") {
                    walk(item, format!("{path}[{name}]"), paths);
                }
            }
        }
        Value::String(text) => {
            paths.insert(path, text.clone());
        }
        other => {
            paths.insert(path, other.to_string());
        }
    }
}

/// Digits after a dash are `N`: which pod it was does not matter.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        plain.push(letter);
        if letter == '-' && letters.peek().is_some_and(char::is_ascii_digit) {
            while letters.next_if(char::is_ascii_digit).is_some() {}
            plain.push('N');
        }
    }
    plain
}

/// All that differs.
pub(super) fn differences(theirs: &Objects, ours: &Objects) -> Vec<Difference> {
    let mut found = Vec::new();
    let names = theirs.keys().chain(ours.keys());
    let names: std::collections::BTreeSet<_> = names.collect();
    for key in names {
        let (object, name) = key;
        let mut add = |path: &str, detail: String| {
            found.push(Difference {
                object: object.clone(),
                path: path.to_owned(),
                detail: format!("{name}: {detail}"),
            });
        };
        let none = BTreeMap::new();
        let (theirs, ours) = match (theirs.get(key), ours.get(key)) {
            (Some(theirs), Some(ours)) => (theirs, ours),
            // Events are one by one, whether or not there are any on the other side.
            (theirs, ours) if object.ends_with("/Event") => {
                (theirs.unwrap_or(&none), ours.unwrap_or(&none))
            }
            (Some(_), None) => {
                add("only by the Go operator", String::new());
                continue;
            }
            _ => {
                add("only by Trainyard", String::new());
                continue;
            }
        };
        let paths = theirs.keys().chain(ours.keys());
        let paths: std::collections::BTreeSet<_> = paths.collect();
        for path in paths {
            let (theirs, ours) = (theirs.get(path), ours.get(path));
            if theirs != ours {
                let side = match (theirs, ours) {
                    (Some(_), None) => " (only by the Go operator)",
                    (None, Some(_)) => " (only by Trainyard)",
                    _ => "",
                };
                add(
                    &format!("{path}{side}"),
                    format!("Go {theirs:?}, ours {ours:?}"),
                );
            }
        }
    }
    found
}

/// Whether `text` is what `pattern` says, in which `*` stands for anything.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[test]
fn patterns_match_whole_texts() {
    for (pattern, text, want) in [
        ("*/Pod", "PyTorchJob/Pod", true),
        ("*/Pod", "PyTorchJob/PodGroup", false),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abde", false),
        ("a", "ab", false),
        ("ab*b", "ab", false),
    ] {
        assert_eq!(matches(pattern, text), want, "{pattern} {text}");
    }
}
