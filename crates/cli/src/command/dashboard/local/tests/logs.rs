use std::{fmt::Write as _, fs, os::unix::fs::symlink, process::Command};

use serde_json::{Value, json};
use trainyard_core::ledger::Phase;
use trainyard_web::{LogsAsk, ProblemCode, Question, RunPart};

use super::{at, failure, part, status};
use crate::command::dashboard::local::{
    Local,
    testing::{Folder, Run},
};

fn ask_lines(lines: u32) -> LogsAsk {
    LogsAsk {
        lines,
        ..LogsAsk::default()
    }
}

fn logs(local: &Local, run: &Run, ask: LogsAsk) -> Value {
    part(local, run, RunPart::Logs(ask), at(0))
}

/// 100,000 lines of twelve bytes with their numbers, from 0.
fn numbered_lines() -> String {
    let mut text = String::new();
    for number in 0..100_000 {
        writeln!(text, "line {number:06}").unwrap();
    }
    text
}

fn texts(answer: &Value) -> Vec<&str> {
    let lines = answer["lines"].as_array().unwrap().iter();
    lines.map(|line| line["text"].as_str().unwrap()).collect()
}

#[test]
fn dashboard_logs_page_in_both_directions() {
    let folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    let text = numbered_lines();
    run.log(1, "j-worker-0", text.as_bytes());
    run.log(1, "j-worker-1", b"other\n");
    let local = folder.local();
    let end = logs(&local, &run, ask_lines(3));
    assert_eq!(texts(&end), ["line 099997", "line 099998", "line 099999"]);
    assert_eq!(
        (&end["atEnd"], &end["size"]),
        (&json!(true), &json!(1_200_000))
    );
    assert_eq!(end["kept"], json!([[0, 1_200_000]]));
    assert_eq!(end["pods"][1]["pod"], "j-worker-1");
    assert_eq!(
        (&end["rank"], &end["pods"][1]["firstRank"]),
        (&json!(0), &json!(1))
    );
    let before = logs(
        &local,
        &run,
        LogsAsk {
            offset: end["first"].as_u64(),
            backwards: true,
            ..ask_lines(2)
        },
    );
    assert_eq!(texts(&before), ["line 099995", "line 099996"]);
    let after = logs(
        &local,
        &run,
        LogsAsk {
            offset: before["last"].as_u64(),
            ..ask_lines(1)
        },
    );
    assert_eq!(
        (texts(&after), &after["atEnd"]),
        (vec!["line 099997"], &json!(false))
    );
    // A place within a line is that line.
    let within = logs(
        &local,
        &run,
        LogsAsk {
            offset: Some(12 * 70_000 + 5),
            ..ask_lines(1)
        },
    );
    assert_eq!(texts(&within), ["line 070000"]);
    let line = logs(
        &local,
        &run,
        LogsAsk {
            line: Some(50_001),
            ..ask_lines(1)
        },
    );
    assert_eq!(texts(&line), ["line 050000"]);
    for (rank, pod) in [
        (Some(1), None),
        (None, Some("worker-1")),
        (None, Some("j-worker-1")),
    ] {
        let pod = pod.map(str::to_owned);
        let other = logs(
            &local,
            &run,
            LogsAsk {
                rank,
                pod,
                ..ask_lines(9)
            },
        );
        assert_eq!(texts(&other), ["other"]);
    }
    let begin = logs(
        &local,
        &run,
        LogsAsk {
            offset: Some(0),
            backwards: true,
            ..ask_lines(5)
        },
    );
    assert_eq!(
        (texts(&begin), &begin["first"], &begin["last"]),
        (vec![], &json!(0), &json!(0))
    );
}

#[test]
fn dashboard_search_counts_every_line() {
    let folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    let text = numbered_lines();
    run.log(1, "j-worker-0", text.as_bytes());
    let local = folder.local();
    let search = |text: &str, offset: Option<u64>, backwards: bool| {
        let search = Some(text.to_owned());
        logs(
            &local,
            &run,
            LogsAsk {
                search,
                offset,
                backwards,
                ..ask_lines(2)
            },
        )
    };
    let last = search("77", None, false);
    assert_eq!(texts(&last), ["line 099877", "line 099977"]);
    // Numbers of five digits with 77 in them, counted another way.
    let want = (0..100_000)
        .filter(|number| format!("{number:06}").contains("77"))
        .count();
    assert_eq!(last["hits"], json!(want));
    assert_eq!(
        texts(&search("77", Some(0), false)),
        ["line 000077", "line 000177"]
    );
    assert_eq!(
        texts(&search("77", Some(12 * 180), true)),
        ["line 000077", "line 000177"]
    );
    let none = search("nowhere", None, false);
    assert_eq!((texts(&none), &none["hits"]), (vec![], &json!(0)));
}

#[test]
fn dashboard_opens_log_of_first_failure() {
    let folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    run.log(1, "j-worker-0", b"fine\n");
    run.log(1, "j-worker-1", b"step 1\nValueError: bad\n");
    let mut failed = failure("j", 1, at(5), &Value::Null);
    failed["pod"] = json!("j-worker-1");
    failed["slot"]["index"] = json!(1);
    let ends = status(1, &[(Phase::Training, 0)], Some(10));
    run.report("failed", &ends, at(10), &json!([failed]));
    let local = folder.local();
    let end = logs(&local, &run, ask_lines(10));
    assert_eq!(end["pod"], "j-worker-1");
    assert_eq!(end["lines"][1]["severity"], "error");
    let missing = [
        LogsAsk {
            attempt: Some(7),
            ..ask_lines(1)
        },
        LogsAsk {
            rank: Some(9),
            ..ask_lines(1)
        },
        LogsAsk {
            pod: Some("../../x".to_owned()),
            ..ask_lines(1)
        },
        LogsAsk {
            container: Some("x".to_owned()),
            ..ask_lines(1)
        },
    ];
    for ask in missing {
        let (run, part) = (run.name(), RunPart::Logs(ask));
        let problem = local
            .answer(&Question::Run { run, part }, at(0))
            .unwrap_err();
        assert_eq!(problem.code, ProblemCode::NotFound, "{problem:?}");
    }
}

