//! The arguments of `cargo xtask dist`.

use std::path::{Path, PathBuf};

use crate::{Failure, static_program::Profile, step};

pub(super) const USAGE: &str = "\
What users install, made from this commit, without a network. The same commit and toolchain give the same bytes.

Usage: cargo xtask dist [OPTIONS]

Options:
  --test           install each artifact on a bare root file system, run the smoke job, and print the time to the
                   first result from the wheel; needs Linux and root
  --only ARTIFACT  only this one; may be repeated: program, wheel, deb, image, chart, sbom, checkpoint-wheel
  --out DIR        where to put them (default: dist-out in the target folder)
  --binary FILE    pack this program, which needs no library, instead of building one
  --profile dev    build in minutes and big, to try packing; `release-check` does not accept what comes of it

Every time in a file is that of the commit, or `SOURCE_DATE_EPOCH`.

Exit codes: 0 done, 1 the thing asked about failed, 2 could not do it.
";

/// One kind of file that users install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Artifact {
    Program,
    Wheel,
    Deb,
    Image,
    Chart,
    Sbom,
    CheckpointWheel,
}

impl Artifact {
    pub(super) const ALL: [Self; 7] = [
        Self::Program,
        Self::Wheel,
        Self::Deb,
        Self::Image,
        Self::Chart,
        Self::Sbom,
        Self::CheckpointWheel,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Wheel => "wheel",
            Self::Deb => "deb",
            Self::Image => "image",
            Self::Chart => "chart",
            Self::Sbom => "sbom",
            Self::CheckpointWheel => "checkpoint-wheel",
        }
    }

    /// Whether it needs more than cargo.
    pub(super) fn is_optional(self) -> bool {
        self == Self::CheckpointWheel
    }
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) test: bool,
    /// Empty: all.
    pub(super) only: Vec<Artifact>,
    pub(super) folder: PathBuf,
    pub(super) binary: Option<PathBuf>,
    pub(super) profile: Profile,
}

/// The folder where artifacts lie unless another one is named.
pub(super) fn default_folder() -> Result<PathBuf, Failure> {
    Ok(step::built()?.join("dist-out"))
}

impl Options {
    pub(super) fn read(arguments: &[&str]) -> Result<Self, Failure> {
        let mut options = Self {
            test: false,
            only: Vec::new(),
            folder: default_folder()?,
            binary: None,
            profile: Profile::Dist,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                rest.next().copied().ok_or_else(|| {
                    Failure::CouldNotRun(format!(
                        "`{argument}` needs a value\n\nhint: run `cargo xtask dist help`"
                    ))
                })
            };
            match *argument {
                "--test" => options.test = true,
                "--only" => options.only.push(artifact(value()?)?),
                "--out" => options.folder = PathBuf::from(value()?),
                "--binary" => options.binary = Some(Path::new(value()?).to_owned()),
                "--profile" => {
                    options.profile = match value()? {
                        "dist" => Profile::Dist,
                        "dev" => Profile::Dev,
                        other => {
                            return Err(Failure::CouldNotRun(format!(
                                "unknown profile `{other}`; expected one of `dist`, `dev`"
                            )));
                        }
                    };
                }
                other => {
                    return Err(Failure::CouldNotRun(format!(
                        "unknown argument `{other}`\n\nhint: run `cargo xtask dist help` to see them"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// Whether this artifact is to be made.
    pub(super) fn wants(&self, artifact: Artifact) -> bool {
        self.only.is_empty() || self.only.contains(&artifact)
    }
}

fn artifact(name: &str) -> Result<Artifact, Failure> {
    let found = Artifact::ALL
        .into_iter()
        .find(|artifact| artifact.name() == name);
    found.ok_or_else(|| {
        let names = Artifact::ALL.map(Artifact::name);
        Failure::CouldNotRun(format!(
            "unknown artifact `{name}`; expected one of `{}`",
            names.join("`, `")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let options = Options::read(&[
            "--only",
            "wheel",
            "--test",
            "--only",
            "deb",
            "--profile",
            "dev",
        ])
        .unwrap();
        assert!(options.test && options.profile == Profile::Dev);
        assert!(
            options.wants(Artifact::Deb)
                && options.wants(Artifact::Wheel)
                && !options.wants(Artifact::Chart)
        );
        let all = Options::read(&[]).unwrap();
        assert!(
            Artifact::ALL
                .into_iter()
                .all(|artifact| all.wants(artifact))
        );
        assert_eq!(all.profile, Profile::Dist);
        for (arguments, want) in [
            (
                ["--only", "rpm"].as_slice(),
                "unknown artifact `rpm`; expected one of `program`, `wheel`",
            ),
            (&["--only"], "`--only` needs a value"),
            (&["--profile", "fast"], "unknown profile `fast`"),
            (&["--wheel"], "unknown argument `--wheel`"),
        ] {
            match Options::read(arguments) {
                Err(Failure::CouldNotRun(message)) => {
                    assert!(message.starts_with(want), "{message}");
                }
                other => panic!("{arguments:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_artifact_is_in_the_help() {
        for artifact in Artifact::ALL {
            assert!(USAGE.contains(artifact.name()), "{}", artifact.name());
        }
    }
}
