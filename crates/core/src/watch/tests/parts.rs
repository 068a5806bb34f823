//! The parts one by one.

use std::time::Duration;

use super::{
    super::{
        Ask, Cause, Collective, Phase, Rhythm, Signal, Stack, Step, Watch,
        collective::MAX_GROUPS,
        numbers::Numbers,
        rank::Rank,
        signal::{CHANNEL_CHARS, PLACE_CHARS},
        stall::limits,
    },
    defaults, millis, secs,
};
use crate::progress::Reader;

#[test]
fn rhythm_forgets_and_survives_bursts() {
    let mut rhythm = Rhythm::default();
    rhythm.note(Phase::Train, secs(60));
    // Hundreds of ranks report the same step within milliseconds.
    for _ in 0..2_000 {
        rhythm.note(Phase::Train, millis(1));
    }
    assert_eq!(rhythm.largest(Phase::Train), secs(60));
    assert_eq!(rhythm.largest(Phase::Save), Duration::ZERO);
    // 64 slots of a quarter of it.
    for _ in 0..2_000 {
        rhythm.note(Phase::Train, secs(1));
    }
    assert_eq!(rhythm.largest(Phase::Train), secs(1));
    rhythm.note(Phase::Train, Duration::MAX);
    assert_eq!(rhythm.largest(Phase::Train), millis(u32::MAX.into()));
}

#[test]
fn limits_by_phase() {
    let mut rhythm = Rhythm::default();
    let settings = defaults();
    let of = |rhythm: &Rhythm, started, phase| {
        let limits = limits(&settings, rhythm, started, phase);
        let moments = [
            limits.suspect,
            limits.patience,
            limits.unclear,
            limits.ceiling,
        ];
        moments.map(|moment| moment.as_secs())
    };
    assert_eq!(
        of(&rhythm, false, Phase::Train),
        [1_350, 1_800, 1_800, 1_800]
    );
    assert_eq!(
        of(&rhythm, true, Phase::Train),
        [1_350, 1_800, 1_800, 1_800]
    );
    for _ in 0..4 {
        rhythm.count_step();
        rhythm.note(Phase::Train, secs(2));
    }
    assert_eq!(of(&rhythm, true, Phase::Train), [450, 600, 600, 600]);
    rhythm.count_step();
    assert_eq!(of(&rhythm, true, Phase::Train), [15, 30, 60, 600]);
    assert_eq!(of(&rhythm, true, Phase::Save)[3], 1_830);
    assert_eq!(of(&rhythm, true, Phase::Evaluate)[3], 7_230);
    assert_eq!(of(&rhythm, true, Phase::Compile)[3], 1_830);
    rhythm.note(Phase::Train, secs(40));
    assert_eq!(of(&rhythm, true, Phase::Train), [80, 120, 200, 600]);
    // Steps longer than `hang-after` allows.
    rhythm.note(Phase::Train, secs(600));
    assert_eq!(
        of(&rhythm, true, Phase::Train),
        [1_200, 1_800, 1_800, 1_800]
    );
}

#[test]
fn memory_of_a_rank_is_bounded() {
    let collectives = MAX_GROUPS * (size_of::<Collective>() + 2 * 24 * 4);
    assert!(size_of::<Rank>() + PLACE_CHARS * 4 + CHANNEL_CHARS * 4 <= 2_048);
    assert!(collectives <= 2_048);
    let mut rank = Rank::default();
    let place = Some("ä".repeat(1 << 20));
    let stack = Stack {
        digest: 1,
        place,
        in_collective: false,
    };
    rank.take_stack(1, secs(1), stack);
    let place = rank.stack.unwrap().place.unwrap();
    assert_eq!(place.chars().count(), PLACE_CHARS);
    assert!(place.capacity() <= PLACE_CHARS * 4);
}

#[test]
fn numbers_in_a_row() {
    type Case<'a> = (&'a str, Vec<Step>, Option<(u64, bool)>);
    let step = |step: u64, loss: Option<f64>, norm: Option<f64>| Step {
        step: Some(step),
        step_time: None,
        loss,
        grad_norm: norm,
    };
    let inf = f64::INFINITY;
    let ok = Some(1.0);
    let cases: [Case<'_>; 7] = [
        (
            "a bar before each line",
            vec![
                step(7, None, None),
                step(7, Some(inf), None),
                step(8, None, None),
                step(8, Some(inf), None),
            ],
            Some((7, false)),
        ),
        (
            "one is none",
            vec![step(1, Some(inf), None), step(2, ok, None)],
            None,
        ),
        (
            "two of loss",
            vec![step(7, Some(f64::NAN), None), step(8, Some(-inf), None)],
            Some((7, false)),
        ),
        (
            "a line twice",
            vec![step(7, Some(inf), None), step(7, Some(inf), None)],
            None,
        ),
        (
            "a loss scaler",
            (0..16)
                .map(|at| step(at, ok, Some(inf)))
                .chain([step(16, ok, ok)])
                .collect(),
            None,
        ),
        (
            "norm stays",
            (3..23).map(|at| step(at, ok, Some(f64::NAN))).collect(),
            Some((3, true)),
        ),
        (
            "in turns",
            (0..40)
                .map(|at| step(at, Some(if at % 2 == 0 { inf } else { 1.0 }), None))
                .collect(),
            None,
        ),
    ];
    for (name, steps, want) in cases {
        let mut numbers = Numbers::default();
        let found = steps.iter().filter_map(|step| numbers.take(step)).last();
        let want = want.map(|(step, norm)| Cause::NanLoss {
            step: Some(step),
            norm,
        });
        assert_eq!(found, want, "{name}");
    }
}

