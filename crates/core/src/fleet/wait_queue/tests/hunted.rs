//! What the simulation of a fleet found.

use super::*;
use crate::{gang::testing::amounts, spec::JobName};

/// Another job of the same size.
fn other() -> Job {
    let mut other = job();
    other.name = JobName::parse("other").unwrap();
    other
}

fn tied(name: &str, node: &str) -> (PodKey, Resident) {
    let key = PodKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    let resident = Resident {
        node: node.to_owned(),
        gang: Some(GangKey::of(&job())),
        requests: amounts(&[(GPU, 8)]),
        ..Resident::default()
    };
    (key, resident)
}

#[test]
fn unbound_pods_keep_their_nodes_until_they_are_gone() {
    for gone in [true, false] {
        let mut queue = seated();
        let names = names(&job());
        for (name, node) in names.iter().zip(["a", "b", "c"]) {
            let (key, resident) = tied(name, node);
            queue.set_tied(key, Some(resident));
        }
        // The gang gives its seats back, and the scheduler may still bind its pods.
        queue.release_seats(&GangKey::of(&job()), &[], time(NOW));
        if gone {
            for name in &names {
                queue.set_tied(tied(name, "a").0, None);
            }
            assert!(queue.take_placement_due() || queue.waiting() == 0);
        }
        look_at(&mut queue, &other(), (1, 0), &[], NOW);
        queue.ask(&GangKey::of(&other()), time(NOW));
        let looked = queue.place(time(NOW));
        assert_eq!(looked.seated.len(), usize::from(gone), "gone: {gone}");
        assert!(queue.snapshot().pods.is_empty(), "counted only meanwhile");
    }
}

#[test]
fn next_attempt_nodes_are_held_beside_old_pods() {
    let mut queue = seated();
    for name in ["d", "e", "f"] {
        queue.update_node(name, node(&[], 8));
    }
    // The pods of the last attempt are still on nodes that do not respond; the gang gets others.
    run(&mut queue, true);
    for name in ["a", "b", "c"] {
        queue.set_node_responding(name, false);
    }
    assert_eq!(look(&mut queue, 2, &[], NOW), Seating::Queued(None));
    queue.place(time(NOW));
    assert_eq!(given(&look(&mut queue, 2, &[], NOW)), ["d", "e", "f"]);
    look_at(&mut queue, &other(), (1, 0), &[], NOW);
    queue.ask(&GangKey::of(&other()), time(NOW));
    assert_eq!(queue.place(time(NOW)).seated, [], "nothing is free");
}

#[test]
fn suspended_job_holds_no_nodes() {
    let mut queue = seated();
    let mut suspended = job();
    suspended.run_policy.suspend = true;
    let names = names(&job());
    let mut pods: Vec<GangPod<'_>> = names
        .iter()
        .zip(["a", "b", "c"])
        .map(|(name, node)| running(name, node))
        .collect();
    queue.release_seats(&GangKey::of(&job()), &[], time(NOW));
    let held = |queue: &WaitQueue| {
        queue
            .holdings()
            .map(|one| one.assigned.len())
            .sum::<usize>()
    };
    // One is leaving already, the others are seen as they were before.
    pods[0].leaving = true;
    look_at(&mut queue, &suspended, (1, 0), &pods, NOW);
    assert_eq!(held(&queue), 2);
    queue.take_placement_due();
    look_at(&mut queue, &suspended, (1, 0), &pods[..1], NOW);
    assert_eq!(held(&queue), 0, "nobody comes after the pods that are gone");
}

#[test]
fn eviction_is_cancelled_when_unneeded() {
    let mut queue = seated();
    queue.set_class("high", Some(class(1_000)));
    run(&mut queue, false);
    ask_urgently(&mut queue);
    queue.place(time(NOW));
    let names = names(&job());
    let pods = names.iter().zip(["a", "b", "c"]);
    let pods: Vec<GangPod<'_>> = pods.map(|(name, node)| running(name, node)).collect();
    let victim = look(&mut queue, 1, &pods, NOW);
    assert!(matches!(victim, Seating::Evicted(_)), "{victim:?}");
    for name in ["d", "e", "f"] {
        queue.update_node(name, node(&[], 8));
    }
    let looked = queue.place(time(NOW));
    assert_eq!(looked.seated.len(), 1);
    assert!(looked.changed.contains(&GangKey::of(&job())));
    assert_eq!(given(&look(&mut queue, 1, &pods, NOW)), ["a", "b", "c"]);
}

#[test]
fn operator_that_leads_again_goes_by_what_pods_carry() {
    let mut queue = seated();
    queue.forget_gangs();
    assert_eq!(queue.holdings().count(), 0);
    // Another operator has moved the gang meanwhile, and the scheduler has not bound its pods yet.
    let names = names(&job());
    let moved = names.iter().zip(["b", "c", "a"]);
    let moved: Vec<GangPod<'_>> = moved
        .map(|(name, node)| GangPod {
            phase: PodPhase::Pending,
            node: None,
            ..running(name, node)
        })
        .collect();
    assert_eq!(given(&look(&mut queue, 1, &moved, NOW)), ["b", "c", "a"]);
}
