//! Which ranks do the same.
//!
//! Two ranks are in one group where their main threads have the same Python calls, and both or neither are stopped by a signal.
//! Without a Python stack, the program, its state and the kernel function decide.

use std::collections::BTreeMap;

use serde::Serialize;
use trainyard_host::stacks::{RankStacks, StackFrame};

/// Ranks that do the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Group {
    /// In ascending order.
    pub(super) ranks: Vec<u32>,
    /// What their main threads wait for, where all wait for the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits_for: Option<String>,
    /// The Python calls of their main threads, innermost first.
    pub(super) frames: Vec<StackFrame>,
    /// Whether calls further out were not read.
    pub(super) truncated: bool,
}

/// What makes two ranks the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    frames: &'a [StackFrame],
    truncated: bool,
    stopped: bool,
    /// Program, state and kernel function, where there are no calls to compare.
    outside: Option<(&'a str, &'a str, Option<&'a str>)>,
}

impl<'a> Key<'a> {
    fn of(seen: &'a RankStacks) -> Self {
        let main = seen.main();
        let frames = main.map_or(&[][..], |main| &main.frames);
        let channel = main.and_then(|main| main.wait_channel.as_deref());
        Self {
            frames,
            truncated: main.is_some_and(|main| main.truncated),
            stopped: seen.state == "stopped",
            outside: frames
                .is_empty()
                .then_some((&seen.program, &seen.state, channel)),
        }
    }
}

/// The groups of `ranks`: the smallest first, because whoever is waited for is alone.
pub(super) fn of(ranks: &[RankStacks]) -> Vec<Group> {
    let mut groups: BTreeMap<Key<'_>, Vec<&RankStacks>> = BTreeMap::new();
    for seen in ranks {
        groups.entry(Key::of(seen)).or_default().push(seen);
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|(key, members)| {
            let mut numbers: Vec<u32> = members.iter().map(|seen| seen.rank).collect();
            numbers.sort_unstable();
            let mut waits = members
                .iter()
                .map(|seen| seen.main().and_then(|main| main.waits_for.clone()));
            let first = waits.next().flatten();
            let same = waits.all(|other| other == first);
            Group {
                ranks: numbers,
                waits_for: first.filter(|_| same),
                frames: key.frames.to_vec(),
                truncated: key.truncated,
            }
        })
        .collect();
    groups.sort_by_key(|group| (group.ranks.len(), group.ranks.first().copied()));
    groups
}

#[cfg(test)]
mod tests {
    use trainyard_host::stacks::ThreadState;

    use super::*;

    fn rank(rank: u32, state: &str, line: Option<u32>, channel: &str) -> RankStacks {
        let frames = line.map(|line| StackFrame {
            function: "step".to_owned(),
            file: "train.py".to_owned(),
            line: Some(line),
        });
        RankStacks {
            rank,
            state: state.to_owned(),
            program: "python".to_owned(),
            threads: vec![ThreadState {
                main: true,
                wait_channel: Some(channel.to_owned()),
                waits_for: Some(channel.to_owned()),
                frames: frames.into_iter().collect(),
                ..ThreadState::default()
            }],
            ..RankStacks::default()
        }
    }

    #[test]
    fn who_is_apart_comes_first() {
        let cases = [
            ("none", vec![], vec![]),
            (
                "one stands elsewhere",
                vec![
                    rank(0, "sleeping", Some(9), "futex"),
                    rank(1, "running", Some(9), "0"),
                    rank(2, "sleeping", Some(7), "hrtimer_nanosleep"),
                ],
                vec![vec![2], vec![0, 1]],
            ),
            (
                "one is stopped at the same line",
                vec![
                    rank(0, "sleeping", Some(9), "futex"),
                    rank(1, "stopped", Some(9), "do_signal_stop"),
                    rank(2, "sleeping", Some(9), "futex"),
                ],
                vec![vec![1], vec![0, 2]],
            ),
            (
                "without Python, by the kernel",
                vec![
                    rank(0, "sleeping", None, "do_wait"),
                    rank(1, "sleeping", None, "do_wait"),
                    rank(2, "disk wait", None, "do_wait"),
                    rank(3, "sleeping", None, "pipe_read"),
                ],
                vec![vec![2], vec![3], vec![0, 1]],
            ),
            (
                "all alike",
                vec![
                    rank(1, "sleeping", Some(9), "futex"),
                    rank(0, "sleeping", Some(9), "futex"),
                ],
                vec![vec![0, 1]],
            ),
        ];
        for (name, ranks, want) in cases {
            let found: Vec<Vec<u32>> = of(&ranks).into_iter().map(|group| group.ranks).collect();
            assert_eq!(found, want, "{name}");
        }
    }

    #[test]
    fn a_wait_is_named_where_all_have_it() {
        let same = [
            rank(0, "sleeping", Some(9), "futex"),
            rank(1, "sleeping", Some(9), "futex"),
        ];
        assert_eq!(of(&same)[0].waits_for.as_deref(), Some("futex"));
        let others = [
            rank(0, "sleeping", Some(9), "futex"),
            rank(1, "sleeping", Some(9), "pipe"),
        ];
        assert_eq!(of(&others)[0].waits_for, None);
    }
}
