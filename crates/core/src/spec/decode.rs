//! From a tree to the types of the API, with every mismatch recorded.
//!
//! A deserializer that does not stop: where a value has the wrong type it records a finding and
//! hands out an empty value, so that one pass finds everything. Unknown keys are found because
//! each struct of the API announces its full list of fields.
//!
//! Invariant: decoding recurses only along the tree, whose depth is bounded.

use std::fmt;

use serde::{
    Deserialize,
    de::{self, DeserializeSeed, IntoDeserializer, Visitor},
};

use super::{
    Entry, Node, Value,
    collector::Collector,
    tree::{push_index, push_key},
};
use crate::finding::{Finding, Span};

mod absent;
mod fields;
mod number;
mod sentence;
#[cfg(test)]
mod tests;

use absent::Absent;

/// Decodes `tree` as `T`; findings go to `collector`. `source` is the text that the positions of
/// the tree refer to, used to quote values as they are written; it may be empty.
pub(crate) fn decode<'a, T: Deserialize<'a> + Default>(
    tree: &'a Node,
    source: &str,
    collector: &Collector,
) -> T {
    let decoder = Decoder {
        node: tree,
        source,
        collector,
        path: Path::Root,
        key_span: None,
        element: false,
    };
    decoder.or_absent()
}

/// The way to a value, as a list that lives on the stack.
#[derive(Clone, Copy)]
enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    fn push_to(&self, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Key(parent, key) => {
                parent.push_to(text);
                push_key(text, key);
            }
            Self::Index(parent, index) => {
                parent.push_to(text);
                push_index(text, *index);
            }
        }
    }

    /// The last key, as users call the field.
    fn name(&self) -> String {
        match self {
            Self::Root => "the document".to_owned(),
            Self::Key(_, key) => format!("`{key}`"),
            Self::Index(Self::Key(_, key), index) => format!("item {} of `{key}`", index + 1),
            Self::Index(_, index) => format!("item {}", index + 1),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.push_to(&mut text);
        f.write_str(&text)
    }
}

/// Decodes one value.
#[derive(Clone, Copy)]
struct Decoder<'a, 'p> {
    node: &'a Node,
    source: &'p str,
    collector: &'p Collector,
    path: Path<'p>,
    key_span: Option<Span>,
    /// Whether the value is an item of a list or of a free map, where null does not mean
    /// that a field is absent.
    element: bool,
}

impl<'a> Decoder<'a, '_> {
    /// The value, or what the type has for absent after the error is recorded.
    fn or_absent<T: Deserialize<'a> + Default>(self) -> T {
        match T::deserialize(self) {
            Ok(value) => value,
            Err(error) => {
                self.record_error(&error);
                T::default()
            }
        }
    }

    /// Decodes a field or an item. What a type refuses by itself is recorded, and the type gets
    /// an absent value instead.
    fn decode<T: Deserialize<'a>>(self) -> Result<T, DecodeError> {
        T::deserialize(self).or_else(|error| {
            self.record_error(&error);
            T::deserialize(Absent)
        })
    }

    fn span(&self) -> Span {
        match self.key_span {
            Some(span) if self.node.is_collection() => span,
            _ => self.node.head(),
        }
    }

    fn record(&self, finding: impl FnOnce(String, Span) -> Finding) {
        self.collector
            .add_unknown(finding(self.path.to_string(), self.span()));
    }

    /// Whether a null here says that the field is absent.
    fn is_absent(&self) -> bool {
        self.node.value == Value::Null && !self.element
    }
}

/// What a visitor of some type refused.
#[derive(Debug)]
pub(crate) struct DecodeError(String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
                visitor.$visit(self.whole(<$type>::MIN.into(), <$type>::MAX.into()).try_into().unwrap_or_default())
            }
        )*
    };
}

