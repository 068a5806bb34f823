//! From the shape of a type to the schema that an API server enforces.
//!
//! Invariant: the same shape gives the same bytes; fields are sorted by name.

use serde_json::{Map, Value, json};

use super::{
    fields::{self, Extra},
    kubernetes as api,
    reflect::{Field, Shape, Struct},
};

/// A number or a text with a unit, as the API server itself spells the rule.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The schema of `shape` in a job of `version`.
pub(super) fn of(shape: &Shape, version: &str) -> Map<String, Value> {
    object(match shape {
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Int32 => json!({ "format": "int32", "type": "integer" }),
        Shape::Int64 => json!({ "format": "int64", "type": "integer" }),
        Shape::Float => json!({ "type": "number" }),
        Shape::Text => json!({ "type": "string" }),
        Shape::Time => json!({ "format": "date-time", "type": "string" }),
        Shape::IntOrString => json!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "x-kubernetes-int-or-string": true,
        }),
        Shape::Quantity => json!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        }),
        Shape::List(item) => json!({ "items": of(item, version), "type": "array" }),
        Shape::Map(value) => {
            json!({ "additionalProperties": of(value, version), "type": "object" })
        }
        Shape::Struct(own) => return structure(own, version),
    })
}

fn structure(own: &Struct, version: &str) -> Map<String, Value> {
    let mut properties: Vec<(&str, Value)> = own
        .fields
        .iter()
        .filter(|field| own.name != "ObjectMeta" || api::TEMPLATE_METADATA.contains(&field.name))
        .map(|field| {
            let schema = if fields::is_own(own.name) {
                own_field(own.name, field, version)
            } else {
                api_field(own.name, field, version)
            };
            (field.name, Value::Object(schema))
        })
        .collect();
    properties.sort_by_key(|(name, _)| *name);
    let mut required: Vec<&str> = own
        .fields
        .iter()
        .filter(|field| field.required && !has_default(own.name, field.name))
        .map(|field| field.name)
        .collect();
    required.sort_unstable();
    let mut schema = object(json!({
        "properties": properties
            .into_iter()
            .map(|(name, schema)| (name.to_owned(), schema))
            .collect::<Map<_, _>>(),
    }));
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    schema.insert("type".into(), json!("object"));
    if api::WHOLE_STRUCTS.contains(&own.name) {
        schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
    }
    schema
}

/// A field of ours. Our types hold every number in 64 bits, so that one out of range can be named;
/// the contract's are of 32 bits but for one.
fn own_field(owner: &str, field: &Field, version: &str) -> Map<String, Value> {
    let (sentence, extra) = fields::find(owner, field.name).unwrap_or(("", Extra::None));
    let narrow = match (&field.shape, extra) {
        (Shape::Int64, Extra::Wide) => &Shape::Int64,
        (Shape::Int64, _) => &Shape::Int32,
        (shape, _) => shape,
    };
    let mut schema = Map::new();
    schema.insert("description".into(), json!(sentence));
    schema.extend(of(narrow, version));
    extra.apply(version, &mut schema);
    schema
}

fn api_field(owner: &str, field: &Field, version: &str) -> Map<String, Value> {
    let mut schema = of(&field.shape, version);
    let place = (owner, field.name);
    let keys = api::MAP_LISTS
        .iter()
        .find(|(owner, field, _)| (*owner, *field) == place)
        .map(|(_, _, keys)| *keys);
    match &field.shape {
        Shape::List(_) if keys.is_some() => {
            schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
            schema.insert("x-kubernetes-list-type".into(), json!("map"));
        }
        Shape::List(_) if api::SET_LISTS.contains(&place) => {
            schema.insert("x-kubernetes-list-type".into(), json!("set"));
        }
        Shape::List(_) if !api::PLAIN_LISTS.contains(&place) => {
            schema.insert("x-kubernetes-list-type".into(), json!("atomic"));
        }
        Shape::Map(_) if api::WHOLE_MAPS.contains(&place) => {
            schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
        }
        _ => {}
    }
    if let Some((_, _, text)) = text_default(owner, field.name) {
        schema.insert("default".into(), json!(text));
    }
    if api::OFF_BY_DEFAULT.contains(&place) {
        schema.insert("default".into(), json!(false));
    }
    schema
}

fn text_default(
    owner: &str,
    field: &str,
) -> Option<&'static (&'static str, &'static str, &'static str)> {
    api::TEXT_DEFAULTS
        .iter()
        .find(|(row_owner, row_field, _)| (*row_owner, *row_field) == (owner, field))
}

/// A field that is filled in cannot be missing.
fn has_default(owner: &str, field: &str) -> bool {
    text_default(owner, field).is_some() || api::OFF_BY_DEFAULT.contains(&(owner, field))
}

/// The entries of a JSON object.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(entries) => entries,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}
