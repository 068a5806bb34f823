//! Help, version, completions, manual pages, usage errors.

use crate::{call::Call, golden};

#[test]
fn help() {
    let call = |words: &[&str]| Call::new(words).run();
    golden::check(
        "help",
        &[
            call(&["-h"]),
            call(&["--help"]),
            call(&["run", "-h"]),
            call(&["run", "--help"]),
            call(&["ps", "--help"]),
            call(&["status", "--help"]),
            call(&["logs", "--help"]),
            call(&["render", "-h"]),
            call(&["render", "--help"]),
            call(&["lint", "-h"]),
            call(&["lint", "--help"]),
            call(&["completions", "--help"]),
            call(&["man", "--help"]),
        ],
    );
}

#[test]
fn usage_errors() {
    let call = |words: &[&str]| Call::new(words).run();
    golden::check(
        "usage",
        &[
            call(&[]),
            call(&["rendr"]),
            call(&["render"]),
            call(&["lint"]),
            call(&["render", "--format", "xml", "job.yaml"]),
            call(&["lint", "--explain", "TY999"]),
            call(&["lint", "-q", "-v", "job.yaml"]),
        ],
    );
}

#[test]
fn version() {
    let outcome = Call::new(&["--version"]).run();
    assert_eq!(outcome.code, Some(0));
    assert_eq!(
        outcome.stdout,
        format!("trainyard {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(outcome.stderr, "");
}

#[test]
fn every_shell_gets_completions_that_know_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let outcome = Call::new(&["completions", shell]).run();
        assert_eq!(outcome.code, Some(0), "{shell}: {}", outcome.stderr);
        for word in ["render", "lint", "explain"] {
            assert!(
                outcome.stdout.contains(word),
                "completions of {shell} know `{word}`"
            );
        }
    }
}

#[test]
fn manual_pages() {
    let page = Call::new(&["man"]).run();
    assert_eq!(page.code, Some(0));
    assert!(page.stdout.contains(".TH trainyard 1"), "{}", page.stdout);

    let call = Call::new(&["man", "--out", "pages"]);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let mut pages: Vec<String> = std::fs::read_dir(call.folder().join("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    assert_eq!(
        pages,
        [
            "trainyard-attach.1",
            "trainyard-checkpoints-convert.1",
            "trainyard-checkpoints-diff.1",
            "trainyard-checkpoints-ls.1",
            "trainyard-checkpoints-prune.1",
            "trainyard-checkpoints-show.1",
            "trainyard-checkpoints-verify.1",
            "trainyard-checkpoints.1",
            "trainyard-completions.1",
            "trainyard-dashboard.1",
            "trainyard-debug.1",
            "trainyard-delete.1",
            "trainyard-doctor.1",
            "trainyard-exec.1",
            "trainyard-explain.1",
            "trainyard-fabric.1",
            "trainyard-history-export.1",
            "trainyard-history-import.1",
            "trainyard-history-ls.1",
            "trainyard-history-prune.1",
            "trainyard-history-report.1",
            "trainyard-history-sync.1",
            "trainyard-history.1",
            "trainyard-lint.1",
            "trainyard-logs.1",
            "trainyard-man.1",
            "trainyard-new.1",
            "trainyard-nodes.1",
            "trainyard-operator.1",
            "trainyard-place.1",
            "trainyard-plan.1",
            "trainyard-preflight.1",
            "trainyard-profile.1",
            "trainyard-ps.1",
            "trainyard-render.1",
            "trainyard-report.1",
            "trainyard-restart.1",
            "trainyard-resume.1",
            "trainyard-run.1",
            "trainyard-simulate.1",
            "trainyard-stacks.1",
            "trainyard-status.1",
            "trainyard-stop.1",
            "trainyard-suspend.1",
            "trainyard-top.1",
            "trainyard.1"
        ]
    );
}
