//! `cargo xtask bench recovery`: from a hang to new processes, beside other launchers.
//!
//! All run the same four ranks of `tools/hangs/train.py`, in turns and in one call; the ranks stamp the times. The others are
//! given what they need: `ft_launcher` its calls in the program and time limits set by hand, `torchrun` a short limit of its
//! process group, both the variable without which new ranks cannot find each other (pytorch/pytorch#135712). Trainyard is given
//! `hang-floor: 2s` and a program that knows nothing of it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use super::{
    Figure, Scratch, judge,
    local::{Running, between, fresh, job, lost, median, stamps, trainyard},
    milliseconds, release,
};
use crate::{Failure, frameworks, report, step};

/// Ranks of every run.
const RANKS: usize = 4;
/// Runs of each, in turns.
const RUNS: usize = 3;
/// Bound on one run.
const PATIENCE: Duration = Duration::from_mins(4);
/// How often the right rank must be named with its line.
const NAMED: usize = 20;
/// Bound on the recovery from a hang, as a part of the time that `ft_launcher` takes.
const AT_MOST: f64 = 1.0;
/// Bound on the recovery from a stopped rank.
const STOPPED: Duration = Duration::from_secs(5);

/// Who starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    Trainyard,
    Nvrx,
    Torchrun,
}

/// One run.
struct Run {
    /// From the hang to the first line of the last new process.
    recovery: Duration,
    /// Whether the report names rank 2 and the line at which it stands.
    named: bool,
}

/// Measures every figure and fails where a bound is missed.
pub(crate) fn recovery() -> Result<(), Failure> {
    let bench = Bench {
        binary: release()?,
        pytorch: frameworks::pytorch()?,
        nvrx: frameworks::nvrx()?,
        scratch: Scratch::new("recovery")?,
    };
    let (mut ours, mut theirs, mut torchrun) = (Vec::new(), Vec::new(), Vec::new());
    let mut stopped = Vec::new();
    for turn in 1..=RUNS {
        report::progress(&format!("turn {turn} of {RUNS}"));
        ours.push(bench.run(Launcher::Trainyard, "sleep")?);
        theirs.push(bench.run(Launcher::Nvrx, "sleep")?);
        torchrun.push(bench.run(Launcher::Torchrun, "sleep")?);
        stopped.push(bench.run(Launcher::Trainyard, "stop")?);
    }
    report::progress(&format!("the rank and its line, {NAMED} runs"));
    while ours.len() < NAMED {
        ours.push(bench.run(Launcher::Trainyard, "sleep")?);
    }
    let of = |runs: &[Run]| median(runs.iter().map(|run| run.recovery).collect());
    let (own, peer, other, stop) = (of(&ours), of(&theirs), of(&torchrun), of(&stopped));
    let ratio = own.as_secs_f64() / peer.as_secs_f64();
    let named = ours.iter().filter(|run| run.named).count();
    println!();
    judge(&[
        Figure {
            name: "hang of 1 of 4 ranks to new processes".to_owned(),
            measured: format!(
                "{}, ft_launcher {}: {ratio:.2} of it, torchrun {}",
                milliseconds(own),
                milliseconds(peer),
                milliseconds(other)
            ),
            bound: format!("at most {AT_MOST} of ft_launcher"),
            met: ratio <= AT_MOST,
        },
        Figure {
            name: "stopped rank to new processes".to_owned(),
            measured: milliseconds(stop),
            bound: format!("at most {}", milliseconds(STOPPED)),
            met: stop <= STOPPED,
        },
        Figure {
            name: "rank 2 and its line named".to_owned(),
            measured: format!("{named} of {}", ours.len()),
            bound: format!("{NAMED} of {NAMED}"),
            met: named == ours.len() && named >= NAMED,
        },
    ])
}

struct Bench {
    binary: PathBuf,
    pytorch: PathBuf,
    nvrx: PathBuf,
    scratch: Scratch,
}

impl Bench {
    fn run(&self, launcher: Launcher, kind: &str) -> Result<Run, Failure> {
        let folder = fresh(&self.scratch, "stamps")?;
        let report = folder.join("report");
        let mut command = match launcher {
            Launcher::Trainyard => self.trainyard(&folder, kind, &report)?,
            Launcher::Nvrx => self.ft_launcher(&folder, kind),
            Launcher::Torchrun => self.torchrun(&folder, kind),
        };
        command.env("OMP_NUM_THREADS", "1").stdin(Stdio::null());
        Running::start(&mut command)?
            .finish(PATIENCE)
            .map_err(|failure| match failure {
                Failure::Failed(message) => Failure::Failed(format!("{launcher:?}: {message}")),
                other => other,
            })?;
        let main = stamps(&folder.join("main"));
        let hung = stamps(&folder.join("hang")).first().copied();
        let again = main.get(RANKS..2 * RANKS).and_then(|all| all.iter().max());
        let (Some(hung), Some(again)) = (hung, again) else {
            return Err(Failure::Failed(format!(
                "{launcher:?}: {} processes started",
                main.len()
            )));
        };
        let report = fs::read_to_string(&report).unwrap_or_default();
        Ok(Run {
            recovery: between(hung, *again),
            named: report.contains("rank 2 stands at") && report.contains("train.py:"),
        })
    }

    fn program() -> PathBuf {
        step::root().join("tools/hangs/train.py")
    }

    fn trainyard(&self, folder: &Path, kind: &str, report: &Path) -> Result<Command, Failure> {
        fresh(&self.scratch, "state")?;
        let words = [
            self.pytorch.join("bin/python").display().to_string(),
            Self::program().display().to_string(),
            folder.display().to_string(),
            kind.to_owned(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ranks = u32::try_from(RANKS).unwrap_or(u32::MAX);
        let annotated = "  name: bench\n  annotations: {trainyard.dev/hang-floor: 2s}\n";
        let file = job(ranks, &words).replacen("  name: bench\n", annotated, 1);
        let mut command = trainyard(&self.binary, &self.scratch, &file)?;
        command.stdout(File::create(report).map_err(lost)?);
        Ok(command)
    }

    /// With its own calls in the program, a limit of 2 s for a step and a look every half second.
    fn ft_launcher(&self, folder: &Path, kind: &str) -> Command {
        let mut command = Command::new(self.nvrx.join("bin/ft_launcher"));
        command
            .args(["--nproc-per-node=4", "--max-restarts=2"])
            .args(["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"])
            .args(["--ft-workload-check-interval=0.5"])
            .args(["--ft-rank-section-timeouts=step:2"])
            .args(["--ft-rank-out-of-section-timeout=60"])
            .arg(Self::program())
            .arg(folder)
            .arg(kind)
            .env("USE_NVRX", "1")
            .env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// With a limit of 10 s for every collective: what it waits for otherwise is 30 minutes.
    fn torchrun(&self, folder: &Path, kind: &str) -> Command {
        let mut command = Command::new(self.pytorch.join("bin/torchrun"));
        command
            .args(["--standalone", "--nproc-per-node=4", "--max-restarts=2"])
            .arg(Self::program())
            .arg(folder)
            .arg(kind)
            .env("GROUP_TIMEOUT", "10")
            .env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}
