use trainyard_core::{
    barrier::{Envelope, Limits, OperatorMessage, Order, ProgramExit},
    spec::{OnNan, Role},
    watch::Step,
};

use super::*;
use crate::supervise::signs::Sign;

const JOB: &str = "j";

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn envelope<M>(message: M) -> Envelope<M> {
    Envelope {
        job: JOB.to_owned(),
        message,
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn order(leader: &mut Leader, command: Command, at: Duration) {
    let roster = (0..2).map(|index| (worker(index), format!("uid-{index}")));
    let order = Order {
        command,
        roster: roster.collect(),
    };
    leader.receive_operator(&envelope(OperatorMessage::Order(order)), at);
}

fn hello(index: u32, attempt: u32, state: MemberState) -> Hello {
    Hello {
        uid: format!("uid-{index}"),
        slot: worker(index),
        attempt,
        state,
    }
}

fn report(index: u32, attempt: u32, asked: Option<u32>, signs: Vec<Sign>) -> Report {
    Report {
        job: JOB.to_owned(),
        attempt,
        first: index * 2,
        count: 2,
        asked,
        signs,
    }
}

/// A leader of two pods with two ranks each, both of which run attempt 1, and its watch.
fn watched() -> (Leader, Watching) {
    watched_on_nan(OnNan::Report)
}

/// A watch of two pods with two ranks each that has not begun.
fn unwatched(on_nan: OnNan) -> Watching {
    let watch = SupervisedWatch {
        mode: WatchMode::Act,
        hang_after_ms: 600_000,
        hang_floor_ms: 2_000,
        first_step_within_ms: 60_000,
        on_nan,
    };
    let ranks = SupervisedRanks {
        first: 0,
        count: 2,
        all: 4,
    };
    Watching::new(JOB, watch, ranks, worker(0)).unwrap()
}

fn watched_on_nan(on_nan: OnNan) -> (Leader, Watching) {
    let mut leader = Leader::new(JOB.to_owned(), Limits::default(), Duration::ZERO);
    let mut watching = unwatched(on_nan);
    order(&mut leader, Command::Go { attempt: 1 }, Duration::ZERO);
    for index in 0..2 {
        watching.step(&leader, [0].into_iter(), seconds(1));
        assert!(watching.watch.is_none(), "pod {index} does not run yet");
        let hello = hello(index, 1, MemberState::Running);
        watching.take_hello(&hello, seconds(1));
        leader.receive_hello(index.into(), &envelope(hello), seconds(1));
        watching.take(
            index.into(),
            worker(index),
            report(index, 1, None, Vec::new()),
            seconds(1),
        );
    }
    watching.step(&leader, [0].into_iter(), seconds(2));
    assert!(watching.watch.is_some());
    (leader, watching)
}

#[test]
fn watch_lasts_from_go_to_stop() {
    let (mut leader, mut watching) = watched();
    let how = trainyard_core::barrier::StopHow::Hang;
    order(&mut leader, Command::Stop { attempt: 1, how }, seconds(3));
    watching.step(&leader, [0].into_iter(), seconds(3));
    assert!(watching.watch.is_none());
    assert_eq!(watching.wake_at(), None);
    order(&mut leader, Command::Go { attempt: 1 }, seconds(4));
    watching.step(&leader, [0].into_iter(), seconds(4));
    assert!(watching.watch.is_none(), "an attempt is watched once");
}

#[test]
fn pods_of_ranks_are_those_that_report_them() {
    let (_, mut watching) = watched();
    let found: Vec<Slot> = (0..5).map(|rank| watching.slot_of(rank)).collect();
    let own = worker(0);
    assert_eq!(found, [worker(0), worker(0), worker(1), worker(1), own]);
    // Ranks that the job does not have are not kept.
    let mut lie = report(1, 1, None, Vec::new());
    lie.first = 4;
    watching.take(1, worker(1), lie, seconds(2));
    assert_eq!(watching.pods.len(), 2);
}

#[test]
fn evidence_is_waited_for_until_all_answer() {
    let (leader, mut watching) = watched();
    // No step within the time for the first one: it asks.
    let asked = (2..200).map(seconds).find_map(|now| {
        let outcome = watching.step(&leader, [0, 1].into_iter(), now);
        outcome.ask.map(|question| (now, question))
    });
    let (now, question) = asked.unwrap();
    assert_eq!((question.attempt, question.stacks), (1, true));
    let answer = |index: u32, number| report(index, 1, Some(number), Vec::new());
    watching.take(
        1,
        worker(1),
        answer(1, question.number.wrapping_add(1)),
        now,
    );
    assert!(watching.awaited.is_some(), "an answer to another question");
    watching.take(1, worker(1), answer(1, question.number), now);
    watching.take(1, worker(1), answer(1, question.number), now);
    assert!(watching.awaited.is_some(), "one has not answered");
    watching.take(0, worker(0), answer(0, question.number), now);
    assert!(watching.awaited.is_none());
    assert_eq!(watching.wake_at(), Some(now), "it looks at once");
}

#[test]
fn ended_programs_are_not_waited_for() {
    let (leader, mut watching) = watched();
    let exit = ProgramExit {
        code: 0,
        signal: None,
    };
    for index in 0..2 {
        watching.take_hello(&hello(index, 1, MemberState::Ended(exit)), seconds(3));
    }
    for now in 3..200 {
        let outcome = watching.step(&leader, [0].into_iter(), seconds(now));
        assert!(
            outcome.ask.is_none() && outcome.hang.is_none(),
            "{outcome:?}"
        );
    }
}

#[test]
fn nothing_is_watched_where_it_is_off() {
    let (_, watching) = watched();
    let off = SupervisedWatch {
        mode: WatchMode::Off,
        hang_after_ms: 0,
        hang_floor_ms: 0,
        first_step_within_ms: 0,
        on_nan: OnNan::Report,
    };
    let ranks = SupervisedRanks::default();
    assert!(Watching::new(JOB, off, ranks, watching.own_slot).is_none());
}

#[test]
fn nan_is_reported_where_the_job_acts_on_it() {
    for (on_nan, want) in [
        (OnNan::Report, None),
        (OnNan::Restart, Some("nan_loss")),
        (OnNan::Stop, Some("nan_loss")),
    ] {
        let (leader, mut watching) = watched_on_nan(on_nan);
        let mut reported = None;
        for step in 1..=6 {
            let loss = if step < 3 { 0.5 } else { f64::NAN };
            let printed = Signal::Step(Step {
                step: Some(step),
                loss: Some(loss),
                ..Step::default()
            });
            let signs = Sign::printed(&printed).into_iter().collect();
            let now = seconds(2 + step);
            watching.take(1, worker(1), report(1, 1, None, signs), now);
            let outcome = watching.step(&leader, [0, 1].into_iter(), now);
            reported = reported.or(outcome.hang);
        }
        let label = reported.as_ref().map(|report| report.label.as_str());
        assert_eq!(label, want, "{on_nan:?}");
        if let Some(report) = reported {
            assert_eq!((report.attempt, report.rank), (1, Some(2)), "{report:?}");
            assert_eq!(report.slot, worker(1), "{report:?}");
        }
    }
}

/// A program that ends early, as one with a wrong path does, does not keep the others from being watched.
#[test]
fn an_attempt_is_watched_although_a_program_ended_early() {
    let mut leader = Leader::new(JOB.to_owned(), Limits::default(), Duration::ZERO);
    let mut watching = unwatched(OnNan::Report);
    order(&mut leader, Command::Go { attempt: 1 }, Duration::ZERO);
    let exit = ProgramExit {
        code: 0,
        signal: None,
    };
    let say = |watching: &mut Watching, leader: &mut Leader, index, state, at| {
        let hello = hello(index, 1, state);
        watching.take_hello(&hello, at);
        leader.receive_hello(index.into(), &envelope(hello), at);
        let outcome = watching.step(leader, [0, 1].into_iter(), at);
        assert!(outcome.hang.is_none(), "{outcome:?}");
    };
    say(
        &mut watching,
        &mut leader,
        1,
        MemberState::Ended(exit),
        seconds(1),
    );
    assert!(watching.watch.is_none(), "the other one has not started");
    // Its container is gone meanwhile.
    leader.member_gone(1);
    assert_eq!(
        watching.wake_at(),
        None,
        "nothing is looked for without news"
    );
    say(
        &mut watching,
        &mut leader,
        0,
        MemberState::Running,
        seconds(2),
    );
    assert!(watching.watch.is_some());
    // The ranks of the ended pod are known late, and are not waited for.
    let own = report(0, 1, None, Vec::new());
    watching.take(0, worker(0), own, seconds(2));
    let late = report(1, 1, None, Vec::new());
    watching.take(1, worker(1), late, seconds(2));
    watching.take_hello(&hello(0, 1, MemberState::Ended(exit)), seconds(3));
    for now in 3..200 {
        let outcome = watching.step(&leader, [0].into_iter(), seconds(now));
        assert!(
            outcome.ask.is_none() && outcome.hang.is_none(),
            "{outcome:?}"
        );
    }
}

/// Members that report one after the other are looked at together.
#[test]
fn looks_whether_all_run_are_rare() {
    let mut leader = Leader::new(JOB.to_owned(), Limits::default(), Duration::ZERO);
    let mut watching = unwatched(OnNan::Report);
    order(&mut leader, Command::Go { attempt: 1 }, Duration::ZERO);
    watching.step(&leader, [0].into_iter(), seconds(1));
    let soon = seconds(1) + BEGIN_EVERY / 2;
    for index in 0..2 {
        let hello = hello(index, 1, MemberState::Running);
        watching.take_hello(&hello, soon);
        leader.receive_hello(index.into(), &envelope(hello), soon);
    }
    watching.step(&leader, [0].into_iter(), soon);
    assert!(watching.watch.is_none());
    assert_eq!(watching.wake_at(), Some(seconds(1) + BEGIN_EVERY));
    watching.step(&leader, [0].into_iter(), seconds(1) + BEGIN_EVERY);
    assert!(watching.watch.is_some());
}
