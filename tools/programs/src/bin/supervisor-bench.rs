//! What a supervisor costs the program that it runs; `cargo xtask bench supervisor` reads the figures.
//!
//! `supervisor-bench BINARY` starts this program as a printer, bare and under `BINARY supervise`, in turns. Its output goes into a pipe that is
//! read at once, as a container runtime does. The supervisor leads a gang of one pod and has no operator, so it reads every line and
//! watches. `supervisor-bench print LINES EVERY_US` is the printer: it computes for so long before each line, and writes every line at once.
#![expect(clippy::print_stdout, reason = "the figures are the program's output")]

use std::{
    error::Error,
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use pem::Pem;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use trainyard_core::launch::{
    agent::{SERVER_NAME, file},
    supervise::variable_name,
};

/// Turns of the busy printer, bare and supervised.
const TURNS: usize = 5;
/// Lines of a busy printer in one turn: some seconds.
const BUSY_LINES: u32 = 60_000;
/// One line in this time is about 15,000 lines a second.
const BUSY_US: u64 = 66;
/// A program that trains prints a few lines a second.
const QUIET_LINES: u32 = 100;
const QUIET_US: u64 = 200_000;
/// Ticks a second in `/proc/PID/stat`; Linux has no other value on the machines that we run on.
const TICKS: f64 = 100.0;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["print", lines, every] => print(lines.parse()?, Duration::from_micros(every.parse()?)),
        [binary] => measure(Path::new(binary)),
        _ => Err("needs the path of the program to measure".into()),
    }
}

/// Prints lines as a trainer does. Sleeps between rare ones, computes between frequent ones.
fn print(lines: u32, every: Duration) -> Outcome<()> {
    let begin = Instant::now();
    let mut out = std::io::stdout().lock();
    let mut value = 1_u64;
    for step in 1..=lines {
        if every > Duration::from_millis(1) {
            std::thread::sleep(every);
        } else {
            // The same number of rounds in every run, so that a busy machine slows both sides.
            for _ in 0..ROUNDS {
                value = std::hint::black_box(
                    value
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .rotate_left(17)
                        ^ u64::from(step),
                );
            }
        }
        out.write_all(
            format!("step {step} loss {:.4} lr 0.0003\n", f64::from(step) / 7.0).as_bytes(),
        )?;
        out.flush()?;
    }
    let mut report = std::io::stderr().lock();
    writeln!(
        report,
        "printer {} {}",
        begin.elapsed().as_micros(),
        own_ticks()?
    )?;
    Ok(())
}

/// Rounds of computing for one line: about [`BUSY_US`] on a core of 3 GHz.
const ROUNDS: u32 = 26_000;

/// Processor time of this process, in microseconds.
fn own_ticks() -> Outcome<u64> {
    // Nanoseconds on a processor, first of three numbers.
    let text = fs::read_to_string("/proc/self/schedstat")?;
    let first = text.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(first.parse::<u64>()? / 1_000)
}

/// One run of the printer.
struct Run {
    wall_us: f64,
    processor_us: f64,
    /// Of the supervisor: part of a core, and resident bytes at their highest.
    supervisor: Option<(f64, f64)>,
}

fn measure(binary: &Path) -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("supervisor-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let outcome = figures(binary, &folder);
    fs::remove_dir_all(&folder)?;
    outcome
}

fn figures(binary: &Path, folder: &Path) -> Outcome<()> {
    write_identity(folder)?;
    let quiet = supervised(binary, folder, QUIET_LINES, QUIET_US)?;
    let (core, bytes) = quiet.supervisor.ok_or("no supervisor was seen")?;
    println!("quiet\t{core:.5}\t{bytes:.0}");
    let (mut bare, mut under) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        bare.push(run(&mut printer(BUSY_LINES, BUSY_US)?, None)?);
        under.push(supervised(binary, folder, BUSY_LINES, BUSY_US)?);
    }
    let median = |runs: &[Run], of: &dyn Fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let wall: &dyn Fn(&Run) -> f64 = &|run| run.wall_us;
    let processor: &dyn Fn(&Run) -> f64 = &|run| run.processor_us;
    let core: &dyn Fn(&Run) -> f64 = &|run| run.supervisor.map_or(f64::NAN, |seen| seen.0);
    let bytes: &dyn Fn(&Run) -> f64 = &|run| run.supervisor.map_or(f64::NAN, |seen| seen.1);
    println!(
        "busy\t{:.0}\t{:.4}\t{:.0}\t{:.4}\t{:.4}",
        f64::from(BUSY_LINES) / median(&under, wall) * 1e6,
        median(&under, core),
        median(&under, bytes),
        median(&under, wall) / median(&bare, wall),
        median(&under, processor) / median(&bare, processor),
    );
    Ok(())
}

