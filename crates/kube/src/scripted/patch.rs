//! Changing an object the ways the API knows.

use serde_json::{Map, Value};

/// Merges `change` into `object`; null removes. Where `strategic`, lists of things with names are merged by
/// those names.
pub(crate) fn merge(object: &mut Value, change: &Value, strategic: bool) {
    let Value::Object(changes) = change else {
        *object = change.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
            continue;
        }
        let field = fields.entry(key.clone()).or_insert(Value::Null);
        match (field.as_array_mut(), change.as_array()) {
            (Some(items), Some(changes)) if strategic && changes.iter().all(has_name) => {
                for change in changes {
                    merge_item(items, change);
                }
            }
            _ => merge(field, change, strategic),
        }
    }
    if strategic && let Some(fields) = object.as_object_mut() {
        // The API drops a list that has become empty.
        fields.retain(|key, value| {
            key != "schedulingGates" || !value.as_array().is_some_and(Vec::is_empty)
        });
    }
}

fn has_name(item: &Value) -> bool {
    item.get("name").is_some()
}

fn merge_item(items: &mut Vec<Value>, change: &Value) {
    let at = items.iter().position(|item| item["name"] == change["name"]);
    let deletes = change.get("$patch").is_some_and(|patch| patch == "delete");
    match at {
        Some(at) if deletes => drop(items.remove(at)),
        Some(at) => merge(&mut items[at], change, true),
        None if deletes => {}
        None => items.push(change.clone()),
    }
}

/// Carries `operations` of RFC 6902 out, all or none.
pub(crate) fn operate(object: &mut Value, operations: &Value) -> Result<(), String> {
    let mut changed = object.clone();
    for operation in operations.as_array().ok_or("operations are a list")? {
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        let (op, path) = (text("op"), text("path"));
        let value = operation.get("value").cloned().unwrap_or_default();
        match op {
            "test" if changed.pointer(path) == Some(&value) => {}
            "test" => return Err(format!("test of `{path}` failed")),
            "add" | "replace" | "remove" => one(&mut changed, op, path, value)?,
            _ => return Err(format!("unknown operation `{op}`")),
        }
    }
    *object = changed;
    Ok(())
}

fn one(object: &mut Value, op: &str, path: &str, value: Value) -> Result<(), String> {
    let missing = || format!("the path `{path}` is missing");
    let (parent, key) = path.rsplit_once('/').ok_or_else(missing)?;
    let key = key.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(parent).ok_or_else(missing)? {
        Value::Object(fields) => {
            if op != "add" && !fields.contains_key(&key) {
                return Err(missing());
            }
            if op == "remove" {
                fields.remove(&key);
            } else {
                fields.insert(key, value);
            }
        }
        Value::Array(items) => {
            let at = match key.as_str() {
                "-" => items.len(),
                key => key.parse().map_err(|_| missing())?,
            };
            match op {
                "add" if at <= items.len() => items.insert(at, value),
                "remove" if at < items.len() => drop(items.remove(at)),
                "replace" if at < items.len() => items[at] = value,
                _ => return Err(missing()),
            }
        }
        _ => return Err(missing()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_changed_as_the_api_changes_them() {
        let mut pod = json!({"spec": {"schedulingGates": [{"name": "a"}], "x": 1}});
        let change =
            json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": "a"}], "x": null}});
        merge(&mut pod, &change, true);
        assert_eq!(pod, json!({"spec": {}}));
        let mut node = json!({"spec": {"taints": [{"key": "a"}]}, "metadata": {"annotations": {}}});
        let operations = json!([
            {"op": "test", "path": "/spec/taints/0/key", "value": "a"},
            {"op": "add", "path": "/spec/taints/-", "value": {"key": "b"}},
            {"op": "add", "path": "/metadata/annotations/t~1x", "value": "y"},
            {"op": "remove", "path": "/spec/taints/0"},
        ]);
        operate(&mut node, &operations).unwrap();
        let want =
            json!({"spec": {"taints": [{"key": "b"}]}, "metadata": {"annotations": {"t/x": "y"}}});
        assert_eq!(node, want);
        let refused = json!([{"op": "remove", "path": "/spec"}, {"op": "remove", "path": "/none"}]);
        assert!(operate(&mut node, &refused).is_err());
        assert_eq!(node, want, "all or none");
    }
}