impl<'de> de::Deserializer<'de> for Decoder<'de, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::UInt(value) => visitor.visit_u64(*value),
            Value::Float(text) => visitor.visit_f64(text.parse().unwrap_or_default()),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items {
                parent: self,
                items: items.iter().enumerate(),
            }),
            Value::Map(entries) => visitor.visit_map(Entries::new(self, entries, false)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.node.value == Value::Null {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let Value::Bool(value) = self.node.value else {
            self.mismatch("a boolean");
            return visitor.visit_bool(false);
        };
        visitor.visit_bool(value)
    }

    whole_numbers! {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_f64(self.float())
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let Value::String(text) = &self.node.value else {
            self.mismatch("a string");
            return visitor.visit_borrowed_str("");
        };
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    /// Bytes are base64 text in JSON; the type decodes it.
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name == "Quantity" {
            return match self.quantity() {
                Some(text) => visitor
                    .visit_newtype_struct(IntoDeserializer::<DecodeError>::into_deserializer(text)),
                None => visitor.visit_newtype_struct(Absent),
            };
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let items: &'de [Node] = if let Value::List(items) = &self.node.value {
            items
        } else {
            self.mismatch("a list");
            &[]
        };
        visitor.visit_seq(Items {
            parent: self,
            items: items.iter().enumerate(),
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_map(Entries::new(self, self.entries(), true))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let entries = self.entries();
        let entries = if self.collector.count_object(self.span()) {
            entries
        } else {
            &[]
        };
        self.check_fields(entries, name, fields);
        visitor.visit_map(Entries::new(self, entries, false))
    }

    /// No type of the API is an enum on the wire; words are checked where their meaning is known.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_enum(self.node.as_str().unwrap_or_default().into_deserializer())
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }
}

impl<'a> Decoder<'a, '_> {
    fn entries(&self) -> &'a [Entry] {
        let Value::Map(entries) = &self.node.value else {
            self.mismatch("a map");
            return &[];
        };
        entries
    }
}

/// The items of a list.
struct Items<'a, 'p> {
    parent: Decoder<'a, 'p>,
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'de> de::SeqAccess<'de> for Items<'de, '_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        seed.deserialize(Decoder {
            node,
            source: self.parent.source,
            collector: self.parent.collector,
            path: Path::Index(&self.parent.path, index),
            key_span: None,
            element: true,
        })
        .map(Some)
    }

    fn next_element<T: Deserialize<'de>>(&mut self) -> Result<Option<T>, DecodeError> {
        if self.parent.collector.is_overfull() {
            return Ok(None);
        }
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        Decoder {
            node,
            source: self.parent.source,
            collector: self.parent.collector,
            path: Path::Index(&self.parent.path, index),
            key_span: None,
            element: true,
        }
        .decode()
        .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The entries of a map or a struct.
struct Entries<'a, 'p> {
    parent: Decoder<'a, 'p>,
    rest: std::slice::Iter<'a, Entry>,
    current: Option<&'a Entry>,
    /// Whether the keys are data and not fields.
    free: bool,
}

impl<'a, 'p> Entries<'a, 'p> {
    fn new(parent: Decoder<'a, 'p>, entries: &'a [Entry], free: bool) -> Self {
        Self {
            parent,
            rest: entries.iter(),
            current: None,
            free,
        }
    }

    fn value(&mut self) -> Result<Decoder<'a, '_>, DecodeError> {
        let entry = self
            .current
            .take()
            .ok_or_else(|| DecodeError("a value was asked for before its key".to_owned()))?;
        Ok(Decoder {
            node: &entry.value,
            source: self.parent.source,
            collector: self.parent.collector,
            path: Path::Key(&self.parent.path, &entry.key),
            key_span: Some(entry.key_span),
            element: self.free,
        })
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        if self.free && self.parent.collector.is_overfull() {
            return Ok(None);
        }
        self.current = self.rest.next();
        let Some(entry) = self.current else {
            return Ok(None);
        };
        let key = de::value::BorrowedStrDeserializer::<DecodeError>::new(&entry.key);
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        seed.deserialize(self.value()?)
    }

    fn next_value<V: Deserialize<'de>>(&mut self) -> Result<V, DecodeError> {
        self.value()?.decode()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}
