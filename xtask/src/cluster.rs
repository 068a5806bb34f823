//! `cargo xtask cluster`: a real Kubernetes on this machine, for tests.
//!
//! Owns how its programs are built, started, looked at and ended. Every cluster lives in
//! namespaces of its own: nothing of it is seen in the machine's network or mounts, and it is
//! gone with one process. Whoever wants to talk to it enters them with `cluster exec`.
//!
//! Invariant: `up` starts what is missing and changes nothing that runs, so it can be called again
//! after it was cut short anywhere. `down` needs nothing but the name of the cluster: it works
//! after any crash, and again.

mod binaries;
mod control_plane;
mod namespace;
mod piece;
mod process;
mod simulated;
mod state;
mod status;
mod wait;

use std::{
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use self::{
    namespace::Namespaces,
    state::{DEFAULT_NAME, State},
};
use crate::{Failure, cache, report, step};

const USAGE: &str = "\
A real Kubernetes on this machine, in namespaces of its own. Needs root and Go; builds its programs
once, into a cache.

Usage: cargo xtask cluster <COMMAND> [--name NAME]

Commands:
  up [--kwok N]      start what does not run, and wait until it is ready; with N simulated nodes
  down               end it; nothing of it is left
  status [--format text|json]
                     what runs, what is ready, addresses and versions
  kubeconfig         where the file is with which an admin reaches it
  exec -- COMMAND    run a command that reaches it: KUBECONFIG is set, `kubectl` is found
  stop PIECE [--signal NAME]
                     end one of its programs (TERM unless told otherwise)
  start PIECE        start it again

Exit codes: 0 done, 1 the thing asked about failed, 2 could not do it; `exec` passes its command's on.
";

/// A cluster that has its namespaces.
#[derive(Debug)]
struct Cluster {
    state: State,
    namespaces: Namespaces,
}

/// Runs one of the commands.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let (command, rest) = match words {
        [] | ["help" | "-h" | "--help", ..] => {
            print!("{USAGE}");
            return Ok(());
        }
        [command, rest @ ..] => (*command, rest),
    };
    let mut arguments = Arguments::read(rest)?;
    let name = arguments.take("--name").unwrap_or(DEFAULT_NAME);
    match command {
        "up" => {
            let kwok = arguments.take_number("--kwok")?.unwrap_or(0);
            arguments.finish()?;
            up(name, kwok)
        }
        "down" => {
            arguments.finish()?;
            down(name)
        }
        "status" => {
            let format = arguments.take("--format").unwrap_or("text");
            arguments.finish()?;
            status::print(name, format)
        }
        "kubeconfig" => {
            arguments.finish()?;
            let cluster = Cluster::find(State::of(name)?)?;
            println!("{}", cluster.state.text("kubeconfig"));
            Ok(())
        }
        "exec" => {
            let command = std::mem::take(&mut arguments.command);
            arguments.finish()?;
            Err(exec(name, &command))
        }
        "stop" => {
            let signal = arguments.take("--signal").unwrap_or("TERM");
            let name_of_piece = arguments.take_word("the name of a piece")?;
            arguments.finish()?;
            piece::stop(&Cluster::find(State::locked(name)?)?, name_of_piece, signal)
        }
        "start" => {
            let name_of_piece = arguments.take_word("the name of a piece")?;
            arguments.finish()?;
            let cluster = Cluster::find(State::locked(name)?)?;
            if piece::running(&cluster, name_of_piece).is_some() {
                return Ok(());
            }
            piece::start(&cluster, name_of_piece)
        }
        other => Err(Failure::CouldNotRun(format!(
            "unknown command `cluster {other}`\n\nhint: run `cargo xtask cluster help` to see the \
             commands"
        ))),
    }
}

fn up(name: &str, kwok: usize) -> Result<(), Failure> {
    let state = State::locked(name)?;
    let found = Namespaces::find(&state);
    if found.is_none() {
        // What is there was left by a crash, and its addresses and processes are gone.
        clear(&state)?;
    }
    state.make()?;
    binaries::provide(binaries::CONTROL_PLANE, &state.file("bin"))?;
    if kwok > 0 {
        binaries::provide(binaries::SIMULATED, &state.file("bin"))?;
    }
    let began = Instant::now();
    let namespaces = match found {
        Some(namespaces) => namespaces,
        None => Namespaces::make(
            &state,
            &[control_plane::ADDRESS, control_plane::SERVICE_ADDRESS],
        )?,
    };
    let cluster = Cluster { state, namespaces };
    control_plane::up(&cluster)?;
    if kwok > 0 {
        report::progress(&format!(
            "the control plane is ready after {}",
            report::seconds(began.elapsed())
        ));
        simulated::up(&cluster, kwok)?;
    }
    report::progress(&format!(
        "the cluster `{name}` is ready after {}",
        report::seconds(began.elapsed())
    ));
    println!("{}", cluster.state.text("kubeconfig"));
    Ok(())
}

