//! The shape of a type, learned from the way it reads itself.
//!
//! Every type of the API gives a deserializer its name, its fields and what each field wants. This
//! one writes that down and answers with some value, so that the whole tree is walked once. What is
//! required is learned from the way back: a field that is written although nothing was read.
//!
//! Owns no rule of Kubernetes; [`schema`](super::schema) adds what types do not know.
//! Why not `schemars`: `docs/decisions/0010-crd-schemas-from-serde.md`.
//!
//! Invariant: a field that the linked version of the API has is in the shape, so that nothing a
//! user may write into a pod template is dropped by the API server.

use std::{cell::RefCell, collections::BTreeMap};

use serde::{
    Serialize,
    de::{
        DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer,
        MapAccess, SeqAccess, Visitor,
        value::{Error, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Value, json};

/// What a type is on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Bool,
    Int32,
    Int64,
    Float,
    Text,
    Time,
    Quantity,
    IntOrString,
    List(Box<Shape>),
    Map(Box<Shape>),
    Struct(Struct),
}

/// A struct with its fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Struct {
    pub(super) name: &'static str,
    pub(super) fields: Vec<Field>,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) required: bool,
}

/// The shape of `T`.
pub(super) fn shape<T: DeserializeOwned + Serialize>() -> Result<Shape, Error> {
    let slot = RefCell::new(None);
    T::deserialize(Probe { slot: &slot })?;
    let mut shape = taken(&slot)?;
    let mut known = BTreeMap::new();
    require::<T>(&mut shape, &mut Vec::new(), &mut known)?;
    Ok(shape)
}

/// One step from a value to a value inside it.
#[derive(Clone, Copy)]
enum Step {
    Key(&'static str),
    Item,
    Entry,
}

/// Marks the required fields of every struct; `known` remembers them by the struct's name.
fn require<T: DeserializeOwned + Serialize>(
    shape: &mut Shape,
    path: &mut Vec<Step>,
    known: &mut BTreeMap<&'static str, Vec<String>>,
) -> Result<(), Error> {
    let (inner, step) = match shape {
        Shape::List(inner) => (inner, Step::Item),
        Shape::Map(inner) => (inner, Step::Entry),
        Shape::Struct(own) => {
            let names = match known.get(own.name) {
                Some(names) => names.clone(),
                None => written_from_nothing::<T>(path)?,
            };
            known.insert(own.name, names.clone());
            for field in &mut own.fields {
                field.required = names.iter().any(|name| name == field.name);
                path.push(Step::Key(field.name));
                require::<T>(&mut field.shape, path, known)?;
                path.pop();
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    path.push(step);
    require::<T>(inner, path, known)?;
    path.pop();
    Ok(())
}

/// The fields that are written for the struct at `path` after it was read from `{}`.
fn written_from_nothing<T: DeserializeOwned + Serialize>(
    path: &[Step],
) -> Result<Vec<String>, Error> {
    let nothing = path.iter().rev().fold(json!({}), |inner, step| match step {
        Step::Key(name) => json!({ *name: inner }),
        Step::Item => json!([inner]),
        Step::Entry => json!({ "key": inner }),
    });
    let read: T = serde_json::from_value(nothing).map_err(Error::custom)?;
    let written = serde_json::to_value(read).map_err(Error::custom)?;
    let place = path
        .iter()
        .try_fold(&written, |value, step| match step {
            Step::Key(name) => value.get(name),
            Step::Item => value.get(0),
            Step::Entry => value.get("key"),
        })
        .and_then(Value::as_object)
        .ok_or_else(|| Error::custom("a struct was read and not written"))?;
    Ok(place.keys().cloned().collect())
}

type Slot = RefCell<Option<Shape>>;

fn taken(slot: &Slot) -> Result<Shape, Error> {
    slot.take()
        .ok_or_else(|| Error::custom("a type read nothing"))
}

/// Answers whatever is asked for, and notes what that was.
struct Probe<'a> {
    slot: &'a Slot,
}

impl Probe<'_> {
    fn note(&self, shape: Shape) {
        self.slot.replace(Some(shape));
    }
}

/// A moment that every type of time can read.
const MOMENT: &str = "1970-01-01T00:00:00Z";

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let wanted = (&visitor as &dyn Expected).to_string();
        if wanted == "IntOrString" {
            self.note(Shape::IntOrString);
            return visitor.visit_i64(0);
        }
        Err(Error::custom(format!("`{wanted}` has no shape")))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Shape::Bool);
        visitor.visit_bool(false)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Shape::Int32);
        visitor.visit_i32(0)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Shape::Int64);
        visitor.visit_i64(0)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Shape::Float);
        visitor.visit_f64(0.0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Shape::Text);
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (shape, answer) = match name {
            "Time" | "MicroTime" => (Shape::Time, MOMENT),
            "Quantity" => (Shape::Quantity, "0"),
            // The API's own record of who set what, which no template keeps.
            "FieldsV1" => (Shape::Text, ""),
            _ => return visitor.visit_newtype_struct(self),
        };
        self.note(shape);
        visitor.visit_newtype_struct(StrDeserializer::new(answer))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let inner = RefCell::new(None);
        let value = visitor.visit_seq(OneItem {
            slot: &inner,
            given: false,
        })?;
        self.note(Shape::List(Box::new(taken(&inner)?)));
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let inner = RefCell::new(None);
        let value = visitor.visit_map(Fields {
            names: &["key"],
            slot: &inner,
            found: None,
        })?;
        self.note(Shape::Map(Box::new(taken(&inner)?)));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let found = RefCell::new(Vec::new());
        let value = visitor.visit_map(Fields {
            names,
            slot: &RefCell::new(None),
            found: Some(&found),
        })?;
        self.note(Shape::Struct(Struct {
            name,
            fields: found.into_inner(),
        }));
        Ok(value)
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

