//! A preflight's report as people and programs read it.
//!
//! Owns the words; what a check says is `core::probe`'s. The same for one machine and for many.

use serde::Serialize;
use trainyard_core::probe::{Check, Layer, NodeReport, Outcome, Owner, Report};

use crate::{
    args::Format,
    clean,
    failure::{Exit, Failure},
    paint::Paint,
    printer::Printer,
    table::columns,
    words,
};

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    outcome: Outcome,
    #[serde(flatten)]
    report: &'a Report,
}

/// Prints the report; the exit code is that of what was asked about.
pub(crate) fn print(
    report: &Report,
    format: Format,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let outcome = report.outcome();
    match format {
        Format::Text => {
            let text = text(report, printer.stdout_paint());
            printer.data(text.as_bytes())?;
        }
        Format::Json => {
            let document = Document {
                version: 1,
                outcome,
                report,
            };
            printer.json(&document)?;
        }
    }
    Ok(match outcome {
        Outcome::Fail => Exit::Failed,
        _ => Exit::Done,
    })
}

/// What is wrong first, with its cause; then everything else. Nodes that are unfit come first.
fn text(report: &Report, paint: Paint) -> String {
    let mut nodes: Vec<(&String, &NodeReport)> = report.nodes.iter().collect();
    nodes.sort_by_key(|(_, node)| std::cmp::Reverse(node.outcome()));
    let mut parts = Vec::new();
    if !report.shared.is_empty() {
        parts.push(section("between nodes", &report.shared, paint));
    }
    for (name, node) in nodes {
        parts.push(section(&clean::text(name), &node.checks, paint));
    }
    parts.join("\n")
}

fn section(title: &str, checks: &[Check], paint: Paint) -> String {
    let count = |outcome: Outcome| {
        let such = checks.iter().filter(|check| check.outcome == outcome);
        such.count()
    };
    let (failed, warned) = (count(Outcome::Fail), count(Outcome::Warn));
    let made = checks.len() - count(Outcome::NotApplicable);
    let verdict = match (failed, warned) {
        (0, 0) if made > 0 => paint.apply("1;32", "fit"),
        (0, 0) => paint.apply("1;31", "nothing could be checked"),
        (0, _) => paint.apply("1;33", "fit, with warnings"),
        _ => paint.apply("1;31", "not fit"),
    };
    let mut shown: Vec<&Check> = checks.iter().collect();
    shown.retain(|check| check.outcome != Outcome::NotApplicable);
    // Worst first; within one outcome the order of the catalogue.
    shown.sort_by_key(|check| std::cmp::Reverse(check.outcome));
    let mut text = format!(
        "{}: {verdict} ({}, {failed} failed, {})\n\n{}",
        paint.apply("1", title),
        words::counted(made as u64, "check"),
        words::counted(warned as u64, "warning"),
        table(&shown, paint),
    );
    for check in shown.iter().filter(|check| check.outcome >= Outcome::Warn) {
        text.push_str(&cause(check, paint));
    }
    text.push_str(&skipped(checks));
    text
}

fn table(checks: &[&Check], paint: Paint) -> String {
    let heads = ["RESULT", "LAYER", "CHECK", "OF", "FOUND", "NEEDED"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(checks.iter().map(|check| {
        vec![
            word(check.outcome).to_owned(),
            layer(check.layer).to_owned(),
            clean::text(&check.name),
            clean::text(&check.subject),
            clean::text(&check.found),
            clean::text(&check.needed),
        ]
    }));
    let codes = checks.iter().map(|check| match check.outcome {
        Outcome::Fail => "31",
        Outcome::Warn => "33",
        _ => "0",
    });
    let lines = columns(&rows);
    let lines = lines.lines().zip(std::iter::once("1").chain(codes));
    let painted: Vec<String> = lines
        .map(|(line, codes)| paint.apply(codes, line) + "\n")
        .collect();
    painted.concat()
}

/// The checks that there was nothing to check for, by the reason.
fn skipped(checks: &[Check]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for check in checks {
        if check.outcome != Outcome::NotApplicable {
            continue;
        }
        match reasons.iter_mut().find(|(why, _)| *why == check.needed) {
            Some((_, names)) => names.push(&check.name),
            None => reasons.push((&check.needed, vec![&check.name])),
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let lines = reasons.into_iter().map(|(why, names)| {
        format!(
            "  {}: {}\n",
            clean::text(&names.join(", ")),
            clean::text(why)
        )
    });
    format!("\nnot applicable:\n{}", lines.collect::<Vec<_>>().concat())
}

fn cause(check: &Check, paint: Paint) -> String {
    let subject = match check.subject.as_str() {
        "" => String::new(),
        subject => format!(" {}", clean::text(subject)),
    };
    let codes = if check.outcome == Outcome::Fail {
        "1;31"
    } else {
        "1;33"
    };
    format!(
        "\n{}{subject}\n  cause: {}\n  next:  {}\n  owner: {}\n",
        paint.apply(codes, &check.name),
        clean::text(&check.cause),
        clean::text(&check.next),
        owner(check.owner),
    )
}

/// The outcome in a table: what is wrong stands out without colour, too.
pub(crate) fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Fail => "FAIL",
        Outcome::Warn => "warn",
        Outcome::Pass => "pass",
        Outcome::NotApplicable => "n/a",
    }
}

/// The layer in words.
pub(crate) fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Host => "host",
        Layer::Devices => "devices",
        Layer::Network => "network",
        Layer::Path => "path",
        Layer::Storage => "storage",
    }
}

/// Who can put it right, in words.
pub(crate) fn owner(owner: Owner) -> &'static str {
    match owner {
        Owner::Platform => "platform",
        Owner::Network => "network",
        Owner::MlTeam => "ML team",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn check(name: &str, outcome: Outcome) -> Check {
        Check {
            name: name.to_owned(),
            layer: Layer::Host,
            subject: String::new(),
            outcome,
            found: "1".to_owned(),
            needed: "2".to_owned(),
            cause: "worn out".to_owned(),
            next: "replace it".to_owned(),
            owner: Owner::Network,
        }
    }

    #[test]
    fn what_is_worst_comes_first() {
        let node = |outcomes: &[(&str, Outcome)]| NodeReport {
            checks: outcomes
                .iter()
                .map(|(name, outcome)| check(name, *outcome))
                .collect(),
        };
        let report = Report {
            nodes: BTreeMap::from([
                ("a".to_owned(), node(&[("memory", Outcome::Pass)])),
                (
                    "b\u{1b}[2J".to_owned(),
                    node(&[("memory", Outcome::Pass), ("disk", Outcome::Fail)]),
                ),
                ("c".to_owned(), node(&[("shm", Outcome::NotApplicable)])),
            ]),
            shared: vec![check("path-latency", Outcome::Warn)],
            ..Report::default()
        };
        let text = text(&report, Paint::Plain);
        assert!(
            !text.contains('\u{1b}'),
            "names of others do nothing to a terminal"
        );
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            at("between nodes: fit, with warnings"),
            at("path-latency\n  cause: worn out\n  next:  replace it\n  owner: network"),
            at("not fit (2 checks, 1 failed, 0 warnings)"),
            at("FAIL     host    disk"),
            at("pass     host    memory"),
            at("a: fit (1 check, 0 failed, 0 warnings)"),
            at("c: nothing could be checked"),
            at("not applicable:\n  shm: 2\n"),
        ];
        assert!(order.is_sorted(), "{order:?}\n{text}");
    }
}
