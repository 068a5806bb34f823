//! `trainyard plan --calibrate`, `--learn` and `--profile`: what a machine was measured to reach, as a file.
//!
//! Owns starting the user's Python with the script that the program carries; what its figures mean is
//! `core::plan::profile`.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use trainyard_core::plan::{
    profile::{self, Profile},
    rows::{Table, judge},
};

use crate::{
    failure::{Exit, Failure},
    printer::Printer,
    source,
};

/// What is started with the user's Python.
const SCRIPT: &str = include_str!("calibrate.py");
/// Longest file that is read.
const LIMIT: usize = 64 << 20;

/// Measures this machine's GPU and prints the profile.
pub(super) fn calibrate(python: &str, printer: &mut Printer) -> Result<Exit, Failure> {
    printer.note("measuring matrix products, attention and memory on this machine's first GPU; this takes about a minute");
    let output = run_script(python)?;
    let measured = profile::measured(&output)
        .map_err(|error| Failure::new(format!("`{python}` printed no measurement: {error}")))?;
    let profile = profile::calibrate(&measured).map_err(|error| {
        Failure::new(format!("cannot fit a profile to the measurement: {error}"))
    })?;
    print(&profile, printer)
}

/// Fits a profile to a table of finished runs and prints it.
pub(super) fn learn(path: &Path, printer: &mut Printer) -> Result<Exit, Failure> {
    let name = source::name(path);
    let refuse = |why: String| Failure::new(format!("cannot learn from `{name}`: {why}"));
    let table = Table::read(&text(path)?).map_err(|error| refuse(error.to_string()))?;
    let profile = profile::learn(&judge(&table)).map_err(|error| {
        refuse(error.to_string())
            .hint("fill `iter_time_s` and the other columns that `trainyard plan --rows` reads; its `pred_note` names what a row lacks")
    })?;
    print(&profile, printer)
}

/// Reads a profile.
pub(super) fn read(path: &Path) -> Result<Profile, Failure> {
    let name = source::name(path);
    profile::read(&text(path)?)
        .map_err(|error| Failure::new(format!("cannot use the profile `{name}`: {error}")))
}

fn text(path: &Path) -> Result<String, Failure> {
    let name = source::name(path);
    let bytes = source::read(path, LIMIT)?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(format!("cannot read `{name}`: it is not UTF-8")))
}

fn print(profile: &Profile, printer: &mut Printer) -> Result<Exit, Failure> {
    let json = serde_json::to_string_pretty(profile).map_err(anyhow::Error::from)?;
    printer.data(format!("{json}\n").as_bytes())?;
    printer.summary(&format!(
        "{}: large matrix products reach {:.0} % of the bf16 peak; the fit is {:.1} % off ({}); pass the file to `trainyard plan --profile`",
        profile.gpu,
        100.0 * profile.rates.share,
        100.0 * profile.median_error,
        profile.from
    ));
    Ok(Exit::Done)
}

/// Standard output of the script. What it says on standard error is its reason to refuse.
fn run_script(python: &str) -> Result<String, Failure> {
    let failed = |why: String| {
        Failure::new(format!("cannot calibrate: {why}")).hint(
            "run it on a machine with a GPU, with `--python` naming a Python that has PyTorch",
        )
    };
    let mut child = Command::new(python)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("`{python}` did not start: {error}")))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that reads nothing closes its end; its exit says why.
        input.write_all(SCRIPT.as_bytes()).unwrap_or_default();
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(format!("`{python}` did not finish: {error}")))?;
    if output.status.success() {
        return String::from_utf8(output.stdout)
            .map_err(|_| failed(format!("`{python}` output something that is not UTF-8")));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(failed(match last {
        Some(line) => line.trim().chars().take(200).collect(),
        None => format!("`{python}` ended with {}", output.status),
    }))
}
