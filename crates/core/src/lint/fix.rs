//! Fixes as edits of the text, so that comments, order and layout stay as they are.
//!
//! Owns how a [`Fix`] looks at its place. Which findings have one is decided where they are found.
//!
//! Invariant: a text is only returned if it can be read and is better than before: fewer findings of
//! the contract, or as many of those and fewer others. So fixing ends, and fixing twice is fixing once.

use super::{Profile, Rule, review_with, rule};
use crate::{
    finding::{Finding, Fix, Span},
    spec::{self, File},
};

/// Rounds after which a text is taken as it is: one fix may lay open another.
const MAX_ROUNDS: usize = 8;

/// A text after its fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The text.
    pub text: String,
    /// What was fixed: the findings as they were.
    pub findings: Vec<Finding>,
}

/// One change of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// The text of `file` with its safe fixes; `None` where there is none. The other files are those that
/// it is judged together with.
pub fn fix(file: &File, others: &[&File], profile: Option<Profile>) -> Option<Fixed> {
    let mut fixed: Vec<Finding> = Vec::new();
    let mut current = file.clone();
    for _ in 0..MAX_ROUNDS {
        let before = findings(&current, others, profile);
        let Some((next, done)) = round(&current, &before, others, profile) else {
            break;
        };
        current = next;
        fixed.extend(done);
    }
    (!fixed.is_empty()).then(|| Fixed {
        text: current.text.to_string(),
        findings: fixed,
    })
}

fn findings(file: &File, others: &[&File], profile: Option<Profile>) -> Vec<Finding> {
    let together: Vec<&File> = std::iter::once(file)
        .chain(others.iter().copied())
        .collect();
    review_with(&together, profile, None, 1).concat()
}

/// How bad a file is. A job that is not valid is not looked at further, so making it valid may lay open
/// any number of other findings.
fn badness(findings: &[Finding]) -> (usize, usize) {
    let of_contract = |finding: &&Finding| rule(finding.code).is_some_and(Rule::is_contract);
    (findings.iter().filter(of_contract).count(), findings.len())
}

/// All fixes at once, or where that helps nothing the first one that does alone.
fn round(
    file: &File,
    before: &[Finding],
    others: &[&File],
    profile: Option<Profile>,
) -> Option<(File, Vec<Finding>)> {
    let mut wanted: Vec<(&Finding, Vec<Edit>)> = Vec::new();
    for finding in before {
        let Some(edits) = finding
            .fix
            .as_ref()
            .and_then(|fix| edits(&file.text, finding.span, fix))
        else {
            continue;
        };
        // Two roles may share a text by an alias; it is changed once.
        let apart = |edit: &Edit, other: &Edit| {
            edit != other && (edit.start >= other.end || other.start >= edit.end)
        };
        let others = || wanted.iter().flat_map(|(_, others)| others);
        if edits
            .iter()
            .all(|edit| others().all(|other| apart(edit, other)))
        {
            wanted.push((finding, edits));
        }
    }
    let beside: Vec<&spec::Document> = others.iter().flat_map(|file| &file.documents).collect();
    let attempt = |edits: &[(&Finding, Vec<Edit>)]| {
        let text = applied(
            &file.text,
            edits.iter().flat_map(|(_, edits)| edits).collect(),
        )?;
        let mut next = spec::read(text.as_bytes()).ok()?;
        // The runtime of a job may be in another file.
        spec::share_runtimes_beside(&mut next.documents, &beside);
        let better = badness(&findings(&next, others, profile)) < badness(before);
        let done = edits
            .iter()
            .map(|(finding, _)| (*finding).clone())
            .collect();
        better.then_some((next, done))
    };
    if wanted.is_empty() {
        return None;
    }
    attempt(&wanted).or_else(|| {
        wanted
            .iter()
            .find_map(|one| attempt(std::slice::from_ref(one)))
    })
}

fn applied(text: &str, mut edits: Vec<&Edit>) -> Option<String> {
    edits.sort_by_key(|edit| edit.start);
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        result.push_str(text.get(at..edit.start)?);
        result.push_str(&edit.text);
        at = edit.end;
    }
    result.push_str(text.get(at..)?);
    Some(result)
}

/// The changes that `fix` is in `text`; `None` where the layout is not one that can be changed safely.
fn edits(text: &str, span: Span, fix: &Fix) -> Option<Vec<Edit>> {
    match fix {
        Fix::Above(places) => places
            .iter()
            .map(|place| above(text, place.span, &place.lines))
            .collect(),
        _ => Some(vec![edit(text, span, fix)?]),
    }
}

/// Lines above the entry or the item that begins at `span`, which must be the first thing on its line.
fn above(text: &str, span: Span, lines: &[String]) -> Option<Edit> {
    let before = line_before(text, span.start)?;
    let is_item = lines.first().is_some_and(|line| line.starts_with("- "));
    let indent = match before.trim_start_matches(' ') {
        "" if !is_item => before,
        "- " if is_item => before.strip_suffix("- ")?,
        _ => return None,
    };
    if span.line == 0 {
        return None;
    }
    let end = line_end(text, span.start);
    let added = lines.iter().map(|line| format!("{indent}{line}{end}"));
    let at = span.start - before.len();
    Some(Edit {
        start: at,
        end: at,
        text: added.collect(),
    })
}

