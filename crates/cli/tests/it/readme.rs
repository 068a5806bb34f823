//! The commands of `README.md`, pasted in order into one shell in one folder.
//!
//! A fence of the form ```` ```sh NAME ```` is not run: it builds, installs, needs a program of the reader's or a cluster, or runs every test. Such
//! fences are listed below, so that none is left out by accident.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Blocks that are not run, in the order of the page.
const LEFT_OUT: [&str; 5] = ["wheel", "install", "own", "cluster", "tests"];

/// One fenced block.
#[derive(Debug)]
struct Block {
    /// What stands after `sh`.
    name: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shell blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let (language, name) = info.split_once(' ').unwrap_or((info, ""));
                open = Some(Block {
                    name: format!("{language} {name}"),
                    text: String::new(),
                });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence has no end");
    blocks
        .into_iter()
        .filter_map(|block| {
            let name = block.name.strip_prefix("sh ")?.trim().to_owned();
            Some(Block { name, ..block })
        })
        .collect()
}

/// What a fresh clone holds, without what a build left behind.
fn clone(into: &Path) {
    for entry in fs::read_dir(root()).expect("the repository can be listed") {
        let entry = entry.expect("the repository can be listed");
        if entry.file_name() != "target" && entry.file_name() != ".trainyard" {
            symlink(entry.path(), into.join(entry.file_name())).expect("links can be made");
        }
    }
}

#[test]
fn readme_runs_from_top_to_bottom() {
    let page = fs::read_to_string(root().join("README.md")).expect("README.md can be read");
    let (run, left_out): (Vec<Block>, Vec<Block>) = blocks(&page)
        .into_iter()
        .partition(|block| block.name.is_empty());
    let names: Vec<&str> = left_out.iter().map(|block| block.name.as_str()).collect();
    assert_eq!(names, LEFT_OUT, "the blocks that are not run");

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    clone(folder.path());
    let program = PathBuf::from(env!("CARGO_BIN_EXE_trainyard"));
    let bin = program.parent().expect("it is in a folder");
    let text: String = std::iter::once("PATH=\"$0:$PATH\"\n")
        .chain(run.iter().map(|block| block.text.as_str()))
        .collect();
    let output = Command::new("sh")
        .args(["-eux", "-c", &text])
        .arg(bin)
        .current_dir(folder.path())
        .env_remove("KUBECONFIG")
        .output()
        .expect("sh can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{stderr}",
        String::from_utf8_lossy(&output.stdout)
    );
    // What the page promises: the first run trains, and the second one survives a kill.
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.matches("done: test accuracy").count(), 2, "{stdout}");
    assert!(stdout.contains("resumed from step"), "{stdout}");
    assert!(stderr.contains("attempt 2"), "{stderr}");
    assert!(folder.path().join("job.yaml").is_file());
}

#[test]
fn every_name_in_a_fence_is_found() {
    let page = "text\n```sh\na\n```\n```text\nb\n```\n```sh cluster\nc\n```\n";
    let found = blocks(page);
    let shown: Vec<(&str, &str)> = found
        .iter()
        .map(|block| (block.name.as_str(), block.text.as_str()))
        .collect();
    assert_eq!(shown, [("", "a\n"), ("cluster", "c\n")]);
}
