//! The message about a value of the wrong type.

use super::{DecodeError, Decoder};
use crate::{
    finding::{Finding, Fix, catalogue},
    spec::Value,
};

/// Longest piece of a value that is quoted.
const QUOTED: usize = 60;

/// The field as a sentence begins with it.
pub(super) fn named(decoder: &Decoder<'_, '_>) -> String {
    decoder.path.name()
}

impl Decoder<'_, '_> {
    /// Records that `wanted` was needed here, unless the field is merely absent.
    pub(super) fn mismatch(&self, wanted: &str) {
        if self.is_absent() {
            return;
        }
        self.record(|path, span| {
            let message = format!("{} must be {wanted}, found {}", named(self), self.found());
            let finding = Finding::new(&catalogue::WRONG_TYPE, path, span, message);
            match self.wrong_type_hint(wanted) {
                Some(hint) => finding
                    .with_hint(hint)
                    .with_fix(self.wrong_type_fix(wanted)),
                None => finding,
            }
        });
    }

    /// Records what a type said about its value.
    pub(super) fn record_error(&self, error: &DecodeError) {
        self.record(|path, span| {
            let message = format!("{} is not valid: {error}", named(self));
            Finding::new(&catalogue::WRONG_TYPE, path, span, message)
        });
    }

    /// The value as the user wrote it.
    pub(super) fn written(&self) -> String {
        let span = self.node.span;
        let source = self.source.get(span.start..span.end);
        let text = match (&self.node.value, source) {
            (_, Some(text)) if !text.is_empty() => text.to_owned(),
            (Value::Null, _) => "null".to_owned(),
            (Value::Bool(value), _) => value.to_string(),
            (Value::Int(value), _) => value.to_string(),
            (Value::UInt(value), _) => value.to_string(),
            (Value::Float(text) | Value::String(text), _) => text.clone(),
            (Value::List(_) | Value::Map(_), _) => String::new(),
        };
        let mut lines = text.lines();
        let line = lines.next().unwrap_or_default();
        let short: String = line.chars().take(QUOTED).collect();
        if short.len() < line.len() || lines.next().is_some() {
            format!("{short}…")
        } else {
            short
        }
    }

    fn found(&self) -> String {
        let quoted = |kind: &str| format!("the {kind} `{}`", self.written());
        match &self.node.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(_) => quoted("boolean"),
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => quoted("number"),
            Value::String(text) if text.is_empty() => "an empty string".to_owned(),
            Value::String(_) => quoted("string"),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// What the hint says, where there is only one way to do it.
    fn wrong_type_fix(&self, wanted: &str) -> Option<Fix> {
        match (&self.node.value, wanted) {
            (Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_), "a string") => {
                Some(Fix::Quote)
            }
            (Value::String(text), "a whole number") => {
                text.parse::<i64>().is_ok().then_some(Fix::Unquote)
            }
            (Value::String(text), "a boolean") => {
                matches!(text.as_str(), "true" | "false").then_some(Fix::Unquote)
            }
            _ => None,
        }
    }

    fn wrong_type_hint(&self, wanted: &str) -> Option<String> {
        match (&self.node.value, wanted) {
            (Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_), "a string") => {
                Some(format!(
                    "quote it to make it a string: `\"{}\"`",
                    self.written()
                ))
            }
            (Value::Null, "a string") => Some("an empty string is written `\"\"`".to_owned()),
            (Value::String(text), "a whole number" | "a number")
                if text.trim().parse::<f64>().is_ok_and(f64::is_finite) =>
            {
                Some("remove the quotes".to_owned())
            }
            (Value::String(text), "a boolean") => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "false" | "no" | "off" => {
                    Some("remove the quotes".to_owned())
                }
                _ => None,
            },
            (Value::Map(_), "a list") => Some("begin each item with `- `".to_owned()),
            (Value::String(_), "a list") => {
                Some("write one item as `[…]` or on a line with `- `".to_owned())
            }
            _ => None,
        }
    }
}
