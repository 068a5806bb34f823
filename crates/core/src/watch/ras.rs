//! What NCCL's own monitor (RAS, NCCL 2.24 and later) reports: how many operations each rank of a communicator has begun.
//!
//! Owns reading a report, as JSON (2.28.7 and later) or as text. Only communicators of all ranks are read, because their ranks are those of the
//! job. A report in which all counts are equal says nothing: it has been seen during real hangs.
//!
//! Facts of the protocol and of the reports are from NCCL's `src/ras`, and from reports of NCCL 2.28.9.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Collective, PendingCollective};

/// Operations that no rank completes before all have begun them.
const OPERATIONS: [&str; 3] = ["AllReduce", "AllGather", "ReduceScatter"];
/// Communicators that are read.
const MAX_COMMUNICATORS: usize = 64;
/// Letters of a communicator's hash that name it.
const HASH_CHARS: usize = 10;

/// What each rank of a job of `ranks` ranks has begun, where ranks differ.
pub fn collectives(report: &[u8], ranks: u32) -> Vec<(u32, Collective)> {
    let communicators = if report.trim_ascii_start().starts_with(b"{") {
        from_json(report, ranks)
    } else {
        from_text(&String::from_utf8_lossy(report), ranks)
    };
    let all = communicators.into_iter().take(MAX_COMMUNICATORS);
    all.flat_map(Counts::collectives).collect()
}

/// How often each rank of a communicator has begun one operation.
#[derive(Debug)]
struct Counts {
    group: String,
    operation: String,
    by_rank: BTreeMap<u32, u64>,
}

impl Counts {
    /// Nothing where all are equal.
    fn collectives(self) -> Vec<(u32, Collective)> {
        let counts = || self.by_rank.values().copied();
        let (Some(lowest), Some(highest)) = (counts().min(), counts().max()) else {
            return Vec::new();
        };
        if lowest == highest {
            return Vec::new();
        }
        let began = self.by_rank.iter().map(|(rank, count)| {
            let pending = (*count > lowest).then(|| PendingCollective {
                sequence: lowest.saturating_add(1),
                operation: self.operation.clone(),
                elements: None,
                started: true,
            });
            let collective = Collective {
                group: self.group.clone(),
                sequence: *count,
                pending,
            };
            (*rank, collective)
        });
        began.collect()
    }
}

fn from_json(report: &[u8], ranks: u32) -> Vec<Counts> {
    let Ok(report) = serde_json::from_slice::<Value>(report) else {
        return Vec::new();
    };
    let communicators = report.get("communicators").and_then(Value::as_array);
    let mut found = Vec::new();
    for one in communicators.into_iter().flatten() {
        if one.get("size").and_then(Value::as_u64) != Some(ranks.into()) {
            continue;
        }
        let hash = one.get("hash").and_then(Value::as_str).unwrap_or_default();
        let members = one.get("ranks").and_then(Value::as_array);
        for operation in OPERATIONS {
            let counted = members.into_iter().flatten().filter_map(|member| {
                let rank = u32::try_from(member.get("rank")?.as_u64()?).ok()?;
                let count = member.get("collective_counts")?.get(operation)?.as_u64()?;
                (rank < ranks).then_some((rank, count))
            });
            found.push(Counts {
                group: group(hash),
                operation: operation.to_owned(),
                by_rank: counted.collect(),
            });
        }
    }
    // One for each communicator: a later one would replace it.
    found.retain(|one| one.by_rank.values().min() != one.by_rank.values().max());
    found.dedup_by(|one, before| one.group == before.group);
    found
}

