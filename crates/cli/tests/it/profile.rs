//! `trainyard profile`: traces in files, and what is refused.

use std::{fs, io::Write as _, process::Command};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    golden,
    run::{interrupted, job, run},
};

/// A trace of `rank`, which comes `late` microseconds later than it could into every collective.
fn trace(late: u32) -> String {
    let mut events = Vec::new();
    let mut event = |category: &str, name: &str, thread: u32, start: u32, duration: u32| {
        events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":7,"tid":{thread},"ts":{start}.000,"dur":{duration}.000,"args":{{}}}}"#
        ));
    };
    for step in 0..6 {
        let start = 1_000_000 + step * 40_000;
        event("cpu_op", "aten::linear", 1, start, 9_000);
        event(
            "user_annotation",
            "gloo:all_reduce",
            3,
            start + 10_000 + late,
            22_000 - late,
        );
        event(
            "user_annotation",
            "Optimizer.step#SGD.step",
            1,
            start + 39_000,
            900,
        );
    }
    format!(
        "{{\"baseTimeNanoseconds\":1700000000000000000,\"traceEvents\":[\n{}\n]}}",
        events.join(",\n")
    )
}

fn packed(text: &str, level: Compression) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), level);
    packed
        .write_all(text.as_bytes())
        .expect("bytes and folders of a test can be written");
    packed
        .finish()
        .expect("bytes and folders of a test can be written")
}

/// The program with a folder of two traces, one of which is slow, and other files.
fn call(words: &[&str]) -> Call {
    let call = Call::new(words);
    let folder = call.folder().join("traces");
    fs::create_dir(&folder).expect("bytes and folders of a test can be written");
    fs::write(
        folder.join("rank-0.json.gz"),
        packed(&trace(0), Compression::fast()),
    )
    .expect("bytes and folders of a test can be written");
    fs::write(folder.join("rank-1.json"), trace(20_000))
        .expect("bytes and folders of a test can be written");
    fs::write(folder.join("config.json"), "{\"a\": 1}")
        .expect("bytes and folders of a test can be written");
    call.file("cut.json", trace(0).get(..700).unwrap_or_default())
        .file(
            "cut.json.gz",
            &packed(&trace(0), Compression::none())[..1000],
        )
        .file("empty.json", "")
        .file("text.json", "hello")
        .file("other.json", "{\"a\": 1}")
}

fn json_of(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_default()
}

#[test]
fn the_slow_rank_of_a_folder_is_named() {
    let outcome = call(&[
        "profile",
        "traces",
        "--format",
        "json",
        "--merged",
        "all.json.gz",
    ])
    .run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let document = json_of(&outcome);
    assert_eq!(document["across"]["slowRank"]["rank"], 1, "{document}");
    assert_eq!(
        document["across"]["slowRank"]["lostNs"], 20_000_000,
        "{document}"
    );
    assert_eq!(document["findings"][0]["label"], "slow_rank", "{document}");
}

#[test]
fn a_merged_trace_has_all_events_and_one_clock() {
    let call = call(&["profile", "traces", "--quiet", "--merged", "all.json"]);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = fs::read_to_string(call.folder().join("all.json")).unwrap();
    let merged: Value = serde_json::from_str(&text).unwrap();
    let events = merged["traceEvents"].as_array().unwrap();
    let spans = events.iter().filter(|event| event["ph"] == "X");
    assert_eq!(spans.count(), 36, "{text}");
    assert!(!call.folder().join("all.json.part").exists());
}

