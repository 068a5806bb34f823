//! What ranks began in their process groups, as their Flight Recorders show it, and who is behind.
//!
//! Ranks are compared within one group only: groups count on their own. A rank that is late in one group makes others late in
//! theirs, so the one that waits in no collective itself explains the rest.

use std::collections::BTreeMap;

use super::signal::cut;
use crate::diagnose::Dump;

/// Groups that are kept of one rank: a rank of a job with tensor, pipeline, data and expert parallelism is in about as many.
pub(super) const MAX_GROUPS: usize = 6;
/// Longest name of a group or of an operation that is kept.
const NAME_CHARS: usize = 24;

/// What a rank began last in one process group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The group. Ranks of the same group give it the same name.
    pub group: String,
    /// The number of the last collective that it began.
    pub sequence: u64,
    /// The first of those that it began and that has not completed.
    pub pending: Option<PendingCollective>,
}

/// A collective that a rank began and that has not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCollective {
    /// Its number.
    pub sequence: u64,
    /// What it is: `all_reduce`.
    pub operation: String,
    /// How many elements the rank puts in.
    pub elements: Option<u64>,
    /// Whether the GPU of the rank has begun it. `PyTorch` knows that only with `TORCH_NCCL_ENABLE_TIMING=1`.
    pub started: bool,
}

impl Collective {
    /// One of a group without a name, of which only the number is known.
    pub fn numbered(sequence: u64) -> Self {
        Self {
            group: String::new(),
            sequence,
            pending: None,
        }
    }

    /// What a dump shows, at most six groups: first those in which something has not completed.
    pub fn of_dump(dump: &Dump) -> Vec<Self> {
        let mut all: Vec<Self> = dump
            .groups()
            .filter_map(|group| {
                let pending = group.pending.and_then(|pending| {
                    Some(PendingCollective {
                        sequence: u64::try_from(pending.sequence).ok()?,
                        operation: pending.operation,
                        elements: pending.elements_in,
                        started: pending.started,
                    })
                });
                let mut read = Self {
                    group: group.name,
                    sequence: u64::try_from(group.last).ok()?,
                    pending,
                };
                read.bound();
                Some(read)
            })
            .collect();
        // Stable: groups are in the order of their names, the same for every rank.
        all.sort_by_key(|one| one.pending.is_none());
        all.truncate(MAX_GROUPS);
        all
    }

    /// Cuts what is too long.
    pub(super) fn bound(&mut self) {
        cut(&mut self.group, NAME_CHARS);
        if let Some(pending) = &mut self.pending {
            cut(&mut pending.operation, NAME_CHARS);
        }
    }

    /// How far it is: a collective that the GPU has not begun is behind one that it has.
    fn progress(&self) -> (u64, bool) {
        let waits_to_start =
            |pending: &PendingCollective| pending.sequence == self.sequence && !pending.started;
        (
            self.sequence,
            !self.pending.as_ref().is_some_and(waits_to_start),
        )
    }
}

/// What a rank that is named did not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// It has not begun the collective.
    NotBegun,
    /// It has begun it, and its GPU has not.
    NotStarted,
    /// All have begun it, and it does not complete.
    NotCompleted,
}

/// The collective that ranks wait in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedCollective {
    /// Its group.
    pub group: String,
    /// Which it is.
    pub collective: PendingCollective,
    /// What the ranks that are named did not do.
    pub missed: Missed,
}

/// Who is behind in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// The ranks, in order.
    pub(super) ranks: Vec<u32>,
    /// The number of their last collective.
    pub(super) sequence: u64,
    /// The highest number of another rank.
    pub(super) others: u64,
    /// What the others wait in, where that is known.
    pub(super) collective: Option<MissedCollective>,
}

/// Whether `rank` waits in a collective. `ranks` are sorted by number.
pub(super) fn waits(ranks: &[(u32, &[Collective])], rank: u32) -> bool {
    let place = ranks.binary_search_by_key(&rank, |(number, _)| *number);
    let began = place.ok().and_then(|place| ranks.get(place));
    began.is_some_and(|(_, began)| began.iter().any(|one| one.pending.is_some()))
}

/// Who is behind the others of a group: fewer ranks than are ahead. `ranks` are numbers with what each began, sorted by number.
pub(super) fn behind(ranks: &[(u32, &[Collective])]) -> Option<Behind> {
    let mut groups: BTreeMap<&str, Vec<(u32, &Collective)>> = BTreeMap::new();
    for (rank, began) in ranks {
        for one in *began {
            groups.entry(&one.group).or_default().push((*rank, one));
        }
    }
    let mut first = None;
    for (group, members) in groups {
        let Some(mut found) = behind_in(group, &members) else {
            continue;
        };
        if found.ranks.iter().any(|rank| !waits(ranks, *rank)) {
            found.ranks.retain(|rank| !waits(ranks, *rank));
            return Some(found);
        }
        first.get_or_insert(found);
    }
    first
}

fn behind_in(group: &str, members: &[(u32, &Collective)]) -> Option<Behind> {
    let lowest = members.iter().map(|(_, one)| one.progress()).min()?;
    let (late, ahead): (Vec<_>, Vec<_>) = members
        .iter()
        .partition(|(_, one)| one.progress() == lowest);
    if ahead.is_empty() || late.len() > ahead.len() {
        return None;
    }
    let pending = ahead.iter().filter_map(|(_, one)| one.pending.as_ref());
    let pending = pending.min_by_key(|pending| pending.sequence);
    let collective = pending
        .filter(|pending| pending.sequence > lowest.0 || !lowest.1)
        .map(|pending| MissedCollective {
            group: group.to_owned(),
            collective: pending.clone(),
            missed: if pending.sequence > lowest.0 {
                Missed::NotBegun
            } else {
                Missed::NotStarted
            },
        });
    Some(Behind {
        ranks: late.iter().map(|(rank, _)| *rank).collect(),
        sequence: lowest.0,
        others: ahead.iter().map(|(_, one)| one.sequence).max()?,
        collective,
    })
}

