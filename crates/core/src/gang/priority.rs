//! Priority classes, and how far preemption may reach.
//!
//! Owns what a class is worth. Which priority a gang has is not read from here: that is the number its pods were
//! admitted with. A class of a template is a wish of its author, so it may lower what a gang asks with before its pods
//! exist, and never raise it.

use std::{collections::BTreeMap, fmt};

/// Which gangs a gang of higher priority may evict, whatever its job asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionScope {
    /// No gang is evicted.
    Off,
    /// Only gangs of the same namespace.
    #[default]
    Namespace,
    /// Gangs of any namespace.
    Cluster,
}

impl fmt::Display for PreemptionScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Namespace => "namespace",
            Self::Cluster => "cluster",
        })
    }
}

/// One `PriorityClass` of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityClass {
    /// Its value.
    pub value: i32,
    /// Whether pods that name no class get this one.
    pub is_default: bool,
    /// Whether its `preemptionPolicy` is `Never`.
    pub never_preempts: bool,
}

/// The priority classes of the cluster, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClasses(BTreeMap<String, PriorityClass>);

impl PriorityClasses {
    /// Adds a class, or replaces the one of its name; whether that changes anything.
    pub fn insert(&mut self, name: &str, class: PriorityClass) -> bool {
        self.0.insert(name.to_owned(), class) != Some(class)
    }

    /// Removes a class; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// The class of that name; the default one for pods that name none.
    pub fn get(&self, name: &str) -> Option<&PriorityClass> {
        if name.is_empty() {
            let defaults = self.0.values().filter(|class| class.is_default);
            // Of several defaults the API server takes the lowest.
            return defaults.min_by_key(|class| class.value);
        }
        self.0.get(name)
    }

    /// The priority of a pod that names no class.
    pub fn default_value(&self) -> i32 {
        self.get("").map_or(0, |class| class.value)
    }

    /// The lowest value among classes of these names. An unknown class counts as 0.
    pub fn lowest<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> i32 {
        let values = names
            .into_iter()
            .map(|name| self.get(name).map_or(0, |class| class.value));
        values.min().unwrap_or_else(|| self.default_value())
    }

    /// The first of `names` that the cluster has no class of.
    pub fn unknown<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Option<&'a str> {
        let mut names = names.into_iter().map(String::as_str);
        names.find(|name| !name.is_empty() && !self.0.contains_key(*name))
    }

    /// Whether one of `names` is a class that never preempts.
    pub fn forbid_preemption<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> bool {
        names
            .into_iter()
            .any(|name| self.get(name).is_some_and(|class| class.never_preempts))
    }
}

impl FromIterator<(String, PriorityClass)> for PriorityClasses {
    fn from_iter<I: IntoIterator<Item = (String, PriorityClass)>>(classes: I) -> Self {
        Self(classes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(value: i32) -> PriorityClass {
        PriorityClass {
            value,
            is_default: false,
            never_preempts: false,
        }
    }

    fn classes() -> PriorityClasses {
        let default = |value| PriorityClass {
            is_default: true,
            ..class(value)
        };
        let never = PriorityClass {
            never_preempts: true,
            ..class(500)
        };
        [
            ("gold", class(1_000)),
            ("low", class(-10)),
            ("normal", default(100)),
            ("other-default", default(200)),
            ("patient", never),
        ]
        .into_iter()
        .map(|(name, class)| (name.to_owned(), class))
        .collect()
    }

    #[test]
    fn lowest_class_of_the_roles_counts() {
        let cases: &[(&str, &[&str], i32)] = &[
            ("one class", &["gold"], 1_000),
            ("two roles", &["gold", "low"], -10),
            ("the default of the cluster", &[""], 100),
            ("a role without a class", &["", "gold"], 100),
            ("an unknown class is 0", &["gild"], 0),
            ("no role", &[], 100),
        ];
        for (name, names, want) in cases {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(classes().lowest(&names), *want, "{name}");
        }
        assert_eq!(PriorityClasses::default().lowest(&[String::new()]), 0);
    }

    #[test]
    fn classes_come_and_go() {
        let mut classes = classes();
        assert!(!classes.insert("gold", class(1_000)), "as before");
        assert!(classes.insert("gold", class(2_000)));
        let gold = [String::new(), "gold".to_owned()];
        assert_eq!(classes.unknown(&gold), None);
        assert!(classes.remove("gold"));
        assert_eq!(classes.unknown(&gold), Some("gold"));
        assert!(classes.remove("normal"));
        assert_eq!(
            classes.default_value(),
            200,
            "the other default takes its place"
        );
        assert!(classes.forbid_preemption(&["patient".to_owned()]));
        assert!(!classes.forbid_preemption(&["low".to_owned()]));
    }
}