#[test]
fn what_profile_prints_of_files() {
    golden::check(
        "profile",
        &[
            call(&["profile", "traces"]).run(),
            call(&["profile", "cut.json"]).run(),
            call(&["profile", "cut.json", "text.json"]).run(),
            call(&["profile", "empty.json"]).run(),
            call(&["profile", "text.json"]).run(),
            call(&["profile", "other.json"]).run(),
            call(&["profile", "no/such.json"]).run(),
            call(&["profile", "."]).file("x", "").run(),
            call(&["profile", "traces", "--steps", "3"]).run(),
            call(&["profile", "mnist"]).run(),
            call(&["profile", "mnist", "--cluster"]).run(),
            call(&["profile"]).run(),
            call(&["profile", "/dev/null"]).run(),
        ],
    );
}

#[test]
fn a_cut_archive_is_used_as_far_as_it_goes() {
    let outcome = call(&["profile", "cut.json.gz", "--format", "json"]).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(
        json_of(&outcome)["ranks"][0]["truncated"],
        true,
        "{outcome:?}"
    );
}

/// A job of two ranks that speak as the client in `PyTorch` does, which is prepared on request.
fn recorded_job(more: &str) -> String {
    let client = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/testdata/kineto_client.py"
    );
    job(2, &format!("exec python3 {client}")).replace(
        "              command:",
        &format!(
            "              env: [{{name: TRAINYARD_PROFILE, value: \"on\"}}{more}]\n              command:"
        ),
    )
}

/// The quick tests do not need Python.
fn has_python() -> bool {
    let version = Command::new("python3").arg("--version").output();
    version.is_ok_and(|it| it.status.success())
}

#[test]
fn first_step_during_recording_records_again() {
    if !has_python() {
        return;
    }
    let call = run(&[], &recorded_job(", {name: LATE, value: \"1\"}"));
    interrupted(&call, |_| {
        let words = ["profile", "j", "--format", "json", "--steps", "7"];
        let outcome = call.again(&words).run();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let document = json_of(&outcome);
        assert_eq!(document["ranks"][0]["steps"], 7, "{document}");
        assert_eq!(document["ranks"][1]["steps"], 7, "{document}");
        assert!(outcome.stderr.contains("recording again"), "{outcome:?}");
        stop(&call);
    });
}

#[test]
fn a_running_job_is_recorded_from_outside() {
    if !has_python() {
        return;
    }
    let call = run(&[], &recorded_job(""));
    interrupted(&call, |_| {
        for extent in [["--steps", "7"], ["--seconds", "1"]] {
            let words = [
                "profile", "j", "--format", "json", "--out", "traces", extent[0], extent[1],
            ];
            let outcome = call.again(&words).run();
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            let document = json_of(&outcome);
            assert_eq!(document["job"], "j", "{document}");
            assert_eq!(document["across"]["slowRank"]["rank"], 1, "{document}");
            let steps = if extent[0] == "--steps" { 7 } else { 8 };
            assert_eq!(document["ranks"][0]["steps"], steps, "{document}");
        }
        let again = call.again(&["profile", "traces", "--format", "json"]).run();
        assert_eq!(
            json_of(&again)["across"]["slowRank"]["rank"],
            1,
            "{again:?}"
        );
        let one = call
            .again(&["profile", "j", "--ranks", "1", "--format", "json"])
            .run();
        let document = json_of(&one);
        assert_eq!(document["ranks"][0]["rank"], 1, "{document}");
        assert_eq!(document["across"], Value::Null, "{document}");
        stop(&call);
    });
}

fn stop(call: &Call) {
    let stopped = call.again(&["stop", "j", "--now"]).run();
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
}

#[test]
fn a_program_without_pytorch_records_nothing() {
    let call = run(&[], &job(1, "echo ready; exec sleep 100"));
    let (_, _, stderr) = interrupted(&call, |_| {
        let outcome = call.again(&["profile", "j", "--timeout", "5"]).run();
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(
            outcome.stderr.contains("did not ask for work"),
            "{outcome:?}"
        );
        let outcome = call.again(&["profile", "j", "--ranks", "7"]).run();
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("has no rank 7"), "{outcome:?}");
        stop(&call);
    });
    assert!(!stderr.contains("cannot record"), "{stderr}");
}
