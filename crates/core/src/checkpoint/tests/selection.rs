//! What is restored, and from where.

use std::collections::BTreeMap;

use super::*;

fn view(tier: Tier, place: &str, of: &[&CommitSeen]) -> TierView {
    TierView {
        tier,
        place: place.into(),
        pieces: of
            .iter()
            .map(|seen| (seen.folder.clone(), whole(seen)))
            .collect(),
    }
}

fn two() -> Wanted {
    Wanted {
        world: 2,
        ..Wanted::default()
    }
}

fn choice(selection: Selection) -> Choice {
    match selection {
        Selection::Choice(choice) => *choice,
        Selection::None { reasons } => panic!("{reasons:?}"),
    }
}

fn store() -> (Lineage, CommitSeen, CommitSeen) {
    let (old, new) = (seen(10, 1, 0), seen(20, 1, 0));
    let records = [record(1, 0, &[])];
    (
        lineage(RUN, &records, &[old.clone(), new.clone()]),
        old,
        new,
    )
}

#[test]
fn fastest_source_of_each_piece() {
    let (lineage, _, new) = store();
    let mut memory = view(Tier::Memory, "a", &[&new]);
    let mut disk = view(Tier::Local, "b", &[&new]);
    memory
        .pieces
        .get_mut(&new.folder)
        .unwrap()
        .retain(|piece| piece.rank == 0);
    disk.pieces
        .get_mut(&new.folder)
        .unwrap()
        .retain(|piece| piece.rank == 1);
    let views = [view(Tier::Shared, "pvc", &[&new]), disk, memory];
    let homes = |zero: &str, one: &str| Wanted {
        homes: [(0, zero.to_owned()), (1, one.to_owned())].into(),
        ..two()
    };
    for (wanted, tiers) in [
        (homes("a", "b"), [Tier::Memory, Tier::Local]),
        (homes("b", "a"), [Tier::Peer, Tier::Peer]),
        (two(), [Tier::Memory, Tier::Local]),
    ] {
        let choice = choice(select(&lineage, &views, &wanted, &BTreeMap::new()));
        assert_eq!(choice.commit, new);
        let first: Vec<Tier> = choice.sources.iter().map(|of| of[0].tier).collect();
        assert_eq!(first, tiers);
        assert!(
            choice
                .sources
                .iter()
                .all(|of| of.last().unwrap().tier == Tier::Shared)
        );
    }
}

#[test]
fn falls_back_one_by_one() {
    let (lineage, old, new) = store();
    let suspects = [(new.folder.clone(), "2 attempts ended".to_owned())].into();
    let views = [view(Tier::Shared, "pvc", &[&old, &new])];
    let back = choice(select(&lineage, &views, &two(), &suspects));
    assert_eq!(back.commit, old);
    assert_eq!(
        back.passed[0].to_string(),
        format!("step 20 (`{}`): suspect: 2 attempts ended", new.folder)
    );
    let mut torn = views.clone();
    torn[0].pieces.get_mut(&new.folder).unwrap()[1].files[0] = 99;
    let mut swapped = views.clone();
    swapped[0].pieces.get_mut(&new.folder).unwrap()[1].crc32c = Crc32c(0);
    let mut gone = views;
    gone[0].pieces.get_mut(&new.folder).unwrap().pop();
    for views in [torn, swapped, gone] {
        let choice = choice(select(&lineage, &views, &two(), &BTreeMap::new()));
        assert_eq!(choice.commit, old);
        assert_eq!(choice.passed[0].why, PassedWhy::Unavailable(vec![1]));
    }
}

#[test]
fn pieces_never_come_from_another_save() {
    let (lineage, old, new) = store();
    // A tier that has the pieces of the older step under the name of the newer one.
    let mut views = [view(Tier::Shared, "pvc", &[&old])];
    let pieces = whole(&old);
    views[0].pieces.insert(new.folder, pieces);
    let choice = choice(select(&lineage, &views, &two(), &BTreeMap::new()));
    assert_eq!(choice.commit, old);
}

#[test]
fn another_world_needs_resharding() {
    let (lineage, _, new) = store();
    let views = [view(Tier::Shared, "pvc", &[&new])];
    let wanted = |reshard| Wanted {
        world: 4,
        reshard,
        ..Wanted::default()
    };
    assert!(choice(select(&lineage, &views, &wanted(true), &BTreeMap::new())).reshard);
    let Selection::None { reasons } = select(&lineage, &views, &wanted(false), &BTreeMap::new())
    else {
        panic!("nothing fits");
    };
    assert_eq!(
        reasons[0].to_string(),
        format!(
            "step 20 (`{}`): 2 ranks saved it, 4 will run, and this state cannot be resharded",
            new.folder
        )
    );
    assert_eq!(reasons.len(), 2);
}

