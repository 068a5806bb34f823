//! Merging as Kubernetes does it with a strategic merge patch: objects field by field, lists with a key by that key, other
//! lists as a whole.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, Volume};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// `patch` over `base`, field by field. A field that the patch does not state stays.
pub(super) fn merged<T: Serialize + DeserializeOwned>(
    base: Option<T>,
    patch: Option<T>,
) -> Option<T> {
    let (base, patch) = match (base, patch) {
        (base, None) => return base,
        (None, patch) => return patch,
        (Some(base), Some(patch)) => (base, patch),
    };
    let (Ok(mut value), Ok(change)) = (serde_json::to_value(&base), serde_json::to_value(&patch))
    else {
        return Some(patch);
    };
    merge(&mut value, change);
    Some(serde_json::from_value(value).unwrap_or(patch))
}

/// The lists in these objects have no key, so a patch replaces them.
fn merge(base: &mut Value, patch: Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, change) in patch {
                match base.get_mut(&key) {
                    Some(known) => merge(known, change),
                    None => drop(base.insert(key, change)),
                }
            }
        }
        (base, patch) => *base = patch,
    }
}

/// Merges each item of `patch` with the one of `list` that has its key; what is new is added. The index makes it take time
/// with the sum of both lists.
pub(super) fn merge_list<T: Serialize + DeserializeOwned>(
    list: &mut Option<Vec<T>>,
    patch: Option<Vec<T>>,
    key: impl Fn(&T) -> &str,
) {
    let Some(patch) = patch else {
        return;
    };
    put_all(list.get_or_insert_default(), patch, key, |known, item| {
        merged(Some(known), Some(item))
    });
}

/// Puts each of `variables` in the place of the one with its name, or at the end.
pub(super) fn upsert_all(env: &mut Vec<EnvVar>, variables: impl IntoIterator<Item = EnvVar>) {
    put_all(
        env,
        variables,
        |variable| &variable.name,
        |_, new| Some(new),
    );
}

/// Puts each of `items` in the place of the one with its key, joined with that, or at the end.
pub(super) fn put_all<T>(
    list: &mut Vec<T>,
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> &str,
    join: impl Fn(T, T) -> Option<T>,
) {
    let mut items = items.into_iter().peekable();
    if items.peek().is_none() {
        return;
    }
    let mut slots: Vec<Option<T>> = std::mem::take(list).into_iter().map(Some).collect();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, item) in slots.iter().enumerate() {
        if let Some(item) = item {
            // The first of several with one key is the one that is meant.
            places.entry(key(item).to_owned()).or_insert(place);
        }
    }
    for item in items {
        let known = places.get(key(&item));
        if let Some(slot) = known.and_then(|place| slots.get_mut(*place)) {
            *slot = match slot.take() {
                Some(known) => join(known, item),
                None => Some(item),
            };
        } else {
            places.insert(key(&item).to_owned(), slots.len());
            slots.push(Some(item));
        }
    }
    *list = slots.into_iter().flatten().collect();
}

/// The sources of a volume that has more than one, which no API server takes.
pub(super) fn sources(volume: &Volume) -> Vec<String> {
    let Ok(Value::Object(fields)) = serde_json::to_value(volume) else {
        return Vec::new();
    };
    fields
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| key != "name")
        .collect()
}
