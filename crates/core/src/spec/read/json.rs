//! JSON to trees, with the place of every value.
//!
//! YAML readers take most JSON, but not tabs as indentation and not long keys, both of which
//! occur in files that programs wrote.

use super::{MAX_DEPTH, budget::Budget, yaml};
use crate::{
    finding::{Finding, Span, catalogue},
    spec::{Entry, Node, Value, scalar},
};

/// Why `text` is not JSON.
pub(super) struct Fault {
    pub(super) finding: Box<Finding>,
    /// Whether the text cannot be anything else either.
    pub(super) certain: bool,
}

impl From<Box<Finding>> for Fault {
    /// Findings other than of the syntax are about what the text says, so they hold.
    fn from(finding: Box<Finding>) -> Self {
        Self {
            finding,
            certain: true,
        }
    }
}

/// Reads every value of `text`, one after the other, with or without `---` between them.
pub(super) fn read(text: &str) -> Result<Vec<Node>, Fault> {
    let mut reader = Reader {
        bytes: text.as_bytes(),
        text,
        at: 0,
        line: 1,
        counted: (0, 1),
        budget: Budget::new(),
    };
    let mut documents = Vec::new();
    loop {
        reader.skip_space();
        while reader
            .bytes
            .get(reader.at..)
            .is_some_and(|rest| rest.starts_with(b"---"))
        {
            reader.at += 3;
            reader.skip_space();
        }
        if reader.at >= reader.bytes.len() {
            return Ok(documents);
        }
        let start = reader.here();
        reader.budget.pay_document(start)?;
        documents.push(reader.value(0)?);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    line: usize,
    /// A byte of this line whose column is known, with that column, so that a file of one line
    /// is not counted from its start for each value.
    counted: (usize, usize),
    budget: Budget,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Node, Fault> {
        let mut span = self.here();
        let value = match self.peek() {
            Some(b'{') => {
                self.enter(depth, span)?;
                self.map(depth)?
            }
            Some(b'[') => {
                self.enter(depth, span)?;
                self.list(depth)?
            }
            Some(b'"') => {
                let text = self.string()?;
                self.budget.pay(text.len(), span)?;
                Value::String(text)
            }
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(self.unexpected("a value")),
        };
        span.end = self.at;
        Ok(Node { value, span })
    }

    fn enter(&mut self, depth: usize, span: Span) -> Result<(), Fault> {
        self.budget.pay(0, span)?;
        self.at += 1;
        self.skip_space();
        if depth >= MAX_DEPTH {
            return Err(Box::new(yaml::too_deep(span)).into());
        }
        Ok(())
    }

    fn map(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut entries = Vec::new();
        if self.skip(b'}') {
            return Ok(Value::Map(entries));
        }
        loop {
            let mut key_span = self.here();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.string()?;
            key_span.end = self.at;
            self.budget.pay(key.len(), key_span)?;
            self.skip_space();
            if !self.skip(b':') {
                return Err(self.unexpected("`:`"));
            }
            self.skip_space();
            let value = self.value(depth + 1)?;
            entries.push(Entry {
                key,
                key_span,
                value,
            });
            self.skip_space();
            if self.skip(b'}') {
                yaml::refuse_duplicates(&entries)?;
                return Ok(Value::Map(entries));
            }
            if !self.skip(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
            self.skip_space();
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut items = Vec::new();
        if self.skip(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.skip(b']') {
                return Ok(Value::List(items));
            }
            if !self.skip(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
            self.skip_space();
        }
    }

    /// A string literal; the escapes are left to `serde_json`, which knows surrogate pairs.
    fn string(&mut self) -> Result<String, Fault> {
        let start = self.at;
        let mut end = start + 1;
        loop {
            match self.bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(byte) if *byte >= 0x20 => end += 1,
                _ => {
                    self.at = end.min(self.bytes.len());
                    return Err(self.unexpected("`\"` at the end of the string"));
                }
            }
        }
        let literal = self.text.get(start..=end).unwrap_or_default();
        match serde_json::from_str(literal) {
            Ok(text) => {
                self.at = end + 1;
                Ok(text)
            }
            Err(_) => Err(self.unexpected("a string with valid escapes")),
        }
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        let length = self
            .bytes
            .get(start..)
            .unwrap_or_default()
            .iter()
            .take_while(|byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'))
            .count();
        let text = self.text.get(start..start + length).unwrap_or_default();
        // The grammar of JSON numbers is a part of YAML's; what only YAML allows must not pass.
        let valid = text.len() <= 400 && serde_json::from_str::<serde_json::Number>(text).is_ok();
        let value = valid.then(|| scalar::resolve(text).ok()).flatten();
        match value {
            Some(value @ (Value::Int(_) | Value::UInt(_) | Value::Float(_))) => {
                let span = self.here();
                self.budget.pay(length, span)?;
                self.at = start + length;
                Ok(value)
            }
            _ => Err(self.unexpected("a number")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        let span = self.here();
        self.budget.pay(0, span)?;
        self.at += word.len();
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek() {
            self.at += 1;
            if byte == b'\n' {
                self.line += 1;
                self.counted = (self.at, 1);
            }
        }
    }

    /// An empty place at the reader. No line break is ever inside of a token, so the line is known.
    fn here(&mut self) -> Span {
        let (from, column) = self.counted;
        let skipped = self.bytes.get(from..self.at).unwrap_or_default();
        // Every byte that does not continue a character begins one.
        let column = column + skipped.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
        self.counted = (self.at, column);
        Span {
            start: self.at,
            end: self.at,
            line: self.line,
            column,
        }
    }

    fn unexpected(&mut self, wanted: &str) -> Fault {
        let mut span = self.here();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = match rest.chars().next() {
            None => "the end of the file".to_owned(),
            Some(character) => {
                span.end += character.len_utf8();
                match character {
                    '"' => "`\"`".to_owned(),
                    other => format!("`{}`", other.escape_debug()),
                }
            }
        };
        let message = format!("not valid JSON: {wanted} was needed, found {found}");
        Fault {
            finding: Box::new(Finding::new(&catalogue::SYNTAX, "", span, message)),
            certain: false,
        }
    }
}
