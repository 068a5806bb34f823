use std::fs;

use trainyard_core::checkpoint::{Policy, ResumedFrom};

use super::*;
use crate::save::{Image, Limits, Session, State};

fn session(root: &Path, attempt: u32) -> Session {
    let files = Files::open(root).unwrap();
    let clock = SystemClock::start();
    let store = Store::create(Arc::new(files), Arc::clone(&clock), Some("run-1"), 1).unwrap();
    let id = store.fence(Some(attempt), "test", |view| {
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
        source: Arc::new(vec![1_u8; 5_000]),
        data: 8,
    };
    let state = State {
        images: vec![image],
        snapshot: 0.25,
        ..State::default()
    };
    session.save(step, &state).unwrap();
}

fn newest(root: &Path, moment: Moment) -> Option<u64> {
    let seen = look(root, moment, &mut None).unwrap();
    seen.newest.map(|newest| newest.step)
}

#[test]
fn store_is_seen_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let missing = look(&root, Moment::Start(1), &mut None).unwrap();
    assert_eq!(missing, StoreSeen::empty());
    fs::create_dir(&root).unwrap();
    assert_eq!(newest(&root, Moment::Running), None, "an empty folder");
    let first = session(&root, 1);
    save(&first, 10);
    save(&first, 20);
    let mut known = None;
    let seen = look(&root, Moment::Running, &mut known).unwrap();
    let step = seen.newest.unwrap();
    assert_eq!((step.step, step.attempt, step.bytes), (20, 1, 5_000));
    assert_eq!(step.snapshot_ms, Some(250));
    assert!(step.saved_at.is_some());
    assert_eq!(seen.saves.len(), 2);
    assert_eq!(seen.attempt.unwrap().from, ResumedFrom::Nothing);

    let second = session(&root, 2);
    let late = first.save(30, &State::default());
    assert!(late.unwrap_err().is_fenced());
    let seen = look(&root, Moment::Running, &mut known).unwrap();
    assert_eq!(seen.attempt.unwrap().from, ResumedFrom::Step(20));
    assert_eq!(seen.newest.unwrap().step, 20);
    drop(second);

    // A truncated file is found when an attempt starts, and the step before is taken.
    let data = root.join(first.folder(20).path()).join("00000.safetensors");
    fs::write(data, "short").unwrap();
    assert_eq!(newest(&root, Moment::Start(3)), Some(10));

    fs::write(root.join("trainyard.json"), "{").unwrap();
    let error = look(&root, Moment::Running, &mut None).unwrap_err();
    assert!(words(&error).contains("`trainyard.json`"), "{error}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(look(&file, Moment::Running, &mut None).is_err());
}

#[test]
fn two_deaths_while_restoring_give_the_step_before() {
    let folder = tempfile::tempdir().unwrap();
    let first = session(folder.path(), 1);
    save(&first, 10);
    save(&first, 20);
    drop(session(folder.path(), 2));
    assert_eq!(newest(folder.path(), Moment::Start(3)), Some(20));
    drop(session(folder.path(), 3));
    assert_eq!(
        newest(folder.path(), Moment::Running),
        Some(20),
        "attempt 3 may still restore it"
    );
    assert_eq!(newest(folder.path(), Moment::Start(4)), Some(10));
}

/// A watcher whose looks end when the test lets them, and the end that is notified.
fn held() -> (Watcher, Sender<()>, Receiver<()>) {
    let (let_go, held) = channel::<()>();
    let (bell, rung) = channel();
    let watcher = Watcher::with(
        move |_| {
            held.recv()
                .map(|()| StoreSeen::empty())
                .map_err(|error| error.to_string())
        },
        move || {
            bell.send(()).ok();
        },
    );
    (watcher.unwrap(), let_go, rung)
}

#[test]
fn hanging_look_is_late_once_and_keeps_nobody() {
    let (mut watcher, let_go, rung) = held();
    let start = Instant::now();
    watcher.ask(Moment::Start(1), start);
    assert_eq!(watcher.take(start), None);
    assert_eq!(watcher.due(), Some(start + LIMIT));
    let looked = watcher.take(start + LIMIT).unwrap();
    assert_eq!(looked.moment, Moment::Start(1));
    assert_eq!(
        looked.store.unwrap_err(),
        "the store did not respond within 5 s"
    );
    assert_eq!(
        (watcher.take(start + LIMIT * 9), watcher.due()),
        (None, None)
    );
    // The next attempt does not wait, and no look is begun meanwhile.
    let later = start + LIMIT * 10;
    watcher.ask(Moment::Start(2), later);
    assert_eq!(watcher.due(), Some(later));
    assert_eq!(watcher.take(later), Some(late(Moment::Start(2))));
    assert_eq!((watcher.take(later), watcher.due()), (None, None));
    // It responds again: what it saw is no look of a start any more, and looks go on.
    let_go.send(()).unwrap();
    rung.recv().unwrap();
    let now = later + LIMIT * 2;
    let looked = watcher.take(now).unwrap();
    assert_eq!(
        (looked.moment, looked.store.is_ok()),
        (Moment::Running, true)
    );
    assert!(watcher.due().unwrap() >= now + EVERY);
}

#[test]
fn start_is_looked_at_after_the_look_in_work() {
    let (mut watcher, let_go, rung) = held();
    let now = Instant::now();
    watcher.ask(Moment::Running, now);
    watcher.ask(Moment::Start(2), now);
    for want in [Moment::Running, Moment::Start(2)] {
        let_go.send(()).unwrap();
        rung.recv().unwrap();
        assert_eq!(watcher.take(now).unwrap().moment, want);
    }
    assert_eq!(watcher.take(now), None);
    let next = watcher.due().unwrap();
    assert_eq!(watcher.take(next), None, "it begins one");
    let_go.send(()).unwrap();
    rung.recv().unwrap();
    assert_eq!(watcher.take(next).unwrap().moment, Moment::Running);
}
