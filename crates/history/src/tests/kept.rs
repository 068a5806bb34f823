//! Runs as their history has them.

use trainyard_core::{
    chronicle::{Booked, Chronicle, What},
    ledger::{Phase, PhaseMillis},
};

use super::*;
use crate::{Filter, Kept, testing::facts};

fn kept(place: &Place) -> Vec<Kept> {
    let filter = Filter {
        limit: 100,
        ..Filter::default()
    };
    let mut all = Vec::new();
    let more = place
        .reader()
        .each_kept(&filter, |_| true, |it| all.push(it));
    assert_eq!(more.unwrap(), 0);
    all
}

fn totals(chronicle: &Chronicle, until: i64) -> PhaseMillis {
    chronicle.totals(jiff::Timestamp::from_millisecond(until).unwrap())
}

#[test]
fn a_run_is_what_was_written() {
    let place = Place::new();
    write_whole(&mut place.open(), "vision");
    let [run] = &kept(&place)[..] else {
        panic!("one run")
    };
    let written = Chronicle::of_facts(&two_attempts());
    assert_eq!(run.until, START + 30 * HOUR);
    assert_eq!(run.chronicle.stretches, written.stretches);
    assert_eq!(run.chronicle.ended, written.ended);
    let failed = |of: &Chronicle| {
        let (at, headline) = of.headlines.front().unwrap();
        (
            *at,
            headline.attempt,
            headline.account,
            headline.message.clone(),
        )
    };
    assert_eq!(failed(&run.chronicle), failed(&written));
}

#[test]
fn pruned_run_keeps_its_sums() {
    let place = Place::new();
    let mut store = place.open();
    write_whole(&mut store, "vision");
    let before = totals(&kept(&place)[0].chronicle, START + 40 * HOUR);
    let retention = crate::Retention {
        detail_days: 1,
        excerpt_days: 1,
        ..crate::Retention::default()
    };
    let pruned = store.prune(&retention, START + 30 * 24 * HOUR).unwrap();
    assert_eq!((pruned.details, pruned.runs), (1, 0));
    let run = &kept(&place)[0];
    assert_eq!(totals(&run.chronicle, START + 40 * HOUR), before);
    assert_eq!(
        run.chronicle.not_observed_millis(),
        before.values().sum::<u64>()
    );
    assert_eq!(run.chronicle.headlines.len(), 1, "attempts stay");
}

#[test]
fn merged_time_and_an_open_phase() {
    let place = Place::new();
    let part = |phase, hours: u64| Booked {
        attempt: Some(1),
        phase,
        millis: hours * 3_600_000,
    };
    let booked = vec![part(Phase::Training, 2), part(Phase::Saving, 1)];
    let (from, middle, to) = (START, START + 3 * HOUR, START + 6 * HOUR);
    let whats = vec![
        (from, What::Began),
        (
            from,
            What::Merged {
                from,
                to: middle,
                booked: booked.clone(),
            },
        ),
        (
            middle,
            What::Unseen {
                from: middle,
                to,
                booked,
            },
        ),
        (
            to,
            What::Phase {
                attempt: 1,
                phase: Phase::Stalled,
            },
        ),
    ];
    let facts = facts(whats);
    place.open().write(&run("live"), &facts, to + HOUR).unwrap();
    let run = &kept(&place)[0];
    let written = Chronicle::of_facts(&facts);
    assert_eq!(run.chronicle.stretches, written.stretches);
    assert_eq!((run.chronicle.open, run.until), (written.open, to + HOUR));
    assert_eq!(
        totals(&run.chronicle, run.until)[&Phase::Stalled],
        3_600_000
    );
}
