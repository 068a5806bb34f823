//! The language of template texts: YAML with placeholders, sections and parts.
//!
//! | line | meaning |
//! |---|---|
//! | `… ${key} …` | the value of `key` |
//! | `… ${key*} …` | the line once for each of the values of `key` |
//! | `%if a !b` … `%else` … `%end` | what is between, where the flag `a` is set and `b` is not |
//! | `%include part` | the lines of the part, indented as this line |
//!
//! Owns only how a text is put together. Values come quoted: whoever sets one has made sure that it stays a
//! single word of YAML.
//!
//! Invariant: nothing of the language is left over; a key or a part that does not exist is an error.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

/// Parts may include parts, this deep.
const MAX_DEPTH: usize = 8;

/// What a text is filled with.
#[derive(Debug, Default)]
pub(super) struct Values {
    words: BTreeMap<&'static str, Vec<String>>,
    flags: BTreeSet<&'static str>,
}

impl Values {
    /// Sets `key` to one value.
    pub(super) fn set(&mut self, key: &'static str, value: &impl ToString) {
        self.words.insert(key, vec![value.to_string()]);
    }

    /// Sets `key` to a list, which only a repeated line can show.
    pub(super) fn set_list(&mut self, key: &'static str, values: Vec<String>) {
        self.words.insert(key, values);
    }

    /// Sets the flag `name` where `on`.
    pub(super) fn flag(&mut self, name: &'static str, on: bool) {
        if on {
            self.flags.insert(name);
        }
    }
}

/// Why a text cannot be put together: a mistake in the template, never in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum TextError {
    #[error("line {line} of a template: {what}")]
    Line { line: usize, what: String },
}

/// The text with everything filled in. `part` knows the texts that can be included.
pub(super) fn fill(
    text: &str,
    part: &dyn Fn(&str) -> Option<&'static str>,
    values: &Values,
) -> Result<String, TextError> {
    let mut out = String::new();
    let filler = Filler { part, values };
    filler.fill(text, "", 0, &mut out)?;
    Ok(out)
}

struct Filler<'a> {
    part: &'a dyn Fn(&str) -> Option<&'static str>,
    values: &'a Values,
}

/// A section that is open.
struct Section {
    shown: bool,
    has_else: bool,
}

