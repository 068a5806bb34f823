//! Small state: the JSON that the Python package writes, pickled values, and paths through both.
//!
//! What JSON has is written as it is. Everything else is an object with one key that begins with `$`: `$int`, `$float`, `$bytes`, `$tuple`,
//! `$set`, `$dict` (pairs), `$complex`, `$tensor` and `$array` (the name of a tensor), `$opaque` (an item of DCP that is not plain data).

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::{
    base64,
    pickle::{Class, Id, MAX_DEPTH, Pickle, Value, Writer},
};

/// The mark of an item that is kept as it is.
pub const OPAQUE: &str = "$opaque";

/// A pickled value as small state.
pub fn node(pickle: &Pickle) -> Result<Json, String> {
    let mut budget = pickle.budget();
    to_node(pickle, pickle.root(), MAX_DEPTH, &mut budget)
}

fn to_node(pickle: &Pickle, id: Id, depth: usize, budget: &mut u64) -> Result<Json, String> {
    Pickle::walk(budget)?;
    let depth = depth
        .checked_sub(1)
        .ok_or_else(|| format!("it is nested deeper than {MAX_DEPTH} levels"))?;
    let mut all = |parts: &[Id]| -> Result<Vec<Json>, String> {
        let parts = parts.iter();
        parts
            .map(|part| to_node(pickle, *part, depth, budget))
            .collect()
    };
    Ok(match pickle.get(id) {
        Value::None => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(number) => match i64::try_from(*number) {
            Ok(number) => json!(number),
            Err(_) => json!({"$int": number.to_string()}),
        },
        Value::Float(number) => json!({"$float": format!("{number:?}")}),
        Value::Text(text) => json!(text),
        Value::Bytes(bytes) => json!({"$bytes": base64::encode(bytes)}),
        Value::List(parts) => Json::Array(all(parts)?),
        Value::Tuple(parts) => json!({"$tuple": all(parts)?}),
        Value::Set(parts) => json!({"$set": all(parts)?}),
        Value::Dict(pairs) => {
            let mut is_plain = true;
            let mut map = Map::new();
            let mut list = Vec::new();
            for (key, value) in pairs {
                let value = all(&[*value])?.pop().unwrap_or_default();
                let key = all(&[*key])?.pop().unwrap_or_default();
                match &key {
                    Json::String(text) if !text.starts_with('$') => {
                        map.insert(text.clone(), value.clone());
                    }
                    _ => is_plain = false,
                }
                list.push(json!([key, value]));
            }
            if is_plain {
                Json::Object(map)
            } else {
                json!({"$dict": list})
            }
        }
        Value::Call(class, arguments) => {
            let Value::Tuple(arguments) = pickle.get(*arguments) else {
                return Err("a call has no arguments".into());
            };
            let first = arguments.first().map(|id| pickle.get(*id));
            match (class, first) {
                (Class::OrderedDict, None) => json!({}),
                (Class::Set, Some(Value::List(parts) | Value::Tuple(parts))) => {
                    json!({"$set": all(parts)?})
                }
                (Class::Size, Some(Value::List(parts) | Value::Tuple(parts))) => {
                    json!({"$tuple": all(parts)?})
                }
                (Class::Encode, Some(Value::Text(text))) => {
                    let bytes: Result<Vec<u8>, _> = text
                        .chars()
                        .map(|letter| u8::try_from(u32::from(letter)))
                        .collect();
                    let bytes = bytes.map_err(|_| "bytes are not Latin-1")?;
                    json!({"$bytes": base64::encode(&bytes)})
                }
                (Class::Complex, _) => {
                    let mut parts = all(arguments)?;
                    for part in &mut parts {
                        if let Some(text) = part.get("$float").cloned() {
                            *part = text;
                        }
                    }
                    json!({"$complex": parts})
                }
                _ => return Err("it is not plain data".into()),
            }
        }
        Value::Class(_) | Value::Object(..) | Value::Outside(_) => {
            return Err("it is not plain data".into());
        }
    })
}

