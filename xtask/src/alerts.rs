//! Alerts and dashboards for Prometheus and Grafana: their tables, and the suite that tries them.
//!
//! Owns which metrics alert whom and which are drawn. `cargo xtask gen` writes `deploy/alerts`, `deploy/grafana` and the component of the
//! kustomization from the tables; the chart reads `deploy/alerts`. The suite asks the real `promtool` and a real Prometheus, which scrapes
//! `testdata/metrics.txt`: a page with every family, which a test of `crates/kube` compares with the operator's own.
//!
//! Invariants:
//! - Each alert has a case in which it fires and one in which it is silent, and a heading in the guide.
//! - No expression names a metric that the operator does not have: each returns a sample of the page, or says why it returns none.

mod boards;
mod grafana;
mod prometheus;
mod render;
mod rules;

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command, time::Duration};

use self::{boards::boards, prometheus::Prometheus, rules::alerts};
use crate::{
    Failure,
    cache::{Part, cannot},
    step,
};

/// The page that is scraped.
const PAGE: &str = "testdata/metrics.txt";
/// The rules, as Prometheus reads them.
const RULES: &str = "deploy/alerts/trainyard-rules.yaml";
/// All rules, beside the tests.
const ALL_RULES: &str = "rules.yaml";
/// The rules, as the Prometheus operator reads them.
const COMPONENT: &str = "deploy/kustomize/components/alerts/prometheus-rule.yaml";
/// The folder of the dashboards.
const GRAFANA: &str = "deploy/grafana";

/// One alert.
struct Alert {
    name: &'static str,
    group: Group,
    severity: Severity,
    /// What is judged: one series for each thing that the alert is about.
    signal: String,
    /// The comparison and what else must hold.
    test: String,
    /// For how long that must hold.
    hold: &'static str,
    summary: &'static str,
    /// What it means, and the next command.
    description: &'static str,
    /// Why `signal` has no sample on the page, where it has none.
    empty: Option<&'static str>,
    fires: Case,
    silent: Case,
}

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Operator,
    Jobs,
}

/// Whom an alert wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// Now.
    Critical,
    /// In working hours.
    Warning,
    /// Nobody; it is listed.
    Info,
}

/// What Prometheus has scraped, once a minute, and what follows from it.
struct Case {
    /// Series and their values, in the notation of `promtool`.
    series: &'static [(&'static str, &'static str)],
    /// When the alert is looked up.
    at: &'static str,
    /// The alert; nothing where it is silent.
    fired: Option<Fired>,
}

/// An alert that fires: its labels but for name and severity, and its sentences.
struct Fired {
    labels: &'static [(&'static str, &'static str)],
    summary: &'static str,
    description: &'static str,
}

impl Alert {
    fn expression(&self) -> String {
        [self.signal.as_str(), self.test.as_str()]
            .join("\n")
            .trim_end()
            .to_owned()
    }
}

/// Every generated file by its path from the root.
pub(crate) fn files() -> BTreeMap<PathBuf, String> {
    let alerts = alerts();
    let mut files = BTreeMap::from([
        (PathBuf::from(RULES), render::rules(&alerts)),
        (PathBuf::from(COMPONENT), render::component(&alerts)),
    ]);
    for board in boards() {
        let path = PathBuf::from(GRAFANA).join(format!("{}.json", board.id));
        files.insert(path, grafana::document(&board));
    }
    files
}

/// The programs of Prometheus, for `cargo xtask prepare`.
pub(crate) fn cache() -> Part {
    Part {
        name: "Prometheus".to_owned(),
        used_by: "alerts",
        took: Duration::from_secs(5),
        is_there: Box::new(prometheus::is_there),
        make: Box::new(|| prometheus::programs().map(|_| ())),
    }
}

