//! `PyTorch`'s Flight Recorder: the last collectives of each rank, as the program itself dumped them.
//!
//! Owns reading a dump (pickle or JSON) and comparing the dumps of several ranks. Does not run what a
//! pickle asks for: see [`pickle`].
//!
//! Invariant: a dump is data from a process that failed; whatever it holds, reading it ends, and takes
//! memory in proportion to its size at most.

mod pickle;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use self::value::Value;
use super::{group::Wait, report::Collective};
use crate::line;

/// Collectives of one rank that are compared, from the end.
const MAX_ENTRIES: usize = 4096;
/// Ranks that the description of a group can name.
const MAX_RANKS: usize = 65_536;

/// Why a dump cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlightError {
    /// The bytes are neither a pickle nor JSON of a known shape.
    #[error("the dump cannot be read: {0}")]
    Read(String),
    /// Nothing in it is a collective.
    #[error("the dump has no list of `entries`")]
    NoEntries,
    /// Its rank is unknown.
    #[error("the dump's file name does not contain its rank")]
    NoRank,
}

/// One collective of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    operation: String,
    elements_in: Option<u64>,
    elements_out: Option<u64>,
    started: bool,
    completed: bool,
    frame: Option<String>,
}

/// What one rank dumped.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// Whose it is.
    pub rank: u32,
    /// Where it was read.
    pub file: String,
    /// By group, then by number.
    groups: BTreeMap<String, BTreeMap<i64, Entry>>,
    /// Ranks of each group.
    members: BTreeMap<String, BTreeSet<u32>>,
    /// What the program calls each group.
    descriptions: BTreeMap<String, String>,
}

/// What a rank began last in one process group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// The group's name, and what the program calls it.
    pub name: String,
    /// The number of the last collective.
    pub last: i64,
    /// The first that has not completed.
    pub pending: Option<GroupPending>,
}

/// A collective that has not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPending {
    /// Its number.
    pub sequence: i64,
    /// What it is.
    pub operation: String,
    /// How many elements the rank puts in.
    pub elements_in: Option<u64>,
    /// Whether the GPU has begun it, as far as the recorder knows.
    pub started: bool,
}

impl Dump {
    /// Reads a dump; its rank is the number at the end of its name, as `PyTorch` names it.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self, FlightError> {
        let rank = rank(name).ok_or(FlightError::NoRank)?;
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let value = if first == Some(&b'{') {
            let json = serde_json::from_slice(bytes)
                .map_err(|error| FlightError::Read(error.to_string()))?;
            value::from_json(json)
        } else {
            pickle::read(bytes).map_err(|error| FlightError::Read(error.to_string()))?
        };
        let entries = value.get("entries").and_then(Value::list);
        let entries = entries.ok_or(FlightError::NoEntries)?;
        let mut dump = Self {
            rank,
            file: name.to_owned(),
            ..Self::default()
        };
        for (key, config) in value.get("pg_config").map(Value::pairs).unwrap_or_default() {
            let group = config.get("name").and_then(Value::text).or(key.text());
            let listed = config
                .get("ranks")
                .and_then(Value::text)
                .unwrap_or_default();
            let ranks = listed
                .split([',', ' ', '[', ']'])
                .filter_map(|word| word.parse().ok())
                .take(MAX_RANKS);
            let description = config.get("desc").and_then(Value::text);
            if let (Some(group), Some(description)) = (group, description) {
                dump.descriptions
                    .insert(group.to_owned(), description.to_owned());
            }
            if let Some(group) = group {
                dump.members.insert(group.to_owned(), ranks.collect());
            }
        }
        let skipped = entries.len().saturating_sub(MAX_ENTRIES);
        for entry in entries.iter().skip(skipped) {
            dump.add(entry);
        }
        Ok(dump)
    }

    /// What the rank began last, group by group.
    pub fn groups(&self) -> impl Iterator<Item = GroupState> {
        self.groups.iter().filter_map(|(name, entries)| {
            let (last, _) = entries.last_key_value()?;
            let pending = entries.iter().find(|(_, entry)| !entry.completed);
            let name = match self.descriptions.get(name) {
                Some(description) => format!("{name} {description}"),
                None => name.clone(),
            };
            Some(GroupState {
                name,
                last: *last,
                pending: pending.map(|(sequence, entry)| GroupPending {
                    sequence: *sequence,
                    operation: entry.operation.clone(),
                    elements_in: entry.elements_in,
                    started: entry.started,
                }),
            })
        })
    }

    fn add(&mut self, entry: &Value) -> Option<()> {
        if entry.get("is_p2p").and_then(Value::truth) == Some(true) {
            return None;
        }
        let group = match entry.get("process_group") {
            Some(named) => named.list()?.first()?.text()?.to_owned(),
            None => entry.get("pg_id")?.number()?.to_string(),
        };
        let sequence = entry
            .get("collective_seq_id")
            .or_else(|| entry.get("seq_id"))?
            .number()?;
        let name = entry.get("profiling_name")?.text()?;
        let elements = |key: &str| {
            let sizes = entry.get(key)?.list()?.first()?.list()?;
            sizes.iter().try_fold(1_u64, |product, size| {
                product.checked_mul(u64::try_from(size.number()?).ok()?)
            })
        };
        let frame = entry
            .get("frames")
            .and_then(Value::list)
            .and_then(|frames| {
                let own = |frame: &&Value| {
                    let file = frame.get("filename").and_then(Value::text);
                    file.is_some_and(|file| {
                        !file.contains("site-packages") && !file.contains("dist-packages")
                    })
                };
                let frame = frames.iter().find(own)?;
                let file = frame.get("filename")?.text()?;
                Some(format!("{file}:{}", frame.get("line")?.number()?))
            });
        let state = entry.get("state").and_then(Value::text);
        let read = Entry {
            operation: name.trim_start_matches("nccl:").chars().take(48).collect(),
            elements_in: elements("input_sizes"),
            elements_out: elements("output_sizes"),
            started: state == Some("started"),
            completed: state == Some("completed"),
            frame,
        };
        self.groups.entry(group).or_default().insert(sequence, read);
        Some(())
    }
}

