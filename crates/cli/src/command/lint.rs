//! `trainyard lint`: every finding of every file, and the fixes that are safe.
//!
//! Files that are named together are judged together, so all are read before the first finding is
//! printed.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use serde::Serialize;
use trainyard_core::{
    finding::{Finding, Severity},
    lint::{self, ClusterFacts, Profile, Rule},
    spec,
};
use trainyard_kube::look::Look;

use super::reference::severities;
use crate::{
    args::{Against, Lint, LintFormat},
    cluster,
    failure::{Exit, Failure},
    output,
    printer::Printer,
    snippet, source,
};

mod github;
mod input;
mod sarif;

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: u32,
    findings: Vec<FileFinding<'a>>,
    summary: Summary,
}

#[derive(Debug, Serialize)]
struct FileFinding<'a> {
    file: &'a str,
    #[serde(flatten)]
    finding: &'a Finding,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Summary {
    files: usize,
    unreadable: usize,
    errors: usize,
    warnings: usize,
    fixed: usize,
}

/// One file that was opened.
struct Opened {
    path: PathBuf,
    file: String,
    /// What it holds, or why that cannot be read, with the text that this is about.
    content: Result<spec::File, (Finding, Arc<str>)>,
    /// Whether a byte order mark stood before the text.
    marked: bool,
}

/// One file and what was found in it.
struct Linted {
    file: String,
    text: Arc<str>,
    findings: Vec<Finding>,
}

/// Prints the findings, or the page of one rule.
pub(super) fn run(args: &Lint, printer: &mut Printer) -> Result<Exit, Failure> {
    if let Some(code) = &args.explain {
        return explain(code, printer);
    }
    let profile = args.profile.map(Profile::from);
    if args.list {
        return list(profile, args.format, printer);
    }
    let mut summary = Summary::default();
    let mut opened = open(args, &mut summary, printer);
    if args.fix {
        summary.fixed = fix(&mut opened, profile, printer)?;
    }
    let facts = if args.against.is_cluster() {
        Some(facts(&args.against, &opened, printer)?)
    } else {
        None
    };
    let linted = judge(&opened, profile, facts.as_ref());
    for finding in linted.iter().flat_map(|file| &file.findings) {
        match finding.severity {
            Severity::Error => summary.errors += 1,
            Severity::Warning => summary.warnings += 1,
        }
    }
    match args.format {
        LintFormat::Text => print(&linted, printer)?,
        LintFormat::Json => print_json(&linted, summary, printer)?,
        LintFormat::Sarif => printer.json(&sarif::log(&linted))?,
        LintFormat::Github => {
            for file in &linted {
                for finding in &file.findings {
                    printer.data(github::line(&file.file, finding).as_bytes())?;
                }
            }
        }
    }
    printer.flush()?;
    let passed_over = lint::passed_over(&readable(&opened));
    super::note_objects(&passed_over, "not linted", printer);
    printer.summary(&words(summary));
    Ok(match summary {
        Summary {
            unreadable: 1.., ..
        } => Exit::CouldNot,
        Summary { errors: 1.., .. } => Exit::Failed,
        _ => Exit::Done,
    })
}

/// Reads every file; those that cannot be opened are reported and counted.
fn open(args: &Lint, summary: &mut Summary, printer: &mut Printer) -> Vec<Opened> {
    let mut opened = Vec::new();
    for named in &args.files {
        let paths = input::files(named).unwrap_or_else(|failure| {
            summary.files += 1;
            summary.unreadable += 1;
            printer.error(&failure);
            Vec::new()
        });
        for path in paths {
            summary.files += 1;
            match open_one(path, printer) {
                Ok(file) => {
                    summary.unreadable += usize::from(file.content.is_err());
                    opened.push(file);
                }
                Err(failure) => {
                    summary.unreadable += 1;
                    printer.error(&failure);
                }
            }
        }
    }
    share_runtimes(&mut opened);
    opened
}

/// The runtime of a `TrainJob` may be in another file of the command.
fn share_runtimes(opened: &mut [Opened]) {
    let read = opened
        .iter_mut()
        .filter_map(|file| file.content.as_mut().ok());
    spec::share_runtimes(read.flat_map(|file| &mut file.documents));
}