/// Rules by `promtool`, then every expression by a Prometheus that has scraped every family.
pub(crate) fn suite() -> Result<String, Failure> {
    let programs = prometheus::programs()?;
    let folder = step::root().join("target/xtask/alerts");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(cannot("clear", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(cannot("make", &folder))?;
    let alerts = alerts();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(cannot("write", &path))
    };
    write(ALL_RULES, &render::rules(&alerts))?;
    let mut check = Command::new(&programs.promtool);
    step::run(
        check
            .args(["check", "rules", ALL_RULES])
            .current_dir(&folder),
    )?;
    let mut test = Command::new(&programs.promtool);
    test.args(["test", "rules"]).current_dir(&folder);
    for alert in &alerts {
        // Alone, because `promtool` would evaluate all rules for the hours of each test.
        let [rules, tests] = ["rules", "tests"].map(|what| format!("{}.{what}.yaml", alert.name));
        write(&rules, &render::rules(std::slice::from_ref(alert)))?;
        write(&tests, &render::tests(alert, &rules))?;
        test.arg(tests);
    }
    step::run(&mut test)?;
    let page = step::root().join(PAGE);
    let page = fs::read_to_string(&page).map_err(cannot("read", &page))?;
    let prometheus = Prometheus::start(&programs, &folder, page)?;
    let expressions = expressions();
    let mut wrong = Vec::new();
    for expression in &expressions {
        match (prometheus.samples(&expression.text), expression.empty) {
            (Err(why), _) => wrong.push(format!("{}: {why}", expression.place)),
            (Ok(0), None) => wrong.push(format!(
                "{}: `{}` has no sample of the page `{PAGE}`",
                expression.place, expression.text
            )),
            (Ok(count), Some(why)) if count > 0 => wrong.push(format!(
                "{}: `{}` has {count} samples, and is listed as empty ({why})",
                expression.place, expression.text
            )),
            (Ok(_), _) => {}
        }
    }
    drop(prometheus);
    if !wrong.is_empty() {
        return Err(Failure::Failed(wrong.join("\n")));
    }
    Ok(format!(
        "{} alerts, {} expressions, {} dashboards",
        alerts.len(),
        expressions.len(),
        boards().len()
    ))
}

/// One expression that Prometheus is asked.
struct Expression {
    place: String,
    text: String,
    /// Why it has no sample, where it has none.
    empty: Option<&'static str>,
}

/// The variables of Grafana, with what stands for them here.
const VARIABLES: &[(&str, &str)] = &[
    ("$__rate_interval", "1m"),
    ("$__range", "1m"),
    ("$namespace", ".*"),
    ("$job", ".*"),
];

/// The expressions of rules and dashboards.
fn expressions() -> Vec<Expression> {
    let alerts = alerts().into_iter().map(|alert| Expression {
        place: format!("alert {}", alert.name),
        text: alert.signal,
        empty: alert.empty,
    });
    let mut all: Vec<Expression> = alerts.collect();
    for board in boards() {
        for panel in board.panels {
            for query in panel.queries {
                let mut text = query.expression;
                for (variable, value) in VARIABLES {
                    text = text.replace(variable, value);
                }
                let place = format!("dashboard {}, panel `{}`", board.id, panel.title);
                let empty = None;
                all.push(Expression { place, text, empty });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache;

    #[test]
    fn each_alert_has_both_cases_and_a_heading() {
        let guide = step::root().join("docs/guides/alerts.md");
        let guide = fs::read_to_string(guide).unwrap();
        for alert in alerts() {
            let name = alert.name;
            let fired = alert.fires.fired.as_ref();
            assert!(fired.is_some(), "{name} has no case in which it fires");
            assert!(
                alert.silent.fired.is_none() && !alert.silent.series.is_empty(),
                "{name} has no case in which it is silent"
            );
            assert!(
                guide.contains(&format!("\n### {name}\n")),
                "docs/guides/alerts.md has no heading `### {name}`"
            );
            assert!(
                alert.description.contains(" Next: `"),
                "{name} names no command"
            );
        }
    }

    #[test]
    fn stored_files_are_fresh() {
        for (file, want) in files() {
            let path = step::root().join(&file);
            if cache::variable("UPDATE").is_some() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &want).unwrap();
            }
            let have = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                have == want,
                "{} is stale; `UPDATE=1 cargo test -p xtask` or `cargo xtask gen` writes it",
                file.display()
            );
        }
    }

    #[test]
    fn alerts_of_jobs_name_job_and_command() {
        let jobs = alerts();
        let jobs = jobs.iter().filter(|alert| alert.group == Group::Jobs);
        for alert in jobs.filter(|alert| !alert.name.contains("Node")) {
            let name = "{{ $labels.job_namespace }}/{{ $labels.job_name }}";
            assert!(alert.summary.contains(name), "{}", alert.name);
            let command =
                "trainyard explain {{ $labels.job_name }} --cluster -n {{ $labels.job_namespace }}";
            assert!(alert.description.contains(command), "{}", alert.name);
        }
    }

    #[test]
    fn dashboards_have_no_unknown_variable() {
        for expression in expressions() {
            let text = expression.text.replace("\"$1\"", "");
            assert!(!text.contains('$'), "{}: {text}", expression.place);
        }
    }
}
