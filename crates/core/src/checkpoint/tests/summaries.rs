//! What `ls` prints.

use std::collections::BTreeMap;

use super::*;

#[test]
fn every_state_has_a_reason() {
    let (old, torn, good, zombie) = (
        seen(10, 1, 0),
        seen(20, 1, 0),
        seen(30, 2, 0),
        seen(99, 1, 0),
    );
    let mut short = folder(&torn);
    short.pieces.as_mut().unwrap()[1].files[0] = 50;
    let mut partial = bare(&name(40, 2), FolderState::Partial);
    partial.pieces = Some(whole(&good)[..1].to_vec());
    let mut foreign = seen(70, 1, 0);
    foreign.commit.document.run = "run-2".into();
    let unreadable = FolderState::Unreadable {
        why: "the file is empty".into(),
    };
    let folders = [
        bare(&name(5, 1), FolderState::Removed),
        partial,
        folder(&zombie),
        folder(&good),
        short,
        folder(&old),
        bare(&name(60, 2), unreadable),
        folder(&foreign),
        FolderSeen {
            folder: "tmp".into(),
            ..bare(&name(1, 1), FolderState::Partial)
        },
    ];
    let records = [record(1, 0, &[]), record(2, 0, &[&old, &torn])];
    let summary = summary(RUN, &records, &folders, &BTreeMap::new(), Some(1_061));
    let lines: Vec<(u64, &str, &str)> = (summary.steps.iter())
        .map(|line| {
            (
                line.name.step,
                line.state.name(),
                line.why.as_deref().unwrap_or(""),
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            (10, "complete", ""),
            (20, "suspect", "missing or truncated: the piece of rank 1"),
            (30, "complete", ""),
            (5, "removed", "its removal has begun"),
            (40, "partial", "not committed; 1 pieces are there"),
            (
                60,
                "suspect",
                "its commit cannot be read: the file is empty"
            ),
            (
                99,
                "fenced",
                "attempt 1.0 committed it after attempt 2.0 had begun without it"
            ),
        ]
    );
    let newest = summary.newest().unwrap();
    assert_eq!(
        (newest.name.step, newest.name.attempt, newest.bytes),
        (30, 2, 200)
    );
    assert_eq!(
        (newest.age, newest.world, newest.restart),
        (Some(60), Some(2), Some(0))
    );
    assert_eq!(summary.attempt, Some(AttemptId::first(2)));
    assert_eq!(
        summary.notes,
        [
            format!("`{}` is a folder of another run, `run-2`", foreign.folder),
            "`tmp` is not a step folder".to_owned()
        ]
    );
}

#[test]
fn clock_changes_ages_only() {
    let folders = [folder(&seen(10, 1, 0)), folder(&seen(20, 1, 0))];
    let records = [record(1, 0, &[])];
    let at = |now| summary(RUN, &records, &folders, &BTreeMap::new(), now);
    for (now, age) in [
        (Some(1_001), Some(0)),
        (Some(1_000), None),
        (Some(i64::MIN), None),
        (None, None),
        (Some(87_401), Some(86_400)),
    ] {
        let summary = at(now);
        assert_eq!(summary.newest().unwrap().age, age);
        assert_eq!(summary.newest().unwrap().name.step, 20);
    }
}

#[test]
fn unreadable_record_is_noted() {
    let records = [RecordSeen::Unreadable {
        id: AttemptId::first(4),
        why: "the file is empty".into(),
    }];
    let summary = summary(RUN, &records, &[], &BTreeMap::new(), None);
    assert_eq!(
        summary.notes,
        ["the record of attempt 4.0 cannot be read: the file is empty"]
    );
    assert_eq!(summary.newest(), None);
}

#[test]
fn what_could_not_be_read_is_suspect() {
    let (old, new) = (seen(10, 1, 0), seen(20, 1, 0));
    let bad = [(
        new.folder.clone(),
        "chunk 3 of rank 1 is damaged".to_owned(),
    )]
    .into();
    let folders = [folder(&old), folder(&new)];
    let summary = summary(RUN, &[record(1, 0, &[])], &folders, &bad, None);
    assert_eq!(summary.newest().unwrap().name.step, 10);
    assert_eq!(
        summary.steps[1].why.as_deref(),
        Some("chunk 3 of rank 1 is damaged")
    );
}
