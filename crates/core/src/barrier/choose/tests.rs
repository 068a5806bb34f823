use super::*;
use crate::spec::Role;

fn facts<'a>() -> FailureFacts<'a> {
    FailureFacts {
        restart_in: RestartIn::Place,
        unsupervised: None,
        leader_connected: true,
        kind: FailureKind::Program,
        place: FailurePlace {
            attempt: 5,
            slot: Slot::new(Role::Worker, 3),
        },
        earlier: &[],
        kept: 4,
        leader_lost: false,
        template: TemplateChange::None,
    }
}

fn place(attempt: u32, index: u32) -> FailurePlace {
    let slot = Slot::new(Role::Worker, index);
    FailurePlace { attempt, slot }
}

#[test]
fn each_no_has_its_sentence() {
    let (near, far, elsewhere) = ([place(3, 3)], [place(2, 3)], [place(4, 1), place(5, 3)]);
    let cases: Vec<(FailureFacts<'_>, Option<&str>)> = vec![
        (facts(), None),
        (
            FailureFacts {
                template: TemplateChange::Words,
                ..facts()
            },
            None,
        ),
        (
            FailureFacts {
                earlier: &far,
                ..facts()
            },
            None,
        ),
        (
            FailureFacts {
                earlier: &elsewhere,
                ..facts()
            },
            None,
        ),
        (
            FailureFacts {
                earlier: &near,
                ..facts()
            },
            Some("Worker 3 failed in attempt 3 already"),
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
                unsupervised: Some("the template has no `command`"),
                ..facts()
            },
            Some("not all pods have a supervisor: the template has no `command`"),
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
                earlier: &near,
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
                kind: FailureKind::TransportRefused,
                ..facts()
            },
            Some("another transport"),
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
            FailureFacts {
                template: TemplateChange::More,
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
