//! JSON values as block-style YAML, the way kubectl prints objects.
//!
//! Owns the choice of quotes: a string is quoted exactly where [`read`](super::read()) or kubectl
//! would take the bare word for something else. Keys keep their order.
//!
//! Invariant: reading what was written gives the same value.

use serde_json::{Map, Value};

use super::scalar;

#[cfg(test)]
mod tests;

/// Keys longer than this are written as explicit keys (`? key`); readers look ahead at most 1,024
/// characters for the `:` of a plain one.
const LONG_KEY: usize = 512;

/// `value` as one YAML document, with a line break at its end.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    push_yaml(&mut out, value);
    out
}

/// Appends `value` as one YAML document, with a line break at its end.
pub fn push_yaml(out: &mut String, value: &Value) {
    match value {
        Value::Object(map) if !map.is_empty() => push_map(out, map, 0, true),
        Value::Array(items) if !items.is_empty() => push_list(out, items, 0, true),
        _ => push_leaf(out, value, 0),
    }
}

/// `text` as one scalar on one line of block style: bare where that reads back as the same string.
pub(crate) fn yaml_word(text: &str) -> String {
    let mut out = String::new();
    push_word(&mut out, text);
    out
}

/// The entries of a map; the first one continues the line unless `fresh`.
fn push_map(out: &mut String, map: &Map<String, Value>, indent: usize, fresh: bool) {
    let mut fresh = fresh;
    for (key, value) in map {
        if fresh {
            push_indent(out, indent);
        }
        fresh = true;
        if key.len() > LONG_KEY {
            out.push_str("? ");
            push_quoted(out, key);
            out.push('\n');
            push_indent(out, indent);
        } else {
            push_word(out, key);
        }
        out.push(':');
        push_after_key(out, value, indent);
    }
}

fn push_after_key(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            push_map(out, map, indent + 2, true);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            push_list(out, items, indent, true);
        }
        _ => {
            out.push(' ');
            push_leaf(out, value, indent);
        }
    }
}

/// The items of a list; the first one continues the line unless `fresh`.
fn push_list(out: &mut String, items: &[Value], indent: usize, fresh: bool) {
    let mut fresh = fresh;
    for item in items {
        if fresh {
            push_indent(out, indent);
        }
        fresh = true;
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => push_map(out, map, indent + 2, false),
            Value::Array(inner) if !inner.is_empty() => push_list(out, inner, indent + 2, false),
            _ => push_leaf(out, item, indent),
        }
    }
}

/// A value that fits on the line, or a block that starts on it, and the line break.
fn push_leaf(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => push_number(out, number),
        Value::String(text) if fits_block(text) => return push_block(out, text, indent + 2),
        Value::String(text) => push_word(out, text),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
    out.push('\n');
}

fn push_number(out: &mut String, number: &serde_json::Number) {
    use std::fmt::Write;
    write!(out, "{number}").expect("writing to a String cannot fail");
}

fn push_indent(out: &mut String, indent: usize) {
    const SPACES: &str = "                                ";
    let mut left = indent;
    while left > 0 {
        let some = left.min(SPACES.len());
        out.push_str(SPACES.get(..some).unwrap_or(SPACES));
        left -= some;
    }
}

/// A string on one line: bare where that reads back as the same string.
fn push_word(out: &mut String, text: &str) {
    if is_bare(text) {
        out.push_str(text);
    } else {
        push_quoted(out, text);
    }
}

/// Whether the bare text is read as this very string, as a key and as a value.
fn is_bare(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let starts_well = match first {
        b'-' => bytes
            .get(1)
            .is_some_and(|next| !matches!(next, b' ' | b'\t')),
        b'?' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|'
        | b'>' | b'\'' | b'"' | b'%' | b'@' | b'`' | b' ' | b'=' => false,
        _ => true,
    };
    if !starts_well || matches!(last, b' ' | b':') || text == "<<" {
        return false;
    }
    if text.starts_with("---") || text.starts_with("...") {
        return false;
    }
    let mut before = b' ';
    for &byte in bytes {
        let allowed = match byte {
            b'#' => before != b' ',
            b' ' => before != b':',
            b'!'..=b'~' => true,
            0x80.. => return is_bare_beyond_ascii(text) && scalar::stays_text(text),
            _ => false,
        };
        if !allowed {
            return false;
        }
        before = byte;
    }
    scalar::stays_text(text)
}

/// The rules of [`is_bare`] for the inner characters of any text.
fn is_bare_beyond_ascii(text: &str) -> bool {
    !text.contains(needs_escape) && !text.contains(": ") && !text.contains(" #")
}

/// Characters that cannot stand as they are in a scalar on one line.
fn needs_escape(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1F'
            | '\x7F'..='\u{A0}'
            | '\u{61C}'
            | '\u{2000}'..='\u{200F}'
            | '\u{2028}'..='\u{202F}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3000}'
            | '\u{FEFF}'
            | '\u{FFF0}'..='\u{FFFF}'
    )
}

fn push_quoted(out: &mut String, text: &str) {
    let plain = !text.contains(needs_escape);
    if plain && text.contains(['"', '\\']) {
        out.push('\'');
        for (index, piece) in text.split('\'').enumerate() {
            if index > 0 {
                out.push_str("''");
            }
            out.push_str(piece);
        }
        out.push('\'');
        return;
    }
    out.push('"');
    if plain {
        out.push_str(text);
    } else {
        text.chars()
            .for_each(|character| push_escaped(out, character));
    }
    out.push('"');
}

fn push_escaped(out: &mut String, character: char) {
    use std::fmt::Write;
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        other if needs_escape(other) => {
            write!(out, "\\u{:04X}", u32::from(other)).expect("writing to a String cannot fail");
        }
        other => out.push(other),
    }
}

/// Whether `text` reads well and safely as a literal block: several lines of printable text, the
/// first of which gives the indentation.
fn fits_block(text: &str) -> bool {
    let Some(first_line) = text.split('\n').next() else {
        return false;
    };
    first_line.len() < text.len()
        && !first_line.is_empty()
        && !first_line.starts_with([' ', '\t'])
        && !text
            .contains(|character| character != '\n' && character != '\t' && needs_escape(character))
}

fn push_block(out: &mut String, text: &str, indent: usize) {
    let body = text.strip_suffix('\n');
    out.push_str(match body {
        None => "|-\n",
        Some(body) if body.ends_with('\n') => "|+\n",
        Some(_) => "|\n",
    });
    for line in body.unwrap_or(text).split('\n') {
        if !line.is_empty() {
            push_indent(out, indent);
            out.push_str(line);
        }
        out.push('\n');
    }
}
