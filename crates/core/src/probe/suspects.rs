//! Nodes that jobs blame, until the operator has tested them itself.
//!
//! Owns which of them is tried next and how often. The author of a job can have it blame its nodes any number of times,
//! so all of it is bounded: nodes that wait, nodes of one namespace, trials of one node.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;

/// A node is tried once in this time, however often it is blamed.
const EVERY: Duration = Duration::from_mins(30);
/// Nodes that wait for a trial.
const WAITING: usize = 64;
/// Nodes that jobs of one namespace can have waiting.
const OF_ONE_NAMESPACE: usize = 8;
/// Nodes that the measurement is made with.
const BESIDE: usize = 2;

/// Nodes that jobs blame.
#[derive(Clone, Debug, Default)]
pub struct Suspects {
    waiting: BTreeMap<String, Waiting>,
    /// When each was tried last.
    tried: BTreeMap<String, Timestamp>,
}

#[derive(Clone, Debug)]
struct Waiting {
    namespace: String,
    beside: BTreeSet<String>,
    since: Timestamp,
}

/// A node to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The node.
    pub node: String,
    /// Nodes that passed beside it, to measure paths with.
    pub beside: BTreeSet<String>,
}

/// The result of blaming a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blamed {
    /// It will be tried.
    Queued,
    /// It waits for its trial already, or was tried a short time ago.
    Known,
    /// Too many nodes wait.
    Full,
}

impl Blamed {
    /// The value of the metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Known => "known",
            Self::Full => "full",
        }
    }
}

impl Suspects {
    /// A job of `namespace` blames `node`; the nodes `fit` passed beside it.
    pub fn blame(
        &mut self,
        node: &str,
        namespace: &str,
        fit: &BTreeSet<String>,
        now: Timestamp,
    ) -> Blamed {
        let over = |at: &Timestamp| at.checked_add(EVERY).is_ok_and(|next| next <= now);
        self.tried.retain(|_, at| !over(at));
        if self.waiting.contains_key(node) || self.tried.contains_key(node) {
            return Blamed::Known;
        }
        let same = self
            .waiting
            .values()
            .filter(|one| one.namespace == namespace);
        if self.waiting.len() >= WAITING || same.count() >= OF_ONE_NAMESPACE {
            return Blamed::Full;
        }
        let waiting = Waiting {
            namespace: namespace.to_owned(),
            beside: fit.iter().take(BESIDE).cloned().collect(),
            since: now,
        };
        self.waiting.insert(node.to_owned(), waiting);
        Blamed::Queued
    }

    /// The node that is tried next: the one that has waited longest.
    pub fn take(&mut self, now: Timestamp) -> Option<Suspect> {
        let oldest = self.waiting.iter().min_by_key(|(_, one)| one.since);
        let node = oldest?.0.clone();
        let waiting = self.waiting.remove(&node)?;
        self.tried.insert(node.clone(), now);
        Some(Suspect {
            node,
            beside: waiting.beside,
        })
    }

    /// The node that was taken is not tried after all, so that it may be blamed again at once.
    pub fn was_not_tried(&mut self, node: &str) {
        self.tried.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap()
    }

    #[test]
    fn one_trial_per_node_and_half_hour() {
        let mut suspects = Suspects::default();
        let fit = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(suspects.blame("n", "team", &fit, at(0)), Blamed::Queued);
        assert_eq!(suspects.blame("n", "other", &fit, at(0)), Blamed::Known);
        let taken = suspects.take(at(1)).unwrap();
        assert_eq!((taken.node.as_str(), taken.beside.len()), ("n", BESIDE));
        assert_eq!(suspects.take(at(1)), None);
        assert_eq!(suspects.blame("n", "team", &fit, at(30)), Blamed::Known);
        assert_eq!(suspects.blame("n", "team", &fit, at(31)), Blamed::Queued);
    }

    #[test]
    fn one_namespace_cannot_fill_the_queue() {
        let mut suspects = Suspects::default();
        let none = BTreeSet::new();
        let queued = |suspects: &mut Suspects, namespace: &str, first: usize| {
            let nodes = (first..first + 100).map(|node| format!("n{node}"));
            let answers = nodes.map(|node| suspects.blame(&node, namespace, &none, at(0)));
            answers.filter(|answer| *answer == Blamed::Queued).count()
        };
        assert_eq!(queued(&mut suspects, "team-0", 0), OF_ONE_NAMESPACE);
        let others = 1..20;
        let others = others.map(|team| queued(&mut suspects, &format!("team-{team}"), team * 100));
        assert_eq!(others.sum::<usize>(), WAITING - OF_ONE_NAMESPACE);
    }

    #[test]
    fn who_waited_longest_is_first() {
        let mut suspects = Suspects::default();
        let none = BTreeSet::new();
        suspects.blame("late", "team", &none, at(2));
        suspects.blame("early", "team", &none, at(1));
        assert_eq!(suspects.take(at(3)).unwrap().node, "early");
        assert_eq!(suspects.take(at(3)).unwrap().node, "late");
    }
}