fn printer(lines: u32, every: u64) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["print", &lines.to_string(), &every.to_string()]);
    Ok(command)
}

fn supervised(binary: &Path, folder: &Path, lines: u32, every: u64) -> Outcome<Run> {
    let path = |name: &str| folder.join(name).display().to_string();
    fs::write(folder.join("token"), "none\n")?;
    let settings = json!({
        "job": "bench",
        "slot": {"role": "Worker", "index": 0},
        "exitsOnSuccess": true,
        "identity": folder.display().to_string(),
        "leader": format!("127.0.{}.9:28023", std::process::id() % 250),
        // Nobody listens there.
        "operator": {"address": "127.0.0.1:9", "serverName": SERVER_NAME, "authority": path(file::AUTHORITY), "token": path("token")},
        "startWithinMs": 900_000,
        "ranks": {"first": 0, "count": 1, "all": 1},
        "watch": {"mode": "act", "hangAfterMs": 600_000, "hangFloorMs": 30_000, "firstStepWithinMs": 1_800_000},
    });
    let inner = std::env::current_exe()?;
    let mut command = Command::new(binary);
    command
        .args(["supervise", "--"])
        .arg(inner)
        .args(["print", &lines.to_string(), &every.to_string()])
        .env(variable_name::SETTINGS, settings.to_string())
        .env(variable_name::POD_UID, "uid-0")
        .env(variable_name::ATTEMPT, "1");
    let pid = |child: &Child| child.id();
    run(&mut command, Some(&pid))
}

/// Runs it to its end. `watched` says which process is the supervisor.
fn run(command: &mut Command, watched: Option<&dyn Fn(&Child) -> u32>) -> Outcome<Run> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let begin = Instant::now();
    let watched = watched.map(|of| of(&child));
    let mut out = child.stdout.take().ok_or("no stdout")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while out.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    let mut last = None;
    // Until it ends: the kernel forgets its figures then.
    let status = loop {
        if let Some(seen) = watched.and_then(|pid| supervisor(pid, begin.elapsed())) {
            last = Some(seen);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    reader
        .join()
        .map_err(|_| "the reader of the output failed")?;
    let mut text = String::new();
    child
        .stderr
        .take()
        .ok_or("no stderr")?
        .read_to_string(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("printer "));
    let (true, Some(line)) = (status.success(), line) else {
        return Err(format!("{status}: {text}").into());
    };
    let (wall, processor) = line.split_once(' ').ok_or("two figures are needed")?;
    Ok(Run {
        wall_us: wall.parse()?,
        processor_us: processor.parse()?,
        supervisor: last,
    })
}

/// Part of a core since it began, and resident bytes at their highest.
fn supervisor(pid: u32, since: Duration) -> Option<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some((ticks / TICKS / since.as_secs_f64(), kibibytes * 1024.0))
}

fn write_identity(folder: &Path) -> Outcome<()> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let key = KeyPair::generate()?;
    let certificate = authority.self_signed(&key)?;
    let issuer = Issuer::new(authority, key);
    let mut leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
    leaf.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let leaf_key = KeyPair::generate()?;
    let leaf = leaf.signed_by(&leaf_key, &issuer)?;
    for (name, tag, der) in [
        (file::AUTHORITY, "CERTIFICATE", certificate.der().as_ref()),
        (file::CERTIFICATE, "CERTIFICATE", leaf.der().as_ref()),
        (file::KEY, "PRIVATE KEY", leaf_key.serialized_der()),
    ] {
        fs::write(folder.join(name), pem::encode(&Pem::new(tag, der)))?;
    }
    Ok(())
}
