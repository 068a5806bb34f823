//! Pods that are lost before or during a restart in place, and what replaces them.

use super::*;

#[test]
fn lost_member_is_replaced_and_waits() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.pass();
    let pods = &mut gang.world.observed.pods;
    let lost = pods.iter_mut().find(|pod| pod.slot == worker(0)).unwrap();
    lost.phase = PodPhase::Failed;
    gang.pass();
    assert!(
        gang.record()
            .barrier
            .as_ref()
            .unwrap()
            .lost
            .contains(worker(0))
    );
    gang.pass();
    gang.report(1, StateName::Stopped);
    gang.pass();
    assert_eq!(gang.record().attempt, 2);
    let mut created = Vec::new();
    for _ in 0..3 {
        created.extend(
            gang.pass()
                .actions
                .into_iter()
                .filter_map(|action| match action {
                    Action::CreatePod {
                        slot,
                        attempt,
                        waits,
                        ..
                    } => Some((slot, attempt, waits)),
                    _ => None,
                }),
        );
    }
    assert_eq!(created, [(worker(0), 2, true)]);
    gang.all_run();
    gang.pass();
    gang.report(2, StateName::Ready);
    gang.pass();
    assert_eq!(gang.command(), Some(Command::Go { attempt: 2 }));
    assert_eq!(gang.record().spent.user, 1);
    assert_eq!(
        gang.record().spent.platform,
        0,
        "nothing vanishes in a barrier"
    );
}

/// A pod that replaces a lost one and was created without a seat gets the seat that is given later.
#[test]
fn gated_replacement_gets_its_seat() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.pass();
    gang.report(1, StateName::Stopped);
    gang.pass();
    gang.pass();
    let nodes = gang.world.job.slots().map(|slot| (slot, "b".to_owned()));
    gang.world.observed.seating = Seating::Given(nodes.collect());
    let pods = &mut gang.world.observed.pods;
    let new = pods.iter_mut().find(|pod| pod.slot == worker(0)).unwrap();
    (new.uid, new.attempt, new.gated, new.node) = ("new".to_owned(), 2, true, None);
    new.phase = PodPhase::Pending;
    let seated = |actions: &[Action]| {
        let mut actions = actions.iter();
        actions.any(|action| matches!(action, Action::SeatPod { uid, .. } if uid == "new"))
    };
    assert!(seated(&gang.pass().actions) || seated(&gang.pass().actions));
}

/// From a stored barrier to the moment at which the next attempt is stored; then the pod of worker 1 is gone, as its node.
fn stop_and_lose_worker(gang: &mut Gang) {
    gang.pass();
    gang.report(1, StateName::Stopped);
    gang.pass();
    assert_eq!(gang.record().attempt, 2);
    let observed = &mut gang.world.observed;
    observed.pods.retain(|pod| pod.slot != worker(1));
    observed.nodes.clear();
}

