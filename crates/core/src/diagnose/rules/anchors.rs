//! The first stage: literals that a line must hold to be looked at, searched for in whole blocks.
//!
//! The search compares the first four bytes of up to [`SET`] literals at once. With one literal more, or
//! with one of three bytes, it becomes several times slower, and nothing says so; so there are as many
//! sets as are needed, and a block is gone over once for each.

use aho_corasick::{AhoCorasick, MatchKind};

/// Literals that are searched for at once.
const SET: usize = 64;

/// Every literal of the first stage.
#[derive(Debug)]
pub(in crate::diagnose) struct Anchors {
    sets: Vec<AhoCorasick>,
    #[cfg(test)]
    pub(super) literals: Vec<String>,
}

impl Anchors {
    pub(super) fn new(literals: &[String]) -> Self {
        let set = |literals: &[String]| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .build(literals)
                .expect("anchors are few and short")
        };
        Self {
            sets: literals.chunks(SET).map(set).collect(),
            #[cfg(test)]
            literals: literals.to_vec(),
        }
    }

    /// Whether `line` holds one of them.
    pub(in crate::diagnose) fn is_match(&self, line: &[u8]) -> bool {
        self.sets.iter().any(|set| set.is_match(line))
    }

    /// A walk over one block, from its beginning to its end.
    pub(in crate::diagnose) fn walk<'a>(&'a self, block: &'a [u8]) -> Walk<'a> {
        Walk {
            anchors: self,
            block,
            next: vec![None; self.sets.len()],
        }
    }
}

/// Goes from one hit in a block to the next.
pub(in crate::diagnose) struct Walk<'a> {
    anchors: &'a Anchors,
    block: &'a [u8],
    /// Where each set is found next: nobody looked, or at that byte, which is the length of the block
    /// where it is not found any more.
    next: Vec<Option<usize>>,
}

impl Walk<'_> {
    /// The first hit at `from` or behind it. What one set has found far ahead is not searched for again
    /// while the others catch up.
    pub(in crate::diagnose) fn hit(&mut self, from: usize) -> Option<usize> {
        for (set, next) in self.anchors.sets.iter().zip(&mut self.next) {
            if next.is_none_or(|at| at < from) {
                let rest = self.block.get(from..).unwrap_or_default();
                let hit = set.find(rest).map(|hit| from + hit.start());
                *next = Some(hit.unwrap_or(self.block.len()));
            }
        }
        let first = self.next.iter().flatten().copied().min();
        first.filter(|at| *at < self.block.len())
    }
}
