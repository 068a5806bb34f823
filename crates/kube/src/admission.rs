//! The answer to an `AdmissionReview`: may this job be written, and what does it mean where it says nothing?
//!
//! Owns the words and the wire form; what is right or wrong is decided in `trainyard_core::lint`, and
//! what is filled in in `trainyard_core::spec`.
//!
//! Guarantees: nothing here is needed. The operator reads a job that no webhook reviewed the same way, and
//! writes what is wrong with it to its status.
//!
//! Caveats: only what a user writes is reviewed. Deletions, subresources, and objects that are being
//! deleted pass unseen: a wrong job must be able to go.

use std::sync::Arc;

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_core::{
    finding::Finding,
    launch::{self, Cluster},
    lint::{self, Admitted},
    spec::{self, Kind, RuntimeName},
};

use crate::convert;

#[cfg(test)]
mod tests;

/// Characters of a refusal; a terminal has no space for more.
const MESSAGE_CHARS: usize = 8_000;
/// Characters of one warning, and how many there are: the API server cuts what is beyond 256, and drops
/// what is beyond 4096 in all, without a word.
const WARNING_CHARS: usize = 250;
const WARNINGS: usize = 10;

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    object: Option<Value>,
    #[serde(default)]
    old_object: Option<Value>,
}

/// Finds the runtime of that name for a job of a namespace.
pub(crate) type FindRuntime = Arc<dyn Fn(&RuntimeName, &str) -> Option<Arc<Value>> + Send + Sync>;

/// Answers whether the job in the body of an `AdmissionReview` may be written on `cluster`.
pub(crate) fn review(body: &[u8], cluster: &Cluster, find: &FindRuntime) -> Vec<u8> {
    answer(body, |request| {
        let runtime = match runtime_of(&request, find) {
            Named::Other => None,
            Named::Runtime(runtime) => Some(runtime),
            Named::Missing(name) => {
                let warning = format!(
                    "the job waits for the {}, which does not exist; what depends on it is not checked",
                    name.words()
                );
                return json!({"allowed": true, "warnings": [short(&warning, WARNING_CHARS)]});
            }
            Named::Foreign => return json!({"allowed": true}),
        };
        let runtime = runtime.as_deref();
        let account = runs_as_operator(&request, cluster, runtime);
        let mut response = respond(&admit(request, runtime));
        if let Some(message) = account {
            response["allowed"] = json!(false);
            let known = response.pointer("/status/message").and_then(Value::as_str);
            let message = known.map_or(message.clone(), |known| format!("{message}\n{known}"));
            response["status"] = json!({
                "code": 403,
                "reason": "Forbidden",
                "message": short(&message, MESSAGE_CHARS),
            });
        }
        response
    })
}

/// What the object of a request says of its runtime.
enum Named {
    /// It is no `TrainJob`, or what it says is wrong with it.
    Other,
    Runtime(Arc<Value>),
    /// There is none of that name yet.
    Missing(RuntimeName),
    /// It is a `TrainJob` of another controller.
    Foreign,
}

fn runtime_of(request: &Request, find: &FindRuntime) -> Named {
    let Some(object) = &request.object else {
        return Named::Other;
    };
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    if Kind::find(text("apiVersion"), text("kind")) != Some(Kind::Train) {
        return Named::Other;
    }
    if spec::foreign_manager(object).is_some() {
        return Named::Foreign;
    }
    let Some(name) = RuntimeName::of(object) else {
        return Named::Other;
    };
    match find(&name, &request.namespace).or_else(|| name.built_in().map(Arc::new)) {
        Some(runtime) => Named::Runtime(runtime),
        None => Named::Missing(name),
    }
}

