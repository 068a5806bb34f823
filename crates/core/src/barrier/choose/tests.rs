use super::*;
use crate::spec::Role;

fn facts() -> FailureFacts {
    FailureFacts {
        restart_in: RestartIn::Place,
        leader_connected: true,
        kind: FailureKind::Program,
        place: FailurePlace {
            attempt: 5,
            slot: Slot::new(Role::Worker, 3),
        },
        before: None,
        kept: 4,
        leader_lost: false,
        template_changed: false,
    }
}

fn place(attempt: u32, index: u32) -> FailurePlace {
    let slot = Slot::new(Role::Worker, index);
    FailurePlace { attempt, slot }
}

#[test]
fn each_no_has_its_sentence() {
    let cases: Vec<(FailureFacts, Option<&str>)> = vec![
        (facts(), None),
        (
            FailureFacts {
                before: Some(place(3, 3)),
                ..facts()
            },
            None,
        ),
        (
            FailureFacts {
                before: Some(place(4, 1)),
                ..facts()
            },
            None,
        ),
        (
            FailureFacts {
                before: Some(place(4, 3)),
                ..facts()
            },
            Some("Worker 3 failed in attempt 4 already"),
        ),
        (
            FailureFacts {
                restart_in: RestartIn::Pods,
                ..facts()
            },
            Some("`trainyard.dev/restart-in` is `pods`"),
        ),
        (
            FailureFacts {
                leader_connected: false,
                ..facts()
            },
            Some("no connection to the operator"),
        ),
        (
            FailureFacts {
                kind: FailureKind::Pod,
                before: Some(place(4, 3)),
                ..facts()
            },
            None,
        ),
        (
            FailureFacts {
                kind: FailureKind::Pod,
                kept: 0,
                leader_lost: true,
                ..facts()
            },
            Some("no member could be kept"),
        ),
        (
            FailureFacts {
                kind: FailureKind::Pod,
                leader_connected: false,
                ..facts()
            },
            Some("no connection to the operator"),
        ),
        (
            FailureFacts {
                kind: FailureKind::CannotStop,
                ..facts()
            },
            Some("a program cannot be stopped"),
        ),
        (
            FailureFacts {
                leader_lost: true,
                leader_connected: false,
                ..facts()
            },
            Some("the pod of the leader was lost"),
        ),
        (
            // No attempt follows this one.
            FailureFacts {
                before: Some(FailurePlace {
                    attempt: u32::MAX,
                    ..facts().place
                }),
                ..facts()
            },
            None,
        ),
        (
            FailureFacts {
                template_changed: true,
                ..facts()
            },
            Some("the pod template changed"),
        ),
    ];
    for (facts, want) in cases {
        match (choose(&facts), want) {
            (RestartWay::InPlace, None) => {}
            (RestartWay::NewPods(reason), Some(want)) => {
                let sentence = reason.to_string();
                assert!(sentence.contains(want), "{sentence}");
            }
            (got, want) => panic!("{facts:?}: {got:?}, wanted {want:?}"),
        }
    }
}