/// A communicator whose ranks differ, as text:
///
/// ```text
/// #0-0 (8fec329cd3073db4) MISMATCH
///   Communicator ranks have different AllReduce operation counts
///   Rank 0 has launched up to operation 41 -- GPU 0 managed by process 437 on node 127.0.0.1
///   Rank 1 has launched up to operation 40 -- GPU 0 managed by process 438 on node 127.0.0.1
/// ```
fn from_text(report: &str, ranks: u32) -> Vec<Counts> {
    let mut found: Vec<Counts> = Vec::new();
    let mut hash = "";
    for line in report.lines().map(str::trim) {
        if let Some((_, rest)) = line.strip_prefix('#').and_then(|rest| rest.split_once('(')) {
            hash = rest.split(')').next().unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("Communicator ranks have different ") {
            let operation = rest.split(' ').next().unwrap_or_default();
            let known =
                OPERATIONS.contains(&operation) && found.iter().all(|one| one.group != group(hash));
            found.push(Counts {
                group: if known { group(hash) } else { String::new() },
                operation: operation.to_owned(),
                by_rank: BTreeMap::new(),
            });
        } else if let Some(rest) = line.strip_prefix("Rank ")
            && let Some((rank, rest)) = rest.split_once(" has launched up to operation ")
            && let Some(one) = found.last_mut()
        {
            let count = rest.split(' ').next().and_then(|count| count.parse().ok());
            if let (Ok(rank), Some(count)) = (rank.parse::<u32>(), count) {
                one.by_rank.insert(rank, count);
            }
        }
    }
    // The sizes of communicators are not in these lines. Ranks are cut from long lists, and only a whole one is known to be of all.
    found.retain(|one| {
        let all = u32::try_from(one.by_rank.len()) == Ok(ranks);
        !one.group.is_empty() && all && one.by_rank.keys().all(|rank| *rank < ranks)
    });
    found
}

/// The name of a communicator.
fn group(hash: &str) -> String {
    let hash = hash.trim_start_matches("0x");
    let short: String = hash.chars().take(HASH_CHARS).collect();
    format!("NCCL {short}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Warnings\n========\n\n#0-0 (8fec329cd3073db4) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n  \
        Rank 0 has launched up to operation 41 -- GPU 0 managed by process 437 on node 127.0.0.1\n  \
        Rank 1 has launched up to operation 40 -- GPU 0 managed by process 438 on node 127.0.0.1\n\n";

    fn json(size: u32, counts: [u64; 2]) -> String {
        let rank = |rank: usize| {
            serde_json::json!({
                "rank": rank, "host": "127.0.0.1", "pid": 437 + rank,
                "collective_counts": {"Broadcast": rank, "AllGather": 0, "AllReduce": counts[rank]},
            })
        };
        let one = serde_json::json!({"hash": "0x8fec329cd3073db4", "size": size, "ranks": [rank(0), rank(1)]});
        serde_json::json!({"nccl_version": "2.28.9", "communicators": [one]}).to_string()
    }

    #[test]
    fn ranks_that_differ() {
        for report in [TEXT.to_owned(), json(2, [41, 40])] {
            let found = collectives(report.as_bytes(), 2);
            let [(0, ahead), (1, late)] = &found[..] else {
                panic!("{report}: {found:?}");
            };
            assert_eq!(
                (ahead.group.as_str(), ahead.sequence),
                ("NCCL 8fec329cd3", 41)
            );
            let pending = ahead.pending.as_ref().unwrap();
            assert_eq!(
                (pending.sequence, pending.operation.as_str()),
                (41, "AllReduce")
            );
            assert_eq!((late.sequence, &late.pending), (40, &None));
        }
    }

    #[test]
    fn reports_that_say_nothing() {
        let cases = [
            ("equal", json(2, [41, 41])),
            ("another size", json(4, [41, 40])),
            ("cut", json(2, [41, 40]).replace('}', "")),
            ("text of fewer ranks", TEXT.replace("Rank 1", "Rnk 1")),
            (
                "text of another operation",
                TEXT.replace("AllReduce", "Broadcast"),
            ),
            ("empty", String::new()),
            ("refusal", "ERROR: unknown command\n".to_owned()),
        ];
        for (what, report) in cases {
            assert!(collectives(report.as_bytes(), 2).is_empty(), "{what}");
        }
        assert!(collectives(TEXT.as_bytes(), 3).is_empty());
    }
}
