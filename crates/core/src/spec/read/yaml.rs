//! YAML events to trees: aliases expanded, merge keys applied, duplicate keys refused.

use std::{borrow::Cow, collections::BTreeMap, collections::BTreeSet};

use granit_parser::{
    ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, StructureStyle, Tag,
};

use super::{MAX_DEPTH, budget::Budget};
use crate::{
    finding::{Finding, Rule, Span, catalogue},
    spec::{
        Entry, Node, Value,
        scalar::{self, ScalarFault},
    },
};

/// Reads every document of `text`; empty ones are `Null`.
pub(super) fn read(text: &str) -> Result<Vec<Node>, Box<Finding>> {
    // The builder checks the depth of both styles together and words it better; the parser's own
    // limits only bound what it keeps before the builder sees it.
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH + 2,
        block_nesting_limit: MAX_DEPTH + 2,
    };
    let mut builder = Builder {
        documents: Vec::new(),
        stack: Vec::new(),
        anchors: BTreeMap::new(),
        budget: Budget::new(),
    };
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| syntax(text, &error))?;
        builder.take(event, &span)?;
    }
    Ok(builder.documents)
}

/// A list or map that is not complete yet.
struct Frame {
    contents: Contents,
    span: Span,
    flow: bool,
    anchor: usize,
}

enum Contents {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        key: Option<Key>,
        merged: Vec<Node>,
    },
}

struct Key {
    text: String,
    span: Span,
    merge: bool,
}

