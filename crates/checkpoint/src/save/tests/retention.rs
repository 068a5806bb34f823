//! Retention runs behind the save and beside the next one, and a storage that hangs in it stops neither.

use std::thread;

use super::*;

/// A disk with a committed step, a client that hangs in the first operation of retention after the next save, and the number of that operation.
fn hangs_in_retention() -> (FaultyDisk, Faulty, u64) {
    let disk = FaultyDisk::new(1);
    let before = session(&disk.client(), 1, 0, 1).unwrap();
    before.save(1, &state(1, 0, 2000)).unwrap();
    let tried = disk.copy(1).client();
    let rank = session(&tried, 1, 0, 1).unwrap();
    rank.commit_step(2, &state(2, 0, 2000)).unwrap();
    let at = tried.operations();
    let client = disk.client_with(&[(at, Fault::Hang)]);
    (disk, client, at)
}

/// Waits until retention has begun that operation, so that none of the next save is the one that hangs.
fn wait_until_it_hangs(client: &Faulty, at: u64) {
    while client.operations() <= at {
        thread::yield_now();
    }
}

#[test]
fn retention_that_hangs_is_one_thread() {
    let (disk, client, at) = hangs_in_retention();
    let rank = session(&client, 1, 0, 1).unwrap();
    let saver = Saver::new(rank.clone());
    for step in 2..=6 {
        // Each save has a clock of its own, as one that can be abandoned.
        let (clock, _) = crate::abandon::abandonable(Arc::clone(&rank.clock));
        let own = Arc::new(Session {
            clock,
            ..rank.clone()
        });
        let Started::Save(save) = saver.save_by(own, step, state(step, 0, 2000)) else {
            panic!("nothing is in flight");
        };
        save.committed(Duration::MAX).unwrap().unwrap();
        wait_until_it_hangs(&client, at);
    }
    assert!(!saver.settle(Duration::ZERO), "the first one still hangs");
    assert_eq!(rank.store.view().unwrap().folders.len(), 6);
    disk.release();
    assert!(saver.settle(Duration::from_mins(1)));
    let Started::Save(save) = saver.save(7, state(7, 0, 2000)) else {
        panic!("nothing is in flight");
    };
    save.committed(Duration::MAX).unwrap().unwrap();
    assert!(saver.settle(Duration::from_mins(1)));
    assert_eq!(saver.counts().removed, 5);
}

#[test]
fn save_ends_before_retention() {
    let (disk, client, at) = hangs_in_retention();
    let saver = Saver::new(session(&client, 1, 0, 1).unwrap());
    for step in [2, 3] {
        let Started::Save(save) = saver.save(step, state(step, 0, 2000)) else {
            panic!("retention of the step before holds the slot");
        };
        save.committed(Duration::MAX).unwrap().unwrap();
        assert_eq!(saver.close(Duration::MAX), Closed::Finished);
        wait_until_it_hangs(&client, at);
    }
    assert_eq!(saver.counts().removed, 0);
    disk.release();
    assert_eq!(load(&disk, 1).unwrap().0, 3);
}

#[test]
fn commit_during_retention_is_not_overlooked() {
    let disk = FaultyDisk::new(1);
    let before = session(&disk.client(), 1, 0, 1).unwrap();
    before.save(1, &state(1, 0, 2000)).unwrap();
    let tried = disk.copy(1).client();
    let rank = session(&tried, 1, 0, 1).unwrap();
    rank.save(2, &state(2, 0, 2000)).unwrap();
    // The last operation of retention: it has looked, and step 3 is not among what it saw.
    let last = tried.operations() - 1;
    let client = disk.client_with(&[(last, Fault::Hang)]);
    let saver = Saver::new(session(&client, 1, 0, 1).unwrap());
    for step in [2, 3] {
        let Started::Save(save) = saver.save(step, state(step, 0, 2000)) else {
            panic!("nothing is in flight");
        };
        save.committed(Duration::MAX).unwrap().unwrap();
        wait_until_it_hangs(&client, last);
    }
    disk.release();
    assert!(saver.settle(Duration::from_mins(1)));
    assert_eq!(saver.counts().removed, 1, "step 1");
}
