//! `trainyard report`, as users call it.

use std::fs;

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    run::{job, run},
    stored,
};

/// A report that reads no history but that of the test.
fn report(before: &Call, words: &[&str]) -> Outcome {
    let words: Vec<&str> = ["report"].iter().chain(words).copied().collect();
    before
        .again(&words)
        .variable("XDG_DATA_HOME", "/nowhere")
        .run()
}

fn json(outcome: &Outcome) -> Value {
    let parsed = serde_json::from_str(&outcome.stdout);
    assert!(parsed.is_ok(), "{outcome:?}");
    parsed.unwrap_or_default()
}

/// Milliseconds by phase, of phases that took time.
fn phases(report: &Value) -> Vec<(String, u64)> {
    let phases = report["phases"].as_array().expect("a list").iter();
    let mut phases: Vec<(String, u64)> = phases
        .filter_map(|it| Some((it["phase"].as_str()?.to_owned(), it["millis"].as_u64()?)))
        .collect();
    phases.sort();
    phases
}

/// The sums are those of the ledger, from the folder of the run, and from the history once that is gone; never both.
#[test]
fn sums_are_those_of_the_ledger() {
    let script =
        "echo step 1 loss 0.5; test -e was || { touch was; exit 3; }; echo step 2 loss 0.4";
    let call = run(&[], &job(1, script));
    assert_eq!(call.run().code, Some(0));
    let status = json(&call.again(&["status", "j", "--format", "json"]).run());
    let ledger = status["ledger"].as_object().expect("sums by phase").iter();
    let mut want: Vec<(String, u64)> = ledger
        .filter_map(|(phase, millis)| Some((phase.clone(), millis.as_u64()?)))
        .filter(|(_, millis)| *millis > 0)
        .collect();
    want.sort();
    let format = ["--format", "json"];
    let of_folder = json(&report(&call, &format));
    assert_eq!(phases(&of_folder), want, "{of_folder}");
    assert_eq!(of_folder["failures"]["count"], 1, "{of_folder}");
    let synced = call.again(&["history", "sync", "--store", "h.db"]).run();
    assert_eq!(synced.code, Some(0), "{synced:?}");
    let both = ["--store", "h.db", "--format", "json"];
    let counted = |report: &Value| (report["runCount"].clone(), report["fromHistory"].clone());
    let once = json(&report(&call, &both));
    assert_eq!(
        (phases(&once), counted(&once)),
        (want.clone(), (1.into(), 0.into()))
    );
    fs::remove_dir_all(call.folder().join(".trainyard/runs/j")).expect("the run can be removed");
    let kept = json(&report(&call, &both));
    assert_eq!(
        (phases(&kept), counted(&kept)),
        (want, (1.into(), 1.into()))
    );
    assert_eq!(kept["accounts"], of_folder["accounts"], "{kept}");
    let named = report(&call, &["j", "--store", "h.db"]);
    assert_eq!(named.code, Some(0), "{named:?}");
    assert!(
        named.stdout.starts_with("1 run (1 only in the history), "),
        "{named:?}"
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    // One that failed, two that lost their engine, all of a version that wrote no facts.
    let call = stored::call(&["ps"]);
    let whole = report(&call, &[]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert!(whole.stdout.starts_with("3 runs, "), "{whole:?}");
    assert!(
        whole.stdout.lines().all(|line| line.chars().count() <= 80),
        "{whole:?}"
    );
    let folder = call.folder().join(".trainyard/runs/mnist/20250101T000000Z");
    fs::write(folder.join("report.json"), "{\"version\": 1, \"job").expect("the file can be cut");
    let rest = report(&call, &[]);
    assert_eq!(rest.code, Some(1), "{rest:?}");
    assert!(rest.stdout.starts_with("2 runs, "), "{rest:?}");
    let warning = "warning: job `mnist`, run `20250101T000000Z`: cannot parse";
    assert!(rest.stderr.starts_with(warning), "{rest:?}");
    let unreadable = &json(&report(&call, &["--format", "json"]))["unreadable"];
    assert_eq!(unreadable[0]["runId"], "20250101T000000Z", "{unreadable}");
    let version = call.folder().join(".trainyard/version");
    fs::write(version, "99\n").expect("the file can be written");
    let newer = report(&call, &[]);
    assert_eq!(newer.code, Some(2), "{newer:?}");
    assert!(
        newer
            .stderr
            .contains("has version 99; this program supports up to 1"),
        "{newer:?}"
    );
}

#[test]
fn nothing_to_report_is_no_error() {
    let call = Call::new(&["ps"]);
    let nothing = report(&call, &[]);
    assert_eq!(
        (nothing.code, &*nothing.stdout),
        (Some(0), ""),
        "{nothing:?}"
    );
    assert!(
        nothing
            .stderr
            .starts_with("no runs in `.trainyard` or the history"),
        "{nothing:?}"
    );
    let empty = json(&report(&call, &["--format", "json"]));
    assert_eq!(
        (&empty["version"], &empty["wall"]),
        (&1.into(), &0.into()),
        "{empty}"
    );
    let refused = [
        (&["no-such-job"][..], "no run of job `no-such-job`"),
        (&["--since", "2999-01-01"], "`--since` is in the future"),
        (&["--since", "yesterday"], "is not a time such as `10m`"),
        (&["--store", "none.db"], "none.db"),
        (&["--cluster", "--store", "none.db"], "cannot be used with"),
        (
            &["--model", "llama3-8b", "--gpu", "H9000", "--batch", "1"],
            "H9000",
        ),
        (&["--model", "llama3-8b"], "--gpu"),
    ];
    for (words, want) in refused {
        let outcome = report(&call, words);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(want), "{outcome:?}");
    }
}
