//! Completions of shells and manual pages, as the program itself prints them.

use std::{fs, path::Path, process::Command};

use super::Scratch;
use crate::{Failure, cache::cannot, generate, step};

/// A shell that completes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What the program prints about itself.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// By the name of the file, such as `trainyard-run.1`.
    pub(super) manual: Vec<(String, Vec<u8>)>,
    pub(super) completions: Vec<(Shell, Vec<u8>)>,
}

/// Where Debian's shells look, below `/usr/share`.
pub(super) fn debian_place(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => "bash-completion/completions/trainyard",
        Shell::Zsh => "zsh/vendor-completions/_trainyard",
        Shell::Fish => "fish/vendor_completions.d/trainyard.fish",
    }
}

/// The name of the file in an archive that is unpacked anywhere: what the shell expects of it.
pub(super) fn file_name(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => "trainyard.bash",
        Shell::Zsh => "_trainyard",
        Shell::Fish => "trainyard.fish",
    }
}

impl Pages {
    /// Those of `program`, which must run on this machine.
    pub(super) fn of(program: &Path) -> Result<Self, Failure> {
        let scratch = Scratch::new("pages")?;
        let folder = scratch.0.join("man");
        step::capture(
            Command::new(program)
                .args(["--quiet", "man", "--out"])
                .arg(&folder),
        )?;
        let mut manual = Vec::new();
        for path in generate::files(&folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let text = fs::read(&path).map_err(cannot("read", &path))?;
            manual.push((name.into_owned(), text));
        }
        manual.sort();
        if !manual.iter().any(|(name, _)| name == "trainyard.1") {
            return Err(Failure::Failed(format!(
                "`{} man` wrote no page `trainyard.1`",
                program.display()
            )));
        }
        let mut completions = Vec::new();
        for (shell, word) in [
            (Shell::Bash, "bash"),
            (Shell::Zsh, "zsh"),
            (Shell::Fish, "fish"),
        ] {
            let script = step::capture(Command::new(program).args(["completions", word]))?;
            completions.push((shell, script.into_bytes()));
        }
        Ok(Self {
            manual,
            completions,
        })
    }
}
