//! What differs between two checkpoints: tensors by value, small state by path.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use serde_json::Value as Json;
use trainyard_core::checkpoint::Dtype;

use super::{
    BLOCK_BYTES, Contents, Format, FormatError, Tensor, bytes_of,
    compare::{Difference, compare},
    pickle::MAX_DEPTH,
    tree::tensor_name,
};

/// Shorter reads of both sides follow each other.
const PARALLEL_FROM: usize = 1 << 20;

/// Type and shape.
pub type Kind = (Dtype, Vec<u64>);

/// A value of small state on both sides; `None` where a side does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDifference {
    /// Its path.
    pub path: String,
    /// The first.
    pub a: Option<String>,
    /// The second.
    pub b: Option<String>,
}

/// What differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// Tensors that only the first has.
    pub only_a: Vec<String>,
    /// Tensors that only the second has.
    pub only_b: Vec<String>,
    /// Tensors with another type or shape.
    pub other_kind: Vec<(String, Kind, Kind)>,
    /// Tensors whose elements differ.
    pub differing: Vec<(String, Difference)>,
    /// Equal tensors.
    pub equal: u64,
    /// Those of them whose recorded checksums are equal, so that they were not read.
    pub equal_by_checksum: u64,
    /// NaN in tensors that were read, in the first and in the second.
    pub nan: (u64, u64),
    /// Values of small state that differ.
    pub state: Vec<StateDifference>,
    /// Whether small state was compared: both must have some.
    pub has_state: bool,
}

impl Diff {
    /// Whether nothing differs.
    pub fn is_same(&self) -> bool {
        self.only_a.is_empty()
            && self.only_b.is_empty()
            && self.other_kind.is_empty()
            && self.differing.is_empty()
            && self.state.is_empty()
    }
}

/// Compares two checkpoints. `done` counts the bytes of [`Contents::bytes`] of the first that were handled.
pub fn diff(a: &Contents, b: &Contents, done: &AtomicU64) -> Result<Diff, FormatError> {
    let mut diff = Diff::default();
    let in_b = b
        .tensors
        .keys()
        .filter(|name| !a.tensors.contains_key(*name));
    diff.only_b = in_b.cloned().collect();
    let mut buffers = (Vec::new(), Vec::new());
    for (name, one) in &a.tensors {
        let Some(other) = b.tensors.get(name) else {
            diff.only_a.push(name.clone());
            done.fetch_add(one.bytes(), Ordering::Relaxed);
            continue;
        };
        if (one.dtype, &one.shape) != (other.dtype, &other.shape) {
            diff.other_kind.push((
                name.clone(),
                (one.dtype, one.shape.clone()),
                (other.dtype, other.shape.clone()),
            ));
            done.fetch_add(one.bytes(), Ordering::Relaxed);
            continue;
        }
        if has_equal_checksums(a, one, b, other) {
            diff.equal += 1;
            diff.equal_by_checksum += 1;
            done.fetch_add(one.bytes(), Ordering::Relaxed);
            continue;
        }
        let mut found = Difference::default();
        let mut offset = 0;
        while offset < one.bytes() {
            let length = bytes_of((one.bytes() - offset).min(BLOCK_BYTES));
            buffers.0.resize(length, 0);
            buffers.1.resize(length, 0);
            read_both(a, b, name, offset, &mut buffers)?;
            let first = offset / one.dtype.bytes();
            compare(one.dtype, &buffers.0, &buffers.1, first, &mut found);
            offset += length as u64;
            done.fetch_add(length as u64, Ordering::Relaxed);
        }
        diff.nan.0 += found.nan_a;
        diff.nan.1 += found.nan_b;
        if found.differing == 0 {
            diff.equal += 1;
        } else {
            diff.differing.push((name.clone(), found));
        }
    }
    (diff.has_state, diff.state) = state(a, b);
    Ok(diff)
}

fn read_both(
    a: &Contents,
    b: &Contents,
    name: &str,
    offset: u64,
    buffers: &mut (Vec<u8>, Vec<u8>),
) -> Result<(), FormatError> {
    let (one, two) = (&mut buffers.0, &mut buffers.1);
    if one.len() < PARALLEL_FROM {
        a.read(name, offset, one)?;
        return b.read(name, offset, two);
    }
    thread::scope(|scope| {
        let second = scope.spawn(|| b.read(name, offset, two));
        let first = a.read(name, offset, one);
        let second = second
            .join()
            .unwrap_or_else(|_| Err(FormatError::new(name, "a reading thread panicked")));
        first.and(second)
    })
}

