//! 1,024 ranks and 10,000 tensors: the index stays small, and a plan touches only what it needs.

use std::collections::BTreeMap;

use super::*;

const TENSORS: u64 = 10_000;
const DP: u32 = 128;
const TP: u32 = 8;

fn tensor(number: u64) -> (String, Vec<u64>) {
    // Every tenth has rows that 128 does not divide: the last coordinates have less, or nothing.
    let rows = if number.is_multiple_of(10) {
        3_000
    } else {
        4_096
    };
    (
        format!("model.layers.{}.block.{}.weight", number / 10, number % 10),
        vec![rows, 1_024],
    )
}

fn rank_layout(mesh: &[Axis], at: &[u32]) -> Layout {
    let mut start = 0;
    let mut tensors = Vec::new();
    for number in 0..TENSORS {
        let (name, shape) = tensor(number);
        let mut entry = Entry {
            name,
            key: None,
            dtype: Dtype::BF16,
            shape,
            local: Vec::new(),
            within: None,
            split: vec![Split { dim: 1, axis: 1 }, Split { dim: 0, axis: 0 }],
            file: 0,
            shared: None,
            start,
        };
        entry.local = entry.region(mesh, at).sizes;
        start += entry.bytes().unwrap();
        tensors.push(entry);
    }
    Layout {
        version: VERSION,
        mesh: mesh.to_vec(),
        tensors,
        other: Other::new(),
    }
}

#[test]
fn index_of_1024_ranks_is_small() {
    let mesh = vec![
        Axis {
            name: "dp".into(),
            size: DP,
        },
        Axis {
            name: "tp".into(),
            size: TP,
        },
    ];
    // 3,000 rows in chunks of 24: coordinates 0 to 124 are full, 125 and more are empty.
    let kinds = [rank_layout(&mesh, &[0, 0]), rank_layout(&mesh, &[125, 0])];
    let mut commit = seen(1, 1, 0).commit.document;
    commit.world = DP * TP;
    commit.pieces = (0..DP * TP)
        .map(|rank| {
            let layout = &kinds[usize::from(rank / TP >= 125)];
            let last = layout.tensors.last().unwrap();
            CommitPiece {
                rank,
                crc32c: Crc32c(rank),
                files: vec![CommitFile {
                    bytes: 4_096 + last.start + last.bytes().unwrap(),
                    data: 4_096,
                }],
                layout: None,
                at: vec![rank / TP, rank % TP],
                objects: None,
            }
        })
        .collect();
    let ids = [kinds[0].id(), kinds[1].id()];
    for piece in &mut commit.pieces {
        piece.layout = Some(ids[usize::from(piece.rank / TP >= 125)]);
    }
    let mut bytes = 0;
    let mut layouts = BTreeMap::new();
    for (id, layout) in ids.into_iter().zip(kinds) {
        let file = encode(&layout).unwrap();
        bytes += file.len();
        commit.layouts.push(LayoutRef {
            id,
            bytes: file.len() as u64,
            crc32c: open(&file).unwrap().1,
        });
        layouts.insert(id, layout);
    }
    commit.layouts.sort_by_key(|layout| layout.id);
    let bytes = bytes + encode(&commit).unwrap().len();
    assert!(bytes <= 8_000_000, "{bytes} bytes");

    // One rank of 96 x 4 wants its part of every tensor.
    let index = Index::new(&commit, layouts).unwrap();
    let wanted: Vec<WantedRegion> = (0..TENSORS)
        .map(|number| {
            let (tensor, shape) = tensor(number);
            let rows = shape[0].div_ceil(96);
            let region = Region {
                offsets: vec![rows * 7, 256],
                sizes: vec![rows, 256],
            };
            WantedRegion { tensor, region }
        })
        .collect();
    let plan = reshard(&index, &wanted, None).unwrap();
    let parts = plan.looked_at as u64;
    assert!(parts <= TENSORS * 6, "{parts} parts of {TENSORS} tensors");
    assert_eq!(
        plan.wanted,
        wanted
            .iter()
            .map(|one| one.region.elements().unwrap() * 2)
            .sum::<u64>()
    );
}