/// Writes small state as the pickle of the value that it stands for.
pub fn write(out: &mut Writer, node: &Json, depth: usize) -> Result<(), String> {
    let depth = depth
        .checked_sub(1)
        .ok_or_else(|| format!("it is nested deeper than {MAX_DEPTH} levels"))?;
    let list = |out: &mut Writer, parts: &[Json]| -> Result<(), String> {
        out.code(b'(');
        parts.iter().try_for_each(|part| write(out, part, depth))
    };
    match node {
        Json::Null => {
            out.code(b'N');
        }
        Json::Bool(value) => {
            out.boolean(*value);
        }
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => {
                out.int(number.into());
            }
            (_, Some(number), _) => {
                out.count(number);
            }
            (_, _, number) => {
                out.float(number.unwrap_or(f64::NAN));
            }
        },
        Json::String(text) => {
            out.text(text);
        }
        Json::Array(parts) => {
            out.code(b']');
            list(out, parts)?;
            out.code(b'e');
        }
        Json::Object(map) => {
            let mark = map.iter().next().filter(|(key, _)| key.starts_with('$'));
            let Some((mark, inner)) = mark else {
                out.code(b'}').code(b'(');
                for (key, value) in map {
                    out.text(key);
                    write(out, value, depth)?;
                }
                out.code(b'u');
                return Ok(());
            };
            let bad = || format!("`{mark}` has a value that it cannot have");
            let text = || inner.as_str().ok_or_else(bad);
            let parts = || inner.as_array().map(Vec::as_slice).ok_or_else(bad);
            match mark.as_str() {
                "$int" => {
                    out.int(text()?.parse().map_err(|_| bad())?);
                }
                "$float" => {
                    out.float(text()?.parse().map_err(|_| bad())?);
                }
                "$bytes" => {
                    out.binary(&base64::decode(text()?).ok_or_else(bad)?);
                }
                "$complex" => {
                    out.class("__builtin__", "complex").code(b'(');
                    for part in parts()? {
                        let number = part.as_str().and_then(|text| text.parse().ok());
                        out.float(number.ok_or_else(bad)?);
                    }
                    out.code(b't').code(b'R');
                }
                "$tuple" => {
                    list(out, parts()?)?;
                    out.code(b't');
                }
                "$set" => {
                    out.class("__builtin__", "set").code(b']');
                    list(out, parts()?)?;
                    out.code(b'e').code(0x85).code(b'R');
                }
                "$dict" | "$counter" => {
                    out.code(b'}').code(b'(');
                    for pair in parts()? {
                        let [key, value] = pair.as_array().map(Vec::as_slice).unwrap_or_default()
                        else {
                            return Err(bad());
                        };
                        write(out, key, depth)?;
                        write(out, value, depth)?;
                    }
                    out.code(b'u');
                }
                other => return Err(format!("`{other}` cannot be written as a pickle")),
            }
        }
    }
    Ok(())
}

/// One step of a path: a key, or a place in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A key of a dict.
    Name(String),
    /// A place in a list.
    Place(u64),
}

impl std::fmt::Display for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Place(place) => write!(out, "{place}"),
        }
    }
}

/// The path as DCP names it.
pub fn joined(path: &[Key]) -> String {
    let keys: Vec<String> = path.iter().map(ToString::to_string).collect();
    keys.join(".")
}

/// The tensor that a node stands for.
pub fn tensor_name(node: &Json) -> Option<&str> {
    let map = node.as_object().filter(|map| map.len() == 1)?;
    map.get("$tensor").or_else(|| map.get("$array"))?.as_str()
}

fn has_tensor(node: &Json, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    tensor_name(node).is_some()
        || match node {
            Json::Array(parts) => parts.iter().any(|part| has_tensor(part, depth)),
            Json::Object(map) => map.values().any(|part| has_tensor(part, depth)),
            _ => false,
        }
}

/// Small state divided as DCP does: dicts always, lists only where they have tensors. Each leaf with its path.
pub fn leaves(node: &Json) -> Vec<(Vec<Key>, Json)> {
    let mut found = Vec::new();
    divide(node, &mut Vec::new(), MAX_DEPTH, &mut found);
    found
}

fn divide(node: &Json, path: &mut Vec<Key>, depth: usize, found: &mut Vec<(Vec<Key>, Json)>) {
    let marked = |mark: &str| {
        let map = node.as_object().filter(|map| map.len() == 1);
        map.and_then(|map| map.get(mark)).and_then(Json::as_array)
    };
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    let mut inner = |key: Key, part: &Json| {
        path.push(key);
        divide(part, path, depth, found);
        path.pop();
    };
    if let Some(pairs) = marked("$dict") {
        for pair in pairs {
            let key = match pair.get(0) {
                Some(Json::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => continue,
            };
            inner(Key::Name(key), pair.get(1).unwrap_or(&Json::Null));
        }
        return;
    }
    match node {
        Json::Object(map) if !map.keys().any(|key| key.starts_with('$')) && !map.is_empty() => {
            for (key, part) in map {
                inner(Key::Name(key.clone()), part);
            }
        }
        _ => {
            let list = node.as_array().or_else(|| marked("$tuple"));
            if let Some(parts) = list.filter(|_| has_tensor(node, MAX_DEPTH)) {
                for (place, part) in parts.iter().enumerate() {
                    inner(Key::Place(place as u64), part);
                }
            } else {
                found.push((path.clone(), node.clone()));
            }
        }
    }
}

/// The way back: leaves with their paths as one tree.
pub fn tree(leaves: impl IntoIterator<Item = (Vec<Key>, Json)>) -> Json {
    let mut groups: BTreeMap<Key, Vec<(Vec<Key>, Json)>> = BTreeMap::new();
    let mut whole = None;
    for (mut path, node) in leaves {
        if path.is_empty() {
            whole = Some(node);
        } else {
            let key = path.remove(0);
            groups.entry(key).or_default().push((path, node));
        }
    }
    if groups.is_empty() {
        return whole.unwrap_or_else(|| json!({}));
    }
    let is_list = groups
        .keys()
        .zip(0..)
        .all(|(key, place)| *key == Key::Place(place));
    let parts = groups.into_iter().map(|(key, part)| (key, tree(part)));
    if is_list {
        return Json::Array(parts.map(|(_, part)| part).collect());
    }
    let parts: Vec<(String, Json)> = parts.map(|(key, part)| (key.to_string(), part)).collect();
    if parts.iter().any(|(key, _)| key.starts_with('$')) {
        return json!({"$dict": parts});
    }
    Json::Object(parts.into_iter().collect())
}