/// The change that `fix` is in `text`; `None` where the layout is not one that can be changed safely.
fn edit(text: &str, span: Span, fix: &Fix) -> Option<Edit> {
    let written = text.get(span.start..span.end)?;
    if span.line == 0 || written.is_empty() || written.contains('\n') {
        return None;
    }
    let replace = |text: String| Edit {
        start: span.start,
        end: span.end,
        text,
    };
    let quote = written
        .chars()
        .next()
        .filter(|first| matches!(first, '"' | '\''));
    match fix {
        Fix::Scalar(new) => Some(replace(match quote {
            Some(quote) => format!("{quote}{new}{quote}"),
            None => new.clone(),
        })),
        Fix::Quote => {
            let plain = quote.is_none() && !written.contains(['"', '\\']);
            plain.then(|| replace(format!("\"{written}\"")))
        }
        Fix::Unquote => {
            let inner = written.strip_prefix(quote?)?.strip_suffix(quote?)?;
            Some(replace(inner.to_owned()))
        }
        Fix::Remove => remove(text, span),
        Fix::Add { key, value } => add(text, span, key, value),
        Fix::Split(first, second) => split(text, span, quote, first, second).map(replace),
        Fix::Above(_) => None,
    }
}

/// The line up to `at`.
fn line_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?;
    Some(before.rsplit('\n').next().unwrap_or(before))
}

/// The rest of the line from `at` on, without its end.
fn line_after(text: &str, at: usize) -> Option<&str> {
    let rest = text.get(at..)?.split('\n').next()?;
    Some(rest.strip_suffix('\r').unwrap_or(rest))
}

/// Whether what ends at `at` is inside of `{}` or `[]`: there a comma or a bracket follows, which
/// cannot follow elsewhere.
fn is_flow(text: &str, at: usize) -> Option<bool> {
    let mut rest = text.get(at..)?;
    loop {
        rest = rest.trim_start();
        if !rest.starts_with('#') {
            return Some(rest.starts_with([',', '}', ']']));
        }
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
}

fn line_end(text: &str, at: usize) -> &'static str {
    let rest = text.get(at..).unwrap_or_default();
    match rest.find('\n') {
        Some(end) if rest.get(..end).is_some_and(|line| line.ends_with('\r')) => "\r\n",
        _ => "\n",
    }
}

/// Removes the whole line of an entry that is alone on it.
fn remove(text: &str, span: Span) -> Option<Edit> {
    let (before, after) = (line_before(text, span.start)?, line_after(text, span.end)?);
    let key = before
        .trim_start()
        .strip_suffix(' ')?
        .trim_end()
        .strip_suffix(':')?;
    let is_key = key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    // The first entry of an item carries its dash, and a comment would go with the line.
    if !is_key || !after.trim().is_empty() || is_flow(text, span.end)? {
        return None;
    }
    let start = span.start - before.len();
    let rest = text.get(span.end..)?;
    let end = span.end + rest.find('\n').map_or(rest.len(), |end| end + 1);
    Some(Edit {
        start,
        end,
        text: String::new(),
    })
}

fn add(text: &str, span: Span, key: &str, value: &str) -> Option<Edit> {
    let insert = |at: usize, text: String| Edit {
        start: at,
        end: at,
        text,
    };
    let before = line_before(text, span.start)?;
    if is_flow(text, span.end)? {
        let is_json = before.trim_end().ends_with("\":");
        let entry = if is_json {
            format!(", \"{key}\": \"{value}\"")
        } else {
            format!(", {key}: {value}")
        };
        return Some(insert(span.end, entry));
    }
    // The new key stands under the old one, also where that follows the dash of an item.
    let dashed = before.trim_start_matches([' ', '-']);
    let is_key = dashed.trim_end().ends_with(':') && !dashed.trim_end().contains(' ');
    if !is_key || before.contains('\t') {
        return None;
    }
    let indent = " ".repeat(before.len() - dashed.len());
    let at = span.end + line_after(text, span.end)?.len();
    Some(insert(
        at,
        format!("{}{indent}{key}: {value}", line_end(text, span.end)),
    ))
}

/// Both parts as items of the list, quoted as the one was.
fn split(text: &str, span: Span, quote: Option<char>, first: &str, second: &str) -> Option<String> {
    let is_plain = |part: &str| {
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=./:,".contains(&byte);
        let begins = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-' || c == '/');
        let word = matches!(
            part,
            "true" | "false" | "null" | "yes" | "no" | "on" | "off"
        );
        begins && !word && part.bytes().all(safe) && !part.ends_with(':') && !part.contains(',')
    };
    let item = |part: &str| match quote {
        Some(quote) => Some(format!("{quote}{part}{quote}")),
        None if is_plain(part) => Some(part.to_owned()),
        None => (!part.contains(['"', '\\'])).then(|| format!("\"{part}\"")),
    };
    if [first, second]
        .iter()
        .any(|part| part.contains(['"', '\'', '\\']))
    {
        return None;
    }
    let (first, second) = (item(first)?, item(second)?);
    if is_flow(text, span.end)? {
        return Some(format!("{first}, {second}"));
    }
    let before = line_before(text, span.start)?;
    let is_item = before.trim_start() == "- ";
    is_item.then(|| format!("{first}{}{before}{second}", line_end(text, span.end)))
}

#[cfg(test)]
mod tests;
