//! The all-reduce around a ring: who sends which chunk when, what the sums are, its bandwidth, and the check
//! `gang-bandwidth`.
//!
//! Owns the arithmetic; the bytes travel elsewhere.

use std::ops::Range;

use super::{Check, catalogue::GANG_BANDWIDTH, links::bits};

/// The part of the pairs' median that links must carry when all nodes send at once.
const GANG_PART: f64 = 0.5;

/// The result of the ring.
#[derive(Clone, Debug, PartialEq)]
pub enum RingFound {
    /// It ended.
    Ended {
        /// How many nodes took part.
        nodes: usize,
        /// Bits in a second that each link carried.
        bandwidth: f64,
        /// Whether every sum was right.
        right: bool,
    },
    /// It did not, and what each node says.
    Broken(Vec<(String, String)>),
    /// There was none, and why.
    None(String),
}

impl RingFound {
    /// The check, beside the `median` that pairs reach.
    pub fn check(&self, median: f64) -> Check {
        let least = GANG_PART * median;
        let needed = format!("at least {}, half of what a pair reaches", bits(least));
        match self {
            Self::None(why) => GANG_BANDWIDTH.skip("not measured", why),
            Self::Broken(said) => {
                let first = said.iter().take(3);
                let first = first.map(|(node, why)| format!("{node}: {why}"));
                let first = first.collect::<Vec<_>>().join("; ");
                GANG_BANDWIDTH.fail(
                    format!("it did not finish; {first}"),
                    needed,
                    "a pair that was not measured alone cannot reach each other, or a node died",
                    "run the preflight again; look at the nodes that are named first",
                )
            }
            Self::Ended {
                nodes,
                right: false,
                ..
            } => GANG_BANDWIDTH.fail(
                format!("wrong sums over {nodes} nodes"),
                "every sum as computed",
                "memory or a network device corrupts data",
                "run a memory test on these nodes, each with half of the others to find which",
            ),
            Self::Ended {
                nodes, bandwidth, ..
            } => {
                let found = format!("{} on each link, {nodes} nodes in a ring", bits(*bandwidth));
                if *bandwidth >= least {
                    return GANG_BANDWIDTH.pass(found, needed);
                }
                GANG_BANDWIDTH.warn(
                    found,
                    needed,
                    "uplinks with less capacity than the nodes behind them, or busy processors",
                    "place the gang within one domain, or expect this speed",
                )
            }
        }
    }
}

/// One step of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The chunk that goes to the next rank.
    pub sends: usize,
    /// The chunk that comes from the previous one.
    pub receives: usize,
    /// Whether what comes is added to what is there, or takes its place.
    pub adds: bool,
}

/// The steps of `rank` among `size`: first every chunk is summed up on one rank, then it goes around.
pub fn steps(rank: usize, size: usize) -> impl Iterator<Item = Step> {
    let back = move |by: usize| (rank + 2 * size - by) % size.max(1);
    let rounds = size.saturating_sub(1);
    let reduce = (0..rounds).map(move |step| Step {
        sends: back(step),
        receives: back(step + 1),
        adds: true,
    });
    let gather = (0..rounds).map(move |step| Step {
        sends: back(step + size - 1),
        receives: back(step),
        adds: false,
    });
    reduce.chain(gather)
}

/// Where chunk `index` of `size` lies among `words`.
pub fn chunk(index: usize, size: usize, words: usize) -> Range<usize> {
    let edge = |index: usize| words * index / size.max(1);
    edge(index)..edge(index + 1)
}

/// What `rank` brings.
pub fn contribution(rank: usize, words: usize) -> Vec<u64> {
    let factor = rank as u64 + 1;
    (0..words as u64)
        .map(|index| pattern(index).wrapping_mul(factor))
        .collect()
}

/// Whether these are the sums of what `size` ranks brought.
pub fn is_sum(words: &[u64], size: usize) -> bool {
    let size = size as u64;
    let factor = size * (size + 1) / 2;
    let sums = (0..).map(|index| pattern(index).wrapping_mul(factor));
    words
        .iter()
        .copied()
        .zip(sums)
        .all(|(word, sum)| word == sum)
}

/// A word that differs from its neighbours, so that a chunk in the wrong place is noticed.
fn pattern(index: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Bits in a second that each link carried: of the bytes that each rank brought, an all-reduce moves
/// 2 (n − 1) / n over each link, so this can be compared with what a pair reaches whatever n is.
#[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
pub fn bus_bandwidth(bytes: usize, micros: u64, size: usize) -> f64 {
    if micros == 0 || size == 0 {
        return 0.0;
    }
    let moved = bytes as f64 * 8.0 * 2.0 * (size as f64 - 1.0) / size as f64;
    moved / (micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_ends_with_the_sums() {
        for size in 2..9 {
            for words in [0, 1, size, 37] {
                let mut held: Vec<Vec<u64>> =
                    (0..size).map(|rank| contribution(rank, words)).collect();
                let plans: Vec<Vec<Step>> =
                    (0..size).map(|rank| steps(rank, size).collect()).collect();
                for turn in 0..2 * (size - 1) {
                    let sent: Vec<Vec<u64>> = (0..size)
                        .map(|rank| {
                            held[rank][chunk(plans[rank][turn].sends, size, words)].to_vec()
                        })
                        .collect();
                    for rank in 0..size {
                        let step = plans[rank][turn];
                        let previous = (rank + size - 1) % size;
                        assert_eq!(step.receives, plans[previous][turn].sends);
                        let range = chunk(step.receives, size, words);
                        for (word, came) in held[rank][range].iter_mut().zip(&sent[previous]) {
                            *word = if step.adds {
                                word.wrapping_add(*came)
                            } else {
                                *came
                            };
                        }
                    }
                }
                assert!(
                    held.iter().all(|words| is_sum(words, size)),
                    "{size} {words}"
                );
            }
        }
    }

    #[test]
    fn a_wrong_sum_is_noticed() {
        let mut words = contribution(0, 8);
        assert!(is_sum(&words, 1));
        words.swap(2, 3);
        assert!(!is_sum(&words, 1));
    }

    #[test]
    fn the_bandwidth_is_that_of_one_link() {
        // Four ranks with 1 MB each: 1.5 MB over each link.
        assert!((bus_bandwidth(1_000_000, 12_000, 4) - 1e9).abs() < 1.0);
    }
}
