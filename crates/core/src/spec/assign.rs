//! Single values of a document, set from outside before it is checked: `--set PATH=VALUE`, `--env K=V`.
//!
//! Owns how a path is written and what the text of a value means. Whether the field exists is for the check
//! that follows to say; what is set here has no place in the source.

use thiserror::Error;

use super::{
    Document, Entry, Node, Value, read,
    tree::{push_index, push_key},
};
use crate::finding::Span;

/// Why a value cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssignError {
    /// A path that cannot be read.
    #[error("`{path}` is not a path such as `spec.runPolicy.backoffLimit` or `spec.list[0].name`")]
    BadPath {
        /// The path.
        path: String,
    },
    /// A part of the path that is a single value.
    #[error("`{at}` is a single value, it has no `{key}`")]
    NotACollection {
        /// The part that is there.
        at: String,
        /// What the path names in it.
        key: String,
    },
    /// An item of a list that is not there.
    #[error("`{at}` has {count} items, counted from 0, and no item `{key}`")]
    NoItem {
        /// The list.
        at: String,
        /// What the path names in it.
        key: String,
        /// How many items it has.
        count: usize,
    },
}

/// Sets the value at `path` to what `text` means as YAML, and returns the path as findings write it.
///
/// Maps that are missing on the way are made. An item of a list is named by its number or, where items
/// have names, by its name. A key is found in another case, too.
pub fn assign(document: &mut Document, path: &str, text: &str) -> Result<String, AssignError> {
    let steps = steps(path).ok_or_else(|| AssignError::BadPath {
        path: path.to_owned(),
    })?;
    let mut place = String::new();
    let mut node = &mut document.tree;
    for key in &steps {
        node = step(node, key, &mut place)?;
    }
    *node = Node::unplaced(meaning(text));
    Ok(place)
}

/// Sets the variable `name` in every container of every role, in place of one that is there.
pub fn set_variable(document: &mut Document, name: &str, value: &str) {
    let Some(kind) = document.job_kind() else {
        return;
    };
    let roles = entry_mut(&mut document.tree, "spec")
        .and_then(|spec| entry_mut(spec, kind.replica_map()))
        .map(|roles| &mut roles.value);
    let Some(Value::Map(roles)) = roles else {
        return;
    };
    for role in roles {
        let spec = entry_mut(&mut role.value, "template").and_then(|pod| entry_mut(pod, "spec"));
        let Some(spec) = spec else {
            continue;
        };
        for list in ["initContainers", "containers"] {
            if let Some(Value::List(containers)) =
                entry_mut(spec, list).map(|containers| &mut containers.value)
            {
                for container in containers {
                    set_in_container(container, name, value);
                }
            }
        }
    }
}

fn set_in_container(container: &mut Node, name: &str, value: &str) {
    let Value::Map(entries) = &mut container.value else {
        return;
    };
    let variable = map([("name", name), ("value", value)]);
    let env = entries.iter_mut().find(|entry| entry.key == "env");
    match env.map(|env| &mut env.value.value) {
        Some(Value::List(variables)) => {
            let is_it = |known: &Node| {
                let known = known.get("name").and_then(|name| name.value.as_str());
                known == Some(name)
            };
            variables.retain(|known| !is_it(known));
            variables.push(variable);
        }
        Some(other) => *other = Value::List(vec![variable]),
        None => entries.push(Entry {
            key: "env".to_owned(),
            key_span: Span::default(),
            value: Node::unplaced(Value::List(vec![variable])),
        }),
    }
}

fn map(entries: [(&str, &str); 2]) -> Node {
    let entries = entries.map(|(key, value)| Entry {
        key: key.to_owned(),
        key_span: Span::default(),
        value: Node::unplaced(Value::String(value.to_owned())),
    });
    Node::unplaced(Value::Map(entries.into()))
}

fn entry_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    match &mut node.value {
        Value::Map(entries) => {
            let found = entries.iter_mut().find(|entry| entry.key == key);
            found.map(|entry| &mut entry.value)
        }
        _ => None,
    }
}

/// The part of `node` that `key` names, made where a map lacks it.
fn step<'a>(
    node: &'a mut Node,
    key: &str,
    place: &mut String,
) -> Result<&'a mut Node, AssignError> {
    if node.value == Value::Null {
        node.value = Value::Map(Vec::new());
    }
    match &mut node.value {
        Value::Map(entries) => {
            let exact = entries.iter().position(|entry| entry.key == key);
            let like = || {
                let mut entries = entries.iter();
                entries.position(|entry| entry.key.eq_ignore_ascii_case(key))
            };
            let at = if let Some(at) = exact.or_else(like) {
                at
            } else {
                entries.push(Entry {
                    key: key.to_owned(),
                    key_span: Span::default(),
                    value: Node::unplaced(Value::Null),
                });
                entries.len() - 1
            };
            let entry = &mut entries[at];
            push_key(place, &entry.key);
            Ok(&mut entry.value)
        }
        Value::List(items) => {
            let named = |item: &Node| {
                let name = item.get("name").and_then(|name| name.value.as_str());
                name == Some(key)
            };
            let at = key.parse().ok().or_else(|| items.iter().position(named));
            let count = items.len();
            match at.and_then(|at: usize| Some((at, items.get_mut(at)?))) {
                Some((at, item)) => {
                    push_index(place, at);
                    Ok(item)
                }
                None => Err(AssignError::NoItem {
                    at: place.clone(),
                    key: key.to_owned(),
                    count,
                }),
            }
        }
        _ => Err(AssignError::NotACollection {
            at: place.clone(),
            key: key.to_owned(),
        }),
    }
}

