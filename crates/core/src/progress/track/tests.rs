use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
}

fn step(step: u64) -> Reading {
    Reading {
        step: Some(step),
        ..Reading::default()
    }
}

fn loss(at: u64, loss: f64) -> Reading {
    Reading {
        loss: Some(loss),
        ..step(at)
    }
}

/// Reports at these milliseconds, of these steps.
fn reported(reports: impl IntoIterator<Item = (i64, u64)>) -> Track {
    let mut track = Track::default();
    for (millis, number) in reports {
        track.take(&step(number), at(millis));
    }
    track
}

#[test]
fn rhythm_is_a_median_of_arrivals() {
    type Reports = Vec<(i64, u64)>;
    let each = |count: i64, millis: i64, steps: u64| -> Reports {
        (0..count)
            .map(|turn| (turn * millis, turn.unsigned_abs() * steps))
            .collect()
    };
    // Two hundred lines at once, every 200 s, as a full buffer gives them; a pipe takes them in two pieces.
    let buffered: Reports = (0..1_000_i64)
        .map(|turn| {
            let piece = if turn % 200 < 100 { 0 } else { 3 };
            ((turn / 200) * 200_000 + piece, turn.unsigned_abs())
        })
        .collect();
    let mut checkpoint = each(10, 2_000, 1);
    checkpoint.extend([(80_000, 10), (82_000, 11)]);
    let mut compiles = each(1, 0, 1);
    compiles.extend((1..5_i64).map(|turn| (60_000 + turn * 1_000, turn.unsigned_abs())));
    // A bar that counts the batches of each epoch.
    let epochs: Reports = (0..12_i64)
        .map(|turn| (turn * 1_000, turn.unsigned_abs() % 4 + 1))
        .collect();
    let cases: [(&str, Reports, Option<f64>, Option<f64>); 9] = [
        ("one", each(1, 0, 1), None, None),
        ("too few", each(3, 1_000, 1), None, None),
        ("even", each(5, 1_000, 1), Some(1.0), Some(1.0)),
        ("every tenth step", each(5, 5_000, 10), Some(5.0), Some(0.5)),
        ("many", each(10_000, 2_000, 1), Some(2.0), Some(2.0)),
        ("buffered", buffered, Some(200.0), Some(1.0)),
        ("a checkpoint", checkpoint, Some(2.0), Some(2.0)),
        ("compiles first", compiles, Some(1.0), Some(1.0)),
        ("epochs", epochs, Some(1.0), Some(1.0)),
    ];
    for (name, reports, rhythm, seconds) in cases {
        let track = reported(reports);
        let learned = track.rhythm.map(|rhythm| rhythm.as_secs_f64());
        assert_eq!(learned, rhythm, "{name}");
        assert_eq!(track.step_seconds(), seconds, "{name}");
        assert!(track.samples.len() <= SAMPLES, "{name}");
    }
    let fast = reported((0..200_i64).map(|turn| (turn * 100, turn.unsigned_abs())));
    let seconds = fast.step_seconds().unwrap();
    assert!((seconds - 0.1).abs() < 0.01, "{seconds}");
}

#[test]
fn repeated_step_is_not_progress() {
    let mut track = reported([(0, 1), (1_000, 2)]);
    track.take(&step(2), at(90_000));
    assert_eq!(track.last_at, Some(at(1_000)));
    assert_eq!((track.first_at, track.reports), (Some(at(0)), 2));
    // A clock that steps back.
    track.take(&step(3), at(500));
    assert_eq!((track.step, track.last_at), (Some(3), Some(at(1_000))));
}

#[test]
fn the_last_loss_is_the_last_one() {
    let mut track = Track::default();
    for number in 1..=200 {
        let value = if number < 20 { 0.66 } else { f64::NAN };
        track.take(&loss(number, value), at(0));
    }
    let (last, value) = track.loss.unwrap();
    assert_eq!(last, 200);
    assert!(value.is_nan());
    assert_eq!(track.nan_since, Some(20), "where it began");
    let progress = track.progress(1, at(0)).unwrap();
    assert_eq!(
        (progress.nan_since, progress.loss),
        (Some(20), Some(Figure(f64::NAN)))
    );
}

#[test]
fn an_overflow_that_recovers_is_counted() {
    let mut track = Track::default();
    for (number, value) in [(1, 1.0), (2, f64::INFINITY), (3, f64::NAN), (4, 0.9)] {
        track.take(&loss(number, value), at(0));
    }
    assert_eq!((track.nan_since, track.overflows), (None, 1));
    let norm = |number, norm| Reading {
        grad_norm: Some(norm),
        ..step(number)
    };
    track.take(&norm(5, f64::NAN), at(0));
    assert_eq!((track.grad_nan_since, track.overflows), (Some(5), 1));
    // A report without a norm says nothing of it.
    track.take(&loss(6, 0.8), at(0));
    assert_eq!(track.grad_nan_since, Some(5));
    track.take(&norm(7, 1.0), at(0));
    assert_eq!((track.grad_nan_since, track.overflows), (None, 2));
}

#[test]
fn saving_and_evaluating_end_with_the_next_step() {
    let event = |event| Reading {
        event: Some(event),
        ..Reading::default()
    };
    let mut track = reported([(0, 1)]);
    track.take(&event(Event::Saving), at(1));
    track.take(&event(Event::Evaluating), at(1));
    track.take(&step(1), at(2));
    assert!(
        track.saving && track.evaluating,
        "the same step changes nothing"
    );
    track.take(&step(2), at(3));
    assert!(!track.saving && !track.evaluating);
    track.take(&event(Event::Saving), at(4));
    track.take(&event(Event::Saved), at(5));
    assert!(!track.saving);
}

#[test]
fn no_progress_before_the_first_step() {
    let mut track = Track::default();
    let only_loss = Reading {
        loss: Some(1.0),
        epoch: Some(0.5),
        ..Reading::default()
    };
    track.take(&only_loss, at(0));
    assert_eq!(track.progress(1, at(0)), None);
    track.take(&step(0), at(10));
    let progress = track.progress(3, at(20)).unwrap();
    assert_eq!((progress.attempt, progress.step), (3, 0));
    assert_eq!((progress.first_at, progress.read_at), (at(10), at(20)));
    assert_eq!(
        (progress.loss, progress.epoch),
        (Some(Figure(1.0)), Some(Figure(0.5)))
    );
}

#[test]
fn first_step_is_known_while_steps_grow() {
    let first = |steps: &[u64], missed: bool| {
        let mut track = Track::default();
        if missed {
            track.miss_beginning();
        }
        for number in steps {
            track.take(&step(*number), at(1));
        }
        track.progress(1, at(2)).and_then(|seen| seen.first_step)
    };
    assert_eq!(first(&[3, 3, 9], false), Some(3));
    assert_eq!(first(&[3, 9, 4, 12], false), None, "counted again");
    assert_eq!(first(&[3, 9], true), None, "not read from the beginning");
}
