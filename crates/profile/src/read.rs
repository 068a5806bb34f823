//! Reads a trace from its bytes, as they arrive.
//!
//! Flow: [`Reader::push`] with each block of the (unpacked) file, then [`Reader::finish`]. Events may be in any order. A file
//! that ends early is used as far as it goes.
//!
//! Guarantees: memory is bounded by [`Bounds`], whatever the file says; an event that cannot be read costs only itself.

pub(crate) mod scan;
pub(crate) mod split;
#[cfg(test)]
mod tests;

use self::{
    scan::Value,
    split::{Piece, Splitter},
};
use crate::trace::{Call, GpuRow, NameId, NameTable, RowKind, Span, Trace};

/// How much of a trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Events. From half of them on operators of the framework are counted only, since no share of the time depends on them
    /// where there are GPU rows.
    pub events: usize,
    /// Different names.
    pub names: usize,
    /// Bytes of all names.
    pub name_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // 32 bytes each: 320 MB.
            events: 10_000_000,
            names: 1_000_000,
            name_bytes: 32 << 20,
        }
    }
}

/// Why a file is not analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// Other bytes, or other JSON.
    #[error(
        "it is no trace: expected a JSON object with `traceEvents`, as `torch.profiler` writes it"
    )]
    NoTrace,
    /// A trace in which nothing happens.
    #[error(
        "the trace has no complete event: the program was killed before it wrote one, or traced nothing"
    )]
    NoEvents,
}

/// Reads one trace.
#[derive(Debug)]
pub struct Reader {
    splitter: Splitter,
    taken: Taken,
    is_empty: bool,
}

impl Reader {
    /// Reads a trace within `bounds`.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            splitter: Splitter::default(),
            taken: Taken {
                trace: Trace::default(),
                names: NameTable::new(bounds.names, bounds.name_bytes),
                bounds,
                kept: 0,
            },
            is_empty: true,
        }
    }

    /// Takes the next bytes. Whether more can change anything: not where the file is no trace, or is at its end.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.is_empty &= bytes.trim_ascii().is_empty();
        let taken = &mut self.taken;
        self.splitter.push(bytes, &mut |piece| taken.take(piece));
        !self.splitter.is_foreign() && !self.splitter.is_complete()
    }

    /// The trace, as far as it was read.
    pub fn finish(self) -> Result<Trace, ReadError> {
        if self.is_empty {
            return Err(ReadError::Empty);
        }
        let has_events = self.splitter.has_events();
        if !has_events {
            return Err(ReadError::NoTrace);
        }
        let Taken {
            mut trace, names, ..
        } = self.taken;
        if trace.events == 0 {
            return Err(ReadError::NoEvents);
        }
        trace.names = names.into_names();
        trace.truncated = !self.splitter.is_complete();
        Ok(trace)
    }
}

#[derive(Debug)]
struct Taken {
    trace: Trace,
    names: NameTable,
    bounds: Bounds,
    kept: usize,
}

/// What an event says, as it is written.
#[derive(Debug, Default)]
struct Event<'a> {
    phase: &'a [u8],
    category: &'a [u8],
    name: Option<Value<'a>>,
    thread: &'a [u8],
    start: Option<Value<'a>>,
    duration: Option<Value<'a>>,
    arguments: Option<Value<'a>>,
}

impl<'a> Event<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let mut event = Self::default();
        for (name, value) in Value(bytes).fields() {
            match name {
                b"ph" => event.phase = bare(value),
                b"cat" => event.category = bare(value),
                b"name" => event.name = Some(value),
                b"tid" => event.thread = bare(value),
                b"ts" => event.start = Some(value),
                b"dur" => event.duration = Some(value),
                b"args" => event.arguments = Some(value),
                _ => {}
            }
        }
        event
    }

    fn argument(&self, wanted: &[u8]) -> Option<Value<'a>> {
        let mut fields = self.arguments?.fields();
        fields
            .find(|(name, _)| *name == wanted)
            .map(|found| found.1)
    }
}

/// A value without its quotes.
fn bare(value: Value<'_>) -> &[u8] {
    let inner = value.0.strip_prefix(b"\"").unwrap_or(value.0);
    inner.strip_suffix(b"\"").unwrap_or(inner)
}

/// What is kept of an event.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Row(RowKind),
    Call,
    Operator,
    Annotation,
}