/// The rank in the name of a dump: `nccl_trace_rank_3`, `nccl_trace_rank_3.json`, `dump_12`.
fn rank(name: &str) -> Option<u32> {
    line::rank_of_name(name).or_else(|| {
        let file = name.rsplit('/').next()?;
        let stem = file
            .trim_end_matches(".json")
            .trim_end_matches(".pickle")
            .trim_end_matches(".pkl");
        let digits = stem.len() - stem.bytes().rev().take_while(u8::is_ascii_digit).count();
        stem.get(digits..)?.parse().ok()
    })
}

/// Who waits for whom, from the dumps of at least two ranks; or what the only rank waits in.
pub(super) fn compare(dumps: &[Dump]) -> Option<Wait> {
    let mut earliest: Option<Wait> = None;
    let groups: BTreeSet<&String> = dumps.iter().flat_map(|dump| dump.groups.keys()).collect();
    for group in groups {
        let Some(wait) = compare_group(dumps, group) else {
            continue;
        };
        // A rank that is late in one group makes others late in theirs: the wait with a culprit that
        // waits nowhere itself explains the rest.
        let decisive = |wait: &Wait| wait.mismatch.is_some() || !wait.late.is_empty();
        let better = earliest
            .as_ref()
            .is_none_or(|known| decisive(&wait) && !decisive(known));
        if better {
            earliest = Some(wait);
        }
    }
    earliest
}

fn compare_group(dumps: &[Dump], group: &str) -> Option<Wait> {
    let reporting: Vec<(&Dump, &BTreeMap<i64, Entry>)> = dumps
        .iter()
        .filter_map(|dump| Some((dump, dump.groups.get(group)?)))
        .collect();
    let stuck = reporting
        .iter()
        .flat_map(|(_, entries)| entries.iter())
        .filter(|(_, entry)| !entry.completed)
        .map(|(sequence, _)| *sequence)
        .min()?;
    let mut wait = Wait::default();
    let mut known: Option<&Entry> = None;
    for (dump, entries) in &reporting {
        match entries.get(&stuck) {
            Some(entry) => {
                let first = *known.get_or_insert(entry);
                if first.operation == entry.operation && first.elements_in == entry.elements_in {
                    wait.waiting.insert(dump.rank);
                } else {
                    wait.mismatch_ranks.insert(dump.rank);
                    wait.mismatch = Some(differs(entry, first));
                }
            }
            None if entries.keys().next_back().is_none_or(|last| *last < stuck) => {
                wait.late.insert(dump.rank);
            }
            None => {}
        }
    }
    let dumped: BTreeSet<u32> = dumps.iter().map(|dump| dump.rank).collect();
    let members = dumps.iter().find_map(|dump| dump.members.get(group));
    for rank in members.into_iter().flatten() {
        if !dumped.contains(rank) {
            wait.silent.insert(*rank);
        } else if !reporting.iter().any(|(dump, _)| dump.rank == *rank) {
            wait.late.insert(*rank);
        }
    }
    let entry = known?;
    wait.collective = Some(Collective {
        sequence: stuck,
        operation: entry.operation.clone(),
        elements_in: entry.elements_in,
        elements_out: entry.elements_out,
        group: Some(group.to_owned()),
    });
    Some(wait)
}

fn differs(one: &Entry, other: &Entry) -> String {
    let describe = |entry: &Entry| {
        let size = entry
            .elements_in
            .map_or_else(String::new, |count| format!(" of {count} elements"));
        let place = entry
            .frame
            .as_ref()
            .map_or_else(String::new, |frame| format!(" at {frame}"));
        format!("{}{size}{place}", entry.operation)
    };
    format!("{} against {}", describe(one), describe(other))
}

/// Whether bytes look like a dump: a pickle, or JSON with a list of entries.
pub fn looks_like_dump(name: &str, head: &[u8]) -> bool {
    let named = ["nccl_trace", "flight", "_trace_rank", ".fr.", "fr_trace"]
        .iter()
        .any(|part| name.contains(part));
    let pickled = head.first() == Some(&0x80) && matches!(head.get(1), Some(2..=5));
    let json = head.first() == Some(&b'{')
        && memchr::memmem::find(head, b"\"entries\"").is_some()
        && memchr::memmem::find(head, b"\"version\"").is_some();
    pickled || (named && (json || head.first() == Some(&b'{')))
}

#[cfg(test)]
mod tests;