/// Whether all chunks that have bytes of a tensor lie at the same places on both sides and have equal checksums.
fn has_equal_checksums(a: &Contents, one: &Tensor, b: &Contents, other: &Tensor) -> bool {
    one.parts.len() == other.parts.len()
        && one.parts.iter().zip(&other.parts).all(|(p, q)| {
            let (Some(sums_p), Some(sums_q)) = (a.checksums.get(&p.file), b.checksums.get(&q.file))
            else {
                return false;
            };
            let is_alike = p.region == q.region
                && p.start == q.start
                && sums_p.chunk_bytes == sums_q.chunk_bytes
                && sums_p.chunk_bytes > 0;
            let bytes = p
                .region
                .elements()
                .unwrap_or(0)
                .saturating_mul(one.dtype.bytes());
            if !is_alike || bytes == 0 {
                return is_alike;
            }
            let first = bytes_of(p.start / sums_p.chunk_bytes);
            let last = bytes_of((p.start + bytes - 1) / sums_p.chunk_bytes);
            let range = |sums: &super::ours::Chunks| sums.sums.get(first..=last).map(<[_]>::to_vec);
            let found = range(sums_p);
            found.is_some() && found == range(sums_q)
        })
}

/// Values of small state that differ, and whether there is any to compare.
fn state(a: &Contents, b: &Contents) -> (bool, Vec<StateDifference>) {
    let (mut one, mut two) = (BTreeMap::new(), BTreeMap::new());
    if let (Some(a), Some(b)) = (&a.state, &b.state) {
        flatten(a, "", MAX_DEPTH, &mut one);
        flatten(b, "", MAX_DEPTH, &mut two);
    }
    let are_ours = a.format == Format::Trainyard && b.format == Format::Trainyard;
    if are_ours {
        for (place, node) in &a.other_state {
            flatten(node, place, MAX_DEPTH, &mut one);
        }
        for (place, node) in &b.other_state {
            flatten(node, place, MAX_DEPTH, &mut two);
        }
    }
    let has_state = are_ours || (a.state.is_some() && b.state.is_some());
    let paths: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
    let differing = paths
        .into_iter()
        .filter(|path| one.get(*path) != two.get(*path))
        .map(|path| StateDifference {
            path: path.clone(),
            a: one.get(path).cloned(),
            b: two.get(path).cloned(),
        });
    (has_state, differing.collect())
}

/// Every plain value by its path; floats in one spelling, tensors left out.
fn flatten(node: &Json, path: &str, depth: usize, found: &mut BTreeMap<String, String>) {
    let within = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    if tensor_name(node).is_some() {
        return;
    }
    let list = |parts: &[Json], found: &mut BTreeMap<String, String>| {
        if parts.is_empty() {
            found.insert(path.to_owned(), "[]".into());
        }
        for (place, part) in parts.iter().enumerate() {
            flatten(part, &within(&place.to_string()), depth, found);
        }
    };
    match node {
        Json::Array(parts) => list(parts, found),
        Json::Object(map) => {
            let only = map.iter().next().filter(|_| map.len() == 1);
            match only.map(|(mark, inner)| (mark.as_str(), inner)) {
                Some(("$tuple", Json::Array(parts))) => list(parts, found),
                Some(("$float", Json::String(text))) => {
                    let number = text.parse::<f64>();
                    let shown =
                        number.map_or_else(|_| text.clone(), |number| format!("{number:?}"));
                    found.insert(path.to_owned(), shown);
                }
                Some(("$int", Json::String(text))) => {
                    found.insert(path.to_owned(), text.clone());
                }
                Some((mark, inner)) if mark.starts_with('$') => {
                    found.insert(path.to_owned(), inner.to_string());
                }
                _ if map.is_empty() => {
                    found.insert(path.to_owned(), "{}".into());
                }
                _ => {
                    for (key, part) in map {
                        flatten(part, &within(key), depth, found);
                    }
                }
            }
        }
        other => {
            found.insert(path.to_owned(), other.to_string());
        }
    }
}
