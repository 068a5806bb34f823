use std::sync::Arc;

use super::*;
use crate::{
    clock::ManualClock,
    faulty::FaultyDisk,
    save::{Limits, Session, State},
};

fn open(disk: &FaultyDisk, seed: u64) -> Arc<Store> {
    let storage = Arc::new(disk.client());
    Arc::new(Store::create(storage, ManualClock::start(), Some("run"), seed).unwrap())
}

fn wanted() -> Wanted {
    Wanted {
        world: 1,
        reshard: true,
        ..Wanted::default()
    }
}

fn save(store: &Arc<Store>, id: AttemptId, step: u64) {
    let session = Session {
        store: Arc::clone(store),
        clock: ManualClock::start(),
        id,
        rank: 0,
        world: 1,
        limits: Limits::default(),
        keep: trainyard_core::checkpoint::Policy::default(),
    };
    session.save(step, &State::default()).unwrap();
}

fn step_of(begun: &Begun) -> Option<u64> {
    begun.resumes_from.as_ref().map(|from| from.folder.step)
}

#[test]
fn each_start_resumes_from_the_newest_step() {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    let none = BTreeMap::new();
    let first = begin(&store, None, "a", &wanted(), &none).unwrap();
    assert_eq!(
        (first.id, step_of(&first)),
        (AttemptId::first(0), None::<u64>)
    );
    save(&store, first.id, 10);
    save(&store, first.id, 20);
    let second = begin(&store, None, "b", &wanted(), &none).unwrap();
    assert_eq!(
        (second.id, step_of(&second)),
        (AttemptId::first(1), Some(20))
    );
    // The same holder continues with its record.
    let again = begin(&store, None, "b", &wanted(), &none).unwrap();
    assert_eq!(again, second);
    // A step that cannot be read is passed over, with the reason.
    let newest = second.resumes_from.unwrap().folder;
    let mut unreadable = BTreeMap::from([(newest, "damaged".to_owned())]);
    let third = begin(&store, None, "c", &wanted(), &unreadable).unwrap();
    assert_eq!(step_of(&third), Some(10));
    assert!(
        third.passed[0].to_string().contains("damaged"),
        "{:?}",
        third.passed
    );
    // Where none is left no record is published, so nothing is hidden from the next attempt.
    let oldest = third.resumes_from.unwrap().folder;
    unreadable.insert(oldest, "truncated".to_owned());
    let error = begin(&store, None, "d", &wanted(), &unreadable).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no step can be restored: step 10"),
        "{error}"
    );
    let fourth = begin(&store, None, "e", &wanted(), &none).unwrap();
    assert_eq!((fourth.id.attempt, step_of(&fourth)), (3, Some(10)));
}

#[test]
fn numbered_attempt_counts_the_newest_death() {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    let none = BTreeMap::new();
    let at = |number: u32, holder: &str| begin(&store, Some(number), holder, &wanted(), &none);
    let first = at(1, "a").unwrap();
    save(&store, first.id, 10);
    save(&store, first.id, 20);
    assert_eq!(step_of(&at(2, "b").unwrap()), Some(20));
    assert_eq!(step_of(&at(3, "c").unwrap()), Some(20));
    // Both have ended, and neither has restored it.
    let fourth = at(4, "d").unwrap();
    assert_eq!(step_of(&fourth), Some(10));
    let why = fourth.passed[0].to_string();
    assert!(
        why.contains("2 attempts ended while they restored it"),
        "{why}"
    );
}

#[test]
fn found_steps_and_later_ones() {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    let number = |step| {
        let found = find(&store, step, &wanted()).unwrap();
        found.map(|found| found.folder.step)
    };
    assert_eq!(number(None), None);
    let first = begin(&store, None, "a", &wanted(), &BTreeMap::new()).unwrap();
    for step in [10, 20, 30] {
        save(&store, first.id, step);
    }
    let looked = [None, Some(10), Some(20), Some(15)].map(number);
    assert_eq!(looked, [Some(30), Some(10), Some(20), None]);
    let loaded = find(&store, Some(10), &wanted()).unwrap().unwrap().folder;
    let later = later_than(&store, &loaded).unwrap();
    let steps: Vec<u64> = later.keys().map(|folder| folder.step).collect();
    assert_eq!(steps, [20, 30]);
    let second = begin(&store, None, "b", &wanted(), &later).unwrap();
    assert_eq!(second.resumes_from.unwrap().folder, loaded);
}

#[test]
fn other_ranks_learn_the_pair() {
    let disk = FaultyDisk::new(1);
    let (store, other) = (open(&disk, 1), open(&disk, 2));
    let clock = ManualClock::start();
    let wait = Duration::from_secs(5);
    let early = join(&other, &*clock, 3, "launch", wait).unwrap_err();
    assert_eq!(
        early.to_string(),
        "no record of attempt 3 after 5 s: rank 0 has not begun"
    );
    let none = BTreeMap::new();
    let begun = begin(&store, Some(3), "launch/x", &wanted(), &none).unwrap();
    assert_eq!(join(&other, &*clock, 3, "launch", wait).unwrap(), begun);
    assert!(join(&other, &*clock, 3, "elsewhere", wait).is_err());
    let restart = begin(&store, Some(3), "launch/y", &wanted(), &none).unwrap();
    assert_eq!(restart.id.restart, 1);
    assert_eq!(join(&other, &*clock, 3, "launch", wait).unwrap(), restart);
    begin(&store, Some(4), "launch/z", &wanted(), &none).unwrap();
    let late = join(&other, &*clock, 3, "launch", wait).unwrap_err();
    assert!(late.to_string().starts_with("fenced:"), "{late}");
}
