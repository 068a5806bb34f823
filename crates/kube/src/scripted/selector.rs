//! Which objects a selector means.

use serde_json::Value;

/// A label or field selector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector(Vec<Need>);

#[derive(Clone, Debug)]
enum Need {
    Is(String, Vec<String>),
    IsNot(String, Vec<String>),
    Has(String),
    HasNot(String),
}

impl Selector {
    /// The selector that `text` states.
    pub(crate) fn of(text: &str) -> Self {
        let mut needs = Vec::new();
        let (mut depth, mut word) = (0, String::new());
        for letter in text.chars().chain([',']) {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    let text = std::mem::take(&mut word);
                    if !text.trim().is_empty() {
                        needs.push(Need::of(text.trim()));
                    }
                    continue;
                }
                _ => {}
            }
            word.push(letter);
        }
        Self(needs)
    }

    /// Whether it selects what has these values.
    pub(crate) fn selects(&self, value: &dyn Fn(&str) -> Option<String>) -> bool {
        self.0.iter().all(|need| match need {
            Need::Is(key, any) => value(key).is_some_and(|found| any.contains(&found)),
            Need::IsNot(key, none) => value(key).is_none_or(|found| !none.contains(&found)),
            Need::Has(key) => value(key).is_some(),
            Need::HasNot(key) => value(key).is_none(),
        })
    }
}

impl Need {
    fn of(text: &str) -> Self {
        let set = |text: &str| -> Vec<String> {
            let inner = text.trim().trim_matches(|c| c == '(' || c == ')');
            inner.split(',').map(|one| one.trim().to_owned()).collect()
        };
        let one = |text: &str| vec![text.trim().to_owned()];
        if let Some((key, values)) = text.split_once(" notin ") {
            Self::IsNot(key.trim().to_owned(), set(values))
        } else if let Some((key, values)) = text.split_once(" in ") {
            Self::Is(key.trim().to_owned(), set(values))
        } else if let Some((key, value)) = text.split_once("!=") {
            Self::IsNot(key.trim().to_owned(), one(value))
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            Self::Is(key.trim().to_owned(), one(value))
        } else if let Some(key) = text.strip_prefix('!') {
            Self::HasNot(key.trim().to_owned())
        } else {
            Self::Has(text.to_owned())
        }
    }
}

/// The value of a label of `object`.
pub(crate) fn label(object: &Value, key: &str) -> Option<String> {
    let value = object.get("metadata")?.get("labels")?.get(key)?;
    value.as_str().map(str::to_owned)
}

/// The value of a field of `object`, empty where it has none.
pub(crate) fn field(object: &Value, path: &str) -> String {
    let mut at = object;
    for part in path.split('.') {
        let Some(next) = at.get(part) else {
            return String::new();
        };
        at = next;
    }
    at.as_str().map_or_else(|| at.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_selectors_mean() {
        let object =
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "n"}});
        let labels = [
            ("", true),
            ("a", true),
            ("c", false),
            ("!c,a=1", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1,3),b notin (3)", true),
            ("a in (2)", false),
        ];
        for (text, want) in labels {
            let found = Selector::of(text).selects(&|key| label(&object, key));
            assert_eq!(found, want, "{text}");
        }
        let fields = [
            ("spec.nodeName!=", true),
            ("status.phase!=Failed,spec.nodeName=n", true),
            ("status.phase=Failed", false),
        ];
        for (text, want) in fields {
            let found = Selector::of(text).selects(&|key| Some(field(&object, key)));
            assert_eq!(found, want, "{text}");
        }
    }
}