#[test]
fn spikes_are_found() {
    let run = |losses: &mut dyn Iterator<Item = f64>| {
        let mut numbers = Numbers::default();
        let mut found = Vec::new();
        for (step, loss) in (0..).zip(losses) {
            let step = Step {
                step: Some(step),
                loss: Some(loss),
                ..Step::default()
            };
            found.extend(numbers.take(&step));
        }
        found
    };
    let falls = || (0..200_u32).map(|at| 8.0 / f64::from(at + 1));
    assert_eq!(run(&mut falls()), []);
    let found = run(&mut falls().chain([0.3]));
    assert!(
        matches!(
            found.as_slice(),
            [Cause::LossSpike {
                step: Some(200),
                ..
            }]
        ),
        "{found:?}"
    );
    assert_eq!(run(&mut falls().chain([0.1])), []);
    let found = run(&mut falls().chain([80.0]));
    assert!(
        matches!(found.as_slice(), [Cause::LossSpike { .. }]),
        "{found:?}"
    );
}

#[test]
fn spike_is_reported_once() {
    let mut watch = Watch::begin(defaults(), 1, Duration::ZERO);
    let mut found = 0;
    for step in 0..100 {
        let loss = if step < 50 { 1.0 } else { 100.0 };
        let signal = Signal::Step(Step {
            step: Some(step),
            loss: Some(loss),
            ..Step::default()
        });
        watch.hear(secs(step), 0, signal);
        found += watch.look(secs(step)).findings.len();
    }
    assert_eq!(found, 1);
}

#[test]
fn job_that_slows_down() {
    let mut watch = Watch::begin(defaults(), 4, Duration::ZERO);
    let mut found = Vec::new();
    let mut asked = 0;
    let mut now = Duration::ZERO;
    for step in 0..1_200_u64 {
        now += if step < 200 { secs(1) } else { secs(2) };
        watch.hear(now, 0, super::world::step_of(step));
        let outlook = watch.look(now);
        found.extend(outlook.findings);
        if outlook.ask.contains(&Ask::Stacks) {
            asked += 1;
            // Rank 3 computes whenever the others wait, but for one look.
            let late = if asked == 5 { 1 } else { 3 };
            for rank in 0..4 {
                let stack = Stack {
                    digest: u64::from(rank == late),
                    place: None,
                    in_collective: rank != late,
                };
                watch.hear(now + millis(50), rank, Signal::Stack(stack));
            }
        }
    }
    let labels: Vec<_> = found.iter().map(|found| found.cause.label()).collect();
    assert_eq!(labels, ["job_slower", "straggler"], "{found:?}");
    assert_eq!(found[1].ranks, [3]);
    assert_eq!(
        found[0].sentence(),
        "steps take 2.0 times as long as at their best"
    );
    assert_eq!(asked, 20);
    assert!(found.iter().all(|found| !found.act));
}

#[test]
fn lines_become_signals() {
    let cases: [(&str, &[Signal]); 4] = [
        (
            "step=3 loss=nan",
            &[Signal::Step(Step {
                step: Some(3),
                ..Step::default()
            })],
        ),
        (
            "Saving checkpoint to /ckpt",
            &[Signal::Beat {
                phase: Some(Phase::Save),
                step: None,
            }],
        ),
        (
            "saved checkpoint to /ckpt",
            &[Signal::Done { phase: Phase::Save }],
        ),
        ("hello", &[]),
    ];
    for (line, want) in cases {
        let reading = Reader::new().line(line.as_bytes());
        let found: Vec<_> = reading.iter().flat_map(Signal::from_reading).collect();
        let without_loss = found.into_iter().map(|signal| match signal {
            Signal::Step(step) => {
                assert!(step.loss.is_some_and(f64::is_nan));
                Signal::Step(Step { loss: None, ..step })
            }
            other => other,
        });
        assert_eq!(without_loss.collect::<Vec<_>>(), want, "{line}");
    }
    for phase in Phase::ALL {
        assert_eq!(Phase::parse(phase.name()), Some(phase));
    }
    assert_eq!(Phase::parse("sleep"), None);
}

#[test]
fn strange_signals_do_no_harm() {
    let mut watch = Watch::begin(defaults(), 2, secs(5));
    // Unknown ranks, times that go back, times at the end of the world.
    assert!(!watch.hear(secs(6), 7, super::world::step_of(1)));
    watch.hear(secs(1), 0, super::world::step_of(u64::MAX));
    watch.hear(secs(0), 0, super::world::step_of(0));
    let notice = Signal::Notice {
        deadline: Duration::MAX,
    };
    watch.hear(secs(6), 0, notice);
    let outlook = watch.look(Duration::MAX);
    assert_eq!(outlook.findings, []);
    let mut watch = Watch::begin(defaults(), 2, Duration::ZERO);
    for rank in 0..2 {
        watch.hear(secs(1), rank, Signal::Ended);
    }
    assert_eq!(watch.look(secs(9_999)), super::super::Outlook::default());
    let mut nobody = Watch::begin(defaults(), 0, Duration::ZERO);
    assert_eq!(nobody.look(secs(9_999)), super::super::Outlook::default());
}