/// A list of one item.
struct OneItem<'a> {
    slot: &'a Slot,
    given: bool,
}

impl<'de> SeqAccess<'de> for OneItem<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if std::mem::replace(&mut self.given, true) {
            return Ok(None);
        }
        seed.deserialize(Probe { slot: self.slot }).map(Some)
    }
}

/// A map with each of `names`; the shapes go to `found` where the names are fields.
struct Fields<'a> {
    names: &'a [&'static str],
    slot: &'a Slot,
    found: Option<&'a RefCell<Vec<Field>>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.names.first() else {
            return Ok(None);
        };
        let key: StrDeserializer<'_, Error> = (*name).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((name, rest)) = self.names.split_first() else {
            return Err(Error::custom("a value was asked for without its key"));
        };
        self.names = rest;
        let value = seed.deserialize(Probe { slot: self.slot })?;
        if let Some(found) = self.found {
            found.borrow_mut().push(Field {
                name,
                shape: taken(self.slot)?,
                required: false,
            });
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, Probe as HealthProbe, ResourceRequirements};

    use super::*;

    fn fields<T: DeserializeOwned + Serialize>() -> Vec<(&'static str, Shape, bool)> {
        match shape::<T>().expect("the type has a shape") {
            Shape::Struct(own) => own
                .fields
                .into_iter()
                .map(|field| (field.name, field.shape, field.required))
                .collect(),
            other => vec![("", other, false)],
        }
    }

    #[test]
    fn fields_have_their_names_types_and_need() {
        assert_eq!(
            fields::<ContainerPort>(),
            [
                ("containerPort", Shape::Int32, true),
                ("hostIP", Shape::Text, false),
                ("hostPort", Shape::Int32, false),
                ("name", Shape::Text, false),
                ("protocol", Shape::Text, false),
            ]
        );
    }

    #[test]
    fn maps_lists_and_special_types_are_distinguished() {
        let limits = Shape::Map(Box::new(Shape::Quantity));
        assert_eq!(
            fields::<ResourceRequirements>().get(1),
            Some(&("limits", limits, false))
        );
        let probe = format!("{:?}", fields::<HealthProbe>());
        assert!(probe.contains("IntOrString"), "{probe}");
        assert!(probe.contains("List(Text)"), "{probe}");
    }
}
