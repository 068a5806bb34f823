//! How long `trainyard render` takes for a large job, from start to exit.

use std::{fmt::Write as _, path::Path, process::Command, time::Duration};

use super::{Figure, Scratch, milliseconds, times};
use crate::{Failure, report};

/// Pods of the job.
const PODS: u32 = 1_000;
/// Bound on the median.
const LIMIT: Duration = Duration::from_millis(50);
/// Runs from which best and median are taken.
const RUNS: usize = 20;

/// The time beside that of `--version`, which does nothing but start.
pub(super) fn figure(binary: &Path) -> Result<Figure, Failure> {
    report::progress("render");
    let scratch = Scratch::new("render")?;
    let job = scratch.write("job.yaml", &job_text())?;
    let call = |words: &[&str]| {
        let mut command = Command::new(binary);
        command.args(words);
        command
    };
    let floor = times(RUNS, 0, || call(&["--version"]))?;
    let render = times(RUNS, 0, || call(&["render", &job.to_string_lossy()]))?;
    Ok(Figure {
        name: format!("`render`, {PODS} pods, start to exit"),
        measured: format!(
            "median {}, best {} (floor {})",
            milliseconds(render.median),
            milliseconds(render.best),
            milliseconds(floor.median)
        ),
        bound: format!("median under {}", milliseconds(LIMIT)),
        met: render.median < LIMIT,
    })
}

fn job_text() -> String {
    let mut text =
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: bench\nspec:\n  \
                    pytorchReplicaSpecs:\n"
            .to_owned();
    for (role, replicas) in [("Master", 1), ("Worker", PODS - 1)] {
        write!(
            text,
            "    {role}:\n      replicas: {replicas}\n      template:\n        spec:\n          \
             containers:\n            - name: pytorch\n              image: example.com/train:1\n              \
             command: [python, train.py]\n"
        )
        .expect("a string takes whatever is written");
    }
    text
}