struct Builder {
    documents: Vec<Node>,
    stack: Vec<Frame>,
    /// Complete anchored values of this document; `None` while a value is incomplete.
    anchors: BTreeMap<usize, Option<Node>>,
    budget: Budget,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, at: &granit_parser::Span) -> Result<(), Box<Finding>> {
        let span = span_of(at.start, at.end);
        match event {
            Event::DocumentStart(..) => {
                self.anchors.clear();
                self.budget.pay_document(span)
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.pay(text.len(), span)?;
                let merge = text == "<<" && style == ScalarStyle::Plain && tag.is_none();
                let value = scalar_value(text, style, tag.as_deref(), span)?;
                self.finish(Node { value, span }, anchor, merge)
            }
            Event::SequenceStart(style, anchor, tag) => {
                collection_tag(tag.as_deref(), "seq", span)?;
                self.open(Contents::List(Vec::new()), style, anchor, span)
            }
            Event::MappingStart(style, anchor, tag) => {
                collection_tag(tag.as_deref(), "map", span)?;
                let contents = Contents::Map {
                    entries: Vec::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.open(contents, style, anchor, span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(id) => self.alias(id, span),
            Event::UnresolvedAlias(name) => Err(Box::new(Finding::new(
                &catalogue::BAD_ALIAS,
                "",
                span,
                format!("alias `*{name}` has no anchor `&{name}` before it"),
            ))),
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        contents: Contents,
        style: StructureStyle,
        anchor: usize,
        span: Span,
    ) -> Result<(), Box<Finding>> {
        self.budget.pay(0, span)?;
        if self.stack.len() >= MAX_DEPTH {
            return Err(Box::new(too_deep(span)));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        self.stack.push(Frame {
            contents,
            span,
            flow: style == StructureStyle::Flow,
            anchor,
        });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Result<(), Box<Finding>> {
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        let mut span = frame.span;
        let (value, last) = match frame.contents {
            Contents::List(items) => {
                let last = items.last().map(|item| item.span.end);
                (Value::List(items), last)
            }
            Contents::Map {
                mut entries,
                merged,
                ..
            } => {
                let last = entries.last().map(|entry| entry.value.span.end);
                refuse_duplicates(&entries)?;
                merge(&mut entries, merged);
                (Value::Map(entries), last)
            }
        };
        // The end of a block collection is only seen at the token after it, which may be pages
        // of comments away.
        let end = if frame.flow {
            end.end
        } else {
            last.unwrap_or(span.start)
        };
        span.end = end.max(span.start);
        self.finish(Node { value, span }, frame.anchor, false)
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<(), Box<Finding>> {
        let bad = |message: &str| Box::new(Finding::new(&catalogue::BAD_ALIAS, "", span, message));
        match self.anchors.get(&id) {
            Some(Some(node)) => {
                if self.stack.len() + depth(node) > MAX_DEPTH {
                    return Err(Box::new(too_deep(span)));
                }
                self.budget.pay_copy(node, span)?;
                let copy = node.clone();
                self.finish(copy, 0, false)
            }
            Some(None) => Err(bad("the alias stands inside of the value that it names")),
            None => Err(bad("the alias names no anchor of this document")),
        }
    }

    /// Puts a complete value where it belongs.
    fn finish(&mut self, mut node: Node, anchor: usize, merge: bool) -> Result<(), Box<Finding>> {
        if anchor != 0 {
            // The kept copy is paid for like any other, or nested anchors would multiply.
            self.budget.pay_copy(&node, node.span)?;
            self.anchors.insert(anchor, Some(node.clone()));
        }
        let Some(frame) = self.stack.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut frame.contents {
            Contents::List(items) => items.push(node),
            Contents::Map {
                entries,
                key,
                merged,
            } => match key.take() {
                None => {
                    *key = Some(Key {
                        span: node.head(),
                        text: key_text(node)?,
                        merge,
                    });
                }
                Some(name) if name.merge => merged.extend(merge_sources(node, name.span)?),
                Some(name) => {
                    if node.value == Value::Null && node.span.start == node.span.end {
                        // A value that is not there has no place; its key has.
                        node.span = name.span;
                    }
                    entries.push(Entry {
                        key: name.text,
                        key_span: name.span,
                        value: node,
                    });
                }
            },
        }
        Ok(())
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => {
            1 + entries
                .iter()
                .map(|entry| depth(&entry.value))
                .max()
                .unwrap_or(0)
        }
        _ => 0,
    }
}

fn scalar_value(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: Span,
) -> Result<Value, Box<Finding>> {
    let value = match tag {
        None if style == ScalarStyle::Plain => scalar::resolve(&text),
        None => return Ok(Value::String(text.into_owned())),
        // A lone `!` means: not a plain scalar, whatever it looks like.
        Some(tag) if tag.handle().is_empty() && tag.suffix() == "!" => {
            return Ok(Value::String(text.into_owned()));
        }
        Some(tag) => match tag.core_suffix() {
            Some("str") => return Ok(Value::String(text.into_owned())),
            Some("int") => scalar::resolve_tagged(&text, "int"),
            Some("float") => scalar::resolve_tagged(&text, "float"),
            Some("bool") => scalar::resolve_tagged(&text, "bool"),
            Some("null") => scalar::resolve_tagged(&text, "null"),
            _ => return Err(Box::new(bad_tag(tag, span))),
        },
    };
    let finding = match value {
        Ok(value) => return Ok(value),
        Err(ScalarFault::NotFinite) => unsupported(span, format!("`{text}` is not a JSON number"))
            .with_hint("quote it to make it a string"),
        Err(ScalarFault::TagMismatch(tag)) => unsupported(
            span,
            format!("the tag `!!{tag}` does not fit the value `{text}`"),
        ),
    };
    Err(Box::new(finding))
}

fn collection_tag(tag: Option<&Tag>, want: &str, span: Span) -> Result<(), Box<Finding>> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(want) => Err(Box::new(bad_tag(tag, span))),
        _ => Ok(()),
    }
}

fn bad_tag(tag: &Tag, span: Span) -> Finding {
    unsupported(
        span,
        format!(
            "the tag `{}{}` is not supported",
            tag.original_handle(),
            tag.suffix()
        ),
    )
    .with_hint(
        "the supported tags are `!!str`, `!!int`, `!!float`, `!!bool`, `!!null`, `!!seq` and `!!map`",
    )
}

fn unsupported(span: Span, message: String) -> Finding {
    Finding::new(&catalogue::UNSUPPORTED_TAG, "", span, message)
}

/// A key as text, as it is in the JSON that kubectl makes of it.
fn key_text(node: Node) -> Result<String, Box<Finding>> {
    match node.value {
        Value::String(text) | Value::Float(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Int(value) => Ok(value.to_string()),
        Value::UInt(value) => Ok(value.to_string()),
        Value::Null | Value::List(_) | Value::Map(_) => {
            let found = match node.value {
                Value::Null => "nothing",
                Value::List(_) => "a list",
                _ => "a map",
            };
            let message = format!("a key must be text, found {found}");
            let rule = &catalogue::BAD_KEY;
            Err(Box::new(Finding::new(rule, "", node.head(), message)))
        }
    }
}

/// The maps that a merge key brings in, the strongest first.
fn merge_sources(node: Node, key: Span) -> Result<Vec<Node>, Box<Finding>> {
    match node.value {
        Value::Map(_) => Ok(vec![node]),
        Value::List(items) if items.iter().all(|item| matches!(item.value, Value::Map(_))) => {
            Ok(items)
        }
        _ => Err(Box::new(Finding::new(
            &catalogue::BAD_KEY,
            "",
            key,
            "the merge key `<<` needs a map or a list of maps",
        ))),
    }
}

/// Adds what merge keys bring in; a key of the map itself, or of an earlier source, is stronger.
fn merge(entries: &mut Vec<Entry>, merged: Vec<Node>) {
    if merged.is_empty() {
        return;
    }
    let mut known: BTreeSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    for source in merged {
        if let Value::Map(more) = source.value {
            for entry in more {
                if known.insert(entry.key.clone()) {
                    entries.push(entry);
                }
            }
        }
    }
}

pub(super) fn refuse_duplicates(entries: &[Entry]) -> Result<(), Box<Finding>> {
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_by(|a, b| {
        let place = |entry: &Entry| entry.key_span.start;
        a.key.cmp(&b.key).then(place(a).cmp(&place(b)))
    });
    let twice = order
        .windows(2)
        .filter_map(|pair| match pair {
            [first, second] if first.key == second.key => Some((*first, *second)),
            _ => None,
        })
        .min_by_key(|(_, second)| second.key_span.start);
    let Some((first, second)) = twice else {
        return Ok(());
    };
    let message = format!(
        "the key `{}` is already in this map, on line {}",
        second.key, first.key_span.line
    );
    let finding = Finding::new(&catalogue::DUPLICATE_KEY, "", second.key_span, message);
    Err(Box::new(finding.with_hint("remove one of the two")))
}

pub(super) fn too_deep(span: Span) -> Finding {
    Finding::new(
        &catalogue::TOO_DEEP,
        "",
        span,
        format!("lists and maps are nested more than {MAX_DEPTH} deep"),
    )
}

fn span_of(start: Marker, end: Marker) -> Span {
    let first = start.byte_offset().unwrap_or_default();
    Span {
        start: first,
        end: end.byte_offset().unwrap_or(first).max(first),
        line: start.line(),
        column: start.col() + 1,
    }
}

fn syntax(text: &str, error: &ScanError) -> Finding {
    let at = *error.marker();
    let span = span_of(at, at);
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return too_deep(span);
    }
    let rule: &Rule = &catalogue::SYNTAX;
    let line = text
        .lines()
        .nth(span.line.saturating_sub(1))
        .unwrap_or_default();
    let finding = Finding::new(rule, "", span, format!("not valid YAML: {}", error.kind()));
    let indent = line.trim_end_matches(|c: char| !c.is_whitespace());
    if line.starts_with('\t') || indent.trim_matches(' ').starts_with('\t') {
        finding.with_hint("indent with spaces, YAML allows no tabs there")
    } else if matches!(line.trim(), "..." | "…" | "- ...") {
        finding.with_hint("the line stands for something that was left out: write it out")
    } else if is_bare_word(line) {
        finding.with_hint("write `key: value`, or begin an item of a list with `- `")
    } else {
        finding
    }
}

/// Whether a line is a word where a key with its value, or an item, must be.
fn is_bare_word(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with(['-', '#']) && !line.contains([':', '{', '[', '"', '\''])
}