impl Filler<'_> {
    fn fill(
        &self,
        text: &str,
        indent: &str,
        depth: usize,
        out: &mut String,
    ) -> Result<(), TextError> {
        let mut sections: Vec<Section> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let bad = |what: String| TextError::Line { line: at + 1, what };
            let body = line.trim_start();
            let shown = sections.iter().all(|section| section.shown);
            let Some(directive) = body.strip_prefix('%') else {
                if shown {
                    self.line(line, indent, out).map_err(bad)?;
                }
                continue;
            };
            let mut words = directive.split_whitespace();
            match words.next() {
                Some("if") => sections.push(Section {
                    shown: words.all(|flag| self.holds(flag)),
                    has_else: false,
                }),
                Some("else") => match sections.last_mut() {
                    Some(section) if !section.has_else => {
                        section.shown = !section.shown;
                        section.has_else = true;
                    }
                    _ => return Err(bad("`%else` without `%if`".to_owned())),
                },
                Some("end") => {
                    if sections.pop().is_none() {
                        return Err(bad("`%end` without `%if`".to_owned()));
                    }
                }
                Some("include") => {
                    let name = words.next().unwrap_or_default();
                    let part =
                        (self.part)(name)
                            .filter(|_| depth < MAX_DEPTH)
                            .ok_or_else(|| {
                                bad(format!("unknown part `{name}`, or it includes itself"))
                            })?;
                    let own = line.strip_suffix(body).unwrap_or_default();
                    if shown {
                        self.fill(part, &format!("{indent}{own}"), depth + 1, out)?;
                    }
                }
                _ => return Err(bad(format!("unknown directive `%{directive}`"))),
            }
        }
        if sections.is_empty() {
            Ok(())
        } else {
            Err(TextError::Line {
                line: text.lines().count(),
                what: "`%if` without `%end`".to_owned(),
            })
        }
    }

    fn holds(&self, flag: &str) -> bool {
        match flag.strip_prefix('!') {
            Some(flag) => !self.values.flags.contains(flag),
            None => self.values.flags.contains(flag),
        }
    }

    /// Appends one line, or as many as its list has values.
    fn line(&self, line: &str, indent: &str, out: &mut String) -> Result<(), String> {
        let mut pieces = vec![String::new()];
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("${") {
            let (key, after) = after.split_once('}').ok_or("`${` has no `}`".to_owned())?;
            let is_list = key.ends_with('*');
            let key = key.trim_end_matches('*');
            let values = self
                .values
                .words
                .get(key)
                .ok_or_else(|| format!("unknown value `{key}`"))?;
            if !is_list && values.len() != 1 {
                return Err(format!("`{key}` is a list"));
            }
            pieces = pieces
                .iter()
                .flat_map(|piece| {
                    values
                        .iter()
                        .map(move |value| format!("{piece}{before}{value}"))
                })
                .collect();
            rest = after;
        }
        for piece in pieces {
            let whole = format!("{indent}{piece}{rest}");
            out.push_str(whole.trim_end());
            out.push('\n');
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut values = Values::default();
        values.set("a", &1);
        values.set_list("many", vec!["x".to_owned(), "y".to_owned()]);
        values.flag("on", true);
        values.flag("off", false);
        values
    }

    fn part(name: &str) -> Option<&'static str> {
        match name {
            "inner" => Some("in: ${a}\n%if on\n  deep: 1\n%end\n"),
            "outer" => Some("out:\n  %include inner\n"),
            "itself" => Some("%include itself\n"),
            _ => None,
        }
    }

    #[test]
    fn what_the_language_means() {
        let cases = [
            ("a placeholder", "k: ${a}/${a}", Ok("k: 1/1\n")),
            ("a list", "  - <${many*}>", Ok("  - <x>\n  - <y>\n")),
            ("a flag", "%if on\nyes\n%else\nno\n%end", Ok("yes\n")),
            ("no flag", "%if off\nyes\n%else\nno\n%end", Ok("no\n")),
            ("a flag denied", "%if !off on\nyes\n%end", Ok("yes\n")),
            (
                "sections in sections",
                "%if off\n%if on\na\n%end\nb\n%end\nc",
                Ok("c\n"),
            ),
            (
                "parts in parts",
                "k:\n  %include outer",
                Ok("k:\n  out:\n    in: 1\n      deep: 1\n"),
            ),
            (
                "what is not shown is not filled in",
                "%if off\n${none}\n%include none2\n%end",
                Err("line 3 of a template: unknown part `none2`, or it includes itself"),
            ),
            (
                "no such value",
                "a\n${none}",
                Err("line 2 of a template: unknown value `none`"),
            ),
            (
                "a list in one place",
                "${many}",
                Err("line 1 of a template: `many` is a list"),
            ),
            (
                "no end",
                "%if on\na",
                Err("line 2 of a template: `%if` without `%end`"),
            ),
            (
                "no beginning",
                "%end",
                Err("line 1 of a template: `%end` without `%if`"),
            ),
            (
                "two others",
                "%if on\n%else\n%else\n%end",
                Err("line 3 of a template: `%else` without `%if`"),
            ),
            (
                "a part in itself",
                "%include itself",
                Err("line 1 of a template: unknown part `itself`, or it includes itself"),
            ),
            (
                "an unknown word",
                "%for a",
                Err("line 1 of a template: unknown directive `%for a`"),
            ),
            (
                "an open placeholder",
                "${a",
                Err("line 1 of a template: `${` has no `}`"),
            ),
        ];
        for (name, text, want) in cases {
            let got = fill(text, &part, &values()).map_err(|error| error.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{name}");
        }
    }
}