/// The collective that all of `ranks` have begun and that does not complete.
pub(super) fn common(ranks: &[(u32, &[Collective])]) -> Option<MissedCollective> {
    let ((_, first), rest) = ranks.split_first()?;
    let shared = first.iter().find_map(|one| {
        let pending = one.pending.as_ref()?;
        let same = |other: &Collective| {
            let begun = other.pending.as_ref();
            other.group == one.group
                && begun.is_some_and(|other| other.sequence == pending.sequence)
        };
        let all = rest.iter().all(|(_, began)| began.iter().any(same));
        all.then_some((one, pending))
    });
    let (one, pending) = shared?;
    Some(MissedCollective {
        group: one.group.clone(),
        collective: pending.clone(),
        missed: Missed::NotCompleted,
    })
}

impl MissedCollective {
    /// As the end of a sentence about `who`: a comma or semicolon stands before it.
    pub(super) fn words(&self, who: &str, plural: bool) -> String {
        let PendingCollective {
            sequence,
            operation,
            elements,
            ..
        } = &self.collective;
        let elements = elements.map_or_else(String::new, |count| format!(" of {count} elements"));
        let group = if self.group.is_empty() {
            String::new()
        } else {
            format!(" in group `{}`", self.group)
        };
        let what = format!("collective {sequence} ({operation}{elements}{group})");
        let (has, gpu) = if plural {
            ("have", "the GPUs")
        } else {
            ("has", "the GPU")
        };
        match self.missed {
            Missed::NotBegun => format!("{who} {has} not begun {what}"),
            Missed::NotStarted => format!("{gpu} of {who} {has} not begun {what}"),
            Missed::NotCompleted => format!("{what} does not complete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it is, what each rank began, and who is behind in what way.
    type Case = (
        &'static str,
        Vec<Vec<Collective>>,
        Option<(Vec<u32>, Option<Missed>)>,
    );

    fn began(group: &str, sequence: u64, pending: Option<(u64, bool)>) -> Collective {
        Collective {
            group: group.to_owned(),
            sequence,
            pending: pending.map(|(sequence, started)| PendingCollective {
                sequence,
                operation: "all_reduce".to_owned(),
                elements: Some(8),
                started,
            }),
        }
    }

    #[test]
    fn who_is_behind() {
        let waits = || vec![began("0", 5, Some((5, true)))];
        let enqueued = || vec![began("0", 5, Some((5, false)))];
        let done = || vec![began("0", 4, None)];
        let cases: Vec<Case> = vec![
            (
                "one of three",
                vec![waits(), done(), waits()],
                Some((vec![1], Some(Missed::NotBegun))),
            ),
            (
                "one of two",
                vec![done(), waits()],
                Some((vec![0], Some(Missed::NotBegun))),
            ),
            ("most are behind", vec![done(), waits(), done()], None),
            ("all alike", vec![waits(), waits()], None),
            (
                "its GPU is elsewhere",
                vec![waits(), enqueued(), waits()],
                Some((vec![1], Some(Missed::NotStarted))),
            ),
            ("no GPU is known", vec![enqueued(), enqueued()], None),
            (
                "numbers alone",
                vec![
                    vec![Collective::numbered(80)],
                    vec![Collective::numbered(79)],
                ],
                Some((vec![1], None)),
            ),
            (
                // Rank 1 waits for rank 0 in the tensor group, so it is late in the data group, too.
                "the one that waits nowhere",
                vec![
                    vec![began("dp", 2, None), began("tp", 6, None)],
                    vec![began("dp", 2, None), began("tp", 7, Some((7, true)))],
                    vec![began("dp", 3, Some((3, true)))],
                    vec![began("dp", 3, Some((3, true)))],
                ],
                Some((vec![0], Some(Missed::NotBegun))),
            ),
            (
                "other groups are not compared",
                vec![vec![began("a", 1, None)], vec![began("b", 9, None)]],
                None,
            ),
            ("nothing", vec![Vec::new(), Vec::new()], None),
        ];
        for (what, ranks, want) in cases {
            let ranks: Vec<(u32, &[Collective])> =
                (0..).zip(ranks.iter().map(Vec::as_slice)).collect();
            let found = behind(&ranks)
                .map(|found| (found.ranks, found.collective.map(|missed| missed.missed)));
            assert_eq!(found, want, "{what}");
        }
    }

    #[test]
    fn words_name_the_collective() {
        let ranks = [
            vec![began("dp", 5, Some((5, false)))],
            vec![began("dp", 4, None)],
        ];
        let ranks: Vec<(u32, &[Collective])> = (0..).zip(ranks.iter().map(Vec::as_slice)).collect();
        let missed = behind(&ranks).unwrap().collective.unwrap();
        assert_eq!(
            missed.words("rank 1", false),
            "rank 1 has not begun collective 5 (all_reduce of 8 elements in group `dp`)"
        );
        let alike = [(0, ranks[0].1), (1, ranks[0].1)];
        assert_eq!(
            common(&alike).unwrap().words("no rank", false),
            "collective 5 (all_reduce of 8 elements in group `dp`) does not complete"
        );
        assert_eq!(common(&ranks), None);
    }
}
