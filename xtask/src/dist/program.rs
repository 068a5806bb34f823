//! The static program of one architecture, and the archive in which it is unpacked anywhere.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Release,
    entry::{FILE, Files, PROGRAM, gzip},
    pages, tar,
};
use crate::{
    Failure,
    cache::cannot,
    static_program::{self, Profile},
};

/// A program that needs no library.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// As Rust names it.
    pub(super) architecture: &'static str,
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl Program {
    /// The one at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(cannot("read", path))?;
        let refused = |why: &str| {
            Failure::Failed(format!(
                "`{}` {why}; packed is a program that needs no library, for x86_64 or aarch64",
                path.display()
            ))
        };
        let elf = static_program::elf(&bytes).ok_or_else(|| refused("is not a program"))?;
        let architecture = elf
            .architecture
            .ok_or_else(|| refused("is for another architecture"))?;
        if elf.needs_loader {
            return Err(refused("needs libraries"));
        }
        Ok(Self {
            architecture,
            path: path.to_owned(),
            bytes,
        })
    }

    /// The one of this machine, built.
    pub(super) fn build(profile: Profile) -> Result<Self, Failure> {
        let target = static_program::own_target()?;
        Self::read(&static_program::build(&target, profile)?)
    }
}

/// The file name and the bytes of the archive.
pub(super) fn pack(release: &Release, program: &Program) -> Result<(String, Vec<u8>), Failure> {
    let stem = format!(
        "trainyard-{}-{}-linux",
        release.version, program.architecture
    );
    let mut files = Files::default();
    files.add("bin/trainyard", PROGRAM, program.bytes.clone());
    for (name, text) in &release.pages.manual {
        files.add(format!("share/man/man1/{name}"), FILE, text.clone());
    }
    for (shell, text) in &release.pages.completions {
        let name = pages::file_name(*shell);
        files.add(format!("completions/{name}"), FILE, text.clone());
    }
    files.add("LICENSE", FILE, release.licence.clone());
    files.add("THIRD-PARTY.txt", FILE, release.notices.clone());
    let archive =
        tar::archive(&files, &format!("{stem}/"), release.time).map_err(Failure::Failed)?;
    Ok((format!("{stem}.tar.gz"), gzip(&archive)))
}
