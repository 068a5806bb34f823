use std::sync::Arc;

use super::*;
use crate::{
    clock::ManualClock,
    faulty::{Fault, FaultyDisk},
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

fn keep() -> Policy {
    Policy {
        last: 2,
        ..Policy::default()
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
        keep: Policy {
            last: 9,
            ..Policy::default()
        },
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
    let first = begin(&store, &Claimant::new(None, "a"), &wanted(), &none, &keep()).unwrap();
    assert_eq!(
        (first.id, step_of(&first)),
        (AttemptId::first(0), None::<u64>)
    );
    save(&store, first.id, 10);
    save(&store, first.id, 20);
    let second = begin(&store, &Claimant::new(None, "b"), &wanted(), &none, &keep()).unwrap();
    assert_eq!(
        (second.id, step_of(&second)),
        (AttemptId::first(1), Some(20))
    );
    // The same holder continues with its record.
    let again = begin(&store, &Claimant::new(None, "b"), &wanted(), &none, &keep()).unwrap();
    assert_eq!(again, second);
    // A step that cannot be read is passed over, with the reason.
    let newest = second.resumes_from.unwrap().folder;
    let mut unreadable = BTreeMap::from([(newest, "damaged".to_owned())]);
    let third = begin(
        &store,
        &Claimant::new(None, "c"),
        &wanted(),
        &unreadable,
        &keep(),
    )
    .unwrap();
    assert_eq!(step_of(&third), Some(10));
    assert!(
        third.passed[0].to_string().contains("damaged"),
        "{:?}",
        third.passed
    );
    // Where none is left no record is published, so nothing is hidden from the next attempt.
    let oldest = third.resumes_from.unwrap().folder;
    unreadable.insert(oldest, "truncated".to_owned());
    let error = begin(
        &store,
        &Claimant::new(None, "d"),
        &wanted(),
        &unreadable,
        &keep(),
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no step can be restored: step 10"),
        "{error}"
    );
    let fourth = begin(&store, &Claimant::new(None, "e"), &wanted(), &none, &keep()).unwrap();
    assert_eq!((fourth.id.attempt, step_of(&fourth)), (3, Some(10)));
}

#[test]
fn numbered_attempt_counts_the_newest_death() {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    let none = BTreeMap::new();
    let at = |number: u32, holder: &str| {
        begin(
            &store,
            &Claimant::new(Some(number), holder),
            &wanted(),
            &none,
            &keep(),
        )
    };
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
    let first = begin(
        &store,
        &Claimant::new(None, "a"),
        &wanted(),
        &BTreeMap::new(),
        &keep(),
    )
    .unwrap();
    for step in [10, 20, 30] {
        save(&store, first.id, step);
    }
    let looked = [None, Some(10), Some(20), Some(15)].map(number);
    assert_eq!(looked, [Some(30), Some(10), Some(20), None]);
    let loaded = find(&store, Some(10), &wanted()).unwrap().unwrap().folder;
    let later = later_than(&store, &loaded).unwrap();
    let steps: Vec<u64> = later.keys().map(|folder| folder.step).collect();
    assert_eq!(steps, [20, 30]);
    let second = begin(
        &store,
        &Claimant::new(None, "b"),
        &wanted(),
        &later,
        &keep(),
    )
    .unwrap();
    assert_eq!(second.resumes_from.unwrap().folder, loaded);
}

#[test]
fn other_ranks_learn_the_pair() {
    let disk = FaultyDisk::new(1);
    let (store, other) = (open(&disk, 1), open(&disk, 2));
    let clock = ManualClock::start();
    let wait = Duration::from_secs(5);
    let early = join(&other, &*clock, &Claimant::new(Some(3), "launch"), wait).unwrap_err();
    assert_eq!(
        early.to_string(),
        "no record of attempt 3 after 5 s: rank 0 has not begun"
    );
    let none = BTreeMap::new();
    let begun = begin(
        &store,
        &Claimant::new(Some(3), "launch/x"),
        &wanted(),
        &none,
        &keep(),
    )
    .unwrap();
    assert_eq!(
        join(&other, &*clock, &Claimant::new(Some(3), "launch"), wait).unwrap(),
        begun
    );
    assert!(join(&other, &*clock, &Claimant::new(Some(3), "elsewhere"), wait).is_err());
    let restart = begin(
        &store,
        &Claimant::new(Some(3), "launch/y"),
        &wanted(),
        &none,
        &keep(),
    )
    .unwrap();
    assert_eq!(restart.id.restart, 1);
    assert_eq!(
        join(&other, &*clock, &Claimant::new(Some(3), "launch"), wait).unwrap(),
        restart
    );
    begin(
        &store,
        &Claimant::new(Some(4), "launch/z"),
        &wanted(),
        &none,
        &keep(),
    )
    .unwrap();
    let late = join(&other, &*clock, &Claimant::new(Some(3), "launch"), wait).unwrap_err();
    assert!(late.to_string().starts_with("fenced:"), "{late}");
}

#[test]
fn job_that_is_created_again_goes_on() {
    let disk = FaultyDisk::new(1);
    let (store, other) = (open(&disk, 1), open(&disk, 2));
    let clock = ManualClock::start();
    let none = BTreeMap::new();
    let wait = Duration::from_secs(1);
    let of = |job: &str, attempt: u32, holder: &str| Claimant {
        job: Some(job.to_owned()),
        ..Claimant::new(Some(attempt), holder)
    };
    for attempt in 1..=2 {
        let claimant = of("before", attempt, &format!("launch/{attempt}"));
        let begun = begin(&store, &claimant, &wanted(), &none, &keep()).unwrap();
        save(&store, begun.id, u64::from(attempt) * 10);
    }
    let claimant = of("again", 1, "launch/x");
    let begun = begin(&store, &claimant, &wanted(), &none, &keep()).unwrap();
    assert_eq!((begun.id.attempt, step_of(&begun)), (3, Some(20)));
    let joined = join(&other, &*clock, &of("again", 1, "launch"), wait).unwrap();
    assert_eq!(
        (joined.id, joined.resumes_from),
        (begun.id, begun.resumes_from)
    );
    // A process of the job before that still runs.
    let late = begin(
        &store,
        &of("before", 3, "launch/y"),
        &wanted(),
        &none,
        &keep(),
    );
    assert!(late.unwrap_err().to_string().starts_with("fenced:"));
}

#[test]
fn commit_that_cannot_be_read_is_not_ignored() {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    let none = BTreeMap::new();
    let first = begin(&store, &Claimant::new(None, "a"), &wanted(), &none, &keep()).unwrap();
    save(&store, first.id, 10);
    save(&store, first.id, 20);
    let commit = |step: u64| {
        let folders = store.view().unwrap().folders;
        let folder = folders
            .iter()
            .filter_map(trainyard_core::checkpoint::FolderSeen::name)
            .find(|folder| folder.step == step)
            .unwrap();
        within(&folder.path(), "COMMIT.json")
    };
    disk.flip(&commit(20), 40).unwrap();
    let second = begin(
        &open(&disk.copy(1), 2),
        &Claimant::new(None, "b"),
        &wanted(),
        &none,
        &keep(),
    )
    .unwrap();
    assert_eq!(step_of(&second), Some(10));
    let why = second.passed[0].to_string();
    assert!(
        why.starts_with("step 20 (`") && why.contains("its commit cannot be read: `steps/"),
        "{why}"
    );
    disk.flip(&commit(10), 40).unwrap();
    let error = begin(&store, &Claimant::new(None, "c"), &wanted(), &none, &keep()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no step can be restored: step 20 (`"),
        "{error}"
    );
    // Nothing is hidden: once the error is gone, the newest step is restored.
    disk.flip(&commit(20), 40).unwrap();
    let third = begin(&store, &Claimant::new(None, "d"), &wanted(), &none, &keep()).unwrap();
    assert_eq!(step_of(&third), Some(20));
}

#[test]
fn read_error_never_starts_at_step_0() {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    let none = BTreeMap::new();
    let first = begin(&store, &Claimant::new(None, "a"), &wanted(), &none, &keep()).unwrap();
    save(&store, first.id, 10);
    let operations = {
        let copy = disk.copy(1);
        let client = copy.client();
        let storage = Arc::new(client.clone());
        let store = Store::create(storage, ManualClock::start(), Some("run"), 2).unwrap();
        begin(&store, &Claimant::new(None, "b"), &wanted(), &none, &keep()).unwrap();
        client.operations()
    };
    let mut refused = 0;
    for at in 0..operations {
        let copy = disk.copy(1);
        let storage = Arc::new(copy.client_with(&[(at, Fault::Io)]));
        let begun = Store::create(storage, ManualClock::start(), Some("run"), 2)
            .map_err(BeginError::from)
            .and_then(|store| begin(&store, &Claimant::new(None, "b"), &wanted(), &none, &keep()));
        match begun {
            Ok(begun) => assert_eq!(step_of(&begun), Some(10), "operation {at}"),
            Err(_) => refused += 1,
        }
        let next = begin(
            &open(&copy, 3),
            &Claimant::new(None, "c"),
            &wanted(),
            &none,
            &keep(),
        )
        .unwrap();
        assert_eq!(step_of(&next), Some(10), "operation {at}");
    }
    assert!(refused > 5, "{refused} of {operations}");
}

#[test]
fn attempt_begins_on_a_full_disk() {
    let disk = FaultyDisk::new(1);
    let store = open(&disk, 1);
    let none = BTreeMap::new();
    let first = begin(&store, &Claimant::new(None, "a"), &wanted(), &none, &keep()).unwrap();
    for step in 1..=6 {
        save(&store, first.id, step);
    }
    disk.limit(Some(1));
    let full = begin(&store, &Claimant::new(None, "b"), &wanted(), &none, &keep()).unwrap_err();
    assert!(
        matches!(&full, BeginError::Store(error) if error.is_full()),
        "{full}"
    );
    assert_eq!(
        store.view().unwrap().folders.len(),
        2,
        "what could be removed was"
    );
    disk.limit(None);
    for step in 7..=10 {
        save(&store, first.id, step);
    }
    // Room for the record once steps are removed.
    let used = store.whole_view().unwrap();
    let bytes: u64 = used.folders.iter().map(|folder| folder.bytes).sum();
    disk.limit(Some(bytes));
    let second = begin(&store, &Claimant::new(None, "b"), &wanted(), &none, &keep()).unwrap();
    assert_eq!(step_of(&second), Some(10));
}
