//! Gangs whose nodes pass a preflight before they start.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    probe::{Fault, Judgement, NodeRecord, Outcome, Source},
    spec::Preflight,
};

/// A job that requires a preflight and has its seats on `node-0` and so on.
fn seated(kind: Kind) -> World {
    let mut world = World::new(job(kind));
    world.job.settings.preflight = Preflight::Required;
    world.observed.seating = Seating::Unasked;
    world.observed.preflight = SeenPreflight::Here(Box::default());
    world.pass();
    give(&mut world, 0);
    world
}

/// Gives every pod a node of its own, from `first` on.
fn give(world: &mut World, first: u32) {
    let seats = world.job.slots().zip(first..);
    let seats = seats.map(|(slot, index)| (slot, format!("node-{index}")));
    world.observed.seating = Seating::Given(seats.collect());
}

fn here(world: &mut World) -> &mut Preflights {
    match &mut world.observed.preflight {
        SeenPreflight::Here(here) => here,
        other => panic!("preflights are {other:?}"),
    }
}

fn started(decision: &Decision) -> Option<(u32, Vec<&str>)> {
    decision.actions.iter().find_map(|action| match action {
        Action::StartPreflight { round, seats } => {
            Some((*round, seats.keys().map(String::as_str).collect()))
        }
        _ => None,
    })
}

fn pods(decision: &Decision) -> usize {
    let actions = decision.actions.iter();
    actions
        .filter(|action| matches!(action, Action::CreatePod { .. } | Action::SeatPod { .. }))
        .count()
}

fn released(decision: &Decision) -> Option<Vec<String>> {
    decision.actions.iter().find_map(|action| match action {
        Action::ReleaseSeats { avoid, .. } => Some(avoid.clone()),
        _ => None,
    })
}

fn fit(nodes: &[u32]) -> Judgement {
    Judgement {
        fit: nodes.iter().map(|node| format!("node-{node}")).collect(),
        ..Judgement::default()
    }
}

fn unfit(nodes: &[&str]) -> Judgement {
    let fault = Fault {
        check: "link-speed".to_owned(),
        why: "`link-speed` found 10 Gbit/s, needs 100 Gbit/s".to_owned(),
        blamed: true,
    };
    let nodes = nodes.iter().map(|node| ((*node).to_owned(), fault.clone()));
    Judgement {
        unfit: nodes.collect(),
        ..Judgement::default()
    }
}

fn record(outcome: Outcome, until: i64) -> NodeRecord {
    NodeRecord {
        outcome,
        check: String::new(),
        why: "`link-speed` found 10 Gbit/s".to_owned(),
        at: at(0),
        until: at(until),
        covers: "f".to_owned(),
        by: Source::Operator,
    }
}

#[test]
fn a_gang_starts_once_its_nodes_have_passed() {
    let mut world = seated(Kind::PyTorch);
    let first = world.pass();
    assert_eq!(
        started(&first),
        Some((1, vec!["node-0", "node-1", "node-2"]))
    );
    assert_eq!(pods(&first), 0);
    assert_eq!(first.reasons[0].code(), Code::WaitingForPreflight);
    here(&mut world).run = PreflightRun::Runs(1);
    world.now += 20;
    let meanwhile = world.pass();
    assert_eq!((started(&meanwhile), pods(&meanwhile)), (None, 0));
    here(&mut world).run = PreflightRun::Ended(1, Ok(fit(&[0, 1, 2])));
    let last = world.pass();
    assert_eq!(pods(&last), 3);
    assert_eq!(
        last.actions.last(),
        Some(&Action::EndPreflight { round: 1 }),
        "behind the pods"
    );
    assert!(
        world
            .events
            .contains(&"PyTorchJobPreflightPassed".to_owned())
    );
    here(&mut world).run = PreflightRun::Idle;
    for pod in &mut world.observed.pods {
        pod.phase = PodPhase::Running;
    }
    world.settle();
    let state = world.observed.status.trainyard.preflight.clone().unwrap();
    assert_eq!(
        state,
        PreflightState {
            round: 1,
            ..PreflightState::default()
        }
    );
}