#[test]
fn only_lost_pods_are_replaced() {
    type Change = fn(&mut Gang);
    let cases: [(&str, Account, Change); 7] = [
        ("node deleted", Account::Infrastructure, |gang| {
            let nodes = &mut gang.world.observed.nodes;
            nodes.insert("node-1".to_owned(), NodeHealth::Deleted);
        }),
        ("node silent", Account::Infrastructure, |gang| {
            let silent = NodeHealth::SilentSince(at(gang.world.now));
            let nodes = &mut gang.world.observed.nodes;
            nodes.insert("node-1".to_owned(), silent);
            gang.world.now += 3_600;
        }),
        ("peers crash beside a silent node", Account::User, |gang| {
            let silent = NodeHealth::SilentSince(at(gang.world.now));
            let nodes = &mut gang.world.observed.nodes;
            nodes.insert("node-1".to_owned(), silent);
            gang.ends(worker(0), 1);
        }),
        ("evicted", Account::Platform, |gang| {
            let now = at(gang.world.now);
            let pod = gang.world.pod(worker(1));
            (pod.deleted_at, pod.disruption) = (Some(now), Some(Disruption::Evicted));
        }),
        ("deleted", Account::Platform, |gang| {
            let now = at(gang.world.now);
            gang.world.pod(worker(1)).deleted_at = Some(now);
        }),
        ("gone", Account::Platform, |gang| {
            let pods = &mut gang.world.observed.pods;
            pods.retain(|pod| pod.slot != worker(1));
        }),
        ("supervisor killed", Account::User, |gang| {
            let pod = gang.world.pod(worker(1));
            pod.phase = PodPhase::Failed;
            pod.exit = Some(Exit {
                code: 137,
                out_of_memory: false,
                at: None,
            });
        }),
    ];
    for (name, account, change) in cases {
        let mut gang = Gang::of_three();
        let kept = gang.uids()[..2].to_vec();
        change(&mut gang);
        let decision = gang.pass();
        let barrier = gang.record().barrier.clone();
        let barrier = barrier.unwrap_or_else(|| panic!("{name}: {:?}", decision.events));
        assert_eq!(barrier.lost.iter().collect::<Vec<_>>(), [worker(1)]);
        let event = &decision.events[0].message;
        let words = "restarts in place; 1 of 3 pods are replaced.";
        assert!(event.ends_with(words), "{name}: {event}");
        gang.summary.ended.clear();
        stop_and_lose_worker(&mut gang);
        let mut created = Vec::new();
        for _ in 0..3 {
            let actions = gang.pass().actions.into_iter();
            created.extend(actions.filter_map(|action| match action {
                Action::CreatePod { slot, waits, .. } => Some((slot, waits)),
                _ => None,
            }));
            assert_ne!(gang.command(), Some(Command::Go { attempt: 2 }), "{name}");
        }
        assert_eq!(created, [(worker(1), true)], "{name}");
        gang.all_run();
        gang.pass();
        gang.report(2, StateName::Ready);
        let decision = gang.pass();
        assert_eq!(gang.command(), Some(Command::Go { attempt: 2 }), "{name}");
        let event = &decision.events[0].message;
        assert!(event.ends_with(", 1 pod replaced."), "{name}: {event}");
        assert_eq!(gang.uids()[..2], kept, "{name}: the others are kept");
        let spent = gang.record().spent;
        let all = spent.user + spent.platform + spent.infrastructure + spent.preemption;
        assert_eq!((all, spent.of(account)), (1, 1), "{name}: charged once");
    }
}

#[test]
fn no_spare_node_leads_to_new_pods() {
    let mut gang = Gang::of_three();
    let nodes = &mut gang.world.observed.nodes;
    nodes.insert("node-1".to_owned(), NodeHealth::Deleted);
    gang.pass();
    stop_and_lose_worker(&mut gang);
    let message = "1 pod needs 8 GPUs".to_owned();
    gang.world.observed.seating = Seating::Queued(Some(message.into()));
    for _ in 0..3 {
        gang.pass();
        assert!(gang.record().barrier.is_some());
    }
    gang.clock += Duration::from_mins(1);
    let decision = gang.pass();
    assert_eq!(gang.record().barrier, None);
    assert_eq!(gang.record().attempt, 3);
    let event = &decision.events[0].message;
    assert!(event.contains("no other node has room"), "{event}");
    assert!(event.contains("1 pod needs 8 GPUs"), "{event}");
    assert_eq!(gang.record().spent.infrastructure, 1, "charged once");
}

#[test]
fn each_lost_pod_gets_the_whole_time_for_a_node() {
    let mut gang = Gang::of_three();
    let nodes = &mut gang.world.observed.nodes;
    nodes.insert("node-1".to_owned(), NodeHealth::Deleted);
    gang.pass();
    stop_and_lose_worker(&mut gang);
    let message = "1 pod needs 8 GPUs".to_owned();
    gang.world.observed.seating = Seating::Queued(Some(message.into()));
    for _ in 0..3 {
        gang.pass();
    }
    gang.clock += Duration::from_secs(50);
    let pods = &mut gang.world.observed.pods;
    pods.retain(|pod| pod.slot != worker(0));
    gang.pass();
    gang.clock += Duration::from_secs(50);
    gang.pass();
    assert!(gang.record().barrier.is_some(), "50 s of 60");
    gang.clock += Duration::from_secs(10);
    let decision = gang.pass();
    assert_eq!((gang.record().attempt, &gang.record().barrier), (3, &None));
    let of_attempt_2 = |action: &&Action| matches!(action, Action::CreatePod { attempt: 2, .. });
    let created = decision.actions.iter().find(of_attempt_2);
    assert_eq!(created, None, "nothing is done for the attempt that ends");
}
