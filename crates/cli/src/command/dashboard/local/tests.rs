mod hostile;
mod logs;
mod watch;

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};
use trainyard_core::{
    chronicle::{Fact, What},
    job::JobStatus,
    ledger::Phase,
    progress::Figure,
};
use trainyard_web::{JobsAsk, ProblemCode, Question, RunPart, SeriesAsk, StripQuery};

use super::testing::{Folder, Run, ask, at, facts_of, failure, part, status};

const STRIP: StripQuery = StripQuery {
    from: None,
    to: None,
    columns: 100,
    rows: 10,
    by_node: false,
};

fn jobs(text: Option<&str>, sort: Option<&str>, cursor: Option<String>, limit: u32) -> Question {
    Question::Jobs(JobsAsk {
        text: text.map(str::to_owned),
        sort: sort.map(str::to_owned),
        cursor,
        limit,
        ..JobsAsk::default()
    })
}

fn names(answer: &Value) -> Vec<&str> {
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| row["job"].as_str().unwrap()).collect()
}

/// A run that trained from 1 s to 4 s, with facts.
fn trained(folder: &Folder, job: &str, id: &str) -> (Run, JobStatus) {
    let run = folder.run(job, id, at(0));
    let starts = status(1, &[(Phase::Starting, 0)], None);
    let trains = status(1, &[(Phase::Starting, 0), (Phase::Training, 1_000)], None);
    let ends = status(
        1,
        &[(Phase::Starting, 0), (Phase::Training, 1_000)],
        Some(4_000),
    );
    let mut facts = facts_of(&[(&starts, 0), (&trains, 1_000), (&ends, 4_000)]);
    let next = facts.last().unwrap().seq + 1;
    facts.extend((0..3_u32).map(|number| Fact {
        version: 1,
        seq: next + u64::from(number),
        at: at(1_000 * i64::from(number)).as_millisecond(),
        what: What::Point {
            name: "loss".to_owned(),
            value: Figure(f64::from(number)),
        },
    }));
    run.facts(&facts);
    run.status(&ends);
    (run, ends)
}

/// The sums of the ledger document, and those of `status` at the same moment.
fn both_sums(
    folder: &Folder,
    run: &Run,
    now: i64,
) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let local = folder.local();
    let ledger = part(&local, run, RunPart::Ledger, at(now));
    let phases = ledger["phases"].as_array().unwrap().iter();
    let shown = phases.map(|it| {
        let name = it["phase"].as_str().unwrap().to_owned();
        (name, it["millis"].as_u64().unwrap())
    });
    let question = Question::Job {
        namespace: "team".to_owned(),
        name: run.job.clone(),
        run: Some(run.name()),
    };
    let job = ask(&local, &question, at(now));
    let sums = job["status"]["ledger"].as_object().unwrap().iter();
    let stated = sums.map(|(name, millis)| (name.clone(), millis.as_u64().unwrap()));
    let is_time = |(_, millis): &(String, u64)| *millis > 0;
    (shown.collect(), stated.filter(is_time).collect())
}

#[test]
fn dashboard_about_has_all_states() {
    let folder = Folder::new();
    let about = ask(&folder.local(), &Question::About, at(0));
    assert_eq!(about["mode"], "local");
    let states = about["palette"]["states"].as_array().unwrap();
    assert_eq!(states.len(), 17);
    assert_eq!(states[15]["word"], "not observed");
    for question in [Question::Nodes, Question::Queue] {
        let problem = folder.local().answer(&question, at(0)).unwrap_err();
        assert_eq!(problem.code, ProblemCode::NotHere);
    }
}

