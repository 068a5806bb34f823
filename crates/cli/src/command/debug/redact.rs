//! What must not leave the machine: values of variables, and secrets wherever they appear.
//!
//! Two rules. The value of a variable is never shown unless its name is on a list of harmless ones. A value that belongs to a
//! name that speaks of a secret is replaced in every text, logs included, and so is what has the form of a well-known key.
//!
//! A text is redacted before it is cut: a secret of which a part is missing is not recognized.
//!
//! Invariant: whatever a text was written for, redacting all of them takes no longer than [`LATE_MAX`] times [`WITHIN`] more than it should.
//!
//! Caveat: a secret that no name and no form gives away cannot be recognized in a log.

use std::{collections::BTreeMap, sync::mpsc, thread, time::Duration};

use regex::{Captures, Regex};
use serde_json::Value;

/// What stands in the place of a value.
const REDACTED: &str = "[redacted]";
/// Shorter values are words that appear in every log.
const SHORTEST: usize = 6;
/// Most different secrets that are searched for.
const MOST_SECRETS: usize = 1_000;
/// Longest value of a harmless variable.
const VALUE_CHARS: usize = 256;

/// Beginnings of harmless names.
const HARMLESS_PREFIXES: [&str; 9] = [
    "CUDA_",
    "GLOO_",
    "NCCL_",
    "OMP_",
    "PET_",
    "PYTORCH_",
    "TORCHELASTIC_",
    "TORCH_",
    "TRAINYARD_",
];
/// Other harmless names.
const HARMLESS: [&str; 14] = [
    "GROUP_RANK",
    "HOSTNAME",
    "JAX_PLATFORMS",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MKL_NUM_THREADS",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTHONFAULTHANDLER",
    "PYTHONUNBUFFERED",
    "RANK",
    "TF_NUM_INTRAOP_THREADS",
    "WORLD_SIZE",
];
/// What names of secrets contain.
const SECRET_WORDS: [&str; 13] = [
    "ACCESSKEY",
    "APIKEY",
    "AUTH",
    "BEARER",
    "COOKIE",
    "CREDENTIAL",
    "LICENSE",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PRIVATEKEY",
    "SECRET",
    "TOKEN",
];

/// Words that contain one of a secret and are none: `TOKENIZERS_PARALLELISM`, counts of tokens, who wrote something.
const OTHER_WORDS: [&str; 4] = ["TOKENIZER", "TOKENS", "AUTHORITY", "AUTHORITIES"];

/// Whether a variable of that name may hold a secret.
fn is_secret(name: &str) -> bool {
    let letters: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_uppercase())
        .collect();
    let mut rest = letters;
    for word in OTHER_WORDS {
        rest = rest.replace(word, " ");
    }
    // Only in a word such as `AUTHORIZATION`.
    let rest = rest.replace("AUTHORI", "AUTH").replace("AUTHOR", " ");
    is_key(name) || SECRET_WORDS.iter().any(|word| rest.contains(word))
}

/// Whether the last word of a name is `key`, as in `WANDB_KEY` and `sshKey`. `key` alone is a field of many objects, as `topologyKey` is.
fn is_key(name: &str) -> bool {
    let Some(at) = name.len().checked_sub("key".len()) else {
        return false;
    };
    let Some((before, last)) = name.split_at_checked(at) else {
        return false;
    };
    let begins_word = match before.chars().next_back() {
        None => last == "KEY",
        Some(before) if before.is_ascii_alphabetic() => {
            last == "Key" && before.is_ascii_lowercase()
        }
        Some(_) => last.eq_ignore_ascii_case("key"),
    };
    begins_word && name != "topologyKey"
}

/// Whether the value of a variable may be shown.
fn is_harmless(name: &str) -> bool {
    let known = HARMLESS.contains(&name)
        || HARMLESS_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
    known && !is_secret(name)
}

/// A text that is longer is redacted on a thread of its own.
const LONG: usize = 16 << 10;
/// How long that may take. A text that was written for it takes the square of its length.
const WITHIN: Duration = Duration::from_secs(10);
/// After so many long texts that took longer none is redacted any more: all are left out.
const LATE_MAX: u32 = 3;

/// Replaces secrets.
#[derive(Clone, Debug)]
pub(super) struct Redactor {
    /// By value: the name it belongs to.
    secrets: BTreeMap<String, String>,
    /// `name=value`, `--name value`, `"name": "value"` of names that may speak of a secret: name, what is between, value.
    assigned: Regex,
    /// Headers of HTTP whose whole value is a secret.
    headers: Regex,
    /// The forms of well-known keys.
    forms: Regex,
    /// How many times something was replaced.
    pub(super) count: u64,
    within: Duration,
    /// Long texts that took longer.
    late: u32,
}

