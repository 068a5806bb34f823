//! Tiers as one store.

use super::*;

/// What a tier has of a commit: the pieces of these ranks.
fn part(seen: &CommitSeen, ranks: &[u32]) -> FolderSeen {
    let mut found = folder(seen);
    found.pieces = found.pieces.map(|pieces| {
        let own = pieces.into_iter();
        own.filter(|piece| ranks.contains(&piece.rank)).collect()
    });
    found.bytes = 100 * ranks.len() as u64;
    found
}

#[test]
fn pieces_of_nodes_make_a_step() {
    let step = seen(10, 1, 0);
    let [a, b] = [[part(&step, &[0])], [part(&step, &[1])]];
    let both = merge(&[(Tier::Local, &a), (Tier::Local, &b), (Tier::Shared, &[])]);
    let [one] = &both[..] else {
        panic!("{both:?}");
    };
    assert_eq!(one.pieces, Some((2, 2)));
    assert_eq!((one.folder.bytes, one.tiers.len()), (200, 2));
    assert_eq!(one.folder.pieces, Some(whole(&step)));
    let places: Vec<_> = one
        .tiers
        .iter()
        .map(|tier| (tier.place, tier.pieces))
        .collect();
    assert_eq!(places, [(0, 1), (1, 1)]);
    // One node alone does not have it.
    let alone = merge(&[(Tier::Local, &a)]);
    assert_eq!(alone[0].pieces, Some((1, 2)));
}

#[test]
fn truncated_piece_is_taken_from_the_other_tier() {
    let step = seen(10, 1, 0);
    let mut local = folder(&step);
    local.pieces.as_mut().unwrap()[1].files = vec![7];
    for (near, far) in [(local.clone(), folder(&step)), (folder(&step), local)] {
        let merged = merge(&[(Tier::Local, &[near]), (Tier::Shared, &[far])]);
        assert_eq!(merged[0].pieces, Some((2, 2)));
        assert_eq!(merged[0].folder.pieces, Some(whole(&step)));
        assert_eq!(merged[0].folder.bytes, 200);
    }
}

#[test]
fn state_over_tiers() {
    let step = seen(10, 1, 0);
    let name = &step.folder;
    let committed = folder(&step);
    let partial = bare(name, FolderState::Partial);
    let removed = bare(name, FolderState::Removed);
    let why = || FolderState::Unreadable { why: "cut".into() };
    let unreadable = bare(name, why());
    let mut other = seen(11, 1, 0);
    other.folder = name.clone();
    for (one, two, state) in [
        (&committed, &partial, &committed.state),
        (&removed, &committed, &committed.state),
        (&unreadable, &committed, &committed.state),
        (&removed, &partial, &partial.state),
        (&partial, &unreadable, &unreadable.state),
        (&removed, &removed, &removed.state),
    ] {
        for (near, far) in [(one, two), (two, one)] {
            let (near, far) = (std::slice::from_ref(near), std::slice::from_ref(far));
            let merged = merge(&[(Tier::Local, near), (Tier::Shared, far)]);
            assert_eq!(merged.len(), 1);
            assert_eq!(&merged[0].folder.state, state);
        }
    }
    let merged = merge(&[
        (Tier::Local, &[committed]),
        (Tier::Shared, &[folder(&other)]),
    ]);
    assert!(
        matches!(&merged[0].folder.state, FolderState::Unreadable { why } if why.contains("different")),
        "{merged:?}"
    );
}

#[test]
fn pieces_of_tiers_that_were_not_given_are_not_damage() {
    let step = seen(10, 1, 0);
    let records = [record(1, 0, &[])];
    let line = |tiers: &[(Tier, &[FolderSeen])], is_local: bool| {
        let found = summary_of_tiers(RUN, &records, &merge(tiers), &|_| is_local, None);
        assert_eq!(found.newest, None);
        (found.steps[0].state, found.steps[0].why.clone())
    };
    let here = [part(&step, &[0])];
    assert_eq!(
        line(&[(Tier::Local, &here), (Tier::Shared, &[])], true),
        (
            StepState::Partial,
            Some(
                "these tiers have 1 of 2 pieces; the local tiers of other nodes may have more"
                    .into()
            )
        )
    );
    // The root has committed it, so its pieces should be there.
    assert_eq!(line(&[(Tier::Shared, &here)], true).0, StepState::Suspect);
    let begun = [bare(&step.folder, FolderState::Partial)];
    let (state, why) = line(&[(Tier::Shared, &begun)], true);
    assert_eq!(state, StepState::Partial);
    assert_eq!(why.as_deref(), Some("not copied from the local tiers yet"));
    let (_, why) = line(&[(Tier::Shared, &begun)], false);
    assert_ne!(why.as_deref(), Some("not copied from the local tiers yet"));
}
