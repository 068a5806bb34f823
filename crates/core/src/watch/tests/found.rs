//! What the simulation found (`sim::watch`), each with the least that shows it.

use std::time::Duration;

use super::{
    super::{Phase, ProcessState, Settings, Signal, Stack, Step, Usage, Watch},
    DAY, impatient, millis, secs,
    world::{Fault, Job, What, step_of, watch},
};

fn evaluates() -> Signal {
    Signal::Beat {
        phase: Some(Phase::Evaluate),
        step: None,
    }
}

/// Rank 0 stands at a line, and all others wait for it.
fn evidence(rank: u32) -> [Signal; 2] {
    let usage = Usage {
        cpu: Duration::ZERO,
        io_bytes: 0,
        network_bytes: None,
        state: ProcessState::Sleeping,
        wait_channel: None,
    };
    let stack = Stack {
        digest: u64::from(rank.min(1)),
        place: None,
        in_collective: rank > 0,
    };
    [Signal::Usage(usage), Signal::Stack(stack)]
}

/// A watch over ranks that took 40 steps of 0.1 s.
fn trained(settings: Settings, ranks: u32) -> Watch {
    let mut watch = Watch::begin(settings, ranks, Duration::ZERO);
    watch.look(Duration::ZERO);
    for step in 0..40 {
        if watch.hear(millis(100 * step), 0, step_of(step)) {
            watch.look(millis(100 * step));
        }
    }
    watch
}

/// Seed 1748: the adapter was stopped for two hours while rank 0 evaluated and said so.
#[test]
fn clock_step_is_no_silence() {
    let mut watch = trained(impatient(), 2);
    watch.hear(secs(4), 0, evaluates());
    let mut wake = Some(secs(4));
    for second in 4..7_000 {
        let step = if second < 1_800 { 0 } else { 7_200 };
        let now = secs(second + step);
        if wake.is_none_or(|wake| now < wake) {
            continue;
        }
        let outlook = watch.look(now);
        assert_eq!(outlook.findings, [], "{now:?}");
        wake = outlook.wake_at;
        for rank in (0..2).filter(|_| !outlook.ask.is_empty()) {
            for signal in evidence(rank) {
                watch.hear(now, rank, signal);
            }
        }
    }
}

/// Seed 1714: looks are a minute apart in a long save, and `hang-after` is shorter.
#[test]
fn bytes_excuse_between_two_looks() {
    let settings = Settings {
        hang_after: secs(10),
        ..impatient()
    };
    let save = What::Long {
        phase: Phase::Save,
        said: false,
    };
    let mut job = Job::new(4);
    job.steps(40, millis(100));
    job.then(save, secs(1_700));
    job.steps(40, millis(100));
    let trace = watch(settings, &job, job.end(), millis(60));
    assert_eq!(trace.act(), None);
    // Bytes that stop are no excuse: the second look after that shows it.
    let mut job = Job::new(4);
    job.steps(40, millis(100));
    job.then(save, secs(1_700));
    let begin = job.end();
    job.then(What::Hangs(Fault::Sleeps(2)), DAY);
    let trace = watch(settings, &job, DAY, millis(60));
    let (at, _) = trace.act().unwrap();
    assert!(at.saturating_sub(begin) < secs(135), "{at:?}");
}

/// Seed 3485: the lines of two ranks about one step, without its number, are no rhythm.
#[test]
fn unnumbered_steps_are_counted_once() {
    let settings = Settings {
        hang_after: secs(10),
        ..impatient()
    };
    let loss = || {
        Signal::Step(Step {
            loss: Some(0.5),
            ..Step::default()
        })
    };
    let mut job = Job::new(2);
    for step in 0..2 {
        job.then(What::Step(step), secs(500));
        // Both ranks, one of them twice.
        for rank in [0, 1, 1] {
            job.lines.push((job.end(), rank, loss()));
        }
    }
    let trace = watch(settings, &job, job.end(), millis(60));
    assert_eq!(trace.act(), None);
}

/// Seed 603155: from the end of a short save to the late line of the step before it is no step time.
#[test]
fn late_line_after_a_phase_is_no_rhythm() {
    let settings = Settings {
        hang_after: secs(60),
        ..impatient()
    };
    let said = |phase| Signal::Beat {
        phase: Some(phase),
        step: None,
    };
    let mut job = Job::new(1);
    job.cpu = 0;
    job.lines.push((Duration::ZERO, 0, said(Phase::Compile)));
    for step in 0..3 {
        job.then(What::Step(step), secs(100));
        let end = job.end();
        if step == 1 {
            job.lines.push((end, 0, said(Phase::Save)));
            let done = Signal::Done { phase: Phase::Save };
            job.lines.push((end + millis(20), 0, done));
        }
        job.lines.push((end + millis(500), 0, step_of(step)));
    }
    let trace = watch(settings, &job, job.end(), millis(60));
    assert_eq!(trace.act(), None);
}

/// Seed 6750: evidence that is on its way is not missing.
#[test]
fn late_evidence_is_waited_for() {
    let settings = Settings {
        hang_after: secs(10),
        ..impatient()
    };
    let mut job = Job::new(4);
    job.then(What::Start, secs(5));
    job.steps(3, millis(100));
    job.then(What::Hangs(Fault::AllCompute), secs(60));
    let trace = watch(settings, &job, job.end(), secs(3));
    assert_eq!(trace.act(), None);
}

/// Seed 11367: in a job that became slower, the rank that evaluates while the others wait for it is not slow.
#[test]
fn evaluation_is_no_straggler() {
    let mut watch = trained(impatient(), 4);
    let mut now = secs(4);
    let mut step = 40;
    let mut take_steps = |watch: &mut Watch, count: u32, time: Duration| {
        for _ in 0..count {
            now += time;
            watch.hear(now, 1, step_of(step));
            step += 1;
            watch.look(now);
        }
        now
    };
    take_steps(&mut watch, 100, millis(100));
    let now = take_steps(&mut watch, 20, secs(1));
    watch.hear(now, 0, evaluates());
    for second in 1..2_000 {
        let now = now + secs(second);
        let outlook = watch.look(now);
        let labels: Vec<_> = outlook
            .findings
            .iter()
            .map(|found| found.cause.label())
            .collect();
        assert!(!labels.contains(&"straggler"), "{second}");
        for rank in (0..4).filter(|_| !outlook.ask.is_empty()) {
            for signal in evidence(rank) {
                watch.hear(now, rank, signal);
            }
        }
    }
}