/// Why a job is refused whose pods would run as the operator; one that was stored so before may still be changed.
fn runs_as_operator(
    request: &Request,
    cluster: &Cluster,
    runtime: Option<&Value>,
) -> Option<String> {
    let own = cluster.own_account.as_ref()?;
    if request.namespace != own.namespace || !request.is_written() {
        return None;
    }
    let refusal = |object: &Value| {
        let job = spec::train_job_from_value(&as_written(object.clone()), runtime).job?;
        launch::account_refusal(&job, cluster)
    };
    let refused = refusal(request.object.as_ref()?)?;
    let before = request.old_object.as_ref().and_then(refusal);
    before.is_none().then_some(refused)
}

/// Answers the body of an `AdmissionReview` with what the job in it leaves out.
pub(crate) fn complete(body: &[u8]) -> Vec<u8> {
    answer(body, |request| {
        let filled = written(request).map(|object| patch(&object));
        let mut response = json!({"allowed": true});
        if let Some(patch) = filled.filter(|patch| !patch.is_empty()) {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(ByteString(Value::Array(patch).to_string().into_bytes()));
        }
        response
    })
}

fn answer(body: &[u8], respond: impl FnOnce(Request) -> Value) -> Vec<u8> {
    let response = match serde_json::from_slice::<Review>(body) {
        Ok(Review { request }) => {
            let uid = request.uid.clone();
            let mut response = respond(request);
            response["uid"] = json!(uid);
            response
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

impl Request {
    /// Whether it is what a user writes.
    fn is_written(&self) -> bool {
        let Some(object) = self.object.as_ref().filter(|object| object.is_object()) else {
            return false;
        };
        matches!(self.operation.as_str(), "CREATE" | "UPDATE")
            && self.sub_resource.is_empty()
            && object.pointer("/metadata/deletionTimestamp").is_none()
    }
}

/// What a user writes, where it is that.
fn written(request: Request) -> Option<Value> {
    let written = request.is_written();
    request.object.filter(|_| written)
}

fn admit(mut request: Request, runtime: Option<&Value>) -> Admitted {
    let old = request.old_object.take().filter(Value::is_object);
    let Some(object) = written(request) else {
        return Admitted::default();
    };
    lint::admit_with_runtime(old.map(as_written).as_ref(), &as_written(object), runtime)
}

/// The changes that write out what `object` means where it says nothing.
fn patch(object: &Value) -> Vec<Value> {
    // One that was made in the other version has fields of that version, which are in no place here.
    let converted = convert::created_as(object).is_some_and(|kind| {
        object.get("apiVersion").and_then(Value::as_str) != Some(kind.api_version())
    });
    if converted {
        return Vec::new();
    }
    let add =
        |field: spec::Filled| json!({"op": "add", "path": field.pointer, "value": field.value});
    spec::fill(object).into_iter().map(add).collect()
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

fn respond(admitted: &Admitted) -> Value {
    let mut response = json!({"allowed": admitted.refusals.is_empty()});
    if !admitted.refusals.is_empty() {
        response["status"] = json!({
            "code": 422,
            "reason": "Invalid",
            "message": short(&refusal(&admitted.refusals), MESSAGE_CHARS),
        });
    }
    let warnings = warnings(&admitted.warnings);
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    response
}

/// The warnings; if there are too many, the last line says how many more there are.
fn warnings(findings: &[Finding]) -> Vec<String> {
    let shown = match findings.len() {
        few if few <= WARNINGS => few,
        _ => WARNINGS - 1,
    };
    let mut lines: Vec<String> = findings.iter().take(shown).map(warning).collect();
    if let more @ 1.. = findings.len() - shown {
        lines.push(format!("{more} more; `trainyard lint` prints all of them"));
    }
    lines
}

/// A finding with what to do, where there is room for it.
fn warning(finding: &Finding) -> String {
    let whole = sentence(finding);
    if whole.chars().count() <= WARNING_CHARS {
        return whole;
    }
    let without = Finding {
        hint: None,
        ..finding.clone()
    };
    short(&sentence(&without), WARNING_CHARS)
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
