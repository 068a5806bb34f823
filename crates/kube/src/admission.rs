//! The answer to an `AdmissionReview`: may this job be written?
//!
//! Owns the words and the wire form; what is right or wrong is decided in `trainyard_core::spec`.
//!
//! Caveats: only what a user writes is looked at. Deletions, subresources, and objects that are being
//! deleted pass unseen: a wrong job must be able to go.

use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_core::{
    finding::Finding,
    spec::{self, Admitted},
};

use crate::convert;

#[cfg(test)]
mod tests;

/// Characters of a refusal; a terminal is no place for more.
const MESSAGE_CHARS: usize = 8_000;
/// Characters of one warning, and how many there are: the API server drops what is beyond its own
/// bounds without a word.
const WARNING_CHARS: usize = 250;
const WARNINGS: usize = 12;

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    object: Option<Value>,
    #[serde(default)]
    old_object: Option<Value>,
}

/// Answers the body of an `AdmissionReview` request with the body of its response.
pub(crate) fn review(body: &[u8]) -> Vec<u8> {
    let response = match serde_json::from_slice::<Review>(body) {
        Ok(Review { request }) => {
            let uid = request.uid.clone();
            respond(&uid, &admit(request))
        }
        Err(error) => json!({
            "uid": "",
            "allowed": false,
            "status": {
                "code": 400,
                "reason": "BadRequest",
                "message": format!("cannot read the request as an `AdmissionReview`: {error}"),
            },
        }),
    };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    });
    review.to_string().into_bytes()
}

fn admit(request: Request) -> Admitted {
    let written = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    let object = request.object.filter(Value::is_object);
    let Some(object) = object.filter(|_| written && request.sub_resource.is_empty()) else {
        return Admitted::default();
    };
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Admitted::default();
    }
    let old = request.old_object.filter(Value::is_object);
    spec::admit(old.map(as_written).as_ref(), &as_written(object))
}

/// The object as its user wrote it: in the version of its creation, and without what others add.
fn as_written(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("managedFields");
        }
    }
    if convert::created_as(&object).is_some() {
        // One that cannot be converted is refused by its own checks.
        return convert::as_created(&object).unwrap_or(object);
    }
    object
}

fn respond(uid: &str, admitted: &Admitted) -> Value {
    let mut response = json!({"uid": uid, "allowed": admitted.refusals.is_empty()});
    if !admitted.refusals.is_empty() {
        response["status"] = json!({
            "code": 422,
            "reason": "Invalid",
            "message": short(&refusal(&admitted.refusals), MESSAGE_CHARS),
        });
    }
    if !admitted.warnings.is_empty() {
        let warnings = admitted.warnings.iter().take(WARNINGS);
        response["warnings"] = warnings
            .map(|finding| Value::from(short(&sentence(finding), WARNING_CHARS)))
            .collect();
    }
    response
}

/// All that is wrong, one line each.
fn refusal(findings: &[Finding]) -> String {
    if let [finding] = findings {
        return sentence(finding);
    }
    let mut text = format!("{} mistakes:", findings.len());
    for finding in findings {
        text.push_str("\n- ");
        text.push_str(&sentence(finding));
    }
    text
}

/// A finding in one line: code, place, what was found, what to do.
pub(crate) fn sentence(finding: &Finding) -> String {
    let mut text = finding.code.to_owned();
    if !finding.path.is_empty() {
        text.push_str(" at `");
        text.push_str(&finding.path);
        text.push('`');
    }
    text.push_str(": ");
    text.push_str(&finding.message);
    if let Some(hint) = &finding.hint {
        text.push_str("; ");
        text.push_str(hint);
    }
    text
}

fn short(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
