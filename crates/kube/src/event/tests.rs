//! Folding and the shelf, as tables; the writes are tested against the scripted API server.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use trainyard_core::{
    job::{Event, EventKind},
    spec::Kind,
};

use super::{Draft, EVERY, JOB_MOST, PodChange, PodEvent, Shelf, TRIES, fold, name};
use crate::{
    api::{Answer, CallError},
    key::JobKey,
};

/// The case, the pods of the job, what happened, and the reason, message and count of each Event.
type FoldCase = (
    &'static str,
    u32,
    Vec<PodEvent>,
    Vec<(&'static str, &'static str, u32)>,
);

fn key(name: &str) -> JobKey {
    JobKey {
        kind: Kind::PyTorch,
        namespace: "n".into(),
        name: name.into(),
    }
}

fn happened(
    change: PodChange,
    attempt: u32,
    texts: impl IntoIterator<Item = String>,
) -> Vec<PodEvent> {
    let event = |text| PodEvent {
        change,
        attempt,
        text,
    };
    texts.into_iter().map(event).collect()
}

fn workers(count: u32) -> Vec<String> {
    (0..count).map(|at| format!("j-worker-{at}")).collect()
}

fn event(reason: &str, message: &str) -> Event {
    Event {
        kind: EventKind::Warning,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

#[test]
fn pod_events_fold_by_size_of_the_job() {
    let errors = || (0..3).map(|at| format!("pods \"j-worker-{at}\" is forbidden"));
    let exits = |count: u32| (0..count).map(|at| format!("n.j-worker-{at} exited with code 1"));
    let cases: Vec<FoldCase> = vec![
        ("nothing", 8, Vec::new(), Vec::new()),
        (
            "a small job",
            2,
            happened(PodChange::Created, 1, workers(2)),
            vec![
                ("SuccessfulCreatePod", "Created pod: j-worker-0", 1),
                ("SuccessfulCreatePod", "Created pod: j-worker-1", 1),
            ],
        ),
        (
            "workers of an MPIJob v1",
            3,
            happened(PodChange::CreatedWorker, 1, workers(1)),
            vec![("SuccessfulCreatePod", "Created worker pod: j-worker-0", 1)],
        ),
        (
            "a gang of 1,000 pods",
            1_000,
            happened(PodChange::Created, 1, workers(1_000)),
            vec![(
                "SuccessfulCreatePod",
                "Created pods: j-worker-0, j-worker-1, j-worker-2 and 997 more",
                1_000,
            )],
        ),
        (
            "three pods of a large gang",
            9,
            happened(PodChange::Deleted, 2, workers(3)),
            vec![(
                "SuccessfulDeletePod",
                "Deleted pods: j-worker-0, j-worker-1, j-worker-2",
                3,
            )],
        ),
        (
            "errors name the last pod",
            4,
            happened(PodChange::CreateFailed, 1, errors()),
            vec![(
                "FailedCreatePod",
                "Error creating: pods \"j-worker-2\" is forbidden",
                3,
            )],
        ),
        (
            "one exit",
            2,
            happened(PodChange::Exited, 1, exits(1)),
            vec![("ExitedWithCode", "Pod: n.j-worker-0 exited with code 1", 1)],
        ),
        (
            "many exits",
            64,
            happened(PodChange::Exited, 1, exits(4)),
            vec![(
                "ExitedWithCode",
                "Pods: n.j-worker-0 exited with code 1, n.j-worker-1 exited with code 1, n.j-worker-2 exited with code 1 and 1 more",
                4,
            )],
        ),
    ];
    for (name, pods, happened, want) in cases {
        let drafts = fold(pods, &happened);
        let got: Vec<(&str, String, u32)> = drafts
            .iter()
            .map(|draft| (&*draft.reason, draft.message(draft.count), draft.count))
            .collect();
        let want: Vec<(&str, String, u32)> = want
            .into_iter()
            .map(|(reason, message, count)| (reason, message.to_owned(), count))
            .collect();
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn attempts_are_folded_apart() {
    let mut events = happened(PodChange::Exited, 1, workers(10));
    events.extend(happened(PodChange::Exited, 2, workers(10)));
    let drafts = fold(10, &events);
    assert_eq!(drafts.len(), 2);
    assert_ne!(drafts[0].id("u"), drafts[1].id("u"));
}

#[test]
fn long_messages_are_cut_at_a_letter() {
    let draft = Draft::of(&event("Refused", &"ü".repeat(900)), 1);
    assert_eq!(draft.message(1), "ü".repeat(500));
}

#[test]
fn an_id_depends_on_what_distinguishes_events() {
    let one = Draft::of(&event("A", "m"), 1);
    let same = |other: &Draft, uid: &str| other.id(uid) == one.id("u");
    assert!(same(&Draft::of(&event("A", "m"), 1), "u"));
    for (what, other, uid) in [
        ("job", Draft::of(&event("A", "m"), 1), "v"),
        ("reason", Draft::of(&event("B", "m"), 1), "u"),
        ("message", Draft::of(&event("A", "k"), 1), "u"),
        ("attempt", Draft::of(&event("A", "m"), 2), "u"),
    ] {
        assert!(!same(&other, uid), "{what}");
    }
    let gang = |count| fold(1_000, &happened(PodChange::Created, 1, workers(count))).remove(0);
    assert_eq!(
        gang(1).id("u"),
        gang(900).id("u"),
        "names are not part of it"
    );
}

#[test]
fn an_event_of_a_long_name_has_a_valid_name() {
    assert_eq!(name(&key(&"j".repeat(253)), "0123456789abcdef").len(), 217);
}

#[tokio::test(start_paused = true)]
async fn repeats_wait_and_are_counted() {
    let (now, began) = (Timestamp::UNIX_EPOCH, Instant::now());
    let mut shelf = Shelf::default();
    let put = |shelf: &mut Shelf, at| {
        let draft = Draft::of(&event("Refused", "m"), 1);
        assert!(shelf.put(&key("j"), "u", draft, now, at));
    };
    put(&mut shelf, began);
    put(&mut shelf, began);
    let (due, _) = shelf.take_due(began);
    assert_eq!(due.len(), 1);
    let (id, sent) = &due[0];
    assert_eq!(sent.draft.count, 2);
    shelf.written(id, sent, Ok(2), began);
    put(&mut shelf, began + Duration::from_secs(1));
    assert!(shelf.take_due(began + Duration::from_secs(2)).0.is_empty());
    let (due, _) = shelf.take_due(began + EVERY);
    assert_eq!((due[0].1.draft.count, due[0].1.stored), (1, Some(2)));
    shelf.written(id, &due[0].1, Ok(3), began + EVERY);
    shelf.take_due(began + EVERY * 2);
    assert!(shelf.entries.is_empty(), "nothing is kept for long");
}

#[tokio::test(start_paused = true)]
async fn events_of_a_job_are_limited() {
    let now = Instant::now();
    let mut shelf = Shelf::default();
    let mut put = |job: &str, at: usize| {
        let draft = Draft::of(&event("Refused", &format!("{at}")), 1);
        shelf.put(&key(job), "u", draft, Timestamp::UNIX_EPOCH, now)
    };
    assert!((0..JOB_MOST).all(|at| put("loud", at)));
    assert!(!put("loud", JOB_MOST), "one more is dropped");
    assert!(put("loud", 0), "a repeated one is counted");
    assert!(put("quiet", 0), "another job is not concerned");
    shelf.take_due(now);
    shelf.take_due(now + EVERY);
    let draft = Draft::of(&event("Refused", "later"), 1);
    assert!(shelf.put(&key("loud"), "u", draft, Timestamp::UNIX_EPOCH, now + EVERY));
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_tried_a_few_times() {
    type Failing = fn() -> CallError;
    let refused = || {
        let status = serde_json::json!({"status": "Failure", "code": 403, "reason": "Forbidden"});
        let status = serde_json::from_value(status).unwrap();
        CallError::Kube(Answer(kube::Error::Api(Box::new(status))))
    };
    let cases: [(&str, Failing, u32); 3] = [
        ("late", || CallError::Late, TRIES),
        ("refused", refused, 1),
        ("deposed", || CallError::Deposed, 1),
    ];
    for (what, error, want) in cases {
        let mut at = Instant::now();
        let mut shelf = Shelf::default();
        let draft = Draft::of(&event("Refused", "m"), 1);
        assert!(shelf.put(&key("j"), "u", draft, Timestamp::UNIX_EPOCH, at));
        let mut tries = 0;
        while let Some((id, sent)) = shelf.take_due(at).0.pop() {
            assert_eq!(sent.draft.count, 1, "{what}");
            tries += 1;
            shelf.written(&id, &sent, Err(error()), at);
            at += EVERY;
        }
        assert_eq!(tries, want, "{what}");
        assert!(shelf.entries.is_empty(), "{what}");
    }
}
