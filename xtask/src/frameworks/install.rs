//! Making one virtual environment.
//!
//! It is made in the place where it will be used, since its programs name that place in their first
//! line, and marked whole at the end. The lock beside it, which the kernel releases with the
//! process, keeps two makers apart.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use super::{Framework, Need, named, stand_ins};
use crate::{
    Failure,
    cache::{self, cannot, fnv},
    report,
};

/// The file that only a whole environment has.
const WHOLE: &str = "trainyard-whole";
/// Changed when environments are made in another way from the same pins.
const RECIPE: &str = "1";

/// Whether the environment of `framework` is there and whole.
pub(super) fn is_whole(framework: &Framework) -> Result<bool, Failure> {
    for base in framework.bases {
        if !is_whole(named(base))? {
            return Ok(false);
        }
    }
    Ok(place(framework)?.join(WHOLE).exists())
}

/// Where the environment of `framework` is or will be.
fn place(framework: &Framework) -> Result<PathBuf, Failure> {
    let pins = pins(framework)?;
    let mut made_from = vec![RECIPE.to_owned(), python()?, pins];
    for base in framework.bases {
        made_from.push(place(named(base))?.display().to_string());
    }
    let hash = fnv(made_from.join("\n").as_bytes());
    let parent = cache::folder()?.join("frameworks");
    Ok(parent.join(format!("{}-{hash:016x}", framework.name)))
}

fn pins(framework: &Framework) -> Result<String, Failure> {
    let requirements = requirements(framework);
    fs::read_to_string(&requirements).map_err(cannot("read", &requirements))
}

fn requirements(framework: &Framework) -> PathBuf {
    framework.folder().join("requirements.txt")
}

/// The environment of `framework`, made if it is not there.
pub(super) fn environment(framework: &Framework) -> Result<PathBuf, Failure> {
    machine_has(framework.need)?;
    let mut bases = Vec::new();
    for base in framework.bases {
        bases.push(environment(named(base))?);
    }
    let requirements = requirements(framework);
    let pins = pins(framework)?;
    let folder = place(framework)?;
    let parent = cache::folder()?.join("frameworks");
    fs::create_dir_all(&parent).map_err(cannot("make", &parent))?;
    let lock_path = parent.join(format!("{}.lock", framework.name));
    let lock = File::create(&lock_path).map_err(cannot("make", &lock_path))?;
    lock.lock().map_err(cannot("lock", &lock_path))?;
    if folder.join(WHOLE).exists() {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(cannot("remove", &folder))?;
    }
    report::progress(&format!(
        "making the environment of {} in `{}`",
        framework.name,
        folder.display()
    ));
    let began = Instant::now();
    make(framework, &folder, &requirements, &bases)?;
    fs::write(folder.join(WHOLE), &pins).map_err(cannot("write", &folder))?;
    report::progress(&format!(
        "the environment of {} is whole after {}",
        framework.name,
        report::seconds(began.elapsed())
    ));
    Ok(folder)
}

fn make(
    framework: &Framework,
    folder: &Path,
    requirements: &Path,
    bases: &[PathBuf],
) -> Result<(), Failure> {
    let hint = "hint: Debian has the module in the package `python3-venv`";
    run_or_hint(
        Command::new("python3").args(["-m", "venv"]).arg(folder),
        hint,
    )?;
    let python = folder.join("bin/python");
    run_or_hint(
        Command::new(&python)
            .args(["-m", "pip", "install", "--no-deps", "--progress-bar", "off"])
            .args(["--disable-pip-version-check", "--no-input", "--requirement"])
            .arg(requirements)
            // Without compiled files every rank would compile the framework again.
            .env_remove("PYTHONDONTWRITEBYTECODE"),
        "hint: the packages come from the index that `pip config list` names, by default \
         https://pypi.org",
    )?;
    if !bases.is_empty() {
        // A gigabyte of PyTorch is not installed twice.
        let mut paths = Vec::new();
        for base in bases {
            paths.push(packages(base)?.display().to_string());
        }
        let file = packages(folder)?.join("trainyard-bases.pth");
        fs::write(&file, paths.join("\n")).map_err(cannot("write", &file))?;
    }
    if framework.need == Need::StandIns {
        stand_ins::make(&folder.join("lib"))?;
    }
    run_or_hint(
        Command::new(&python)
            .args(["-c", &format!("import {}", framework.module)])
            .env_remove("PYTHONDONTWRITEBYTECODE"),
        "hint: the packages are installed, but not usable with this Python",
    )
}

