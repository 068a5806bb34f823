//! The index of a commit: which rank has which part of which tensor, without a list of all parts.
//!
//! A part follows from a layout and the coordinates of a rank. To find the parts that meet a region, the rule of the splits is
//! inverted: it gives the range of coordinates, so a plan touches the parts that it needs and no others.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{
    layout::{Axis, Dtype, Entry, Layout, Region, fnv1a},
    manifest::{Commit, CommitFile, SharedRef},
    names::LayoutId,
};

/// Why tensors cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReshardError {
    /// The commit and its layouts do not fit together.
    #[error("the index is not consistent: {0}")]
    Index(String),
    /// No layout has it.
    #[error("tensor `{0}` is not in the checkpoint")]
    UnknownTensor(String),
    /// The region is not inside the tensor.
    #[error("tensor `{tensor}` has shape {shape:?}, and {region} is not inside it")]
    OutsideTensor {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<u64>,
        /// What was wanted.
        region: String,
    },
    /// No rank has saved a part of what is wanted.
    #[error("no rank saved {region} of tensor `{tensor}`")]
    NotSaved {
        /// The tensor.
        tensor: String,
        /// The part.
        region: String,
    },
}

/// A file with tensors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorFile {
    /// A file of a rank.
    Rank {
        /// The rank.
        rank: u32,
        /// Which of its files.
        file: u32,
    },
    /// A file of `shared/`, by its hash.
    Shared(String),
}

/// What is known of a tensor as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The entries that have parts of it, as layout and entry.
    entries: Vec<(usize, usize)>,
}

/// A stored part of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Where it is.
    pub(super) file: TensorFile,
    /// Its first byte in that file.
    pub(super) start: u64,
    /// The region of the tensor.
    pub(super) region: Region,
    /// The rank whose layout has it.
    pub(super) rank: u32,
}

/// Ranks by their coordinates on some axes.
type ByCoordinates = BTreeMap<Vec<u32>, Vec<u32>>;

#[derive(Clone, Debug)]
struct Table {
    layout: Layout,
    /// The ranks with this layout and their coordinates.
    ranks: Vec<(u32, Vec<u32>)>,
    /// For each set of axes that an entry is split along: the ranks by their coordinates on these.
    by_axes: BTreeMap<Vec<u32>, ByCoordinates>,
}

/// The index of a commit.
#[derive(Clone, Debug)]
pub struct Index {
    tables: Vec<Table>,
    tensors: BTreeMap<String, Tensor>,
    /// The files of each rank.
    files: Vec<Vec<CommitFile>>,
    shared: BTreeMap<String, SharedRef>,
}

impl Index {
    /// The index of `commit`, whose layouts were read from its folder.
    pub fn new(
        commit: &Commit,
        mut layouts: BTreeMap<LayoutId, Layout>,
    ) -> Result<Self, ReshardError> {
        let mut tables = Vec::new();
        let mut places = BTreeMap::new();
        for known in &commit.layouts {
            let layout = layouts.remove(&known.id).ok_or_else(|| {
                ReshardError::Index(format!("layout `{}` was not read", known.id))
            })?;
            layout.check_layout().map_err(ReshardError::Index)?;
            places.insert(known.id, tables.len());
            tables.push(Table {
                layout,
                ranks: Vec::new(),
                by_axes: BTreeMap::new(),
            });
        }
        for (place, piece) in commit.pieces.iter().enumerate() {
            if piece.rank as usize != place {
                let text = format!("piece {place} is that of rank {}", piece.rank);
                return Err(ReshardError::Index(text));
            }
            let Some(id) = piece.layout else { continue };
            let table = places.get(&id).and_then(|place| tables.get_mut(*place));
            let Some(table) = table else {
                return Err(ReshardError::Index(format!("layout `{id}` is not listed")));
            };
            let mesh = &table.layout.mesh;
            let inside = piece.at.iter().zip(mesh).all(|(at, axis)| *at < axis.size);
            if piece.at.len() != mesh.len() || !inside {
                return Err(ReshardError::Index(format!(
                    "rank {} has coordinates {:?}, which are not in the mesh of its layout",
                    piece.rank, piece.at
                )));
            }
            table.ranks.push((piece.rank, piece.at.clone()));
        }
        let mut index = Self {
            tables,
            tensors: BTreeMap::new(),
            files: commit.pieces.iter().map(|one| one.files.clone()).collect(),
            shared: (commit.shared.iter())
                .map(|file| (file.blake3.clone(), file.clone()))
                .collect(),
        };
        for table in 0..index.tables.len() {
            index.check_sizes(table)?;
            index.add_tensors(table)?;
        }
        Ok(index)
    }

    /// The tensors, by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// One tensor.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Every entry ends inside its file, checked once for a layout and not for every rank and tensor.
    fn check_sizes(&self, number: usize) -> Result<(), ReshardError> {
        let table = &self.tables[number];
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for entry in &table.layout.tensors {
            let end = entry
                .start
                .saturating_add(entry.bytes().unwrap_or(u64::MAX));
            let Some(hash) = &entry.shared else {
                let known = ends.entry(entry.file).or_default();
                *known = end.max(*known);
                continue;
            };
            let fits = (self.shared.get(hash))
                .is_some_and(|file| file.data.saturating_add(end) <= file.bytes);
            if !fits {
                return Err(ReshardError::Index(format!(
                    "tensor `{}` is not inside a shared file of the commit",
                    entry.name
                )));
            }
        }
        for (rank, _) in &table.ranks {
            for (file, end) in &ends {
                let known = self.files[*rank as usize].get(*file as usize);
                if known.is_none_or(|known| known.data.saturating_add(*end) > known.bytes) {
                    return Err(ReshardError::Index(format!(
                        "file {file} of rank {rank} is shorter than its layout says"
                    )));
                }
            }
        }
        Ok(())
    }

