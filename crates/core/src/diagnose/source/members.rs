//! Which rank, or which process, a line is about.

use std::collections::BTreeMap;

use super::{Line, MAX_NAMES, Member, Source, torch};

/// The processes and ranks of one source. At most [`MAX_NAMES`] are kept apart; what comes after them counts as the last one's.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct Members {
    all: Vec<Member>,
    by_pid: BTreeMap<u32, Vec<usize>>,
    by_rank: BTreeMap<u32, usize>,
    /// That of lines that name no rank.
    unnamed: Option<usize>,
}

impl Members {
    pub(in crate::diagnose) fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.all.iter()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Member> {
        self.all.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Member> {
        self.all.get_mut(index)
    }

    /// The process `pid` of `host`; `rank` is its rank if it is new.
    pub(super) fn of_process(&mut self, host: &str, pid: u32, rank: Option<u32>) -> usize {
        // A redacted host name does not count as a name.
        let host = Some(host).filter(|host| !host.is_empty());
        let is_own = |index: &usize| {
            let member = self.all.get(*index);
            member.is_some_and(|member| member.node.as_deref() == host)
        };
        let mut known = self.by_pid.get(&pid).into_iter().flatten().copied();
        if let Some(index) = known.find(is_own) {
            return index;
        }
        let index = self.all.len().min(MAX_NAMES - 1);
        if index == self.all.len() {
            self.by_pid.entry(pid).or_default().push(index);
            self.all.push(Member {
                rank,
                node: host.map(str::to_owned),
                ..Member::default()
            });
        }
        index
    }

    fn of_rank(&mut self, rank: u32) -> usize {
        if let Some(index) = self.by_rank.get(&rank) {
            return *index;
        }
        let index = self.all.len().min(MAX_NAMES - 1);
        if index == self.all.len() {
            self.all.push(Member {
                rank: Some(rank),
                ..Member::default()
            });
            self.by_rank.insert(rank, index);
        }
        index
    }

    /// That of `rank`, or of the lines that name none.
    pub(super) fn of(&mut self, rank: Option<u32>) -> usize {
        if let Some(rank) = rank {
            return self.of_rank(rank);
        }
        *self.unnamed.get_or_insert_with(|| {
            self.all.push(Member::default());
            self.all.len() - 1
        })
    }
}

impl Source {
    /// The rank of a line that does not name one, where the source is that of one rank.
    pub(super) fn default_rank(&self, line: &Line<'_>) -> Option<u32> {
        line.rank
            .or_else(|| torch::rank(line.text).filter(|_| self.rank.is_none()))
            .or(self.rank)
    }

    pub(super) fn member_of_line(&mut self, line: &Line<'_>) -> usize {
        self.members.of(line.rank.or(self.rank))
    }
}
