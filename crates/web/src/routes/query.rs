//! A query, taken apart strictly.

use std::{collections::BTreeMap, str::FromStr};

use super::{bad_request, nearest::nearest};
use crate::Problem;

/// Characters of a value that a message repeats, at most.
const SHOWN: usize = 64;
/// The longest name of a job, pod or run: as Kubernetes has it, and a run's may hold the job's.
const MAX_NAME: usize = 320;
/// The last moment that a number in a page holds exactly.
const MAX_TIME: i64 = 1 << 53;

/// The keys of a query with their values. A key without a value is as good as none.
#[derive(Debug)]
pub(super) struct Query {
    values: BTreeMap<String, String>,
}

impl Query {
    /// Takes a query apart that may have only `known` keys, each at most once.
    pub(super) fn parse(text: &str, path: &str, known: &[&'static str]) -> Result<Self, Problem> {
        let mut values = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decode(key, true)?, decode(value, true)?);
            if !known.contains(&key.as_str()) {
                return Err(unknown_key(&key, path, known));
            }
            if values.insert(key.clone(), value).is_some() {
                return Err(bad_request(
                    format!("query key `{key}` of `{path}` is there more than once"),
                    "send each key once",
                ));
            }
        }
        values.retain(|_, value| !value.is_empty());
        Ok(Self { values })
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// A number.
    pub(super) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.map(Some).ok_or_else(|| {
            bad_request(
                format!("query key `{key}` is {}, not a whole number", quoted(text)),
                "use digits only",
            )
        })
    }

    /// A number from 1 on; one that is larger than `most` is `most`.
    pub(super) fn count(&self, key: &str, most: u32) -> Result<Option<u32>, Problem> {
        match self.number::<u64>(key)? {
            Some(0) => Err(bad_request(
                format!("query key `{key}` is 0, and at least 1 is needed"),
                format!("use a number from 1 to {most}"),
            )),
            found => Ok(found.map(|found| u32::try_from(found).unwrap_or(most).min(most))),
        }
    }

    /// The window from `from` to `to`.
    pub(super) fn times(&self) -> Result<(Option<i64>, Option<i64>), Problem> {
        let time = |key| {
            let time = self.number::<i64>(key)?;
            Ok(time.map(|time| time.min(MAX_TIME)))
        };
        let (from, to) = (time("from")?, time("to")?);
        match (from, to) {
            (Some(from), Some(to)) if from >= to => Err(bad_request(
                format!("`from` is {from} and `to` is {to}, so the window is empty"),
                "use a `to` after `from`, both in Unix milliseconds",
            )),
            times => Ok(times),
        }
    }

    /// One of the known values.
    pub(super) fn one_of(&self, key: &str, known: &[&str]) -> Result<Option<String>, Problem> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        Self::check_known(key, value, known)?;
        Ok(Some(value.to_owned()))
    }

    pub(super) fn check_known(key: &str, value: &str, known: &[&str]) -> Result<(), Problem> {
        if known.contains(&value) {
            return Ok(());
        }
        let best = nearest(value, known);
        Err(bad_request(
            format!(
                "unknown value {} of query key `{key}`; the nearest known one is `{best}`",
                quoted(value)
            ),
            format!("use one of {}", known.join(", ")),
        ))
    }

    pub(super) fn check_only_one(&self, one: &str, other: &str) -> Result<(), Problem> {
        if self.get(one).is_none() || self.get(other).is_none() {
            return Ok(());
        }
        Err(bad_request(
            format!("both `{one}` and `{other}` were given, and each names the place by itself"),
            format!("leave out `{one}` or `{other}`"),
        ))
    }

    /// A text to look for.
    pub(super) fn text(&self, key: &str, most: usize) -> Result<Option<String>, Problem> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        if text.len() > most {
            return Err(bad_request(
                format!(
                    "query key `{key}` has {} bytes, and {most} are the maximum",
                    text.len()
                ),
                "use a shorter text",
            ));
        }
        if text
            .chars()
            .any(|found| found.is_control() && found != '\t')
        {
            return Err(bad_request(
                format!("query key `{key}` contains a control character"),
                "use text of one line",
            ));
        }
        Ok(Some(text.to_owned()))
    }

    /// A name.
    pub(super) fn name(&self, key: &str) -> Result<Option<String>, Problem> {
        self.get(key)
            .map(|name| checked_name(key, name))
            .transpose()
    }

    /// Names with commas between them.
    pub(super) fn names(&self, key: &str, most: usize) -> Result<Vec<String>, Problem> {
        let Some(text) = self.get(key) else {
            return Ok(Vec::new());
        };
        let count = text.split(',').count();
        if count > most {
            return Err(bad_request(
                format!("query key `{key}` has {count} names, and {most} are the maximum"),
                "ask for fewer at once",
            ));
        }
        let names = text.split(',').map(|name| checked_name(key, name));
        names.collect()
    }
}

fn unknown_key(key: &str, path: &str, known: &[&'static str]) -> Problem {
    let (best, key) = (nearest(key, known), quoted(key));
    if known.is_empty() {
        return bad_request(
            format!("unknown query key {key}: `{path}` takes none"),
            "leave out the query",
        );
    }
    bad_request(
        format!("unknown query key {key} of `{path}`; the nearest known one is `{best}`"),
        format!("use some of {}", known.join(", ")),
    )
}

/// A name that is safe as a part of a path: letters, digits and `._-~:@`, and no dot in front.
pub(super) fn checked_name(what: &str, name: &str) -> Result<String, Problem> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-~:@".contains(&byte);
    let safe = name.bytes().all(plain) && !name.starts_with('.');
    if safe && !name.is_empty() && name.len() <= MAX_NAME {
        return Ok(name.to_owned());
    }
    Err(bad_request(
        format!("{} cannot be the name of a {what}", quoted(name)),
        format!("use at most {MAX_NAME} letters, digits and `._-~:@`, without a dot in front"),
    ))
}

/// A value as messages repeat it: its first characters, without any that are not visible.
pub(super) fn quoted(value: &str) -> String {
    let visible = value.chars().map(|found| match found {
        ' '..='~' if found != '`' => found,
        _ => '?',
    });
    let shown: String = visible.take(SHOWN).collect();
    let cut = if value.chars().count() > SHOWN {
        "…"
    } else {
        ""
    };
    format!("`{shown}{cut}`")
}

/// Undoes the escapes of a URL; `+` is a space in queries.
pub(super) fn decode(text: &str, plus_is_space: bool) -> Result<String, Problem> {
    let wrong = || {
        bad_request(
            format!(
                "{} contains an escape that is not UTF-8 as `%` and two hex digits",
                quoted(text)
            ),
            "escape the URL as `encodeURIComponent` does",
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let value = digit().and_then(|high| Some(high * 16 + digit()?));
                value
                    .and_then(|value| u8::try_from(value).ok())
                    .ok_or_else(wrong)?
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}