fn down(name: &str) -> Result<(), Failure> {
    let began = Instant::now();
    clear(&State::locked(name)?)?;
    report::progress(&format!(
        "nothing of the cluster `{name}` is left after {}",
        report::seconds(began.elapsed())
    ));
    Ok(())
}

/// Ends and removes whatever there is of the cluster.
fn clear(state: &State) -> Result<(), Failure> {
    namespace::end(state)?;
    state.remove()
}

/// Becomes `command` inside the cluster; returns only if that cannot be.
fn exec(name: &str, command: &[&str]) -> Failure {
    let [program, arguments @ ..] = command else {
        return Failure::CouldNotRun(
            "`cluster exec` needs a command after `--`, such as `kubectl get pods`".to_owned(),
        );
    };
    let cluster = match State::of(name).and_then(Cluster::find) {
        Ok(cluster) => cluster,
        Err(failure) => return failure,
    };
    let error = cluster.command(program).args(arguments).exec();
    Failure::CouldNotRun(format!("cannot start `nsenter`: {error}"))
}

impl Cluster {
    /// The cluster, which must be there.
    fn find(state: State) -> Result<Self, Failure> {
        match Namespaces::find(&state) {
            Some(namespaces) => Ok(Self { state, namespaces }),
            None => Err(Failure::CouldNotRun(format!(
                "there is no cluster `{}`\n\nhint: run `cargo xtask cluster up`",
                state.name()
            ))),
        }
    }

    /// `program` inside the cluster, in the folder where the caller is.
    fn command(&self, program: &str) -> Command {
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let mut path = self.state.file("bin").into_os_string();
        if let Some(rest) = cache::variable("PATH") {
            path.push(":");
            path.push(rest);
        }
        let mut command = self.namespaces.command(&folder, program);
        command
            .env("PATH", path)
            .env("KUBECONFIG", self.state.file("kubeconfig"))
            .env("TRAINYARD_CLUSTER", self.state.folder())
            // No registry is reached from in there; without this, cargo would try for minutes.
            .env("CARGO_NET_OFFLINE", "true");
        command
    }

    /// What `kubectl` with `arguments` prints.
    fn kubectl(&self, arguments: &[&str]) -> Result<String, Failure> {
        step::capture(self.command("kubectl").args(arguments).stdin(Stdio::null()))
    }

    /// Whether `kubectl` with `arguments` succeeds; it says nothing.
    fn kubectl_succeeds(&self, arguments: &[&str]) -> bool {
        self.command("kubectl")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// What follows a command: options with their values, words, and what comes after `--`.
#[derive(Debug)]
struct Arguments<'a> {
    options: Vec<(&'a str, &'a str)>,
    words: Vec<&'a str>,
    command: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    fn read(mut rest: &[&'a str]) -> Result<Self, Failure> {
        let mut read = Self {
            options: Vec::new(),
            words: Vec::new(),
            command: Vec::new(),
        };
        loop {
            rest = match rest {
                [] => return Ok(read),
                ["--", command @ ..] => {
                    command.clone_into(&mut read.command);
                    return Ok(read);
                }
                [option, value, after @ ..] if option.starts_with("--") => {
                    read.options.push((option, value));
                    after
                }
                [option] if option.starts_with("--") => {
                    return Err(Failure::CouldNotRun(format!("`{option}` needs a value")));
                }
                [word, after @ ..] => {
                    read.words.push(word);
                    after
                }
            };
        }
    }

    fn take(&mut self, option: &str) -> Option<&'a str> {
        let at = self.options.iter().position(|(name, _)| *name == option)?;
        Some(self.options.remove(at).1)
    }

    fn take_number(&mut self, option: &str) -> Result<Option<usize>, Failure> {
        self.take(option)
            .map(|value| {
                value.parse().map_err(|_| {
                    Failure::CouldNotRun(format!("`{option}` needs a number, got `{value}`"))
                })
            })
            .transpose()
    }

    fn take_word(&mut self, what: &str) -> Result<&'a str, Failure> {
        if self.words.is_empty() {
            return Err(Failure::CouldNotRun(format!("needs {what}")));
        }
        Ok(self.words.remove(0))
    }

    /// Everything that was given must have been taken.
    fn finish(self) -> Result<(), Failure> {
        let left = self.options.into_iter().map(|(name, _)| name);
        match left.chain(self.words).chain(self.command).next() {
            None => Ok(()),
            Some(word) => Err(Failure::CouldNotRun(format!(
                "unexpected `{word}`\n\nhint: run `cargo xtask cluster help`"
            ))),
        }
    }
}
