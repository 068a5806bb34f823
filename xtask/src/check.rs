//! `cargo xtask check`: everything about the source that needs no run of the program.

use std::time::Instant;

use crate::{Failure, advisories, generate, layers, page, report, step, words};

/// One step: its name and its work.
type Step = (&'static str, fn() -> Result<(), Failure>);

/// Every step, in the order in which a person would want to see a failure.
const STEPS: &[Step] = &[
    ("formatting", formatting),
    ("lints", lints),
    ("layers", layers::run),
    ("words", words::run),
    ("page", page::is_fresh),
    ("documentation", documentation),
    ("generated files", generated),
];

/// The steps that the quick tests begin with: what is left out builds every crate once more, with other features.
const QUICK: &[&str] = &["formatting", "lints", "layers", "words", "page"];

/// Which steps are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them, and the advisories.
    All,
    /// Those of [`QUICK`].
    Quick,
}

/// Runs the steps, also after one failed, and prints how each ended.
pub(crate) fn run(scope: Scope) -> Result<(), Failure> {
    let mut rows = vec![["step", "outcome", "time"].map(str::to_owned).to_vec()];
    let mut failed = Vec::new();
    let mut absent = Vec::new();
    let steps = STEPS
        .iter()
        .filter(|(name, _)| scope == Scope::All || QUICK.contains(name));
    for (name, work) in steps {
        report::progress(name);
        let start = Instant::now();
        let outcome = work();
        let word = match &outcome {
            Ok(()) => "passed",
            Err(Failure::Reported) => {
                failed.push(*name);
                "failed"
            }
            Err(Failure::Failed(message)) => {
                report::error(message);
                failed.push(*name);
                "failed"
            }
            Err(Failure::CouldNotRun(message)) => {
                report::error(message);
                absent.push(format!("{name}: {message}"));
                "could not run"
            }
        };
        rows.push(vec![
            (*name).to_owned(),
            word.to_owned(),
            report::seconds(start.elapsed()),
        ]);
    }
    if scope == Scope::All {
        let start = Instant::now();
        let word = advised(&mut failed);
        let time = report::seconds(start.elapsed());
        rows.push(vec!["advisories".to_owned(), word.to_owned(), time]);
    }
    println!("{}", report::table(&rows));
    if !failed.is_empty() {
        return Err(Failure::Failed(format!("failed: {}", failed.join(", "))));
    }
    if !absent.is_empty() {
        return Err(Failure::CouldNotRun(absent.join("; ")));
    }
    Ok(())
}

/// How the check of the advisories ended.
fn advised(failed: &mut Vec<&'static str>) -> &'static str {
    match advisories::check(None) {
        Ok(advisories::Outcome::Clean) => "passed",
        // The database comes from no package registry, so a machine without one can still pass.
        Ok(advisories::Outcome::NotChecked(why)) => {
            report::progress(&format!("advisories are not checked: {why}"));
            "not checked"
        }
        Err(Failure::Failed(message) | Failure::CouldNotRun(message)) => {
            report::error(&message);
            failed.push("advisories");
            "failed"
        }
        Err(Failure::Reported) => {
            failed.push("advisories");
            "failed"
        }
    }
}

fn formatting() -> Result<(), Failure> {
    step::need_cargo_tool("fmt", "run `rustup component add rustfmt`")?;
    step::run(&mut step::cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> Result<(), Failure> {
    step::need_cargo_tool("clippy", "run `rustup component add clippy`")?;
    step::run(&mut step::cargo(&[
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))
}

fn documentation() -> Result<(), Failure> {
    step::run(
        step::cargo(&[
            "doc",
            "--locked",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "--deny warnings"),
    )
}

fn generated() -> Result<(), Failure> {
    generate::run(generate::Mode::Check)
}
