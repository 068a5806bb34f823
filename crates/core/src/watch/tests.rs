//! Tests of the watch: the scenarios of a hang in virtual time; its parts are beside it, and random jobs are `sim::watch`'s.

mod bounds;
mod found;
mod parts;
mod recorders;
mod world;

use std::time::Duration;

use self::world::{Fault, Job, What, defaults, watch};
use super::{Cause, Finding, Phase, Settings, Signal, Step, Watch};
use crate::{
    diagnose::Confidence::{self, High, Low, Medium},
    spec::{OnNan, WatchMode},
};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How long evidence takes on one machine.
const DELAY: Duration = millis(60);
const DAY: Duration = Duration::from_hours(24);

/// 40 steps of 0.1 s, then the fault.
fn hangs(fault: Fault) -> Job {
    let mut job = Job::new(4);
    job.then(What::Start, secs(8));
    job.steps(40, millis(100));
    job.then(What::Hangs(fault), DAY);
    job
}

fn impatient() -> Settings {
    Settings {
        hang_floor: secs(2),
        ..defaults()
    }
}

/// What is found first of a hang, and what follows from something; each with the time since the hang began.
type Found = (&'static str, Vec<u32>, Confidence, u64);

#[test]
fn hangs_are_named_in_time() {
    let ceiling = Settings {
        hang_after: secs(10),
        ..impatient()
    };
    let cases: [(&str, Settings, Fault, Found); 13] = [
        (
            "1: sleeps, floor 2 s",
            impatient(),
            Fault::Sleeps(2),
            ("hang_cpu_side", vec![2], High, 2_200),
        ),
        (
            "1: sleeps, defaults",
            defaults(),
            Fault::Sleeps(2),
            ("hang_cpu_side", vec![2], High, 31_000),
        ),
        (
            "2: stopped",
            impatient(),
            Fault::Stopped(1),
            ("hang_stopped", vec![1], High, 2_200),
        ),
        (
            "2: stopped, defaults",
            defaults(),
            Fault::Stopped(1),
            ("hang_stopped", vec![1], High, 31_000),
        ),
        (
            "3: busy loop",
            ceiling,
            Fault::Busy(3),
            ("hang_cpu_side", vec![3], Medium, 10_500),
        ),
        (
            "3: busy loop, defaults",
            defaults(),
            Fault::Busy(3),
            ("hang_cpu_side", vec![3], Medium, 601_000),
        ),
        (
            "4: among spinning",
            ceiling,
            Fault::SleepsAmongSpinning(2),
            ("hang_cpu_side", vec![2], Medium, 10_500),
        ),
        (
            "4: without stacks",
            ceiling,
            Fault::SleepsWithoutStacks(2),
            ("hang_cpu_side", vec![2], Medium, 10_500),
        ),
        (
            "disk wait",
            defaults(),
            Fault::DiskWait(1),
            ("hang_disk_wait", vec![1], Medium, 601_000),
        ),
        (
            "behind",
            impatient(),
            Fault::Behind(0),
            ("hang_in_collective", vec![0], High, 2_200),
        ),
        (
            "all wait",
            defaults(),
            Fault::AllWait,
            ("hang_all_alike", vec![], Medium, 601_000),
        ),
        (
            "all sleep",
            defaults(),
            Fault::AllSleep,
            ("hang_all_alike", vec![], Medium, 601_000),
        ),
        (
            "13: logs only",
            defaults(),
            Fault::Unseen,
            ("hang_all_alike", vec![], Medium, 601_000),
        ),
    ];
    for (name, settings, fault, (label, ranks, confidence, within)) in cases {
        for spin in [0, 1000] {
            let mut job = Job::new(4);
            job.spin = spin;
            job.then(What::Start, secs(8));
            job.steps(40, millis(100));
            let begin = job.end();
            job.then(What::Hangs(fault), DAY);
            let trace = watch(settings, &job, DAY, DELAY);
            let Some((at, finding)) = trace.act() else {
                panic!("{name}: nothing follows: {:?}", trace.findings);
            };
            assert_eq!(finding.cause.label(), label, "{name}: {finding:?}");
            assert_eq!(finding.ranks, ranks, "{name}");
            assert_eq!(finding.confidence, confidence, "{name}");
            let took = at.saturating_sub(begin);
            assert!(took <= millis(within), "{name}: {took:?}");
            assert!(took >= settings.hang_floor, "{name}: {took:?}");
            assert!(trace.findings.len() <= 3, "{name}: {:?}", trace.findings);
        }
    }
}

#[test]
fn hang_in_words() {
    let cases = [
        (
            impatient(),
            Fault::Sleeps(2),
            "no step for 2.0 s: rank 2 stands at `train.py:40`; 3 other ranks wait in a collective at `train.py:100`",
        ),
        (
            impatient(),
            Fault::Stopped(1),
            "no step for 2.0 s: rank 1 is stopped by a signal (state T); 3 other ranks wait in a collective at `train.py:100`",
        ),
        (
            impatient(),
            Fault::Behind(0),
            "no step for 2.0 s: rank 0 began collective 79 last, others are at 80; 3 other ranks wait in a collective at `train.py:100`",
        ),
        (
            defaults(),
            Fault::AllSleep,
            "no step for 600 s: no rank differs from the others, all stand at `train.py:60`",
        ),
        (
            defaults(),
            Fault::DiskWait(1),
            "no step for 600 s: rank 1 waits for a disk or a driver in `rpc_wait_bit_killable` (state D); 3 other ranks wait in a collective at `train.py:100`",
        ),
        (
            defaults(),
            Fault::Unseen,
            "no step for 600 s: no rank differs from the others",
        ),
    ];
    for (settings, fault, words) in cases {
        let trace = watch(settings, &hangs(fault), DAY, DELAY);
        let (_, finding) = trace.act().unwrap();
        assert_eq!(finding.sentence(), words);
    }
}

#[test]
fn nothing_is_found_of_jobs_that_work() {
    type Case<'a> = (&'a str, u64, &'a [(What, u64)]);
    let quiet = |said| What::Long {
        phase: Phase::Save,
        said,
    };
    let eval = What::Long {
        phase: Phase::Evaluate,
        said: true,
    };
    let cases: [Case<'_>; 6] = [
        ("6: bytes move for 60 s", 40, &[(quiet(false), 60)]),
        ("bytes move for 110 min", 40, &[(quiet(false), 6_600)]),
        ("a save of 30 min that is said", 40, &[(quiet(true), 1_800)]),
        ("an evaluation of 2 h that is said", 40, &[(eval, 7_200)]),
        (
            "7: 45 s before step 1, 20 s in it",
            0,
            &[(What::Start, 45), (What::Step(1), 20)],
        ),
        ("29 min before step 1", 0, &[(What::Start, 1_740)]),
    ];
    for (name, before, segments) in cases {
        for settings in [defaults(), impatient()] {
            let mut job = Job::new(4);
            job.steps(before, millis(100));
            for (what, lasts) in segments {
                if let What::Long { phase, said: true } = what {
                    let beat = Signal::Beat {
                        phase: Some(*phase),
                        step: None,
                    };
                    job.lines.push((job.end(), 0, beat));
                }
                job.then(*what, secs(*lasts));
            }
            job.steps(40, millis(100));
            let trace = watch(settings, &job, job.end(), DELAY);
            assert_eq!(trace.findings, [], "{name}");
        }
    }
}

/// The limit of what bytes excuse, on both sides.
#[test]
fn bytes_excuse_three_hours() {
    let bytes = What::Long {
        phase: Phase::Evaluate,
        said: false,
    };
    for (lasts, ends) in [(secs(3 * 3_600), false), (secs(4 * 3_600), true)] {
        let mut job = Job::new(4);
        job.steps(40, millis(100));
        job.then(bytes, lasts);
        job.steps(40, millis(100));
        let trace = watch(defaults(), &job, job.end(), DELAY);
        assert_eq!(
            trace.act().is_some(),
            ends,
            "{lasts:?}: {:?}",
            trace.findings
        );
        let at = trace.act().map(|(at, _)| *at);
        // Three hours from the first look that shows work, then `hang-after`.
        let due = secs(3 * 3_600 + 600)..secs(3 * 3_600 + 700);
        assert!(at.is_none_or(|at| due.contains(&at)), "{at:?}");
    }
}

#[test]
fn mode_decides_what_follows() {
    let found = |mode| {
        let settings = Settings {
            mode,
            ..impatient()
        };
        let trace = watch(settings, &hangs(Fault::Sleeps(2)), DAY, DELAY);
        let found = trace.findings.into_iter();
        found.map(|(_, finding)| finding).collect::<Vec<Finding>>()
    };
    let act = found(WatchMode::Act);
    assert!(matches!(act.as_slice(), [finding] if finding.act));
    let report = found(WatchMode::Report);
    assert!(matches!(report.as_slice(), [finding] if !finding.act && finding.confidence == High));
    assert_eq!(found(WatchMode::Off), []);
}

#[test]
fn unclear_hang_is_reported_first() {
    let trace = watch(
        defaults(),
        &hangs(Fault::SleepsAmongSpinning(2)),
        DAY,
        DELAY,
    );
    let found = trace.findings.iter();
    let found: Vec<_> = found
        .map(|(_, found)| (found.confidence, found.act))
        .collect();
    assert_eq!(found, [(Medium, false), (Medium, true)]);
    let after = trace.findings[0].0.saturating_sub(secs(12));
    assert!(after >= secs(60), "{:?}", trace.findings);
    assert!(after <= secs(70), "{:?}", trace.findings);
}

#[test]
fn running_program_is_not_ended_for_silence() {
    let trace = watch(defaults(), &hangs(Fault::AllCompute), DAY, DELAY);
    let found: Vec<_> = trace.findings.iter().map(|(_, finding)| finding).collect();
    assert!(
        matches!(found.as_slice(), [finding] if !finding.act && finding.confidence == Low),
        "{found:?}"
    );
}

#[test]
fn first_step_is_waited_for() {
    let hang = |fault| {
        let mut job = Job::new(4);
        job.then(What::Start, secs(5));
        job.then(What::Hangs(fault), DAY);
        watch(impatient(), &job, DAY, DELAY)
    };
    let trace = hang(Fault::Sleeps(2));
    let (at, finding) = trace.act().unwrap();
    assert_eq!(
        (finding.ranks.as_slice(), finding.confidence),
        (&[2][..], High)
    );
    assert!((secs(1_800)..secs(1_810)).contains(at), "{at:?}");
    // One rank that prepares data, or a program whose steps are not read.
    for fault in [Fault::Busy(0), Fault::AllSleep, Fault::AllWait] {
        let found = hang(fault).findings;
        assert!(matches!(found.as_slice(), [(_, found)] if found.confidence == Low && !found.act));
    }
    for fault in [Fault::AllCompute, Fault::Unseen] {
        assert_eq!(hang(fault).findings, [], "{fault:?}");
    }
}

#[test]
fn progress_ends_a_suspicion() {
    let mut job = hangs(Fault::Sleeps(2));
    // It was no hang: a step arrives after 20 s, and again.
    for (step, at) in [(40, 32), (41, 52), (42, 72)] {
        job.lines.push((secs(at), 0, world::step_of(step)));
    }
    let trace = watch(defaults(), &job, secs(130), DELAY);
    assert_eq!(trace.findings, []);
    // The gaps were learned: three times 20 s.
    let trace = watch(defaults(), &job, DAY, DELAY);
    let (at, finding) = trace.act().unwrap();
    assert_eq!(finding.since, secs(72));
    assert!((secs(132)..secs(136)).contains(at), "{at:?}");
}

#[test]
fn notice_excuses_silence() {
    let mut job = hangs(Fault::Sleeps(2));
    let notice = Signal::Notice {
        deadline: secs(300),
    };
    job.lines.push((secs(13), 0, notice));
    let trace = watch(impatient(), &job, DAY, DELAY);
    assert!(trace.act().unwrap().0 >= secs(302));
}

#[test]
fn late_line_does_not_end_a_phase() {
    let beat = |phase| Signal::Beat {
        phase: Some(phase),
        step: None,
    };
    let long = What::Long {
        phase: Phase::Evaluate,
        said: true,
    };
    let mut job = Job::new(4);
    job.steps(40, millis(100));
    let end = job.end();
    job.lines.push((end, 0, beat(Phase::Save)));
    job.lines
        .push((end + millis(300), 0, beat(Phase::Evaluate)));
    for (late, signal) in [
        (600, Signal::Done { phase: Phase::Save }),
        (900, world::step_of(41)),
        (1_900, world::step_of(42)),
    ] {
        job.lines.push((end + millis(late), 0, signal));
    }
    job.then(long, secs(7_200));
    let trace = watch(impatient(), &job, job.end(), DELAY);
    assert_eq!(trace.findings, []);
}

/// Seed 25808 of the random jobs: two late lines and then an old one that arrives again.
#[test]
fn old_line_does_not_end_a_phase() {
    let mut job = Job::new(4);
    job.steps(40, millis(100));
    let end = job.end();
    let beat = Signal::Beat {
        phase: Some(Phase::Evaluate),
        step: None,
    };
    job.lines.push((end, 0, beat));
    for (late, step) in [(800, 41), (1_200, 42), (3_000, 30), (3_400, 35)] {
        job.lines
            .push((end + millis(late), 0, world::step_of(step)));
    }
    let long = What::Long {
        phase: Phase::Evaluate,
        said: true,
    };
    job.then(long, secs(7_200));
    let trace = watch(impatient(), &job, job.end(), DELAY);
    assert_eq!(trace.findings, []);
}

#[test]
fn nan_is_found_with_its_first_step() {
    let settings = Settings {
        on_nan: OnNan::Stop,
        ..defaults()
    };
    let mut watch = Watch::begin(settings, 4, Duration::ZERO);
    let mut found = Vec::new();
    for (step, loss) in [(1, 0.5), (2, f64::NAN), (3, f64::NAN), (4, f64::NAN)] {
        let now = secs(step);
        let signal = Signal::Step(Step {
            step: Some(step),
            loss: Some(loss),
            ..Step::default()
        });
        // The line arrives twice.
        let due = watch.hear(now, 0, signal.clone());
        assert!(!watch.hear(now, 0, signal));
        if due {
            found.extend(
                watch
                    .look(now)
                    .findings
                    .into_iter()
                    .map(|found| (step, found)),
            );
        }
    }
    let [(3, finding)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(finding.act);
    let cause = Cause::NanLoss {
        step: Some(2),
        norm: false,
    };
    assert_eq!(finding.cause, cause);
    assert_eq!(
        finding.sentence(),
        "the loss of rank 0 is NaN or infinite since step 2"
    );
}

#[test]
fn straggler_by_own_step_times() {
    let mut watch = Watch::begin(defaults(), 4, Duration::ZERO);
    let mut found = Vec::new();
    for step in 0..50_u64 {
        for rank in 0..4 {
            let own = if rank == 1 {
                300
            } else {
                100 + u64::from(rank)
            };
            let now = millis(step * 300 + u64::from(rank));
            let signal = Signal::Step(Step {
                step: Some(step),
                step_time: Some(millis(own)),
                ..Step::default()
            });
            if watch.hear(now, rank, signal) {
                found.extend(watch.look(now).findings);
            }
        }
    }
    let [finding] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((finding.ranks.as_slice(), finding.act), (&[1][..], false));
    assert_eq!(
        finding.sentence(),
        "rank 1 takes 2.9 times as long for a step as the other ranks"
    );
}
