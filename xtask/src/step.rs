//! Running other programs: `cargo`, and the binary it built.
//!
//! Invariant: a program that cannot be started is reported differently from one that failed, so that a
//! missing tool is never taken for a pass or for a failed check.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use crate::Failure;

pub(crate) mod harness;
mod stream;

pub(crate) use self::stream::{stream, stream_within};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in a folder of the repository")
        .to_owned()
}

/// `cargo` with `arguments`, to be run in the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    without_package(&mut command);
    command
}

/// What `cargo run` says of this package to this program. Build scripts that read it, such as that of `ring`, would run again whenever a crate is built
/// from here after it was built by hand, and with it would every crate above.
const OF_PACKAGE: [&str; 9] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Lets a command that runs `cargo` see the variables that a user's shell has.
pub(crate) fn without_package(command: &mut Command) {
    for name in OF_PACKAGE {
        command.env_remove(name);
    }
}

/// The package of the programs that chores start.
const TOOLS: &str = "trainyard-tools";

/// The command that runs a pure program of `tools/programs`, built for speed and without waiting for the client of a
/// cluster to be built.
pub(crate) fn pure_tool(name: &str) -> Command {
    pure_tool_built("release", &[], name)
}

/// The command that hunts with a program of `tools/programs`, built to be ready soon: with what the tests of mutants are built with.
pub(crate) fn hunt_tool(name: &str) -> Command {
    pure_tool_built(HUNT, &["--features", "mutants"], name)
}

/// The profile of hunts over seeds and of the tests of mutants.
pub(crate) const HUNT: &str = "hunt";

fn pure_tool_built(profile: &str, features: &[&str], name: &str) -> Command {
    let mut command = cargo(&["run", "--quiet", "--locked", "--profile", profile]);
    command.args(["--package", TOOLS, "--no-default-features"]);
    command.args(features).args(["--bin", name, "--"]);
    command
}

/// `cargo COMMAND` with the selection of packages that every suite shares. Cargo builds a crate once for each set of features, and the
/// features follow from which packages are chosen and whether tests are among them: another selection would build the workspace, and what
/// it needs of `tokio`, once more. The simulation is left out because it turns on the mutants of the core.
pub(crate) fn shared(subcommand: &str) -> Command {
    cargo(&[
        subcommand,
        "--locked",
        "--workspace",
        "--exclude",
        "trainyard-sim",
    ])
}

/// A target with tests that is built in little time, so that [`shared_program()`] builds what tests build.
const SMALL_TEST: &str = "hosts";

/// Builds a program as the tests build it, and returns its path.
pub(crate) fn shared_program(name: &str) -> Result<PathBuf, Failure> {
    run(shared("build").args(["--quiet", "--test", SMALL_TEST, "--bin", name]))?;
    sibling(name)
}

/// The command that runs a program of `tools/programs` whose speed does not matter.
pub(crate) fn tool(name: &str) -> Result<Command, Failure> {
    let mut command = Command::new(shared_program(name)?);
    command.current_dir(root());
    Ok(command)
}

/// Builds a program of `tools/programs` for speed and returns its path: it runs where `cargo` does not.
pub(crate) fn released_tool(name: &str) -> Result<PathBuf, Failure> {
    run(release_of(TOOLS).args(["--bin", name]))?;
    released(name)
}

/// Builds what users run, and a program of `tools/programs` beside it, and returns their paths. In one call: each alone would turn on other features
/// of crates below the core, and the core, minutes of work, would be built twice.
pub(crate) fn released_with_tool(name: &str) -> Result<(PathBuf, PathBuf), Failure> {
    run(release_of(PROGRAM).args(["--package", TOOLS, "--bin", PROGRAM, "--bin", name]))?;
    Ok((released(PROGRAM)?, released(name)?))
}

/// The package, and the program, that users run.
const PROGRAM: &str = "trainyard";

fn release_of(package: &str) -> Command {
    let words = ["build", "--quiet", "--locked", "--release", "--package"];
    let mut command = cargo(&words);
    command.arg(package);
    command
}

/// Runs `command` to its end with its output on ours; anything but success is a failure.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|error| not_started(command, &error))?;
    must_succeed(command, status)
}

fn must_succeed(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Failed(format!(
            "`{}` ended with {status}",
            line(command)
        )))
    }
}

/// Runs `command` to its end and returns what it wrote to stdout; stderr goes to ours.
pub(crate) fn capture(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| not_started(command, &error))?;
    if !output.status.success() {
        return Err(Failure::Failed(format!(
            "`{}` ended with {}",
            line(command),
            output.status
        )));
    }
    String::from_utf8(output.stdout).map_err(|_| {
        Failure::Failed(format!(
            "`{}` wrote bytes that are not UTF-8",
            line(command)
        ))
    })
}

/// Whether `cargo <subcommand>` is installed.
pub(crate) fn need_cargo_tool(subcommand: &str, hint: &str) -> Result<(), Failure> {
    let found = cargo(&[subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if found {
        Ok(())
    } else {
        Err(Failure::CouldNotRun(format!(
            "`cargo {subcommand}` is not installed: {hint}"
        )))
    }
}

/// A program that lies beside this one, built with the same profile.
pub(crate) fn sibling(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::CouldNotRun(format!("cannot find the build folder: {error}")))?;
    let folder = own.parent().expect("a program lies in a folder");
    Ok(folder
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION))
}

/// A program of the release build.
pub(crate) fn released(name: &str) -> Result<PathBuf, Failure> {
    let path = built()?.join("release").join(name);
    Ok(path.with_extension(std::env::consts::EXE_EXTENSION))
}

/// The folder that `cargo` builds into, which `CARGO_TARGET_DIR` may have put elsewhere.
pub(crate) fn built() -> Result<PathBuf, Failure> {
    let own = sibling("xtask")?;
    let folder = own.parent().and_then(Path::parent);
    Ok(folder
        .expect("a profile has a folder below the target folder")
        .to_owned())
}

fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::CouldNotRun(format!("cannot start `{}`: {error}", line(command)))
}

fn lost(command: &Command, error: &std::io::Error) -> Failure {
    Failure::CouldNotRun(format!("lost `{}` while it ran: {error}", line(command)))
}
