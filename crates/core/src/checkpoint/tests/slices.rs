//! Reads for any layout, compared with dense copies.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    super::reshard::{Bounds, reshard_within},
    *,
};

/// A tensor with its bytes, and the entries that store it.
#[derive(Clone, Debug)]
struct Dense {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    /// What is divided, and how.
    parts: Vec<(Region, Vec<Split>)>,
}

impl Dense {
    /// Bytes that differ from place to place.
    fn bytes(&self) -> Vec<u8> {
        let count = Region::whole(&self.shape).elements().unwrap() * self.dtype.bytes();
        let salt = self.name.len() as u64;
        (0..count)
            .map(|place| ((place * 31 + place / 251 + salt) % 251) as u8)
            .collect()
    }

    fn slice(&self, region: &Region) -> Vec<u8> {
        let size = self.dtype.bytes();
        let bytes = self.bytes();
        places(region, &self.shape)
            .into_iter()
            .flat_map(|place| {
                let from = usize::try_from(place * size).unwrap();
                bytes[from..from + usize::try_from(size).unwrap()].to_vec()
            })
            .collect()
    }
}

/// The places of the elements of a region in a tensor, row-major.
fn places(region: &Region, shape: &[u64]) -> Vec<u64> {
    let mut places = vec![0];
    for ((offset, size), full) in region.offsets.iter().zip(&region.sizes).zip(shape) {
        places = places
            .iter()
            .flat_map(|place| (0..*size).map(move |at| place * full + offset + at))
            .collect();
    }
    places
}

/// A saved state: the commit, its layouts and the file of each rank.
struct Store {
    commit: Commit,
    layouts: BTreeMap<LayoutId, Layout>,
    files: Vec<Vec<u8>>,
}

