//! Rules of the contract that the API server itself can hold a job to, in CEL.
//!
//! Owns what of `trainyard_core::spec` is said again in that language: what is cheap to ask and compares
//! fields of the job with each other, or with what they were. It holds while no webhook answers.
//!
//! Invariant: each rule refuses only what the check in `core` refuses, with the same code and what its
//! sentence begins with; a test on a real API server compares them. A stored job that breaks one can still
//! be changed elsewhere, because the API server passes over fields that a change leaves as they are.
//!
//! Caveats: no rule says what was found. A message with numbers in it is thought to be too expensive by the
//! API server, which knows no bound for the length of their text.

use serde_json::{Map, Value, json};
use trainyard_core::spec::Kind;

/// Adds the rules of `kind` to the schema of its spec.
pub(super) fn add(kind: Kind, spec: &mut Map<String, Value>) {
    put(spec, "", vec![fixed_manager()]);
    if matches!(kind, Kind::PyTorch | Kind::Paddle) {
        put(spec, "elasticPolicy", vec![bounds()]);
    }
    let map = kind.replica_map();
    let mut rules = vec![json!({
        "message": format!("TY110: `spec.{map}` has no role"),
        "rule": "size(self) > 0",
    })];
    match kind {
        Kind::PyTorch | Kind::XgBoost => rules.push(single("Master", Unstated::Refused)),
        Kind::MpiV1 | Kind::MpiV2 => rules.push(single("Launcher", Unstated::One)),
        _ => {}
    }
    put(spec, map, rules);
}

/// Puts rules on a field of the spec, or on the spec itself.
fn put(spec: &mut Map<String, Value>, field: &str, rules: Vec<Value>) {
    let place = match field {
        "" => Some(spec),
        field => spec
            .get_mut("properties")
            .and_then(|fields| fields.get_mut(field)?.as_object_mut()),
    };
    let place = place.expect("every kind has the fields that its rules are about; tested for each");
    place.insert("x-kubernetes-validations".into(), Value::Array(rules));
}

/// What a role means that states no number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unstated {
    One,
    Refused,
}

/// A role of one pod.
fn single(role: &str, unstated: Unstated) -> Value {
    let own = format!("self['{role}']");
    let stated = format!("has({own}.replicas)");
    let holds = match unstated {
        Unstated::One => {
            format!("!('{role}' in self) || !{stated} || {own}.replicas == 1")
        }
        Unstated::Refused => {
            format!("!('{role}' in self) || ({stated} && {own}.replicas == 1)")
        }
    };
    json!({
        "message": format!("TY115: `replicas` of {role} must be 1"),
        "rule": holds,
    })
}

fn bounds() -> Value {
    json!({
        "message": "TY130: `minReplicas` must not be above `maxReplicas`",
        "rule": "!has(self.minReplicas) || !has(self.maxReplicas) \
                 || self.minReplicas <= self.maxReplicas",
    })
}

fn fixed_manager() -> Value {
    let value = |own: &str| {
        let policy = format!("{own}.runPolicy");
        format!("(has({policy}) && has({policy}.managedBy) ? {policy}.managedBy : '')")
    };
    json!({
        "message": "TY147: `managedBy` cannot be changed once the job is created",
        "rule": format!("{} == {}", value("self"), value("oldSelf")),
    })
}
