//! The training program: its start, its end, and its stop with everything that it started.
//!
//! Nothing here waits: [`Program::step`] does what is due, and [`Program::wake_at`] says when it is due again.
//!
//! # Stop
//! SIGTERM to the program's group for the grace period (none for a hang); then SIGCONT and SIGABRT to every descendant, so that those that
//! print their stacks do, for [`ABORT`]; then SIGKILL to every descendant until none is left; then the memory of GPUs is waited for, at most
//! [`GPU_WITHIN`]; then what is left in shared memory is removed.
//! A stop ends as soon as nothing is left. After [`STOP_WITHIN`] it is reported that the program cannot be stopped, and SIGKILL goes
//! on.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use nix::{sys::signal::Signal, unistd::Pid};
use trainyard_core::{
    barrier::{Limits, ProgramExit, StopHow},
    launch::{checkpoints::variable_name::RESUME_STEP, supervise::variable_name},
};
use trainyard_probe::evidence::GpuMemory;

use super::{
    descriptors::Descriptors,
    lines::Lines,
    processes::{self, Reaped},
    shared_memory,
};
use crate::log_message;

/// Between SIGABRT and SIGKILL: a program prints its stacks in a fraction of it.
const ABORT: Duration = Duration::from_secs(2);
/// From the start of a stop until it is reported that it does not succeed: a process that waits for a device or a disk ends with that.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// The time that SIGKILL has at least, however long the grace period was.
const KILL_WITHIN: Duration = Duration::from_secs(3);
/// Between two rounds of SIGKILL, at first; processes that forked meanwhile get the next one.
const ROUND: Duration = Duration::from_millis(20);
/// The same once it was reported that the program cannot be stopped.
const SLOW_ROUND: Duration = Duration::from_secs(1);
/// How long the last output of a stopped program is waited for before the next attempt starts.
const DRAIN_WITHIN: Duration = Duration::from_secs(1);
/// The same before this process ends.
const DRAIN_AT_END: Duration = Duration::from_secs(5);
/// How long the memory of GPUs is waited for.
const GPU_WITHIN: Duration = Duration::from_secs(30);
/// What is left then of the time after which a member that has not stopped is lost: a driver that does not respond is waited for 5 s longer, and the
/// report has to arrive.
const GPU_MARGIN: Duration = Duration::from_secs(6);
/// The exit code of shells for a program that does not exist.
const NOT_FOUND: i32 = 127;

/// What happened to the program of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It ended by itself, or was stopped.
    Ended { attempt: u32, exit: ProgramExit },
    /// Nothing of it is left.
    Stopped { attempt: u32 },
    /// It does not end.
    CannotStop { attempt: u32 },
}

#[derive(Debug)]
struct Running {
    attempt: u32,
    pid: Pid,
    began: SystemTime,
    exit: Option<ProgramExit>,
}

#[derive(Debug)]
struct Stop {
    attempt: u32,
    began: Duration,
    stage: Stage,
    reported: bool,
    next: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Term { until: Duration },
    Abort { until: Duration },
    Kill { since: Duration },
}

/// The program of the newest attempt.
#[derive(Debug)]
pub(crate) struct Program {
    words: Vec<OsString>,
    descriptors: Descriptors,
    running: Option<Running>,
    stop: Option<Stop>,
    events: VecDeque<Event>,
    /// Since when nothing is left.
    alone_since: Option<Duration>,
    /// Where its output is read.
    lines: Option<Lines>,
    /// Variables that are added to its environment.
    variables: Vec<(&'static str, String)>,
    /// The GPUs of the pod.
    gpus: Option<GpuMemory>,
    /// How long a whole stop may take before the member is lost.
    stop_within: Duration,
    /// The attempt that the environment of the pod was made for.
    made_for: Option<u32>,
}

impl Program {
    /// A program that is not started yet.
    pub(crate) fn new(words: &[OsString], descriptors: Descriptors, lines: Option<Lines>) -> Self {
        Self {
            words: words.to_vec(),
            descriptors,
            running: None,
            stop: None,
            events: VecDeque::new(),
            alone_since: None,
            lines,
            variables: Vec::new(),
            gpus: None,
            stop_within: Limits::default().stop_within,
            made_for: None,
        }
    }

    /// The same in a pod whose environment was made for this attempt.
    pub(crate) fn made_for(mut self, attempt: u32) -> Self {
        self.made_for = Some(attempt);
        self
    }

