//! What is deleted, and what stays.

use super::*;
use crate::{Pruned, Retention};

const DAY: i64 = 24 * HOUR;

fn counts(place: &Place) -> [i64; 6] {
    ["run", "attempt", "span", "excerpt", "run_day", "phase_day"]
        .map(|table| number(place, &format!("SELECT COUNT(*) FROM {table}")))
}

#[test]
fn age_decides_what_is_kept() {
    let place = Place::new();
    let mut store = place.open();
    write_whole(&mut store, "a");
    // A live run as old as it.
    store
        .write(&run("live"), &two_attempts()[..6], START)
        .unwrap();
    let ended = START + 30 * HOUR;
    let retention = Retention::default();
    let before = counts(&place);
    assert_eq!(
        store.prune(&retention, ended + 20 * DAY).unwrap().excerpts,
        0
    );
    assert_eq!(counts(&place), before);
    let pruned = store.prune(&retention, ended + 91 * DAY).unwrap();
    assert_eq!((pruned.runs, pruned.details), (0, 1));
    assert_eq!(
        number(
            &place,
            "SELECT COUNT(*) FROM span JOIN run ON run.id = span.run WHERE uid = 'a'"
        ),
        0
    );
    let [_, attempts, _, _, days, sums] = counts(&place);
    assert_eq!([attempts, days, sums], [before[1], before[4], before[5]]);
    sums_hold(&place);
    // It is not written again, and not pruned again.
    store.write(&run("a"), &two_attempts(), START).unwrap();
    assert_eq!(
        store.prune(&retention, ended + 92 * DAY).unwrap().details,
        0
    );
    sums_hold(&place);
    let pruned = store.prune(&retention, ended + 401 * DAY).unwrap();
    assert_eq!(pruned.runs, 1);
    assert_eq!(
        number(&place, "SELECT COUNT(*) FROM run WHERE uid = 'live'"),
        1
    );
    assert_eq!(number(&place, "SELECT COUNT(*) FROM run"), 1);
    sums_hold(&place);
}

#[test]
fn the_cap_takes_the_oldest_first() {
    let place = Place::new();
    let mut store = place.open();
    let mut whats = vec![(START, trainyard_core::chronicle::What::Began)];
    let phase = trainyard_core::ledger::Phase::Training;
    whats.extend((0..3_000).map(|at| span(START + at, START + at + 1, 1, phase)));
    let facts = facts(whats);
    for at in 0..8 {
        let run = run(&format!("run-{at}"));
        store.write(&run, &facts, START).unwrap();
        store
            .end(&run, &succeeded(START + 3_000 + at), START)
            .unwrap();
    }
    store.write(&run("live"), &facts, START).unwrap();
    let full = store.bytes().unwrap();
    let retention = Retention {
        cap_bytes: full / 2,
        ..Retention::default()
    };
    let pruned = store.prune(&retention, START + DAY).unwrap();
    assert!(pruned.bytes_after <= full / 2, "{pruned:?}");
    assert!(
        pruned.runs == 0 && pruned.details > 0 && pruned.details < 8,
        "{pruned:?}"
    );
    let kept = "SELECT MIN(uid) FROM run WHERE detail = 1 AND uid <> 'live'";
    let connection = Connection::open(&place.path).unwrap();
    let first: String = connection.query_row(kept, [], |row| row.get(0)).unwrap();
    assert_eq!(
        first,
        format!("run-{}", pruned.details),
        "the oldest lost their detail"
    );
    assert_eq!(
        store.cap_cutoff(&retention).unwrap(),
        i64::MIN,
        "older runs fit once more detail is deleted"
    );
    sums_hold(&place);
    // A store that cannot be small enough keeps what lives.
    let least = Retention {
        cap_bytes: 1,
        ..retention
    };
    let Pruned { runs, .. } = store.prune(&least, START + DAY).unwrap();
    assert_eq!(runs, 8);
    assert_eq!(
        store.cap_cutoff(&least).unwrap(),
        i64::MAX,
        "nor is one written"
    );
    let live = "SELECT COUNT(*) FROM span JOIN run ON run.id = span.run WHERE uid = 'live'";
    assert_eq!(number(&place, live), 3_000);
    sums_hold(&place);
    // What was freed is the disk's again.
    drop(connection);
    drop(store);
    let file = std::fs::metadata(&place.path).unwrap().len();
    assert!(file < full / 4, "{file} of {full}");
}

#[test]
fn a_run_that_the_cap_deleted_is_not_written_again() {
    let place = Place::new();
    let mut store = place.open();
    for at in 0..400 {
        let run = run(&format!("run-{at}"));
        let end = succeeded(START + at);
        store.write(&run, &two_attempts()[..1], START).unwrap();
        store.end(&run, &end, START).unwrap();
    }
    let retention = Retention {
        cap_bytes: store.bytes().unwrap() * 3 / 4,
        ..Retention::default()
    };
    assert_eq!(
        store.cap_cutoff(&Retention::default()).unwrap(),
        i64::MIN,
        "there is room"
    );
    let pruned = store.prune(&retention, START + DAY).unwrap();
    let deleted = i64::try_from(pruned.runs).unwrap();
    assert!((1..400).contains(&deleted), "{pruned:?}");
    let cutoff = store.cap_cutoff(&retention).unwrap();
    assert_eq!(cutoff, START + deleted, "the oldest that is left");
}
