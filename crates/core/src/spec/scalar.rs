//! What a plain YAML scalar means.
//!
//! Follows kubectl, which reads YAML 1.1 words and numbers and then turns everything into JSON:
//! `yes` and `on` are booleans, `0o17` and `017` are octal, `1_000` is a number. Quoted and block
//! scalars never come here.

use super::Value;

/// Why a scalar has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarFault {
    /// Infinite or not a number; JSON has neither.
    NotFinite,
    /// The tag asks for a type that the text does not have.
    TagMismatch(&'static str),
}

/// The meaning of a plain scalar.
pub(crate) fn resolve(text: &str) -> Result<Value, ScalarFault> {
    let Some(first) = text.bytes().next() else {
        return Ok(Value::Null);
    };
    match first {
        b'~' | b'n' | b'N' | b'y' | b'Y' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' => {
            Ok(word(text).unwrap_or_else(|| Value::String(text.to_owned())))
        }
        b'0'..=b'9' | b'+' | b'-' | b'.' => {
            if not_finite(text) {
                return Err(ScalarFault::NotFinite);
            }
            Ok(number(text).unwrap_or_else(|| Value::String(text.to_owned())))
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Whether a plain scalar with this text would be read as this very text, a string.
pub(crate) fn stays_text(text: &str) -> bool {
    matches!(text.bytes().next(), Some(first) if match first {
        b'~' | b'n' | b'N' | b'y' | b'Y' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' => word(text).is_none(),
        b'0'..=b'9' | b'+' | b'-' | b'.' => !not_finite(text) && number(text).is_none(),
        _ => true,
    })
}

/// The meaning of a scalar with an explicit core tag such as `!!int`, given without `!!`.
pub(crate) fn resolve_tagged(text: &str, tag: &'static str) -> Result<Value, ScalarFault> {
    let value = match tag {
        "str" => return Ok(Value::String(text.to_owned())),
        "float" if not_finite(text) => return Err(ScalarFault::NotFinite),
        "int" | "float" => number(text),
        _ if text.is_empty() => Some(Value::Null),
        _ => word(text),
    };
    match (tag, value) {
        ("int", Some(value @ (Value::Int(_) | Value::UInt(_))))
        | ("float", Some(value @ Value::Float(_)))
        | ("bool", Some(value @ Value::Bool(_)))
        | ("null", Some(value @ Value::Null)) => Ok(value),
        ("float", Some(Value::Int(value))) => Ok(Value::Float(format!("{value}.0"))),
        ("float", Some(Value::UInt(value))) => Ok(Value::Float(format!("{value}.0"))),
        _ => Err(ScalarFault::TagMismatch(tag)),
    }
}

fn word(text: &str) -> Option<Value> {
    Some(match text {
        "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ => return None,
    })
}

fn not_finite(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn number(text: &str) -> Option<Value> {
    // Nobody writes longer numbers; 400 digits cover every finite float.
    if text.len() > 400 {
        return None;
    }
    let joined;
    let plain = if text.contains('_') {
        joined = text.replace('_', "");
        joined.as_str()
    } else {
        text
    };
    whole(plain).or_else(|| float(plain))
}

fn whole(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let (radix, digits) = if digits.len() < 2 || !digits.starts_with('0') {
        (10, digits)
    } else if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        (16, hex)
    } else if let Some(octal) = digits.strip_prefix("0o").or(digits.strip_prefix("0O")) {
        (8, octal)
    } else if let Some(binary) = digits.strip_prefix("0b").or(digits.strip_prefix("0B")) {
        (2, binary)
    } else {
        (8, digits)
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match (negative, i64::try_from(magnitude)) {
        (false, Ok(value)) => Some(Value::Int(value)),
        (true, Ok(value)) => Some(Value::Int(-value)),
        (true, Err(_)) if magnitude == i64::MIN.unsigned_abs() => Some(Value::Int(i64::MIN)),
        (true, Err(_)) => None,
        (false, Err(_)) => Some(Value::UInt(magnitude)),
    }
}

/// Digits with at most one point, and an optional exponent.
fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(before) || !digits(after) || (before.is_empty() && after.is_empty()) {
        return None;
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.is_empty() || !digits(unsigned) {
            return None;
        }
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then(|| Value::Float(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_kubectl_reads() {
        let text = |text: &str| Value::String(text.to_owned());
        let float = |text: &str| Value::Float(text.to_owned());
        let cases = [
            ("", Value::Null),
            ("~", Value::Null),
            ("Null", Value::Null),
            ("nULL", text("nULL")),
            ("yes", Value::Bool(true)),
            ("y", Value::Bool(true)),
            ("Off", Value::Bool(false)),
            ("yEs", text("yEs")),
            ("True", Value::Bool(true)),
            ("0", Value::Int(0)),
            ("-0", Value::Int(0)),
            ("+12", Value::Int(12)),
            ("-12", Value::Int(-12)),
            ("1_000", Value::Int(1000)),
            ("0x1F", Value::Int(31)),
            ("-0x10", Value::Int(-16)),
            ("0o17", Value::Int(15)),
            ("017", Value::Int(15)),
            ("0b101", Value::Int(5)),
            ("08", float("08")),
            ("9223372036854775807", Value::Int(i64::MAX)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            (
                "9223372036854775808",
                Value::UInt(9_223_372_036_854_775_808),
            ),
            ("18446744073709551616", float("18446744073709551616")),
            ("0.10", float("0.10")),
            (".5", float(".5")),
            ("5.", float("5.")),
            ("1e3", float("1e3")),
            ("1e999", text("1e999")),
            ("1e", text("1e")),
            ("-", text("-")),
            ("+", text("+")),
            (".", text(".")),
            ("--1", text("--1")),
            ("+-1", text("+-1")),
            ("0x", text("0x")),
            ("0x-1", text("0x-1")),
            ("1.2.3", text("1.2.3")),
            ("12:30:45", text("12:30:45")),
            ("2024-01-01", text("2024-01-01")),
            ("8Gi", text("8Gi")),
            ("100m", text("100m")),
        ];
        for (source, want) in cases {
            assert_eq!(resolve(source), Ok(want.clone()), "{source:?}");
            assert_eq!(stays_text(source), want == text(source), "{source:?}");
        }
        for source in [".inf", "-.Inf", "+.INF", ".nan"] {
            assert_eq!(resolve(source), Err(ScalarFault::NotFinite), "{source:?}");
            assert!(!stays_text(source));
        }
    }

    #[test]
    fn tags_decide() {
        assert_eq!(
            resolve_tagged("1", "str"),
            Ok(Value::String("1".to_owned()))
        );
        assert_eq!(resolve_tagged("0x10", "int"), Ok(Value::Int(16)));
        assert_eq!(
            resolve_tagged("3", "float"),
            Ok(Value::Float("3.0".to_owned()))
        );
        assert_eq!(resolve_tagged("on", "bool"), Ok(Value::Bool(true)));
        assert_eq!(resolve_tagged("", "null"), Ok(Value::Null));
        assert_eq!(
            resolve_tagged("two", "int"),
            Err(ScalarFault::TagMismatch("int"))
        );
    }
}
