//! `run --detach`: the engine runs as a process of its own, without this terminal.
//!
//! This program starts itself again with the same words and one more. What the engine has to say until the
//! first decision about the job is stored goes to the terminal, so that a file with a mistake is refused
//! here; then it prints its name and closes all streams.

use std::{
    ffi::OsString,
    io::Read as _,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use trainyard_host::{RunEvent, RunRequest, StopHandle, detach};

use super::refused;
use crate::{
    args::{Format, Run},
    failure::{Exit, Failure},
    printer::Printer,
};

/// The word that makes `run` the engine of a detached run.
const ENGINE: &str = "--detached-engine";
/// Longest word of an engine.
const MAX_READY: u64 = 64 << 10;

/// What the engine says when it runs. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    version: u32,
    job: String,
    run_id: String,
    folder: String,
    pid: u32,
}

/// Starts the engine and returns when it runs.
pub(super) fn start(args: &Run, printer: &mut Printer) -> Result<Exit, Failure> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let at = words.iter().position(|word| word == "run");
    words.insert(at.map_or(0, |at| at + 1), ENGINE.into());
    let mut engine = Command::new(program)
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the engine")?;
    let mut text = String::new();
    if let Some(stdout) = engine.stdout.take() {
        stdout
            .take(MAX_READY)
            .read_to_string(&mut text)
            .context("cannot read the engine's reply")?;
    }
    let Ok(ready) = serde_json::from_str::<Ready>(&text) else {
        // It has said why.
        let ended = engine.wait().context("cannot wait for the engine")?;
        return Ok(match ended.code() {
            Some(1) => Exit::Failed,
            _ => Exit::CouldNot,
        });
    };
    let job = &ready.job;
    match args.format {
        Format::Json => printer.data(text.as_bytes())?,
        Format::Text => printer.data(format!("{job} {}\n", ready.run_id).as_bytes())?,
    }
    printer.summary(&format!(
        "job `{job}` runs in process {}\n  trainyard attach {job}   return to it\n  \
         trainyard status {job}   show its state\n  trainyard stop {job}     stop it",
        ready.pid
    ));
    Ok(Exit::Done)
}

/// Runs the job as the engine of a detached run.
pub(super) fn engine(request: &RunRequest, printer: &mut Printer) -> Result<Exit, Failure> {
    detach::new_session().context("cannot create a session")?;
    let stop = StopHandle::new().context("cannot create the stop channel of the run")?;
    stop.listen_to_signals()
        .context("cannot install signal handlers")?;
    let mut ready = None;
    let mut left = false;
    let ended = trainyard_host::run(request, &stop, &mut |event| match event {
        RunEvent::Prepared { run_id, folder, .. } => {
            ready = Some(Ready {
                version: 1,
                job: request.job.name.to_string(),
                run_id,
                folder: folder.display().to_string(),
                pid: std::process::id(),
            });
        }
        RunEvent::Note(note) if !left => printer.summary(&format!("note: {note}")),
        RunEvent::Status(_) if !left => {
            left = true;
            let mut line = serde_json::to_vec(&ready).unwrap_or_default();
            line.push(b'\n');
            // The parent may be gone already; the job continues.
            drop(printer.data(&line).and_then(|()| printer.flush()));
            drop(detach::leave_streams());
        }
        _ => {}
    });
    ended.map_err(refused)?;
    Ok(Exit::Done)
}
