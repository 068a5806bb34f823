//! The processes of a pod, and which of them are its ranks.
//!
//! A launcher inside the pod (torchrun, the daemon of `mpirun`) gives every rank its own numbers in the environment. Where there
//! is none, the rank is the topmost process that only others could have started: neither a shell nor a wrapper.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::process::{Process, State};

/// Programs that start another and wait for it.
const WRAPPERS: [&str; 20] = [
    "ash",
    "bash",
    "busybox",
    "catchsegv",
    "dash",
    "dumb-init",
    "env",
    "fish",
    "ksh",
    "ltrace",
    "nice",
    "nsys",
    "numactl",
    "sh",
    "strace",
    "sudo",
    "taskset",
    "timeout",
    "tini",
    "zsh",
];

/// The processes below one.
#[derive(Debug, Default)]
pub struct Tree {
    /// In the order of their depth.
    processes: Vec<Process>,
    /// The place of the parent of each; none for those at the top.
    parents: Vec<Option<usize>>,
}

impl Tree {
    /// Those below `first`, which is not one of them, at most `most`.
    pub fn below(first: u32, most: usize) -> Self {
        let mut tree = Self::default();
        let Ok(first) = Process::read(first) else {
            return tree;
        };
        let mut next: Vec<(u32, Option<usize>)> =
            first.children.iter().map(|pid| (*pid, None)).collect();
        while !next.is_empty() && tree.processes.len() < most {
            let level = std::mem::take(&mut next);
            for (pid, parent) in level {
                // One that has ended since is no longer of interest.
                let Ok(process) = Process::read(pid) else {
                    continue;
                };
                if tree.processes.len() == most {
                    break;
                }
                let at = tree.processes.len();
                next.extend(process.children.iter().map(|child| (*child, Some(at))));
                tree.add(process, parent);
            }
        }
        tree
    }

    fn add(&mut self, process: Process, parent: Option<usize>) {
        self.processes.push(process);
        self.parents.push(parent);
    }

    /// The process at a place.
    pub fn process(&self, at: usize) -> Option<&Process> {
        self.processes.get(at)
    }

    /// The place of the process of each rank of a pod that should hold `held`.
    pub fn ranks(&self, held: Option<&RangeInclusive<u32>>) -> BTreeMap<u32, usize> {
        let mut found = BTreeMap::new();
        for (at, process) in self.processes.iter().enumerate() {
            // The first in this order is the topmost.
            if let Some(rank) = process.launched_rank.filter(|_| may_be_rank(process)) {
                found.entry(rank).or_insert(at);
            }
        }
        let only = held.filter(|held| held.start() == held.end());
        if let Some(held) = only.filter(|_| found.is_empty()) {
            let mut programs = self.processes.iter().enumerate();
            let rank = programs.find(|(_, process)| may_be_rank(process));
            // A shell that starts one command after the other is between two of them.
            let rank = rank.map(|(at, _)| at);
            let rank = rank.or_else(|| (!self.processes.is_empty()).then_some(0));
            found.extend(rank.map(|at| (*held.start(), at)));
        }
        found
    }

    /// The state of the process at a place. One that waits for a child which was stopped before its `exec` (`vfork`) is shown by the kernel
    /// as in a wait for a disk; it is as stopped as the child.
    pub fn state(&self, at: usize) -> Option<State> {
        let state = self.process(at)?.state;
        let mut all = self.processes.iter().zip(&self.parents);
        let waits_for_stopped = state == State::DiskWait
            && all.any(|(child, parent)| {
                *parent == Some(at) && matches!(child.state, State::Stopped | State::Traced)
            });
        Some(if waits_for_stopped {
            State::Stopped
        } else {
            state
        })
    }

    /// Clock ticks and bytes of a process and of all below it.
    pub fn used(&self, top: usize) -> (u64, u64) {
        let mut counted = vec![false; self.processes.len()];
        let (mut ticks, mut bytes) = (0_u64, 0_u64);
        for (at, process) in self.processes.iter().enumerate() {
            let parent = self.parents.get(at).copied().flatten();
            let below = parent.is_some_and(|parent| counted.get(parent).copied().unwrap_or(false));
            if at != top && !below {
                continue;
            }
            if let Some(mark) = counted.get_mut(at) {
                *mark = true;
            }
            ticks = ticks.saturating_add(process.cpu_ticks);
            let io = process.io.unwrap_or_default();
            bytes = bytes
                .saturating_add(io.read_by_calls)
                .saturating_add(io.written_by_calls);
        }
        (ticks, bytes)
    }
}

