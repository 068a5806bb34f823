//! Which rank, or which process, a line is about.

use super::{Line, MAX_NAMES, Member, Source, torch};

impl Source {
    /// The rank of a line that does not name one, where the source is that of one rank.
    pub(super) fn default_rank(&self, line: &Line<'_>) -> Option<u32> {
        line.rank
            .or_else(|| torch::rank(line.text).filter(|_| self.rank.is_none()))
            .or(self.rank)
    }

    pub(super) fn process(&mut self, host: &str, pid: u32, rank: Option<u32>) -> usize {
        // A redacted host name does not count as a name.
        let host = Some(host).filter(|host| !host.is_empty());
        let known = self.by_pid.entry(pid).or_default();
        let found = known.iter().copied().find(|index| {
            self.members
                .get(*index)
                .is_some_and(|member| member.node.as_deref() == host)
        });
        if let Some(index) = found {
            return index;
        }
        let index = self.members.len().min(MAX_NAMES - 1);
        if index == self.members.len() {
            known.push(index);
            self.members.push(Member {
                rank: rank.or(self.rank),
                node: host.map(str::to_owned),
                ..Member::default()
            });
        }
        index
    }

    pub(super) fn member_of_line(&mut self, line: &Line<'_>) -> usize {
        match line.rank.or(self.rank) {
            Some(rank) => self.member_of_rank(rank),
            None => self.whole_source_member(),
        }
    }

    pub(super) fn member_of_rank(&mut self, rank: u32) -> usize {
        if let Some(index) = self.by_rank.get(&rank) {
            return *index;
        }
        let index = self.members.len().min(MAX_NAMES - 1);
        if index == self.members.len() {
            self.members.push(Member {
                rank: Some(rank),
                ..Member::default()
            });
            self.by_rank.insert(rank, index);
        }
        index
    }

    pub(super) fn whole_source_member(&mut self) -> usize {
        if let Some(rank) = self.rank {
            return self.member_of_rank(rank);
        }
        *self.whole.get_or_insert_with(|| {
            self.members.push(Member::default());
            self.members.len() - 1
        })
    }
}
