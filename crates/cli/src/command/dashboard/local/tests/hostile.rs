//! What a job may leave in its folder: it runs as the user whose dashboard reads it.

use std::{fs, os::unix::fs::symlink};

use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_core::{
    chronicle::{Fact, Outcome, PodState, What},
    ledger::Phase,
    progress::Figure,
    spec::{Role, Slot},
};
use trainyard_web::{JobsAsk, LogsAsk, Question, RunPart, SeriesAsk, StripQuery};

use super::{at, failure, part, status};
use crate::command::dashboard::local::{
    Local,
    testing::{Folder, Run, facts_of},
};

#[test]
fn dashboard_folded_logs_follow_a_verdict() {
    let folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    run.log(1, "j-worker-0", b"step 1\nValueError: rank is bad\nmore\n");
    let trains = status(1, &[(Phase::Training, 0)], None);
    run.status(&trains);
    let mut facts = facts_of(&[(&trains, 0)]);
    run.facts(&facts);
    let local = folder.local();
    let roles = || {
        let wanted = RunPart::FoldedLogs { attempt: Some(1) };
        let document = part(&local, &run, wanted, at(9_000));
        let groups = document["groups"].as_array().unwrap().clone();
        groups
            .iter()
            .map(|group| group["role"].as_str().unwrap().to_owned())
            .collect::<Vec<String>>()
    };
    assert!(!roles().contains(&"cause".to_owned()));
    // The logs stay as they are; what they mean is known later.
    let verdict = json!({
        "v": 1, "seq": facts.last().unwrap().seq + 1, "at": at(5_000).as_millisecond(), "fact": "verdict",
        "attempt": 1, "label": "user_code_error", "sentence": "s", "account": "user", "retry": "does_not_help",
        "confidence": "high", "depth": "cause", "ranks": [0], "nodes": [], "next": "n", "signature": "s",
        "evidence": [{"file": "j-worker-0/pytorch", "line": 2, "text": "ValueError: rank is bad"}],
    });
    facts.push(Fact::read(verdict.to_string().as_bytes()).unwrap());
    run.facts(&facts);
    assert!(roles().contains(&"cause".to_owned()), "{:?}", roles());
}

#[test]
fn dashboard_follows_no_link_to_attempts() {
    let folder = Folder::new();
    let elsewhere = folder.run("other", "20261118T000000Z", at(0));
    elsewhere.log(1, "j-worker-0", b"secret\n");
    let attempts = elsewhere.path.join("attempts");
    let questions = |run: &Run| {
        let logs = RunPart::Logs(LogsAsk {
            lines: 1,
            ..LogsAsk::default()
        });
        [logs, RunPart::FoldedLogs { attempt: Some(1) }].map(|part| Question::Run {
            run: run.name(),
            part,
        })
    };
    let local = folder.local();
    for question in questions(&elsewhere) {
        local.answer(&question, at(0)).unwrap();
    }
    let all = folder.run("all", "20261118T000000Z", at(0));
    symlink(&attempts, all.path.join("attempts")).unwrap();
    let one = folder.run("one", "20261118T000000Z", at(0));
    fs::create_dir(one.path.join("attempts")).unwrap();
    symlink(attempts.join("1"), one.path.join("attempts/1")).unwrap();
    for question in questions(&all).iter().chain(&questions(&one)) {
        let found = local.answer(question, at(0));
        assert!(found.is_err(), "{question:?}");
    }
}

/// Facts with the least and greatest numbers that they can hold.
fn extreme_facts() -> Vec<Fact> {
    let slot = Slot::new(Role::Worker, u32::MAX);
    let ends = [i64::MIN, -1, 0, i64::MAX];
    let mut whats = vec![What::Began];
    for from in ends {
        for to in ends {
            whats.push(What::Span {
                from,
                to,
                attempt: u32::MAX,
                phase: Phase::Training,
            });
        }
    }
    whats.push(What::Phase {
        attempt: u32::MAX,
        phase: Phase::Stalled,
    });
    for state in [PodState::Running, PodState::Failed] {
        whats.push(What::Pod {
            attempt: u32::MAX,
            slot,
            state,
        });
    }
    whats.push(What::Seated {
        attempt: u32::MAX,
        slot,
        first_rank: Some(u32::MAX),
        ranks: u32::MAX,
        node: "\u{1b}[31m\u{202e}".to_owned(),
    });
    whats.push(What::Failures {
        slot: Some(slot),
        attempt: u32::MAX,
        until: i64::MAX,
        count: u64::MAX,
    });
    whats.push(What::Failures {
        slot: Some(slot),
        attempt: u32::MAX,
        until: i64::MIN,
        count: u64::MAX,
    });
    for value in [f64::NAN, f64::MAX, f64::MIN] {
        whats.push(What::Point {
            name: "loss".to_owned(),
            value: Figure(value),
        });
    }
    let outcome = Outcome::Unknown;
    let mut facts = Vec::new();
    for at in ends {
        for what in &whats {
            let seq = u64::try_from(facts.len()).unwrap();
            let (version, what) = (u32::MAX, what.clone());
            facts.push(Fact {
                version,
                seq,
                at,
                what,
            });
        }
    }
    facts.push(Fact {
        version: 1,
        seq: u64::MAX,
        at: i64::MIN,
        what: What::Ended { outcome },
    });
    facts
}

