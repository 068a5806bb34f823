//! `MPIJob` between its versions v1 and v2beta1, without loss.
//!
//! Owns the answer to a `ConversionReview` ([`review()`]) and the memory of which version a job was created in: the
//! two run differently, whatever version they are read in. It sends and stores nothing.
//!
//! ```text
//! created as v1:       v1 (no mark)                    ⇄ v2beta1, `created-as: v1`
//! created as v2beta1:  v1, `created-as: v2beta1`       ⇄ v2beta1 (no mark)
//! ```
//!
//! A field that only one version has goes into an annotation of the other, and back. A job without
//! a mark was created in the version it is in, so objects that an older operator stored are right as
//! they are.
//!
//! Guarantees: converting there and back gives the same object. Nothing but labels and annotations of
//! the metadata changes, as the API server demands.
//!
//! Caveats: the annotations named here belong to this module. One that cannot be read (somebody
//! edited it) stays where it is: an object that cannot be converted could no longer be read at all,
//! not even to be deleted.

mod review;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use thiserror::Error;
use trainyard_core::spec::{Kind, count::is_small};

pub use self::review::review;

/// Annotation: the version a job was created in, where that is not the one it is in.
pub const CREATED_AS: &str = "trainyard.dev/created-as";
/// Annotation of a job in v1: the fields of its spec that only v2beta1 has, as JSON.
pub const V2BETA1_FIELDS: &str = "trainyard.dev/v2beta1-fields";
/// Annotation of a job in v2beta1: the fields of its spec that only v1 has, as JSON.
pub const V1_FIELDS: &str = "trainyard.dev/v1-fields";

/// Fields of a spec that only v1 has.
const ONLY_V1: &[&str] = &["cleanPodPolicy", "mainContainer"];
/// Fields of a spec that only v2beta1 has.
const ONLY_V2BETA1: &[&str] = &[
    "runLauncherAsWorker",
    "sshAuthMountPath",
    "launcherCreationPolicy",
    "mpiImplementation",
];

/// Why an object was not converted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConvertError {
    /// It is no `MPIJob` of a version that is known.
    #[error(
        "cannot convert `{kind}` of `{api_version}`: only `MPIJob` is converted, between \
             `kubeflow.org/v1` and `kubeflow.org/v2beta1`"
    )]
    NotAnMpiJob {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// It was wanted in a version that is not known.
    #[error(
        "cannot convert to `{0}`: an `MPIJob` is served in `kubeflow.org/v1` and \
             `kubeflow.org/v2beta1`"
    )]
    UnknownVersion(String),
    /// Its metadata or its spec is not a map.
    #[error("cannot convert an `MPIJob` whose `{0}` is not a map")]
    NotAMap(&'static str),
}

/// `object` in `api_version`.
pub fn convert(object: &Value, api_version: &str) -> Result<Value, ConvertError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let from =
        mpi_kind(text("apiVersion"), text("kind")).ok_or_else(|| ConvertError::NotAnMpiJob {
            kind: text("kind").to_owned(),
            api_version: text("apiVersion").to_owned(),
        })?;
    let to = mpi_kind(api_version, "MPIJob")
        .ok_or_else(|| ConvertError::UnknownVersion(api_version.to_owned()))?;
    let mut converted = object.clone();
    if from == to {
        return Ok(converted);
    }
    let mut spec = take(&mut converted, "spec")?;
    let mut metadata = take(&mut converted, "metadata")?.unwrap_or_default();
    let mut annotations = match metadata.remove("annotations") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(annotations)) => annotations,
        Some(_) => return Err(ConvertError::NotAMap("metadata.annotations")),
    };
    move_fields(from, spec.as_mut(), &mut annotations);
    move_mark(from, to, &mut annotations);
    if !annotations.is_empty() {
        metadata.insert("annotations".into(), Value::Object(annotations));
    }
    if let Some(entries) = converted.as_object_mut() {
        entries.insert("apiVersion".into(), json!(to.api_version()));
        entries.insert("metadata".into(), Value::Object(metadata));
        if let Some(spec) = spec {
            entries.insert("spec".into(), Value::Object(spec));
        }
    }
    Ok(converted)
}

/// The kind whose runtime a stored or served `MPIJob` has, which is that of the version it was
/// created in; nothing for an object of another kind.
pub fn created_as(object: &Value) -> Option<Kind> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let is_in = mpi_kind(text("apiVersion"), text("kind"))?;
    let mark = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(CREATED_AS))
        .and_then(Value::as_str);
    Some(match mark {
        Some("v1") => Kind::MpiV1,
        Some("v2beta1") => Kind::MpiV2,
        _ => is_in,
    })
}

/// `object` in the version it was created in.
pub fn as_created(object: &Value) -> Result<Value, ConvertError> {
    let kind = created_as(object).unwrap_or(Kind::MpiV1);
    convert(object, kind.api_version())
}

fn mpi_kind(api_version: &str, kind: &str) -> Option<Kind> {
    Kind::find(api_version, kind).filter(|kind| kind.is_mpi())
}

/// The map at `key`, taken out; nothing where there is none.
fn take(object: &mut Value, key: &'static str) -> Result<Option<Map<String, Value>>, ConvertError> {
    match object.get_mut(key).map(Value::take) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(entries)) => Ok(Some(entries)),
        Some(_) => Err(ConvertError::NotAMap(key)),
    }
}

/// Puts fields that the other version does not have away, and brings back those it has.
fn move_fields(
    from: Kind,
    spec: Option<&mut Map<String, Value>>,
    annotations: &mut Map<String, Value>,
) {
    let (leaving, away, back) = match from {
        Kind::MpiV2 => (ONLY_V2BETA1, V2BETA1_FIELDS, V1_FIELDS),
        _ => (ONLY_V1, V1_FIELDS, V2BETA1_FIELDS),
    };
    let Some(spec) = spec else { return };
    let returning = annotations
        .get(back)
        .and_then(Value::as_str)
        // The bounds of a request do not count what is inside a text. Each field is a word or a truth value.
        .filter(|text| is_small(text))
        .and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    let mut kept = Map::new();
    for name in leaving {
        if let Some(value) = spec.remove(*name) {
            kept.insert((*name).to_owned(), value);
        }
    }
    if let Some(fields) = returning {
        annotations.remove(back);
        for (name, value) in fields {
            spec.entry(name).or_insert(value);
        }
    }
    if !kept.is_empty() {
        annotations.insert(away.to_owned(), json!(Value::Object(kept).to_string()));
    }
}

/// Keeps the version of creation: it is written where the object is in the other one.
fn move_mark(from: Kind, to: Kind, annotations: &mut Map<String, Value>) {
    let mark = annotations.remove(CREATED_AS);
    let created = match mark.as_ref().and_then(Value::as_str) {
        Some("v1") => Kind::MpiV1,
        Some("v2beta1") => Kind::MpiV2,
        _ => from,
    };
    if created != to {
        let version = crate::crd::version(created);
        annotations.insert(CREATED_AS.to_owned(), json!(version));
    }
}