#[test]
fn dashboard_bears_hostile_folders_and_logs() {
    let folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    let secret = folder.root().join("secret");
    fs::write(&secret, "secret\n").unwrap();
    // A line of 20 MiB, bytes that are no text, escape codes, no end.
    let mut text = vec![b'x'; 20 << 20];
    text.extend_from_slice(
        b"\n\xff\xfe\x00broken\n\x1b[31mred\x1b[0m <script>alert(1)</script>\nno end",
    );
    run.log(1, "j-worker-0", &text);
    let local = folder.local();
    let end = logs(&local, &run, ask_lines(100));
    let lines = end["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        (&lines[0]["offset"], &lines[0]["cut"]),
        (&json!(0), &json!(true))
    );
    assert_eq!(lines[0]["text"].as_str().unwrap().len(), 8 << 10);
    assert_eq!(lines[1]["text"], "\u{fffd}\u{fffd}\0broken");
    assert_eq!(
        lines[2]["text"],
        "\u{1b}[31mred\u{1b}[0m <script>alert(1)</script>"
    );
    assert_eq!(lines[3]["text"], "no end");
    part(&local, &run, RunPart::FoldedLogs { attempt: None }, at(0));

    // Links and pipes in the place of logs, pods and files are not followed.
    let pods = run.path.join("attempts/1");
    symlink(folder.root(), pods.join("j-worker-1")).unwrap();
    symlink(&secret, pods.join("j-worker-0/linked.log")).unwrap();
    let made = Command::new("mkfifo")
        .arg(pods.join("j-worker-0/pipe.log"))
        .status()
        .unwrap();
    assert!(made.success());
    let listed = logs(&local, &run, ask_lines(1));
    assert_eq!(
        listed["pods"].as_array().unwrap().len(),
        1,
        "{}",
        listed["pods"]
    );
    fs::remove_file(pods.join("j-worker-0/pytorch.log")).unwrap();
    symlink(&secret, pods.join("j-worker-0/pytorch.log")).unwrap();
    let ask = Question::Run {
        run: run.name(),
        part: RunPart::Logs(ask_lines(1)),
    };
    assert!(local.answer(&ask, at(0)).is_err());
    symlink(&secret, run.path.join("facts.jsonl")).unwrap();
    let ask = Question::Run {
        run: run.name(),
        part: RunPart::Ledger,
    };
    let problem = local.answer(&ask, at(0)).unwrap_err();
    assert_eq!(problem.code, ProblemCode::Unreadable);
    // A job whose name is a path is a name.
    let odd = folder.run("<b>..%2f", "20261118T000001Z", at(0));
    odd.status(&status(1, &[(Phase::Training, 0)], None));
    assert_eq!(part(&local, &odd, RunPart::Ledger, at(0))["wall"], 0);
    symlink(folder.root(), folder.root().join("runs/linked")).unwrap();
    let jobs = local
        .answer(&super::jobs(None, None, None, 50), at(0))
        .unwrap();
    let jobs: Value = serde_json::from_slice(&jobs.json).unwrap();
    assert_eq!(jobs["total"], 2);
}

#[test]
fn dashboard_folds_logs_of_all_ranks() {
    let folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    for pod in 0..2 {
        let mut text = String::new();
        for second in 10..40 {
            writeln!(
                text,
                "2026-11-18T10:00:{second}Z step {second} loss 0.{second}"
            )
            .unwrap();
        }
        if pod == 1 {
            text += "2026-11-18T10:00:41Z ValueError: rank is bad\n";
        }
        run.log(1, &format!("j-worker-{pod}"), text.as_bytes());
    }
    let local = folder.local();
    let document = part(
        &local,
        &run,
        RunPart::FoldedLogs { attempt: Some(1) },
        at(0),
    );
    let groups = document["groups"].as_array().unwrap();
    let counts: u64 = groups.iter().map(|it| it["count"].as_u64().unwrap()).sum();
    assert_eq!(counts, 61, "every line once");
    assert!(groups.len() < 20, "{}", groups.len());
    assert_eq!(groups[0]["ranks"], "0-1");
    assert_eq!(document["firstFailure"]["rank"], 1);
    let before = document["firstFailure"]["before"].as_array().unwrap();
    assert!(before.last().unwrap().as_str().unwrap().contains("step 39"));
    let place = &document["firstFailureAt"];
    assert_eq!(place["pod"], "j-worker-1");
    let there = logs(
        &local,
        &run,
        LogsAsk {
            pod: Some("j-worker-1".to_owned()),
            offset: place["offset"].as_u64(),
            ..ask_lines(1)
        },
    );
    assert!(texts(&there)[0].contains("ValueError"));
    assert_eq!(document.get("bytesLeftOut"), None);
    let bytes = document["bytes"].as_u64().unwrap();
    assert_eq!(
        bytes,
        there["pods"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["size"].as_u64().unwrap())
            .sum::<u64>()
    );
}
