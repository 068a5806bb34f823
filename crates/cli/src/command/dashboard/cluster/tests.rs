//! What is decided without a cluster: rows, pages of the list, words about what cannot be read, places in logs, histories.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use trainyard_core::{
    chronicle::Content,
    job::{ObservedPod, PodPhase, read_status},
    ledger::{Ledger, Phase},
    spec::{self, Kind, Role, Slot},
    view::rows::{LineKind, RowState},
};
use trainyard_kube::{
    JobKey,
    look::{Health, JobSeen, LivePod, SourceHealth, Tail, TailLine, Trouble},
};
use trainyard_web::JobsAsk;

use super::{
    super::shared::list::page,
    buffer::{Buffer, Place},
    health::{notes, nothing, unread},
    history::{History, of_status},
    index::{Brief, row},
    jobs::listed,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A job of two workers with this status.
fn job(name: &str, status: &Value) -> JobSeen {
    let object = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {
            "replicas": 2, "restartPolicy": "OnFailure",
            "template": {"spec": {"containers": [{"name": "pytorch", "image": "a",
                "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}},
        }}},
    });
    let status = read_status(status).unwrap();
    JobSeen {
        key: JobKey {
            kind: Kind::PyTorch,
            namespace: "team".into(),
            name: name.into(),
        },
        uid: format!("uid-{name}"),
        created_at: Some(at(0)),
        deleted_at: None,
        finalizers: Vec::new(),
        job: spec::job_from_value(&object).job,
        errors: Vec::new(),
        status,
        unreadable: None,
        suspend: false,
        queue: None,
        restart: None,
        api_version: "kubeflow.org/v1".to_owned(),
    }
}

/// A status of the operator: attempt 2 trains since second 100, attempt 1 trained from 10 to 90.
fn trains() -> Value {
    let mut ledger = Ledger::default();
    ledger.enter(1, Phase::Queued, at(0));
    ledger.enter(1, Phase::Training, at(10));
    ledger.enter(2, Phase::Restarting, at(90));
    ledger.enter(2, Phase::Training, at(100));
    json!({
        "startTime": at(0),
        "trainyard": {"attempt": 2, "ledger": ledger, "lastFailure": {
            "attempt": 1, "pod": "a-worker-1", "account": "user", "message": "exit code 1",
        }},
    })
}

fn condition(kind: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "reason": "r", "message": "why",
        "lastUpdateTime": at(5), "lastTransitionTime": at(5)}]})
}

#[test]
fn a_row_has_what_the_status_has() {
    let job = job("a", &trains());
    let now = at(200);
    let row = row(&job, &of_status(&job, now), now);
    assert_eq!((row.state, row.live), (RowState::Running, true));
    assert_eq!((row.ranks, row.accelerators), (2, Some(16)));
    assert_eq!((row.attempt, row.started_at), (2, at(0)));
    assert_eq!(row.trained_ratio, job.status.trainyard.ledger.ettr(now));
    assert!(!row.day.is_empty());
}

#[test]
fn jobs_without_a_ledger_have_their_conditions() {
    let cases = [
        (json!({}), RowState::Waiting),
        (condition("Created"), RowState::Waiting),
        (condition("Running"), RowState::Running),
        (condition("Restarting"), RowState::Restarting),
        (condition("Suspended"), RowState::Suspended),
        (condition("Succeeded"), RowState::Succeeded),
        (condition("Failed"), RowState::Failed),
    ];
    for (status, want) in cases {
        let job = job("a", &status);
        let row = row(&job, &of_status(&job, at(9)), at(9));
        assert_eq!(row.state, want, "{status}");
        let has_line = want == RowState::Failed;
        assert_eq!(row.line.is_some(), has_line, "{status}: {:?}", row.line);
    }
    let mut invalid = job("a", &json!({}));
    invalid.errors = spec::job_from_value(&json!({"kind": "PyTorchJob"})).findings;
    invalid.job = None;
    let row = row(&invalid, &of_status(&invalid, at(9)), at(9));
    assert_eq!(row.state, RowState::Unknown);
    assert_eq!(row.line_kind, Some(LineKind::Failure), "{row:?}");
}

