//! The `trainyard` binary: arguments, words and exit codes around the decisions of
//! `trainyard-core`. It holds no decision of its own.
#![forbid(unsafe_code)]

mod args;
mod bar;
mod command;
mod environment;
mod failure;
mod printer;
mod run;
mod session;
mod snippet;
mod source;
mod stored;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    // A job starts this program once for each of its pods, so their commands come before
    // everything else.
    match words.nth(1).as_ref().and_then(|word| word.to_str()) {
        Some("pod-init") => trainyard_host::pod_init_main(),
        Some("pod-exec") => trainyard_host::pod_exec_main(words.collect()),
        _ => {}
    }
    let environment = environment::Environment::read();
    match args::parse(std::env::args_os()) {
        Ok(args) => session::run(args, &environment),
        Err(refusal) => session::refuse(&refusal, &environment),
    }
}
