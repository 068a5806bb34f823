//! The fields that an object does not have any more.

use serde_json::Value;

/// JSON pointers of what `before` sets and `after` does not, in maps; lists are replaced as a whole.
pub fn removed_fields(before: &Value, after: &Value) -> Vec<String> {
    let mut removed = Vec::new();
    compare(before, after, "", &mut removed);
    removed
}

fn compare(before: &Value, after: &Value, at: &str, removed: &mut Vec<String>) {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return;
    };
    for (key, value) in before {
        let pointer = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        match after.get(key) {
            Some(other) => compare(value, other, &pointer, removed),
            None => removed.push(pointer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_gone_is_removed() {
        let before = json!({"metadata": {"annotations": {"a/b~c": "1", "d": "2"}}, "spec": {
            "minMember": 2, "priorityClassName": "gold", "minResources": {"cpu": "1", "nvidia.com/gpu": "8"},
            "list": [{"a": 1}]}});
        let after = json!({"metadata": {"annotations": {"d": "3"}}, "spec": {
            "minMember": 3, "queue": "new", "minResources": {"cpu": "1"}, "list": [{}]}});
        let removed = removed_fields(&before, &after);
        assert_eq!(
            removed,
            [
                "/metadata/annotations/a~1b~0c",
                "/spec/priorityClassName",
                "/spec/minResources/nvidia.com~1gpu"
            ]
        );
        for pointer in &removed {
            assert!(before.pointer(pointer).is_some(), "{pointer}");
        }
        assert!(removed_fields(&after, &after).is_empty());
    }
}
