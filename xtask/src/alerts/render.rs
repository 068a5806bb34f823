//! The rules as YAML: for Prometheus, for the Prometheus operator, and the tests of `promtool`.

use std::fmt::Write as _;

use super::{Alert, Case, Fired, Group, Severity};

const HEAD: &str =
    "# Made by `cargo xtask gen` from the tables of xtask/src/alerts; do not edit.\n";
/// The page with a heading for each alert.
const GUIDE: &str = "docs/guides/alerts.md";

impl Group {
    const ALL: [Self; 2] = [Self::Operator, Self::Jobs];

    fn name(self) -> &'static str {
        match self {
            Self::Operator => "trainyard-operator",
            Self::Jobs => "trainyard-jobs",
        }
    }
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// The heading of the alert in the guide.
fn runbook(alert: &Alert) -> String {
    format!("{GUIDE}#{}", alert.name.to_lowercase())
}

/// The file that `rule_files` of Prometheus names.
pub(super) fn rules(alerts: &[Alert]) -> String {
    format!("{HEAD}{}", groups(alerts))
}

/// The same rules as an object of the Prometheus operator.
pub(super) fn component(alerts: &[Alert]) -> String {
    let mut text = format!(
        "{HEAD}apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: trainyard\n  namespace: trainyard-system\nspec:\n"
    );
    for line in groups(alerts).lines() {
        push(&mut text, 2, line);
    }
    text
}

fn groups(alerts: &[Alert]) -> String {
    let mut text = "groups:\n".to_owned();
    for group in Group::ALL {
        if alerts.iter().all(|alert| alert.group != group) {
            continue;
        }
        push(&mut text, 0, &format!("- name: {}", group.name()));
        push(&mut text, 2, "rules:");
        for alert in alerts.iter().filter(|alert| alert.group == group) {
            push(&mut text, 2, &format!("- alert: {}", alert.name));
            push(&mut text, 4, "expr: |-");
            for line in alert.expression().lines() {
                push(&mut text, 6, line);
            }
            push(&mut text, 4, &format!("for: {}", alert.hold));
            push(&mut text, 4, "labels:");
            push(
                &mut text,
                6,
                &format!("severity: {}", alert.severity.name()),
            );
            push(&mut text, 4, "annotations:");
            annotations(&mut text, 6, alert, alert.summary, alert.description);
        }
    }
    text
}

fn annotations(text: &mut String, indent: usize, alert: &Alert, summary: &str, description: &str) {
    push(text, indent, &format!("summary: {}", quoted(summary)));
    push(
        text,
        indent,
        &format!("description: {}", quoted(description)),
    );
    push(
        text,
        indent,
        &format!("runbook_url: {}", quoted(&runbook(alert))),
    );
}

/// The tests of an alert: it fires, it is silent, and if it is about jobs, it is silent once no operator shows the job.
pub(super) fn tests(alert: &Alert, rules: &str) -> String {
    let mut text = format!("rule_files: [{rules}]\nevaluation_interval: 1m\ntests:\n");
    test(&mut text, alert, "fires", &alert.fires);
    test(&mut text, alert, "is silent", &alert.silent);
    if alert.group == Group::Jobs {
        outage(&mut text, alert);
    }
    text
}

fn test(text: &mut String, alert: &Alert, what: &str, case: &Case) {
    begin(text, &format!("{} {what}", alert.name));
    for (series, values) in case.series {
        push(text, 2, &format!("- series: {}", quoted(series)));
        push(text, 4, &format!("values: {}", quoted(values)));
    }
    ask(text, alert, case.at, case.fired.as_ref());
}

/// The series that make it fire end a minute before it is looked up, as they do where the leader is gone.
fn outage(text: &mut String, alert: &Alert) {
    begin(
        text,
        &format!("{} is silent without an operator", alert.name),
    );
    let minutes: usize = alert.fires.at.trim_end_matches('m').parse().unwrap_or(0);
    for (series, values) in alert.fires.series {
        push(text, 2, &format!("- series: {}", quoted(series)));
        let values = cut(values, minutes);
        push(text, 4, &format!("values: {}", quoted(&values)));
    }
    ask(text, alert, alert.fires.at, None);
}

/// The notation of `promtool` with at most so many samples, then the end of the series.
fn cut(values: &str, most: usize) -> String {
    let mut left = most;
    let mut words = Vec::new();
    for word in values.split(' ') {
        // `a+bxN` is the first value and N more.
        let (start, more) = word.rsplit_once('x').unwrap_or((word, "0"));
        let more: usize = more.parse().unwrap_or(0);
        if left == 0 {
            break;
        }
        let count = left.min(more + 1);
        words.push(format!("{start}x{}", count - 1));
        left -= count;
    }
    words.push("stale".to_owned());
    words.join(" ")
}

fn begin(text: &mut String, name: &str) {
    push(text, 0, &format!("- name: {name}"));
    push(text, 2, "interval: 1m");
    push(text, 2, "input_series:");
}

fn ask(text: &mut String, alert: &Alert, at: &str, fired: Option<&Fired>) {
    push(text, 2, "alert_rule_test:");
    push(text, 2, &format!("- eval_time: {at}"));
    push(text, 4, &format!("alertname: {}", alert.name));
    let Some(fired) = fired else {
        push(text, 4, "exp_alerts: []");
        return;
    };
    push(text, 4, "exp_alerts:");
    push(text, 4, "- exp_labels:");
    push(text, 8, &format!("severity: {}", alert.severity.name()));
    for (name, value) in fired.labels {
        push(text, 8, &format!("{name}: {}", quoted(value)));
    }
    push(text, 6, "exp_annotations:");
    annotations(text, 8, alert, fired.summary, fired.description);
}

fn push(text: &mut String, indent: usize, line: &str) {
    writeln!(text, "{:indent$}{line}", "").expect("writing to a String cannot fail");
}

/// A string of YAML in double quotes. The tables have no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_cut_and_end() {
        assert_eq!(cut("1x5 0x20", 10), "1x5 0x3 stale");
        assert_eq!(cut("7x30", 3), "7x2 stale");
        assert_eq!(cut("0+60x400", 390), "0+60x389 stale");
        assert_eq!(cut("_x3 1x20", 5), "_x3 1x0 stale");
    }

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quoted(r#"a{b="\c"}"#), r#""a{b=\"\\c\"}""#);
    }
}
