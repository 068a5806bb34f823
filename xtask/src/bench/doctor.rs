//! `cargo xtask bench doctor [--logs DIR]`: is it right, is it fast, is it small.
//!
//! Whether it is right is measured on excerpts that are not part of the tree: `--logs` names a folder with
//! `index.jsonl`. Speed is measured beside ripgrep, in turns, on files made from the shapes of real logs.

mod accuracy;
mod follow;
mod shapes;
mod speed;

use std::path::Path;

use super::{Figure, Scratch, judge, release};
use crate::Failure;

pub(crate) use speed::ripgrep_cache;

/// Measures every figure and fails where a bound is missed.
pub(crate) fn doctor(words: &[&str]) -> Result<(), Failure> {
    let mut logs = None;
    let mut megabytes = 4096;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (*word, words.next()) {
            ("--logs", Some(folder)) => logs = Some(*folder),
            ("--megabytes", Some(count)) => {
                megabytes = count
                    .parse()
                    .map_err(|_| Failure::CouldNotRun(format!("`{count}` is not a number")))?;
            }
            (word, _) => {
                return Err(Failure::CouldNotRun(format!(
                    "unknown argument `{word}`\n\nhint: `bench doctor [--logs DIR] [--megabytes N]`"
                )));
            }
        }
    }
    let binary = release()?;
    let mut figures: Vec<Figure> = Vec::new();
    match logs {
        Some(folder) => figures.extend(accuracy::figures(&binary, Path::new(folder))?),
        None => println!("labels are not measured: `--logs DIR` names the excerpts"),
    }
    let scratch = Scratch::new("doctor")?;
    figures.extend(speed::figures(&binary, &scratch, megabytes)?);
    figures.extend(follow::figures(&binary, &scratch)?);
    println!();
    judge(&figures)
}
