//! Commands that are not for people: pods of a local run start this program again, pods of an
//! `MPIJob` on a cluster have it in place of ssh, training containers have it as their first process, and pods of a preflight
//! measure with each other.
//!
//! They are dispatched before arguments are parsed and the environment is read, because every run
//! waits for one and every rank of `mpirun` for another.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::SIGTERM;
use trainyard_agent::Settings;
use trainyard_core::launch::agent::REMOTE_SHELLS;

use crate::{
    environment,
    failure::Failure,
    paint::Paint,
    printer::{Printer, Verbosity},
};

/// Runs the hidden command that `words` name, where they name one. The first is what this program was
/// called by.
pub(crate) fn dispatch(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let called = words.next()?;
    let name = Path::new(&called).file_name().and_then(OsStr::to_str);
    if name.is_some_and(|name| REMOTE_SHELLS.contains(&name)) {
        return Some(remote_shell(words));
    }
    match words.next()?.to_str()? {
        "pod-init" => trainyard_host::pod_init_main(),
        "pod-exec" => trainyard_host::pod_exec_main(words.collect()),
        "smoke-trainer" => Some(smoke_trainer(words)),
        "agent" => Some(agent(words)),
        "supervise" => Some(supervise(words)),
        "preflight" if words.next()? == "--serve" => Some(preflight_member()),
        _ => None,
    }
}

/// `agent install FOLDER`, `agent serve [-- COMMAND…]`, `agent rsh ARGUMENT…`.
fn agent(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let command = words.next().unwrap_or_default();
    match command.to_str() {
        Some("install") => {
            let folder = words.next().unwrap_or_default();
            let done = env::current_exe()
                .map_err(anyhow::Error::new)
                .and_then(|program| {
                    trainyard_agent::install(&program, Path::new(&folder)).map_err(Into::into)
                });
            match done {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => cannot(&error.into()),
            }
        }
        Some("serve") => {
            let beside: Vec<OsString> = words.skip_while(|word| word == "--").collect();
            let served = Settings::read(&environment::lookup)
                .map_err(anyhow::Error::new)
                .and_then(|settings| {
                    trainyard_agent::serve(&settings, &beside).map_err(Into::into)
                });
            match served {
                Ok(code) => exit_code(code),
                Err(error) => cannot(&error.into()),
            }
        }
        Some("rsh") => remote_shell(words),
        _ => cannot(&Failure::new(format!(
            "unknown command `{}` of `agent`; expected `install`, `serve` or `rsh`",
            command.display()
        ))),
    }
}

/// `supervise -- COMMAND [ARGUMENT]…`, the first process of a training container; `supervise --stacks POD [--native] [--rank N]…`, what its ranks
/// do.
fn supervise(words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words = words.peekable();
    if words.next_if(|word| word == "--stacks").is_some() {
        let pod = words.next().unwrap_or_default();
        let (mut native, mut ranks) = (false, Vec::new());
        // Words that a newer program adds are ignored.
        while let Some(word) = words.next() {
            native |= word == "--native";
            if word == "--rank" {
                let number = words.next().unwrap_or_default();
                let number = number.to_string_lossy();
                let Ok(rank) = number.parse() else {
                    return cannot(&Failure::new(format!("`{number}` is not a rank")));
                };
                ranks.push(rank);
            }
        }
        let pod = pod.to_string_lossy();
        let code = trainyard_agent::ask_for_stacks(&pod, &ranks, native, &environment::lookup);
        return exit_code(code);
    }
    words.next_if(|word| word == "--");
    let command: Vec<OsString> = words.collect();
    if command.is_empty() {
        return cannot(&Failure::new(
            "`supervise` needs a command; expected `trainyard supervise -- COMMAND`".to_owned(),
        ));
    }
    exit_code(trainyard_agent::supervise(&command, &environment::lookup))
}

/// What `mpirun` calls in place of ssh.
fn remote_shell(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match Settings::read(&environment::lookup) {
        Ok(settings) => exit_code(trainyard_agent::remote_shell(&settings, &words)),
        Err(error) => {
            cannot(&anyhow::Error::new(error).into());
            // What ssh says of a connection that failed.
            ExitCode::from(255)
        }
    }
}

/// A member of a preflight; the leader prints the report.
fn preflight_member() -> ExitCode {
    // In a pod this is process 1, whom the kernel spares from signals that it does not ask for.
    let at_once = Arc::new(AtomicBool::new(true));
    let ended = signal_hook::flag::register_conditional_shutdown(SIGTERM, 143, at_once)
        .map_err(anyhow::Error::new)
        .and_then(|_| {
            let mut stdout = io::stdout().lock();
            trainyard_probe::path::serve(&environment::lookup, &mut stdout).map_err(Into::into)
        });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cannot(&error.into()),
    }
}

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).unwrap_or(u8::MAX).into()
}

fn cannot(failure: &Failure) -> ExitCode {
    let mut printer = Printer::new(Paint::Plain, Paint::Plain, Verbosity::Normal);
    printer.error(failure);
    ExitCode::from(2)
}

/// A training program of our own, to try everything around it.
fn smoke_trainer(words: impl Iterator<Item = OsString>) -> ExitCode {
    let ended = trainyard_smoke::run(words, &environment::lookup, &mut io::stdout().lock());
    match ended {
        Ok(outcome) => outcome.exit_code().into(),
        Err(error) => {
            let code = error.exit_code();
            let mut printer = Printer::new(Paint::Plain, Paint::Plain, Verbosity::Normal);
            printer.error(&Failure::from(anyhow::Error::new(error)));
            code.into()
        }
    }
}
