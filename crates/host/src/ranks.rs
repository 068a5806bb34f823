//! Which pod holds which ranks.
//!
//! Ranks are counted as the framework counts them: a pod of `nprocPerNode: "4"`, or a worker with
//! four MPI slots, holds four. Kinds that number by role are numbered in the order of listing, which
//! for the others is the order of their ranks. Where the framework itself finds out how many
//! processes a pod has (`nprocPerNode: auto`), a pod counts as one rank, as in `WORLD_SIZE`.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use trainyard_core::{
    chronicle::Places,
    spec::{Framework, Job, Replicas, Role, Slot, launcher_holds_ranks},
};

/// How the ranks of a job are spread over its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ranks {
    /// Ranks of each pod that holds any.
    pub per_pod: u32,
    /// Whether the launcher of an `MPIJob` holds ranks, too.
    pub in_launcher: bool,
}

impl Default for Ranks {
    fn default() -> Self {
        Self {
            per_pod: 1,
            in_launcher: false,
        }
    }
}

impl Ranks {
    /// The ranks of `job`.
    pub fn of(job: &Job) -> Self {
        let per_pod = match &job.framework {
            Framework::MpiV1(own) => Some(own.slots_per_worker),
            Framework::MpiV2(own) => Some(own.slots_per_worker),
            Framework::PyTorch(own) => match (&own.nproc_per_node, &own.elastic) {
                (Some(text), _) => text.parse().ok(),
                (None, Some(elastic)) => elastic
                    .nproc_per_node
                    .and_then(|count| u32::try_from(count).ok()),
                (None, None) => None,
            },
            _ => None,
        };
        Self {
            per_pod: per_pod.unwrap_or(1).max(1),
            in_launcher: launcher_holds_ranks(job),
        }
    }

    /// The pods that hold ranks, in the order of their ranks.
    fn holders(self, replicas: &Replicas) -> impl Iterator<Item = Slot> + '_ {
        let roles = replicas
            .iter()
            .filter(|(role, _)| !role.is_initializer())
            .filter(move |(role, _)| self.in_launcher || **role != Role::Launcher);
        roles.flat_map(|(role, count)| (0..*count).map(|index| Slot::new(*role, index)))
    }

    /// How many ranks there are.
    pub fn count(self, replicas: &Replicas) -> u32 {
        let pods = u32::try_from(self.holders(replicas).count()).unwrap_or(u32::MAX);
        pods.saturating_mul(self.per_pod)
    }

    /// The pod that holds `rank`.
    pub fn pod_of(self, replicas: &Replicas, rank: u32) -> Option<Slot> {
        let place = usize::try_from(rank / self.per_pod).ok()?;
        self.holders(replicas).nth(place)
    }

    /// The first rank of every pod and how many it holds.
    pub fn places(self, replicas: &Replicas) -> Places {
        let all = replicas
            .iter()
            .flat_map(|(role, count)| (0..*count).map(|index| Slot::new(*role, index)));
        let mut places: Places = all.map(|slot| (slot, (None, 0))).collect();
        for (place, slot) in (0_u32..).zip(self.holders(replicas)) {
            let first = place.checked_mul(self.per_pod);
            places.insert(slot, (first, self.per_pod));
        }
        places
    }

    /// The ranks of the pod in `slot`, where it holds any.
    pub fn of_pod(self, replicas: &Replicas, slot: Slot) -> Option<RangeInclusive<u32>> {
        let place = self.holders(replicas).position(|known| known == slot)?;
        let first = u32::try_from(place).ok()?.checked_mul(self.per_pod)?;
        Some(first..=first.checked_add(self.per_pod - 1)?)
    }

    /// The rank of the pod in `slot`, where it holds just one.
    pub fn only_of_pod(self, replicas: &Replicas, slot: Slot) -> Option<u32> {
        let held = self.of_pod(replicas, slot)?;
        (held.start() == held.end()).then_some(*held.start())
    }

    /// The pod at `place` among those that hold ranks; the error is how many there are.
    pub(crate) fn pod_at(self, replicas: &Replicas, place: u32) -> Result<Slot, u32> {
        let mut pods = self.holders(replicas);
        let found = usize::try_from(place).ok().and_then(|at| pods.nth(at));
        found.ok_or_else(|| self.count(replicas) / self.per_pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_as_the_framework_counts_them() {
        let replicas: Replicas = [(Role::Launcher, 1), (Role::Master, 1), (Role::Worker, 2)].into();
        let worker = |index| Slot::new(Role::Worker, index);
        let cases = [
            ((1, false), 3, 2, worker(1), 2..=2),
            ((4, false), 12, 7, worker(0), 4..=7),
            ((2, true), 8, 7, worker(1), 6..=7),
        ];
        for ((per_pod, in_launcher), count, rank, slot, held) in cases {
            let ranks = Ranks {
                per_pod,
                in_launcher,
            };
            assert_eq!(ranks.count(&replicas), count);
            assert_eq!(ranks.pod_of(&replicas, rank), Some(slot));
            assert_eq!(ranks.pod_of(&replicas, count), None);
            let only = (per_pod == 1).then_some(rank);
            assert_eq!(ranks.only_of_pod(&replicas, slot), only);
            assert_eq!(ranks.of_pod(&replicas, slot), Some(held));
            let launcher = ranks.of_pod(&replicas, Slot::new(Role::Launcher, 0));
            assert_eq!(launcher.is_some(), in_launcher);
            assert_eq!(ranks.pod_at(&replicas, 9), Err(count / per_pod));
        }
    }
}
