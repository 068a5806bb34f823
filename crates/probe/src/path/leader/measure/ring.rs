//! All nodes at once, in a ring.

use std::{collections::BTreeMap, time::Duration};

use trainyard_core::probe::{
    pairs::Link,
    ring::{RingFound, bus_bandwidth},
    search::Conclusion,
};

use super::{
    super::super::message::{Answer, Measure, Part, Request, RingPart},
    Measuring, Pairs,
};

/// Bytes that each rank of a ring brings, at least and at most. Memory is twice that.
const RING_BYTES: (usize, usize) = (64 << 10, 8 << 20);
/// All-reduces of one ring; the fastest counts.
const RING_REPEATS: u32 = 3;

impl Measuring<'_> {
    /// All who are not slow, in a ring.
    pub(super) fn ring(&mut self, pairs: &Pairs, conclusion: &Conclusion) -> RingFound {
        let mut order: Vec<usize> = (0..pairs.names.len()).collect();
        order.sort_by_key(|node| (self.domains(&pairs.names[*node]), *node));
        order.retain(|node| !conclusion.slow.contains(&Link::Node(*node)));
        let ranks = order.into_iter().map(|node| pairs.able[node]);
        let ranks: Vec<usize> = ranks
            .filter(|member| !self.members.is_gone(*member))
            .collect();
        let size = ranks.len();
        if size < 2 {
            return RingFound::None("fewer than two nodes are fit for it".to_owned());
        }
        let medians = conclusion.medians.iter().flatten().copied();
        let rate = medians.fold(f64::INFINITY, f64::min);
        let bytes = ring_bytes(rate, self.settings.measure, size);
        let bound = self.ring_bound(rate, bytes);
        if self.limit.left().unwrap_or_default() < bound {
            return RingFound::None("no time was left for it".to_owned());
        }
        let id = self.next_id();
        let request = |(rank, member): (usize, &usize)| {
            let own = RingPart {
                rank,
                size,
                next: self.members.address(ranks[(rank + 1) % size])?,
                bytes,
                repeats: RING_REPEATS,
            };
            let part = Part {
                id,
                to: None,
                limit: bound,
                measure: Measure::Ring(own),
            };
            Some((*member, Request::Measure(part)))
        };
        let requests = ranks.iter().enumerate().filter_map(request).collect();
        let limit = self.limit.within(bound + self.settings.patience() * 2);
        let answers = self.members.ask(requests, limit);
        self.ringed(&ranks, &answers, bytes)
    }

    fn ringed(
        &self,
        ranks: &[usize],
        answers: &BTreeMap<usize, Answer>,
        bytes: usize,
    ) -> RingFound {
        let mut slowest = 0;
        let mut right = true;
        let mut said = Vec::new();
        for member in ranks {
            let name = self.members.name(*member).to_owned();
            match answers.get(member) {
                Some(Answer::Ring(ringed)) => match (ringed.micros, &ringed.trouble) {
                    (Some(micros), None) => {
                        slowest = slowest.max(micros);
                        right &= ringed.right;
                    }
                    (_, trouble) => said.push((name, trouble.clone().unwrap_or_default())),
                },
                _ => said.push((name, "no answer".to_owned())),
            }
        }
        if said.is_empty() {
            RingFound::Ended {
                nodes: ranks.len(),
                bandwidth: bus_bandwidth(bytes, slowest, ranks.len()),
                right,
            }
        } else {
            RingFound::Broken(said)
        }
    }

    /// Twenty times what it should take, and the time to connect.
    fn ring_bound(&self, rate: f64, bytes: usize) -> Duration {
        let bits = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) * 8.0 * 2.0;
        let seconds = bits / rate.max(1e6) * f64::from(RING_REPEATS) * 20.0;
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::MAX)
            .min(Duration::from_secs(30))
            + self.settings.patience() * 3
    }
}

/// As much as a pair moves in half a measurement, but more for many ranks, whose chunks would become
/// so small that only latency is measured, and never so much that memory is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the rate is positive, and the bound far below"
)]
fn ring_bytes(rate: f64, measure: Duration, ranks: usize) -> usize {
    let (least, most) = RING_BYTES;
    let most = most.min(ranks.saturating_mul(512 << 10));
    let moved = rate / 8.0 * measure.as_secs_f64() / 2.0;
    (moved.min(1e12) as usize).clamp(least, most.max(least)) / 8 * 8
}
