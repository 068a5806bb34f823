//! Process 1 of a pod: starts containers, reaps what ends, follows orders.
//!
//! Invariant: it only leaves when the pod is over, and with it the kernel ends every process that
//! is still there.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    process::Stdio,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal, kill, killpg},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    mounts,
    spawn::{NotStarted, Streams, spawn},
};
use crate::{
    channel,
    wire::{Container, Order, PodSpec, Report, Restart, VolumeFile},
};

/// Pause before the second restart in place; it doubles with each further one. The first restart
/// comes at once, as the kubelet's does.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// A container that ran for this long begins again without a pause, as under the kubelet.
const STEADY: Duration = Duration::from_mins(10);
/// One turn of a slowed pod: short enough that no heartbeat of a framework notices the pauses.
const TURN: Duration = Duration::from_millis(100);

/// Every process of the pod but this one.
const EVERYONE: Pid = Pid::from_raw(-1);

/// Runs the pod to its end.
pub(super) fn supervise(
    socket: &OwnedFd,
    spec: &PodSpec,
    streams: impl Iterator<Item = OwnedFd>,
) -> io::Result<()> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children.thread_block()?;
    let ended = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut supervisor = Supervisor::new(socket, spec, streams)?;
    while !supervisor.advance()? {
        let (child_ended, order_came) = {
            let mut watched = [
                PollFd::new(ended.as_fd(), PollFlags::POLLIN),
                PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut watched, supervisor.poll_timeout()) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let [child, order] = watched;
            (child.any() == Some(true), order.any() == Some(true))
        };
        if child_ended {
            while ended.read_signal()?.is_some() {}
            supervisor.reap()?;
        }
        if order_came {
            let Some((order, descriptors)) = channel::receive(socket)? else {
                // The engine is gone; so is the pod.
                return Ok(());
            };
            supervisor.handle_order(order, descriptors)?;
        }
    }
    Ok(())
}

/// One container.
struct Run<'a> {
    container: &'a Container,
    output: OwnedFd,
    error: OwnedFd,
    pid: Option<Pid>,
    restarts: u32,
    started: Instant,
    /// How long it waits before it starts again, once it may.
    pause: Option<Duration>,
    /// When it starts again.
    due: Option<Instant>,
    /// Its exit code, once it has ended for good.
    ended: Option<i32>,
    /// The code that it is said to end with.
    reported_code: Option<i32>,
}

/// Which containers are meant to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The init container at this place.
    Init(usize),
    /// All containers.
    Main,
    /// None but sidecars, which are to end.
    Draining,
}

struct Supervisor<'a> {
    socket: &'a OwnedFd,
    spec: &'a PodSpec,
    /// Init containers, then containers.
    runs: Vec<Run<'a>>,
    stage: Stage,
    /// When the pod ends whether or not its processes have.
    deadline: Option<Instant>,
    stopping: bool,
    /// Commands run beside containers.
    commands: BTreeMap<Pid, u64>,
    rhythm: Option<Rhythm>,
}

/// A slowed pod runs for a part of each turn.
struct Rhythm {
    runs: Duration,
    stopped: bool,
    turns_at: Instant,
}

/// Whether the pod has a process besides this one.
fn has_processes() -> bool {
    !matches!(kill(EVERYONE, None), Err(nix::Error::ESRCH))
}

impl<'a> Supervisor<'a> {
    fn new(
        socket: &'a OwnedFd,
        spec: &'a PodSpec,
        mut streams: impl Iterator<Item = OwnedFd>,
    ) -> io::Result<Self> {
        let mut runs = Vec::new();
        for container in spec.init_containers.iter().chain(&spec.containers) {
            let (Some(output), Some(error)) = (streams.next(), streams.next()) else {
                return Err(io::Error::other("a container was sent without its streams"));
            };
            runs.push(Run {
                container,
                output,
                error,
                pid: None,
                restarts: 0,
                pause: None,
                started: Instant::now(),
                due: None,
                ended: None,
                reported_code: None,
            });
        }
        let stage = if spec.init_containers.is_empty() {
            Stage::Main
        } else {
            Stage::Init(0)
        };
        let mut supervisor = Self {
            socket,
            spec,
            runs,
            stage,
            deadline: None,
            stopping: false,
            commands: BTreeMap::new(),
            rhythm: None,
        };
        supervisor.enter(stage)?;
        Ok(supervisor)
    }