/// Asks for everything at the ends of time. A panic fails the test.
fn ask_all(local: &Local, run: &Run) {
    let (least, most) = (Some(i64::MIN), Some(i64::MAX));
    let mut parts = vec![
        RunPart::Ledger,
        RunPart::Verdicts,
        RunPart::Checkpoints,
        RunPart::Spec,
        RunPart::Trace,
        RunPart::Events { cursor: None },
        RunPart::Events {
            cursor: Some(format!("{}.{}", i64::MIN, usize::MAX)),
        },
        RunPart::Seats {
            attempt: Some(u32::MAX),
        },
        RunPart::FoldedLogs { attempt: None },
        RunPart::Logs(LogsAsk {
            offset: Some(u64::MAX),
            lines: u32::MAX,
            rank: Some(u32::MAX),
            ..LogsAsk::default()
        }),
        RunPart::Logs(LogsAsk {
            line: Some(u64::MAX),
            backwards: true,
            ..LogsAsk::default()
        }),
    ];
    for (from, to) in [(None, None), (least, most), (most, least), (None, most)] {
        parts.push(RunPart::Strip(StripQuery {
            from,
            to,
            columns: u32::MAX,
            rows: u32::MAX,
            by_node: from.is_none(),
        }));
        parts.push(RunPart::Series(SeriesAsk {
            names: Vec::new(),
            from,
            to,
            points: u32::MAX,
        }));
    }
    let questions = parts.into_iter().map(|part| Question::Run {
        run: run.name(),
        part,
    });
    let others = [
        Question::Jobs(JobsAsk {
            limit: u32::MAX,
            ..JobsAsk::default()
        }),
        Question::Job {
            namespace: "team".to_owned(),
            name: run.job.clone(),
            run: None,
        },
        Question::Failures {
            window_millis: u64::MAX,
        },
    ];
    for question in questions.chain(others) {
        for now in [Timestamp::MIN, at(0), Timestamp::MAX] {
            // Some of it cannot be answered.
            drop(local.answer(&question, now));
        }
    }
}

#[test]
fn dashboard_bears_the_ends_of_time() {
    let mut folder = Folder::new();
    let facts = folder.run("facts", "20261118T000000Z", at(0));
    facts.facts(&extreme_facts());
    facts.log(1, "facts-worker-0", b"one\ntwo\n");
    let mut whole = status(1, &[], None);
    whole
        .trainyard
        .ledger
        .enter(1, Phase::Training, Timestamp::MIN);
    let open = folder.run("open", "20261118T000000Z", Timestamp::MAX);
    open.status(&whole);
    folder.live(&open);
    let ends = folder.run("ends", "20261118T000000Z", Timestamp::MIN);
    let mut ended = whole.clone();
    ended.trainyard.ledger.end(Timestamp::MAX);
    let failed = failure("ends", u32::MAX, Timestamp::MIN, &Value::Null);
    ends.report("failed", &ended, Timestamp::MAX, &json!([failed]));
    let large = folder.run("large", "20261118T000000Z", at(0));
    let text = fs::read_to_string(large.path.join("job.json")).unwrap();
    let mut record: Value = serde_json::from_str(&text).unwrap();
    record["replicas"] = json!({"Worker": u32::MAX, "Master": u32::MAX});
    large.write("job.json", &record);
    large.status(&whole);
    let local = folder.local();
    for run in [&facts, &open, &ends, &large] {
        ask_all(&local, run);
    }
}
