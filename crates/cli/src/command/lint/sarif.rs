//! Findings as SARIF 2.1.0, which code scanning services read.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Value, json};
use trainyard_core::{
    finding::{Finding, Severity},
    lint,
};

use super::Linted;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// One log with one run: the rules that speak, and what they say.
pub(super) fn log(linted: &[Linted]) -> Value {
    let findings = || {
        let of = |file: &'_ Linted| -> Vec<(String, Finding)> {
            file.findings
                .iter()
                .map(|finding| (file.file.clone(), finding.clone()))
                .collect()
        };
        linted.iter().flat_map(of)
    };
    let codes: BTreeSet<&str> = findings().map(|(_, finding)| finding.code).collect();
    let rules: Vec<Value> = codes
        .iter()
        .filter_map(|code| lint::rule(code))
        .map(rule)
        .collect();
    let position = |code: &str| codes.iter().position(|known| *known == code);
    let results: Vec<Value> = findings()
        .map(|(file, finding)| result(&file, &finding, position(finding.code)))
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "trainyard",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(rule: &lint::Rule) -> Value {
    json!({
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": format!("trainyard lint --explain {}", rule.code)},
        "defaultConfiguration": {"level": level(rule.production)},
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn result(file: &str, finding: &Finding, position: Option<usize>) -> Value {
    let text = match &finding.hint {
        Some(hint) => format!("{}\n\nhint: {hint}", finding.message),
        None => finding.message.clone(),
    };
    let mut place = json!({"artifactLocation": {"uri": uri(file)}});
    if finding.span.line > 0 {
        place["region"] =
            json!({"startLine": finding.span.line, "startColumn": finding.span.column});
    }
    let mut result = json!({
        "ruleId": finding.code,
        "level": level(finding.severity),
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    });
    if let Some(position) = position {
        result["ruleIndex"] = json!(position);
    }
    if !finding.path.is_empty() {
        result["locations"][0]["logicalLocations"] = json!([{"fullyQualifiedName": finding.path}]);
    }
    result
}

/// The path as a relative reference: what is not allowed in one is escaped.
fn uri(file: &str) -> String {
    let mut uri = String::new();
    for byte in file.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            write!(uri, "%{byte:02X}").expect("a string takes whatever is written");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_references() {
        let cases = [
            ("jobs/a.yaml", "jobs/a.yaml"),
            ("my jobs/ä.yaml", "my%20jobs/%C3%A4.yaml"),
            ("<stdin>", "%3Cstdin%3E"),
        ];
        for (file, want) in cases {
            assert_eq!(uri(file), want);
        }
    }
}
