//! Without a gang it is the first process of a container and nothing more.

use super::{Supervised, lives, send_signal, supervise, until};
use crate::agent::open_folder;

#[test]
fn exit_codes_pass_through() {
    let folder = open_folder();
    let cases = [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ];
    for (script, code) in cases {
        let command = supervise(&["sh", "-c", script]);
        let mut run = Supervised::start(command, folder.path(), "plain");
        assert_eq!(run.code(), Some(code), "{script}");
        assert_eq!(run.err(), "", "{script}");
    }
    let mut missing = Supervised::start(supervise(&["/no/such/program"]), folder.path(), "plain");
    assert_eq!(missing.code(), Some(127));
    assert!(
        missing.err().contains("cannot start `/no/such/program`"),
        "{}",
        missing.err()
    );
}

#[test]
fn signals_reach_the_program() {
    let folder = open_folder();
    let cases = [
        ("-TERM", "TERM"),
        ("-INT", "INT"),
        ("-HUP", "HUP"),
        ("-USR1", "USR1"),
        ("-USR2", "USR2"),
        ("-QUIT", "QUIT"),
        ("-WINCH", "WINCH"),
    ];
    for (signal, name) in cases {
        let script = format!("trap 'exit 9' {name}; echo ready; while :; do sleep 0.02; done");
        let command = supervise(&["sh", "-c", &script]);
        let mut run = Supervised::start(command, folder.path(), "signals");
        until("the trap is set", || run.out().contains("ready"));
        send_signal(signal, run.child.id());
        assert_eq!(run.code(), Some(9), "{signal}");
    }
}

#[test]
fn orphans_end_with_the_program() {
    let folder = open_folder();
    let script = "setsid sleep 300 & echo left $!; exit 3";
    let mut run = Supervised::start(supervise(&["sh", "-c", script]), folder.path(), "orphans");
    assert_eq!(run.code(), Some(3));
    let left = run.number("left").unwrap();
    until("the orphan is gone", || !lives(left));
}

/// Settings that cannot be used prevent no training.
#[test]
fn bad_settings_run_the_program() {
    let folder = open_folder();
    let whole = r#"{"job":"j","slot":{"role":"Worker","index":0},"exitsOnSuccess":true,"identity":"/no/such/folder",
        "leader":"127.0.0.1:1","startWithinMs":1000,"ranks":{"first":0,"count":1,"all":1},
        "watch":{"mode":"act","hangAfterMs":1000,"hangFloorMs":1000,"firstStepWithinMs":1000}}"#;
    let cases = [
        ("{", "1", "cannot read the variable `TRAINYARD_SUPERVISE`"),
        (
            whole,
            "x",
            "the variable `TRAINYARD_ATTEMPT` must be a number",
        ),
        (whole, "1", "cannot read `/no/such/folder/ca.crt`"),
    ];
    for (settings, attempt, want) in cases {
        let mut command = supervise(&["sh", "-c", "echo trains; exit 4"]);
        command
            .env("TRAINYARD_SUPERVISE", settings)
            .env("TRAINYARD_POD_UID", "u")
            .env("TRAINYARD_ATTEMPT", attempt);
        let mut run = Supervised::start(command, folder.path(), "bad");
        assert_eq!(run.code(), Some(4), "{want}");
        assert_eq!(run.out(), "trains\n");
        let err = run.err();
        assert!(err.contains(want) && err.lines().count() == 1, "{err}");
    }
}
