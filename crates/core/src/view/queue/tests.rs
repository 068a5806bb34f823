use super::*;
use crate::gang::{Snapshot, place, testing};

/// Four nodes of 8 GPUs, of which `held` has two; `small` and `huge` wait.
fn scene() -> (Snapshot, Vec<Gang>) {
    let snapshot = testing::cluster(1, 2, 2);
    let mut held = testing::gang("held", 2, 8);
    for (pod, node) in held.pods.iter().zip(["b0r0h0", "b0r1h0"]) {
        held.held.insert(pod.name.clone(), node.to_owned());
    }
    let small = testing::gang("small", 3, 8).created(5);
    let huge = testing::gang("huge", 80, 8).created(2);
    (snapshot, vec![small, huge, held])
}

#[test]
fn rows_say_why_and_what_would_help() {
    let (snapshot, gangs) = scene();
    let placement = place(&snapshot, &gangs, testing::time(9));
    let queue = queue(&gangs, &placement, |_| true);
    let rows: Vec<(&str, usize, i64, Option<bool>)> = queue
        .rows
        .iter()
        .map(|it| {
            (
                it.job.as_str(),
                it.position,
                it.accelerators,
                it.fits_when_empty,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("team/huge", 1, 640, Some(false)),
            ("team/small", 2, 24, Some(true))
        ]
    );
    let small = &queue.rows[1];
    assert_eq!(
        small.reason.as_ref(),
        Some(&placement.refused[&testing::key("small")].message)
    );
    let ended = Change::Ended {
        gang: "team/held".to_owned(),
    };
    assert!(small.changes.contains(&ended), "{:?}", small.changes);
    let holder = Holder {
        gang: Some("team/held".to_owned()),
        accelerators: 16,
    };
    assert_eq!(small.waits_for, [holder]);
    assert_eq!(queue.hidden, Hidden::default());
}

#[test]
fn names_of_others_are_in_no_field() {
    let (snapshot, gangs) = scene();
    let placement = place(&snapshot, &gangs, testing::time(9));
    let queue = queue(&gangs, &placement, |key| key.name == "small");
    let text = serde_json::to_string(&queue).unwrap();
    assert!(!text.contains("held") && !text.contains("huge"), "{text}");
    assert_eq!(queue.rows[0].position, 2);
    assert_eq!(
        queue.hidden,
        Hidden {
            gangs: 1,
            accelerators: 640
        }
    );
    assert_eq!(
        queue.rows[0].waits_for,
        [Holder {
            gang: None,
            accelerators: 16
        }]
    );
}

#[test]
fn rows_are_bounded() {
    let gangs: Vec<Gang> = (0..ROWS_MAX + 5)
        .map(|n| testing::gang(&format!("g{n:05}"), 1, 8))
        .collect();
    let queue = queue(&gangs, &Placement::default(), |_| true);
    assert_eq!((queue.rows.len(), queue.rows_left_out), (ROWS_MAX, 5));
}
