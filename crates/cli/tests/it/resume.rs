//! `run` with a store of checkpoints: what attempts are given, what the status shows, and a store that cannot be read.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::{fs, path::Path, sync::Arc};

use serde_json::Value;
use trainyard_checkpoint_engine::{
    Files, Session, Store,
    clock::SystemClock,
    save::{Image, Limits, State},
};
use trainyard_core::checkpoint::{Policy, lineage};

use crate::{
    call::Call,
    control::until,
    run::{job, run},
};

/// An attempt that has its record in the store: it resumes from the newest step.
fn attempt(root: &Path, number: u32) -> Session {
    let files = Files::open(root).unwrap();
    let clock = SystemClock::start();
    let store = Store::create(Arc::new(files), Arc::clone(&clock), Some("run-1"), 1).unwrap();
    let id = store.fence(Some(number), "test", |view| {
        let history = lineage("run-1", &view.records, &view.commits());
        history.newest().map(|newest| newest.folder.clone())
    });
    Session {
        store: Arc::new(store),
        clock,
        id: id.unwrap(),
        rank: 0,
        world: 1,
        limits: Limits::default(),
        keep: Policy::default(),
    }
}

fn save(session: &Session, step: u64) {
    let image = Image {
        source: Arc::new(vec![1_u8; 20_000]),
        data: 8,
    };
    let state = State {
        images: vec![image],
        snapshot: 0.25,
        ..State::default()
    };
    session.save(step, &state).unwrap();
}

/// The job with the annotation.
fn annotated(script: &str, root: &Path) -> String {
    let text = job(1, script);
    let path = root.display();
    text.replace(
        "  name: j\n",
        &format!("  name: j\n  annotations: {{trainyard.dev/checkpoints: {path}}}\n"),
    )
}

fn status(call: &Call) -> Value {
    let outcome = call.again(&["status", "j", "--format", "json"]).run();
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn attempts_get_the_newest_complete_step() {
    // Another run left attempts 1 to 3. The first attempt here fails; the second one ignores the checkpoint until the test has seen it.
    let script = "echo got $TRAINYARD_ATTEMPT $TRAINYARD_RESUME_STEP $TRAINYARD_CHECKPOINTS; \
                  test $TRAINYARD_ATTEMPT = 4 && { echo step 21 loss 0.5; exit 3; }; \
                  echo step 1 loss 0.5; echo step 2 loss 0.5; while ! test -e go; do sleep 0.05; done";
    let call = run(&["-d"], "");
    let root = call.folder().join("store");
    let before = attempt(&root, 3);
    save(&before, 10);
    save(&before, 20);
    fs::write(call.folder().join("job.yaml"), annotated(script, &root)).unwrap();
    let started = call.run();
    assert_eq!(started.code, Some(0), "{started:?}");

    until(&call, &["status", "j", "--format", "json"], |seen| {
        seen.stdout.contains("\"notRestored\":")
    });
    let logs = call.again(&["logs", "j", "--attempt", "2"]).run();
    let path = root.display();
    assert!(
        logs.stdout.contains(&format!("got 5 20 {path}")),
        "{logs:?}"
    );
    let record = &status(&call)["status"]["trainyard"]["checkpoint"];
    assert_eq!(record["resumeStep"], 20, "{record}");
    assert_eq!(record["earlierAttempts"], 3, "{record}");
    assert_eq!(record["newest"]["step"], 20, "{record}");

    // The program saves after all: its stall is saving, and its step is the newest.
    let own = attempt(&root, 5);
    save(&own, 30);
    until(&call, &["status", "j"], |seen| {
        seen.stdout.contains("checkpoint    step 30, ")
    });
    assert_eq!(status(&call)["ledger"]["saving"], 250);
    save(&own, 40);
    fs::write(call.folder().join("go"), "").unwrap();
    until(&call, &["ps"], |seen| seen.stdout.contains("Succeeded"));
    // The last save is seen after the end, however short before it was.
    until(&call, &["status", "j"], |seen| {
        seen.stdout.contains("checkpoint    step 40, ")
    });
    let ended = status(&call);
    assert_eq!(ended["checkpointStep"], 40, "{ended}");
    let record = &ended["status"]["trainyard"]["checkpoint"];
    assert_eq!(record["resumedFrom"]["step"], 20, "{record}");
}

#[test]
fn store_that_cannot_be_read_does_not_stop_a_run() {
    let call = run(&[], "");
    let root = call.folder().join("store");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("trainyard.json"), "{").unwrap();
    let script = "echo got ${TRAINYARD_ATTEMPT-none} ${TRAINYARD_RESUME_STEP-none}";
    fs::write(call.folder().join("job.yaml"), annotated(script, &root)).unwrap();
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("got none none"), "{outcome:?}");
    for want in ["no complete step; not readable for ", "`trainyard.json`: "] {
        assert!(outcome.stderr.contains(want), "{outcome:?}");
    }
}

#[test]
fn first_run_starts_at_the_beginning() {
    let call = run(&[], "");
    let root = call.folder().join("store");
    let script = "echo got $TRAINYARD_ATTEMPT ${TRAINYARD_RESUME_STEP-none}";
    fs::write(call.folder().join("job.yaml"), annotated(script, &root)).unwrap();
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("got 1 none"), "{outcome:?}");
    assert!(
        outcome.stderr.contains("checkpoint     no complete step"),
        "{outcome:?}"
    );
    assert!(!root.exists(), "a look creates nothing");
}
