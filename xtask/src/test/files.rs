//! Suites that feed files of the repository to the real binary.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{Failure, step};

/// Every file of `examples/` is free of errors and becomes objects, in both formats. Warnings are allowed: the
/// examples are demos, and leave out what a job of production has.
pub(super) fn examples(binary: &Path) -> Result<String, Failure> {
    let files = files(&step::root().join("examples"))?;
    let mut failures = Vec::new();
    for file in &files {
        let lint = call(binary, &["lint", "--format", "json"], file)?;
        if !lint.status.success() {
            failures.push(format!("`{}` has errors:\n{}", shown(file), text(&lint)));
        }
        for format in ["yaml", "json"] {
            let render = call(binary, &["render", "--format", format], file)?;
            if !render.status.success() || !render.stderr.is_empty() || render.stdout.is_empty() {
                failures.push(format!(
                    "`{}` cannot be rendered as {format}:\n{}",
                    shown(file),
                    text(&render)
                ));
            }
        }
    }
    finish(&failures, files.len())
}

/// Every file that the fuzz targets start from is answered, with whatever answer, without a crash.
pub(super) fn fuzz_seeds(binary: &Path) -> Result<String, Failure> {
    let files = files(&step::root().join("fuzz/seeds"))?;
    let mut failures = Vec::new();
    for file in &files {
        for command in ["lint", "render"] {
            let output = call(binary, &[command], file)?;
            if !matches!(output.status.code(), Some(0..=2)) {
                failures.push(format!(
                    "`trainyard {command} {}` ended with {}:\n{}",
                    shown(file),
                    output.status,
                    text(&output)
                ));
            }
        }
    }
    finish(&failures, files.len())
}

fn call(binary: &Path, words: &[&str], file: &Path) -> Result<Output, Failure> {
    Command::new(binary)
        .args(words)
        .arg(file)
        .current_dir(step::root())
        .output()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start `trainyard`: {error}")))
}

/// The files of a folder, sorted; an empty folder is a failure, since nothing would be tested.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::CouldNotRun(format!("cannot list `{}`: {error}", shown(folder)))
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_file() && path.extension().is_none_or(|extension| extension != "md") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::Failed(format!(
            "`{}` holds no file",
            shown(folder)
        )));
    }
    Ok(files)
}

fn finish(failures: &[String], count: usize) -> Result<String, Failure> {
    if failures.is_empty() {
        Ok(format!("{count} files"))
    } else {
        Err(Failure::Failed(failures.join("\n")))
    }
}

/// The path as a person in the repository would write it.
fn shown(path: &Path) -> String {
    path.strip_prefix(step::root())
        .unwrap_or(path)
        .display()
        .to_string()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