fn open_one(path: PathBuf, printer: &mut Printer) -> Result<Opened, Failure> {
    let file = source::name(&path);
    let bytes = source::read(&path, spec::MAX_BYTES)?;
    let content = match spec::read(&bytes) {
        Ok(read) => {
            let count = read.documents.len();
            printer.note(&format!("read `{file}`: {}", counted(count, "document")));
            Ok(read)
        }
        Err(finding) => Err((finding, spec::source_text(&bytes).into())),
    };
    Ok(Opened {
        path,
        file,
        content,
        marked: bytes.starts_with(BYTE_ORDER_MARK.as_bytes()),
    })
}

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Writes the safe fixes into the files; how many there were.
fn fix(
    opened: &mut [Opened],
    profile: Option<Profile>,
    printer: &mut Printer,
) -> Result<usize, Failure> {
    let mut count = 0;
    let fixable: Vec<bool> = judge(opened, profile, None)
        .iter()
        .map(|linted| linted.findings.iter().any(|finding| finding.fix.is_some()))
        .collect();
    for (at, _) in fixable.iter().enumerate().filter(|(_, fixable)| **fixable) {
        let Some((before, rest)) = opened.split_at_mut_checked(at) else {
            break;
        };
        let Some((this, after)) = rest.split_first_mut() else {
            break;
        };
        let Ok(file) = &this.content else { continue };
        let others: Vec<&spec::File> = before
            .iter()
            .chain(after.iter())
            .filter_map(|other| other.content.as_ref().ok())
            .collect();
        let Some(fixed) = lint::fix(file, &others, profile) else {
            continue;
        };
        if source::is_stdin(&this.path) {
            return Err(Failure::new("`--fix` cannot write to stdin").hint("pass the file by name"));
        }
        let mark = if this.marked { BYTE_ORDER_MARK } else { "" };
        let text = format!("{mark}{}", fixed.text);
        output::write(&this.path, text.as_bytes())
            .with_context(|| format!("cannot write the fixes to `{}`", this.file))?;
        for finding in &fixed.findings {
            let line = finding.span.line;
            printer.note(&format!(
                "fixed {} in `{}`, line {line}",
                finding.code, this.file
            ));
        }
        count += fixed.findings.len();
        if let Ok(read) = spec::read(fixed.text.as_bytes()) {
            this.content = Ok(read);
            share_runtimes(opened);
        }
    }
    Ok(count)
}

/// What the cluster has that the jobs may need. Objects without read permission are reported, and not checked.
fn facts(
    against: &Against,
    opened: &[Opened],
    printer: &mut Printer,
) -> Result<ClusterFacts, Failure> {
    let server = against.server.clone();
    let look = Look::connect(server.kubeconfig, server.context).map_err(cluster::refused)?;
    let namespace = against.namespace.as_deref().unwrap_or(look.namespace());
    let needed = lint::namespaces(&readable(opened), namespace);
    let read = look.lint_facts(namespace, &needed);
    let (facts, unread) = read.map_err(cluster::refused)?;
    for error in unread {
        printer.summary(&format!(
            "warning: {error}; checks that need them are skipped"
        ));
    }
    Ok(facts)
}

fn readable(opened: &[Opened]) -> Vec<&spec::File> {
    let files = opened.iter();
    files
        .filter_map(|file| file.content.as_ref().ok())
        .collect()
}

fn judge(
    opened: &[Opened],
    profile: Option<Profile>,
    cluster: Option<&ClusterFacts>,
) -> Vec<Linted> {
    let readable = readable(opened);
    let mut reviewed = match cluster {
        Some(cluster) => lint::review_in(&readable, profile, cluster),
        None => lint::review(&readable, profile),
    }
    .into_iter();
    opened
        .iter()
        .map(|opened| {
            let (text, findings) = match &opened.content {
                Ok(file) => (Arc::clone(&file.text), reviewed.next().unwrap_or_default()),
                Err((finding, text)) => (Arc::clone(text), vec![finding.clone()]),
            };
            Linted {
                file: opened.file.clone(),
                text,
                findings,
            }
        })
        .collect()
}

fn print(linted: &[Linted], printer: &mut Printer) -> Result<(), Failure> {
    for file in linted {
        for finding in &file.findings {
            let block = snippet::render(finding, &file.file, &file.text, printer.stdout_paint());
            printer.data(block.as_bytes())?;
        }
    }
    Ok(())
}

