//! What is seen of a store by whoever starts attempts.

use std::collections::BTreeMap;

use super::*;

/// What is seen of a store with these records, commits and other folders.
fn look(records: &[RecordSeen], commits: &[CommitSeen], others: &[FolderSeen]) -> StoreSeen {
    let history = lineage(RUN, records, commits);
    let view = TierView {
        tier: Tier::Shared,
        place: "store".into(),
        pieces: (commits.iter())
            .map(|seen| (seen.folder.clone(), whole(seen)))
            .collect(),
    };
    let wanted = Wanted {
        world: 2,
        reshard: true,
        ..Wanted::default()
    };
    let known = suspects_at_start(records, commits);
    let selection = select(&history, &[view], &wanted, &known);
    let mut folders: Vec<FolderSeen> = commits.iter().map(folder).collect();
    folders.extend(others.iter().cloned());
    StoreSeen::new(&history, &selection, &folders)
}

#[test]
fn newest_step_with_its_figures() {
    let commits = [seen(10, 1, 0), seen(20, 1, 0)];
    let partial = bare(&name(30, 1), FolderState::Partial);
    let of_another = bare(&name(40, 9), FolderState::Partial);
    let found = look(&[record(1, 0, &[])], &commits, &[partial, of_another]);
    let newest = found.newest.unwrap();
    assert_eq!(
        newest,
        CompleteStep {
            step: 20,
            attempt: 1,
            bytes: 200,
            snapshot_ms: Some(500),
            write_ms: Some(1000),
            saved_at: jiff::Timestamp::from_second(1_001).ok(),
        }
    );
    assert_eq!(newest.bytes_per_second(), Some(200));
    assert_eq!((found.uncommitted, found.why), (Some(30), None));
    let attempt = NewestAttempt {
        attempt: 1,
        from: ResumedFrom::Nothing,
        job: None,
    };
    assert_eq!(found.attempt, Some(attempt));
    let saves: Vec<u64> = found.saves.iter().map(|save| save.step).collect();
    assert_eq!(saves, [10, 20]);
}

#[test]
fn what_an_attempt_starts_with() {
    type Case<'a> = (&'a str, Vec<RecordSeen>, Option<u64>, &'a str);
    let (old, new) = (seen(10, 1, 0), seen(20, 1, 0));
    let zombie = seen(30, 1, 0);
    let both = [&old, &new];
    let restored = |attempt| {
        RecordSeen::Restored(Restored {
            version: VERSION,
            run: RUN.into(),
            attempt,
            restart: 0,
            folder: new.folder.clone(),
            other: Other::new(),
        })
    };
    let first = record(1, 0, &[]);
    let cases: [Case<'_>; 6] = [
        ("no record", vec![], None, "no attempt has a record"),
        ("one attempt", vec![first.clone()], Some(30), ""),
        // Attempt 2 began without step 30, which a process of attempt 1 committed later.
        (
            "a zombie",
            vec![first.clone(), record(2, 0, &both), restored(2)],
            Some(20),
            "",
        ),
        (
            "one died while it restored",
            vec![first.clone(), record(2, 0, &both)],
            Some(20),
            "",
        ),
        (
            "two died while they restored",
            vec![first.clone(), record(2, 0, &both), record(3, 0, &both)],
            Some(10),
            "2 attempts ended while they restored it (2.0, 3.0)",
        ),
        (
            "one of two restored",
            vec![first, record(2, 0, &both), restored(2), record(3, 0, &both)],
            Some(20),
            "",
        ),
    ];
    let commits = [old.clone(), new.clone(), zombie];
    for (case, records, want, why) in cases {
        let found = look(&records, &commits, &[]);
        let step = found.newest.map(|newest| newest.step);
        assert_eq!(step, want, "{case}");
        let said = found.why.unwrap_or_default();
        assert!(
            said.contains(why) && why.is_empty() == said.is_empty(),
            "{case}: {said}"
        );
    }
}

#[test]
fn figures_of_anybody_are_bounded() {
    let mut strange = seen(10, 1, 0);
    let commit = &mut strange.commit.document;
    commit.seconds = Seconds {
        snapshot: f64::NAN,
        write: 0.0,
    };
    commit.saved_at = Some(i64::MAX);
    let found = look(&[record(1, 0, &[])], &[strange], &[]);
    let newest = found.newest.unwrap();
    assert_eq!((newest.snapshot_ms, newest.write_ms), (None, Some(0)));
    assert_eq!((newest.bytes_per_second(), newest.saved_at), (None, None));
    let many: Vec<CommitSeen> = (0..100).map(|step| seen(step, 1, 0)).collect();
    let found = look(&[record(1, 0, &[])], &many, &[]);
    assert_eq!(found.saves.len(), 32);
    assert_eq!(found.saves.last().map(|save| save.step), Some(99));
}

#[test]
fn unreadable_record_is_unknown() {
    let id = AttemptId::first(2);
    let broken = RecordSeen::Unreadable {
        id,
        why: "torn".into(),
    };
    let found = look(&[record(1, 0, &[]), broken], &[seen(10, 1, 0)], &[]);
    let from = found.attempt.map(|attempt| (attempt.attempt, attempt.from));
    assert_eq!(from, Some((2, ResumedFrom::Unknown)));
    assert_eq!(found.newest.map(|newest| newest.step), Some(10));
    assert_eq!(suspects_at_start(&[], &[]), BTreeMap::new());
}