/// Neither a wrapper nor a process that has ended: a shell that was stopped has not collected its last command.
fn may_be_rank(process: &Process) -> bool {
    let is_wrapper = WRAPPERS.binary_search(&process.name.as_str()).is_ok();
    !is_wrapper && process.state != State::Zombie
}

#[cfg(test)]
mod tests {
    use crate::process::IoBytes;

    use super::*;

    fn process(id: u32, name: &str, launched_rank: Option<u32>) -> Process {
        Process {
            id,
            started_ticks: 0,
            name: name.to_owned(),
            state: match name {
                "ended" => State::Zombie,
                _ => State::Sleeping,
            },
            parent: 0,
            cpu_ticks: 10,
            thread_count: 1,
            tasks: Vec::new(),
            children: Vec::new(),
            io: Some(IoBytes {
                read_by_calls: 1,
                written_by_calls: 2,
                ..IoBytes::default()
            }),
            rank: Some(7),
            launched_rank,
        }
    }

    #[test]
    fn process_with_a_stopped_child_before_its_exec() {
        let cases = [
            (State::DiskWait, State::Stopped, State::Stopped),
            (State::DiskWait, State::Traced, State::Stopped),
            (State::DiskWait, State::Sleeping, State::DiskWait),
            (State::Sleeping, State::Stopped, State::Sleeping),
        ];
        for (parent, child, want) in cases {
            let mut tree = Tree::default();
            let of = |id, state| Process {
                state,
                ..process(id, "sh", None)
            };
            tree.add(of(1, parent), None);
            tree.add(of(2, child), Some(0));
            assert_eq!(tree.state(0), Some(want), "{parent:?} {child:?}");
            assert_eq!(tree.state(1), Some(child), "{parent:?} {child:?}");
        }
        assert_eq!(Tree::default().state(0), None);
    }

    fn tree(all: &[(&str, Option<u32>, Option<usize>)]) -> Tree {
        let mut tree = Tree::default();
        for (id, (name, rank, parent)) in (1..).zip(all) {
            tree.add(process(id, name, *rank), *parent);
        }
        tree
    }

    #[test]
    fn wrappers_are_in_order() {
        assert!(WRAPPERS.is_sorted());
    }

    #[test]
    fn ranks_of_pods() {
        let only = 3..=3;
        let two = 2..=3;
        let cases = [
            (
                "the program alone",
                tree(&[("python", None, None), ("python", None, Some(0))]),
                Some(&only),
                vec![(3, 0)],
            ),
            (
                "behind a shell",
                tree(&[
                    ("bash", None, None),
                    ("timeout", None, Some(0)),
                    ("python", None, Some(1)),
                ]),
                Some(&only),
                vec![(3, 2)],
            ),
            (
                "torchrun with two ranks, whose workers have the same variables",
                tree(&[
                    ("torchrun", None, None),
                    ("python", Some(2), Some(0)),
                    ("python", Some(3), Some(0)),
                    ("python", Some(2), Some(1)),
                ]),
                Some(&two),
                vec![(2, 1), (3, 2)],
            ),
            (
                "a daemon of mpirun beside the command of the worker",
                tree(&[
                    ("sleep", None, None),
                    ("orted", None, None),
                    ("sh", Some(1), Some(1)),
                    ("python", Some(1), Some(2)),
                ]),
                Some(&only),
                vec![(1, 3)],
            ),
            (
                "two ranks without a launcher that numbers them",
                tree(&[("python", None, None)]),
                Some(&two),
                vec![],
            ),
            (
                "a shell between two commands",
                tree(&[("sh", None, None)]),
                Some(&only),
                vec![(3, 0)],
            ),
            (
                "a shell that has not collected its command",
                tree(&[("sh", None, None), ("ended", None, Some(0))]),
                Some(&only),
                vec![(3, 0)],
            ),
            ("nothing runs", tree(&[]), Some(&only), vec![]),
            (
                "a pod without ranks",
                tree(&[("mpirun", None, None)]),
                None,
                vec![],
            ),
        ];
        for (name, tree, held, wanted) in cases {
            let found: Vec<(u32, usize)> = tree.ranks(held).into_iter().collect();
            assert_eq!(found, wanted, "{name}");
        }
    }

    #[test]
    fn what_workers_use_counts_for_their_rank() {
        let tree = tree(&[
            ("torchrun", None, None),
            ("python", Some(0), Some(0)),
            ("python", Some(1), Some(0)),
            ("python", Some(0), Some(1)),
            ("python", Some(0), Some(3)),
        ]);
        assert_eq!(tree.used(1), (30, 9));
        assert_eq!(tree.used(2), (10, 3));
        assert_eq!(tree.used(0), (50, 15));
    }
}