fn print_json(linted: &[Linted], summary: Summary, printer: &mut Printer) -> Result<(), Failure> {
    let findings = linted
        .iter()
        .flat_map(|file| {
            file.findings.iter().map(|finding| FileFinding {
                file: &file.file,
                finding,
            })
        })
        .collect();
    let report = Report {
        version: 1,
        findings,
        summary,
    };
    printer.json(&report)
}

/// One rule in the JSON form of `--list`. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct Listed {
    code: &'static str,
    title: &'static str,
    demo: Option<Severity>,
    production: Severity,
}

/// Every rule that `profile` checks, and without one every rule.
fn list(
    profile: Option<Profile>,
    format: LintFormat,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let checked = |rule: &&Rule| profile.is_none_or(|profile| rule.severity(profile).is_some());
    let rules = lint::rules().filter(checked);
    match format {
        LintFormat::Text => {
            for rule in rules {
                let demo = rule
                    .demo
                    .map_or_else(|| "-".to_owned(), |it| it.to_string());
                let severity = match profile.and_then(|profile| rule.severity(profile)) {
                    Some(severity) => severity.to_string(),
                    None if rule.demo == Some(rule.production) => demo,
                    None => format!("{demo}/{}", rule.production),
                };
                let line = format!("{}  {severity:15}  {}\n", rule.code, rule.title);
                printer.data(line.as_bytes())?;
            }
        }
        LintFormat::Json => {
            let rules: Vec<Listed> = rules
                .map(|rule| Listed {
                    code: rule.code,
                    title: rule.title,
                    demo: rule.demo,
                    production: rule.production,
                })
                .collect();
            printer.json(&serde_json::json!({"version": 1, "rules": rules}))?;
        }
        LintFormat::Sarif | LintFormat::Github => {
            return Err(Failure::new("`--list` has the formats `text` and `json`")
                .hint("leave `--format` out"));
        }
    }
    printer.flush()?;
    Ok(Exit::Done)
}

fn explain(code: &str, printer: &mut Printer) -> Result<Exit, Failure> {
    let wanted = code.trim().to_ascii_uppercase();
    let digits = wanted.strip_prefix("TY").unwrap_or(&wanted);
    let Some(rule) = lint::rule(&format!("TY{digits}")) else {
        let hint = "`trainyard lint --list` prints all rules; findings show their code in brackets";
        return Err(Failure::new(format!("unknown rule `{code}`")).hint(hint));
    };
    printer.data(page(rule).as_bytes())?;
    Ok(Exit::Done)
}

fn page(rule: &Rule) -> String {
    format!(
        "{}: {}\n{}\n\n{}\n",
        rule.code,
        rule.title,
        severities(rule).to_lowercase(),
        rule.explanation.trim()
    )
}

fn words(summary: Summary) -> String {
    let found = match (summary.errors, summary.warnings) {
        (0, 0) => "no findings".to_owned(),
        (errors, 0) => counted(errors, "error"),
        (0, warnings) => counted(warnings, "warning"),
        (errors, warnings) => {
            format!(
                "{}, {}",
                counted(errors, "error"),
                counted(warnings, "warning")
            )
        }
    };
    let found = match summary.fixed {
        0 => found,
        fixed => format!("{fixed} fixed, {found}"),
    };
    let files = counted(summary.files, "file");
    match summary.unreadable {
        0 => format!("{found} in {files}"),
        unreadable => format!("{found}; {unreadable} of {files} could not be read"),
    }
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries() {
        let cases = [
            ((1, 0, 0, 0), "no findings in 1 file"),
            ((2, 0, 1, 0), "1 error in 2 files"),
            ((1, 0, 0, 2), "2 warnings in 1 file"),
            ((1, 0, 2, 1), "2 errors, 1 warning in 1 file"),
            ((2, 1, 0, 0), "no findings; 1 of 2 files could not be read"),
        ];
        for ((files, unreadable, errors, warnings), want) in cases {
            assert_eq!(
                words(Summary {
                    files,
                    unreadable,
                    errors,
                    warnings,
                    fixed: 0,
                }),
                want
            );
        }
    }
}
