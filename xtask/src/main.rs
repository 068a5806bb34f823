//! The chores of the repository, with the standard library and one crate that compresses.
//!
//! Owns how the project is checked, tested, generated and measured. It decides nothing about jobs
//! and depends on no other crate of the workspace: it calls `cargo` and the built binary, as a
//! person would.
//!
//! Exit codes: 0 done, 1 the thing asked about failed, 2 could not do it.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "a chore is run for what it prints, and nothing else of the project imports it"
)]

mod advisories;
mod alerts;
mod bench;
mod cache;
mod check;
mod cluster;
mod dist;
mod frameworks;
mod generate;
mod guides;
mod layers;
mod page;
mod prepare;
mod process;
mod record;
mod release;
mod report;
mod seed_hunt;
mod soak;
mod static_program;
mod step;
mod test;
mod words;
#[cfg(test)]
mod workflows;

use std::process::ExitCode;

const USAGE: &str = "\
Chores of the repository.

Usage: cargo xtask <COMMAND>

Commands:
  check                          formatting, lints, layers, words, documentation, generated files
  test [--require all]           every suite; prints which ran, passed, failed or could not run
  test --only SUITE              one of them
  test --quick                   lints, unit tests and tests of the commands, in minutes
  prepare [--list]               build every cache that the suites and benches need, at low priority
  page                           build the page of the dashboard from `web/`, with Node
  page --test                    check it, compare it with its sources, and try it in Chromium: one suite of `test`
  page --pictures                write docs/dashboard-*.png: real runs as the page shows them
  alerts                         alert rules by `promtool`, and every expression of rules and dashboards by a real
                                 Prometheus: one suite of `test`
  layers                         arrows between crates and between modules, licences, banned crates
  words                          retired words in documents, comments and messages; long names
  advisories [--database DIR]    the locked crates held against RustSec's advisories, with `cargo audit`
  seed-hunt --seeds N [--from S] run the simulation over N seeds, from seed S on; --seed S for one;
                                 --world fleet or --world watch for another world
  soak [--minutes N] [--seed S]  jobs of all kinds on a real cluster while everything around them fails
  gen [--check]                  write the generated reference pages, or fail if they are stale
  guides [--only NAME]           follow the guides of docs/contributing in a copy of the tree
  frameworks [--only NAME]       install the frameworks of the examples, pinned, outside the tree
  frameworks --test [--only NAME]  run their examples: one suite of `test`
  cluster up|down|status|...     a real Kubernetes on this machine; see `cluster help`
  record                         write docs/smoke.svg: the smoke job with a killed rank
  dist [--test] [--only NAME]    what users install, made from this commit; see `dist help`
  release-check VERSION          what is still to do before this commit may be called VERSION
  bench core                     measure the figures that the core must reach
  bench local                    measure `run` on this machine, beside `torchrun`
  bench placement [--pure]       measure how gangs are seated, in a real cluster too
  bench operator [--jobs N]      measure the operator on a real cluster, beside the Go one
  bench doctor [--logs DIR]      measure the doctor's labels, speed beside ripgrep, memory, following
  bench plan [--fit]             predictions beside published runs, or the shares fitted to them
  bench lint                     measure the linter on 10,000 manifests, beside its peers
  bench attack [--seconds N]     attack the operator on a real cluster and measure, beside the Go one
  bench progress [--jobs N]      measure how old the progress of 100 and 1,000 jobs is, and what it costs
  bench recovery                 measure the time from a hang to new processes, beside `ft_launcher` and `torchrun`
  bench supervisor               measure what a supervisor costs the program that it runs
  bench checkpoints              measure saves and loads, beside the disk, torch, safetensors and dcp
  bench preflight                measure the search, a stream beside iperf3, memory and the static binary

Exit codes: 0 done, 1 the thing asked about failed, 2 could not do it.
";

/// How a chore ended, where it did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The thing asked about failed, and why.
    Failed(String),
    /// The thing asked about failed, and the chore has already printed why.
    Reported,
    /// The chore could not be done at all.
    CouldNotRun(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] | ["help" | "-h" | "--help"] => {
            print!("{USAGE}");
            Ok(())
        }
        ["check"] => check::run(check::Scope::All),
        ["test"] => test::run(test::Require::Available),
        ["test", "--require", "all"] => test::run(test::Require::All),
        ["test", "--quick"] => test::quick(),
        ["test", "--only", name] => test::only(name, test::Require::Available),
        ["test", "--require", "all", "--only", name] => test::only(name, test::Require::All),
        ["prepare"] => prepare::run(prepare::Priority::Lowest),
        ["prepare", "--at-this-priority"] => prepare::run(prepare::Priority::Own),
        ["prepare", "--list"] => prepare::list(),
        ["page"] => page::run(),
        ["page", "--test"] => page::suite().map(|ran| println!("{ran}")),
        ["page", "--pictures"] => page::pictures(),
        ["alerts"] => alerts::suite().map(|ran| println!("{ran}")),
        ["layers"] => layers::run(),
        ["words"] => words::run(),
        ["advisories"] => advisories::run(None),
        ["advisories", "--database", folder] => advisories::run(Some(folder)),
        ["seed-hunt", rest @ ..] => seed_hunt::run(rest),
        ["soak", rest @ ..] => soak::run(rest),
        ["gen"] => generate::run(generate::Mode::Write),
        ["gen", "--check"] => generate::run(generate::Mode::Check),
        ["guides"] => guides::run(None),
        ["guides", "--only", name] => guides::run(Some(name)),
        ["frameworks"] => frameworks::run(None),
        ["frameworks", "--test"] => frameworks::suite(None).map(|ran| println!("{ran}")),
        ["frameworks", "--test", "--only", name] => {
            frameworks::suite(Some(name)).map(|ran| println!("{ran}"))
        }
        ["frameworks", "--only", name] => frameworks::run(Some(name)),
        ["cluster", rest @ ..] => cluster::run(rest),
        ["record"] => record::run(),
        ["dist", rest @ ..] => dist::run(rest),
        ["release-check", version] => release::run(version),
        ["bench", "core"] => bench::core(),
        ["bench", "local"] => bench::local(),
        ["bench", "placement"] => bench::placement(true),
        ["bench", "placement", "--pure"] => bench::placement(false),
        ["bench", "operator", rest @ ..] => bench::operator(rest),
        ["bench", "attack", rest @ ..] => bench::attack(rest),
        ["bench", "doctor", rest @ ..] => bench::doctor(rest),
        ["bench", "plan"] => bench::plan(false),
        ["bench", "plan", "--fit"] => bench::plan(true),
        ["bench", "lint"] => bench::lint(),
        ["bench", "preflight"] => bench::preflight(),
        ["bench", "progress", rest @ ..] => bench::progress(rest),
        ["bench", "recovery"] => bench::recovery(),
        ["bench", "supervisor"] => bench::supervisor(),
        ["bench", "checkpoints"] => bench::checkpoints(),
        words => Err(Failure::CouldNotRun(format!(
            "unknown command `{}`\n\nhint: run `cargo xtask help` to see the commands",
            words.join(" ")
        ))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => {
            report::error(&message);
            ExitCode::from(1)
        }
        Err(Failure::Reported) => ExitCode::from(1),
        Err(Failure::CouldNotRun(message)) => {
            report::error(&message);
            ExitCode::from(2)
        }
    }
}
