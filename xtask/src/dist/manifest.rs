//! The two files beside the artifacts: checksums, and from what all of it was made. `release-check` reads both.

use std::{fs, path::Path, process::Command};

use super::{
    Made,
    options::{self, Artifact, Options},
    program::Program,
    sha256,
};
use crate::{Failure, cache::cannot, static_program::Profile, step};

/// The checksums, as `sha256sum --check` reads them.
pub(super) const SUMS: &str = "SHA256SUMS";
/// The commit, and how the program was built.
pub(super) const BUILT_FROM: &str = "built-from.txt";

/// How the program of a release is built.
const RELEASED: &str = "built with the profile dist";

/// Writes both files.
pub(super) fn write(made: &Made, program: &Program, options: &Options) -> Result<(), Failure> {
    let mut sums = String::new();
    let mut names: Vec<&str> = made.files.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    for name in names {
        let path = made.folder.join(name);
        let bytes = fs::read(&path).map_err(cannot("read", &path))?;
        sums.extend([format!("{}  {name}\n", sha256::hex(&bytes))]);
    }
    let path = made.folder.join(SUMS);
    fs::write(&path, sums).map_err(cannot("write", &path))?;
    let how = match (&options.binary, options.profile) {
        (Some(_), _) => "given, and not built here",
        (None, Profile::Dist) => RELEASED,
        (None, Profile::Dev) => "built with the profile dev, for tests",
    };
    let artifacts: Vec<&str> = made
        .files
        .iter()
        .map(|(artifact, _)| artifact.name())
        .collect();
    let text = format!(
        "commit: {}\nuncommitted changes: {}\nprogram: {how}\narchitecture: {}\nartifacts: {}\n",
        commit(),
        changes(),
        program.architecture,
        artifacts.join(" ")
    );
    let path = made.folder.join(BUILT_FROM);
    fs::write(&path, text).map_err(cannot("write", &path))
}

/// The commit; outside of a clone it is not known.
fn commit() -> String {
    git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".to_owned())
}

/// How many files differ from the commit.
fn changes() -> String {
    git(&["status", "--porcelain"]).map_or_else(
        || "unknown".to_owned(),
        |text| text.lines().count().to_string(),
    )
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(step::root())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether all artifacts of this commit lie where `cargo xtask dist` puts them: what it is called, and what is to be done.
pub(crate) fn release_item(version: &str) -> Result<(String, Option<String>), Failure> {
    let folder = options::default_folder()?;
    let open = open(&folder, version, &commit());
    let open = open.map(|why| format!("{why}: run `cargo xtask dist --test`"));
    Ok(("all artifacts are made from this commit".to_owned(), open))
}

/// What is missing in `folder` for a release of `version` from `commit`.
fn open(folder: &Path, version: &str, commit: &str) -> Option<String> {
    let Ok(text) = fs::read_to_string(folder.join(BUILT_FROM)) else {
        return Some("there are none".to_owned());
    };
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        lines
            .find_map(|(found, value)| (found == key).then_some(value))
            .unwrap_or_default()
    };
    if value("commit") != commit || value("uncommitted changes") != "0" {
        return Some(format!(
            "they were made from commit {} with {} changed files",
            value("commit"),
            value("uncommitted changes")
        ));
    }
    if value("program") != RELEASED {
        return Some(format!("their program was {}", value("program")));
    }
    let made: Vec<&str> = value("artifacts").split(' ').collect();
    let missing = Artifact::ALL
        .map(Artifact::name)
        .into_iter()
        .find(|name| !made.contains(name));
    if let Some(missing) = missing {
        return Some(format!("`{missing}` was not made"));
    }
    let sums = fs::read_to_string(folder.join(SUMS)).unwrap_or_default();
    if sums.lines().count() != made.len() {
        return Some(format!("`{SUMS}` does not list every artifact"));
    }
    sums.lines().find_map(|line| {
        let (sum, name) = line.split_once("  ")?;
        let bytes = fs::read(folder.join(name)).unwrap_or_default();
        if sha256::hex(&bytes) != sum {
            return Some(format!("`{name}` does not have the checksum of `{SUMS}`"));
        }
        (!name.contains(version)).then(|| format!("`{name}` is of another version"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::Scratch;

    #[test]
    fn release_needs_all_artifacts_of_its_commit() {
        let scratch = Scratch::new("release-item").unwrap();
        let folder = &scratch.0;
        let look = || open(folder, "0.2.0", "abc");
        assert_eq!(look().unwrap(), "there are none");
        let names = Artifact::ALL.map(Artifact::name);
        let about = format!(
            "commit: abc\nuncommitted changes: 0\nprogram: {RELEASED}\narchitecture: x86_64\nartifacts: {}\n",
            names.join(" ")
        );
        let mut sums = String::new();
        for name in names {
            sums.extend([sha256::hex(name.as_bytes()), format!("  {name}-0.2.0\n")]);
        }
        for name in names {
            fs::write(folder.join(format!("{name}-0.2.0")), name).unwrap();
        }
        let write = |about: &str, sums: &str| {
            fs::write(folder.join(BUILT_FROM), about).unwrap();
            fs::write(folder.join(SUMS), sums).unwrap();
        };
        write(&about, &sums);
        assert_eq!(look(), None);
        assert!(
            open(folder, "0.3.0", "abc")
                .unwrap()
                .ends_with("is of another version")
        );
        for (from, to, want) in [
            (
                "abc",
                "def",
                "they were made from commit def with 0 changed files",
            ),
            (
                "changes: 0",
                "changes: 2",
                "they were made from commit abc with 2 changed files",
            ),
            (RELEASED, "given", "their program was given"),
            (" chart", "", "`chart` was not made"),
        ] {
            write(&about.replace(from, to), &sums);
            assert_eq!(look().unwrap(), want);
        }
        write(&about, sums.split_once('\n').unwrap().1);
        assert_eq!(look().unwrap(), "`SHA256SUMS` does not list every artifact");
        write(&about, &sums);
        fs::write(folder.join("wheel-0.2.0"), "other").unwrap();
        assert_eq!(
            look().unwrap(),
            "`wheel-0.2.0` does not have the checksum of `SHA256SUMS`"
        );
    }
}
