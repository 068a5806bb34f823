//! From wanted regions to reads: which bytes of which files, and where they go.
//!
//! Every wanted byte is written exactly once, or the error names the tensor and the region. A copy has strides, so a column of a
//! matrix is one copy and not one for each row.

use super::{
    index::{Index, Part, ReshardError, TensorFile},
    layout::Region,
    limits::{JOIN_BYTES, READ_BYTES},
};

/// A region of a tensor that a rank wants, row-major in a buffer of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRegion {
    /// The tensor.
    pub tensor: String,
    /// The region; an empty one is read from nowhere.
    pub region: Region,
}

/// One level of repetition of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// How often.
    pub count: u64,
    /// How far the next one is in the file.
    pub from: u64,
    /// How far the next one is in the buffer.
    pub to: u64,
}

/// Bytes of a read that go to the buffer of a wanted region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The first byte, counted from the beginning of the read.
    pub from: u64,
    /// The wanted region, by its place in what was asked.
    pub wanted: usize,
    /// The first byte in its buffer.
    pub to: u64,
    /// How many bytes are contiguous in both.
    pub run: u64,
    /// How the run repeats, outermost first.
    pub strides: Vec<Stride>,
}

impl Copy {
    /// Every run as from, to and length.
    pub fn runs(&self) -> Vec<(u64, u64, u64)> {
        let mut runs = vec![(self.from, self.to, self.run)];
        for stride in &self.strides {
            runs = runs
                .into_iter()
                .flat_map(|(from, to, run)| {
                    (0..stride.count)
                        .map(move |turn| (from + turn * stride.from, to + turn * stride.to, run))
                })
                .collect();
        }
        runs
    }

    /// How many bytes of the file lie from its first to its last one.
    fn extent(&self) -> u64 {
        extent(self.run, &self.strides)
    }
}

/// One read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub file: TensorFile,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Where they go.
    pub copies: Vec<Copy>,
}

/// The reads for all wanted regions, by file and offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The reads.
    pub reads: Vec<Read>,
    /// How many bytes are wanted.
    pub wanted: u64,
    /// How many parts of tensors were looked at.
    pub looked_at: usize,
}

impl Plan {
    /// How many bytes are read.
    pub fn bytes(&self) -> u64 {
        self.reads.iter().map(|read| read.bytes).sum()
    }
}

/// When reads are joined and split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Reads nearer than this become one.
    pub(super) join: u64,
    /// The most bytes of one read.
    pub(super) read: u64,
}

/// The reads that fill the wanted regions. Of replicas, that of rank `prefer` is read, which may be on the disk of the reader.
pub fn reshard(
    index: &Index,
    wanted: &[WantedRegion],
    prefer: Option<u32>,
) -> Result<Plan, ReshardError> {
    let bounds = Bounds {
        join: JOIN_BYTES,
        read: READ_BYTES,
    };
    reshard_within(index, wanted, prefer, bounds)
}

