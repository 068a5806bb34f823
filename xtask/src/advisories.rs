//! `cargo xtask advisories`: the locked crates held against the advisories of `RustSec`.
//!
//! The database is a git repository that no package registry carries, so it is never fetched here: whoever has a
//! copy names it. Without one, nothing is known about advisories, and the step says exactly that.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Failure, cache, step};

/// Names the folder of the database.
const DATABASE: &str = "TRAINYARD_ADVISORY_DB";

/// What is known after the step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No advisory holds for a locked version.
    Clean,
    /// Nothing was checked, and why.
    NotChecked(String),
}

/// Checks, and fails where nothing could be checked.
pub(crate) fn run(folder: Option<&str>) -> Result<(), Failure> {
    match check(folder)? {
        Outcome::Clean => {
            println!("no advisory holds for a locked crate");
            Ok(())
        }
        Outcome::NotChecked(why) => Err(Failure::CouldNotRun(why)),
    }
}

/// Checks with the database of `folder`, or of the variable.
pub(crate) fn check(folder: Option<&str>) -> Result<Outcome, Failure> {
    let named = folder
        .map(PathBuf::from)
        .or_else(|| cache::variable(DATABASE).map(PathBuf::from));
    let Some(database) = named else {
        return Ok(Outcome::NotChecked(format!(
            "no advisory database: set `{DATABASE}` to a checkout of RustSec's `advisory-db`"
        )));
    };
    if !database.join("crates").is_dir() {
        return Err(Failure::CouldNotRun(format!(
            "`{}` has no folder `crates`, so it is not an advisory database",
            database.display()
        )));
    }
    step::need_cargo_tool("audit", "run `cargo install cargo-audit --locked`")?;
    step::run(&mut audit(&database))?;
    Ok(Outcome::Clean)
}

/// `cargo audit` on the locked crates; crates that are unmaintained or unsound count, too.
fn audit(database: &Path) -> Command {
    let mut command = step::cargo(&["audit", "--no-fetch", "--deny", "warnings"]);
    command.arg("--db").arg(database);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_without_database_is_refused() {
        let folder = step::root().join("docs");
        let Err(Failure::CouldNotRun(message)) = check(folder.to_str()) else {
            panic!("a refusal was expected");
        };
        assert!(message.contains("has no folder `crates`"), "{message}");
    }
}
