//! The plain values that a dump is made of, whichever way it was written.

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// Lists and tuples.
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// The name of something in a module; never looked up.
    Name(String),
}

impl Value {
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let (_, value) = self
            .pairs()
            .iter()
            .find(|(known, _)| known.text() == Some(key))?;
        Some(value)
    }

    pub(super) fn pairs(&self) -> &[(Self, Self)] {
        match self {
            Self::Dict(pairs) => pairs,
            _ => &[],
        }
    }

    pub(super) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// How many values it is made of.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Self::Dict(pairs) => {
                1 + pairs
                    .iter()
                    .map(|(key, value)| key.size() + value.size())
                    .sum::<usize>()
            }
            Self::Text(text) | Self::Name(text) => 1 + text.len() / 32,
            _ => 1,
        }
    }
}

/// The same values out of JSON.
pub(super) fn from_json(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::None,
        serde_json::Value::Bool(truth) => Value::Bool(truth),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        serde_json::Value::Object(fields) => Value::Dict(
            fields
                .into_iter()
                .map(|(key, value)| (Value::Text(key), from_json(value)))
                .collect(),
        ),
    }
}
