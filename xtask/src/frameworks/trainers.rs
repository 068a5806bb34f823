//! Real trainers whose output `trainyard run` reads: what the report says of the progress is what the program knows.
//!
//! The programs lie in `tools/trainers`, not in `examples`: they show nobody how to train, they make a trainer print
//! what misleads a reader, such as the bars of evaluations. Each writes what it knows of its own training to a file.
//!
//! Trainers that cannot be installed on a machine without GPUs have recorded lines in `testdata/progress`.

use std::{fs, path::Path};

use super::{named, suite::Scratch};
use crate::{Failure, report, step};

/// One program.
struct Trainer {
    program: &'static str,
    /// A word for it, where it has several forms.
    form: Option<&'static str>,
    /// The framework whose environment it runs in.
    framework: &'static str,
}

/// What the suite calls all of them: the environment of most.
pub(super) const FRAMEWORK: &str = "trainers";

const TRAINERS: &[Trainer] = &[
    Trainer::new("hf_trainer.py", None, FRAMEWORK),
    Trainer::new("accelerate_loop.py", None, FRAMEWORK),
    Trainer::new("lightning_fit.py", Some("tqdm"), FRAMEWORK),
    Trainer::new("lightning_fit.py", Some("rich"), FRAMEWORK),
    Trainer::new("lightning_fit.py", Some("live"), FRAMEWORK),
    Trainer::new("lightgbm_train.py", None, FRAMEWORK),
    Trainer::new("xgboost_train.py", None, "xgboost"),
    Trainer::new("keras_fit.py", None, "tensorflow"),
    Trainer::new("paddle_fit.py", Some("1"), "paddle"),
    Trainer::new("paddle_fit.py", Some("2"), "paddle"),
];

impl Trainer {
    const fn new(
        program: &'static str,
        form: Option<&'static str>,
        framework: &'static str,
    ) -> Self {
        Self {
            program,
            form,
            framework,
        }
    }
}

/// Runs every trainer. How many ran, and what is wrong; those without an environment are left to the suite to report.
pub(super) fn run(binary: &Path) -> Result<(usize, Vec<String>), Failure> {
    let (mut ran, mut wrong) = (0, Vec::new());
    for trainer in TRAINERS {
        let Ok(environment) = named(trainer.framework).environment() else {
            continue;
        };
        let name = format!(
            "tools/trainers/{}{}",
            trainer.program,
            trainer
                .form
                .map(|form| format!(" {form}"))
                .unwrap_or_default()
        );
        let scratch = Scratch::new()?;
        let truth = scratch.0.join("truth");
        let mut command = scratch.command(binary);
        // What the programs share is a module beside them, in the tree.
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["--cpu", "--"])
            .arg(environment.join("bin/python"))
            .arg(step::root().join("tools/trainers").join(trainer.program))
            .arg(&truth)
            .args(trainer.form);
        let ended = scratch.run(&mut command)?;
        let complaint = ended.complaint(|report, _| {
            let known = fs::read_to_string(&truth).unwrap_or_default();
            progress_mismatch(report, &parse(&known))
        });
        match complaint {
            None => report::progress(&format!("{name}: {}", report::seconds(ended.time))),
            Some(complaint) => wrong.push(format!("{name}: {complaint}")),
        }
        ran += 1;
    }
    Ok((ran, wrong))
}

/// One figure that a program knows.
#[derive(Debug, PartialEq)]
pub(super) struct Known<'a> {
    /// As the report calls it.
    name: &'a str,
    /// `None` where no line of the trainer holds it, so that the report must not say it.
    value: Option<f64>,
}

impl<'a> Known<'a> {
    pub(super) const fn new(name: &'a str, value: Option<f64>) -> Self {
        Self { name, value }
    }
}

/// The lines `name value` of a program.
fn parse(text: &str) -> Vec<Known<'_>> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| Known::new(name, value.trim().parse().ok()))
        .collect()
}

/// What the progress in a report says other than what is known.
pub(super) fn progress_mismatch(report: &str, known: &[Known<'_>]) -> Option<String> {
    if known.is_empty() {
        return Some("the program did not write what it knows of its progress".to_owned());
    }
    let Some(progress) = progress(report) else {
        return Some(format!("the report holds no progress:\n{report}"));
    };
    let wrong: Vec<String> = known
        .iter()
        .filter_map(|known| {
            let said = value(progress, known.name);
            let same = match (said, known.value) {
                (Some(said), Some(known_value)) => is_same(known.name, said, known_value),
                (None, None) => true,
                _ => false,
            };
            let shown = |value: Option<f64>| value.map_or("nothing".to_owned(), |v| v.to_string());
            (!same).then(|| {
                format!(
                    "the report says {} {}, the program {}",
                    known.name,
                    shown(said),
                    shown(known.value)
                )
            })
        })
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Steps are exact. Bars print three digits of a loss, and parts of epochs are rounded.
fn is_same(name: &str, said: f64, known: f64) -> bool {
    let tolerance = match name {
        "loss" => known.abs() / 100.0 + 1e-4,
        "epoch" => 0.01,
        _ => 0.0,
    };
    (said - known).abs() <= tolerance
}

/// The object `progress` at the top of a report, which holds no other object.
fn progress(report: &str) -> Option<&str> {
    let (_, rest) = report.split_once("\n  \"progress\": {")?;
    rest.split_once('}').map(|(inside, _)| inside)
}

/// A number of an object; some are written as text.
fn value(object: &str, name: &str) -> Option<f64> {
    let (_, rest) = object.split_once(&format!("\"{name}\": "))?;
    let end = rest.find([',', '\n']).unwrap_or(rest.len());
    let (value, _) = rest.split_at_checked(end)?;
    value.trim().trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_report_says_wrongly() {
        let report = "{\n  \"lastStep\": 7,\n  \"progress\": {\n    \"attempt\": 1,\n    \"step\": 60,\n    \
                      \"epoch\": \"2\",\n    \"loss\": \"0.123\"\n  },\n  \"totalSteps\": 3\n}";
        let cases = [
            ("step 60\nepoch 2.0\nloss 0.1234\ntotalSteps none\n", None),
            (
                "step 61\nloss 0.125\n",
                Some(
                    "the report says step 60, the program 61; the report says loss 0.123, the program 0.125",
                ),
            ),
            (
                "totalSteps 60\nepoch none\n",
                Some(
                    "the report says totalSteps nothing, the program 60; the report says epoch 2, the program nothing",
                ),
            ),
            (
                "",
                Some("the program did not write what it knows of its progress"),
            ),
        ];
        for (truth, expected) in cases {
            assert_eq!(
                progress_mismatch(report, &parse(truth)).as_deref(),
                expected,
                "{truth}"
            );
        }
        assert!(progress_mismatch("{}", &parse("step 1")).is_some());
    }
}
