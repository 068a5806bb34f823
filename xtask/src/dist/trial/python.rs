//! A bare root with Python: the interpreter of this machine with its standard library and the libraries that it is linked with.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::root::Root;
use crate::{Failure, cache::cannot, step};

/// Where the interpreter is, and its standard library.
const WHERE: &str = "import os, sys, sysconfig
print(os.path.realpath(getattr(sys, '_base_executable', sys.executable)))
print(sysconfig.get_path('stdlib'))
print(os.path.join(sysconfig.get_path('platstdlib'), 'lib-dynload'))
import ensurepip; print(os.path.dirname(ensurepip.__file__))";

/// Parts of the standard library that installing and running packages do not need.
const LEFT_OUT: &[&str] = &[
    "site-packages",
    "dist-packages",
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "config-*",
];

/// The environment that is made in the root.
pub(super) const ENVIRONMENT: &str = "/work/venv";

/// Makes a root with Python and a fresh virtual environment in it.
pub(super) fn root(folder: &Path) -> Result<Root, Failure> {
    let root = Root::new(folder)?;
    let text = step::capture(Command::new("python3").args(["-c", WHERE])).map_err(|_| {
        Failure::CouldNotRun(
            "a wheel is tried with Python 3 and its module `ensurepip`, which `python3` does not have\n\nhint: Debian has them in the package \
             `python3-venv`"
                .to_owned(),
        )
    })?;
    let paths: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
    let [python, library, loaded, _] = paths.as_slice() else {
        return Err(Failure::CouldNotRun(
            "`python3` does not print where it is".to_owned(),
        ));
    };
    let mut programs = vec![python.clone()];
    for entry in fs::read_dir(loaded).map_err(cannot("list", loaded))? {
        programs.push(entry.map_err(cannot("list", loaded))?.path());
    }
    let mut files = libraries(&programs)?;
    files.push(python.clone());
    copy(&root, &files, &[])?;
    let left_out: Vec<String> = LEFT_OUT
        .iter()
        .map(|name| format!("--exclude={}/{name}", relative(library)))
        .collect();
    copy(&root, std::slice::from_ref(library), &left_out)?;
    let python = python.to_string_lossy().into_owned();
    root.run(&[&python, "-m", "venv", ENVIRONMENT])?;
    Ok(root)
}

/// The libraries that `programs` are linked with, and the loader.
fn libraries(programs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let output = Command::new("ldd")
        .args(programs)
        .output()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start `ldd`: {error}")))?;
    // It fails for files that are not programs, but still prints the others.
    let text = String::from_utf8_lossy(&output.stdout);
    let mut found: Vec<PathBuf> = text.lines().filter_map(crate::cluster::library).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// Copies `paths` into the root, where they lie here. Links are followed.
fn copy(root: &Root, paths: &[PathBuf], left_out: &[String]) -> Result<(), Failure> {
    let archive = root.folder.join("copied.tar");
    let mut command = Command::new("tar");
    command
        .args(["--create", "--dereference", "--directory=/", "--file"])
        .arg(&archive);
    command
        .args(left_out)
        .args(paths.iter().map(|path| relative(path)));
    step::run(&mut command)?;
    step::run(
        Command::new("tar")
            .args(["--extract", "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(&root.folder),
    )?;
    fs::remove_file(&archive).map_err(cannot("remove", &archive))
}

fn relative(path: &Path) -> String {
    path.strip_prefix("/").unwrap_or(path).display().to_string()
}
