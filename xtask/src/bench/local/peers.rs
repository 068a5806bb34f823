//! Start and recovery of eight ranks, beside `torchrun`.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{
    Figure, Running, Scratch, between, fresh, in_turns, job, median, now, stamps, trainyard,
};
use crate::{Failure, bench::milliseconds, report};

/// Ranks of every run.
const RANKS: usize = 8;
/// Bound on the start, as a part of torchrun's.
const START: f64 = 0.1;
/// Bound on the recovery, as a part of torchrun's.
const RECOVERY: f64 = 0.25;
/// Bound from the kill to the moment the engine knows.
const DETECTION: Duration = Duration::from_millis(20);
/// Runs of each start, in turns.
const RUNS: usize = 7;
/// Runs of each recovery, in turns: torchrun's own time scatters threefold.
const RECOVERIES: usize = 21;
/// torchrun looks for dead ranks this often. A rank dies at a time that no launcher's clock knows, so the
/// kills are spread evenly over this.
const MONITOR: Duration = Duration::from_millis(100);
/// How long the ranks run before the first of these kills.
const SETTLED: Duration = Duration::from_millis(300);
/// Bound on one run of either.
const PATIENCE: Duration = Duration::from_mins(2);

/// Stamps the time as its first act and ends when all ranks have; one of them ends itself on purpose.
/// It imports nothing that the interpreter has not loaded by itself.
const SCRIPT: &str = r#"
import os, sys, time
if "torch" in sys.argv: import torch
folder, generations, lives = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000
def stamp(name):
    file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"%d\n" % time.time_ns())
stamp("main")
def started():
    with open(os.path.join(folder, "main")) as file: return len(file.readlines())
while started() < 8: time.sleep(0.02)
if generations == 2:
    if os.environ["RANK"] == "3" and started() == 8:
        time.sleep(lives)
        stamp("killed")
        os.kill(os.getpid(), 9)
    while started() < 16: time.sleep(0.02)
"#;

/// Who starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    Trainyard,
    Torchrun,
}

/// One run of the script.
struct Run {
    /// Command to the last rank's first line.
    start: Duration,
    /// Kill to the last rank's first line in the next generation.
    recovery: Option<Duration>,
    /// Kill to the moment that the engine wrote down.
    detection: Option<Duration>,
}

pub(super) fn figures(binary: &Path, environment: &Path) -> Result<Vec<Figure>, Failure> {
    let bench = Bench {
        binary,
        environment,
        scratch: Scratch::new("local")?,
    };
    report::progress("start of 8 ranks");
    let at_once = |_| Duration::ZERO;
    let plain = bench.both(RUNS, &["1"], at_once)?;
    report::progress("start of 8 ranks that import torch");
    let torch = bench.both(1, &["1", "torch"], at_once)?;
    report::progress("recovery of 8 ranks");
    let spread = |turn: usize| {
        let turn = u32::try_from(turn).unwrap_or(0);
        SETTLED + MONITOR * turn / u32::try_from(RECOVERIES).unwrap_or(1)
    };
    let killed = bench.both(RECOVERIES, &["2"], spread)?;

    let recovery = |run: &Run| run.recovery.unwrap_or(Duration::MAX);
    let detection = median(
        killed
            .0
            .iter()
            .map(|run| run.detection.unwrap_or(Duration::MAX))
            .collect(),
    );
    let start = |run: &Run| run.start;
    Ok(vec![
        compare("start, 8 ranks", &plain, start, Some(START)),
        compare("start, 8 ranks with `import torch`", &torch, start, None),
        compare("recovery, 1 of 8 killed", &killed, recovery, Some(RECOVERY)),
        Figure {
            name: "detection of the kill".to_owned(),
            measured: milliseconds(detection),
            bound: format!("under {}", milliseconds(DETECTION)),
            met: detection < DETECTION,
        },
    ])
}

/// Runs of Trainyard, then those of torchrun.
type Both = (Vec<Run>, Vec<Run>);

