//! The `trainyard` binary: arguments, words and exit codes around the decisions of
//! `trainyard-core`. It holds no decision of its own.
#![forbid(unsafe_code)]

mod args;
mod bar;
mod capacity_source;
mod clean;
mod cluster;
mod command;
mod drawing;
mod environment;
mod fabrics;
mod failure;
mod hidden;
mod job_report;
mod node_source;
mod output;
mod paint;
mod preflight;
mod printer;
mod run;
mod session;
mod snippet;
mod source;
mod stored;
mod table;
mod tree;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(exit) = hidden::dispatch(std::env::args_os()) {
        return exit;
    }
    let environment = environment::Environment::read();
    match args::parse(std::env::args_os()) {
        Ok(args) => session::run(args, &environment),
        Err(refusal) => session::refuse(&refusal, &environment),
    }
}
