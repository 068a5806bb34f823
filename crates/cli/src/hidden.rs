//! Commands that are not for people: pods of a local run start this program again.
//!
//! They are dispatched before arguments are parsed and the environment is read, because a job of
//! 500 pods pays for their start 500 times.

use std::{ffi::OsString, io, process::ExitCode};

use crate::{
    environment,
    failure::Failure,
    printer::{Paint, Printer, Verbosity},
};

/// Runs the hidden command that `words` name, where they name one.
pub(crate) fn dispatch(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match words.next()?.to_str()? {
        "pod-init" => trainyard_host::pod_init_main(),
        "pod-exec" => trainyard_host::pod_exec_main(words.collect()),
        "smoke-trainer" => Some(smoke_trainer(words)),
        _ => None,
    }
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
