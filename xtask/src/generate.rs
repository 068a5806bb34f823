//! `cargo xtask gen`: the reference pages that the program writes about itself.
//!
//! Invariant: a page is either written by hand or listed here, never both, so that nothing a
//! person wrote is overwritten.

use std::fs;

use crate::{Failure, step};

/// Whether pages are written or compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write them.
    Write,
    /// Fail where one differs from what would be written.
    Check,
}

/// Each page, and the word after `trainyard reference` that prints it.
const PAGES: &[(&str, &str)] = &[
    ("docs/reference/cli.md", "cli"),
    ("docs/reference/lint-rules.md", "lint-rules"),
];

/// Writes or compares every page.
pub(crate) fn run(mode: Mode) -> Result<(), Failure> {
    let mut stale = Vec::new();
    for (page, word) in PAGES {
        let want = step::capture(&mut step::cargo(&[
            "run",
            "--quiet",
            "--locked",
            "--package",
            "trainyard",
            "--",
            "reference",
            word,
        ]))?;
        let path = step::root().join(page);
        let have = fs::read_to_string(&path).unwrap_or_default();
        if have == want {
            continue;
        }
        match mode {
            Mode::Check => stale.push(*page),
            Mode::Write => {
                fs::write(&path, want).map_err(|error| {
                    Failure::CouldNotRun(format!("cannot write `{page}`: {error}"))
                })?;
                println!("wrote {page}");
            }
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "stale: {}\n\nhint: run `cargo xtask gen` and commit what it writes",
            stale.join(", ")
        )))
    }
}
