//! The smoke trainer as a program of its own, for the tests of this crate.
#![forbid(unsafe_code)]

use std::{env, error::Error, io, process::ExitCode};

fn main() -> ExitCode {
    let ended = trainyard_smoke::run(
        env::args_os().skip(1),
        &|name| {
            let found = env::vars_os().find(|(key, _)| key == name);
            found.and_then(|(_, value)| value.into_string().ok())
        },
        &mut io::stdout().lock(),
    );
    match ended {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

#[expect(clippy::print_stderr, reason = "errors of the program go to stderr")]
fn complain(error: &dyn Error) {
    eprintln!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  caused by: {error}");
        cause = error.source();
    }
}