fn coordinates(mesh: &[Axis]) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for axis in mesh {
        all = all
            .iter()
            .flat_map(|at: &Vec<u32>| {
                (0..axis.size)
                    .map(|place| [&at[..], &[place]].concat())
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    all
}

/// Saves the tensors on every rank of the mesh; replicas are written by their owners only, if `owned`.
fn save(tensors: &[Dense], mesh: &[Axis], owned: bool) -> Store {
    let ranks = coordinates(mesh);
    let world = u32::try_from(ranks.len()).unwrap();
    let mut store = Store {
        commit: seen(1, 1, 0).commit.document,
        layouts: BTreeMap::new(),
        files: Vec::new(),
    };
    store.commit.world = world;
    store.commit.pieces.clear();
    for (rank, at) in (0_u32..).zip(&ranks) {
        // The header is as long as it likes, and differs between ranks.
        let data = 8 + u64::from(rank) * 3;
        let mut file = vec![0xee; usize::try_from(data).unwrap()];
        let mut layout = Layout {
            version: VERSION,
            mesh: mesh.to_vec(),
            tensors: Vec::new(),
            other: Other::new(),
        };
        for tensor in tensors {
            for (number, (within, split)) in tensor.parts.iter().enumerate() {
                let mut entry = Entry {
                    name: tensor.name.clone(),
                    key: (number > 0).then(|| format!("{}#{number}", tensor.name)),
                    dtype: tensor.dtype,
                    shape: tensor.shape.clone(),
                    local: Vec::new(),
                    within: Some(within.clone()),
                    split: split.clone(),
                    file: 0,
                    shared: None,
                    start: file.len() as u64 - data,
                };
                let replicas: Vec<u32> = (0_u32..)
                    .zip(&ranks)
                    .filter(|(_, other)| {
                        split
                            .iter()
                            .all(|split| other[split.axis as usize] == at[split.axis as usize])
                    })
                    .map(|(rank, _)| rank)
                    .collect();
                if owned && owner(&tensor.name, within, &replicas) != Some(rank) {
                    continue;
                }
                let region = entry.region(mesh, at);
                entry.local.clone_from(&region.sizes);
                file.extend(tensor.slice(&region));
                layout.tensors.push(entry);
            }
        }
        let id = layout.id();
        store.commit.pieces.push(CommitPiece {
            rank,
            crc32c: Crc32c(0),
            files: vec![CommitFile {
                bytes: file.len() as u64,
                data,
            }],
            layout: Some(id),
            at: at.clone(),
            objects: None,
        });
        store.layouts.insert(id, layout);
        store.files.push(file);
    }
    store.commit.layouts = store
        .layouts
        .keys()
        .map(|id| LayoutRef {
            id: *id,
            bytes: 1,
            crc32c: Crc32c(0),
        })
        .collect();
    store
}

/// The buffers that a plan fills; every byte must be written once.
fn execute(plan: &Plan, files: &[Vec<u8>], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut buffers: Vec<Vec<Option<u8>>> = sizes.iter().map(|size| vec![None; *size]).collect();
    for read in &plan.reads {
        let TensorFile::Rank { rank, file: 0 } = read.file else {
            panic!("one file for each rank");
        };
        let file = &files[rank as usize];
        let from = usize::try_from(read.offset).unwrap();
        let data = &file[from..from + usize::try_from(read.bytes).unwrap()];
        for copy in &read.copies {
            for (from, to, run) in copy.runs() {
                for at in 0..run {
                    let byte = data[usize::try_from(from + at).unwrap()];
                    let place = &mut buffers[copy.wanted][usize::try_from(to + at).unwrap()];
                    assert!(place.replace(byte).is_none(), "a byte was written twice");
                }
            }
        }
    }
    let full = |buffer: Vec<Option<u8>>| buffer.into_iter().map(|byte| byte.expect("written"));
    buffers
        .into_iter()
        .map(|buffer| full(buffer).collect())
        .collect()
}

fn axis(name: &str, size: u32) -> Axis {
    Axis {
        name: name.into(),
        size,
    }
}

fn split(dim: u32, axis: u32) -> Split {
    Split { dim, axis }
}

fn matrix(rows: u64, columns: u64, splits: Vec<Split>) -> Dense {
    let shape = vec![rows, columns];
    Dense {
        name: "w".into(),
        dtype: Dtype::BF16,
        parts: vec![(Region::whole(&shape), splits)],
        shape,
    }
}

fn region(offsets: &[u64], sizes: &[u64]) -> Region {
    Region {
        offsets: offsets.to_vec(),
        sizes: sizes.to_vec(),
    }
}

fn wanted(tensor: &str, region: Region) -> WantedRegion {
    WantedRegion {
        tensor: tensor.into(),
        region,
    }
}

#[test]
fn rows_of_two_ranks_for_four() {
    let store = save(&[matrix(8, 4, vec![split(0, 0)])], &[axis("dp", 2)], false);
    let index = Index::new(&store.commit, store.layouts).unwrap();
    let plan = reshard(&index, &[wanted("w", region(&[2, 0], &[4, 4]))], None).unwrap();
    // Half of each file: rows 2 and 3 of rank 0, rows 4 and 5 of rank 1.
    let reads: Vec<_> = (plan.reads.iter())
        .map(|read| (read.offset, read.bytes, read.copies.len()))
        .collect();
    assert_eq!(reads, [(8 + 16, 16, 1), (11, 16, 1)]);
    assert_eq!((plan.bytes(), plan.wanted, plan.looked_at), (32, 32, 2));
}

#[test]
fn columns_are_one_strided_copy() {
    let store = save(&[matrix(8, 4, vec![split(0, 0)])], &[axis("dp", 1)], false);
    let index = Index::new(&store.commit, store.layouts).unwrap();
    let plan = reshard(&index, &[wanted("w", region(&[0, 1], &[8, 2]))], None).unwrap();
    let stride = Stride {
        count: 8,
        from: 8,
        to: 4,
    };
    let copy = Copy {
        from: 0,
        wanted: 0,
        to: 0,
        run: 4,
        strides: vec![stride],
    };
    assert_eq!(plan.reads.len(), 1);
    assert_eq!(plan.reads[0].copies, [copy]);
    assert_eq!((plan.reads[0].offset, plan.reads[0].bytes), (10, 60));
}

#[test]
fn long_reads_are_split() {
    let shape = vec![100 << 20];
    let layout = Layout {
        version: VERSION,
        mesh: Vec::new(),
        tensors: vec![Entry {
            name: "w".into(),
            key: None,
            dtype: Dtype::U8,
            local: shape.clone(),
            shape,
            within: None,
            split: Vec::new(),
            file: 0,
            shared: None,
            start: 0,
        }],
        other: Other::new(),
    };
    let mut commit = seen(1, 1, 0).commit.document;
    commit.world = 1;
    commit.pieces.truncate(1);
    commit.pieces[0].layout = Some(layout.id());
    commit.pieces[0].files[0] = CommitFile {
        bytes: (100 << 20) + 4_096,
        data: 4_096,
    };
    commit.layouts = vec![LayoutRef {
        id: layout.id(),
        bytes: 1,
        crc32c: Crc32c(0),
    }];
    let index = Index::new(&commit, [(layout.id(), layout)].into()).unwrap();
    let plan = |wanted: &[WantedRegion]| {
        let plan = reshard(&index, wanted, None).unwrap();
        plan.reads
            .iter()
            .map(|read| read.bytes >> 10)
            .collect::<Vec<_>>()
    };
    let at = |start: u64, size: u64| wanted("w", region(&[start << 10], &[size << 10]));
    assert_eq!(plan(&[at(0, 102_400)]), [32_768, 32_768, 32_768, 4_096]);
    // Nearer than 1 MiB: one read; exactly 1 MiB apart: two.
    assert_eq!(plan(&[at(0, 10), at(1_033, 10)]), [1_043]);
    assert_eq!(plan(&[at(0, 10), at(1_034, 10)]), [10, 10]);
}

#[test]
fn errors_name_tensor_and_region() {
    let store = save(&[matrix(8, 4, vec![split(0, 0)])], &[axis("dp", 2)], false);
    let index = |commit: &Commit| Index::new(commit, store.layouts.clone());
    let good = index(&store.commit).unwrap();
    let ask =
        |index: &Index, one: WantedRegion| reshard(index, &[one], None).unwrap_err().to_string();
    assert_eq!(
        ask(&good, wanted("v", region(&[0, 0], &[1, 1]))),
        "tensor `v` is not in the checkpoint"
    );
    for (region, text) in [
        (region(&[7, 0], &[2, 4]), "[7:9, 0:4]"),
        (
            region(&[u64::MAX, 0], &[2, 4]),
            "[18446744073709551615:18446744073709551615, 0:4]",
        ),
        (region(&[0], &[1]), "[0:1]"),
    ] {
        assert_eq!(
            ask(&good, wanted("w", region)),
            format!("tensor `w` has shape [8, 4], and {text} is not inside it")
        );
    }
    // Rank 1 says that it is at the place of rank 0, so nobody has the second half.
    let mut twice = store.commit.clone();
    twice.pieces[1].at = vec![0];
    assert_eq!(
        ask(
            &index(&twice).unwrap(),
            wanted("w", region(&[2, 0], &[6, 4]))
        ),
        "no rank saved [4:8, 0:4] of tensor `w`"
    );
    let refuse = |change: &dyn Fn(&mut Commit)| {
        let mut commit = store.commit.clone();
        change(&mut commit);
        index(&commit).unwrap_err().to_string()
    };
    assert_eq!(
        refuse(&|commit| commit.pieces[1].at = vec![2]),
        "the index is not consistent: rank 1 has coordinates [2], which are not in the mesh of its layout"
    );
    assert_eq!(
        refuse(&|commit| commit.pieces.swap(0, 1)),
        "the index is not consistent: piece 0 is that of rank 1"
    );
    assert_eq!(
        refuse(&|commit| commit.pieces[1].files[0].bytes -= 1),
        "the index is not consistent: file 0 of rank 1 is shorter than its layout says"
    );
    assert_eq!(
        refuse(&|commit| commit.layouts[0].id = LayoutId(1)),
        "the index is not consistent: layout `0000000000000001` was not read"
    );
}

type Change = fn(&mut Layout);

#[test]
fn hostile_layouts_are_refused() {
    let store = save(&[matrix(8, 4, vec![split(0, 0)])], &[axis("dp", 2)], false);
    let good = store.layouts.values().next().unwrap();
    let cases: [(&str, Change); 8] = [
        ("its mesh does not have 1 to 131072 ranks", |layout| {
            layout.mesh[0].size = 0;
        }),
        ("its mesh does not have 1 to 131072 ranks", |layout| {
            layout.mesh[0].size = u32::MAX;
        }),
        ("tensor `w`: it is split along an unknown", |layout| {
            layout.tensors[0].split[0].dim = 2;
        }),
        ("tensor `w`: it is split along an unknown", |layout| {
            layout.tensors[0].split[0].axis = 1;
        }),
        ("tensor `w`: it stores more than there is", |layout| {
            layout.tensors[0].local[0] = 9;
        }),
        ("tensor `w`: it ends beyond any file", |layout| {
            layout.tensors[0].start = u64::MAX;
        }),
        ("tensor `w`: it ends beyond any file", |layout| {
            layout.tensors[0].shape = vec![u64::MAX, u64::MAX];
            layout.tensors[0].within = None;
        }),
        ("tensor `w`: what is divided is not inside", |layout| {
            layout.tensors[0].within = Some(region(&[u64::MAX, 0], &[2, 4]));
        }),
    ];
    for (sentence, change) in cases {
        let mut layout = good.clone();
        change(&mut layout);
        let error = layout.check().unwrap_err();
        assert!(error.starts_with(sentence), "{error}");
    }
}

#[test]
fn own_replica_is_preferred() {
    let store = save(&[matrix(4, 4, Vec::new())], &[axis("dp", 4)], false);
    let index = Index::new(&store.commit, store.layouts).unwrap();
    for rank in 0..4 {
        let all = [wanted("w", region(&[0, 0], &[4, 4]))];
        let plan = reshard(&index, &all, Some(rank)).unwrap();
        assert_eq!(plan.reads[0].file, TensorFile::Rank { rank, file: 0 });
        assert_eq!(plan.reads.len(), 1);
    }
}

fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(vec![
        Dtype::BOOL,
        Dtype::F8_E4M3,
        Dtype::BF16,
        Dtype::F32,
        Dtype::C64,
    ])
}

/// A tensor of 0 to 4 dimensions, also empty ones, divided along any axes in any order, in up to three strided blocks.
fn any_tensor(axes: u32) -> impl Strategy<Value = Dense> {
    let order = Just((0..axes).collect::<Vec<u32>>()).prop_shuffle();
    (
        any_dtype(),
        prop::collection::vec(0_u64..7, 0..=4),
        order,
        0..=axes,
        1_u64..=3,
        any::<[prop::sample::Index; 3]>(),
    )
        .prop_map(|(dtype, shape, order, splits, blocks, dims)| {
            let dim_of =
                |number: usize| u32::try_from(dims[number % 3].index(shape.len().max(1))).unwrap();
            let split: Vec<Split> = (order.iter().take(splits as usize).enumerate())
                .filter(|_| !shape.is_empty())
                .map(|(number, axis)| Split {
                    dim: dim_of(number),
                    axis: *axis,
                })
                .collect();
            let mut parts = vec![(Region::whole(&shape), split.clone())];
            if !shape.is_empty() && shape[0] >= blocks {
                parts = (0..blocks)
                    .map(|block| {
                        let mut part = Region::whole(&shape);
                        let (from, to) =
                            (shape[0] * block / blocks, shape[0] * (block + 1) / blocks);
                        part.offsets[0] = from;
                        part.sizes[0] = to - from;
                        (part, split.clone())
                    })
                    .collect();
            }
            Dense {
                name: String::new(),
                dtype,
                shape,
                parts,
            }
        })
}

fn any_state() -> impl Strategy<Value = (Vec<Axis>, Vec<Dense>)> {
    prop::collection::vec(1_u32..=4, 0..=3).prop_flat_map(|sizes| {
        let mesh: Vec<Axis> = sizes.iter().map(|size| axis("a", *size)).collect();
        let axes = u32::try_from(mesh.len()).unwrap();
        let tensors = prop::collection::vec(any_tensor(axes), 1..4).prop_map(|mut tensors| {
            for (number, tensor) in tensors.iter_mut().enumerate() {
                tensor.name = "t".repeat(number + 1);
            }
            tensors
        });
        (Just(mesh), tensors)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any layout to any regions gives what a slice of the whole tensor gives, whatever the bounds of reads.
    #[test]
    fn reads_equal_dense_slices(
        (mesh, tensors) in any_state(),
        owned in any::<bool>(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<[(u64, u64); 4]>()), 0..6),
        join in 0_u64..40,
        read in 8_u64..200,
        prefer in prop::option::of(0_u32..64),
    ) {
        let store = save(&tensors, &mesh, owned);
        for layout in store.layouts.values() {
            prop_assert_eq!(layout.check(), Ok(()));
        }
        let mut asked: Vec<(usize, Region)> = tensors.iter().enumerate()
            .map(|(number, tensor)| (number, Region::whole(&tensor.shape))).collect();
        for (number, cut) in cuts {
            let number = number.index(tensors.len());
            let mut region = Region::whole(&tensors[number].shape);
            for (dim, full) in tensors[number].shape.iter().enumerate() {
                region.offsets[dim] = cut[dim].0 % (full + 1);
                region.sizes[dim] = cut[dim].1 % (full - region.offsets[dim] + 1);
            }
            asked.push((number, region));
        }
        let ask: Vec<WantedRegion> = asked.iter()
            .map(|(number, region)| wanted(&tensors[*number].name, region.clone())).collect();
        let index = Index::new(&store.commit, store.layouts).unwrap();
        let plan = reshard_within(&index, &ask, prefer, Bounds { join, read }).unwrap();
        prop_assert!(plan.reads.iter().all(|one| one.bytes <= read && one.bytes > 0));
        prop_assert!(plan.reads.is_sorted_by_key(|one| (one.file.clone(), one.offset)));
        let expected: Vec<Vec<u8>> = asked.iter()
            .map(|(number, region)| tensors[*number].slice(region)).collect();
        let sizes: Vec<usize> = expected.iter().map(Vec::len).collect();
        prop_assert_eq!(plan.wanted, sizes.iter().sum::<usize>() as u64);
        prop_assert_eq!(execute(&plan, &store.files, &sizes), expected);
    }
}