#[test]
fn not_finite_is_passed_over() {
    let (mut lineage, old, new) = store();
    lineage.commits[1].commit.document.finite = Some(false);
    let views = [view(Tier::Shared, "pvc", &[&old, &new])];
    let back = choice(select(&lineage, &views, &two(), &BTreeMap::new()));
    assert_eq!(
        (back.commit, &back.passed[0].why),
        (old, &PassedWhy::NotFinite)
    );
    let allowed = Wanted {
        allow_not_finite: true,
        ..two()
    };
    let choice = choice(select(&lineage, &views, &allowed, &BTreeMap::new()));
    assert_eq!(choice.commit.folder, new.folder);
}

#[test]
fn empty_store_has_no_reasons() {
    let lineage = lineage(RUN, &[], &[]);
    let none = Selection::None {
        reasons: Vec::new(),
    };
    assert_eq!(select(&lineage, &[], &two(), &BTreeMap::new()), none);
}

#[test]
fn many_missing_ranks_fit_into_a_line() {
    let passed = Passed {
        folder: name(1, 1),
        why: PassedWhy::Unavailable((0..1_000).collect()),
    };
    let text = passed.to_string();
    assert!(
        text.ends_with(
            "no tier has the pieces of ranks 0, 1, 2, 3, 4, 5, 6, 7 (and 992 more) in full"
        ),
        "{text}"
    );
}

/// Records, readable commits, commits that cannot be read; what is restored and which steps are passed over.
type Case<'a> = (
    &'a [RecordSeen],
    &'a [&'a CommitSeen],
    &'a [StepName],
    Option<u64>,
    &'a [u64],
);

#[test]
fn commits_that_cannot_be_read_are_named() {
    let (old, new) = (seen(10, 1, 0), seen(20, 1, 0));
    let damaged = |name: &StepName| {
        let why = "`COMMIT.json`: no JSON".to_owned();
        bare(name, FolderState::Unreadable { why })
    };
    let own = record(1, 0, &[]);
    let next = record(2, 0, &[&old, &new]);
    let back = record(2, 0, &[&old]);
    let lost = RecordSeen::Unreadable {
        id: AttemptId::first(2),
        why: "damaged".into(),
    };
    let own = [own];
    let (next, back) = ([own[0].clone(), next], [own[0].clone(), back]);
    let lost = [own[0].clone(), lost];
    let cases: [Case<'_>; 9] = [
        (&own, &[&old], &[name(20, 1)], Some(10), &[20]),
        (&own, &[&new], &[name(10, 1)], Some(20), &[]),
        (&own, &[], &[name(10, 1), name(20, 1)], None, &[20, 10]),
        // Acknowledged by the newest attempt, which resumed from it.
        (&next, &[&old], &[name(20, 1)], Some(10), &[20]),
        (&next, &[], &[name(30, 2), name(20, 1)], None, &[30, 20]),
        // Fenced, or of an attempt without a record: not part of the history.
        (&back, &[&old], &[name(20, 1)], Some(10), &[]),
        (&own, &[&old], &[name(20, 2)], Some(10), &[]),
        (&[], &[], &[name(10, 1)], None, &[]),
        // The newest record is damaged: the one before decides, and what the newest attempt saved counts.
        (
            &lost,
            &[&old],
            &[name(20, 1), name(30, 2)],
            Some(10),
            &[30, 20],
        ),
    ];
    for (number, (records, commits, unreadable, want, passed)) in cases.into_iter().enumerate() {
        let commits: Vec<CommitSeen> = commits.iter().copied().cloned().collect();
        let lineage = lineage(RUN, records, &commits);
        let views = [view(
            Tier::Shared,
            "pvc",
            &commits.iter().collect::<Vec<_>>(),
        )];
        let folders: Vec<FolderSeen> = (commits.iter().map(folder))
            .chain(unreadable.iter().map(damaged))
            .collect();
        let selection =
            select(&lineage, &views, &two(), &BTreeMap::new()).with_unreadable(&lineage, &folders);
        let (step, reasons) = match selection {
            Selection::Choice(choice) => (Some(choice.commit.folder.step), choice.passed),
            Selection::None { reasons } => (None, reasons),
        };
        let steps: Vec<u64> = reasons.iter().map(|passed| passed.folder.step).collect();
        assert_eq!((step, steps.as_slice()), (want, passed), "case {number}");
        for passed in reasons {
            let text = passed.to_string();
            assert!(
                text.ends_with("its commit cannot be read: `COMMIT.json`: no JSON"),
                "{text}"
            );
        }
    }
}