/// Where the packages of an environment lie.
fn packages(environment: &Path) -> Result<PathBuf, Failure> {
    let library = environment.join("lib");
    let entries = fs::read_dir(&library).map_err(cannot("list", &library))?;
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("site-packages"))
        .find(|packages| packages.is_dir())
        .ok_or_else(|| {
            Failure::CouldNotRun(format!("no packages lie below `{}`", library.display()))
        })
}

/// Identifies an interpreter: environments are not shared between different ones.
fn python() -> Result<String, Failure> {
    let output = Command::new("python3")
        .args(["-c", "import sys; print(sys.base_prefix, sys.version)"])
        .output()
        .map_err(|error| {
            Failure::CouldNotRun(format!(
                "cannot start `python3`: {error}\n\nhint: install Python 3.11 or later with `venv`"
            ))
        })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether `program` can be started.
pub(super) fn starts(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Installs what the machine lacks where that is allowed, and says what is missing where not.
pub(super) fn machine_has(need: Need) -> Result<(), Failure> {
    match need {
        Need::Nothing => Ok(()),
        Need::StandIns => match ["cc", "readelf"].into_iter().find(|tool| !starts(tool)) {
            None => Ok(()),
            Some(tool) => Err(Failure::CouldNotRun(format!(
                "`{tool}` is not installed, which stand-ins for the CUDA libraries are made with"
            ))),
        },
        Need::OpenMpi if starts("mpirun") => Ok(()),
        Need::OpenMpi => debian("Open MPI", &["openmpi-bin", "libopenmpi-dev"]),
    }
}

/// Installs packages of Debian, which only root can.
pub(super) fn debian(what: &str, packages: &[&str]) -> Result<(), Failure> {
    let hint = format!(
        "hint: install {what}; Debian has it in {}, which only root can install",
        packages.join(", ")
    );
    report::progress(&format!("installing {what}"));
    // A fresh machine has no list of packages yet.
    run_or_hint(Command::new("apt-get").arg("update"), &hint)?;
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive");
    run_or_hint(&mut apt, &hint)
}

/// Runs `command` with its output on our stderr; the error is its last line that looks like one.
fn run_or_hint(command: &mut Command, hint: &str) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let lost = |error: std::io::Error| {
        Failure::CouldNotRun(format!("cannot run `{program}`: {error}\n\n{hint}"))
    };
    let (reader, writer) = std::io::pipe().map_err(lost)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(lost)?)
        .stderr(writer)
        .spawn()
        .map_err(lost)?;
    // The command keeps its ends of the pipe, which would keep the reader waiting forever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut cause = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(lost)?;
        let line = String::from_utf8_lossy(&line);
        drop(writeln!(std::io::stderr(), "    {line}"));
        let is_cause = line.to_lowercase().contains("error");
        if is_cause || (cause.is_empty() && !line.trim().is_empty()) {
            line.trim().clone_into(&mut cause);
        }
    }
    let status = child.wait().map_err(lost)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::CouldNotRun(format!(
        "`{program}` ended with {status}: {cause}\n\n{hint}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_command_shows_cause() {
        let script = "echo Collecting; echo 'ERROR: no such version' >&2; echo done; exit 3";
        let Err(Failure::CouldNotRun(message)) =
            run_or_hint(Command::new("sh").args(["-c", script]), "hint: look")
        else {
            panic!("a failure was expected");
        };
        assert_eq!(
            message,
            "`sh` ended with exit status: 3: ERROR: no such version\n\nhint: look"
        );
    }
}
