//! Where tensors are: types and their sizes, regions of tensors, and the layout that ranks with equal headers share.
//!
//! A layout lists each stored tensor once, with the rule by which a mesh splits it. The coordinates of a rank and the rule give the
//! region that the rank has. A rank that follows no rule has a layout of its own with `within` and no splits.

use serde::{Deserialize, Serialize};

use super::{
    limits::{MAX_AXES, MAX_DIMS, MAX_FILE_BYTES, MAX_FILES, MAX_NAME, MAX_TENSORS, MAX_WORLD},
    manifest::Other,
    names::LayoutId,
};

/// The type of the elements, by the names that safetensors uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(non_camel_case_types, reason = "these are the names in the files")]
#[expect(missing_docs, reason = "each name is its meaning")]
pub enum Dtype {
    BOOL,
    U8,
    I8,
    F8_E4M3,
    F8_E4M3FNUZ,
    F8_E5M2,
    F8_E5M2FNUZ,
    F8_E8M0,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
    C64,
}

impl Dtype {
    /// The bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::BOOL
            | Self::U8
            | Self::I8
            | Self::F8_E4M3
            | Self::F8_E4M3FNUZ
            | Self::F8_E5M2
            | Self::F8_E5M2FNUZ
            | Self::F8_E8M0 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::C64 => 8,
        }
    }
}

/// A box in a tensor: where it begins and how large it is in each dimension. A tensor without dimensions has one element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Region {
    /// Where it begins.
    pub offsets: Vec<u64>,
    /// How large it is.
    pub sizes: Vec<u64>,
}

impl Region {
    /// The whole of a tensor.
    pub fn whole(shape: &[u64]) -> Self {
        Self {
            offsets: vec![0; shape.len()],
            sizes: shape.to_vec(),
        }
    }

    /// Whether no element is in it.
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// How many elements are in it; `None` if that is beyond 64 bits.
    pub fn elements(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        self.sizes
            .iter()
            .try_fold(1_u64, |product, size| product.checked_mul(*size))
    }

    /// Whether it lies in a tensor of this shape.
    pub fn is_in(&self, shape: &[u64]) -> bool {
        self.offsets.len() == shape.len()
            && self.sizes.len() == shape.len()
            && (self.offsets.iter().zip(&self.sizes))
                .zip(shape)
                .all(|((offset, size), full)| {
                    offset.checked_add(*size).is_some_and(|end| end <= *full)
                })
    }

    /// What is in both; `None` if that is nothing. Both must have the same dimensions.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for dim in 0..self.sizes.len() {
            let start = self.offsets[dim].max(other.offsets[dim]);
            let end =
                (self.offsets[dim] + self.sizes[dim]).min(other.offsets[dim] + other.sizes[dim]);
            if end <= start {
                return None;
            }
            both.offsets[dim] = start;
            both.sizes[dim] = end - start;
        }
        (!self.is_empty() && !other.is_empty()).then_some(both)
    }

    /// What is in it and not in `other`, as boxes that do not overlap.
    pub fn minus(&self, other: &Self) -> Vec<Self> {
        let Some(both) = self.intersection(other) else {
            return vec![self.clone()];
        };
        let mut rest = self.clone();
        let mut left = Vec::new();
        for dim in 0..self.sizes.len() {
            let (start, end) = (rest.offsets[dim], rest.offsets[dim] + rest.sizes[dim]);
            let (from, to) = (both.offsets[dim], both.offsets[dim] + both.sizes[dim]);
            for (start, end) in [(start, from), (to, end)] {
                if start < end {
                    let mut part = rest.clone();
                    part.offsets[dim] = start;
                    part.sizes[dim] = end - start;
                    left.push(part);
                }
            }
            rest.offsets[dim] = from;
            rest.sizes[dim] = to - from;
        }
        left
    }
}

impl std::fmt::Display for Region {
    /// As a slice: `[0:4, 8:16]`.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("[")?;
        for (dim, (offset, size)) in self.offsets.iter().zip(&self.sizes).enumerate() {
            let comma = if dim == 0 { "" } else { ", " };
            write!(out, "{comma}{offset}:{}", offset.saturating_add(*size))?;
        }
        out.write_str("]")
    }
}

/// One axis of the mesh of ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What it is called, such as `dp`.
    pub name: String,
    /// How many coordinates it has.
    pub size: u32,
}

/// A dimension is divided along an axis of the mesh: coordinate `i` of `n` has rows `i * c` to `(i + 1) * c`, where `c` is the size
/// divided by `n`, rounded up. Later coordinates may have less, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct Split {
    /// The dimension of the tensor.
    pub dim: u32,
    /// The axis of the mesh, by its place in [`Layout::mesh`].
    pub axis: u32,
}

impl From<(u32, u32)> for Split {
    fn from((dim, axis): (u32, u32)) -> Self {
        Self { dim, axis }
    }
}

impl From<Split> for (u32, u32) {
    fn from(split: Split) -> Self {
        (split.dim, split.axis)
    }
}

