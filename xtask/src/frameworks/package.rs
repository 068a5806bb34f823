//! The Python package of the tree, tried as users have it: built into a wheel, installed, imported.
//!
//! The wheel goes into a folder of its own, which `PYTHONPATH` names. No environment of the cache is changed, so nobody else
//! meets the package of this tree.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    RESUMED, Trial, named,
    suite::{Call, Scratch, finish_group},
};
use crate::{Failure, cache::cannot, report, step};

/// What the suite calls it.
pub(super) const FRAMEWORK: &str = "checkpoint";

/// The folder with tests that need `PyTorch` and nothing else.
const TESTS: &str = "crates/python/tests";

/// Lines of failed tests that are shown.
const SHOWN_LINES: usize = 60;

/// The examples that save through the package.
const TRIALS: [Trial; 2] = [trial("checkpoint.yaml"), trial("dcp.yaml")];

const fn trial(file: &'static str) -> Trial {
    Trial {
        file,
        fault: "kill rank=1 at=step:100",
        resumed: RESUMED,
        gang: true,
    }
}

/// Builds the wheel, runs its tests and its examples. How many runs of the examples there were, and what is wrong.
pub(super) fn run(binary: &Path) -> Result<(usize, Vec<String>), Failure> {
    let environment = named(FRAMEWORK).environment()?;
    let pytorch = named("pytorch").environment()?;
    let (folder, packages) = built()?;
    let mut wrong = Vec::new();
    for tests in test_files()? {
        let began = Instant::now();
        match test(binary, &environment, &packages, &folder, TESTS, &tests)? {
            None => report::progress(&format!(
                "{TESTS}/{tests}: {}",
                report::seconds(began.elapsed())
            )),
            Some(complaint) => wrong.push(complaint),
        }
    }
    let mut ran = 0;
    for trial in &TRIALS {
        for fault in [None, Some(trial.fault)] {
            let call = Call {
                binary,
                framework: named("pytorch"),
                environment: &pytorch,
                trial,
                fault,
                packages: Some(&packages),
            };
            match call.run() {
                Ok(ended) => report::progress(&format!("{call}: {}", report::seconds(ended.time))),
                Err(Failure::Failed(message)) => wrong.push(format!("{call}: {message}")),
                Err(other) => return Err(other),
            }
            ran += 1;
        }
    }
    Ok((ran, wrong))
}

/// Builds the wheel. The folder for what comes of it, beside what is built since the scratch folder of a run goes with the run, and
/// the one with the package.
pub(super) fn built() -> Result<(PathBuf, PathBuf), Failure> {
    let folder = step::root().join("target/python-package");
    let packages = install(&named(FRAMEWORK).environment()?, &folder, &[])?;
    Ok((folder, packages))
}

/// Builds the wheel as users have it and installs it into a folder, which it returns.
pub(super) fn released() -> Result<PathBuf, Failure> {
    let folder = step::root().join("target/python-package-released");
    install(&named(FRAMEWORK).environment()?, &folder, &["--release"])
}

/// Builds the wheel and installs it into a folder, which it returns.
fn install(environment: &Path, folder: &Path, more: &[&str]) -> Result<PathBuf, Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(cannot("remove", folder))?;
    }
    let (wheels, packages) = (folder.join("wheels"), folder.join("packages"));
    step::run(
        Command::new(environment.join("bin/maturin"))
            .args(["build", "--quiet", "--locked", "--auditwheel", "skip"])
            .args(["--manifest-path", "crates/python/Cargo.toml", "--out"])
            .arg(&wheels)
            .args(more)
            .current_dir(step::root()),
    )?;
    let mut built = fs::read_dir(&wheels).map_err(cannot("list", &wheels))?;
    let wheel = built
        .find_map(Result::ok)
        .ok_or_else(|| Failure::Failed("maturin built no wheel".to_owned()))?;
    step::run(
        Command::new(environment.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"])
            .args(["--disable-pip-version-check", "--target"])
            .arg(&packages)
            .arg(wheel.path())
            // With compiled files, as users have them.
            .env_remove("PYTHONDONTWRITEBYTECODE"),
    )?;
    Ok(packages)
}

/// The files with tests, by name.
fn test_files() -> Result<Vec<String>, Failure> {
    let folder = step::root().join(TESTS);
    let entries = fs::read_dir(&folder).map_err(cannot("list", &folder))?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            name.starts_with("test_") && Path::new(name).extension().is_some_and(|end| end == "py")
        })
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(Failure::Failed(format!(
            "`{}` has no tests",
            folder.display()
        )));
    }
    Ok(names)
}

/// Runs the tests of one file; what is wrong, with the last lines.
pub(super) fn test(
    binary: &Path,
    environment: &Path,
    packages: &Path,
    folder: &Path,
    directory: &str,
    tests: &str,
) -> Result<Option<String>, Failure> {
    let output = folder.join(format!("{tests}.log"));
    let log = File::create(&output).map_err(cannot("make", &output))?;
    let scratch = Scratch::new()?;
    let mut command = Command::new(environment.join("bin/python"));
    command
        .args(["-m", "unittest", "discover", "--start-directory"])
        .args([directory, "--pattern", tests])
        .current_dir(step::root())
        .env("PYTHONPATH", packages)
        // What converts checkpoints is tried against torch.
        .env("TRAINYARD_BINARY", binary)
        // Nothing is written into the tree.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Processes of a test that hang are killed with it.
        .process_group(0)
        .env("TMPDIR", &scratch.0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(cannot("write", &output))?)
        .stderr(log);
    let complaint = match finish_group(&mut command)? {
        Some(true) => return Ok(None),
        Some(false) => "failed",
        None => "did not end in time",
    };
    let text = fs::read_to_string(&output).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(SHOWN_LINES)..);
    Ok(Some(format!(
        "{directory}/{tests} {complaint}\n{}\n",
        last.unwrap_or_default().join("\n")
    )))
}