impl Taken {
    fn take(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Oversized => self.trace.skipped.oversized += 1,
            Piece::Field(b"baseTimeNanoseconds", value) => {
                self.trace.base = Value(value).whole().unwrap_or(0);
            }
            Piece::Field(b"distributedInfo", value) => {
                let mut fields = Value(value).fields();
                let rank = fields.find(|(name, _)| *name == b"rank");
                self.trace.rank = rank
                    .and_then(|(_, rank)| rank.whole())
                    .and_then(|rank| u32::try_from(rank).ok())
                    .or(self.trace.rank);
            }
            Piece::Field(..) => {}
            Piece::Event(bytes) => self.event(&Event::read(bytes)),
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        self.trace.events += 1;
        // Flows, counters, marks and names of processes have no duration.
        if event.phase != b"X" {
            self.trace.skipped.damaged += u64::from(event.phase.is_empty());
            return;
        }
        let kept = match event.category {
            b"kernel" => Kept::Row(RowKind::Compute),
            b"gpu_memcpy" | b"gpu_memset" => Kept::Row(RowKind::Memory),
            b"cuda_runtime" | b"cuda_driver" | b"hip_runtime" | b"hip_driver" => Kept::Call,
            b"cpu_op" | b"Operator" => Kept::Operator,
            b"user_annotation" => Kept::Annotation,
            _ => return,
        };
        let start = event.start.and_then(Value::nanoseconds);
        let duration = event.duration.and_then(Value::nanoseconds);
        let (Some(start), Some(duration)) = (start, duration) else {
            self.trace.skipped.damaged += 1;
            return;
        };
        if start.checked_add(duration).is_none() {
            self.trace.skipped.damaged += 1;
            return;
        }
        let is_operator = matches!(kept, Kept::Operator);
        let most = self.bounds.events / if is_operator { 2 } else { 1 };
        if self.kept >= most {
            self.trace.skipped.beyond_bound += 1;
            return;
        }
        self.kept += 1;
        self.keep(kept, event, start, duration);
    }

    fn keep(&mut self, kept: Kept, event: &Event<'_>, start: u64, duration: u64) {
        let text = event.name.and_then(Value::text).unwrap_or_default();
        let name = self.name(&text);
        let number = |value: Option<Value<'_>>| {
            let whole = value.and_then(Value::whole);
            whole.and_then(|it| u32::try_from(it).ok()).unwrap_or(0)
        };
        let correlation = || number(event.argument(b"correlation"));
        let thread = || thread_number(event.thread);
        match kept {
            Kept::Row(kind) => {
                let is_communication = kind == RowKind::Compute && is_communication_kernel(&text);
                let group = event
                    .argument(b"Process Group Ranks")
                    .filter(|_| is_communication);
                let group = group.and_then(Value::text).unwrap_or_default();
                let group = self.name(&group);
                if kind == RowKind::Memory {
                    let bytes = event.argument(b"bytes").and_then(Value::whole);
                    let sum = self.trace.copied_bytes.entry(name).or_default();
                    *sum = sum.saturating_add(bytes.unwrap_or(0));
                }
                self.trace.rows.push(GpuRow {
                    start,
                    duration,
                    name,
                    correlation: correlation(),
                    group,
                    kind: if is_communication {
                        RowKind::Communication
                    } else {
                        kind
                    },
                });
            }
            Kept::Call => self.trace.calls.push(Call {
                start,
                duration,
                name,
                correlation: correlation(),
                thread: thread(),
            }),
            Kept::Operator => {
                if text == "record_param_comms" && self.trace.rank.is_none() {
                    let rank = event.argument(b"Rank").and_then(Value::whole);
                    self.trace.rank = rank.and_then(|rank| u32::try_from(rank).ok());
                }
                self.trace.operators.push(Span {
                    start,
                    duration,
                    name,
                    thread: thread(),
                });
            }
            Kept::Annotation => self.trace.annotations.push(Span {
                start,
                duration,
                name,
                thread: thread(),
            }),
        }
    }

    fn name(&mut self, text: &str) -> NameId {
        let id = self.names.id(text);
        self.trace.skipped.unnamed += u64::from(id.is_none());
        id.unwrap_or(0)
    }
}

/// Threads have numbers in most traces; names become numbers of their own.
fn thread_number(written: &[u8]) -> u32 {
    let number = std::str::from_utf8(written)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let number = number.map(|number| u32::try_from(number & 0xffff_ffff).unwrap_or(0));
    number.unwrap_or_else(|| {
        // FNV-1a, because two texts must differ in most cases and equal ones be equal.
        written.iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
    })
}

/// Whether a kernel moves data between ranks. NCCL from 2.19 on calls its kernels `ncclDevKernel…`.
fn is_communication_kernel(name: &str) -> bool {
    const SIGNS: [&str; 8] = [
        "nccl",
        "rccl",
        "oneccl",
        "c10d",
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "nvshmem",
    ];
    let beginning: String = name
        .chars()
        .take(96)
        .collect::<String>()
        .to_ascii_lowercase();
    SIGNS.iter().any(|sign| beginning.contains(sign))
}
