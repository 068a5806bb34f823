//! Pieces become one commit, or a reason.

use proptest::prelude::*;

use super::*;

fn pieces(world: u32) -> Vec<Sealed<Piece>> {
    (0..world)
        .map(|rank| sealed(piece(rank, world, 10, AttemptId::first(3))).unwrap())
        .collect()
}

type Change = fn(&mut Piece);

fn changed(rank: u32, change: &dyn Fn(&mut Piece)) -> Sealed<Piece> {
    let mut piece = piece(rank, 3, 10, AttemptId::first(3));
    change(&mut piece);
    sealed(piece).unwrap()
}

#[test]
fn all_pieces_make_a_commit() {
    let Gathered::Commit(commit) = commit(&pieces(3), 3) else {
        panic!("all are there");
    };
    assert_eq!(commit.folder(), name(10, 3));
    assert_eq!(commit.bytes(), 300);
    // The slowest rank and the latest clock, so whoever writes it writes the same.
    assert_eq!(commit.seconds.write.to_bits(), 2.0_f64.to_bits());
    assert_eq!(commit.saved_at, Some(1_002));
    assert_eq!(commit.finite, None);
    encode(&*commit).unwrap();
}

#[test]
fn missing_ranks_are_named() {
    let mut pieces = pieces(4);
    pieces.remove(2);
    pieces.remove(0);
    assert_eq!(commit(&pieces, 4), Gathered::Missing(vec![0, 2]));
    assert_eq!(commit(&[], 2), Gathered::Missing(vec![0, 1]));
}

#[test]
fn saves_never_mix() {
    let cases: [(&str, Change); 6] = [
        ("run", |piece| piece.run = "other".into()),
        ("step", |piece| piece.step = 11),
        ("attempt", |piece| piece.attempt = 4),
        ("restart", |piece| piece.restart = 1),
        ("nonce", |piece| piece.nonce = Nonce::from_random(1)),
        ("world", |piece| piece.world = 4),
    ];
    for (member, change) in cases {
        for rank in 0..3 {
            // Also before all are there: a rank that waits learns early.
            let mut pieces = pieces(3);
            pieces[rank as usize] = changed(rank, &change);
            pieces.remove((rank as usize + 1) % 3);
            let Gathered::Conflict(conflict) = commit(&pieces, 3) else {
                panic!("{member} of rank {rank}");
            };
            assert_eq!(conflict.member, member);
        }
    }
    let mut twice = pieces(3);
    twice.push(changed(1, &|piece| piece.files[0].chunks[0] = Crc32c(99)));
    let Gathered::Conflict(conflict) = commit(&twice, 3) else {
        panic!("two pieces of one rank");
    };
    assert_eq!((conflict.rank, conflict.member), (1, "piece"));
    assert!(
        conflict
            .to_string()
            .starts_with("the piece of rank 1 is of another save: piece is ")
    );
}

#[test]
fn one_bad_number_is_not_finite() {
    for (checks, finite) in [
        ([Some(true), Some(true), Some(true)], Some(true)),
        ([Some(true), Some(false), None], Some(false)),
        ([Some(true), None, Some(true)], None),
    ] {
        let pieces: Vec<_> = (0_u32..)
            .zip(checks)
            .map(|(rank, check)| changed(rank, &|piece| piece.finite = check))
            .collect();
        let Gathered::Commit(commit) = commit(&pieces, 3) else {
            panic!("all are there");
        };
        assert_eq!(commit.finite, finite);
    }
}

#[test]
fn layouts_are_listed_once() {
    let layout = |crc| LayoutRef {
        id: LayoutId(5),
        bytes: 10,
        crc32c: Crc32c(crc),
    };
    let with = |rank: u32, crc: u32| changed(rank, &|piece| piece.layout = Some(layout(crc)));
    let Gathered::Commit(same) = commit(&[with(0, 1), with(1, 1), with(2, 1)], 3) else {
        panic!("all are there");
    };
    assert_eq!(same.layouts, [layout(1)]);
    let Gathered::Conflict(conflict) = commit(&[with(0, 1), with(1, 1), with(2, 2)], 3) else {
        panic!("two layouts of one id");
    };
    assert_eq!((conflict.rank, conflict.member), (2, "layout"));
}

proptest! {
    /// Order and repetition of the pieces change no byte.
    #[test]
    fn same_bytes_whoever_commits(order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(), again in 0_usize..6) {
        let pieces = pieces(6);
        let mut mixed: Vec<_> = order.iter().map(|place| pieces[*place].clone()).collect();
        mixed.push(pieces[again].clone());
        prop_assert_eq!(commit(&mixed, 6), commit(&pieces, 6));
    }
}
