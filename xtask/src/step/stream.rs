//! A long command whose output is printed as it comes.
//!
//! Invariant: where it has a limit, it returns within that and a few seconds, whatever the command does or leaves behind. A
//! test that never ends is named and ended, and so is a process that a test left with our pipe as its output.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::fd::AsRawFd as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use super::{line, lost, must_succeed, not_started};
use crate::{Failure, process::Process, report};

/// What comes of the output after the command itself has ended.
const AFTER_END: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);
/// Lines that are read ahead of the one that is passed on.
const AHEAD: usize = 1_000;

/// Runs `command` to its end, however long that takes, printing its stdout line by line and giving each line to `watch`.
pub(crate) fn stream(command: &mut Command, watch: impl FnMut(&str)) -> Result<(), Failure> {
    within(command, None, AFTER_END, watch)
}

/// The same, for a command that must end within `limit`.
pub(crate) fn stream_within(
    command: &mut Command,
    limit: Duration,
    watch: impl FnMut(&str),
) -> Result<(), Failure> {
    within(command, Some(limit), AFTER_END, watch)
}

fn within(
    command: &mut Command,
    limit: Option<Duration>,
    after_end: Duration,
    mut watch: impl FnMut(&str),
) -> Result<(), Failure> {
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| not_started(command, &error))?;
    let output = child.stdout.take().expect("stdout is piped");
    let pipe = fs::read_link(format!("/proc/self/fd/{}", output.as_raw_fd())).ok();
    let (send, lines) = sync_channel(AHEAD);
    thread::spawn(move || {
        for text in BufReader::new(output).split(b'\n') {
            if send.send(text).is_err() {
                return;
            }
        }
    });
    let mut pass_on = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        println!("{text}");
        watch(&text);
    };
    let deadline = limit.map(|limit| start + limit);
    let ended = follow(&mut child, &lines, deadline, after_end, &mut pass_on)
        .map_err(|error| lost(command, &error))?;
    drop(std::io::stdout().flush());
    match ended {
        Ended::Whole => {}
        Ended::OutputHeld => {
            let left = end(holders(pipe.as_ref()));
            report::error(&format!(
                "`{}` has ended, and these processes that it left held its output open; they were ended:\n{left}",
                line(command)
            ));
        }
        Ended::TooLong => {
            let mut running = tree(child.id());
            running.extend(holders(pipe.as_ref()));
            let left = end(running);
            drop(child.wait());
            return Err(Failure::Failed(format!(
                "`{}` did not end within {}; what ran was ended:\n{left}",
                line(command),
                report::seconds(limit.unwrap_or_default())
            )));
        }
    }
    let status = child.wait().map_err(|error| lost(command, &error))?;
    must_succeed(command, status)
}

enum Ended {
    /// It ended, and all that it wrote was read.
    Whole,
    /// It ended, and something that it left may write still.
    OutputHeld,
    TooLong,
}

fn follow(
    child: &mut Child,
    lines: &Receiver<std::io::Result<Vec<u8>>>,
    deadline: Option<Instant>,
    after_end: Duration,
    pass_on: &mut impl FnMut(&[u8]),
) -> std::io::Result<Ended> {
    let mut over: Option<(ExitStatus, Instant)> = None;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(text) => pass_on(&text?),
            Err(RecvTimeoutError::Disconnected) => return Ok(Ended::Whole),
            Err(RecvTimeoutError::Timeout) => {
                if over.is_none() {
                    over = child.try_wait()?.map(|status| (status, Instant::now()));
                }
            }
        }
        if over.is_some_and(|(_, at)| at.elapsed() > after_end) {
            return Ok(Ended::OutputHeld);
        }
        if over.is_none() && deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Ok(Ended::TooLong);
        }
    }
}

/// The processes other than this one that have the other end of `pipe`.
fn holders(pipe: Option<&PathBuf>) -> Vec<Process> {
    let Some(pipe) = pipe else {
        return Vec::new();
    };
    let holds = |process: &Process| {
        fs::read_dir(format!("/proc/{}/fd", process.pid)).is_ok_and(|entries| {
            entries
                .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
                .any(|target| target == *pipe)
        })
    };
    Process::all()
        .into_iter()
        .filter(|process| process.pid != std::process::id() && holds(process))
        .collect()
}

/// A process and all that descend from it.
fn tree(root: u32) -> Vec<Process> {
    let all: Vec<(Process, Option<u32>)> = Process::all()
        .into_iter()
        .map(|process| {
            let parent = process.parent();
            (process, parent)
        })
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        let children = all.iter().filter(|(_, of)| *of == Some(parent));
        found.extend(children.map(|(process, _)| process.pid));
        at += 1;
    }
    all.into_iter()
        .map(|(process, _)| process)
        .filter(|process| found.contains(&process.pid))
        .collect()
}

/// Ends processes and returns a line for each.
fn end(mut processes: Vec<Process>) -> String {
    processes.sort_by_key(|process| process.pid);
    processes.dedup_by_key(|process| process.pid);
    let mut lines = Vec::new();
    for process in &processes {
        lines.push(format!("  {} {}", process.pid, process.arguments.join(" ")));
        process.kill("KILL");
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_mins(2);
    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn lines_and_exit_status_are_passed_on() {
        let mut seen = Vec::new();
        let done = within(&mut sh("echo a; echo b"), None, LONG, |line| {
            seen.push(line.to_owned());
        });
        assert!(done.is_ok());
        assert_eq!(seen, ["a", "b"]);
        let failed = within(&mut sh("exit 3"), Some(LONG), LONG, |_| {});
        assert!(matches!(failed, Err(Failure::Failed(why)) if why.contains("exit status: 3")));
    }

    #[test]
    fn leftover_process_is_ended() {
        let start = Instant::now();
        let mut left = String::new();
        let done = within(&mut sh("sleep 600 & echo $!"), None, SHORT, |line| {
            line.clone_into(&mut left);
        });
        assert!(done.is_ok());
        assert!(start.elapsed() < LONG);
        gone(&left);
    }

    #[test]
    fn timed_out_command_is_ended_with_its_children() {
        let mut left = String::new();
        let script = "sleep 600 >/dev/null & echo $!; wait";
        let done = within(&mut sh(script), Some(SHORT * 3), LONG, |line| {
            line.clone_into(&mut left);
        });
        assert!(
            matches!(&done, Err(Failure::Failed(why)) if why.contains("did not end within") && why.contains("sleep 600")),
            "{done:?}"
        );
        gone(&left);
    }

    /// Waits until no such process runs.
    fn gone(pid: &str) {
        let end = Instant::now() + LONG;
        while Process::all().iter().any(|one| one.pid.to_string() == pid) {
            assert!(Instant::now() < end, "process {pid} still runs");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
