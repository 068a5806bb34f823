//! Speed beside ripgrep, and memory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{Figure, Scratch},
    shapes,
};
use crate::{
    Failure,
    cache::{self, Part},
    step,
};

const RANKS: u32 = 1024;
/// Runs of each program, in turns; the best counts, for noise only ever slows.
const RUNS: usize = 3;
/// What is installed where no `rg` is found.
const RIPGREP: &str = "14.1.1";
/// The program, in the folder it is installed to.
const PROGRAM: &str = "bin/rg";

/// Measures both programs on the same files, in the page cache.
pub(super) fn figures(
    binary: &Path,
    scratch: &Scratch,
    megabytes: usize,
) -> Result<Vec<Figure>, Failure> {
    let ripgrep = ripgrep()?;
    let folder = scratch.0.join("ranks");
    fs::create_dir_all(&folder).map_err(cache::cannot("make", &folder))?;
    println!("writing {megabytes} MB of logs of {RANKS} ranks");
    let each = (megabytes << 20) / RANKS as usize;
    let mut total = 0_u64;
    for rank in 0..RANKS {
        let text = shapes::rank_log(rank, RANKS, each);
        total += text.len() as u64;
        let path = folder.join(format!("rank{rank}.log"));
        fs::write(&path, text).map_err(cache::cannot("write", &path))?;
    }
    let (mut search, mut read, mut peak) = (Duration::MAX, Duration::MAX, 0);
    for _ in 0..RUNS {
        let mut command = Command::new(&ripgrep);
        command
            .args(["-c", "NCCL|ERROR|Traceback", "--threads", "2"])
            .arg(&folder);
        search = search.min(watched(&mut command, &[0])?.0);
        let mut command = Command::new(binary);
        command.args(["doctor", "--format", "json"]).arg(&folder);
        let (time, memory) = watched(&mut command, &[1])?;
        read = read.min(time);
        peak = peak.max(memory);
    }
    let read_megabytes = f64::from(u32::try_from(total / 1_000_000).unwrap_or(u32::MAX));
    let speed = |time: Duration| read_megabytes / time.as_secs_f64();
    let share = speed(read) / speed(search);
    Ok(vec![
        Figure {
            name: "`rg -c 'NCCL|ERROR|Traceback'`".to_owned(),
            measured: format!("{:.0} MB/s", speed(search)),
            bound: String::new(),
            met: true,
        },
        Figure {
            name: "`doctor` on the same files".to_owned(),
            measured: format!("{:.0} MB/s", speed(read)),
            bound: "≥ 800 MB/s".to_owned(),
            met: speed(read) >= 800.0,
        },
        Figure {
            name: "share of ripgrep's speed".to_owned(),
            measured: format!("{share:.2}"),
            bound: "≥ 0.5".to_owned(),
            met: share >= 0.5,
        },
        Figure {
            name: format!("memory for {RANKS} ranks"),
            measured: format!("{} MB", peak / 1000),
            bound: "< 150 MB".to_owned(),
            met: peak < 150_000,
        },
    ])
}

/// Runs `command`; its wall time and the most memory it held, in kB.
fn watched(command: &mut Command, codes: &[i32]) -> Result<(Duration, u64), Failure> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start {command:?}: {error}")))?;
    let mut peak = 0;
    let status = loop {
        let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let memory = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(memory.unwrap_or(0));
        let ended = child
            .try_wait()
            .map_err(|error| Failure::CouldNotRun(format!("lost {command:?}: {error}")))?;
        if let Some(status) = ended {
            break status;
        }
        thread::sleep(Duration::from_millis(2));
    };
    let time = start.elapsed();
    if status.code().is_none_or(|code| !codes.contains(&code)) {
        return Err(Failure::Failed(format!("{command:?} ended with {status}")));
    }
    Ok((time, peak))
}

/// `rg`, for `cargo xtask prepare`.
pub(crate) fn ripgrep_cache() -> Part {
    Part {
        name: "peer: ripgrep".to_owned(),
        used_by: "bench doctor",
        took: Duration::from_mins(1),
        is_there: Box::new(|| Ok(is_on_path() || folder()?.join(PROGRAM).exists())),
        make: Box::new(|| ripgrep().map(|_| ())),
    }
}

fn is_on_path() -> bool {
    let on_path = Command::new("rg").arg("--version").output();
    on_path.is_ok_and(|output| output.status.success())
}

fn folder() -> Result<PathBuf, Failure> {
    Ok(cache::folder()?.join(format!("ripgrep-{RIPGREP}")))
}

/// `rg` of the path, else one that is installed beside the frameworks.
fn ripgrep() -> Result<PathBuf, Failure> {
    if is_on_path() {
        return Ok("rg".into());
    }
    let root = folder()?;
    let program = root.join(PROGRAM);
    if !program.exists() {
        let mut install = step::cargo(&["install", "ripgrep", "--locked", "--version", RIPGREP]);
        step::run(install.arg("--root").arg(&root))?;
    }
    Ok(program)
}
