//! Starting one process of a container.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
};

use nix::{
    fcntl::OFlag,
    sched::{CloneFlags, unshare},
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        signal::SigSet,
    },
    unistd::{Pid, pipe2, setsid},
};

use super::mounts;
use crate::wire::{Container, PodSpec};

/// The three streams of a process.
pub(super) struct Streams {
    pub(super) input: Stdio,
    pub(super) output: OwnedFd,
    pub(super) error: OwnedFd,
}

/// Why a process did not start.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// Its surroundings could not be made; the sentence says which part.
    Surroundings(String),
    /// The program cannot be run.
    Program(io::Error),
}

impl NotStarted {
    /// The exit code that shells use for it.
    pub(super) fn code(error: &io::Error) -> i32 {
        if error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

/// Starts `command` as `container` would: with its mounts, folder and environment, as the leader
/// of its own session.
#[expect(
    unsafe_code,
    reason = "mounts are made between the fork and the start of the program"
)]
pub(super) fn spawn(
    spec: &PodSpec,
    container: &Container,
    command: &[String],
    streams: Streams,
) -> Result<Pid, NotStarted> {
    let system = |error: nix::Error| NotStarted::Surroundings(error.to_string());
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| NotStarted::Surroundings("the command is empty".to_owned()))?;
    let (said, say) = pipe2(OFlag::O_CLOEXEC).map_err(system)?;
    let mut say = File::from(say);
    let mut process = Command::new(program);
    process
        .args(arguments)
        .env_clear()
        .envs(
            container
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(streams.input)
        .stdout(Stdio::from(streams.output))
        .stderr(Stdio::from(streams.error));
    let (spec, container) = (spec.clone(), container.clone());
    let prepare = move || {
        prepare(&spec, &container).map_err(|message| {
            drop(say.write_all(message.as_bytes()));
            io::Error::from(io::ErrorKind::Other)
        })
    };
    // SAFETY: this process has one thread, so nothing is held by another one when it forks, and
    // the child may allocate and lock as any program.
    unsafe { process.pre_exec(prepare) };
    match process.spawn() {
        Ok(child) => {
            let number = i32::try_from(child.id()).unwrap_or(i32::MAX);
            Ok(Pid::from_raw(number))
        }
        Err(error) => {
            // The other end is in the command; without it, reading ends.
            drop(process);
            let mut message = String::new();
            drop(File::from(said).read_to_string(&mut message));
            Err(if message.is_empty() {
                NotStarted::Program(error)
            } else {
                NotStarted::Surroundings(message)
            })
        }
    }
}

fn prepare(spec: &PodSpec, container: &Container) -> Result<(), String> {
    // A session of its own keeps the terminal's Ctrl-C away: the engine passes on what is meant.
    setsid().map_err(|errno| format!("cannot create a session: {errno}"))?;
    // Process 1 waits for its children's signals as data; programs expect to get them.
    SigSet::empty()
        .thread_set_mask()
        .map_err(|errno| format!("cannot reset the signals: {errno}"))?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|errno| format!("cannot read the limit of open files: {errno}"))?;
    setrlimit(Resource::RLIMIT_NOFILE, spec.open_files.min(most), most)
        .map_err(|errno| format!("cannot set the limit of open files: {errno}"))?;
    for cgroup in &container.cgroups {
        join_cgroup(cgroup)
            .map_err(|error| format!("cannot enter cgroup `{}`: {error}", cgroup.display()))?;
    }
    if !container.mounts.is_empty() {
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(|errno| format!("cannot create a mount namespace: {errno}"))?;
        mounts::set_up_container(spec, container).map_err(|failure| failure.to_string())?;
    }
    mounts::enter(container).map_err(|failure| failure.to_string())
}

fn join_cgroup(folder: &Path) -> io::Result<()> {
    std::fs::write(folder.join("cgroup.procs"), "0")
}
