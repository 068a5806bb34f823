//! Rules of a user for lines that no trainer known here prints.
//!
//! They stand in the file of rules that the doctor takes: a `[[rule]]` of the stage `progress` whose pattern names what
//! it captures after the fields of a [`Reading`].

use regex::bytes::Regex;

use super::{Reading, fields};

/// Names of groups that a rule can capture.
pub(crate) const GROUPS: [&str; 10] = [
    "step",
    "last_step",
    "epoch",
    "loss",
    "grad_norm",
    "learning_rate",
    "tokens_per_second",
    "samples_per_second",
    "step_seconds",
    "step_ms",
];

/// Expressions that a user adds.
#[derive(Clone, Debug, Default)]
pub struct UserRules {
    rules: Vec<UserRule>,
}

#[derive(Clone, Debug)]
struct UserRule {
    pattern: Regex,
    unless: Option<Regex>,
}

impl UserRules {
    /// Adds one, unless it captures nothing that is known here.
    pub(crate) fn add(&mut self, pattern: &Regex, unless: Option<&Regex>) {
        let mut names = pattern.capture_names().flatten();
        if names.any(|name| GROUPS.contains(&name)) {
            self.rules.push(UserRule {
                pattern: pattern.clone(),
                unless: unless.cloned(),
            });
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What the first rule that takes `line` captures.
    pub(super) fn read(&self, line: &[u8]) -> Option<Reading> {
        self.rules.iter().find_map(|rule| rule.read(line))
    }
}

impl UserRule {
    fn read(&self, line: &[u8]) -> Option<Reading> {
        let captures = self.pattern.captures(line)?;
        if self
            .unless
            .as_ref()
            .is_some_and(|unless| unless.is_match(line))
        {
            return None;
        }
        let value = |name: &str| {
            let text = captures.name(name)?.as_bytes();
            fields::number(text)
        };
        let count = |name: &str| {
            let text = captures.name(name)?.as_bytes();
            fields::count(text)
        };
        Some(Reading {
            step: count("step"),
            last_step: count("last_step"),
            epoch: value("epoch"),
            loss: value("loss"),
            grad_norm: value("grad_norm"),
            learning_rate: value("learning_rate"),
            tokens_per_second: value("tokens_per_second"),
            samples_per_second: value("samples_per_second"),
            step_seconds: value("step_seconds")
                .or_else(|| value("step_ms").map(|millis| millis / 1000.0)),
            event: None,
        })
    }
}
