//! How long the worst inputs take that the limits of the reader still let in, or just not.
//!
//! The same inputs are tested for their answers in `crates/cli/tests`; here the release build is
//! held to the time. Each call runs under a limit on its memory, so one that passes kept it.

use std::{path::Path, process::Command, time::Duration};

use super::{Figure, Scratch, milliseconds, times};
use crate::{Failure, report};

/// Bound on the median of the worst.
const LIMIT: Duration = Duration::from_secs(1);
/// Address space of a call, in KiB: 300 MB. Stricter than a bound on resident memory.
const MEMORY_KIB: u32 = 300_000;
/// Runs from which the median is taken.
const RUNS: usize = 5;

/// The slowest of the inputs.
pub(super) fn figure(binary: &Path) -> Result<Figure, Failure> {
    report::progress("bad input");
    let scratch = Scratch::new("bad-input")?;
    let mut worst = ("", Duration::ZERO);
    for (name, content) in inputs() {
        let path = scratch.write("input.yaml", &content)?;
        let time = times(RUNS, 2, || {
            let mut command = Command::new("sh");
            command
                .args([
                    "-c",
                    &format!("ulimit -v {MEMORY_KIB} && exec \"$0\" render \"$1\""),
                ])
                .args([binary, path.as_path()]);
            command
        })?;
        if time.median > worst.1 {
            worst = (name, time.median);
        }
    }
    Ok(Figure {
        name: "bad input, the slowest".to_owned(),
        measured: format!("{}, median {}", worst.0, milliseconds(worst.1)),
        bound: format!("under {}, 300 MB", milliseconds(LIMIT)),
        met: worst.1 < LIMIT,
    })
}

fn inputs() -> Vec<(&'static str, String)> {
    let job = |spec: &str| {
        format!("apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {{name: j}}\nspec:\n{spec}")
    };
    let lines = |count: u32, line: fn(u32) -> String| (0..count).map(line).collect::<String>();
    let levels = (1..10).map(|level| {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        format!("a{level}: &a{level} [{below}]\n")
    });
    let bomb = std::iter::once("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned())
        .chain(levels)
        .collect();
    vec![
        (
            "50 MB",
            job(&lines(1_000_000, |at| {
                format!("  # line {at} of a file that is far too long\n")
            })),
        ),
        ("an alias bomb", bomb),
        (
            "4 MB of values",
            job(&lines(180_000, |at| format!("  field{at}: value {at}\n"))),
        ),
        (
            "19,900 unknown roles",
            job(&format!(
                "  jaxReplicaSpecs:\n{}",
                lines(19_900, |at| format!("    role{at}: {{}}\n"))
            )),
        ),
        (
            "deep nesting",
            job(&format!("  nested: {}", "[".repeat(4_000_000))),
        ),
    ]
}
