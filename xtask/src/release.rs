//! `cargo xtask release-check VERSION`: what is still to do before this commit may be called VERSION.
//!
//! Invariant: it reads and changes nothing. What it cannot tell counts as not done.

use std::fs;

use crate::{Failure, advisories, dist, generate, report, step};

/// Files that state the version, each with the line that must be in it. `{}` is the version.
const STATED: &[(&str, &str)] = &[
    ("Cargo.toml", "version = \"{}\""),
    ("deploy/helm/trainyard/Chart.yaml", "version: {}"),
    ("deploy/helm/trainyard/Chart.yaml", "appVersion: {}"),
    ("deploy/kustomize/base/kustomization.yaml", "  newTag: {}"),
    (
        "deploy/kustomize/namespaced/kustomization.yaml",
        "  newTag: {}",
    ),
];

/// One thing that a release needs, and what is to be done for it. `None`: it is done.
type Item = (String, Option<String>);

/// Prints what is done and what is not.
pub(crate) fn run(version: &str) -> Result<(), Failure> {
    if !is_version(version) {
        return Err(Failure::CouldNotRun(format!(
            "`{version}` is no version\n\nhint: give three numbers, such as `0.2.0`"
        )));
    }
    let mut items = Vec::new();
    for (file, line) in STATED {
        items.push(stated(file, &line.replace("{}", version), &read(file)?));
    }
    items.push(changelog(version, &read("CHANGELOG.md")?));
    items.push(tree(&git(&["status", "--porcelain"])?));
    items.push(tag(version, &git(&["tag", "--list"])?));
    items.push(outcome(
        "generated files are fresh",
        generate::run(generate::Mode::Check),
    ));
    items.push(outcome(
        "no advisory holds for a locked crate",
        advisories::run(None),
    ));
    items.push(dist::release_item(version)?);

    let mut rows = vec![["", "item", "what to do"].map(str::to_owned).to_vec()];
    let open = items.iter().filter(|(_, open)| open.is_some()).count();
    rows.extend(items.into_iter().map(|(name, open)| {
        let mark = if open.is_none() { "done" } else { "open" };
        vec![mark.to_owned(), name, open.unwrap_or_default()]
    }));
    println!("{}", report::table(&rows));
    if open > 0 {
        println!("{open} of {} items are open", rows.len() - 1);
        return Err(Failure::Reported);
    }
    println!(
        "every item is done; let `.ci/run` pass on a clean clone, then `git tag --sign v{version}`"
    );
    Ok(())
}

/// Three numbers with dots between them, without leading zeros.
fn is_version(text: &str) -> bool {
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|it| it.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.into_iter().all(is_number)
}

/// Whether a file states the version.
fn stated(file: &str, line: &str, text: &str) -> Item {
    let key = line.trim_start();
    let open = (!text.lines().any(|it| it == line)).then(|| format!("write `{key}` there"));
    (format!("`{file}` states it"), open)
}

/// Whether the changelog has a section of the version, and nothing is left above it.
fn changelog(version: &str, text: &str) -> Item {
    let headings: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let is_dated = |heading: &str| {
        let date = heading
            .strip_prefix(version)
            .and_then(|rest| rest.strip_prefix(" – "));
        date.is_some_and(is_date)
    };
    let open = match headings.as_slice() {
        [first, ..] if is_dated(first) => None,
        ["Unreleased", second, ..] if is_dated(second) => {
            let between = text.split("## Unreleased").nth(1).unwrap_or_default();
            let between = between.split("\n## ").next().unwrap_or_default();
            (!between.trim().is_empty())
                .then(|| format!("move what stands under `Unreleased` to `{version}`"))
        }
        _ => Some(format!(
            "name its newest section `## {version} – YYYY-MM-DD`"
        )),
    };
    ("CHANGELOG.md has its section on top".to_owned(), open)
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_digits =
        |part: &&str, len: usize| part.len() == len && part.bytes().all(|it| it.is_ascii_digit());
    matches!(parts.as_slice(), [year, month, day]
        if is_digits(year, 4) && is_digits(month, 2) && is_digits(day, 2))
}