    /// The same with variables that are added to its environment.
    pub(crate) fn with_variables(mut self, variables: Vec<(&'static str, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// The same with GPUs whose memory is waited for after a stop. A member that takes longer than `stop_within` to stop is lost.
    pub(crate) fn with_gpus(mut self, gpus: Option<GpuMemory>, stop_within: Duration) -> Self {
        self.gpus = gpus;
        self.stop_within = stop_within;
        self
    }

    /// Where its output is read.
    pub(crate) fn lines(&self) -> Option<&Lines> {
        self.lines.as_ref()
    }

    /// Starts it as `attempt`, in a group of its own. A program that cannot be started has ended with code 127.
    pub(crate) fn start(&mut self, attempt: u32) {
        let added = self.variables.clone();
        let is_other = self.made_for.is_some_and(|made_for| made_for != attempt);
        self.start_with(attempt, |command| {
            if is_other {
                // The checkpoint that an earlier attempt started from is not the newest one any more.
                command.env_remove(RESUME_STEP);
            }
            command
                .envs(added)
                .env_remove(variable_name::SETTINGS)
                .env(variable_name::ATTEMPT, attempt.to_string());
        });
    }

    /// Starts it with the environment of this process, where there is no gang and no attempt.
    pub(crate) fn start_alone(&mut self) {
        self.start_with(0, |_| {});
    }

    fn start_with(&mut self, attempt: u32, change: impl FnOnce(&mut Command)) {
        if let Err(error) = self.spawn(attempt, change) {
            let name = self.words.first().map(|word| word.display());
            let name = name.map(|name| name.to_string()).unwrap_or_default();
            log_message(&format!("cannot start `{name}`: {error}"));
            let exit = ProgramExit {
                code: NOT_FOUND,
                signal: None,
            };
            self.running = None;
            self.events.push_back(Event::Ended { attempt, exit });
        }
    }

    fn spawn(&mut self, attempt: u32, change: impl FnOnce(&mut Command)) -> io::Result<()> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        change(&mut command);
        if let Some(lines) = &self.lines {
            let [stdout, stderr] = lines.open(attempt)?;
            command
                .stdout(Stdio::from(stdout))
                .stderr(Stdio::from(stderr));
        }
        let began = SystemTime::now();
        // Reaped with all others, so the handle is not needed.
        let child = self.descriptors.with_own_limit(|| command.spawn())?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        self.alone_since = None;
        self.running = Some(Running {
            attempt,
            pid,
            began,
            exit: None,
        });
        Ok(())
    }

    /// How the newest program ended; `None` where it runs, or none was started.
    pub(crate) fn exit(&self) -> Option<ProgramExit> {
        self.running.as_ref()?.exit
    }

    /// Whether the newest program has not ended.
    pub(crate) fn runs(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.exit.is_none())
    }

    /// Passes a signal on to the program's group.
    pub(crate) fn forward(&self, signal: Signal) {
        if let Some(running) = &self.running {
            processes::signal_group(running.pid, signal);
        }
    }

    /// Begins to stop the program of `attempt`; a stop without grace overrides one that grants it.
    pub(crate) fn stop(&mut self, attempt: u32, how: StopHow, now: Duration) {
        let grace = match how {
            StopHow::Grace(grace) => grace,
            StopHow::Hang => Duration::ZERO,
        };
        let until = now.saturating_add(grace);
        match &mut self.stop {
            Some(Stop {
                attempt: of,
                stage: Stage::Term { until: before },
                next,
                ..
            }) if *of == attempt => {
                *before = until.min(*before);
                *next = now;
            }
            Some(Stop { attempt: of, .. }) if *of == attempt => {}
            _ => {
                match self.runs() {
                    _ if grace.is_zero() => {}
                    true => self.forward(Signal::SIGTERM),
                    // What it left behind has its own groups.
                    false => processes::signal_all(Signal::SIGTERM),
                }
                self.stop = Some(Stop {
                    attempt,
                    began: now,
                    stage: Stage::Term { until },
                    reported: false,
                    next: now,
                });
            }
        }
    }

    /// Kills everything that is left, for the end of this process; waits for at most a second.
    pub(crate) fn end_all(&mut self) {
        for _ in 0..50 {
            if self.reap() {
                break;
            }
            processes::signal_all(Signal::SIGKILL);
            thread::sleep(ROUND);
        }
        if let Some(lines) = &self.lines {
            lines.drain(DRAIN_AT_END);
        }
    }

    /// When [`Program::step`] has something to do, at the latest.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.stop.as_ref().map(|stop| stop.next)
    }

