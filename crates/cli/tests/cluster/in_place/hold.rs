//! A broken gang that is kept for inspection: what people run in its pods, and what comes after.

use std::process::{Command, Output};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{InPlace, WORKERS, gang, kill_program, messages, pods, record, restarted};
use crate::{
    archive_of,
    namespace::{PROGRAM, TestNamespace, on_real_nodes},
};

/// Longer than a supervisor waits without an order.
const LONGER_THAN_ALONE: SignedDuration = SignedDuration::from_secs(40);

fn program(fixture: &TestNamespace, words: &[&str], then: &[&str]) -> Output {
    let output = Command::new(PROGRAM)
        .args(words)
        .args(["--namespace", &fixture.namespace])
        .args(then)
        .output()
        .unwrap();
    eprintln!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn stacks(fixture: &TestNamespace) -> Value {
    let output = program(fixture, &["stacks", "held", "--format", "json"], &[]);
    assert_eq!(output.status.code(), Some(0));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ranks(list: &Value) -> Vec<u64> {
    let list = list.as_array().unwrap().iter();
    list.filter_map(|it| it["rank"].as_u64()).collect()
}

#[test]
fn held_gang_is_inspected_and_restarts_in_place() {
    on_real_nodes("in-place-hold", |fixture| {
        let in_place = InPlace::new(fixture);
        let operator = in_place.operator();
        let mut job = gang("held");
        job["metadata"]["annotations"] = json!({"trainyard.dev/hold-on-failure": "30m"});
        in_place.running(&operator, &job);
        let before = pods(fixture, "held");

        let script = "echo attempt $TRAINYARD_ATTEMPT in $HOSTNAME; exit 5";
        let words = ["exec", "held", "--rank", "1"];
        let ran = program(fixture, &words, &["--", "sh", "-c", script]);
        assert_eq!(ran.status.code(), Some(5));
        assert_eq!(
            String::from_utf8_lossy(&ran.stdout),
            "attempt 1 in held-worker-1\n"
        );
        let unknown = program(fixture, &["exec", "held", "--rank", "4"], &["--", "true"]);
        assert_eq!(unknown.status.code(), Some(2));
        let found = stacks(fixture);
        assert_eq!(ranks(&found["ranks"]), [0, 1, 2, 3], "{found:#}");
        assert_eq!(found["ranks"][3]["pod"], "held-worker-3");
        let archive = archive_of(fixture, "held");
        let text = archive
            .iter()
            .find(|(name, _)| name.ends_with("/stacks.txt"));
        assert!(
            text.is_some_and(|(_, text)| text.contains("held-worker-3")),
            "{archive:?}"
        );

        let killed = kill_program("held-worker-2");
        fixture.wait_or(
            || (!record(fixture, "held")["hold"].is_null()).then_some(()),
            || format!("the gang is held: {:#}", record(fixture, "held")),
        );
        fixture.wait("its supervisor would have left without an order", || {
            let waited = Timestamp::now().duration_since(killed);
            (waited > LONGER_THAN_ALONE).then_some(())
        });
        let held = record(fixture, "held");
        assert_eq!(held["waiting"]["code"], "HeldOnFailure", "{held:#}");
        assert_eq!(held["attempt"], 1, "{held:#}");
        let said = messages(fixture, "held");
        let words = "It holds 4 pods for 30 min.";
        assert!(said.iter().any(|it| it.contains(words)), "{said:#?}");
        let phase = "jsonpath={.items[*].status.phase}";
        let phases = fixture.kubectl(&["get", "pods", "--output", phase]);
        assert_eq!(phases.matches("Running").count(), WORKERS, "{phases}");
        let found = stacks(fixture);
        assert_eq!(ranks(&found["ranks"]), [0, 1, 3], "{found:#}");
        assert_eq!(ranks(&found["missing"]), [2], "{found:#}");
        let ran = program(fixture, &["exec", "held", "--rank", "2"], &["--", "true"]);
        assert_eq!(ran.status.code(), Some(0), "the container is there");

        let remove = "trainyard.dev/hold-on-failure-";
        fixture.kubectl(&["annotate", "pytorchjob", "held", remove]);
        restarted(fixture, "held", &before);
        let said = messages(fixture, "held");
        let over = |it: &&String| it.contains("The hold of attempt 1 is over: 4 pods held for");
        eprintln!("{:?}", said.iter().find(over));
        assert!(said.iter().any(|it| over(&it)), "{said:#?}");
    });
}