    fn report(&self, report: &Report) -> io::Result<()> {
        channel::send(self.socket, report, &[])
    }

    /// Does what is due; true when the pod is over.
    fn advance(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        self.apply_slowdown(now);
        for at in 0..self.runs.len() {
            if self.runs[at].due.is_some_and(|due| due <= now) && !self.stopping {
                self.runs[at].due = None;
                self.start(at)?;
            }
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return self.leave();
        }
        if self.stopping {
            self.stop_sidecars_last();
            // Whatever the containers left behind may still be saving.
            return if has_processes() {
                Ok(false)
            } else {
                self.leave()
            };
        }
        match self.stage {
            Stage::Main if self.main_runs().all(|run| run.ended.is_some()) => {
                self.stage = Stage::Draining;
                let grace = Duration::from_millis(self.spec.grace_millis);
                self.deadline = Some(now + grace);
                self.signal_sidecars();
                self.leave_when_drained()
            }
            Stage::Draining => self.leave_when_drained(),
            // An init container that failed for good ends the pod.
            Stage::Init(at) if self.runs[at].ended.is_some_and(|code| code != 0) => self.leave(),
            Stage::Init(_) | Stage::Main => Ok(false),
        }
    }

    fn leave_when_drained(&mut self) -> io::Result<bool> {
        if self.sidecars().all(|run| run.pid.is_none()) {
            self.leave()
        } else {
            Ok(false)
        }
    }

    /// The last word of the pod.
    fn leave(&mut self) -> io::Result<bool> {
        let succeeded = self.main_runs().all(|run| run.ended == Some(0));
        self.report(&Report::Ended { succeeded })?;
        Ok(true)
    }

