//! One trace as it is kept for the analysis: only what an answer needs, in whole nanoseconds.

use std::collections::BTreeMap;

/// The number of a name in [`Trace::names`].
pub type NameId = u32;

/// What a row of a GPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// A kernel that computes.
    Compute,
    /// A kernel of a collective or of a message between ranks.
    Communication,
    /// A copy or a memset.
    Memory,
}

/// Something that a GPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuRow {
    /// When it began.
    pub start: u64,
    /// How long it took.
    pub duration: u64,
    /// What it is called.
    pub name: NameId,
    /// Joins it with its launch; 0 where the trace does not say.
    pub correlation: u32,
    /// The ranks of its collective, as the trace writes them; 0 where it does not.
    pub group: NameId,
    /// What it is.
    pub kind: RowKind,
}

/// A call of the CUDA or HIP runtime or driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it began.
    pub start: u64,
    /// How long it took.
    pub duration: u64,
    /// What it is called.
    pub name: NameId,
    /// Joins it with what it launched.
    pub correlation: u32,
    /// The thread that called.
    pub thread: u32,
}

/// What a program did on a thread: an operator or an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub start: u64,
    /// How long it took.
    pub duration: u64,
    /// What it is called.
    pub name: NameId,
    /// The thread that did it.
    pub thread: u32,
}

/// What was left out of a trace, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Events that cannot be read: no time, a negative duration, no JSON.
    pub damaged: u64,
    /// Events longer or deeper than any that a profiler writes.
    pub oversized: u64,
    /// Operators beyond the bound of events.
    pub beyond_bound: u64,
    /// Events under names beyond the bound of names, all kept under one name.
    pub unnamed: u64,
}

/// One trace, of one process.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Names, each once; the first is empty.
    pub names: Vec<Box<str>>,
    /// What GPUs did.
    pub rows: Vec<GpuRow>,
    /// Calls of the runtime and the driver of the GPU.
    pub calls: Vec<Call>,
    /// Operators of the framework.
    pub operators: Vec<Span>,
    /// Annotations: steps, data loaders, collectives of gloo.
    pub annotations: Vec<Span>,
    /// Bytes that copies and memsets of each name moved.
    pub copied_bytes: BTreeMap<NameId, u64>,
    /// Wall-clock nanoseconds at time 0 of this trace, where it says so.
    pub base: u64,
    /// The rank that the trace itself names.
    pub rank: Option<u32>,
    /// Whether the trace ends before its JSON does: its writer was killed, or the file was cut.
    pub truncated: bool,
    /// Events of every kind.
    pub events: u64,
    /// What was left out.
    pub skipped: Skipped,
}

impl Trace {
    /// The name under a number.
    pub fn name(&self, id: NameId) -> &str {
        let name = usize::try_from(id).ok().and_then(|at| self.names.get(at));
        name.map_or("", |name| &**name)
    }

    /// For each name whether `is` holds, so that events are tested by number.
    pub(crate) fn names_where(&self, is: impl Fn(&str) -> bool) -> NameSet {
        NameSet(self.names.iter().map(|name| is(name)).collect())
    }
}

/// A set of names of one trace.
#[derive(Debug)]
pub(crate) struct NameSet(Vec<bool>);

impl NameSet {
    pub(crate) fn contains(&self, id: NameId) -> bool {
        let found = usize::try_from(id).ok().and_then(|at| self.0.get(at));
        found.copied().unwrap_or(false)
    }
}

/// Names by their text, while a trace is read.
#[derive(Debug)]
pub(crate) struct NameTable {
    known: BTreeMap<Box<str>, NameId>,
    names: Vec<Box<str>>,
    /// Names and bytes of names that are still kept.
    most: usize,
    bytes_left: usize,
}

impl NameTable {
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            names: vec!["".into()],
            most,
            bytes_left: most_bytes,
        }
    }

    /// The number of `name`; nothing where there are too many names.
    pub(crate) fn id(&mut self, name: &str) -> Option<NameId> {
        if name.is_empty() {
            return Some(0);
        }
        if let Some(id) = self.known.get(name) {
            return Some(*id);
        }
        if self.names.len() >= self.most {
            return None;
        }
        self.bytes_left = self.bytes_left.checked_sub(name.len())?;
        let id = NameId::try_from(self.names.len()).ok()?;
        self.known.insert(name.into(), id);
        self.names.push(name.into());
        Some(id)
    }

    pub(crate) fn into_names(self) -> Vec<Box<str>> {
        self.names
    }
}