/// A tensor, or a part of one, as it is stored: contiguous, row-major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name of the tensor. Several entries of one name are parts of it.
    pub name: String,
    /// The key in the safetensors file where it is not the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The type of its elements.
    pub dtype: Dtype,
    /// The shape of the whole tensor.
    pub shape: Vec<u64>,
    /// The shape of what is stored.
    pub local: Vec<u64>,
    /// What the splits divide; absent: the whole tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Region>,
    /// The splits, one after the other, as `[dim, axis]`; each divides what the one before has left. An axis without a split holds
    /// replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<Split>,
    /// Which file of the rank it is in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub file: u32,
    /// The hash of the shared file that it is in instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Its first byte, counted from where the tensors of the file begin.
    pub start: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The part of `length` that coordinate `at` of `count` has: where it begins and how long it is.
pub(super) fn part(length: u64, at: u32, count: u32) -> (u64, u64) {
    let chunk = length.div_ceil(u64::from(count.max(1)));
    let start = chunk.saturating_mul(u64::from(at)).min(length);
    (start, chunk.min(length - start))
}

impl Entry {
    /// A tensor that a rank stores whole, in its first file.
    pub fn whole(name: &str, dtype: Dtype, shape: Vec<u64>, start: u64) -> Self {
        Self {
            name: name.to_owned(),
            key: None,
            dtype,
            local: shape.clone(),
            shape,
            within: None,
            split: Vec::new(),
            file: 0,
            shared: None,
            start,
        }
    }

    /// What the splits divide.
    pub fn divided(&self) -> Region {
        self.within
            .clone()
            .unwrap_or_else(|| Region::whole(&self.shape))
    }

    /// The region of the tensor that the rank at these coordinates has stored.
    pub fn region(&self, mesh: &[Axis], at: &[u32]) -> Region {
        let mut region = self.divided();
        for split in &self.split {
            let (dim, axis) = (split.dim as usize, split.axis as usize);
            let (start, size) = part(region.sizes[dim], at[axis], mesh[axis].size);
            region.offsets[dim] += start;
            region.sizes[dim] = size;
        }
        region
    }

    /// The bytes that are stored; `None` if that is beyond 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        Region::whole(&self.local)
            .elements()?
            .checked_mul(self.dtype.bytes())
    }
}

/// `layout-9d21….json`: what the file of every rank with this layout holds, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// The format.
    pub version: u64,
    /// The mesh of ranks that splits refer to.
    #[serde(default)]
    pub mesh: Vec<Axis>,
    /// The stored tensors.
    pub tensors: Vec<Entry>,
    /// Unknown members.
    #[serde(flatten)]
    pub other: Other,
}

impl Layout {
    /// Its id: FNV-1a of its JSON. Two layouts with one id would be noticed, because the second is not published over the first.
    pub fn id(&self) -> LayoutId {
        let json = serde_json::to_vec(self).unwrap_or_default();
        LayoutId(fnv1a(&json))
    }

    pub(super) fn check_layout(&self) -> Result<(), String> {
        if self.mesh.len() > MAX_AXES {
            return Err(format!(
                "{} axes; at most {MAX_AXES} are allowed",
                self.mesh.len()
            ));
        }
        let ranks = self.mesh.iter().try_fold(1_u32, |product, axis| {
            product
                .checked_mul(axis.size)
                .filter(|ranks| (1..=MAX_WORLD).contains(ranks))
        });
        if ranks.is_none() {
            return Err(format!("its mesh does not have 1 to {MAX_WORLD} ranks"));
        }
        if self.tensors.len() > MAX_TENSORS {
            return Err(format!(
                "{} tensors; at most {MAX_TENSORS} are allowed",
                self.tensors.len()
            ));
        }
        self.tensors
            .iter()
            .try_for_each(|entry| self.check_entry(entry))
    }

    fn check_entry(&self, entry: &Entry) -> Result<(), String> {
        let name: String = entry.name.chars().take(80).collect();
        let refuse = |why: &str| Err(format!("tensor `{name}`: {why}"));
        if entry.name.is_empty() || entry.name.len() > MAX_NAME {
            return refuse("its name is empty or too long");
        }
        if entry.shape.len() > MAX_DIMS || entry.local.len() != entry.shape.len() {
            return refuse("it has too many dimensions, or not those of its local shape");
        }
        if entry
            .within
            .as_ref()
            .is_some_and(|part| !part.is_in(&entry.shape))
        {
            return refuse("what is divided is not inside the tensor");
        }
        if entry.file as usize >= MAX_FILES {
            return refuse("the number of its file is too large");
        }
        let mut axes = Vec::new();
        for split in &entry.split {
            let known = (split.axis as usize) < self.mesh.len();
            if !known || (split.dim as usize) >= entry.shape.len() || axes.contains(&split.axis) {
                return refuse(
                    "it is split along an unknown dimension or axis, or twice along one",
                );
            }
            axes.push(split.axis);
        }
        let fits = |local: &[u64], divided: &Region| {
            local
                .iter()
                .zip(&divided.sizes)
                .all(|(one, all)| one <= all)
        };
        if !fits(&entry.local, &entry.divided()) {
            return refuse("it stores more than there is");
        }
        let end = Region::whole(&entry.shape)
            .elements()
            .and_then(|all| all.checked_mul(entry.dtype.bytes()))
            .and(entry.bytes())
            .and_then(|bytes| bytes.checked_add(entry.start));
        if end.is_none_or(|end| end > MAX_FILE_BYTES) {
            return refuse("it ends beyond any file");
        }
        Ok(())
    }
}

/// A hash that is the same on every machine and in every version.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
