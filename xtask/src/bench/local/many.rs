//! Five hundred ranks that sleep: how soon they are all there, and what the engine costs meanwhile.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use super::{Figure, Running, Scratch, between, fresh, job, now, trainyard};
use crate::{Failure, report};

/// Ranks.
const RANKS: u32 = 500;
/// Bound on the time until all of them run.
const START: Duration = Duration::from_secs(3);
/// Bound on the most memory that the engine ever held, in kilobytes.
const MEMORY_KB: u64 = 60_000;
/// Bound on the engine's part of one core while the ranks sleep.
const SHARE: f64 = 0.02;
/// How long that part is watched.
const WATCH: Duration = Duration::from_secs(5);
/// Ticks of the processor's clock in a second, on every Linux that we know of.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn figures(binary: &Path) -> Result<Vec<Figure>, Failure> {
    report::progress("500 ranks");
    let scratch = Scratch::new("many")?;
    let folder = fresh(&scratch, "stamps")?;
    let script = ": > \"$0/$RANK\"; exec sleep 1000";
    let command = ["sh", "-c", script, &folder.to_string_lossy()];
    let mut command = trainyard(binary, &scratch, &job(RANKS, &command))?;
    let began = now();
    let mut running = Running::start(&mut command)?;
    let last = running.wait_for("500 ranks", Duration::from_mins(2), || last_start(&folder))?;
    let start = between(began, last);

    let process = PathBuf::from(format!("/proc/{}", running.0.id()));
    let before = ticks(&process)?;
    thread::sleep(WATCH);
    let spent = ticks(&process)? - before;
    let share = spent / TICKS_PER_SECOND / WATCH.as_secs_f64();
    let memory = kilobytes(&process.join("status"), "VmHWM:")?;
    running.stop()?;
    Ok(vec![
        Figure {
            name: "500 ranks of `sleep`, until all run".to_owned(),
            measured: report::seconds(start),
            bound: format!("under {}", report::seconds(START)),
            met: start < START,
        },
        Figure {
            name: "engine's memory with 500 ranks, at most".to_owned(),
            measured: format!("{:.1} MB", megabytes(memory)),
            bound: format!("under {:.0} MB", megabytes(MEMORY_KB)),
            met: memory < MEMORY_KB,
        },
        Figure {
            name: "engine's part of one core with 500 ranks".to_owned(),
            measured: format!("{:.1} %", share * 100.0),
            bound: format!("under {:.0} %", SHARE * 100.0),
            met: share < SHARE,
        },
    ])
}

/// When the last rank left its file, in nanoseconds since 1970; `None` while one is missing.
fn last_start(folder: &Path) -> Option<u128> {
    let files: Vec<_> = fs::read_dir(folder).ok()?.flatten().collect();
    if files.len() < RANKS as usize {
        return None;
    }
    let times = files.iter().filter_map(|file| {
        let modified = file.metadata().ok()?.modified().ok()?;
        Some(modified.duration_since(UNIX_EPOCH).ok()?.as_nanos())
    });
    times.max()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "megabytes for reading; memory has far fewer digits"
)]
fn megabytes(kilobytes: u64) -> f64 {
    kilobytes as f64 / 1000.0
}

/// The processor time that a process has used.
fn ticks(process: &Path) -> Result<f64, Failure> {
    let path = process.join("stat");
    let text = read(&path)?;
    // The name of the program, in brackets, may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |at: usize| fields.split_whitespace().nth(at)?.parse::<f64>().ok();
    match (field(11), field(12)) {
        (Some(user), Some(system)) => Ok(user + system),
        _ => Err(unreadable(&path)),
    }
}

fn kilobytes(path: &Path, name: &str) -> Result<u64, Failure> {
    read(path)?
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .ok_or_else(|| unreadable(path))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|_| unreadable(path))
}

fn unreadable(path: &Path) -> Failure {
    Failure::CouldNotRun(format!("cannot read `{}`", path.display()))
}
