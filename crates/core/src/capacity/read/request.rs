//! What a `ProvisioningRequest` reports: whether an autoscaler was asked for capacity, and what it said.

use serde_json::Value;

/// Longest message that is repeated.
const SHOWN: usize = 200;

/// The conditions, with the strongest first: what ended comes before what goes on.
const CONDITIONS: [(&str, &str); 5] = [
    ("CapacityRevoked", "its capacity was revoked"),
    ("Failed", "it failed"),
    ("BookingExpired", "its booking expired"),
    (
        "Provisioned",
        "its nodes were asked for; they need not be ready",
    ),
    ("Accepted", "the autoscaler has accepted it"),
];

/// One sentence about the state of `value`; none where it has no name.
pub(super) fn note(value: &Value) -> Option<String> {
    let text = |key: &str| value.pointer(key).and_then(Value::as_str);
    let name = text("/metadata/name")?;
    let namespace = text("/metadata/namespace").unwrap_or("default");
    let conditions = value
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let find = |kind: &str, status: &str| {
        conditions.into_iter().flatten().find(|own| {
            own.get("type").and_then(Value::as_str) == Some(kind)
                && own.get("status").and_then(Value::as_str) == Some(status)
        })
    };
    let held = CONDITIONS
        .iter()
        .find_map(|(kind, words)| Some((*words, find(kind, "True")?)));
    let refused = find("Provisioned", "False").map(|own| ("no capacity was found yet", own));
    let (words, condition) = match (held, refused) {
        // Accepted goes on being true.
        (Some((_, own)), Some(refused))
            if own.get("type").and_then(Value::as_str) == Some("Accepted") =>
        {
            refused
        }
        (Some(held), _) => held,
        (None, Some(refused)) => refused,
        (None, None) => {
            return Some(format!(
                "ProvisioningRequest `{namespace}/{name}`: no autoscaler has accepted it"
            ));
        }
    };
    let said = ["reason", "message"].into_iter().filter_map(|key| {
        let text = condition.get(key)?.as_str()?.trim();
        (!text.is_empty()).then(|| text.chars().take(SHOWN).collect::<String>())
    });
    let said: Vec<String> = said.collect();
    let said = match said.as_slice() {
        [] => String::new(),
        parts => format!(" ({})", parts.join(": ")),
    };
    Some(format!(
        "ProvisioningRequest `{namespace}/{name}`: {words}{said}"
    ))
}