/// `a.b[c.d/e][0].f` in its parts.
fn steps(path: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = inner.split_once(']')?;
            steps.push(key.to_owned());
            rest = after;
            if let Some(after) = rest.strip_prefix('.') {
                rest = Some(after).filter(|after| !after.is_empty())?;
            } else if !rest.is_empty() && !rest.starts_with('[') {
                return None;
            }
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            steps.push(key.to_owned());
            rest = match after.strip_prefix('.') {
                Some(after) => Some(after).filter(|after| !after.is_empty())?,
                None => after,
            };
        }
    }
    let whole = !steps.is_empty() && steps.iter().all(|step| !step.is_empty());
    whole.then_some(steps)
}

/// What `text` means as a value of YAML; text that is not YAML is itself.
fn meaning(text: &str) -> Value {
    let file = read(format!("v: {text}\n").as_bytes()).ok();
    let mut documents = file.map(|file| file.documents).unwrap_or_default();
    let tree = documents
        .first_mut()
        .map(|document| &mut document.tree.value);
    match tree {
        Some(Value::Map(entries)) if entries.len() == 1 => {
            let mut value = entries.remove(0).value;
            clear_places(&mut value);
            value.value
        }
        _ => Value::String(text.to_owned()),
    }
}

/// Clears places, which are those of another text. The depth of a tree that was read is bounded.
fn clear_places(node: &mut Node) {
    node.span = Span::default();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(clear_places),
        Value::Map(entries) => {
            for entry in entries {
                entry.key_span = Span::default();
                clear_places(&mut entry.value);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const JOB: &str = "apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j, annotations: {a.b/c: x}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          containers:
            - {name: pytorch, image: a, env: [{name: A, value: b}]}
            - {name: side, image: b}
";

    fn document() -> Document {
        let file = read(JOB.as_bytes()).expect("the job can be read");
        file.documents
            .into_iter()
            .next()
            .expect("it has one document")
    }

    #[test]
    fn values_are_set_as_yaml_means_them() {
        let cases = [
            (
                "spec.pytorchReplicaSpecs.Worker.replicas",
                "2",
                "/spec/pytorchReplicaSpecs/Worker/replicas",
                json!(2),
            ),
            (
                "spec.pytorchReplicaSpecs.worker.replicas",
                "3",
                "/spec/pytorchReplicaSpecs/Worker/replicas",
                json!(3),
            ),
            (
                "spec.runPolicy.backoffLimit",
                "4",
                "/spec/runPolicy/backoffLimit",
                json!(4),
            ),
            (
                "spec.runPolicy.suspend",
                "true",
                "/spec/runPolicy/suspend",
                json!(true),
            ),
            (
                "metadata.annotations[a.b/c]",
                "'1'",
                "/metadata/annotations/a.b~1c",
                json!("1"),
            ),
            ("metadata.labels.x", "*y", "/metadata/labels/x", json!("*y")),
            ("metadata.labels.x", "", "/metadata/labels/x", json!(null)),
            (
                "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].image",
                "c:2",
                "/spec/pytorchReplicaSpecs/Worker/template/spec/containers/0/image",
                json!("c:2"),
            ),
            (
                "spec.pytorchReplicaSpecs.Worker.template.spec.containers.side.command",
                "[sh, -c, 'a b']",
                "/spec/pytorchReplicaSpecs/Worker/template/spec/containers/1/command",
                json!(["sh", "-c", "a b"]),
            ),
        ];
        for (path, text, pointer, want) in cases {
            let mut document = document();
            assign(&mut document, path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(
                document.tree.to_json().pointer(pointer),
                Some(&want),
                "{path}"
            );
        }
    }

    #[test]
    fn what_cannot_be_set_is_said() {
        let cases = [
            ("", "`` is not a path"),
            ("spec..a", "`spec..a` is not a path"),
            ("spec.a.", "`spec.a.` is not a path"),
            ("spec.a[0", "`spec.a[0` is not a path"),
            (
                "metadata.name.first",
                "`metadata.name` is a single value, it has no `first`",
            ),
            (
                "spec.pytorchReplicaSpecs.Worker.template.spec.containers[2].image",
                "containers` has 2 items, counted from 0, and no item `2`",
            ),
        ];
        for (path, want) in cases {
            let error = assign(&mut document(), path, "1").unwrap_err().to_string();
            assert!(error.contains(want), "{path}: {error}");
        }
    }

    #[test]
    fn a_variable_is_set_in_every_container() {
        let mut document = document();
        set_variable(&mut document, "A", "new");
        let json = document.tree.to_json();
        let containers =
            &json["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"];
        for at in 0..2 {
            assert_eq!(
                containers[at]["env"],
                json!([{"name": "A", "value": "new"}]),
                "{at}"
            );
        }
    }
}
