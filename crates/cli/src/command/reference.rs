//! `trainyard reference`: the pages of `docs/reference/` that the program knows best itself.
//!
//! Hidden from help: only `cargo xtask gen` calls it.

use std::fmt::Write as _;

use trainyard_core::{diagnose, lint, probe};

use crate::{
    args::{self, Page, Reference},
    failure::{Exit, Failure},
    preflight,
    printer::Printer,
};

/// The first line of every generated page.
const NOTICE: &str = "<!-- Written by `cargo xtask gen`. Do not edit. -->\n";

/// Prints the page.
pub(super) fn run(args: &Reference, printer: &mut Printer) -> Result<Exit, Failure> {
    let page = match args.page {
        Page::Cli => cli(),
        Page::LintRules => lint_rules(),
        Page::DoctorRules => doctor_rules(),
        Page::PreflightChecks => preflight_checks(),
    };
    printer.data(page.as_bytes())?;
    Ok(Exit::Done)
}

/// The long help of the program and of every command that is not hidden.
fn cli() -> String {
    // Without a fixed width the page would depend on the terminal that wrote it.
    let mut definition = args::definition().term_width(100);
    definition.build();
    let mut page = format!("{NOTICE}# Command line\n");
    section(&mut page, &mut definition.clone(), "trainyard");
    for command in definition
        .get_subcommands_mut()
        .filter(|command| !command.is_hide_set())
    {
        let name = format!("trainyard {}", command.get_name());
        section(&mut page, command, &name);
        for nested in command.get_subcommands_mut() {
            let name = format!("{name} {}", nested.get_name());
            section(&mut page, nested, &name);
        }
    }
    page
}

fn section(page: &mut String, command: &mut clap::Command, name: &str) {
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let help = lines.join("\n");
    write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", help.trim())
        .expect("a string takes whatever is written");
}

fn lint_rules() -> String {
    let mut page = format!(
        "{NOTICE}# Lint rules\n\nEvery finding has one of these codes. Codes are stable and never \
         reused. `trainyard lint --explain CODE` prints the same text.\n"
    );
    for rule in lint::rules() {
        write!(
            page,
            "\n## {}: {}\n\n{}.\n\n{}\n",
            rule.code,
            rule.title,
            severities(rule),
            rule.explanation.trim()
        )
        .expect("a string takes whatever is written");
    }
    page
}

/// How bad a finding of the rule is, as a sentence without its point.
pub(super) fn severities(rule: &lint::Rule) -> String {
    match rule.demo {
        Some(demo) if demo == rule.production => format!("Severity: {demo}"),
        Some(demo) => format!(
            "Severity: {demo} in a demo, {} in production",
            rule.production
        ),
        None => format!("Severity: {} in production, off in a demo", rule.production),
    }
}

fn doctor_rules() -> String {
    let rules = diagnose::Rules::builtin();
    let mut page = format!(
        "{NOTICE}# Doctor labels and rules\n\nLabels are stable and never \
         reused. `--rules FILE` adds labels and rules in the format of \
         `crates/core/src/diagnose/rules.toml`; an entry with a built-in name replaces the built-in one.\n"
    );
    let put = |page: &mut String, part: String| page.push_str(&part);
    for label in rules.labels() {
        let account = diagnose::account_word(label.account);
        put(
            &mut page,
            format!(
                "\n## `{}`\n\n{}. Account: {account}.\n\nRefuted by: {}.\n\nNext: {}.\n",
                label.name, label.sentence, label.refuted_by, label.next
            ),
        );
        let speaking = rules
            .rules()
            .iter()
            .filter(|rule| rule.label.as_deref() == Some(&label.name));
        let mut first = true;
        for rule in speaking {
            if std::mem::take(&mut first) {
                page.push_str("\n| rule | matches | from |\n|---|---|---|\n");
            }
            let literals: Vec<String> = rule
                .any
                .iter()
                .take(4)
                .map(|literal| format!("`{}`", literal.replace('|', "\\|")))
                .collect();
            let more = if rule.any.len() > 4 { ", …" } else { "" };
            put(
                &mut page,
                format!(
                    "| `{}` | {}{more} | {} |\n",
                    rule.id,
                    literals.join(", "),
                    rule.reference.replace('|', "\\|")
                ),
            );
        }
    }
    page
}

fn preflight_checks() -> String {
    let mut page = format!(
        "{NOTICE}# Preflight checks\n\nNames are stable and never reused. The owner is who can usually \
         fix it; a check may name another.\n\n| layer | check | examines | owner |\n|---|---|---|---|\n"
    );
    for entry in probe::CATALOGUE {
        let (layer, owner) = (preflight::layer(entry.layer), preflight::owner(entry.owner));
        let row = format!(
            "| {layer} | `{}` | {} | {owner} |\n",
            entry.name, entry.about
        );
        page.push_str(&row);
    }
    page
}