#[test]
fn an_unseen_round_is_not_taken_for_the_next() {
    let mut world = seated(Kind::PyTorch);
    // A pass started round 1, and its status is not seen yet.
    here(&mut world).run = PreflightRun::Ended(1, Ok(fit(&[0, 1, 2])));
    let first = world.pass();
    assert_eq!(started(&first).map(|(round, _)| round), Some(2));
    let again = world.pass();
    assert_eq!(pods(&again), 0, "round 1 says nothing about round 2");
    assert_eq!(started(&again).map(|(round, _)| round), Some(2));
}

#[test]
fn bad_node_is_swapped_without_charge() {
    let mut world = seated(Kind::PyTorch);
    world.pass();
    here(&mut world).run = PreflightRun::Ended(1, Ok(unfit(&["node-1"])));
    let swapped = world.pass();
    assert_eq!(released(&swapped), Some(vec!["node-1".to_owned()]));
    assert_eq!(pods(&swapped), 0);
    assert!(swapped.actions.contains(&Action::EndPreflight { round: 1 }));
    let record = &world.observed.status.trainyard;
    assert_eq!((record.attempt, record.spent), (1, Spent::default()));
    // No other node is free: the placement refusal, and what it lacks.
    here(&mut world).run = PreflightRun::Idle;
    world.observed.seating = Seating::Queued(Some("needs 3 nodes, 2 are free".to_owned().into()));
    let waits = world.settle();
    assert_eq!(
        waits.reasons[0].to_string(),
        "needs 3 nodes, 2 are free; 1 of its earlier nodes failed the preflight (`node-1`)"
    );
    give(&mut world, 2);
    let again = world.pass();
    assert_eq!(started(&again).map(|(round, _)| round), Some(2));
    here(&mut world).run = PreflightRun::Ended(2, Ok(fit(&[2, 3])));
    let more = world.pass();
    assert_eq!(pods(&more), 0);
    assert_eq!(
        started(&more).map(|(round, _)| round),
        Some(3),
        "what was measured is not what it has"
    );
    here(&mut world).run = PreflightRun::Ended(3, Ok(fit(&[4])));
    assert_eq!(pods(&world.pass()), 3, "the job starts anyway");
}

#[test]
fn what_is_known_of_nodes_is_not_measured_again() {
    type Case = (
        &'static str,
        BTreeMap<String, NodeRecord>,
        Option<u32>,
        usize,
        Option<usize>,
    );
    let nodes = ["node-0", "node-1", "node-2"];
    let fresh = |outcome| nodes.map(|node| (node.to_owned(), record(outcome, 3_600)));
    let mut one_old = BTreeMap::from(fresh(Outcome::Pass));
    one_old.insert("node-2".to_owned(), record(Outcome::Pass, 0));
    let mut one_bad = BTreeMap::from(fresh(Outcome::Warn));
    one_bad.insert("node-2".to_owned(), record(Outcome::Fail, 3_600));
    let mut was_bad = BTreeMap::new();
    was_bad.insert("node-2".to_owned(), record(Outcome::Fail, 0));
    let cases: [Case; 5] = [
        ("all passed", fresh(Outcome::Pass).into(), None, 3, None),
        (
            "all passed with warnings",
            fresh(Outcome::Warn).into(),
            None,
            3,
            None,
        ),
        ("one is too old", one_old, Some(1), 0, None),
        ("one failed", one_bad, None, 0, Some(1)),
        ("one failed long ago", was_bad, Some(1), 0, None),
    ];
    for (name, records, round, made, avoided) in cases {
        let mut world = seated(Kind::PyTorch);
        here(&mut world).records = records;
        let decision = world.pass();
        assert_eq!(started(&decision).map(|(round, _)| round), round, "{name}");
        assert_eq!(pods(&decision), made, "{name}");
        let avoid = released(&decision).map(|avoid| avoid.len());
        assert_eq!(avoid, avoided, "{name}");
    }
}

