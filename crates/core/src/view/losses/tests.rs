use super::*;
use crate::{
    chronicle::{Fact, Headline, Save, What},
    ledger::Ledger,
};

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

const MINUTE: i64 = 60_000;

fn chronicle(spans: &[(u32, Phase, i64)], more: &[(i64, What)]) -> Chronicle {
    let mut whats = vec![(0, What::Began)];
    let mut end = 0;
    for (attempt, phase, minutes) in spans {
        let (from, to) = (end, end + minutes * MINUTE);
        whats.push((
            from,
            What::Span {
                from,
                to,
                attempt: *attempt,
                phase: *phase,
            },
        ));
        end = to;
    }
    whats.extend(more.iter().cloned());
    let facts: Vec<Fact> = (0..)
        .zip(whats)
        .map(|(seq, (at, what))| Fact {
            version: 1,
            seq,
            at,
            what,
        })
        .collect();
    Chronicle::of_facts(&facts)
}

fn failed(at: i64) -> (i64, What) {
    let headline = Headline {
        attempt: 1,
        pod: "p".to_owned(),
        slot: None,
        account: None,
        message: String::new(),
        step: None,
    };
    (at, What::Failed(headline))
}

fn saved(at: i64, stall_millis: u64) -> (i64, What) {
    let save = Save {
        step: 1,
        attempt: Some(1),
        bytes: 1,
        stall_millis: Some(stall_millis),
        write_millis: None,
    };
    (at, What::Saved(save))
}

#[test]
fn three_biggest_losses_with_what_helps() {
    let spans = [
        (1, Phase::Queued, 30),
        (1, Phase::Starting, 20),
        (1, Phase::Training, 500),
        (2, Phase::Restarting, 10),
        (2, Phase::Starting, 5),
        (2, Phase::Redoing, 100),
        (2, Phase::Training, 335),
    ];
    let chronicle = chronicle(
        &spans,
        &[saved(1, 10_000), saved(2, 10_000), failed(3), failed(4)],
    );
    let losses = losses(&chronicle, 8, time(1_000 * MINUTE));
    assert_eq!(losses.wall, 1_000 * 60_000);
    assert_eq!(losses.ettr.all, Some(0.835));
    let seated = losses.ettr.since_seated.unwrap();
    assert!((seated - 835.0 / 970.0).abs() < 1e-12);
    assert_eq!(losses.ettr.last_hour, Some(1.0));
    assert_eq!(losses.ettr.last_day, None, "it is younger");
    let rows: Vec<(Phase, Option<u32>, u64)> = losses
        .losses
        .iter()
        .map(|it| (it.phase, it.attempt, it.millis / 60_000))
        .collect();
    let want = [
        (Phase::Redoing, Some(2), 100),
        (Phase::Queued, Some(1), 30),
        (Phase::Starting, Some(1), 25),
    ];
    assert_eq!(rows, want);
    let [redo, queued, start] = &losses.losses[..] else {
        panic!("three")
    };
    assert!((redo.gpu_hours - 100.0 / 60.0 * 8.0).abs() < 1e-9);
    assert!(
        queued.gpu_hours.abs() < 1e-12 && queued.would_win.is_none(),
        "it holds no accelerator"
    );
    // Two saves in 935 minutes; two failures, so 467.5 minutes between them. The best interval is about 12 minutes.
    let help = redo.would_win.as_ref().unwrap();
    let want = "save every 12 min instead of every 7 h: a save stalls training for 10 s, and 7 h pass between failures";
    assert_eq!(help.change, want);
    let half = 100.0 * (835.0 / 987.5 - 0.835);
    assert!((start.would_win.as_ref().unwrap().points - half).abs() < 1e-9);
}

#[test]
fn nothing_is_claimed_without_measurements() {
    let spans = [
        (1, Phase::Training, 90),
        (2, Phase::Redoing, 10),
        (2, Phase::Training, 20),
    ];
    let losses = losses(&chronicle(&spans, &[failed(1)]), 8, time(0));
    assert_eq!(losses.losses.len(), 1);
    assert_eq!(losses.losses[0].would_win, None, "no save was measured");
    let silent = [(1, Phase::Starting, 90)];
    let silent = super::losses(&chronicle(&silent, &[]), 8, time(0));
    assert_eq!(silent.ettr, Ettr::default(), "unknown without a step");
    let empty = super::losses(&Chronicle::default(), 8, time(0));
    assert_eq!((empty.wall, empty.losses.len()), (0, 0));
}

#[test]
fn ettr_is_that_of_the_ledger() {
    let mut ledger = Ledger::default();
    ledger.enter(1, Phase::Starting, time(0));
    ledger.enter(1, Phase::Training, time(7));
    ledger.enter(1, Phase::Suspended, time(40));
    ledger.enter(1, Phase::Stalled, time(90));
    let mut status = crate::job::JobStatus::default();
    status.trainyard.ledger = ledger.clone();
    let seen = crate::chronicle::Seen {
        status: &status,
        pods: &[],
    };
    let chronicle = Chronicle::of_stored(&seen, &[], &crate::chronicle::Places::new(), time(95));
    let losses = losses(&chronicle, 1, time(95));
    assert_eq!(losses.ettr.all, ledger.ettr(time(95)));
}

#[test]
fn window_that_cuts_unseen_time_is_unknown() {
    let unseen = |from: i64, to: i64| {
        let millis = u64::try_from(to - from).unwrap();
        let booked = vec![
            (Some(1), Phase::Training, millis - 5).into(),
            (Some(1), Phase::Saving, 5).into(),
        ];
        (from, What::Unseen { from, to, booked })
    };
    let end = 200 * MINUTE;
    let cut = chronicle(&[(1, Phase::Training, 100)], &[unseen(100 * MINUTE, end)]);
    assert_eq!(losses(&cut, 1, time(end)).ettr.last_hour, None);
    let whole = chronicle(&[(1, Phase::Training, 140)], &[unseen(140 * MINUTE, end)]);
    assert!(losses(&whole, 1, time(end)).ettr.last_hour.is_some());
}