impl Redactor {
    pub(super) fn new() -> Self {
        let words = "auth|bearer|cookie|credential|key|pass(?:phrase|wd|word)|secret|token";
        let name = format!(r"[a-z0-9_.-]*(?:{words})[a-z0-9_.-]*");
        let value = format!(r#"(?:(?:basic|bearer|token)\s+)?[^\s"',;&|]{{{SHORTEST},}}"#);
        let assigned = format!(
            r#"(?i)({name})(["']?\s*[=:]\s*["']?)({value})|(?:^|[\s"'(\[])(--?{name})(["']?\s+["']?)({value})"#
        );
        let headers = r#"(?i)((?:authorization["']?\s*[=:]|cookie["']?\s*:)[ \t]*["']?)([^"'\r\n]+)|(\bbearer\s+)([a-z0-9._~+/=-]{16,})"#;
        // Of a private key whose end or beginning is missing, the lines that look like its own.
        let key = r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?s:.*?)-----END [A-Z ]*PRIVATE KEY-----|(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*)";
        let key_end = r"(?:[A-Za-z0-9+/=]{16,}(?:\s|\\[nr])+)*(?:[A-Za-z0-9+/=]+(?:\s|\\[nr])+)?-----END [A-Z ]*PRIVATE KEY-----";
        let known = r"hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}|://[^\s/:@]+:[^\s/@]+@";
        let forms = format!("{key}|{key_end}|{known}");
        Self {
            secrets: BTreeMap::new(),
            assigned: Regex::new(&assigned).expect("the expression is constant"),
            headers: Regex::new(headers).expect("the expression is constant"),
            forms: Regex::new(&forms).expect("the expression is constant"),
            count: 0,
            within: WITHIN,
            late: 0,
        }
    }

    /// Takes note of a variable, so that its value is replaced wherever it appears.
    pub(super) fn learn(&mut self, name: &str, value: &str) {
        if is_secret(name) && value.len() >= SHORTEST && self.secrets.len() < MOST_SECRETS {
            self.secrets.insert(value.to_owned(), name.to_owned());
        }
    }

    /// Takes note of every variable of containers in a job.
    pub(super) fn learn_job(&mut self, job: &Value) {
        for (name, value) in variables(job) {
            self.learn(name, value.unwrap_or_default());
        }
    }

    /// The value of a variable as it may be shown; none where it may not.
    pub(super) fn value(&mut self, name: &str, value: &str) -> Option<String> {
        if !is_harmless(name) {
            return None;
        }
        Some(self.text(value).chars().take(VALUE_CHARS).collect())
    }

    /// A text without secrets. One that takes too long is left out: nobody knows what is in it.
    pub(super) fn text(&mut self, text: &str) -> String {
        if text.len() <= LONG {
            return self.redacted(text);
        }
        self.redacted_in_time(text).unwrap_or_else(|| {
            format!(
                "[left out: {} bytes that take too long to redact]",
                text.len()
            )
        })
    }

    fn redacted_in_time(&mut self, text: &str) -> Option<String> {
        if self.late >= LATE_MAX {
            return None;
        }
        let (send, receive) = mpsc::channel();
        let mut own = self.clone();
        own.count = 0;
        let text = text.to_owned();
        // One that is late works on until this program ends: an expression cannot be stopped.
        let thread = thread::Builder::new().spawn(move || {
            let shown = own.redacted(&text);
            send.send((shown, own.count)).ok();
        });
        let done = thread.ok().map(|_| receive.recv_timeout(self.within));
        let Some(Ok((shown, count))) = done else {
            self.late += 1;
            return None;
        };
        self.count += count;
        Some(shown)
    }