#[test]
fn dashboard_lists_live_first_then_newest() {
    let mut folder = Folder::new();
    for (number, job) in (0..4).zip(["a", "b", "c", "d"]) {
        let run = folder.run(job, &format!("2026111{number}T000000Z"), at(number * 1_000));
        let ended = status(1, &[(Phase::Training, 0)], Some(10_000));
        if job == "b" {
            run.status(&status(1, &[(Phase::Training, 0)], None));
            folder.live(&run);
        } else {
            let outcome = if job == "c" { "failed" } else { "succeeded" };
            run.report(outcome, &ended, at(10_000), &json!([]));
        }
    }
    // Only the last run of a job has a row.
    folder.run("a", "20251110T000000Z", at(-9_000));
    let broken = folder.run("e", "20261110T000000Z", at(0));
    fs::write(broken.path.join("job.json"), "{").unwrap();
    let local = folder.local();
    let now = at(20_000);
    let all = ask(&local, &jobs(None, None, None, 50), now);
    assert_eq!(names(&all), ["b", "d", "c", "a"]);
    assert_eq!(
        all["counts"],
        json!({"running": 1, "succeeded": 2, "failed": 1})
    );
    assert_eq!((&all["total"], &all["cursor"]), (&json!(4), &Value::Null));
    assert_eq!(all["unreadable"][0]["run"], "20261110T000000Z.e");
    let row = &all["rows"][2];
    assert_eq!(row["state"], "failed");
    assert_eq!(
        (&row["line"], &row["lineKind"]),
        (&json!("the end"), &json!("failure"))
    );
    assert_eq!(
        (&row["ranks"], &row["accelerators"]),
        (&json!(2), &json!(8))
    );
    assert_eq!(row["day"].as_array().unwrap().len(), 48);
    let live = local.row("20261111T000000Z.b", now).unwrap();
    assert_eq!((live.live, live.attempt), (true, 1));
    assert_eq!(local.row("20261111T000000Z.x", now), None);
    // Pages hold every row once, also where a row has moved meanwhile.
    let first = ask(&local, &jobs(None, None, None, 2), now);
    assert_eq!(names(&first), ["b", "d"]);
    let cursor = first["cursor"].as_str().map(str::to_owned);
    let second = ask(&local, &jobs(None, None, cursor, 2), now);
    assert_eq!(
        (names(&second), &second["cursor"]),
        (vec!["c", "a"], &Value::Null)
    );
    assert_eq!(
        names(&ask(&local, &jobs(None, Some("-job"), None, 50), now)),
        ["d", "c", "b", "a"]
    );
    assert_eq!(
        names(&ask(&local, &jobs(Some("THE END"), None, None, 50), now)),
        ["c"]
    );
    let wrong = local
        .answer(&jobs(None, Some("jobb"), None, 50), now)
        .unwrap_err();
    assert!(
        wrong.message.contains("did you mean `job`"),
        "{}",
        wrong.message
    );
    let last = format!("{}.x", usize::MAX);
    let behind = ask(&local, &jobs(None, None, Some(last), 2), now);
    assert_eq!((names(&behind), &behind["cursor"]), (vec![], &Value::Null));
    let wrong = local.answer(&jobs(None, None, Some("x".to_owned()), 50), now);
    assert_eq!(wrong.unwrap_err().code, ProblemCode::BadRequest);
}

#[test]
fn dashboard_ledger_equals_status() {
    let mut folder = Folder::new();
    let (done, ends) = trained(&folder, "done", "20261118T000000Z");
    done.report("succeeded", &ends, at(4_000), &json!([]));
    let (shown, stated) = both_sums(&folder, &done, 99_000);
    assert_eq!(shown, stated);
    assert_eq!(shown["training"], 3_000);

    // Of an older version: no facts.
    let old = folder.run("old", "20261118T000000Z", at(0));
    old.report("succeeded", &ends, at(4_000), &json!([]));
    let (shown, stated) = both_sums(&folder, &old, 99_000);
    assert_eq!(shown, stated);

    // A live one whose status is ahead of its facts, at two moments.
    let live = folder.run("live", "20261118T000000Z", at(0));
    let starts = status(1, &[(Phase::Starting, 0)], None);
    let later = [
        (Phase::Starting, 0),
        (Phase::Training, 1_234),
        (Phase::Stalled, 5_677),
    ];
    let stalls = status(1, &later, None);
    live.facts(&facts_of(&[(&starts, 0)]));
    live.status(&stalls);
    folder.live(&live);
    for now in [6_001, 7_919] {
        let (shown, stated) = both_sums(&folder, &live, now);
        assert_eq!(shown, stated);
        assert_eq!(shown["stalled"], u64::try_from(now - 5_677).unwrap());
    }
    // Its engine is killed: nothing is known of the time after that.
    folder.kill();
    let (shown, stated) = both_sums(&folder, &live, 999_000);
    assert_eq!(shown, stated);
    assert_eq!(shown.values().sum::<u64>(), 5_677);

    // A part of its facts is lost.
    let lost = folder.run("lost", "20261118T000000Z", at(0));
    let all = facts_of(&[(&starts, 0), (&stalls, 6_000)]);
    lost.facts(&all[all.len() - 1..]);
    lost.report("stopped", &stalls, at(8_000), &json!([]));
    let (shown, stated) = both_sums(&folder, &lost, 99_000);
    assert_eq!(shown, stated);
}

