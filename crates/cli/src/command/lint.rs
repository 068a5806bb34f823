//! `trainyard lint`: every finding of every file.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use serde::Serialize;
use trainyard_core::{
    finding::{Finding, Severity},
    lint::{self, Rule},
    spec,
};

use crate::{
    args::{Lint, LintFormat},
    failure::{Exit, Failure},
    printer::Printer,
    snippet, source,
};

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
    let mut summary = Summary::default();
    let mut linted = Vec::new();
    for path in &args.files {
        summary.files += 1;
        match lint_file(path, &mut summary, printer) {
            Ok(file) if args.format == LintFormat::Text => print(&file, printer)?,
            Ok(file) => linted.push(file),
            Err(failure) => {
                summary.unreadable += 1;
                printer.error(&failure);
            }
        }
    }
    if args.format == LintFormat::Json {
        print_json(&linted, summary, printer)?;
    }
    printer.flush()?;
    printer.summary(&words(summary));
    Ok(match summary {
        Summary {
            unreadable: 1.., ..
        } => Exit::CouldNot,
        Summary { errors: 1.., .. } => Exit::Failed,
        _ => Exit::Done,
    })
}

fn lint_file(path: &Path, summary: &mut Summary, printer: &mut Printer) -> Result<Linted, Failure> {
    let file = source::name(path);
    let bytes = source::read(path, spec::MAX_BYTES)?;
    let (text, findings) = match spec::read(&bytes) {
        Ok(read) => {
            let count = read.documents.len();
            printer.note(&format!("read `{file}`: {}", counted(count, "document")));
            let findings = lint::lint(&read);
            (read.text, findings)
        }
        Err(finding) => {
            summary.unreadable += 1;
            (spec::source_text(&bytes).into(), vec![finding])
        }
    };
    for finding in &findings {
        match finding.severity {
            Severity::Error => summary.errors += 1,
            Severity::Warning => summary.warnings += 1,
        }
    }
    Ok(Linted {
        file,
        text,
        findings,
    })
}

fn print(linted: &Linted, printer: &mut Printer) -> Result<(), Failure> {
    for finding in &linted.findings {
        let block = snippet::render(finding, &linted.file, &linted.text, printer.stdout_paint());
        printer.data(block.as_bytes())?;
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
    let mut json =
        serde_json::to_vec_pretty(&report).context("cannot write the findings as JSON")?;
    json.push(b'\n');
    printer.data(&json)
}

fn explain(code: &str, printer: &mut Printer) -> Result<Exit, Failure> {
    let wanted = code.to_ascii_uppercase();
    let Some(rule) = lint::rule(&wanted) else {
        let hint =
            "docs/reference/lint-rules.md lists all of them; a finding shows its code in brackets";
        return Err(Failure::new(format!("there is no rule `{code}`")).hint(hint));
    };
    printer.data(page(rule).as_bytes())?;
    Ok(Exit::Done)
}

fn page(rule: &Rule) -> String {
    format!(
        "{}: {}\nseverity: {}\n\n{}\n",
        rule.code,
        rule.title,
        rule.severity,
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
                    warnings
                }),
                want
            );
        }
    }
}
