//! `cargo xtask bench plan [--fit]`: predictions beside what was published, and how long an answer takes.
//!
//! The program `plan-bench` of `tools/programs` predicts every row of `testdata/plan/published-runs.csv`;
//! its figures are read from what it prints.

use std::{path::Path, process::Command, time::Duration};

use super::{Figure, judge, milliseconds, release, times};
use crate::{Failure, report, step};

/// Runs from which the median is taken.
const RUNS: usize = 5;

/// A figure of the program: its name there, its name here, its bound, whether more is better.
const BOUNDS: [(&str, &str, f64, bool); 6] = [
    (
        "korthikanti-mean",
        "Korthikanti's eight points, mean error",
        0.0365,
        false,
    ),
    (
        "korthikanti-worst",
        "Korthikanti's eight points, worst error",
        0.0887,
        false,
    ),
    (
        "printed-median",
        "dense rows with a printed time, median error",
        0.06,
        false,
    ),
    ("dgxc-mean", "DGXC's dense rows, mean error", 0.05, false),
    ("bloom-order", "BLOOM's sweep, rank correlation", 0.9, true),
    (
        "bloom-oom",
        "BLOOM's rows without enough memory, foreseen",
        5.0,
        true,
    ),
];

/// Prints the fit, or the table and the figures.
pub(crate) fn plan(fit: bool) -> Result<(), Failure> {
    report::progress("predictions");
    let mut program = step::pure_tool("plan-bench");
    if fit {
        program.arg("--fit");
        println!("{}", step::capture(&mut program)?);
        return Ok(());
    }
    let printed = step::capture(&mut program)?;
    let (table, figures): (Vec<&str>, Vec<&str>) = printed
        .lines()
        .partition(|line| !line.starts_with("figure\t"));
    println!("{}", table.join("\n"));
    let mut judged = accuracy(&figures)?;
    judged.extend(speed(&release()?)?);
    judge(&judged)
}

fn accuracy(lines: &[&str]) -> Result<Vec<Figure>, Failure> {
    BOUNDS
        .iter()
        .map(|(name, words, bound, more)| {
            let value = lines
                .iter()
                .find_map(|line| line.strip_prefix(&format!("figure\t{name}\t")))
                .and_then(|value| value.parse::<f64>().ok())
                .ok_or_else(|| {
                    Failure::CouldNotRun(format!(
                        "the program `plan-bench` printed no figure `{name}`"
                    ))
                })?;
            let share = |value: f64| {
                if *more {
                    format!("{value}")
                } else {
                    format!("{:.2} %", 100.0 * value)
                }
            };
            Ok(Figure {
                name: (*words).to_owned(),
                measured: share(value),
                bound: format!(
                    "at {} {}",
                    if *more { "least" } else { "most" },
                    share(*bound)
                ),
                met: if *more {
                    value >= *bound
                } else {
                    value <= *bound
                },
            })
        })
        .collect()
}

fn speed(binary: &Path) -> Result<Vec<Figure>, Failure> {
    report::progress("answers");
    let cases: [(&str, &[&str], Duration); 3] = [
        (
            "a small plan",
            &["plan", "--model", "llama3-8b", "--gpus", "64"],
            Duration::from_millis(50),
        ),
        (
            "the layouts of 405B on 16,384 GPUs",
            &[
                "plan",
                "--model",
                "llama3-405b",
                "--gpus",
                "16384",
                "--batch",
                "2048",
            ],
            Duration::from_secs(1),
        ),
        (
            "1,000 runs of 54 days on 16,384 GPUs",
            &[
                "simulate", "--gpus", "16384", "--days", "54", "--runs", "1000",
            ],
            Duration::from_secs(10),
        ),
    ];
    cases
        .into_iter()
        .map(|(name, words, limit)| {
            let time = times(RUNS, 0, || {
                let mut command = Command::new(binary);
                command.args(words);
                command
            })?;
            Ok(Figure {
                name: name.to_owned(),
                measured: format!("median {}", milliseconds(time.median)),
                bound: format!("under {}", milliseconds(limit)),
                met: time.median < limit,
            })
        })
        .collect()
}