    fn main_runs(&self) -> impl Iterator<Item = &Run<'a>> {
        self.runs.iter().skip(self.spec.init_containers.len())
    }

    fn sidecars(&self) -> impl Iterator<Item = &Run<'a>> {
        self.runs.iter().filter(|run| run.container.sidecar)
    }

    /// Starts what `stage` calls for.
    fn enter(&mut self, stage: Stage) -> io::Result<()> {
        self.stage = stage;
        let inits = self.spec.init_containers.len();
        match stage {
            Stage::Init(at) => {
                self.start(at)?;
                if self.spec.init_containers[at].sidecar {
                    self.enter_after(at)?;
                }
                Ok(())
            }
            Stage::Main => {
                for at in inits..self.runs.len() {
                    self.start(at)?;
                }
                self.report(&Report::Running)
            }
            Stage::Draining => Ok(()),
        }
    }

    fn enter_after(&mut self, init: usize) -> io::Result<()> {
        let next = init + 1;
        self.enter(if next < self.spec.init_containers.len() {
            Stage::Init(next)
        } else {
            Stage::Main
        })
    }

    fn start(&mut self, at: usize) -> io::Result<()> {
        let spec = self.spec;
        let run = &mut self.runs[at];
        let streams = Streams {
            input: Stdio::null(),
            output: run.output.try_clone()?,
            error: run.error.try_clone()?,
        };
        run.started = Instant::now();
        match spawn(spec, run.container, &run.container.command, streams) {
            Ok(pid) => {
                run.pid = Some(pid);
                Ok(())
            }
            Err(NotStarted::Surroundings(message)) => {
                self.report(&Report::Broken {
                    message: message.clone(),
                })?;
                Err(io::Error::other(message))
            }
            Err(NotStarted::Program(error)) => {
                let program = run.container.command.first().map_or("", String::as_str);
                let line = format!("trainyard: cannot run `{program}`: {error}\n");
                drop(File::from(run.error.try_clone()?).write_all(line.as_bytes()));
                let code = NotStarted::code(&error);
                self.ended(at, code, false)
            }
        }
    }

    /// Takes note of every process that ended.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            let (pid, code, signaled) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, code, false),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32, true),
                Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return Ok(()),
                Ok(_) | Err(nix::Error::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if let Some(id) = self.commands.remove(&pid) {
                self.report(&Report::ExecEnded { id, code })?;
                self.pass_on_stop(pid);
            } else if let Some(at) = self.runs.iter().position(|run| run.pid == Some(pid)) {
                self.runs[at].pid = None;
                self.end_leftovers(pid);
                self.pass_on_stop(pid);
                match self.runs[at].reported_code.take() {
                    Some(code) => self.ended(at, code, false)?,
                    None => self.ended(at, code, signaled)?,
                }
            }
        }
    }

    /// A container ends with its first process; what that left behind ends with it, so that a
    /// container that starts again never meets ranks of the one before.
    ///
    /// Caveat: beside another container only those are found that stayed in its process group.
    fn end_leftovers(&self, leader: Pid) {
        if self.stopping {
            return;
        }
        let alone = self.runs.iter().all(|run| run.pid.is_none());
        // Without a process left there is nobody to end.
        if alone {
            kill(EVERYONE, Signal::SIGKILL).ok();
        } else {
            killpg(leader, Signal::SIGKILL).ok();
        }
    }

    /// A shell that ends at `SIGTERM` does not pass it on to what it runs.
    fn pass_on_stop(&self, leader: Pid) {
        if self.stopping {
            // Without a process left there is nobody to signal.
            killpg(leader, Signal::SIGTERM).ok();
        }
    }

    /// Container `at` ended with `code`: it starts again, or the pod continues without it.
    fn ended(&mut self, at: usize, code: i32, signaled: bool) -> io::Result<()> {
        let is_init = at < self.spec.init_containers.len();
        let restart = self.spec.restart;
        let run = &mut self.runs[at];
        let again = !self.stopping
            && self.stage != Stage::Draining
            && match restart {
                _ if run.container.sidecar => true,
                Restart::Always => !is_init || code != 0,
                Restart::OnFailure => code != 0,
                Restart::Never => false,
            };
        let container = run.container.name.clone();
        if again {
            if run.started.elapsed() >= STEADY {
                run.restarts = 0;
            }
            let pause = match run.restarts {
                0 => Duration::ZERO,
                restarts => (PAUSE * 2u32.pow((restarts - 1).min(6))).min(PAUSE_MAX),
            };
            run.restarts += 1;
            run.pause = Some(pause);
            let restarts = run.restarts;
            return self.report(&Report::Restarted {
                container,
                code,
                signaled,
                restarts,
            });
        }
        run.ended = Some(code);
        if !run.container.sidecar {
            self.report(&Report::Exited {
                container,
                code,
                signaled,
            })?;
        }
        if self.stage == Stage::Init(at) && code == 0 && !self.stopping {
            self.enter_after(at)?;
        }
        Ok(())
    }

    fn handle_order(&mut self, order: Order, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        match order {
            Order::Probe | Order::Start => Ok(()),
            Order::Stop { grace_millis } => {
                self.stop(Duration::from_millis(grace_millis));
                Ok(())
            }
            Order::Again { container } => {
                let mut runs = self.runs.iter_mut();
                let found = runs.find(|run| run.container.name == container);
                if let Some(run) = found
                    && let Some(pause) = run.pause.take()
                {
                    run.due = Some(Instant::now() + pause);
                }
                Ok(())
            }
            Order::Kill { container, code } => {
                let found = self
                    .runs
                    .iter_mut()
                    .find(|run| run.container.name == container);
                if let Some(run) = found
                    && let Some(pid) = run.pid
                {
                    run.reported_code = code.map(i32::from);
                    killpg(pid, Signal::SIGKILL).ok();
                }
                Ok(())
            }
            Order::Freeze => {
                self.rhythm = None;
                kill(EVERYONE, Signal::SIGSTOP).ok();
                Ok(())
            }
            Order::Slow { factor } => {
                self.rhythm = Some(Rhythm {
                    runs: TURN.div_f64(factor.max(1.0)),
                    stopped: false,
                    turns_at: Instant::now(),
                });
                Ok(())
            }
            Order::Update { volume } => self.update(&volume, descriptors),
            Order::Exec {
                id,
                container,
                command,
            } => self.exec(id, container.as_deref(), &command, descriptors),
            Order::EndExec { id } => {
                for (pid, _) in self.commands.iter().filter(|(_, known)| **known == id) {
                    killpg(*pid, Signal::SIGKILL).ok();
                }
                Ok(())
            }
        }
    }

    fn stop(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        self.deadline = Some(
            self.deadline
                .map_or(deadline, |before| before.min(deadline)),
        );
        if self.stopping {
            return;
        }
        self.stopping = true;
        for run in &mut self.runs {
            run.due = None;
            run.pause = None;
            if let Some(pid) = run.pid
                && !run.container.sidecar
            {
                kill(pid, Signal::SIGTERM).ok();
            }
        }
        for pid in self.commands.keys() {
            kill(*pid, Signal::SIGTERM).ok();
        }
    }

    /// Sidecars serve the containers until those have ended.
    fn stop_sidecars_last(&mut self) {
        let busy = self
            .runs
            .iter()
            .any(|run| !run.container.sidecar && run.pid.is_some());
        if !busy && self.stage != Stage::Draining {
            self.stage = Stage::Draining;
            self.signal_sidecars();
        }
    }

    fn signal_sidecars(&self) {
        for pid in self.sidecars().filter_map(|run| run.pid) {
            kill(pid, Signal::SIGTERM).ok();
        }
    }

    fn update(&self, volume: &str, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let Some(memory) = descriptors.into_iter().next() else {
            return Ok(());
        };
        let files: Vec<VolumeFile> = channel::from_memory(memory)?;
        mounts::update_volume(self.spec, volume, &files).map_err(|failure| failure.source)
    }

    fn exec(
        &mut self,
        id: u64,
        container: Option<&str>,
        command: &[String],
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut descriptors = descriptors.into_iter();
        let (Some(input), Some(output), Some(error)) =
            (descriptors.next(), descriptors.next(), descriptors.next())
        else {
            return self.report(&Report::ExecEnded { id, code: 126 });
        };
        let found = match container {
            Some(name) => self.spec.containers.iter().find(|found| found.name == name),
            None => self.spec.containers.first(),
        };
        let Some(container) = found.filter(|_| !self.stopping) else {
            return self.report(&Report::ExecEnded { id, code: 126 });
        };
        let words = error.try_clone()?;
        let streams = Streams {
            input: Stdio::from(input),
            output,
            error,
        };
        match spawn(self.spec, container, command, streams) {
            Ok(pid) => {
                self.commands.insert(pid, id);
                Ok(())
            }
            Err(not_started) => {
                let (line, code) = match not_started {
                    NotStarted::Surroundings(message) => (message, 126),
                    NotStarted::Program(error) => (error.to_string(), NotStarted::code(&error)),
                };
                drop(File::from(words).write_all(format!("trainyard: {line}\n").as_bytes()));
                self.report(&Report::ExecEnded { id, code })
            }
        }
    }

    fn apply_slowdown(&mut self, now: Instant) {
        let Some(rhythm) = &mut self.rhythm else {
            return;
        };
        if rhythm.turns_at > now {
            return;
        }
        rhythm.stopped = !rhythm.stopped && !self.stopping;
        let (signal, lasts) = if rhythm.stopped {
            (Signal::SIGSTOP, TURN.saturating_sub(rhythm.runs))
        } else {
            (Signal::SIGCONT, rhythm.runs)
        };
        rhythm.turns_at = now + lasts;
        kill(EVERYONE, signal).ok();
    }

    /// How long to wait for something to happen.
    fn poll_timeout(&self) -> PollTimeout {
        let rhythm = self.rhythm.as_ref().map(|rhythm| rhythm.turns_at);
        let due = self.runs.iter().filter_map(|run| run.due);
        let Some(next) = due.chain(self.deadline).chain(rhythm).min() else {
            return PollTimeout::NONE;
        };
        let wait = next.saturating_duration_since(Instant::now());
        // One millisecond more, so that what is due is not looked for just before it is.
        let millis = u16::try_from(wait.as_millis() + 1).unwrap_or(u16::MAX);
        PollTimeout::from(millis)
    }
}
