//! When which fault begins. All of it follows from the seed.

use std::collections::BTreeSet;

use crate::random::Random;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The API server is killed, and started again after a pause.
    ApiKill,
    /// The API server stands still.
    ApiPause,
    /// etcd stands still.
    EtcdPause,
    /// A node stops reporting, and comes back.
    NodeSilent,
    /// A node is deleted, and made again.
    NodeDeleted,
    /// An operator is killed, and started again.
    OperatorKill,
    /// The operator that leads stands still for longer than its lease lasts.
    LeaderPause,
    /// All connections of one operator go silent and are never closed.
    SilentWatches,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::ApiKill,
        Self::ApiPause,
        Self::EtcdPause,
        Self::NodeSilent,
        Self::NodeDeleted,
        Self::OperatorKill,
        Self::LeaderPause,
        Self::SilentWatches,
    ];

    /// The word for `--without`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ApiKill => "api-kill",
            Self::ApiPause => "api-pause",
            Self::EtcdPause => "etcd-pause",
            Self::NodeSilent => "node-silent",
            Self::NodeDeleted => "node-deleted",
            Self::OperatorKill => "operator-kill",
            Self::LeaderPause => "leader-pause",
            Self::SilentWatches => "silent-watches",
        }
    }

    /// How long it lasts, in seconds.
    fn lasts(self, random: &mut Random) -> u64 {
        match self {
            Self::ApiKill | Self::OperatorKill => random.between(0, 4),
            Self::ApiPause | Self::EtcdPause => random.between(3, 15),
            Self::NodeSilent | Self::NodeDeleted => random.between(5, 20),
            // A lease lasts 15 s.
            Self::LeaderPause => random.between(18, 24),
            Self::SilentWatches => random.one_of(&[0, 0, 8, 20]),
        }
    }
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Seconds after the begin of the run.
    pub(crate) at: u64,
    pub(crate) fault: Fault,
    /// Seconds.
    pub(crate) lasts: u64,
    /// Which node or operator, where there are several.
    pub(crate) which: u64,
}

/// Seconds of a minute at which faults begin. The rest of it is for recovery.
const BEGINS: [u64; 3] = [1, 16, 31];
/// The last second of a minute in which a fault may be under way.
pub(crate) const QUIET_FROM: u64 = 55;

/// The faults of a run, by time.
pub(crate) fn schedule(seed: u64, minutes: u64, without: &BTreeSet<Fault>) -> Vec<Planned> {
    let mut random = Random::new(seed, 1);
    let mut deck: Vec<Fault> = Vec::new();
    let mut planned = Vec::new();
    let kinds: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| !without.contains(fault) && *fault != Fault::OperatorKill)
        .collect();
    for minute in 0..minutes {
        for begin in BEGINS.into_iter().filter(|_| !kinds.is_empty()) {
            // Every kind comes once before any comes again.
            if deck.is_empty() {
                deck.clone_from(&kinds);
                random.shuffle(&mut deck);
            }
            let Some(fault) = deck.pop() else { continue };
            let second = begin + random.between(0, 3);
            let lasts = fault.lasts(&mut random).min(QUIET_FROM - second);
            planned.push(Planned {
                at: minute * 60 + second,
                fault,
                lasts,
                which: random.between(0, 1_000),
            });
        }
        if !without.contains(&Fault::OperatorKill) {
            planned.push(Planned {
                at: minute * 60 + random.between(0, QUIET_FROM - 10),
                fault: Fault::OperatorKill,
                lasts: Fault::OperatorKill.lasts(&mut random),
                // In turns, where it is not the leader.
                which: minute,
            });
        }
    }
    planned.sort_by_key(|planned| planned.at);
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_minutes_have_every_fault() {
        for seed in 0..50 {
            let planned = schedule(seed, 3, &BTreeSet::new());
            let kinds: BTreeSet<Fault> = planned.iter().map(|one| one.fault).collect();
            assert_eq!(kinds.len(), Fault::ALL.len(), "seed {seed}");
            let kills = planned
                .iter()
                .filter(|one| one.fault == Fault::OperatorKill);
            let minutes: Vec<u64> = kills.map(|one| one.at / 60).collect();
            assert_eq!(minutes, [0, 1, 2], "seed {seed}");
            assert_eq!(planned, schedule(seed, 3, &BTreeSet::new()));
        }
    }

    #[test]
    fn each_minute_ends_quietly() {
        for one in schedule(4, 200, &BTreeSet::new()) {
            assert!(one.at % 60 + one.lasts <= QUIET_FROM, "{one:?}");
        }
    }

    #[test]
    fn what_is_left_out_does_not_happen() {
        let all: BTreeSet<Fault> = Fault::ALL.into_iter().collect();
        assert_eq!(schedule(4, 20, &all), []);
        let without = BTreeSet::from([Fault::SilentWatches, Fault::OperatorKill]);
        let planned = schedule(4, 20, &without);
        assert!(planned.iter().all(|one| !without.contains(&one.fault)));
        assert_eq!(planned.len(), 60);
    }
}
