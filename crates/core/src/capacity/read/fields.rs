//! The fields of one object of the administrator's file, with a sentence for each mistake.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value};

use super::NotAnOffer;
use crate::{
    capacity::Price,
    gang::{Resources, Taint, TaintEffect},
    quantity,
    resources::CPU,
    spec,
};

/// Longest text that is read: the longest name in Kubernetes.
const MAX_TEXT: usize = 316;
/// Most entries of one map or list.
const MAX_ENTRIES: usize = 256;
/// Most characters of a wrong value that a message repeats.
const SHOWN: usize = 40;

/// One object and where it stands.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: String,
}

impl<'a> Fields<'a> {
    /// `value` at `place`, with no fields but `known`.
    pub(super) fn of(
        value: &'a Value,
        place: impl Into<String>,
        known: &[&str],
    ) -> Result<Self, NotAnOffer> {
        let place = place.into();
        let Some(map) = value.as_object() else {
            return Err(wrong(&place, format!("{} is not a map", shown(value))));
        };
        if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
            let key: String = key.chars().take(SHOWN).collect();
            let known = known.join("`, `");
            let problem = format!("unknown field `{key}`; expected one of `{known}`");
            return Err(wrong(&place, problem));
        }
        Ok(Self { map, place })
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> NotAnOffer {
        wrong(&self.place, problem)
    }

    fn bad(&self, key: &str, expected: &str) -> NotAnOffer {
        let value = self.map.get(key).map(shown).unwrap_or_default();
        self.error(format!("`{key}` is {value}; expected {expected}"))
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, NotAnOffer> {
        let Some(value) = self.map.get(key) else {
            return Ok(None);
        };
        let text = text(value).filter(|text| !text.is_empty());
        text.map(Some)
            .ok_or_else(|| self.bad(key, "a text of at most 316 characters"))
    }

    pub(super) fn whole(&self, key: &str, from: i64, to: i64) -> Result<Option<i64>, NotAnOffer> {
        let Some(value) = self.map.get(key) else {
            return Ok(None);
        };
        let number = value.as_i64().filter(|number| (from..=to).contains(number));
        let expected = || format!("a whole number from {from} to {to}");
        number.map(Some).ok_or_else(|| self.bad(key, &expected()))
    }

    pub(super) fn price(&self, key: &str) -> Result<Option<Price>, NotAnOffer> {
        let Some(value) = self.map.get(key) else {
            return Ok(None);
        };
        let expected = "a number from 0 to 1000000; leave it out where it is not known";
        let price = Price::parse(value).map(Some);
        price.ok_or_else(|| self.bad(key, expected))
    }

    pub(super) fn seconds(&self, key: &str) -> Result<Option<u64>, NotAnOffer> {
        let Some(value) = self.map.get(key) else {
            return Ok(None);
        };
        let text = value.as_str().unwrap_or_default();
        match spec::duration(text) {
            Ok(time) => Ok(Some(time.as_secs())),
            Err(_) => Err(self.bad(key, "a time such as `90s`, `10m` or `2h`")),
        }
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [Value], NotAnOffer> {
        match self.map.get(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.bad(key, "a list")),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, NotAnOffer> {
        let items = self.list(key)?;
        let texts: Option<Vec<String>> = items.iter().map(text).collect();
        texts
            .filter(|texts| texts.len() <= MAX_ENTRIES)
            .ok_or_else(|| self.bad(key, "a list of at most 256 texts"))
    }

    pub(super) fn texts_by_name(&self, key: &str) -> Result<BTreeMap<String, String>, NotAnOffer> {
        let expected = "a map of at most 256 texts";
        let Some(value) = self.map.get(key) else {
            return Ok(BTreeMap::new());
        };
        let map = value.as_object().filter(|map| map.len() <= MAX_ENTRIES);
        let entries = map.into_iter().flatten();
        let texts: Option<BTreeMap<String, String>> = entries
            .map(|(key, value)| Some((key.clone(), text(value)?)))
            .collect();
        texts
            .filter(|_| map.is_some())
            .ok_or_else(|| self.bad(key, expected))
    }

    /// Amounts by resource, in the units of [`Resources`].
    pub(super) fn amounts(&self, key: &str) -> Result<BTreeMap<String, i64>, NotAnOffer> {
        let Some(value) = self.map.get(key) else {
            return Ok(BTreeMap::new());
        };
        let map = value.as_object().filter(|map| map.len() <= MAX_ENTRIES);
        let map = map.ok_or_else(|| self.bad(key, "a map of at most 256 quantities"))?;
        let mut amounts = BTreeMap::new();
        for (name, value) in map {
            let amount = amount(name, value).ok_or_else(|| {
                let found = shown(value);
                self.error(format!(
                    "`{name}` of `{key}` is {found}; expected a quantity such as `8`, `500m` or `64Gi`"
                ))
            })?;
            amounts.insert(name.clone(), amount);
        }
        Ok(amounts)
    }

    pub(super) fn resources(&self, key: &str) -> Result<Resources, NotAnOffer> {
        Ok(self.amounts(key)?.into_iter().collect())
    }

    pub(super) fn taints(&self, key: &str) -> Result<Vec<Taint>, NotAnOffer> {
        let items = self.list(key)?;
        if items.len() > MAX_ENTRIES {
            return Err(self.error(format!("`{key}` has more than {MAX_ENTRIES} taints")));
        }
        let place = |at: usize| format!("{}, {key}[{at}]", self.place);
        let taints = items.iter().enumerate().map(|(at, item)| {
            let own = Fields::of(item, place(at), &["key", "value", "effect", "timeAdded"])?;
            let name = own.text("key")?.ok_or_else(|| own.error("has no `key`"))?;
            let effect = item.get("effect").and_then(Value::as_str);
            let expected = "`NoSchedule`, `PreferNoSchedule` or `NoExecute`";
            Ok(Taint {
                key: name,
                value: match item.get("value") {
                    None | Some(Value::Null) => String::new(),
                    Some(value) => text(value).ok_or_else(|| own.bad("value", "a text"))?,
                },
                effect: effect
                    .and_then(effect_of)
                    .ok_or_else(|| own.bad("effect", expected))?,
            })
        });
        taints.collect()
    }
}

pub(super) fn effect_of(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// A quantity, written as text or as a number.
pub(super) fn amount(name: &str, value: &Value) -> Option<i64> {
    let text = match value {
        Value::String(text) if text.len() <= MAX_TEXT => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let quantity = Quantity(text);
    let milli = quantity::milli(&quantity).filter(|milli| *milli >= 0)?;
    let amount = if name == CPU { milli } else { milli / 1000 };
    i64::try_from(amount).ok()
}

pub(super) fn wrong(place: &str, problem: impl Into<String>) -> NotAnOffer {
    NotAnOffer::Field {
        place: place.to_owned(),
        problem: problem.into(),
    }
}

/// Labels are texts, but people write `true` and `1` without quotes.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (text.len() <= MAX_TEXT).then_some(text)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "empty or not a number".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        value => {
            let text = match value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            let shown: String = text.chars().take(SHOWN).collect();
            format!("`{shown}`")
        }
    }
}