    /// Reaps what has ended, and goes on with a stop.
    pub(crate) fn step(&mut self, now: Duration) -> Vec<Event> {
        // Meanwhile nothing of the program is left; a child is the program that reads GPUs, and must not be killed.
        if self.waits_for_gpus(now) {
            return self.events.drain(..).collect();
        }
        if self.reap() {
            let since = *self.alone_since.get_or_insert(now);
            let drained = self.lines.as_ref().is_none_or(Lines::is_drained);
            if drained || now.saturating_sub(since) >= DRAIN_WITHIN {
                if !self.begin_gpu_wait(now) {
                    self.finish();
                }
            } else if let Some(stop) = &mut self.stop {
                stop.next = now + ROUND;
            }
        } else {
            self.alone_since = None;
            self.go_on(now);
        }
        self.events.drain(..).collect()
    }

    /// Begins to wait for the memory of GPUs where there are any and a program ran; whether it did.
    fn begin_gpu_wait(&mut self, now: Duration) -> bool {
        let (Some(gpus), Some(stop), Some(_)) = (&mut self.gpus, &mut self.stop, &self.running)
        else {
            return false;
        };
        gpus.wait(gpu_wait(self.stop_within, now.saturating_sub(stop.began)));
        stop.next = now + ROUND;
        true
    }

    /// Goes on with a wait for the memory of GPUs; whether it goes on.
    fn waits_for_gpus(&mut self, now: Duration) -> bool {
        let Some(gpus) = self.gpus.as_mut().filter(|gpus| gpus.is_waiting()) else {
            return false;
        };
        match (gpus.take(), &mut self.stop) {
            (None, Some(stop)) => {
                stop.next = now + ROUND;
                true
            }
            (None, None) => true,
            (Some(waited), _) => {
                log_message(&waited.to_string());
                self.reap();
                self.finish();
                false
            }
        }
    }

    /// Whether nothing is left.
    fn reap(&mut self) -> bool {
        let Reaped { ended, alone } = processes::reap();
        for (pid, exit) in ended {
            if let Some(running) = &mut self.running
                && running.pid == pid
                && running.exit.is_none()
            {
                running.exit = Some(exit);
                let attempt = running.attempt;
                self.events.push_back(Event::Ended { attempt, exit });
            }
        }
        alone
    }

    fn finish(&mut self) {
        let Some(stop) = self.stop.take() else {
            return;
        };
        if let Some(running) = &self.running {
            shared_memory::remove_leftovers(Path::new(shared_memory::FOLDER), running.began);
        }
        let attempt = stop.attempt;
        self.events.push_back(Event::Stopped { attempt });
    }

    fn go_on(&mut self, now: Duration) {
        let Some(stop) = &mut self.stop else {
            return;
        };
        if let Stage::Term { until } = stop.stage
            && now >= until
        {
            processes::abort_all();
            let until = now + ABORT;
            stop.stage = Stage::Abort { until };
        }
        if let Stage::Abort { until } = stop.stage
            && now >= until
        {
            stop.stage = Stage::Kill { since: now };
            stop.next = now;
        }
        match stop.stage {
            Stage::Term { until } | Stage::Abort { until } => stop.next = until,
            Stage::Kill { since } if now >= stop.next => {
                processes::signal_all(Signal::SIGKILL);
                let late = now.saturating_sub(stop.began) >= STOP_WITHIN
                    && now.saturating_sub(since) >= KILL_WITHIN;
                if late && !stop.reported {
                    stop.reported = true;
                    let attempt = stop.attempt;
                    self.events.push_back(Event::CannotStop { attempt });
                }
                stop.next = now + if stop.reported { SLOW_ROUND } else { ROUND };
            }
            Stage::Kill { .. } => {}
        }
    }
}

/// How long memory is waited for in a stop that may take `stop_within` and has taken `spent`.
fn gpu_wait(stop_within: Duration, spent: Duration) -> Duration {
    let left = stop_within.saturating_sub(GPU_MARGIN.saturating_add(spent));
    left.min(GPU_WITHIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_wait_ends_before_the_member_is_lost() {
        // Seconds: how long a stop may take, how long it took, how long memory is waited for.
        let cases = [
            (35, 0, 29),
            (35, 7, 22),
            (35, 34, 0),
            (90, 0, 30),
            (5, 0, 0),
        ];
        for (within, spent, want) in cases {
            let found = gpu_wait(Duration::from_secs(within), Duration::from_secs(spent));
            assert_eq!(found, Duration::from_secs(want), "{within} {spent}");
        }
    }
}
