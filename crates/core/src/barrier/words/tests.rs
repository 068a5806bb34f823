use std::time::Duration;

use super::*;
use crate::{
    barrier::{NewPodsReason, message::StopHow},
    spec::{Role, Slot},
};

fn slots(indices: &[u32]) -> SlotSet {
    indices
        .iter()
        .map(|index| Slot::new(Role::Worker, *index))
        .collect()
}

#[test]
fn sentence_of_each_phase() {
    let barrier = Barrier::begin(3, StopHow::Hang, "rank 2 hangs", SlotSet::default());
    let preparing = Barrier {
        phase: Phase::Preparing,
        lost: slots(&[7]),
        ..barrier.clone()
    };
    let losing = Barrier {
        lost: slots(&[7]),
        ..barrier.clone()
    };
    let cases = [
        (
            &barrier,
            slots(&[1, 2, 3, 4, 5]),
            "stopping: 3 of 8 members have stopped, waiting for Worker 1-5",
        ),
        (
            &barrier,
            slots(&[]),
            "stopping: 8 of 8 members have stopped",
        ),
        (
            &losing,
            slots(&[0]),
            "stopping: 6 of 7 members have stopped, waiting for Worker 0, replacing Worker 7",
        ),
        (
            &losing,
            slots(&[7]),
            "stopping: 7 of 7 members have stopped, waiting for Worker 7, replacing Worker 7",
        ),
        (
            &preparing,
            slots(&[7]),
            "preparing: 7 of 8 members are ready, waiting for Worker 7, replacing Worker 7",
        ),
    ];
    for (barrier, waiting, want) in cases {
        assert_eq!(status_sentence(barrier, &waiting, 8), want);
    }
}

#[test]
fn sentence_of_each_end() {
    let bound = Duration::from_mins(15);
    let reason = NewPodsReason::TooLong { bound };
    let cases = [
        (Outcome::Go { attempt: 4 }, "attempt 4 starts in place"),
        (
            Outcome::NewPods { attempt: 5, reason },
            "attempt 5 starts with new pods: the restart in place took longer than 900 s (`trainyard.dev/start-within`)",
        ),
        (
            Outcome::NoPods {
                wish: Wish::Suspend,
            },
            "the restart ends: the job is suspended",
        ),
    ];
    for (outcome, want) in cases {
        assert_eq!(outcome.to_string(), want);
    }
    let lost = LostMember {
        slot: Slot::new(Role::Worker, 3),
        uid: "u".to_owned(),
        why: LostWhy::NotStopped,
    };
    assert_eq!(
        lost.to_string(),
        "the pod of Worker 3 is replaced: it has not stopped in time"
    );
}
