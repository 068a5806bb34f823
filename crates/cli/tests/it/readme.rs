//! The commands of `README.md` and of the pages to start with, pasted in order into one shell in one folder.
//!
//! A fence of the form ```` ```sh fails ```` is run and exits with 1. One with any other name is not run: it builds, installs, needs a program of
//! the reader's or a cluster, or runs every test. Such fences are listed below, so that none is left out by accident.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// The name of a block that exits with 1.
const FAILS: &str = "fails";

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

/// What a page printed, and where it ran.
#[derive(Debug)]
struct Followed {
    folder: tempfile::TempDir,
    stdout: String,
    stderr: String,
}

/// Follows `page` from top to bottom. The blocks that are not run are named `left_out`, in their order.
fn follow(page: &str, left_out: &[&str]) -> Followed {
    let text = fs::read_to_string(root().join(page)).expect("the page can be read");
    let (run, left): (Vec<Block>, Vec<Block>) = blocks(&text)
        .into_iter()
        .partition(|block| block.name.is_empty() || block.name == FAILS);
    let names: Vec<&str> = left.iter().map(|block| block.name.as_str()).collect();
    assert_eq!(names, left_out, "the blocks of {page} that are not run");

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    clone(folder.path());
    let program = PathBuf::from(env!("CARGO_BIN_EXE_trainyard"));
    let bin = program.parent().expect("it is in a folder");
    let script: String = std::iter::once("PATH=\"$0:$PATH\"\n".to_owned())
        .chain(run.into_iter().map(|block| match block.name.as_str() {
            FAILS => format!("if\n{}then exit 99\nelse test $? -eq 1\nfi\n", block.text),
            _ => block.text,
        }))
        .collect();
    let output = Command::new("sh")
        .args(["-eux", "-c", &script])
        .arg(bin)
        .current_dir(folder.path())
        .env_remove("KUBECONFIG")
        .output()
        .expect("sh can be started");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{page}: {stdout}\n{stderr}");
    Followed {
        folder,
        stdout,
        stderr,
    }
}

#[test]
fn readme_runs_from_top_to_bottom() {
    let ran = follow(
        "README.md",
        &["wheel", "install", "own", "cluster", "tests"],
    );
    // What the page promises: the first run trains, and the second one survives a kill.
    let (stdout, stderr) = (&ran.stdout, &ran.stderr);
    assert_eq!(stdout.matches("done: test accuracy").count(), 2, "{stdout}");
    assert!(stdout.contains("resumed from step"), "{stdout}");
    assert!(stderr.contains("attempt 2"), "{stderr}");
    assert!(ran.folder.path().join("job.yaml").is_file());
}

#[test]
fn start_of_ml_engineer_runs_from_top_to_bottom() {
    let left_out = ["wheel", "install", "own", "cluster"];
    let ran = follow("docs/start/ml-engineer.md", &left_out);
    let (stdout, stderr) = (&ran.stdout, &ran.stderr);
    assert_eq!(stdout.matches("done: test accuracy").count(), 2, "{stdout}");
    assert!(stdout.contains("resumed from step"), "{stdout}");
    assert!(stderr.contains("attempt 2"), "{stderr}");
}

#[test]
fn start_of_on_call_runs_from_top_to_bottom() {
    let ran = follow("docs/start/on-call.md", &["cluster", "cluster"]);
    // What the page promises: a cause with its rank, and one archive.
    let cause = "the program raised an exception: KeyError: 'rate'";
    assert!(ran.stdout.contains(cause), "{}", ran.stdout);
    assert!(ran.stdout.contains("user_code_error"), "{}", ran.stdout);
    let entries = fs::read_dir(ran.folder.path()).expect("the folder can be listed");
    let archives = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("train-") && name.ends_with("-debug.tar.gz")
    });
    assert_eq!(archives.count(), 1);
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
