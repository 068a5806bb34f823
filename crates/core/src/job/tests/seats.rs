//! Gangs in the wait queue.

use std::collections::BTreeMap;

use super::*;

/// A world in which seats are given by hand.
fn waiting(kind: Kind) -> World {
    let mut world = World::new(job(kind));
    world.observed.seating = Seating::Unasked;
    world
}

fn give(world: &mut World) {
    let seats = world.job.slots().zip(0..);
    let seats: BTreeMap<Slot, String> = seats
        .map(|(slot, index): (Slot, u32)| (slot, format!("node-{index}")))
        .collect();
    world.observed.seating = Seating::Given(seats);
}

fn run_all(world: &mut World) {
    for pod in &mut world.observed.pods {
        assert!(!pod.gated, "{} is held back", pod.slot);
        pod.phase = PodPhase::Running;
        pod.ready = true;
        pod.wait = None;
    }
}

fn created(decision: &Decision) -> Vec<(Slot, Seat)> {
    let actions = decision.actions.iter();
    actions
        .filter_map(|action| match action {
            Action::CreatePod { slot, seat, .. } => Some((*slot, seat.clone())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_gang_that_finds_seats_at_once_is_made_in_them() {
    let mut world = waiting(Kind::PyTorch);
    let first = world.pass();
    assert!(first.actions.contains(&Action::AskSeats));
    assert_eq!(created(&first), [], "nothing before the answer");
    assert_eq!(first.reasons[0].code(), Code::WaitingForSeats);
    give(&mut world);
    let second = world.pass();
    let want = [MASTER, worker(0), worker(1)]
        .into_iter()
        .zip(["node-0", "node-1", "node-2"])
        .map(|(slot, node)| (slot, Seat::Node(node.to_owned())));
    assert_eq!(created(&second), want.collect::<Vec<_>>());
}

#[test]
fn a_new_job_asks_before_anything_is_written() {
    let mut world = waiting(Kind::PyTorch);
    let first = world.pass();
    assert_eq!(first.actions, [Action::AskSeats]);
    assert_eq!(first.status, JobStatus::default());
    // One status then shows that it was seen and what it waits for, if there is no answer yet either.
    let second = world.pass();
    assert!(conditions::holds(
        &second.status.conditions,
        ConditionType::Created
    ));
    assert!(second.status.trainyard.waiting.is_some());
    // A job that was seen says that it asks.
    world.observed.seating = Seating::Unasked;
    let again = world.pass();
    assert!(again.actions.contains(&Action::AskSeats));
    assert_ne!(again.status, JobStatus::default());
}

#[test]
fn new_elastic_job_starts_with_some_of_its_nodes() {
    let mut world = World::new(elastic(
        with_roles(job(Kind::PyTorch), &[(Role::Worker, 3)]),
        1,
        3,
    ));
    let seats = [(worker(0), "node-0".to_owned())];
    world.observed.seating = Seating::Given(seats.into());
    let first = world.pass();
    assert!(first.actions.contains(&Action::AskSeats), "for the rest");
    let started = (worker(0), Seat::Node("node-0".to_owned()));
    assert!(created(&first).contains(&started), "{:?}", first.actions);
    assert_ne!(first.status, JobStatus::default());
}

#[test]
fn pods_come_first_where_priority_needs_admission() {
    for kind in [Kind::PyTorch, Kind::MpiV2] {
        let mut world = World::new(job(kind));
        let why = "creating the pods first: priority class `gold` counts once admitted";
        world.observed.seating = Seating::Unadmitted(why.to_owned());
        let first = world.pass();
        assert_ne!(first.status, JobStatus::default(), "{kind}: written first");
        assert!(!first.actions.contains(&Action::AskSeats), "{kind}");
        assert_eq!(first.reasons[0].code(), Code::WaitingForSeats, "{kind}");
        assert_eq!(first.reasons[0].to_string(), why, "{kind}");
        let made = created(&first);
        assert!(!made.is_empty(), "{kind}");
        for (slot, seat) in &made {
            assert_eq!(*seat, Seat::Gated, "{kind} {slot}");
            assert_ne!(slot.role, Role::Launcher, "{kind}");
        }
        // A quota refuses them: the user sees it, and no seats are requested.
        let refusal = Refusal::new("create pod `j-worker-0`", "exceeded quota");
        let there = std::mem::take(&mut world.observed.pods);
        world.observed.refusals = vec![refusal];
        let refused = world.pass();
        assert!(!refused.actions.contains(&Action::AskSeats), "{kind}");
        assert_eq!(refused.reasons[0].code(), Code::Refused, "{kind}");
        world.observed.refusals.clear();
        world.observed.pods = there;
        // They exist now.
        world.observed.seating = Seating::Unasked;
        assert!(world.pass().actions.contains(&Action::AskSeats), "{kind}");
        give(&mut world);
        let seated = world.pass();
        let released = seated.actions.iter();
        let released = released.filter(|action| matches!(action, Action::SeatPod { .. }));
        assert_eq!(released.count(), made.len(), "{kind}");
    }
}

#[test]
fn suspended_job_that_is_not_admitted_asks_for_nothing() {
    let mut world = World::new(job(Kind::PyTorch));
    world.observed.seating = Seating::Unadmitted("creating the pods first".to_owned());
    world.settle();
    world.job.run_policy.suspend = true;
    world.settle();
    assert!(world.observed.pods.is_empty());
}

#[test]
fn a_gang_that_is_refused_is_held_back_and_says_why() {
    let mut world = waiting(Kind::PyTorch);
    world.pass();
    world.observed.seating = Seating::Queued(Some("needs 3 nodes, 2 are free".to_owned().into()));
    let refused = world.settle();
    assert_eq!(refused.reasons[0].to_string(), "needs 3 nodes, 2 are free");
    assert_eq!(world.observed.pods.len(), 3);
    assert!(world.observed.pods.iter().all(|pod| pod.gated));
    give(&mut world);
    let seated = world.pass();
    let released = seated.actions.iter();
    let released = released.filter(|action| matches!(action, Action::SeatPod { .. }));
    assert_eq!(released.count(), 3, "all in one pass");
    run_all(&mut world);
    world.settle();
    assert_eq!(world.observed.status.trainyard.attempt, 1);
    assert_eq!(world.observed.status.trainyard.gang, GangPhase::Whole);
}

#[test]
fn launcher_is_never_gated() {
    for kind in [Kind::MpiV1, Kind::MpiV2] {
        let mut world = waiting(kind);
        world.pass();
        world.observed.seating = Seating::Queued(Some("no room".to_owned().into()));
        world.settle();
        let launchers = |world: &World| {
            let mut pods = world.observed.pods.iter();
            pods.any(|pod| pod.slot == LAUNCHER)
        };
        assert!(!launchers(&world), "{kind}");
        give(&mut world);
        world.settle();
        run_all(&mut world);
        world.settle();
        assert!(launchers(&world), "{kind}");
    }
}

#[test]
fn seats_are_given_back() {
    type Break = fn(&mut World);
    let refused_by_scheduler: Break = |world| {
        world.observed.pods[2].wait = Some(Wait::Seat("insufficient nvidia.com/gpu".to_owned()));
        world.now += 10;
    };
    let slow: Break = |world| {
        world.observed.pods[2].wait = Some(Wait::Pull);
        world.now += 15 * 60;
    };
    // The operator crashed before all pods went, and the seats of the rest are another's by now.
    let forgotten: Break = |world| {
        world.observed.pods[2].gated = true;
        world.observed.pods[2].node = None;
        world.observed.seating = Seating::Queued(Some("needs 1 node more".to_owned().into()));
        world.now += 15 * 60;
    };
    let cases = [
        ("forgotten", forgotten, "900 s after nodes were assigned"),
        (
            "refused",
            refused_by_scheduler,
            "insufficient nvidia.com/gpu",
        ),
        ("slow", slow, "900 s after nodes were assigned"),
    ];
    for (name, breaks, sentence) in cases {
        let mut world = waiting(Kind::PyTorch);
        world.pass();
        give(&mut world);
        world.settle();
        for pod in &mut world.observed.pods[..2] {
            pod.phase = PodPhase::Running;
        }
        world.pass();
        breaks(&mut world);
        let given_back = world.pass();
        let why = given_back.actions.iter().find_map(|action| match action {
            Action::ReleaseSeats { why, .. } => Some(why.as_str()),
            _ => None,
        });
        assert!(
            why.is_some_and(|why| why.contains(sentence)),
            "{name}: {why:?}"
        );
        let removed = given_back.actions.iter();
        let removed = removed.filter(|action| matches!(action, Action::DeletePod { .. }));
        assert_eq!(removed.count(), 3, "{name}: the whole gang goes");
        let record = &world.observed.status.trainyard;
        assert_eq!(
            (record.attempt, record.spent),
            (2, Spent::default()),
            "{name}: no charge"
        );
        let later = world.pass();
        assert_eq!(later.reasons[0].code(), Code::WaitingToRetry, "{name}");
        world.now += 5;
        assert!(
            world.pass().actions.contains(&Action::AskSeats),
            "{name}: in the wait queue again"
        );
    }
}

#[test]
fn a_gang_that_may_not_exist_as_a_whole_is_not_started() {
    let mut world = waiting(Kind::PyTorch);
    world.pass();
    give(&mut world);
    world.pass();
    // Two pods were made, the quota refused the third.
    world.observed.pods.pop();
    let refusal = Refusal::new("create pod `j-worker-1`", "exceeded quota");
    world.observed.refusals = vec![refusal];
    world.pass();
    assert!(world.observed.pods.is_empty(), "all of it is taken back");
    world.now += 5;
    world.pass();
    assert!(
        world.observed.pods.iter().all(|pod| pod.gated),
        "held back until all are there"
    );
    assert_eq!(world.observed.seating, Seating::Unasked, "and in no line");
    world.observed.refusals.clear();
    assert!(world.pass().actions.contains(&Action::AskSeats));
}

#[test]
fn a_job_without_pods_leaves_the_line() {
    let mut world = waiting(Kind::PyTorch);
    world.pass();
    world.job.run_policy.suspend = true;
    world.settle();
    assert_eq!(world.observed.seating, Seating::Unasked);
}

#[test]
fn eviction_charges_preemption_account() {
    let why = "evicted for `default/urgent`: priority 100 is above 0";
    let mut world = waiting(Kind::PyTorch);
    world.pass();
    give(&mut world);
    world.settle();
    run_all(&mut world);
    world.settle();
    world.observed.seating = Seating::Evicted(why.to_owned());
    let left = world.pass();
    let gives_back =
        |action: &Action| matches!(action, Action::ReleaseSeats { why: said, .. } if said == why);
    assert!(left.actions.iter().any(gives_back));
    let removed = left.actions.iter();
    let removed = removed.filter(|action| matches!(action, Action::DeletePod { .. }));
    assert_eq!(removed.count(), 3, "the whole gang goes");
    assert!(
        left.events
            .iter()
            .any(|event| event.reason == "PyTorchJobPreempted" && event.message.contains(why)),
        "{:?}",
        left.events
    );
    let record = &world.observed.status.trainyard;
    let paid = Spent {
        preemption: 1,
        ..Spent::default()
    };
    assert_eq!(
        (record.attempt, record.released, record.spent),
        (2, 1, paid)
    );
    world.observed.seating = Seating::Unasked;
    assert!(
        world.pass().actions.contains(&Action::AskSeats),
        "in the wait queue again"
    );
}

#[test]
fn unused_seats_are_released_without_charge() {
    let mut world = waiting(Kind::PyTorch);
    world.pass();
    world.observed.seating = Seating::Evicted("evicted for `default/urgent`".to_owned());
    let left = world.pass();
    let gives_back = |action: &Action| matches!(action, Action::ReleaseSeats { .. });
    assert!(left.actions.iter().any(gives_back));
    assert_eq!(created(&left), []);
    assert_eq!(world.observed.status.trainyard.spent, Spent::default());
}

#[test]
fn a_gang_that_may_be_preempted_once_fails_at_the_limit() {
    let mut world = waiting(Kind::PyTorch);
    world.job.settings.budget.preemption = Some(crate::spec::Limit::At(1));
    world.pass();
    give(&mut world);
    world.settle();
    run_all(&mut world);
    world.settle();
    world.observed.seating = Seating::Evicted("evicted for `default/urgent`".to_owned());
    let left = world.pass();
    assert!(has_ended(&left.status), "{:?}", left.status.conditions);
    let gives_back = |action: &Action| matches!(action, Action::ReleaseSeats { .. });
    assert!(left.actions.iter().any(gives_back), "and holds nothing");
}
