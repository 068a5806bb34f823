//! `trainyard history`, as users call it.

use std::fs;

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    control::until,
    run::{job, run},
    stored,
};

const STORE: [&str; 2] = ["--store", "h.db"];

fn history(before: &Call, words: &[&str]) -> Outcome {
    let words: Vec<&str> = ["history"]
        .iter()
        .chain(words)
        .chain(&STORE)
        .copied()
        .collect();
    before.again(&words).run()
}

fn json(outcome: &Outcome) -> Value {
    let parsed = serde_json::from_str(&outcome.stdout);
    assert!(parsed.is_ok(), "{outcome:?}");
    parsed.unwrap_or_default()
}

fn runs(before: &Call) -> Vec<Value> {
    let list = json(&history(before, &["ls", "--format", "json"]));
    list["runs"].as_array().expect("a list").clone()
}

/// A run that is removed stays, with the sums that its status had.
#[test]
fn a_removed_run_stays() {
    let call = run(&[], &job(2, "echo step 1; exit 0"));
    assert_eq!(call.run().code, Some(0));
    let report = call.again(&["status", "j", "--format", "json"]).run();
    let first = history(&call, &["sync", "--format", "json"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(json(&first)["written"], 1);
    let before = runs(&call);
    fs::remove_dir_all(call.folder().join(".trainyard/runs/j")).expect("the run can be removed");
    let again = json(&history(&call, &["sync", "--format", "json"]));
    assert_eq!((&again["written"], &again["lost"]), (&0.into(), &0.into()));
    let after = runs(&call);
    assert_eq!(before, after);
    assert_eq!(after[0]["outcome"], "succeeded");
    let total = &json(&history(&call, &["report", "--format", "json"]))["total"];
    let ledger = json(&report)["ledger"].clone();
    let ledger = ledger.as_object().expect("sums by phase");
    assert!(!ledger.is_empty());
    for (phase, millis) in ledger.iter().filter(|(_, millis)| **millis != 0) {
        assert_eq!(&total["phases"][phase]["millis"], millis, "{phase}");
    }
}

/// A live run is in the history, and ends when it was last seen once its folder is gone.
#[test]
fn a_live_run_may_vanish() {
    let script = "echo step 1; while ! test -e go; do sleep 0.05; done";
    let call = run(&["-d"], &job(1, script));
    assert_eq!(call.run().code, Some(0));
    until(&call, &["status", "j", "--format", "json"], |status| {
        status.stdout.contains("\"Running\"")
    });
    let live = json(&history(&call, &["sync", "--format", "json"]));
    assert_eq!(
        (&live["written"], &live["live"]),
        (&1.into(), &1.into()),
        "{live}"
    );
    assert!(runs(&call)[0]["outcome"].is_null());
    // Its phase counts until it was seen.
    let report = json(&history(&call, &["report", "--format", "json"]));
    assert_eq!(
        (&report["live"], &report["total"]["runs"]),
        (&1.into(), &1.into()),
        "{report}"
    );
    // The engine is killed, so that nothing writes its end, and the folder goes.
    assert_eq!(call.again(&["stop", "j", "--now"]).run().code, Some(0));
    until(&call, &["ps", "--format", "json"], |ps| {
        ps.stdout.contains("\"live\": false")
    });
    fs::remove_dir_all(call.folder().join(".trainyard/runs/j")).expect("the run can be removed");
    let lost = json(&history(&call, &["sync", "--format", "json"]));
    assert_eq!(lost["lost"], 1, "{lost}");
    let run = runs(&call).remove(0);
    assert_eq!(
        (&run["outcome"], &run["ended"]),
        (&"unknown".into(), &run["seen"]),
        "{run}"
    );
}

/// Runs of a version that wrote no facts; one failed, two lost their engine.
#[test]
fn runs_without_facts_are_taken_once() {
    let call = stored::call(&["ps"]);
    let first = json(&history(&call, &["sync", "--format", "json"]));
    assert_eq!(
        (&first["written"], &first["known"]),
        (&3.into(), &0.into()),
        "{first}"
    );
    let listed = runs(&call);
    let second = json(&history(&call, &["sync", "--format", "json"]));
    assert_eq!(
        (&second["written"], &second["known"]),
        (&0.into(), &3.into()),
        "{second}"
    );
    assert_eq!(runs(&call), listed);
    let of = |filter: &[&str]| {
        let words: Vec<&str> = ["ls", "--format", "json"]
            .iter()
            .chain(filter)
            .copied()
            .collect();
        let list = json(&history(&call, &words));
        let rows = list["runs"].as_array().expect("a list");
        let names = rows
            .iter()
            .map(|run| run["job"].as_str().unwrap_or_default().to_owned());
        names.collect::<Vec<String>>()
    };
    assert_eq!(of(&["--outcome", "failed"]), ["mnist"]);
    assert_eq!(of(&["--outcome", "interrupted"]), ["llama", "llama"]);
    assert_eq!(of(&["--job", "llama", "--limit", "1"]), ["llama"]);
    assert_eq!(of(&["--team", "none"]), [""; 0]);
    // What is not known to have happened later ended with the last thing that was written, not when somebody looked.
    for run in &listed {
        let (ended, seen) = (run["ended"].as_i64(), run["seen"].as_i64());
        assert!(
            seen.zip(ended)
                .is_some_and(|(seen, ended)| seen - ended > 3_600_000),
            "{run}"
        );
    }
    let text = history(&call, &["ls"]);
    assert!(
        text.stdout
            .starts_with("JOB     KIND         TEAM      OUTCOME       ATTEMPTS"),
        "{}",
        text.stdout
    );
    let report = history(&call, &["report"]);
    assert!(
        report.stdout.contains("\nfailed attempts by cause\n"),
        "{}",
        report.stdout
    );
}

#[test]
fn exports_are_equal() {
    let call = stored::call(&["ps"]);
    assert_eq!(history(&call, &["sync"]).code, Some(0));
    assert_eq!(history(&call, &["export", "a.jsonl"]).code, Some(0));
    let other = ["history", "import", "a.jsonl", "--store", "other.db"];
    assert_eq!(call.again(&other).run().code, Some(0));
    let out = call
        .again(&["history", "export", "-", "--store", "other.db"])
        .run();
    let file = fs::read_to_string(call.folder().join("a.jsonl")).expect("it was written");
    assert!(
        out.stdout == file && file.lines().count() > 3,
        "{}",
        out.stdout
    );
    // A file is not replaced.
    let again = history(&call, &["export", "a.jsonl"]);
    assert_eq!(again.code, Some(2));
    assert!(
        again.stderr.contains("cannot write `a.jsonl`"),
        "{}",
        again.stderr
    );
    assert_eq!(
        fs::read_to_string(call.folder().join("a.jsonl")).ok(),
        Some(file)
    );
}

#[test]
fn what_cannot_be_done_is_said_in_one_sentence() {
    let call = stored::call(&["ps"]);
    fs::write(call.folder().join("h.db"), "x".repeat(9_000)).expect("a file");
    fs::write(call.folder().join("bad.jsonl"), "{}\n").expect("a file");
    let cases: [(&[&str], &str); 9] = [
        (
            &["ls", "--store", "none.db"],
            "error: there is no history at `none.db`",
        ),
        (
            &["prune", "--store", "none.db"],
            "error: there is no history at `none.db`",
        ),
        (
            &["ls", "--store", "h.db"],
            "error: history at `h.db` cannot be read: the file is damaged, or is not a database",
        ),
        (
            &["sync", "--store", "h.db"],
            "error: history at `h.db` cannot be read: the file is damaged, or is not a database",
        ),
        (
            &["sync", "--state-dir", "none", "--store", "n.db"],
            "error: cannot read the state folder `none`",
        ),
        (
            &["import", "bad.jsonl", "--store", "n.db"],
            "error: line 1 is not one of an export of history: missing field `format`",
        ),
        (
            &["import", "none.jsonl", "--store", "n.db"],
            "error: cannot read `none.jsonl`",
        ),
        (
            &["prune", "--detail", "90"],
            "error: invalid value '90' for '--detail <DAYS>': expected days, such as `90d`",
        ),
        (
            &["ls", "--since", "soon"],
            "error: invalid value 'soon' for '--since <TIME>'",
        ),
    ];
    for (words, want) in cases {
        let words: Vec<&str> = ["history"].iter().chain(words).copied().collect();
        let outcome = call.again(&words).run();
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.starts_with(want), "{outcome:?}");
        assert!(outcome.stdout.is_empty(), "{outcome:?}");
    }
    assert_eq!(
        fs::read(call.folder().join("h.db")).expect("a file"),
        "x".repeat(9_000).as_bytes()
    );
}

/// The default is below the folder for data of the user.
#[test]
fn the_store_is_in_the_folder_for_data() {
    let call = stored::call(&["ps"]);
    let folder = call.folder().join("data");
    let path: &'static str = Box::leak(folder.display().to_string().into_boxed_str());
    let synced = call
        .again(&["history", "sync"])
        .variable("XDG_DATA_HOME", path)
        .run();
    assert_eq!(synced.code, Some(0), "{synced:?}");
    assert!(folder.join("trainyard/history.db").is_file());
}