/// Whether everything is committed.
fn tree(status: &str) -> Item {
    let changed = status.lines().count();
    let open =
        (changed > 0).then(|| format!("commit or remove what `git status` lists: {changed}"));
    ("everything is committed".to_owned(), open)
}

/// Whether the version is free.
fn tag(version: &str, tags: &str) -> Item {
    let name = format!("v{version}");
    let open = tags
        .lines()
        .any(|tag| tag == name)
        .then(|| format!("take another version: the tag `{name}` exists"));
    ("the version has no tag yet".to_owned(), open)
}

/// A step of another chore as an item.
fn outcome(name: &str, outcome: Result<(), Failure>) -> Item {
    let open = match outcome {
        Ok(()) => None,
        Err(Failure::Reported) => Some("see above".to_owned()),
        Err(Failure::Failed(message) | Failure::CouldNotRun(message)) => {
            Some(message.lines().next().unwrap_or_default().to_owned())
        }
    };
    (name.to_owned(), open)
}

fn read(file: &str) -> Result<String, Failure> {
    fs::read_to_string(step::root().join(file))
        .map_err(|error| Failure::CouldNotRun(format!("cannot read `{file}`: {error}")))
}

fn git(arguments: &[&str]) -> Result<String, Failure> {
    let mut command = std::process::Command::new("git");
    command.args(arguments).current_dir(step::root());
    step::capture(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers() {
        for (text, expected) in [
            ("0.2.0", true),
            ("1.10.3", true),
            ("0.2", false),
            ("v0.2.0", false),
            ("0.02.0", false),
            ("0.2.0-rc1", false),
            ("0..0", false),
        ] {
            assert_eq!(is_version(text), expected, "{text}");
        }
    }

    #[test]
    fn changelog_needs_a_dated_section_and_nothing_above() {
        let cases = [
            ("dated", "# C\n\n## 0.2.0 – 2026-11-19\n- x\n", true),
            (
                "nothing unreleased",
                "## Unreleased\n\n## 0.2.0 – 2026-11-19\n- x\n",
                true,
            ),
            (
                "something unreleased",
                "## Unreleased\n- y\n\n## 0.2.0 – 2026-11-19\n- x\n",
                false,
            ),
            ("without a date", "## 0.2.0\n- x\n", false),
            ("another version", "## 0.1.0 – 2026-11-19\n", false),
            (
                "an older one below",
                "## 0.3.0 – 2026-11-20\n\n## 0.2.0 – 2026-11-19\n",
                false,
            ),
            ("no section", "# C\n", false),
        ];
        for (name, text, expected) in cases {
            assert_eq!(changelog("0.2.0", text).1.is_none(), expected, "{name}");
        }
    }

    #[test]
    fn open_items_say_what_to_do() {
        let (_, open) = stated("Chart.yaml", "version: 0.2.0", "version: 0.1.0\n");
        assert_eq!(open.unwrap(), "write `version: 0.2.0` there");
        assert!(
            stated("Chart.yaml", "version: 0.2.0", "version: 0.2.0\n")
                .1
                .is_none()
        );
        assert!(tree("").1.is_none());
        assert!(tree(" M a\n?? b\n").1.unwrap().ends_with(": 2"));
        assert!(tag("0.2.0", "v0.1.0\n").1.is_none());
        assert!(tag("0.2.0", "v0.1.0\nv0.2.0\n").1.is_some());
    }

    /// A line of [`STATED`] that no file has in any version would always be open.
    #[test]
    fn stated_lines_are_those_of_the_files() {
        let version = env!("CARGO_PKG_VERSION");
        for (file, line) in STATED {
            let (name, open) = stated(file, &line.replace("{}", version), &read(file).unwrap());
            assert_eq!(open, None, "{name}");
        }
    }
}