#[test]
fn preflight_without_result_backs_off() {
    let mut world = seated(Kind::PyTorch);
    let mut pauses = Vec::new();
    for round in 1..=8 {
        let begun = world.pass();
        assert_eq!(started(&begun).map(|(round, _)| round), Some(round));
        // It never reports.
        here(&mut world).run = PreflightRun::Runs(round);
        world.now += 299;
        assert_eq!(released(&world.pass()), None, "{round}: not yet");
        world.now += 1;
        let given_up = world.pass();
        assert_eq!(released(&given_up), Some(Vec::new()));
        assert!(given_up.actions.contains(&Action::EndPreflight { round }));
        assert_eq!(given_up.reasons[0].code(), Code::WaitingForPreflight);
        assert!(
            given_up.reasons[0]
                .to_string()
                .contains("did not finish within 300 s")
        );
        here(&mut world).run = PreflightRun::Idle;
        world.observed.seating = Seating::Unasked;
        let waits = world.pass();
        assert!(
            !waits.actions.contains(&Action::AskSeats),
            "no seats meanwhile"
        );
        let before = world.now;
        world.now = waits.wake_at.unwrap().as_second() - at(0).as_second();
        pauses.push(world.now - before);
        assert!(world.pass().actions.contains(&Action::AskSeats));
        give(&mut world, 0);
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
    let events = world.events.iter();
    let events = events.filter(|event| *event == "PyTorchJobPreflightFailed");
    assert_eq!(events.count(), 1, "the same event is emitted once");
    assert_eq!(world.observed.status.trainyard.spent, Spent::default());
}

#[test]
fn reason_without_result_is_reported_at_once() {
    let mut world = seated(Kind::PyTorch);
    world.pass();
    let why = "cannot build its pods: no container".to_owned();
    here(&mut world).run = PreflightRun::Ended(1, Err(why));
    let decision = world.pass();
    assert!(
        decision.reasons[0]
            .to_string()
            .starts_with("preflight produced no result: cannot build its pods")
    );
    assert!(
        world
            .events
            .contains(&"PyTorchJobPreflightFailed".to_owned())
    );
}

#[test]
fn what_every_node_fails_is_not_cured_by_other_nodes() {
    let mut world = seated(Kind::PyTorch);
    world.pass();
    let found = Judgement {
        all_failed: Some("all 3 nodes of the gang fail `shm-size`".to_owned()),
        ..unfit(&["node-2"])
    };
    here(&mut world).run = PreflightRun::Ended(1, Ok(found));
    let decision = world.pass();
    assert_eq!(released(&decision), Some(vec!["node-2".to_owned()]));
    assert_eq!(pods(&decision), 0);
    let waiting = world.observed.status.trainyard.waiting.clone().unwrap();
    assert!(waiting.message.contains("node-2") || waiting.message.contains("shm-size"));
    here(&mut world).run = PreflightRun::Idle;
    world.observed.seating = Seating::Unasked;
    let waits = world.pass();
    assert!(
        waits.reasons[0]
            .to_string()
            .starts_with("all 3 nodes of the gang fail `shm-size`")
    );
}

#[test]
fn an_end_of_a_slow_link_is_left_and_not_called_unfit() {
    let mut world = seated(Kind::PyTorch);
    world.pass();
    let found = Judgement {
        all_failed: Some("`path-bandwidth` fails between nodes".to_owned()),
        leave: BTreeSet::from(["node-1".to_owned()]),
        ..Judgement::default()
    };
    here(&mut world).run = PreflightRun::Ended(1, Ok(found));
    let decision = world.pass();
    assert_eq!(released(&decision), Some(vec!["node-1".to_owned()]));
    assert_eq!(pods(&decision), 0);
    let state = world.observed.status.trainyard.preflight.clone().unwrap();
    assert!(state.unfit.is_empty(), "{state:?}");
}

#[test]
fn forgotten_preflight_is_started_again() {
    let mut world = seated(Kind::PyTorch);
    world.pass();
    // It was killed and started again.
    for run in [
        PreflightRun::Idle,
        PreflightRun::Left(1),
        PreflightRun::Ended(7, Ok(fit(&[0, 1, 2]))),
    ] {
        here(&mut world).run = run.clone();
        let again = world.pass();
        assert_eq!(started(&again).map(|(round, _)| round), Some(1), "{run:?}");
        assert_eq!(pods(&again), 0, "{run:?}");
    }
}

#[test]
fn a_job_that_wants_no_pods_ends_its_preflight() {
    type Change = fn(&mut World);
    let cases: [(&str, Change); 3] = [
        ("suspended", |world| world.job.run_policy.suspend = true),
        ("deleted", |world| world.observed.being_deleted = true),
        ("no longer required", |world| {
            world.job.settings.preflight = Preflight::Off;
        }),
    ];
    for (name, change) in cases {
        let mut world = seated(Kind::PyTorch);
        world.pass();
        here(&mut world).run = PreflightRun::Runs(1);
        change(&mut world);
        let decision = world.pass();
        let end = Action::EndPreflight { round: 1 };
        assert!(decision.actions.contains(&end), "{name}");
    }
}

#[test]
fn where_none_can_be_run_the_job_waits_or_says_so() {
    let why = SeenPreflight::Unable("this operator was given no image of its own".to_owned());
    let mut world = seated(Kind::PyTorch);
    world.observed.preflight = why.clone();
    for _ in 0..2 {
        let decision = world.pass();
        assert_eq!(pods(&decision), 0);
        assert_eq!(decision.reasons[0].code(), Code::WaitingForPreflight);
    }
    let events = world
        .events
        .iter()
        .filter(|event| event.ends_with("Preflight"));
    assert_eq!(events.count(), 1, "once");
    // Another scheduler assigns the nodes.
    let mut world = World::new(job(Kind::PyTorch));
    world.job.settings.preflight = Preflight::Required;
    world.observed.preflight = why;
    let decision = world.pass();
    assert_eq!(pods(&decision), 3);
    assert!(
        world
            .events
            .contains(&"PyTorchJobPreflightNotRun".to_owned())
    );
}

#[test]
fn what_is_left_of_one_goes_when_the_seats_are_gone() {
    let mut world = seated(Kind::PyTorch);
    world.pass();
    // The adapter was killed and started again: it remembers neither.
    world.observed.seating = Seating::Unasked;
    here(&mut world).run = PreflightRun::Left(1);
    let decision = world.pass();
    let end = Action::EndPreflight { round: 1 };
    assert!(decision.actions.contains(&end) && decision.actions.contains(&Action::AskSeats));
    here(&mut world).run = PreflightRun::Idle;
    give(&mut world, 0);
    let again = world.pass();
    assert_eq!(started(&again).map(|(round, _)| round), Some(2));
}

#[test]
fn the_node_of_a_launcher_is_not_looked_at() {
    let mut world = seated(Kind::MpiV2);
    let first = world.pass();
    assert_eq!(started(&first), Some((1, vec!["node-1", "node-2"])));
}

#[test]
fn unfit_node_event_is_emitted_once() {
    let mut world = seated(Kind::PyTorch);
    let failed = record(Outcome::Fail, 3600);
    here(&mut world).records.insert("node-0".to_owned(), failed);
    let events = |world: &World| {
        let events = world.events.iter();
        events.filter(|event| event.ends_with("UnfitNodes")).count()
    };
    world.pass();
    assert_eq!(events(&world), 1);
    // Old pods, say, whose names the next ones need.
    let waiting = &mut world.observed.status.trainyard.waiting;
    waiting.as_mut().unwrap().message =
        "2 pods cannot be created until pods with the same name are deleted".to_owned();
    world.pass();
    assert_eq!(
        events(&world),
        1,
        "the seats are still there, and the event is not repeated"
    );
}

#[test]
fn a_preflight_that_no_pod_waits_for_ends() {
    type Change = fn(&mut World);
    let cases: [(&str, Kind, Change); 3] = [
        ("no workers any more", Kind::MpiV2, |world| {
            world.job.roles.get_mut(&Role::Worker).unwrap().replicas = 0;
        }),
        ("another scheduler assigns nodes", Kind::PyTorch, |world| {
            world.observed.seating = Seating::Open;
        }),
        ("preflights are not used any more", Kind::PyTorch, |world| {
            world.observed.preflight = SeenPreflight::Unused;
        }),
    ];
    for (name, kind, change) in cases {
        let mut world = seated(kind);
        world.pass();
        here(&mut world).run = PreflightRun::Runs(1);
        change(&mut world);
        let decision = world.pass();
        let state = world.observed.status.trainyard.preflight.clone();
        let since = state.and_then(|state| state.since);
        assert_eq!(since, None, "{name}: no pod waits");
        if let SeenPreflight::Here(_) = world.observed.preflight {
            let end = Action::EndPreflight { round: 1 };
            assert!(decision.actions.contains(&end), "{name}");
        }
    }
}
