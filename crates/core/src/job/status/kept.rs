//! What a stored status holds beyond what this version understands.
//!
//! Writing is a merge of three values: the status as it was stored, what was understood of it, and what was
//! decided. Where the last two agree, what was stored stays as it was; where they differ, the decision is written;
//! what was never understood stays.
//!
//! Invariant: without a decision, what is written equals what was stored.

use serde_json::{Map, Value};

use super::read::own_type;

/// Objects about one moment. A new moment does not inherit what another version said of the old one.
const REPLACED_WHOLE: &[&str] = &[
    "waiting",
    "lastFailure",
    "open",
    "fabric",
    "progress",
    "checkpoint",
    "barrier",
    "hold",
    "lastRestart",
];

/// Maps that are left out when they are empty. Any other object means something by being there.
const LEFT_OUT_EMPTY: &[&str] = &["replicaStatuses", "replicas", "succeeded", "earlier"];

/// What a stored status holds beyond what this version understands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept(Option<Box<Origin>>);

#[derive(Clone, Debug, PartialEq)]
struct Origin {
    stored: Value,
    understood: Value,
}

impl Kept {
    /// Nothing where all of `stored` was understood.
    pub(super) fn of(stored: &Value, understood: Value) -> Self {
        if *stored == understood {
            return Self::default();
        }
        let stored = stored.clone();
        Self(Some(Box::new(Origin { stored, understood })))
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// `decided` with what is kept; nothing where nothing is.
    pub(super) fn beside(&self, decided: impl FnOnce() -> Value) -> Option<Value> {
        let origin = self.0.as_deref()?;
        let decided = decided();
        Some(merge(&origin.stored, &origin.understood, &decided))
    }
}

fn merge(stored: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return stored.clone();
    }
    match (stored, before, after) {
        (Value::Object(stored), Value::Object(before), Value::Object(after)) => {
            Value::Object(merge_fields(stored, before, after))
        }
        _ => after.clone(),
    }
}

fn merge_fields(
    stored: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = Map::new();
    for (key, value) in stored {
        let value = match (before.get(key), after.get(key)) {
            (None, None) => value.clone(),
            (Some(before), None) => match left_over(key, value, before) {
                Some(rest) => rest,
                None => continue,
            },
            (None, Some(after)) => after.clone(),
            (Some(before), Some(after)) if before == after => value.clone(),
            (Some(_), Some(after)) if REPLACED_WHOLE.contains(&key.as_str()) => after.clone(),
            (Some(before), Some(after)) => match (key.as_str(), value, before, after) {
                ("conditions", Value::Array(stored), Value::Array(before), Value::Array(after)) => {
                    Value::Array(merge_conditions(stored, before, after))
                }
                ("attempts", Value::Array(stored), Value::Array(before), Value::Array(after)) => {
                    Value::Array(merge_attempts(stored, before, after))
                }
                ("timeline", Value::Array(stored), Value::Array(before), Value::Array(after)) => {
                    Value::Array(merge_timeline(stored, before, after))
                }
                ("millis" | "earlier", ..) => merge_millis(value, before, after),
                _ => merge(value, before, after),
            },
        };
        merged.insert(key.clone(), value);
    }
    for (key, after) in after {
        if !stored.contains_key(key) && before.get(key) != Some(after) {
            merged.insert(key.clone(), after.clone());
        }
    }
    merged
}

/// What stays of a map that the decision empties: what was never understood of it.
fn left_over(key: &str, stored: &Value, before: &Value) -> Option<Value> {
    let (Value::Object(stored), Value::Object(before)) = (stored, before) else {
        return None;
    };
    if !LEFT_OUT_EMPTY.contains(&key) {
        return None;
    }
    let rest = merge_fields(stored, before, &Map::new());
    (!rest.is_empty()).then_some(Value::Object(rest))
}

/// Milliseconds by phase as decided. Phases of another version stay under their names, so of the time that is
/// counted under `other` only what the decision added is written there.
fn merge_millis(stored: &Value, before: &Value, after: &Value) -> Value {
    let other = |phases: &Value| phases.get("other").and_then(Value::as_u64).unwrap_or(0);
    let more = other(after).saturating_sub(other(before));
    let mut merged = merge(stored, before, after);
    if more > 0
        && let Some(phases) = merged.as_object_mut()
    {
        phases.insert("other".to_owned(), (other(stored) + more).into());
    }
    // What an earlier version stored as `hanging` is part of what is decided under the new name.
    if before.get("stalled") != after.get("stalled")
        && let Some(phases) = merged.as_object_mut()
    {
        phases.remove("hanging");
    }
    merged
}

/// Spans as decided; as far as the decision left them in place, as they were stored.
fn merge_timeline(stored: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let pairs = before.iter().zip(after);
    let in_place = pairs.take_while(|(before, after)| before == after).count();
    let in_place = if stored.len() == before.len() {
        in_place
    } else {
        0
    };
    let (kept, _) = stored.split_at(in_place);
    kept.iter()
        .chain(after.iter().skip(in_place))
        .cloned()
        .collect()
}

/// Conditions of ours as decided, those of others where they were: behind the same conditions of ours, as far as the
/// decision has left those in place, so that what is added comes last.
fn merge_conditions(stored: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let pairs = before.iter().zip(after);
    let in_place = pairs
        .take_while(|(before, after)| before.get("type") == after.get("type"))
        .count();
    let mut merged = Vec::new();
    let mut ours = 0;
    let mut next = 0;
    for condition in stored {
        if own_type(condition).is_some() {
            ours += 1;
            continue;
        }
        while next < ours.min(in_place) {
            merged.push(&after[next]);
            next += 1;
        }
        merged.push(condition);
    }
    merged.extend(&after[next..]);
    let known: Vec<&Value> = stored
        .iter()
        .filter(|condition| own_type(condition).is_some())
        .collect();
    let whole = |condition: &Value| {
        let kind = condition.get("type");
        let at = before.iter().position(|it| it.get("type") == kind);
        match at.and_then(|at| Some((known.get(at)?, &before[at]))) {
            Some((stored, before)) if own_type(condition).is_some() => {
                merge(stored, before, condition)
            }
            _ => condition.clone(),
        }
    };
    merged.into_iter().map(whole).collect()
}

/// The spans of attempts as decided, each with what was kept of the same attempt.
fn merge_attempts(stored: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let number = |spans: &Value| spans.get("attempt").cloned();
    let whole = |spans: &Value| {
        let at = before.iter().position(|it| number(it) == number(spans));
        match at.and_then(|at| Some((stored.get(at)?, &before[at]))) {
            Some((stored, before)) => merge(stored, before, spans),
            None => spans.clone(),
        }
    };
    after.iter().map(whole).collect()
}
