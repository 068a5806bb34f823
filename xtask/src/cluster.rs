//! `cargo xtask cluster`: a real Kubernetes on this machine, for tests.
//!
//! Owns how its programs are built, started, inspected and ended. Every cluster lives in
//! namespaces of its own: nothing of it is seen in the machine's network or mounts, and it is
//! gone with one process. Whoever wants to talk to it enters them with `cluster exec`.
//!
//! Invariant: `up` starts what is missing and changes nothing that runs, so it can be called again
//! after it was cut short anywhere. `down` needs nothing but the name of the cluster: it works
//! after any crash, and again.

mod binaries;
mod caches;
mod cgroups;
mod control_plane;
mod fabric;
mod image;
mod namespace;
mod nodes;
mod others;
mod piece;
mod recipe;
mod simulated;
mod ssh_server;
mod state;
mod status;
mod suite;
mod upstream;
mod wait;

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use self::{
    namespace::Namespaces,
    state::{DEFAULT_NAME, State},
};
use crate::{Failure, cache, frameworks, process::Process, report, step};

pub(crate) use caches::{peer_caches, suite_caches};
pub(crate) use image::library;
pub(crate) use recipe::Recipe;
pub(crate) use suite::{Fixture, suite};

const USAGE: &str = "\
A real Kubernetes on this machine, in namespaces of its own. Needs root and Go; builds its programs
once, into a cache.

Usage: cargo xtask cluster <COMMAND> [--name NAME]

Commands:
  up [--nodes real|none] [--kwok N]
                     start what does not run, and wait until it is ready: two real nodes (unless
                     `none`) and N simulated ones
  down               end it; nothing of it is left
  status [--format text|json]
                     what runs, what is ready, addresses and versions
  kubeconfig         where the file is with which an admin reaches it
  image              build this project's programs and give the real nodes images with them
  fabric             give the real nodes a second network: Multus, and `fabric0` for macvlan
  upstream           fetch the SDK and the end-to-end tests of the Training Operator, and give the
                     real nodes the image that they run
  kinds              fetch the kinds of others, and build Kueue, for tests that use them
  exec -- COMMAND    run a command that reaches it: KUBECONFIG is set, `kubectl` is found
  stop PIECE [--signal NAME]
                     end one of its programs (default: TERM)
  start PIECE        start it again
  test               that nothing is left of a cluster, and the tests that want one: a suite of
                     `cargo xtask test`

Exit codes: 0 done, 1 the thing asked about failed, 2 could not do it; `exec` passes its command's on.
";

/// Helm from the cache; nothing where it is not built.
pub(crate) fn helm() -> Result<Option<PathBuf>, Failure> {
    binaries::found(binaries::HELM)
}

/// Programs of the system that are called, and the package of Debian that has each.
const TOOLS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
    ("tar", "tar"),
    ("unshare", "util-linux"),
];

/// Whether pods run as processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    Real,
    None,
}

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
            let nodes = match arguments.take("--nodes") {
                None | Some("real") => Nodes::Real,
                Some("none") => Nodes::None,
                Some(other) => {
                    return Err(Failure::CouldNotRun(format!(
                        "`--nodes` needs `real` or `none`, got `{other}`"
                    )));
                }
            };
            let simulated = arguments.take_number("--kwok")?.unwrap_or(0);
            arguments.finish()?;
            up(name, nodes, simulated)
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
        "image" => {
            arguments.finish()?;
            image::project(&Cluster::find(State::locked(name)?)?)
        }
        "fabric" => {
            arguments.finish()?;
            need_machine()?;
            fabric::provide(&Cluster::find(State::locked(name)?)?)
        }
        "upstream" => {
            arguments.finish()?;
            upstream::provide(&Cluster::find(State::locked(name)?)?)
        }
        "kinds" => {
            arguments.finish()?;
            others::provide(&Cluster::find(State::locked(name)?)?.state)
        }
        "test" => {
            let names = std::mem::take(&mut arguments.command);
            arguments.finish()?;
            let ran = if names.is_empty() {
                suite()
            } else {
                suite::some(&names)
            };
            ran.map(|ran| println!("{ran}"))
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

/// The Go operator that ours is measured beside.
pub(crate) fn peer() -> Result<PathBuf, Failure> {
    need_machine()?;
    let folder = cache::folder()?.join("cluster/peer");
    binaries::provide(binaries::PEER, &folder)?;
    Ok(folder.join("training-operator"))
}

/// The folder with the linters that ours is measured beside.
pub(crate) fn linters() -> Result<PathBuf, Failure> {
    let folder = cache::folder()?.join("cluster/linters");
    binaries::provide(binaries::LINTERS, &folder)?;
    Ok(folder)
}

fn up(name: &str, nodes: Nodes, simulated: usize) -> Result<(), Failure> {
    need_machine()?;
    let state = State::locked(name)?;
    let found = Namespaces::find(&state);
    if found.is_none() {
        // What is there was left by a crash, and its addresses and processes are gone.
        clear(&state)?;
    }
    state.make()?;
    let programs = state.file("bin");
    binaries::provide(binaries::CONTROL_PLANE, &programs)?;
    if nodes == Nodes::Real {
        binaries::provide(binaries::REAL, &programs)?;
    }
    if simulated > 0 {
        binaries::provide(binaries::SIMULATED, &programs)?;
    }
    let began = Instant::now();
    let log_ready = |what: &str| {
        let time = report::seconds(began.elapsed());
        report::progress(&format!("{what} ready after {time}"));
    };
    let namespaces = match found {
        Some(namespaces) => namespaces,
        None => Namespaces::make(&state, &addresses())?,
    };
    let cluster = Cluster { state, namespaces };
    control_plane::up(&cluster, simulated)?;
    log_ready("the control plane is");
    if nodes == Nodes::Real {
        nodes::up(&cluster)?;
        log_ready("the real nodes are");
    }
    if simulated > 0 {
        simulated::up(&cluster, simulated)?;
        log_ready("the simulated nodes are");
    }
    println!("{}", cluster.state.text("kubeconfig"));
    Ok(())
}

/// Fails where no cluster can be, before minutes are spent on building its programs.
fn need_machine() -> Result<(), Failure> {
    let own = Process::own()
        .ok_or_else(|| Failure::CouldNotRun("`/proc` does not show this process".to_owned()))?;
    if !own.is_root() {
        return Err(Failure::CouldNotRun(
            "a cluster needs root, for its namespaces, mounts and control groups".to_owned(),
        ));
    }
    for (tool, package) in TOOLS {
        let is_there = Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !is_there {
            frameworks::debian(tool, &[package])?;
        }
    }
    Ok(())
}

/// Every address that something of the cluster answers on.
fn addresses() -> Vec<&'static str> {
    let mut addresses = vec![
        control_plane::ADDRESS,
        control_plane::SERVICE_ADDRESS,
        nodes::NAME_SERVER,
    ];
    addresses.extend(nodes::NODES.iter().map(|node| node.address));
    addresses
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
    cgroups::thaw(state);
    namespace::end(state)?;
    cgroups::remove(state)?;
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
        self.command_in(&folder, program)
    }

    /// `program` inside the cluster, in `folder`.
    fn command_in(&self, folder: &Path, program: &str) -> Command {
        let mut path = self.state.file("bin").into_os_string();
        if let Some(rest) = cache::variable("PATH") {
            path.push(":");
            path.push(rest);
        }
        let mut command = self.namespaces.command(folder, program);
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