#[test]
fn pages_of_jobs_are_filtered_and_joined() {
    let mut briefs = Vec::new();
    for number in 0..5 {
        let status = if number < 2 { json!({}) } else { trains() };
        let seen = job(&format!("j{number}"), &status);
        briefs.push(Arc::new(Brief::of(&seen, at(300))));
    }
    let names = |ask: &JobsAsk| {
        let page = page(briefs.clone(), listed, ask).unwrap();
        let names: Vec<String> = page.shown.iter().map(|it| it.row.job.clone()).collect();
        (names.join(" "), page.total, page.cursor)
    };
    let ask = |sort: &str, limit: u32, cursor: Option<String>| JobsAsk {
        sort: Some(sort.to_owned()),
        limit,
        cursor,
        ..JobsAsk::default()
    };
    let (first, total, cursor) = names(&ask("-job", 3, None));
    assert_eq!((first.as_str(), total), ("j4 j3 j2", 5));
    let (rest, _, end) = names(&ask("-job", 3, cursor));
    assert_eq!((rest.as_str(), end), ("j1 j0", None));
    let waiting = JobsAsk {
        state: Some("waiting".to_owned()),
        limit: 9,
        ..JobsAsk::default()
    };
    assert_eq!(names(&waiting).0, "j0 j1");
    let text = JobsAsk {
        text: Some("J3".to_owned()),
        limit: 9,
        ..JobsAsk::default()
    };
    assert_eq!(names(&text).0, "j3");
    for wrong in [ask("nothing", 9, None), ask("job", 9, Some("x".to_owned()))] {
        assert!(page(briefs.clone(), listed, &wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn times_before_the_first_look_are_not_guessed() {
    let job = job("a", &trains());
    let chronicle = of_status(&job, at(500));
    let attempts: Vec<(i64, u32)> = chronicle.attempts.iter().copied().collect();
    // What the ledger keeps of attempt 2: it began where its time begins.
    assert_eq!(attempts, [(at(90).as_millisecond(), 2)]);
    let failed: Vec<i64> = chronicle.headlines.iter().map(|(at, _)| *at).collect();
    assert_eq!(failed, [at(90).as_millisecond()]);
    let ledger = &job.status.trainyard.ledger;
    assert_eq!(chronicle.totals(at(500)), ledger.totals(at(500)));
}

fn pod(index: u32, phase: PodPhase) -> LivePod {
    let slot = Slot::new(Role::Worker, index);
    let observed = ObservedPod {
        uid: format!("p{index}"),
        slot,
        attempt: 2,
        phase,
        ready: true,
        deleted_at: None,
        grace_seconds: 30,
        node: Some("n1".to_owned()),
        restarts: 0,
        ends: 0,
        exit: None,
        start_error: None,
        wait: None,
        disruption: None,
        gated: false,
    };
    LivePod {
        name: format!("a-worker-{index}"),
        uid: format!("p{index}"),
        slot: Some(slot),
        attempt: 2,
        phase,
        containers: vec!["pytorch".to_owned()],
        trains: "pytorch".to_owned(),
        node: Some("n1".to_owned()),
        deleted_at: None,
        created_at: Some(at(92)),
        scheduled_at: Some(at(94)),
        ready_at: Some(at(99)),
        observed: Some(observed),
    }
}

#[test]
fn pods_have_the_times_that_the_cluster_keeps() {
    let job = job("a", &trains());
    let pods = [pod(0, PodPhase::Running), pod(1, PodPhase::Failed)];
    let mut history = History::default();
    assert_eq!(history.observe(&job, &pods, at(400)), []);
    let chronicle = history.chronicle();
    let times = |index: u32| -> Vec<i64> {
        let lane = &chronicle.lanes[&Slot::new(Role::Worker, index)];
        lane.turns.iter().map(|turn| turn.at).collect()
    };
    let millis = |seconds: &[i64]| -> Vec<i64> {
        seconds.iter().map(|it| at(*it).as_millisecond()).collect()
    };
    assert_eq!(times(0), millis(&[92, 94, 99]));
    // When it ended is not known: it is seen now.
    assert_eq!(times(1), millis(&[92, 94, 400]));
    let seen = chronicle.lanes[&Slot::new(Role::Worker, 0)].node_at(at(95).as_millisecond());
    assert_eq!(seen, Some("n1"));
    let unseen =
        |it: &&trainyard_core::chronicle::Stretch| matches!(it.content, Content::NotObserved(_));
    let sums = job.status.trainyard.ledger.totals(at(400));
    assert_eq!(chronicle.totals(at(400)), sums);
    assert!(chronicle.stretches.iter().filter(unseen).count() <= 1);
    // The same again is nothing new; a change is.
    assert_eq!(history.observe(&job, &pods, at(401)), []);
    let changed = [pod(0, PodPhase::Succeeded), pod(1, PodPhase::Failed)];
    assert!(!history.observe(&job, &changed, at(402)).is_empty());
}

fn source(name: &str, code: Option<u16>) -> SourceHealth {
    SourceHealth {
        name: name.to_owned(),
        listed: code.is_none(),
        trouble: code.map(|code| Trouble {
            words: format!("cannot list {name}: forbidden\u{1b}[31m"),
            code: Some(code),
            since: at(0),
        }),
        left_out: 0,
    }
}

#[test]
fn what_cannot_be_read_is_said_in_words() {
    let sources = vec![
        source("pytorchjobs", None),
        source("tfjobs", Some(404)),
        source("jaxjobs", Some(403)),
    ];
    let mut health = Health {
        sources,
        answered_at: Some(at(0)),
        unreachable: None,
    };
    let found = unread(&health, true, at(10));
    assert_eq!(found.len(), 1, "a kind that is not served is no trouble");
    assert_eq!(found[0].run, "jaxjobs");
    assert!(found[0].why.contains("ask your cluster administrator"));
    assert!(!found[0].why.contains('\u{1b}'), "{:?}", found[0].why);
    assert_eq!(nothing(&health), None);
    health.unreachable = Some(Trouble {
        words: "cannot list pods: no route".to_owned(),
        code: None,
        since: at(5),
    });
    let found = unread(&health, true, at(90));
    assert_eq!(found[0].run, "the API server");
    assert!(found[0].why.contains("1m"), "its age: {:?}", found[0].why);
    assert_eq!(notes(&health, true, at(90)).len(), 1);
    assert!(nothing(&health).is_some());
}

fn tail(lines: &[(i64, &str)]) -> Tail {
    let lines = lines.iter().map(|(second, text)| TailLine {
        at: Some(at(*second)),
        text: text.as_bytes().to_vec(),
    });
    Tail {
        lines: lines.collect(),
        is_cut: false,
    }
}

#[test]
fn a_place_in_a_log_stays_the_same() {
    let mut buffer = Buffer::default();
    let first = buffer.ask(at(100)).unwrap();
    assert_eq!(first.since, None);
    buffer.add(tail(&[(1, "a"), (2, "b"), (2, "c")]), at(100), false);
    assert_eq!(buffer.ask(at(101)), None, "it is new enough");
    let next = buffer.ask(at(103)).unwrap();
    assert_eq!(next.since, Some(at(2)));
    // The whole second comes again, with one more line of it.
    buffer.add(
        tail(&[(2, "b"), (2, "c"), (2, "d"), (3, "e")]),
        at(103),
        true,
    );
    let texts = |place: Place, text: Option<&str>| {
        let (lines, hits) = buffer.window(place, 2, text);
        let texts: Vec<String> = lines
            .iter()
            .map(|line| String::from_utf8_lossy(&line.text).into_owned())
            .collect();
        (texts.join(" "), hits)
    };
    assert_eq!(
        texts(Place::Before(buffer.end), None),
        ("d e".to_owned(), 0)
    );
    assert_eq!(texts(Place::From(2), None), ("b c".to_owned(), 0));
    assert_eq!(texts(Place::Before(4), None), ("a b".to_owned(), 0));
    assert_eq!(texts(Place::From(0), Some("e")), ("e".to_owned(), 1));
    assert_eq!((buffer.end, buffer.place_of(3)), (10, 4));
    let later = at(103) + SignedDuration::from_hours(1);
    assert_eq!(buffer.ask(later), None, "nothing more is written to it");
}
