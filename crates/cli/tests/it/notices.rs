//! `TRAINYARD_NOTICE`: what ranks learn before they are ended, and what the run reports afterwards.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    control::until,
    run::{interrupted, job, run, send},
};

/// Prints its notice on SIGTERM.
const SCRIPT: &str =
    "trap 'cat $TRAINYARD_NOTICE; exit 0' TERM; echo ready; while :; do sleep 0.05; done";

/// The notices in the output of ranks.
fn notices(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| {
        let begin = line.find("{\"version\":1,\"reason\"")?;
        serde_json::from_str(line.get(begin..)?).ok()
    });
    lines.collect()
}

/// The file of the notice of the only run.
fn file(call: &Call) -> PathBuf {
    let runs = fs::read_dir(call.folder().join(".trainyard/runs/j")).unwrap();
    let folders = runs.map(|entry| entry.unwrap().path());
    let mut folders = folders.filter(|path| path.join("job.json").exists());
    folders.next().unwrap().join("notice.json")
}

#[test]
fn ctrl_c_gives_all_ranks_one_deadline() {
    let call = run(&[], "");
    let store = call.folder().join("store");
    fs::create_dir(&store).unwrap();
    let annotation = format!(
        "  name: j\n  annotations: {{trainyard.dev/checkpoints: {}}}\n",
        store.display()
    );
    let text = job(3, SCRIPT).replace("  name: j\n", &annotation);
    fs::write(call.folder().join("job.yaml"), text).unwrap();
    let (code, _, stderr) = interrupted(&call, |pid| {
        until(&call, &["logs", "j"], |logs| {
            logs.stdout.matches("ready").count() == 3
        });
        assert!(!file(&call).exists(), "nobody ends it");
        send("-INT", pid);
    });
    assert_eq!(code, Some(1), "{stderr}");
    let logs = call.again(&["logs", "j"]).run().stdout;
    let notices = notices(&logs);
    assert_eq!(notices.len(), 3, "{logs}");
    let notice = &notices[0];
    assert!(notices.iter().all(|other| other == notice), "{logs}");
    assert_eq!(
        (&notice["reason"], &notice["attempt"]),
        (&"stop".into(), &1.into())
    );
    assert_eq!(notice["secondsLeft"], 5, "{notice}");
    // It names its checkpoints, and has none.
    assert!(
        stderr.contains("did not save: no step is complete"),
        "{stderr}"
    );
}

#[test]
fn notice_goes_with_its_attempt() {
    let call = run(&["-d"], &job(1, SCRIPT));
    assert_eq!(call.run().code, Some(0));
    let is_ready = |logs: &Outcome| logs.stdout.contains("ready");
    until(&call, &["logs", "j", "--attempt", "1"], is_ready);
    assert_eq!(call.again(&["suspend", "j"]).run().code, Some(0));
    until(&call, &["status", "j"], |_| file(&call).exists());
    let notice = fs::read_to_string(file(&call)).unwrap();
    assert!(notice.contains("\"reason\":\"suspend\""), "{notice}");
    assert_eq!(call.again(&["resume", "j"]).run().code, Some(0));
    until(&call, &["logs", "j", "--attempt", "2"], is_ready);
    assert!(!file(&call).exists(), "it is of the attempt before");
    assert_eq!(call.again(&["stop", "j", "--now"]).run().code, Some(0));
}

#[test]
fn deadline_gives_notice() {
    let text = job(1, SCRIPT);
    let text = text.replace(
        "  runPolicy:\n",
        "  runPolicy:\n    activeDeadlineSeconds: 1\n",
    );
    let call = run(&[], &text);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let notice = fs::read_to_string(file(&call)).unwrap();
    assert!(notice.contains("\"reason\":\"deadline\""), "{notice}");
}
