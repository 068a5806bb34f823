//! What the simulation of a fleet found.

use super::{super::super::testing::amounts, *};
use crate::spec::JobName;

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
        let mut line = seated();
        let names = names(&job());
        for (name, node) in names.iter().zip(["a", "b", "c"]) {
            let (key, resident) = tied(name, node);
            line.set_tied(key, Some(resident));
        }
        // The gang gives its seats back, and the scheduler may still bind its pods.
        line.give_back(&GangKey::of(&job()), &[], time(NOW));
        if gone {
            for name in &names {
                line.set_tied(tied(name, "a").0, None);
            }
            assert!(line.take_stirred() || line.waiting() == 0);
        }
        look_at(&mut line, &other(), (1, 0), &[], NOW);
        line.ask(&GangKey::of(&other()), time(NOW));
        let looked = line.place(time(NOW));
        assert_eq!(looked.seated.len(), usize::from(gone), "gone: {gone}");
        assert!(line.snapshot().pods.is_empty(), "counted only meanwhile");
    }
}

#[test]
fn nodes_of_the_next_attempt_are_held_while_old_pods_are_elsewhere() {
    let mut line = seated();
    for name in ["d", "e", "f"] {
        line.hear_node(name, node(&[], 8));
    }
    // The pods of the last attempt are still on nodes that do not respond; the gang gets others.
    run(&mut line, true);
    for name in ["a", "b", "c"] {
        line.hear_sign(name, false);
    }
    assert_eq!(look(&mut line, 2, &[], NOW), Seating::InLine(None));
    line.place(time(NOW));
    assert_eq!(given(&look(&mut line, 2, &[], NOW)), ["d", "e", "f"]);
    look_at(&mut line, &other(), (1, 0), &[], NOW);
    line.ask(&GangKey::of(&other()), time(NOW));
    assert_eq!(line.place(time(NOW)).seated, [], "nothing is free");
}

#[test]
fn suspended_job_holds_no_nodes() {
    let mut line = seated();
    let mut suspended = job();
    suspended.run_policy.suspend = true;
    let names = names(&job());
    let mut pods: Vec<Sitter<'_>> = names
        .iter()
        .zip(["a", "b", "c"])
        .map(|(name, node)| running(name, node))
        .collect();
    line.give_back(&GangKey::of(&job()), &[], time(NOW));
    let held = |line: &Line| line.holdings().map(|one| one.assigned.len()).sum::<usize>();
    // One is leaving already, the others are seen as they were before.
    pods[0].leaving = true;
    look_at(&mut line, &suspended, (1, 0), &pods, NOW);
    assert_eq!(held(&line), 2);
    line.take_stirred();
    look_at(&mut line, &suspended, (1, 0), &pods[..1], NOW);
    assert_eq!(held(&line), 0, "nobody comes after the pods that are gone");
}

#[test]
fn eviction_is_called_off_when_the_beneficiary_gets_other_nodes() {
    let mut line = seated();
    line.set_class("high", Some(class(1_000)));
    run(&mut line, false);
    ask_urgently(&mut line);
    line.place(time(NOW));
    let names = names(&job());
    let pods = names.iter().zip(["a", "b", "c"]);
    let pods: Vec<Sitter<'_>> = pods.map(|(name, node)| running(name, node)).collect();
    let victim = look(&mut line, 1, &pods, NOW);
    assert!(matches!(victim, Seating::Evicted(_)), "{victim:?}");
    for name in ["d", "e", "f"] {
        line.hear_node(name, node(&[], 8));
    }
    let looked = line.place(time(NOW));
    assert_eq!(looked.seated.len(), 1);
    assert!(looked.changed.contains(&GangKey::of(&job())));
    assert_eq!(given(&look(&mut line, 1, &pods, NOW)), ["a", "b", "c"]);
}

#[test]
fn operator_that_leads_again_goes_by_what_pods_carry() {
    let mut line = seated();
    line.forget_gangs();
    assert_eq!(line.holdings().count(), 0);
    // Another operator has moved the gang meanwhile, and the scheduler has not bound its pods yet.
    let names = names(&job());
    let moved = names.iter().zip(["b", "c", "a"]);
    let moved: Vec<Sitter<'_>> = moved
        .map(|(name, node)| Sitter {
            phase: PodPhase::Pending,
            node: None,
            ..running(name, node)
        })
        .collect();
    assert_eq!(given(&look(&mut line, 1, &moved, NOW)), ["b", "c", "a"]);
}
