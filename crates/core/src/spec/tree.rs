//! A document as a tree in which every value knows its place in the source.
//!
//! Owns the shape of a document before it has a meaning. Numbers that are not whole keep their
//! source text, because a quantity such as `0.10` is text to Kubernetes.
//!
//! Invariant: no tree is deeper than [`MAX_DEPTH`], so walking or dropping one
//! by recursion cannot exhaust the stack.

use std::fmt::Write;

use serde_json::{Map, Number};

use super::MAX_DEPTH;
use crate::finding::Span;

/// One value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// From its first to its last character.
    pub span: Span,
}

/// What a value can be.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing, `null` or `~`.
    Null,
    /// `true` or `false`, in any of YAML's spellings.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number above the range of `Int`.
    UInt(u64),
    /// Any other finite number, as a JSON number in its source form where that is one.
    Float(String),
    /// Text.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in source order, without duplicate keys.
    Map(Vec<Entry>),
}

/// One key of a map with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

impl Node {
    /// A value without a place.
    pub(crate) fn unplaced(value: Value) -> Self {
        Self {
            value,
            span: Span::default(),
        }
    }

    /// The entry of `key`, where this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The text, where this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Item `index`, where this is a list that has it.
    pub fn item(&self, index: usize) -> Option<&Self> {
        match &self.value {
            Value::List(items) => items.get(index),
            _ => None,
        }
    }

    /// Whether this is a list or a map.
    pub fn is_collection(&self) -> bool {
        matches!(self.value, Value::List(_) | Value::Map(_))
    }

    /// A short place to point at: the value itself, or where a list or map begins.
    pub fn head(&self) -> Span {
        match &self.value {
            Value::Map(entries) => entries.first().map_or(self.span, |entry| entry.key_span),
            Value::List(items) => items.first().map_or(self.span, Self::head),
            _ => self.span,
        }
    }

    /// The same value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::UInt(value) => Json::from(*value),
            Value::Float(text) => text
                .parse()
                .ok()
                .and_then(Number::from_f64)
                .map_or(Json::Null, Json::Number),
            Value::String(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// A tree without places from a JSON value, or `None` when it is nested too deep.
    pub fn from_json(json: &serde_json::Value) -> Option<Self> {
        Self::from_json_at(json, 0)
    }

    fn from_json_at(json: &serde_json::Value, depth: usize) -> Option<Self> {
        use serde_json::Value as Json;
        if depth > MAX_DEPTH {
            return None;
        }
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Int(value),
                (None, Some(value)) => Value::UInt(value),
                (None, None) => Value::Float(number.to_string()),
            },
            Json::String(text) => Value::String(text.clone()),
            Json::Array(items) => Value::List(
                items
                    .iter()
                    .map(|item| Self::from_json_at(item, depth + 1))
                    .collect::<Option<_>>()?,
            ),
            Json::Object(map) => Value::Map(
                map.iter()
                    .map(|(key, value)| {
                        Some(Entry {
                            key: key.clone(),
                            key_span: Span::default(),
                            value: Self::from_json_at(value, depth + 1)?,
                        })
                    })
                    .collect::<Option<_>>()?,
            ),
        };
        Some(Self::unplaced(value))
    }
}

/// Appends `key` to a field path: `a.b`, or `a[b/c]` where the key is not a plain word.
pub(crate) fn push_key(path: &mut String, key: &str) {
    let plain = !key.is_empty() && !key.contains(['.', '/', '[', ']', ' ', '\n']);
    if plain {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    } else {
        path.push('[');
        path.push_str(key);
        path.push(']');
    }
}

/// Appends an index to a field path.
pub(crate) fn push_index(path: &mut String, index: usize) {
    write!(path, "[{index}]").expect("writing to a String cannot fail");
}
