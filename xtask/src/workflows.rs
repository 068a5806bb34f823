//! That the files for other CI systems say what this repository does.
//!
//! Nothing here can run a workflow. What can be checked without its host is checked: that a workflow calls commands which exist, asks for no
//! secret and no right beyond reading, pins what it takes from others, and ends; and that `deny.toml` has the lists of `cargo xtask layers`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::{USAGE, layers, step};

/// The workflows, with their names.
fn workflows() -> Vec<(String, String)> {
    let folder = step::root().join(".github/workflows");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(file).unwrap())
    };
    files.iter().map(read).collect()
}

/// What stands behind `key:` in each line that begins with it, as a step of a list or not.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let line = line.strip_prefix("- ").unwrap_or(line);
            line.strip_prefix(key)?.strip_prefix(": ")
        })
        .collect()
}

#[test]
fn workflows_call_commands_that_exist() {
    let workflows = workflows();
    let mut runs = Vec::new();
    for (name, text) in &workflows {
        for run in values(text, "run") {
            assert_ne!(run, "|", "{name}: a script belongs into xtask or .ci/run");
            if let Some(rest) = run.strip_prefix("cargo xtask ") {
                let command = rest.split(' ').next().unwrap();
                let is_listed = |line: &str| line.split_whitespace().next() == Some(command);
                assert!(USAGE.lines().any(is_listed), "{name}: {run}");
            }
            runs.push(run);
        }
    }
    assert!(step::root().join(".ci/run").is_file());
    assert!(runs.iter().any(|run| run.ends_with(" .ci/run")), "{runs:?}");
    assert!(runs.contains(&"cargo xtask test --quick"), "{runs:?}");
}

#[test]
fn workflows_are_pinned_and_trusted_with_nothing() {
    for (name, text) in workflows() {
        for action in values(&text, "uses") {
            let (_, rest) = action.split_once('@').unwrap();
            let (commit, version) = rest.split_once(" # v").unwrap_or_default();
            let is_commit = commit.len() == 40 && commit.bytes().all(|it| it.is_ascii_hexdigit());
            assert!(is_commit && !version.is_empty(), "{name}: {action}");
        }
        assert!(
            text.contains("\npermissions:\n  contents: read\n"),
            "{name}"
        );
        assert!(!text.contains("secrets."), "{name}");
        assert!(!text.contains("pull_request_target"), "{name}");
        let jobs = values(&text, "runs-on").len();
        assert!(
            jobs > 0 && jobs == values(&text, "timeout-minutes").len(),
            "{name}"
        );
        let checkouts = text.matches("actions/checkout@").count();
        let kept = text.matches("persist-credentials: false").count();
        assert_eq!(checkouts, kept, "{name}");
    }
}

#[test]
fn deny_file_has_the_lists_of_layers() {
    let text = fs::read_to_string(step::root().join("deny.toml")).unwrap();
    let (licences, banned) = layers::lists();
    let (_, rest) = text.split_once("\nallow = [\n").unwrap();
    let (listed, _) = rest.split_once("]\n").unwrap();
    let quoted = |line: &str| line.trim().trim_matches(['"', ',']).to_owned();
    let listed: Vec<String> = listed.lines().map(quoted).collect();
    assert_eq!(listed, licences);

    let lines: BTreeSet<&str> = text.lines().map(str::trim).collect();
    for (name, reason) in banned {
        let line = format!("{{ crate = \"{name}\", reason = \"{reason}\" }},");
        assert!(lines.contains(line.as_str()), "{line}");
    }
    assert_eq!(text.matches("{ crate = ").count(), banned.len());
}
