//! What stands in a file in place of a value: the marks of Helm, Jinja, `envsubst` and of people.
//!
//! Owns how such a mark is recognised and how it is reported. It fills nothing in.

use crate::finding::{Finding, Severity, Span, catalogue};

/// How the file becomes one that can be read.
const RENDER: &str = "render it first, for Helm with `helm template CHART | trainyard lint -`, then check what comes out";

/// The first mark of a template language in line `number` of `text`.
///
/// A mark is `{{` or `{%` with its other half in the same line: braces alone may be YAML.
fn mark_in(text: &str, number: usize) -> Option<Span> {
    let at = number.checked_sub(1)?;
    let line = text.split('\n').nth(at)?;
    let start: usize = text.split('\n').take(at).map(|line| line.len() + 1).sum();
    let marks = [("{{", "}}"), ("{%", "%}")].into_iter();
    let found = marks.filter_map(|(open, close)| {
        let (before, rest) = line.split_once(open)?;
        let (inner, _) = rest.split_once(close)?;
        let from = before.len();
        Some((from, from + open.len() + inner.len() + close.len()))
    });
    let (from, to) = found.min()?;
    Some(Span {
        start: start + from,
        end: start + to,
        line: number,
        column: line.get(..from)?.chars().count() + 1,
    })
}

/// The finding for a file that cannot be read from `line` on because of a mark that stands there; `None`
/// where there is none. Marks elsewhere may be text, such as that of an alert in a `ConfigMap`.
pub(super) fn template(text: &str, line: usize) -> Option<Finding> {
    let span = mark_in(text, line)?;
    let mark = shown(text.get(span.start..span.end)?);
    let message = format!("`{mark}` is not YAML: the file is a template that is not filled in");
    Some(Finding::new(&catalogue::TEMPLATE, "", span, message).with_hint(RENDER))
}

/// Whether a value is a placeholder: `${NODES}`, `$NODES`, `{{ .Values.nodes }}`,
/// `<nodes>`.
pub(crate) fn is_placeholder(value: &str) -> bool {
    let value = value.trim().trim_matches(['"', '\'']).trim();
    let braced = value
        .split_once("${")
        .is_some_and(|(_, rest)| rest.contains('}'));
    let angled = value
        .split_once('<')
        .is_some_and(|(_, rest)| rest.contains('>'));
    let marked = value.contains("{{") && value.contains("}}");
    braced || angled || marked || value.strip_prefix('$').is_some_and(is_variable)
}

/// Whether a shell may call a variable so.
pub(crate) fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(begins)
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Rules whose findings hold whatever is filled in: a tag that is written and moves, a secret that will be there in plain text.
const AS_WRITTEN: [&str; 5] = ["TY180", "TY181", "TY182", "TY601", "TY602"];

/// The rule about variables that nothing replaces.
const UNREPLACED: &str = "TY164";

/// The findings of a document, with all those about placeholders reported as one.
///
/// A template has dozens of them, and there is one thing to do.
pub(crate) fn gather(findings: Vec<Finding>, source: &str) -> Vec<Finding> {
    let written = |finding: &Finding| source.get(finding.span.start..finding.span.end);
    let is_open = |finding: &Finding| {
        finding.severity == Severity::Error
            && !AS_WRITTEN.contains(&finding.code)
            && written(finding).is_some_and(is_placeholder)
    };
    let (open, mut rest): (Vec<Finding>, Vec<Finding>) = findings.into_iter().partition(is_open);
    let Some(first) = open.first() else {
        return rest;
    };
    // What fills in the others fills in these. A search path it would fill in with that of its own machine.
    let by_shell = open
        .iter()
        .any(|finding| written(finding).is_some_and(|text| text.contains('$')));
    rest.retain(|finding| {
        !by_shell
            || finding.code != UNREPLACED
            || written(finding).is_none_or(|text| text.contains("PATH") || text.contains("$("))
    });
    let mark = shown(written(first).unwrap_or_default());
    let message = match open.len() {
        1 => format!("`{mark}` is a placeholder, where a value is needed"),
        count => format!("{count} values are placeholders, the first is `{mark}`"),
    };
    let hint = if mark.contains('$') {
        "fill the file in first, such as with `envsubst < FILE | trainyard lint -`"
    } else if mark.contains("{{") {
        RENDER
    } else {
        "write what it stands for"
    };
    let gathered = Finding::new(
        &catalogue::PLACEHOLDER,
        first.path.as_str(),
        first.span,
        message,
    );
    rest.push(gathered.with_hint(hint));
    rest.sort_by_key(|finding| (finding.span.line, finding.span.column));
    rest
}

/// `mark`, short enough for a sentence.
fn shown(mark: &str) -> String {
    const MOST: usize = 60;
    let mark = mark.trim_matches(['"', '\'']);
    let short: String = mark.chars().take(MOST).collect();
    if short.len() < mark.len() {
        format!("{short}…")
    } else {
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_and_values() {
        let placeholders = [
            "${NODES}",
            "$NODES",
            "\"${REGISTRY}/train:${TAG}\"",
            "{{ .Values.nodes }}",
            "<namespace>",
            "<account>.example.com/<image>:<tag>",
        ];
        let values = [
            "4",
            "train",
            "$(NODES)",
            "$",
            "$5",
            "a < b",
            "{a: {b: c}}",
            "registry.example.com/train:1",
            "",
        ];
        for value in placeholders {
            assert!(is_placeholder(value), "{value}");
        }
        for value in values {
            assert!(!is_placeholder(value), "{value}");
        }
    }

    #[test]
    fn marks_of_templates_are_found_in_their_line() {
        let cases = [
            ("a: {{ .Values.a }}\n", 1, Some((4, "{{ .Values.a }}"))),
            ("# é\n  {{- if .x }}\n", 2, Some((3, "{{- if .x }}"))),
            ("é: {% for i in x %}", 1, Some((4, "{% for i in x %}"))),
            ("a: '{{ x }}'\nb\n", 2, None),
            ("a: {b: {c: d}}\n", 1, None),
            ("a: {{b: c}: d\n}}\n", 1, None),
            ("a: b\n", 1, None),
            ("a: b\n", 0, None),
            ("a: b\n", 9, None),
        ];
        for (text, line, want) in cases {
            let found = mark_in(text, line).and_then(|span| {
                let mark = text.get(span.start..span.end)?;
                Some((span.column, mark))
            });
            assert_eq!(found, want, "{text}");
        }
    }
}
