//! The program built so that it needs no library: for images, and for what users install.
//!
//! Owns for which target it is built and how. The C library is that of the image's recipe (musl) where the toolchain has it, else the machine's
//! own, linked in.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Failure,
    cache::{self, cannot},
    report, step,
};

/// How the program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Soon: for tests.
    Dev,
    /// Small, and with the same bytes in every folder: for users.
    Dist,
}

/// What an ELF file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    /// The architecture, as Rust names it; nothing for one that we do not build for.
    pub(crate) architecture: Option<&'static str>,
    /// Whether it names a loader, and so needs libraries.
    pub(crate) needs_loader: bool,
}

/// The target for this machine: with musl where the toolchain has that, else with the machine's own C library.
pub(crate) fn own_target() -> Result<String, Failure> {
    let host = host()?;
    let musl = host.replace("-gnu", "-musl");
    if has_target(&musl) {
        return Ok(musl);
    }
    report::progress(&format!(
        "releases are built for {musl}, which this toolchain has no library for: the machine's C library is linked in instead; `rustup target add {musl}` \
         changes that"
    ));
    Ok(host)
}

/// The target of the machine that builds.
fn host() -> Result<String, Failure> {
    let about = step::capture(Command::new("rustc").arg("-vV").current_dir(step::root()))?;
    about
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| Failure::CouldNotRun("`rustc -vV` names no host".to_owned()))
}

/// Builds it for `target` and returns where it is.
pub(crate) fn build(target: &str, profile: Profile) -> Result<PathBuf, Failure> {
    let (folder, name, below) = match profile {
        Profile::Dev => ("cluster", "dev", "debug"),
        Profile::Dist => ("static", "dist", "dist"),
    };
    let folder = step::built()?.join(folder);
    report::progress(&format!(
        "building `trainyard` for {target} so that it needs no library"
    ));
    let mut command = step::cargo(&["build", "--quiet", "--locked", "--target", target]);
    command
        .args(["--package", "trainyard", "--profile", name])
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_PROFILE_DEV_STRIP", "debuginfo");
    match profile {
        Profile::Dev => {
            let variable = format!("CARGO_TARGET_{}_RUSTFLAGS", target.replace('-', "_"));
            command.env(variable.to_uppercase(), "-C target-feature=+crt-static");
        }
        // Paths of this machine would be in messages of panics.
        Profile::Dist => {
            let cargo = cargo_home()?;
            let flags = [
                "-Ctarget-feature=+crt-static".to_owned(),
                format!("--remap-path-prefix={}=/cargo", cargo.display()),
                format!("--remap-path-prefix={}=/trainyard", step::root().display()),
            ];
            command
                .arg("--offline")
                .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        }
    }
    if target == own_musl(&host()?) {
        let variable = |name: &str| format!("{name}_{}", target.replace('-', "_"));
        // Without a compiler for this target the machine's own does: what is compiled uses no library.
        command.env(variable("CC"), "cc").env(variable("AR"), "ar");
    }
    step::run(&mut command)?;
    Ok(folder.join(target).join(below).join("trainyard"))
}

fn own_musl(host: &str) -> String {
    host.replace("-gnu", "-musl")
}

/// The folder in which cargo keeps the sources of dependencies.
pub(crate) fn cargo_home() -> Result<PathBuf, Failure> {
    let home = || cache::variable("HOME").map(|path| Path::new(&path).join(".cargo"));
    cache::variable("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(home)
        .ok_or_else(|| {
            Failure::CouldNotRun(
                "no folder of cargo's sources: set `CARGO_HOME` or `HOME`".to_owned(),
            )
        })
}

/// Whether the toolchain has the standard library for `target`.
pub(crate) fn has_target(target: &str) -> bool {
    let mut command = Command::new("rustc");
    command.current_dir(step::root());
    let libraries = step::capture(command.args(["--print", "target-libdir", "--target", target]));
    libraries.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

/// Fails where the program at `path` needs a library: an image of nothing else has none.
pub(crate) fn must_be_static(path: &Path) -> Result<(), Failure> {
    let bytes = fs::read(path).map_err(cannot("read", path))?;
    let outcome = match elf(&bytes) {
        Some(elf) if !elf.needs_loader => return Ok(()),
        Some(_) => "needs libraries, which an image of one program does not have",
        None => "is not a 64-bit program of this byte order",
    };
    Err(Failure::Failed(format!("`{}` {outcome}", path.display())))
}

/// What an ELF file of 64 bits and little endian is; nothing for any other file.
pub(crate) fn elf(bytes: &[u8]) -> Option<Elf> {
    /// The type of the program header that names the loader.
    const INTERPRETER: usize = 3;
    let number = |at: usize, size: usize| -> Option<usize> {
        let mut number = [0; 8];
        number
            .get_mut(..size)?
            .copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
        usize::try_from(u64::from_le_bytes(number)).ok()
    };
    // Magic, 64 bits, little endian.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let architecture = match number(18, 2)? {
        62 => Some("x86_64"),
        183 => Some("aarch64"),
        _ => None,
    };
    let (offset, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut needs_loader = false;
    for index in 0..count {
        let at = offset.checked_add(index * size)?;
        needs_loader |= number(at, 4)? == INTERPRETER;
    }
    Some(Elf {
        architecture,
        needs_loader,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_loader_is_found() {
        let own = std::env::current_exe().expect("the test is a program");
        let bytes = fs::read(&own).expect("it can be read");
        let found = elf(&bytes).expect("it is an ELF file");
        assert!(found.needs_loader);
        assert_eq!(found.architecture, Some(std::env::consts::ARCH));
        assert!(must_be_static(&own).is_err());
        assert_eq!(elf(b"#!/bin/sh\n"), None);
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 183;
        let want = Elf {
            architecture: Some("aarch64"),
            needs_loader: false,
        };
        assert_eq!(elf(&header), Some(want));
        header[56] = 1;
        assert_eq!(elf(&header), Some(want), "headers at its start");
        header[32..40].fill(0xff);
        assert_eq!(elf(&header), None, "headers beyond its end");
    }
}
