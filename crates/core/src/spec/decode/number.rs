//! Numbers and quantities.

use super::{Decoder, sentence::named};
use crate::{
    finding::{Finding, catalogue},
    spec::Value,
};

impl Decoder<'_, '_> {
    /// A whole number from `least` to `most`. Kubernetes takes `2.0` for a whole number, so do we.
    pub(super) fn whole(&self, least: i128, most: i128) -> i128 {
        let value = match &self.node.value {
            Value::Int(value) => i128::from(*value),
            Value::UInt(value) => i128::from(*value),
            Value::Float(text) => match whole_float(text) {
                Some(value) => value,
                None => return self.no_number(),
            },
            _ => return self.no_number(),
        };
        if value < least || value > most {
            self.record(|path, span| {
                let name = self.path.name();
                let written = self.written();
                let message = format!(
                    "{name} must be a whole number from {least} to {most}, found `{written}`"
                );
                Finding::new(&catalogue::OUT_OF_RANGE, path, span, message)
            });
            return 0;
        }
        value
    }

    fn no_number(&self) -> i128 {
        self.mismatch("a whole number");
        0
    }

    /// Any number.
    pub(super) fn float(&self) -> f64 {
        match &self.node.value {
            Value::Float(text) => text.parse().unwrap_or_default(),
            #[expect(
                clippy::cast_precision_loss,
                reason = "a float field holds what a float can hold"
            )]
            Value::Int(value) => *value as f64,
            #[expect(
                clippy::cast_precision_loss,
                reason = "a float field holds what a float can hold"
            )]
            Value::UInt(value) => *value as f64,
            _ => {
                self.mismatch("a number");
                0.0
            }
        }
    }

    /// The text of a quantity, which may be written as a string or as a number.
    pub(super) fn quantity(&self) -> Option<String> {
        let text = match &self.node.value {
            Value::String(text) | Value::Float(text) => text.clone(),
            Value::Int(value) => value.to_string(),
            Value::UInt(value) => value.to_string(),
            _ => {
                self.mismatch("a quantity such as `4` or `8Gi`");
                return None;
            }
        };
        if !is_quantity(&text) {
            self.record(|path, span| {
                let message = format!(
                    "{} must be a quantity such as `4`, `500m` or `8Gi`, found `{text}`",
                    named(self)
                );
                Finding::new(&catalogue::WRONG_TYPE, path, span, message)
            });
        }
        Some(text)
    }
}

fn whole_float(text: &str) -> Option<i128> {
    let value: f64 = text.parse().ok()?;
    // Beyond 2^63 no field takes the number, and below it the cast is exact for whole floats.
    let inside = value.fract() == 0.0 && value.abs() <= 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "checked on the line above")]
    inside.then_some(value as i128)
}

/// A sign, digits with at most one point, and a suffix or a decimal exponent.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number_end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(number_end);
    let points = number.bytes().filter(|byte| *byte == b'.').count();
    if points > 1 || !number.bytes().any(|byte| byte.is_ascii_digit()) {
        return false;
    }
    match suffix {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti"
        | "Pi" | "Ei" => true,
        _ => suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }),
    }
}
