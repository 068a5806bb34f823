//! What is removed, and everything that never is.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Steps 10 to 50 of attempt 1, all durable, and a record of attempt 1.
fn five() -> (Vec<CommitSeen>, Lineage, Uses) {
    let commits: Vec<CommitSeen> = (1..=5).map(|number| seen(number * 10, 1, 0)).collect();
    let lineage = lineage(RUN, &[record(1, 0, &[])], &commits);
    let uses = Uses {
        durable: commits.iter().map(|seen| seen.folder.clone()).collect(),
        ..Uses::default()
    };
    (commits, lineage, uses)
}

fn removed(retention: &Retention) -> Vec<u64> {
    retention.remove.iter().map(|(name, _)| name.step).collect()
}

fn keep(last: u32) -> Policy {
    Policy { last, every: None }
}

#[test]
fn last_ones_stay() {
    let (commits, lineage, uses) = five();
    let folders: Vec<_> = commits.iter().rev().map(folder).collect();
    for (last, gone) in [
        (3, vec![10, 20]),
        (5, vec![]),
        (100, vec![]),
        (2, vec![10, 20, 30]),
        (1, vec![10, 20, 30]),
        (0, vec![10, 20, 30]),
    ] {
        let retention = retain(&lineage, &folders, &keep(last), &uses);
        assert_eq!(removed(&retention), gone, "last {last}");
    }
    let verified = Uses {
        verified: [name(50, 1)].into(),
        ..uses
    };
    let one = retain(&lineage, &folders, &keep(1), &verified);
    assert_eq!(removed(&one), [10, 20, 30, 40]);
    assert_eq!(one.remove[0].1.to_string(), "1 newer commits are complete");
    assert_eq!(one.keep, [(name(50, 1).to_string(), vec![KeepWhy::Last])]);
}

#[test]
fn each_reason_keeps() {
    let (commits, lineage, uses) = five();
    let folders: Vec<_> = commits.iter().map(folder).collect();
    let ten = || BTreeSet::from([name(10, 1)]);
    for (uses, why) in [
        (
            Uses {
                pinned: ten(),
                ..uses.clone()
            },
            KeepWhy::Pinned,
        ),
        (
            Uses {
                reading: ten(),
                ..uses.clone()
            },
            KeepWhy::Reading,
        ),
        (
            Uses {
                writing: ten(),
                ..uses.clone()
            },
            KeepWhy::Writing,
        ),
        (
            Uses {
                not_drained: ten(),
                ..uses.clone()
            },
            KeepWhy::NotDrained,
        ),
    ] {
        let retention = retain(&lineage, &folders, &keep(3), &uses);
        assert_eq!(removed(&retention), [20]);
        assert_eq!(retention.keep[0], (name(10, 1).to_string(), vec![why]));
    }
    let every = Policy {
        last: 3,
        every: Some(20),
    };
    assert_eq!(removed(&retain(&lineage, &folders, &every, &uses)), [10]);
    let never = Policy {
        last: 3,
        every: Some(0),
    };
    assert_eq!(
        removed(&retain(&lineage, &folders, &never, &uses)),
        [10, 20]
    );
}

#[test]
fn suspect_and_volatile_ones_do_not_count() {
    let (commits, lineage, uses) = five();
    let folders: Vec<_> = commits.iter().map(folder).collect();
    let suspect = Uses {
        suspects: [
            (name(50, 1), "bad".to_owned()),
            (name(40, 1), "bad".to_owned()),
        ]
        .into(),
        ..uses.clone()
    };
    assert_eq!(
        removed(&retain(&lineage, &folders, &keep(2), &suspect)),
        [10]
    );
    let mut volatile = uses;
    volatile.durable = [name(10, 1)].into();
    let retention = retain(&lineage, &folders, &keep(1), &volatile);
    assert_eq!(removed(&retention), [] as [u64; 0]);
    assert_eq!(retention.keep[0].1, [KeepWhy::NotReplaced]);
}

#[test]
fn resumed_from_stays() {
    let old: Vec<CommitSeen> = (1..=3).map(|number| seen(number * 10, 1, 0)).collect();
    let own: Vec<CommitSeen> = (4..=8).map(|number| seen(number * 10, 2, 0)).collect();
    let records = [record(2, 0, &old.iter().collect::<Vec<_>>())];
    let all: Vec<CommitSeen> = old.into_iter().chain(own).collect();
    let uses = Uses {
        durable: all.iter().map(|seen| seen.folder.clone()).collect(),
        ..Uses::default()
    };
    let lineage = lineage(RUN, &records, &all);
    let folders: Vec<_> = all.iter().map(folder).collect();
    let retention = retain(&lineage, &folders, &keep(2), &uses);
    assert_eq!(removed(&retention), [10, 20, 40, 50, 60]);
}