#[test]
fn dashboard_parts_of_a_run_are_answered() {
    let folder = Folder::new();
    let (run, ends) = trained(&folder, "j", "20261118T000000Z");
    run.report("succeeded", &ends, at(4_000), &json!([]));
    let local = folder.local();
    let get = |wanted: RunPart| part(&local, &run, wanted, at(99_000));
    let strip = get(RunPart::Strip(STRIP));
    assert_eq!(strip["job"], json!([1_000, 5, 3_000, 0]));
    let series = get(RunPart::Series(SeriesAsk {
        points: 100,
        ..SeriesAsk::default()
    }));
    assert_eq!(series["series"][0]["name"], "loss");
    let last: Vec<f64> = series["series"][0]["buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| bucket["last"].as_f64().unwrap())
        .collect();
    assert_eq!(last, [0.0, 1.0, 2.0]);
    let events = get(RunPart::Events { cursor: None });
    assert_eq!(events["events"][0]["kind"], "ended");
    assert_eq!(get(RunPart::Checkpoints)["checkpoints"], json!([]));
    assert!(get(RunPart::Seats { attempt: None })["nodes"].is_array());
    assert_eq!(get(RunPart::Spec)["spec"]["kind"], "PyTorchJob");
    let question = Question::Run {
        run: run.id.clone(),
        part: RunPart::Trace,
    };
    let trace = local.answer(&question, at(99_000)).unwrap();
    assert_eq!(
        trace.file_name.as_deref(),
        Some("20261118T000000Z.j.trace.json")
    );
    for missing in [
        "x",
        "20261118T000000Z.k",
        "../../j",
        ".",
        "20261118T000000Z./j",
        "",
    ] {
        let question = Question::Run {
            run: missing.to_owned(),
            part: RunPart::Ledger,
        };
        let problem = local.answer(&question, at(0)).unwrap_err();
        assert_eq!(problem.code, ProblemCode::NotFound, "{missing}");
    }
}

#[test]
fn dashboard_reads_new_facts_of_a_live_run() {
    let mut folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    let starts = status(1, &[(Phase::Starting, 0)], None);
    let trains = status(1, &[(Phase::Starting, 0), (Phase::Training, 1_000)], None);
    let facts = facts_of(&[(&starts, 0), (&trains, 1_000)]);
    let first = facts_of(&[(&starts, 0)]);
    run.facts(&first);
    run.status(&starts);
    folder.live(&run);
    let local = folder.local();
    let strip = part(&local, &run, RunPart::Strip(STRIP), at(800));
    assert_eq!(strip["job"], json!([800, 5]));
    run.facts(&facts);
    run.status(&trains);
    let strip = part(&local, &run, RunPart::Strip(STRIP), at(3_000));
    assert_eq!(strip["job"], json!([1_000, 5, 2_000, 0]));
    // Another run in its place.
    run.facts(&first[..1]);
    run.status(&starts);
    let strip = part(&local, &run, RunPart::Strip(STRIP), at(900));
    assert_eq!(strip["job"], json!([900, 5]));
}

#[test]
fn dashboard_diagnoses_what_has_no_evidence() {
    let folder = Folder::new();
    let run = folder.run("j", "20261118T000000Z", at(0));
    let ends = status(1, &[(Phase::Training, 0)], Some(10_000));
    let trace = "step 1 loss 2\nTraceback (most recent call last):\n  File \"/app/train.py\", line 7, in main\n    \
                 rate = config['rate']\nKeyError: 'rate'\n";
    run.log(1, "j-worker-0", trace.as_bytes());
    run.report(
        "failed",
        &ends,
        at(10_000),
        &json!([failure("j", 1, at(9_000), &Value::Null)]),
    );
    let local = folder.local();
    let get = || part(&local, &run, RunPart::Verdicts, at(99_000));
    let verdicts = get();
    let verdict = &verdicts["verdicts"][0];
    assert_eq!(verdict["attempt"], 1);
    let evidence = &verdict["evidence"][0];
    assert_eq!(evidence["file"], "j-worker-0/pytorch");
    assert!(verdict["refutedBy"].is_string() && verdict["next"].is_string());
    assert_eq!(get(), verdicts, "the same from memory");

    // The same failure of another job is the same cause.
    let mut summary = verdict.clone();
    for key in ["at", "evidence", "refutedBy", "rank", "node", "fingerprint"] {
        summary.as_object_mut().unwrap().remove(key);
    }
    for job in ["k", "l"] {
        let other = folder.run(job, "20261118T000000Z", at(0));
        let failures = json!([failure(job, 1, at(9_000), &summary)]);
        other.report("failed", &ends, at(10_000), &failures);
    }
    let window = |window_millis| ask(&local, &Question::Failures { window_millis }, at(20_000));
    let failures = window(30_000);
    assert_eq!(failures["rows"].as_array().unwrap().len(), 1);
    let row = &failures["rows"][0];
    assert_eq!((&row["times"], &row["jobs"]), (&json!(2), &json!(2)));
    assert_eq!(row["newest"]["run"], "20261118T000000Z.l");
    assert_eq!(window(1_000)["rows"], json!([]));
}

#[test]
fn dashboard_list_reads_a_settled_run_once() {
    let folder = Folder::new();
    let ended = status(1, &[(Phase::Training, 0)], Some(10_000));
    let runs: Vec<Run> = (0..40)
        .map(|number| {
            let run = folder.run(&format!("job-{number}"), "20261118T000000Z", at(number));
            run.report("failed", &ended, at(10_000), &json!([]));
            run.settle(3);
            run
        })
        .collect();
    let local = folder.local();
    let list = || ask(&local, &jobs(Some("job-7"), None, None, 50), at(20_000));
    let first = list();
    assert_eq!(first["rows"][0]["line"], "the end");
    // Nobody reads a file again that looks as it did.
    let report = runs[7].path.join("report.json");
    let text = fs::read_to_string(&report).unwrap();
    fs::write(&report, text.replace("the end", "the fun")).unwrap();
    runs[7].settle(3);
    assert_eq!(list(), first);
    runs[7].settle(2);
    assert_eq!(list()["rows"][0]["line"], "the fun");
}
