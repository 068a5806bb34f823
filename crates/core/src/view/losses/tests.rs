use super::*;
use crate::{
    chronicle::What,
    ledger::Ledger,
    view::testing::{self, failed, span, time},
};

const MINUTE: i64 = 60_000;

fn chronicle(spans: &[(u32, Phase, i64)], more: &[(i64, What)]) -> Chronicle {
    let mut whats = vec![(0, What::Began)];
    let mut end = 0;
    for (attempt, phase, minutes) in spans {
        let (from, to) = (end, end + minutes * MINUTE);
        whats.push(span(from, to, *attempt, *phase));
        end = to;
    }
    whats.extend(more.iter().cloned());
    testing::chronicle(whats)
}

/// A save with a stall of 30 s; steps take 6 s.
fn saved(minute: i64, write_millis: u64) -> (i64, What) {
    let save = Save {
        step: u64::try_from(minute * 10).unwrap(),
        attempt: Some(1),
        bytes: 1,
        stall_millis: Some(30_000),
        write_millis: Some(write_millis),
    };
    (minute * MINUTE + 30_000 * (minute / 100), What::Saved(save))
}

#[test]
fn three_biggest_losses_with_what_helps() {
    let spans = [
        (1, Phase::Queued, 30),
        (1, Phase::Starting, 20),
        (1, Phase::Training, 499),
        (1, Phase::Saving, 1),
        (2, Phase::Restarting, 10),
        (2, Phase::Starting, 5),
        (2, Phase::Redoing, 100),
        (2, Phase::Training, 335),
    ];
    let chronicle = chronicle(
        &spans,
        &[saved(100, 1_000), saved(200, 1_000), failed(3), failed(4)],
    );
    let losses = losses(&chronicle, 8, time(1_000 * MINUTE));
    assert_eq!(losses.wall, 1_000 * 60_000);
    assert_eq!(losses.ettr.all, Some(0.834));
    let seated = losses.ettr.since_seated.unwrap();
    assert!((seated - 834.0 / 970.0).abs() < 1e-12);
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
    // Two saves in 934 minutes; two failures, so 467 minutes between them. The best interval is about 21 minutes.
    let help = redo.would_win.as_ref().unwrap();
    let want = "save every 21 min instead of every 7 h: a save stalls training for 30 s, and 7 h pass between failures";
    assert_eq!(help.change, want);
    let half = 100.0 * (834.0 / 987.5 - 0.834);
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
    // A broken file has more time than fits.
    let (attempt, phase) = (3, Phase::Training);
    let huge = testing::chronicle([
        (i64::MIN, What::Began),
        span(i64::MIN, 0, 1, Phase::Training),
        span(0, i64::MAX, 2, Phase::Stalled),
        (0, What::Phase { attempt, phase }),
    ]);
    assert_eq!(super::losses(&huge, 8, time(9_000)).wall, u64::MAX);
}

#[test]
fn no_interval_is_proposed_with_saves_unobserved() {
    let wins = |saving: i64, saves: &[(i64, What)], more: &[(i64, What)]| {
        let spans = [
            (1, Phase::Training, 800),
            (1, Phase::Saving, saving),
            (2, Phase::Redoing, 100),
        ];
        let all: Vec<(i64, What)> = saves.iter().chain(more).cloned().collect();
        let losses = losses(&chronicle(&spans, &all), 8, time(0));
        let loss = losses
            .losses
            .into_iter()
            .find(|it| it.phase == Phase::Redoing);
        loss.unwrap().would_win.map(|it| it.change)
    };
    let saves = [saved(100, 1_000), saved(200, 1_000), failed(9)];
    let rest = "a save stalls training for 30 s, and 15 h pass between failures";
    let all = wins(1, &saves, &[]).unwrap();
    assert!(
        all.starts_with("save every 29 min instead of every 7 h") && all.contains(rest),
        "{all}"
    );
    // The ledger has more stalls than those of two saves: there were others.
    assert_eq!(wins(30, &saves, &[]), None);
    assert_eq!(wins(1, &saves[1..], &[]), None, "one of two");
    // A checkpoint that another job left in the folder is none of this one.
    let mut left = saved(1, 1_000);
    if let What::Saved(save) = &mut left.1 {
        save.attempt = Some(0);
    }
    assert_eq!(
        wins(
            1,
            &[left, saves[0].clone(), saves[1].clone(), failed(9)],
            &[]
        ),
        Some(all)
    );
    let dropped = What::LeftOut(crate::chronicle::LeftOut {
        saves: 1,
        ..Default::default()
    });
    assert_eq!(wins(1, &saves, &[(0, dropped)]), None);
    // Nobody saves more often than a save is written.
    let slow = [saved(100, 3_600_000), saved(200, 3_600_000), failed(9)];
    let slow = wins(1, &slow, &[]).unwrap();
    let want = "save every 60 min instead of every 7 h: a save stalls training for 30 s, and 15 h pass between failures; a save is written for 60 min";
    assert_eq!(slow, want);
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
