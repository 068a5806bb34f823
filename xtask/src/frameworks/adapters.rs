//! Adapters of the Python package for other frameworks: a job that is killed and resumed logs the losses of one that was not.
//!
//! Each has tests in `crates/python/tests/adapters`, which run in the environment of its framework, and an example whose two runs
//! are compared loss by loss, in full precision.

use std::{collections::BTreeMap, path::Path, time::Instant};

use super::{
    RESUMED, Trial, named, package,
    suite::{Call, Ended},
};
use crate::{Failure, report};

/// One adapter.
struct Adapter {
    /// Whose environment it runs in and whose examples its own is one of.
    framework: &'static str,
    /// The file with its tests.
    tests: &'static str,
    trial: Trial,
}

const TESTS: &str = "crates/python/tests/adapters";

const ADAPTERS: &[Adapter] = &[
    Adapter {
        framework: "transformers",
        tests: "test_transformers.py",
        trial: Trial {
            file: "job.yaml",
            fault: "kill rank=1 at=step:60",
            resumed: RESUMED,
            gang: true,
        },
    },
    Adapter {
        framework: "lightning",
        tests: "test_lightning.py",
        trial: Trial {
            file: "job.yaml",
            fault: "kill rank=1 at=step:100",
            resumed: RESUMED,
            gang: true,
        },
    },
    Adapter {
        framework: "jax",
        tests: "test_jax.py",
        trial: Trial {
            file: "checkpoint.yaml",
            fault: "kill rank=1 at=step:100",
            resumed: RESUMED,
            gang: true,
        },
    },
];

/// Tries every adapter, or that of one framework. How many runs of examples there were, and what is wrong; those without an
/// environment are left to the suite to report.
pub(super) fn run(binary: &Path, only: Option<&str>) -> Result<(usize, Vec<String>), Failure> {
    let chosen: Vec<&Adapter> = ADAPTERS
        .iter()
        .filter(|adapter| only.is_none_or(|name| name == adapter.framework))
        .collect();
    if chosen.is_empty() {
        return Ok((0, Vec::new()));
    }
    let (folder, packages) = package::built()?;
    let (mut ran, mut wrong) = (0, Vec::new());
    for adapter in chosen {
        let Ok(environment) = named(adapter.framework).environment() else {
            continue;
        };
        let began = Instant::now();
        let tests = adapter.tests;
        match package::test(binary, &environment, &packages, &folder, TESTS, tests)? {
            None => report::progress(&format!(
                "{TESTS}/{tests}: {}",
                report::seconds(began.elapsed())
            )),
            Some(complaint) => wrong.push(complaint),
        }
        let mut ended: Vec<Ended> = Vec::new();
        for fault in [None, Some(adapter.trial.fault)] {
            let call = Call {
                binary,
                framework: named(adapter.framework),
                environment: &environment,
                trial: &adapter.trial,
                fault,
                packages: Some(&packages),
            };
            ran += 1;
            match call.run() {
                Ok(one) => {
                    report::progress(&format!("{call}: {}", report::seconds(one.time)));
                    ended.push(one);
                }
                Err(Failure::Failed(message)) => wrong.push(format!("{call}: {message}")),
                Err(other) => return Err(other),
            }
        }
        if let [whole, resumed] = ended.as_slice()
            && let Some(difference) = difference(&whole.output, &resumed.output)
        {
            wrong.push(format!(
                "the adapter for {}: {difference}",
                adapter.framework
            ));
        }
    }
    Ok((ran, wrong))
}

/// What a run that was resumed logged otherwise.
fn difference(whole: &str, resumed: &str) -> Option<String> {
    let known: BTreeMap<u64, &str> = losses(whole).into_iter().collect();
    let found = losses(resumed);
    let last = |pairs: &mut dyn Iterator<Item = u64>| pairs.max();
    if known.is_empty()
        || last(&mut known.keys().copied()) != last(&mut found.iter().map(|(step, _)| *step))
    {
        return Some("the two runs did not log the loss of the same last step".to_owned());
    }
    found.into_iter().find_map(|(step, loss)| {
        let expected = known.get(&step).copied().unwrap_or("nothing");
        (loss != expected).then(|| {
            format!("the run that was killed logged loss {loss} at step {step}, the other one {expected}")
        })
    })
}

/// Steps and losses of the lines `step 10/120 loss 0.123`, as they were printed.
fn losses(output: &str) -> Vec<(u64, &str)> {
    output
        .lines()
        .filter_map(|line| {
            let (before, loss) = line.rsplit_once(" loss ")?;
            let (_, steps) = before.rsplit_once("step ")?;
            let (step, _) = steps.split_once('/')?;
            Some((step.parse().ok()?, loss.split(' ').next()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_two_runs_are_compared() {
        let whole =
            "a | step 10/30 loss 0.5\na | step 20/30 loss 0.25 x\na | step 30/30 loss 0.125\n";
        let cases = [
            ("step 20/30 loss 0.25\nstep 30/30 loss 0.125", None),
            (
                "step 20/30 loss 0.26\nstep 30/30 loss 0.125",
                Some("the run that was killed logged loss 0.26 at step 20, the other one 0.25"),
            ),
            (
                "step 15/30 loss 1\nstep 30/30 loss 0.125",
                Some("the run that was killed logged loss 1 at step 15, the other one nothing"),
            ),
            (
                "step 20/30 loss 0.25",
                Some("the two runs did not log the loss of the same last step"),
            ),
        ];
        for (resumed, expected) in cases {
            assert_eq!(difference(whole, resumed).as_deref(), expected, "{resumed}");
        }
        assert!(difference("", "").is_some());
    }
}
