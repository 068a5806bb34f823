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
    flops::Convention,
    profile::{self, Profile},
    rows::{Judged, Run, Table, judge},
    search::search,
    tuning::Tuning,
};

use super::{request, text};
use crate::{
    args::Plan,
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

/// Fits a profile to finished runs and prints it.
pub(super) fn learn(args: &Plan, printer: &mut Printer) -> Result<Exit, Failure> {
    let mut judged = Vec::new();
    let mut names = Vec::new();
    for path in &args.learn {
        let name = source::name(path);
        let text = content(path)?;
        if text.trim_start().starts_with('{') {
            judged.push(recorded(args, &name, &text, printer)?);
        } else {
            let table = Table::read(&text).map_err(|error| refuse(&name, &error.to_string()))?;
            judged.extend(judge(&table));
        }
        names.push(name);
    }
    let profile = profile::learn(&judged).map_err(|error| {
        refuse(&names.join(", "), &error.to_string())
            .hint("fill `iter_time_s` and the other columns that `trainyard plan --rows` reads; its `pred_note` names what a row lacks")
    })?;
    print(&profile, printer)
}

fn refuse(name: &str, why: &str) -> Failure {
    Failure::new(format!("cannot learn from `{name}`: {why}"))
}

/// The record of a finished job as a run of what the arguments describe, in the layout that they fix or that a plan advises.
fn recorded(args: &Plan, name: &str, text: &str, printer: &mut Printer) -> Result<Judged, Failure> {
    let published = profile::recorded_step(text).map_err(|error| {
        refuse(name, &error.to_string()).hint(
            "use `report.json` of a run, or the output of `trainyard status JOB --format json`, of a job that reported steps",
        )
    })?;
    let (_, request) = request::of(args).map_err(|failure| {
        failure.hint("a record does not name its model: pass `--model`, `--gpu`, `--gpus`, `--sequence`, `--batch` and the layout of the job")
    })?;
    if request.tuning != Tuning::default() {
        return Err(refuse(
            name,
            "only runs that train all weights with AdamW on the GPU can be learned from",
        ));
    }
    let found = search(&request);
    let Some(best) = found.ranked.first() else {
        return Err(refuse(
            name,
            "what the other options describe does not fit on these GPUs",
        ));
    };
    printer.summary(&format!(
        "`{name}`: a step took {published} s; taken as {}, micro-batch {}, {} recomputed",
        text::layout(&best.layout),
        best.layout.micro_batch,
        text::recompute(best.layout.recompute)
    ));
    Ok(Judged {
        row: 0,
        source: name.to_owned(),
        predicted: best.time.total(),
        run: Run {
            layout: best.layout,
            shape: request.shape,
            cluster: request.cluster,
            software: request.software,
            sequence: request.sequence,
            global_batch: request.global_batch,
            precision: request.precision,
            convention: Convention::Model,
            assumed: Vec::new(),
        },
        published,
        printed: true,
    })
}

/// Reads a profile.
pub(super) fn read(path: &Path) -> Result<Profile, Failure> {
    let name = source::name(path);
    profile::read(&content(path)?)
        .map_err(|error| Failure::new(format!("cannot use the profile `{name}`: {error}")))
}

fn content(path: &Path) -> Result<String, Failure> {
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
