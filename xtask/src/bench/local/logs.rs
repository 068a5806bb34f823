//! A rank that writes a gigabyte of lines, beside the same script with its output in a file.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{
    Figure, Running, Scratch, between, fresh, in_turns, job, lost, median, stamps, trainyard,
};
use crate::{Failure, report};

/// Bound on our time, as a part of that with a file.
const BOUND: f64 = 1.1;
/// Runs of each, in turns.
const RUNS: usize = 7;
const PATIENCE: Duration = Duration::from_mins(5);
/// How the rank writes, in words and as its argument.
const WAYS: &[(&str, &str)] = &[("line by line", "lines"), ("in blocks of 64 KiB", "blocks")];

/// Lines of a hundred bytes, as a training script writes them; the time is that of the writing alone.
const SCRIPT: &str = r#"
import os, sys, time
def stamp():
    file = os.open(os.path.join(sys.argv[1], "times"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"%d\n" % time.time_ns())
line = "step 120 of 1000 loss 0.4321 rate 812.5 samples/s".ljust(99, ".") + "\n"
out = open(1, "w", buffering=1 << 16) if sys.argv[2] == "blocks" else sys.stdout
write = out.write
stamp()
for _ in range(10_000_000): write(line)
out.flush()
stamp()
"#;

pub(super) fn figures(binary: &Path, environment: &Path) -> Result<Vec<Figure>, Failure> {
    WAYS.iter()
        .map(|way| figure(binary, environment, *way))
        .collect()
}

fn figure(binary: &Path, environment: &Path, way: (&str, &str)) -> Result<Figure, Failure> {
    let (shown, way) = way;
    report::progress(&format!("1 GB of lines, {shown}"));
    let scratch = Scratch::new("logs")?;
    let script = scratch.write("write.py", SCRIPT)?;
    let python = environment.join("bin/python");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..RUNS {
        for own in in_turns(turn) {
            let folder = fresh(&scratch, "stamps")?;
            fresh(&scratch, "state")?;
            let mut command = if own {
                let words =
                    [&python, &script, &folder].map(|path| path.to_string_lossy().into_owned());
                let words: Vec<&str> = words.iter().map(String::as_str).chain([way]).collect();
                trainyard(binary, &scratch, &job(1, &words))?
            } else {
                to_file(&python, &script, &folder, way)?
            };
            Running::start(&mut command)?.finish(PATIENCE)?;
            let times = if own { &mut ours } else { &mut theirs };
            times.push(time(&folder)?);
        }
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    Ok(Figure {
        name: format!("a rank writes 1 GB {shown}"),
        measured: format!(
            "{}, with `> file` {}: {ratio:.2} of it",
            report::seconds(ours),
            report::seconds(theirs)
        ),
        bound: format!("at most {BOUND} of it"),
        met: ratio <= BOUND,
    })
}

/// The same script, with its output in a file beside the folder of our runs.
fn to_file(python: &Path, script: &Path, folder: &Path, way: &str) -> Result<Command, Failure> {
    let mut command = Command::new(python);
    command
        .args([script, folder])
        .arg(way)
        // As every rank of a `PyTorchJob` has it.
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::null())
        .stdout(File::create(folder.join("log")).map_err(lost)?)
        .stderr(Stdio::null());
    Ok(command)
}

fn time(folder: &Path) -> Result<Duration, Failure> {
    match stamps(&folder.join("times")).as_slice() {
        [first, last] => Ok(between(*first, *last)),
        _ => Err(Failure::Failed("the rank stamped no times".to_owned())),
    }
}