#[test]
fn partial_folders() {
    let (commits, lineage, uses) = five();
    let partial = |step, attempt| bare(&name(step, attempt), FolderState::Partial);
    for (partial, uses, gone) in [
        (partial(90, 0), &uses, true),
        (partial(45, 1), &uses, true),
        (partial(60, 1), &uses, false),
        (partial(5, 2), &uses, false),
        (bare(&name(60, 1), FolderState::Removed), &uses, true),
        (
            partial(45, 1),
            &Uses {
                writing: [name(45, 1)].into(),
                ..uses.clone()
            },
            false,
        ),
    ] {
        let mut folders: Vec<_> = commits.iter().map(folder).collect();
        folders.push(partial.clone());
        let retention = retain(&lineage, &folders, &keep(5), uses);
        assert_eq!(
            retention.remove.len(),
            usize::from(gone),
            "{}",
            partial.folder
        );
    }
}

#[test]
fn side_branches_wait_for_a_history() {
    let (base, zombie) = (seen(10, 1, 0), seen(20, 1, 0));
    let records = [record(2, 0, &[&base])];
    let own: Vec<CommitSeen> = [15, 25].map(|step| seen(step, 2, 0)).into();
    for (own, gone) in [
        (&own[..0], vec![]),
        (&own[..1], vec![20]),
        (&own[..], vec![20]),
    ] {
        let all: Vec<_> = [&base, &zombie].into_iter().chain(own).cloned().collect();
        let lineage = lineage(RUN, &records, &all);
        let uses = Uses {
            durable: all.iter().map(|seen| seen.folder.clone()).collect(),
            ..Uses::default()
        };
        let folders: Vec<_> = all.iter().map(folder).collect();
        let retention = retain(&lineage, &folders, &keep(2), &uses);
        assert_eq!(removed(&retention), gone);
    }
}

#[test]
fn doubt_keeps() {
    let (commits, _, uses) = five();
    let mut foreign = folder(&commits[0]);
    foreign.folder = "lost+found".into();
    let mut other = bare(&name(1, 0), FolderState::Partial);
    other.other_run = Some("run-2".into());
    let newer = FolderState::Unreadable {
        why: "format version 2".into(),
    };
    let folders = [foreign, other, bare(&name(1, 0), newer)];
    let lineage_of = |records: &[RecordSeen]| lineage(RUN, records, &commits);
    let good = lineage_of(&[record(1, 0, &[])]);
    let retention = retain(&good, &folders, &keep(2), &uses);
    let whys: Vec<String> = (retention.keep.iter())
        .map(|(_, whys)| whys[0].to_string())
        .collect();
    assert_eq!(
        whys,
        [
            "not a folder of this run",
            "not a folder of this run",
            "its commit cannot be read: format version 2"
        ]
    );
    let folders: Vec<_> = commits.iter().map(folder).collect();
    let broken = RecordSeen::Unreadable {
        id: AttemptId::first(2),
        why: "damaged".into(),
    };
    for records in [vec![], vec![record(1, 0, &[]), broken]] {
        let retention = retain(&lineage_of(&records), &folders, &keep(2), &uses);
        assert_eq!(retention.remove, []);
        assert_eq!(retention.keep[0].1, [KeepWhy::NoRecord]);
    }
}

#[test]
fn shared_files_go_last() {
    let mut old = seen(10, 1, 0);
    let mut new = seen(20, 1, 0);
    let file = |letter: &str| SharedRef {
        blake3: letter.repeat(64),
        bytes: 10,
        data: 8,
    };
    old.commit.document.shared = vec![file("a"), file("b")];
    new.commit.document.shared = vec![file("b")];
    let present: BTreeSet<String> = ["a", "b", "c"].map(|letter| letter.repeat(64)).into();
    let mut folders = vec![folder(&old), folder(&new)];
    let mut retention = Retention::default();
    assert_eq!(
        sweep_shared(&present, &folders, &retention),
        ["c".repeat(64)]
    );
    retention.remove = vec![(old.folder, RemoveWhy::Replaced { by: 1 })];
    assert_eq!(
        sweep_shared(&present, &folders, &retention),
        ["a".repeat(64), "c".repeat(64)]
    );
    folders.push(bare(&name(30, 1), FolderState::Partial));
    assert!(sweep_shared(&present, &folders, &retention).is_empty());
}

fn some<T: Clone + std::fmt::Debug + Ord + 'static>(
    of: Vec<T>,
) -> impl Strategy<Value = BTreeSet<T>> {
    let count = of.len();
    prop::sample::subsequence(of, 0..=count).prop_map(|some| some.into_iter().collect())
}

