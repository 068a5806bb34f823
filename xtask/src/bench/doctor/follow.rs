//! What following 128 ranks costs, and how soon the verdict is printed.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{Figure, Scratch},
    shapes,
};
use crate::{Failure, cache};

const RANKS: u32 = 128;
const LINES_PER_SECOND: u32 = 15_000;
const SECONDS: u64 = 12;
/// Ticks of the kernel's clock of processor time; 100 on every Linux that we know.
const TICKS: f64 = 100.0;

/// Measures.
pub(super) fn figures(binary: &Path, scratch: &Scratch) -> Result<Vec<Figure>, Failure> {
    let folder = scratch.0.join("follow");
    fs::create_dir_all(&folder).map_err(cache::cannot("make", &folder))?;
    let mut files = Vec::new();
    for rank in 0..RANKS {
        let path = folder.join(format!("rank{rank}.log"));
        files.push(File::create(&path).map_err(cache::cannot("make", &path))?);
    }
    let mut command = Command::new(binary);
    command
        .args(["doctor", "--follow"])
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start {command:?}: {error}")))?;
    let measured = measure(&mut child, &mut files);
    // It follows until it is killed.
    drop(child.kill());
    drop(child.wait());
    let (share, delay) = measured?;
    Ok(vec![
        Figure {
            name: format!("following {RANKS} ranks at {LINES_PER_SECOND} lines/s"),
            measured: format!("{:.1} % of a core", share * 100.0),
            bound: "< 10 %".to_owned(),
            met: share < 0.1,
        },
        Figure {
            name: "from the decisive line to the verdict".to_owned(),
            measured: format!("{:.0} ms", delay.as_secs_f64() * 1e3),
            bound: "< 1000 ms".to_owned(),
            met: delay < Duration::from_secs(1),
        },
    ])
}

fn measure(child: &mut Child, files: &mut [File]) -> Result<(f64, Duration), Failure> {
    let stdout = child.stdout.take().expect("stdout is a pipe");
    let (sender, verdicts) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    let lost = |error: std::io::Error| Failure::CouldNotRun(format!("cannot write a log: {error}"));
    let start = Instant::now();
    let before = processor_seconds(child);
    let mut step = 0;
    // Ten portions a second, each rank in turn, as ranks write.
    let portion = LINES_PER_SECOND / RANKS / 10;
    while start.elapsed() < Duration::from_secs(SECONDS) {
        for (rank, file) in (0..RANKS).zip(files.iter_mut()) {
            let mut text = String::new();
            for _ in 0..=portion {
                step += 1;
                text.push_str(&shapes::step_line(rank, step));
            }
            file.write_all(text.as_bytes()).map_err(lost)?;
        }
        let due = Duration::from_micros(step * 1_000_000 / u64::from(LINES_PER_SECOND));
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    let share = (processor_seconds(child) - before) / start.elapsed().as_secs_f64();
    let decisive = b"RuntimeError: CUDA error: uncorrectable ECC error encountered\n";
    let written = Instant::now();
    if let Some(file) = files.get_mut(77) {
        file.write_all(decisive).map_err(lost)?;
    }
    loop {
        match verdicts.recv_timeout(Duration::from_secs(10)) {
            Ok((at, line)) if line.contains("ecc_error") => {
                return Ok((share, at.saturating_duration_since(written)));
            }
            Ok(_) => {}
            Err(_) => {
                return Err(Failure::Failed("no verdict within 10 seconds".to_owned()));
            }
        }
    }
}

/// Processor time of a process so far.
fn processor_seconds(child: &Child) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}