    fn add_tensors(&mut self, number: usize) -> Result<(), ReshardError> {
        let table = &mut self.tables[number];
        for (place, entry) in table.layout.tensors.iter().enumerate() {
            let axes = axes(entry);
            if !table.by_axes.contains_key(&axes) {
                let mut ranks = ByCoordinates::new();
                for (rank, at) in &table.ranks {
                    let some = axes.iter().map(|axis| at[*axis as usize]).collect();
                    ranks.entry(some).or_default().push(*rank);
                }
                table.by_axes.insert(axes, ranks);
            }
            if let Some(tensor) = self.tensors.get_mut(&entry.name) {
                if tensor.dtype != entry.dtype || tensor.shape != entry.shape {
                    return Err(ReshardError::Index(format!(
                        "tensor `{}` has two types or shapes",
                        entry.name
                    )));
                }
                tensor.entries.push((number, place));
            } else {
                let tensor = Tensor {
                    dtype: entry.dtype,
                    shape: entry.shape.clone(),
                    entries: vec![(number, place)],
                };
                self.tensors.insert(entry.name.clone(), tensor);
            }
        }
        Ok(())
    }

    /// The stored parts of a tensor that meet `wanted`, one of each set of replicas: that of `prefer` if it has one.
    pub(super) fn parts(
        &self,
        name: &str,
        tensor: &Tensor,
        wanted: &Region,
        prefer: Option<u32>,
    ) -> Result<Vec<Part>, ReshardError> {
        let mut parts = Vec::new();
        for (table, entry) in &tensor.entries {
            let table = &self.tables[*table];
            let entry = &table.layout.tensors[*entry];
            let axes = axes(entry);
            let Some(ranks) = table.by_axes.get(&axes) else {
                continue;
            };
            let mut found = Vec::new();
            let mut at = vec![0; table.layout.mesh.len()];
            meet(
                entry,
                &table.layout.mesh,
                0,
                entry.divided(),
                &mut at,
                wanted,
                &mut found,
            );
            for (at, region) in found {
                let some: Vec<u32> = axes.iter().map(|axis| at[*axis as usize]).collect();
                // Ranks at other coordinates may have another layout.
                let Some(replicas) = ranks.get(&some) else {
                    continue;
                };
                let preferred = prefer.filter(|rank| replicas.contains(rank));
                let rank = preferred.or_else(|| spread(name, replicas));
                let Some(rank) = rank else { continue };
                if region.sizes != entry.local {
                    return Err(ReshardError::Index(format!(
                        "rank {rank} stores shape {:?} of tensor `{name}`, and its coordinates give {region}",
                        entry.local
                    )));
                }
                parts.push(self.part(entry, rank, region)?);
            }
        }
        parts.sort_by_key(|part| Some(part.rank) != prefer);
        Ok(parts)
    }

    fn part(&self, entry: &Entry, rank: u32, region: Region) -> Result<Part, ReshardError> {
        let (file, data) = match &entry.shared {
            Some(hash) => (
                TensorFile::Shared(hash.clone()),
                self.shared.get(hash).map(|file| file.data),
            ),
            None => (
                TensorFile::Rank {
                    rank,
                    file: entry.file,
                },
                self.files[rank as usize]
                    .get(entry.file as usize)
                    .map(|file| file.data),
            ),
        };
        let data = data.ok_or_else(|| {
            ReshardError::Index(format!("the file of tensor `{}` is not listed", entry.name))
        })?;
        Ok(Part {
            file,
            start: data + entry.start,
            region,
            rank,
        })
    }
}

/// The axes that an entry is split along, in the order of the splits.
fn axes(entry: &Entry) -> Vec<u32> {
    entry.split.iter().map(|split| split.axis).collect()
}

/// One of the replicas, so that readers of many tensors do not all read from one rank.
fn spread(name: &str, replicas: &[u32]) -> Option<u32> {
    let place = fnv1a(name.as_bytes()) % (replicas.len().max(1) as u64);
    replicas.get(usize::try_from(place).unwrap_or(0)).copied()
}

/// The coordinates whose part of `region` meets `wanted`, with that part; `depth` splits are done.
fn meet(
    entry: &Entry,
    mesh: &[Axis],
    depth: usize,
    region: Region,
    at: &mut Vec<u32>,
    wanted: &Region,
    found: &mut Vec<(Vec<u32>, Region)>,
) {
    let Some(both) = region.intersection(wanted) else {
        return;
    };
    let Some(split) = entry.split.get(depth) else {
        found.push((at.clone(), region));
        return;
    };
    let (dim, axis) = (split.dim as usize, split.axis as usize);
    let chunk = region.sizes[dim]
        .div_ceil(u64::from(mesh[axis].size))
        .max(1);
    let from = both.offsets[dim] - region.offsets[dim];
    let last = from + both.sizes[dim] - 1;
    for place in from / chunk..=last / chunk {
        let mut part = region.clone();
        part.offsets[dim] += place * chunk;
        part.sizes[dim] = chunk.min(region.sizes[dim] - place * chunk);
        at[axis] = u32::try_from(place).unwrap_or(u32::MAX);
        meet(entry, mesh, depth + 1, part, at, wanted, found);
    }
    at[axis] = 0;
}