    fn redacted(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        // Longer ones first: one may contain another.
        let mut known: Vec<(&String, &String)> = self.secrets.iter().collect();
        known.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        for (value, name) in known {
            if text.contains(value.as_str()) {
                self.count += text.matches(value.as_str()).count() as u64;
                text = text.replace(value.as_str(), &format!("[redacted {name}]"));
            }
        }
        let mut count = 0;
        // Before names: the lines of a key would look like values.
        let text = self.forms.replace_all(&text, |_: &Captures<'_>| {
            count += 1;
            REDACTED
        });
        let text = self.headers.replace_all(&text, |found: &Captures<'_>| {
            let (first, value) = match (found.get(1), found.get(3)) {
                (Some(name), _) => (name, found.get(2)),
                (None, Some(word)) => (word, found.get(4)),
                (None, None) => return String::new(),
            };
            let value = value.map_or("", |value| value.as_str());
            if value.starts_with(REDACTED_START) {
                return format!("{}{value}", first.as_str());
            }
            count += 1;
            format!("{}{REDACTED}", first.as_str())
        });
        self.count += count;
        self.without_assigned(&text)
    }

    /// Replaces values of names that speak of a secret. What follows a name that does not is looked at for itself: it may be such a name.
    fn without_assigned(&mut self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let (mut copied, mut at) = (0, 0);
        while let Some(found) = self.assigned.captures_at(text, at) {
            let (name, value) = match (found.get(1), found.get(4)) {
                (Some(name), _) => (name, found.get(3)),
                (None, Some(flag)) => (flag, found.get(6)),
                (None, None) => break,
            };
            let Some(value) = value else { break };
            if !is_secret(name.as_str()) || value.as_str().starts_with(REDACTED_START) {
                at = name.end();
                continue;
            }
            shown.push_str(text.get(copied..value.start()).unwrap_or_default());
            shown.push_str(REDACTED);
            self.count += 1;
            (copied, at) = (value.end(), value.end());
        }
        shown.push_str(text.get(copied..).unwrap_or_default());
        shown
    }

    /// A document in which every value of a variable is left out that may not be shown, and no text holds a secret.
    pub(super) fn document(&mut self, document: &Value) -> Value {
        match document {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(|item| self.document(item)).collect();
                self.flags(&mut items);
                Value::Array(items)
            }
            Value::Object(fields) => {
                let is_secret_object = fields.get("kind").is_some_and(|kind| kind == "Secret");
                let fields = fields.iter().map(|(key, value)| {
                    let value = match (key.as_str(), value) {
                        ("env", Value::Array(variables)) => {
                            Value::Array(variables.iter().map(|it| self.variable(it)).collect())
                        }
                        // It repeats the whole object, with all values.
                        ("kubectl.kubernetes.io/last-applied-configuration", _) => self.hidden(),
                        ("data" | "stringData", _) if is_secret_object => self.hidden(),
                        // The name of a Secret is none.
                        (key, Value::String(_)) if is_secret(key) && !key.ends_with("Name") => {
                            self.hidden()
                        }
                        (_, value) => self.document(value),
                    };
                    (key.clone(), value)
                });
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }

    fn hidden(&mut self) -> Value {
        self.count += 1;
        Value::String(REDACTED.to_owned())
    }

    /// One entry of `env`.
    fn variable(&mut self, variable: &Value) -> Value {
        let mut shown = variable.clone();
        let name = variable.get("name").and_then(Value::as_str);
        let Some(Value::String(value)) = shown.get_mut("value") else {
            return self.without_text(shown);
        };
        let harmless = self.value(name.unwrap_or_default(), value);
        self.count += u64::from(harmless.is_none());
        *value = harmless.unwrap_or_else(|| REDACTED.to_owned());
        shown
    }

    /// A variable that names its source: the names are shown.
    fn without_text(&mut self, mut shown: Value) -> Value {
        if let Some(value) = shown.get_mut("value") {
            *value = self.hidden();
        }
        shown
    }

    /// The word after a flag such as `--api-key`.
    fn flags(&mut self, words: &mut [Value]) {
        let mut hide = false;
        for word in words {
            let Value::String(text) = word else {
                hide = false;
                continue;
            };
            let is_flag = text.starts_with('-') && !text.contains(['=', ' ']);
            if hide && !is_flag {
                REDACTED.clone_into(text);
                self.count += 1;
            }
            hide = is_flag && is_secret(text);
        }
    }
}

/// How a value begins that was replaced.
const REDACTED_START: &str = "[redacted";

/// The variables of all containers in a document: name, and value where it is stated.
pub(super) fn variables(document: &Value) -> Vec<(&str, Option<&str>)> {
    let mut found = Vec::new();
    let mut next = vec![document];
    while let Some(value) = next.pop() {
        match value {
            Value::Array(items) => next.extend(items),
            Value::Object(fields) => {
                if let Some(Value::Array(variables)) = fields.get("env") {
                    found.extend(variables.iter().filter_map(|variable| {
                        let name = variable.get("name")?.as_str()?;
                        Some((name, variable.get("value").and_then(Value::as_str)))
                    }));
                }
                next.extend(fields.values());
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests;