fn compare(name: &str, runs: &Both, of: impl Fn(&Run) -> Duration, bound: Option<f64>) -> Figure {
    let ours = median(runs.0.iter().map(&of).collect());
    let theirs = median(runs.1.iter().map(&of).collect());
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    Figure {
        name: name.to_owned(),
        measured: format!(
            "{}, torchrun {}: {ratio:.3} of it",
            milliseconds(ours),
            milliseconds(theirs)
        ),
        bound: bound.map_or_else(String::new, |bound| format!("at most {bound} of it")),
        met: bound.is_none_or(|bound| ratio <= bound),
    }
}

struct Bench<'a> {
    binary: &'a Path,
    environment: &'a Path,
    scratch: Scratch,
}

impl Bench<'_> {
    /// `lives` is how long the rank that is killed lives, by turn.
    fn both(
        &self,
        count: usize,
        words: &[&str],
        lives: impl Fn(usize) -> Duration,
    ) -> Result<Both, Failure> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for turn in 0..count {
            let (first, rest) = words.split_first().unwrap_or((&"1", &[]));
            let lives = lives(turn).as_millis().to_string();
            let words = [&[*first, lives.as_str()], rest].concat();
            // What one leaves behind for the next to wait for affects both.
            for own in in_turns(turn) {
                if own {
                    ours.push(self.run(Launcher::Trainyard, &words)?);
                } else {
                    theirs.push(self.run(Launcher::Torchrun, &words)?);
                }
            }
        }
        Ok((ours, theirs))
    }

    fn run(&self, launcher: Launcher, words: &[&str]) -> Result<Run, Failure> {
        let folder = fresh(&self.scratch, "stamps")?;
        let script = self.scratch.write("rank.py", SCRIPT)?;
        let mut arguments = vec![
            script.to_string_lossy().into_owned(),
            folder.to_string_lossy().into_owned(),
        ];
        arguments.extend(words.iter().map(|word| (*word).to_owned()));
        let report = folder.join("report");
        let mut command = match launcher {
            Launcher::Trainyard => {
                fresh(&self.scratch, "state")?;
                let python = self.environment.join("bin/python");
                let python = python.to_string_lossy().into_owned();
                let line: Vec<&str> = std::iter::once(&python)
                    .chain(&arguments)
                    .map(String::as_str)
                    .collect();
                let mut command = trainyard(
                    self.binary,
                    &self.scratch,
                    &job(u32::try_from(RANKS).unwrap_or(u32::MAX), &line),
                )?;
                let file = File::create(&report).map_err(super::lost)?;
                command.stdout(file);
                command
            }
            Launcher::Torchrun => {
                let mut command = Command::new(self.environment.join("bin/torchrun"));
                command
                    .args(["--standalone", "--max-restarts=3"])
                    .arg(format!("--nproc-per-node={RANKS}"))
                    .args(&arguments)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                command
            }
        };
        let began = now();
        Running::start(&mut command)?
            .finish(PATIENCE)
            .map_err(|failure| name_launcher(launcher, failure))?;
        let main = stamps(&folder.join("main"));
        let first = main.get(..RANKS).and_then(|first| first.iter().max());
        let first = first.ok_or_else(|| {
            Failure::Failed(format!("{launcher:?}: {} ranks started", main.len()))
        })?;
        let killed = stamps(&folder.join("killed")).first().copied();
        let second = main.get(RANKS..).and_then(|second| second.iter().max());
        let detected = (launcher == Launcher::Trainyard)
            .then(|| std::fs::read_to_string(&report).ok())
            .flatten()
            .and_then(|report| detected_at(&report));
        let after = |time: Option<u128>| Some(between(killed?, time?));
        Ok(Run {
            start: between(began, *first),
            recovery: after(second.copied()),
            detection: after(detected),
        })
    }
}

/// When the first failure of a report was seen, in nanoseconds since 1970.
fn detected_at(report: &str) -> Option<u128> {
    let (_, failures) = report.split_once("\"failures\":")?;
    let (_, at) = failures.split_once("\"at\": \"")?;
    let (at, _) = at.split_once('"')?;
    let output = Command::new("date").args(["-d", at, "+%s%N"]).output();
    String::from_utf8_lossy(&output.ok()?.stdout)
        .trim()
        .parse()
        .ok()
}

fn name_launcher(launcher: Launcher, failure: Failure) -> Failure {
    match failure {
        Failure::Failed(message) => Failure::Failed(format!("{launcher:?}: {message}")),
        other => other,
    }
}