pub(super) fn reshard_within(
    index: &Index,
    wanted: &[WantedRegion],
    prefer: Option<u32>,
    bounds: Bounds,
) -> Result<Plan, ReshardError> {
    let mut plan = Plan::default();
    let mut units = Vec::new();
    for (number, one) in wanted.iter().enumerate() {
        let tensor = index
            .tensor(&one.tensor)
            .ok_or_else(|| ReshardError::UnknownTensor(one.tensor.clone()))?;
        if !one.region.is_in(&tensor.shape) {
            return Err(ReshardError::OutsideTensor {
                tensor: one.tensor.clone(),
                shape: tensor.shape.clone(),
                region: one.region.to_string(),
            });
        }
        if one.region.is_empty() {
            continue;
        }
        let size = tensor.dtype.bytes();
        let bytes = one.region.elements().unwrap_or(0).saturating_mul(size);
        plan.wanted = plan.wanted.saturating_add(bytes);
        let parts = index.parts(&one.tensor, tensor, &one.region, prefer)?;
        plan.looked_at += parts.len();
        let mut left = vec![one.region.clone()];
        for part in &parts {
            let mut rest = Vec::new();
            for open in left {
                if let Some(both) = open.intersection(&part.region) {
                    let copy = strided(part, &one.region, &both, size, number);
                    cut(copy, bounds, &mut |copy| {
                        units.push((part.file.clone(), copy));
                    });
                    rest.extend(open.minus(&both));
                } else {
                    rest.push(open);
                }
            }
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        if let Some(open) = left.first() {
            return Err(ReshardError::NotSaved {
                tensor: one.tensor.clone(),
                region: open.to_string(),
            });
        }
    }
    units.sort_by(|one, two| (&one.0, one.1.from).cmp(&(&two.0, two.1.from)));
    plan.reads = join(units, bounds);
    Ok(plan)
}

/// The copy of `both`, which lies in a stored part and in a wanted region. Its `from` is counted from the beginning of the file.
fn strided(part: &Part, wanted: &Region, both: &Region, size: u64, number: usize) -> Copy {
    let mut copy = Copy {
        from: part.start,
        wanted: number,
        to: 0,
        run: size,
        strides: Vec::new(),
    };
    let (mut from, mut to) = (size, size);
    for dim in (0..both.sizes.len()).rev() {
        let count = both.sizes[dim];
        copy.from += (both.offsets[dim] - part.region.offsets[dim]) * from;
        copy.to += (both.offsets[dim] - wanted.offsets[dim]) * to;
        match copy.strides.last_mut() {
            _ if count == 1 => {}
            None if from == copy.run && to == copy.run => copy.run *= count,
            Some(inner) if from == inner.count * inner.from && to == inner.count * inner.to => {
                inner.count *= count;
            }
            _ => copy.strides.push(Stride { count, from, to }),
        }
        from *= part.region.sizes[dim];
        to *= wanted.sizes[dim];
    }
    copy.strides.reverse();
    copy
}

fn extent(run: u64, strides: &[Stride]) -> u64 {
    strides
        .iter()
        .fold(run, |sum, stride| sum + (stride.count - 1) * stride.from)
}

/// Whether no gap inside is so large that it is not worth reading.
fn is_dense(run: u64, strides: &[Stride], bounds: Bounds) -> bool {
    (0..strides.len()).all(|level| {
        let inner = extent(run, &strides[level + 1..]);
        strides[level].from.saturating_sub(inner) < bounds.join
    })
}

/// The copy in parts that are dense and not longer than one read.
fn cut(copy: Copy, bounds: Bounds, emit: &mut impl FnMut(Copy)) {
    let Some((outer, inner)) = copy.strides.split_first() else {
        let mut done = 0;
        while done < copy.run {
            let run = bounds.read.min(copy.run - done);
            emit(Copy {
                from: copy.from + done,
                to: copy.to + done,
                run,
                strides: Vec::new(),
                ..copy
            });
            done += run;
        }
        return;
    };
    let inside = extent(copy.run, inner);
    let dense = is_dense(copy.run, &copy.strides, bounds);
    if dense && copy.extent() <= bounds.read {
        emit(copy);
        return;
    }
    let together = if dense && inside <= bounds.read {
        (bounds.read - inside) / outer.from + 1
    } else {
        1
    };
    let mut turn = 0;
    while turn < outer.count {
        let count = together.min(outer.count - turn);
        let mut strides = inner.to_vec();
        if count > 1 {
            strides.insert(0, Stride { count, ..*outer });
        }
        let part = Copy {
            from: copy.from + turn * outer.from,
            to: copy.to + turn * outer.to,
            strides,
            ..copy
        };
        cut(part, bounds, emit);
        turn += count;
    }
}

/// Neighbours in one file become one read.
fn join(units: Vec<(TensorFile, Copy)>, bounds: Bounds) -> Vec<Read> {
    let mut reads: Vec<Read> = Vec::new();
    for (file, mut copy) in units {
        let (start, end) = (copy.from, copy.from + copy.extent());
        match reads.last_mut() {
            Some(last)
                if last.file == file
                    && start < (last.offset + last.bytes).saturating_add(bounds.join)
                    && end.max(last.offset + last.bytes) - last.offset <= bounds.read =>
            {
                last.bytes = end.max(last.offset + last.bytes) - last.offset;
                copy.from = start - last.offset;
                last.copies.push(copy);
            }
            _ => {
                copy.from = 0;
                reads.push(Read {
                    file,
                    offset: start,
                    bytes: end - start,
                    copies: vec![copy],
                });
            }
        }
    }
    reads
}