fn any_uses(all: &[StepName]) -> impl Strategy<Value = Uses> {
    let few = |all: &[StepName]| prop::sample::subsequence(all.to_vec(), 0..=2);
    (
        some(all.to_vec()),
        some(all.to_vec()),
        (few(all), few(all), few(all), few(all), few(all)),
    )
        .prop_map(
            |(durable, verified, (suspects, pinned, reading, writing, not_drained))| Uses {
                durable,
                verified,
                suspects: suspects
                    .into_iter()
                    .map(|name| (name, "bad".into()))
                    .collect(),
                pinned: pinned.into_iter().collect(),
                reading: reading.into_iter().collect(),
                writing: writing.into_iter().collect(),
                not_drained: not_drained.into_iter().collect(),
            },
        )
}

/// Commits of attempts 1 to 3 around a record of attempt 2 that resumed from any of the first, and folders without commit.
fn all_commits() -> Vec<CommitSeen> {
    let mut commits: Vec<CommitSeen> = (1..=6).map(|number| seen(number * 10, 1, 0)).collect();
    commits.extend((3..=8).map(|number| seen(number * 10, 2, 0)));
    commits.extend([seen(90, 3, 0)]);
    commits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nevers(
        acknowledged in 0_usize..=6,
        resumed in any::<prop::sample::Index>(),
        own in 0_usize..=6,
        last in 0_u32..5,
        every in prop::option::of(1_u64..40),
        uses in any_uses(&all_commits().into_iter().map(|seen| seen.folder).collect::<Vec<_>>()),
    ) {
        let mut commits = all_commits();
        let known: Vec<&CommitSeen> = commits[..acknowledged].iter().collect();
        let RecordSeen::Fence(mut fence) = record(2, 0, &known) else { panic!("a record") };
        if acknowledged > 0 {
            fence.resumes_from = Some(known[resumed.index(acknowledged)].reference());
        }
        commits.drain(6 + own..12);
        let lineage = lineage(RUN, &[RecordSeen::Fence(fence.clone())], &commits);
        let mut folders: Vec<FolderSeen> = commits.iter().map(folder).collect();
        folders.push(bare(&name(35, 2), FolderState::Partial));
        folders.push(bare(&name(35, 3), FolderState::Partial));
        folders.push(bare(&name(36, 1), FolderState::Removed));
        let policy = Policy { last, every };
        let retention = retain(&lineage, &folders, &policy, &uses);

        prop_assert_eq!(retention.keep.len() + retention.remove.len(), folders.len());
        let gone: BTreeSet<&StepName> = retention.remove.iter().map(|(name, _)| name).collect();
        let good: Vec<&StepName> = lineage.commits.iter().map(|seen| &seen.folder)
            .filter(|name| uses.durable.contains(name) && !uses.suspects.contains_key(name))
            .collect();
        let committed: Vec<&StepName> = gone.iter().copied()
            .filter(|name| commits.iter().any(|seen| seen.folder == **name)).collect();
        let left = good.iter().filter(|name| !gone.contains(*name)).count();
        // Never fewer than two complete ones, or one that was verified where one is enough.
        let newest = good.last();
        let verified = newest.is_some_and(|name| uses.verified.contains(name));
        let least = if verified && last <= 1 { 1 } else { 2_usize.max(last as usize) };
        prop_assert!(committed.is_empty() || left >= least);
        // Never the newest, good or not.
        prop_assert!(lineage.newest().is_none_or(|seen| !gone.contains(&seen.folder)));
        // Never before a newer one of the history is durable.
        for name in &committed {
            let place = lineage.commits.iter().position(|seen| seen.folder == **name);
            let newer = &lineage.commits[place.map_or(0, |place| place + 1)..];
            prop_assert!(newer.iter().any(|seen| uses.durable.contains(&seen.folder)));
        }
        // Never what is used, resumed from, of a higher attempt, or named by the policy.
        for name in &gone {
            prop_assert!(!uses.pinned.contains(name) && !uses.reading.contains(name));
            prop_assert!(!uses.writing.contains(name));
            prop_assert!(name.attempt <= 2);
            prop_assert_ne!(Some(*name), fence.resumes_from.as_ref().map(|commit| &commit.folder));
            let counted = lineage.commits.iter().any(|seen| seen.folder == **name);
            prop_assert!(!counted || !uses.not_drained.contains(name));
            prop_assert!(!counted || every.is_none_or(|every| name.step % every != 0));
        }
        // The order of a listing changes nothing.
        folders.reverse();
        prop_assert_eq!(retain(&lineage, &folders, &policy, &uses).remove, retention.remove);
    }
}
