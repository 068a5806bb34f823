//! The first stage: literals that a line must contain to be read, searched for in whole blocks.
//!
//! The search compares the first four bytes of up to [`SET`] literals at once. With one literal more, or
//! with one of three bytes, it silently becomes several times slower; so there are sets, and a
//! block is searched once for each.

use aho_corasick::{AhoCorasick, MatchKind};

/// Literals that are searched for at once.
pub(super) const SET: usize = 64;

/// Which part of a log a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::diagnose) enum Part {
    /// There is much before and after it: the job got past whatever is here.
    Middle,
    /// Any other.
    End,
}

/// Every literal of the first stage.
#[derive(Debug)]
pub(in crate::diagnose) struct Anchors {
    /// Sets that are searched for everywhere, then those for the ends.
    sets: Vec<AhoCorasick>,
    /// How many are searched for everywhere.
    everywhere: usize,
    #[cfg(test)]
    pub(super) literals: Vec<String>,
}

impl Anchors {
    /// `everywhere` holds what is looked for in every part of a log.
    pub(super) fn new(everywhere: &[String], at_ends: &[String]) -> Self {
        let set = |literals: &[String]| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .build(literals)
                .expect("anchors are few and short")
        };
        let mut sets: Vec<AhoCorasick> = everywhere.chunks(SET).map(set).collect();
        let count = sets.len();
        sets.extend(at_ends.chunks(SET).map(set));
        Self {
            sets,
            everywhere: count,
            #[cfg(test)]
            literals: [everywhere, at_ends].concat(),
        }
    }

    /// Whether `line` holds one of them.
    pub(in crate::diagnose) fn is_match(&self, line: &[u8]) -> bool {
        self.sets.iter().any(|set| set.is_match(line))
    }

    /// A walk over one block, from its beginning to its end.
    pub(in crate::diagnose) fn walk<'a>(&'a self, block: &'a [u8], part: Part) -> Walk<'a> {
        let sets = match part {
            Part::Middle => self.sets.get(..self.everywhere).unwrap_or_default(),
            Part::End => &self.sets,
        };
        Walk {
            sets,
            block,
            next: vec![None; sets.len()],
        }
    }
}

/// Goes from one hit in a block to the next.
pub(in crate::diagnose) struct Walk<'a> {
    sets: &'a [AhoCorasick],
    block: &'a [u8],
    /// Where each set is found next: not searched yet, or at that byte, which is the length of the block
    /// where there is no further hit.
    next: Vec<Option<usize>>,
}

impl Walk<'_> {
    /// The first hit at `from` or behind it. What one set has found far ahead is not searched for again
    /// while the others catch up.
    pub(in crate::diagnose) fn hit(&mut self, from: usize) -> Option<usize> {
        for (set, next) in self.sets.iter().zip(&mut self.next) {
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
