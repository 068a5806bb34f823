//! Which pod holds which rank.

use trainyard_core::spec::{Framework, Job, Role, Slot};

/// The pods that hold ranks, in the order of the ranks, and how many ranks each holds.
///
/// The launcher of an `MPIJob` holds none unless it is a worker, too. Kinds that number by role
/// are numbered in the order of listing, which for the others is the order of their ranks.
fn holders(job: &Job) -> (Vec<Slot>, u32) {
    let (launcher_too, per_pod) = match &job.framework {
        Framework::MpiV1(own) => (false, own.slots_per_worker),
        Framework::MpiV2(own) => (own.run_launcher_as_worker, own.slots_per_worker),
        _ => (true, 1),
    };
    let slots = job
        .slots()
        .filter(|slot| launcher_too || slot.role != Role::Launcher);
    (slots.collect(), per_pod.max(1))
}

/// The pod that holds `rank`; the error is how many ranks there are.
pub(crate) fn pod_of_rank(job: &Job, rank: u32) -> Result<Slot, u32> {
    let (slots, per_pod) = holders(job);
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    let found = slots.get((rank / per_pod) as usize);
    found.copied().ok_or(count.saturating_mul(per_pod))
}

/// The first rank of the pod in `slot`, where it holds one.
pub(crate) fn first_rank(job: &Job, slot: Slot) -> Option<u32> {
    let (slots, per_pod) = holders(job);
    let place = slots.iter().position(|known| *known == slot)?;
    Some(u32::try_from(place).ok()?.saturating_mul(per_pod))
}

/// The pod at `place` among those that hold ranks; the error is how many there are.
pub(crate) fn pod_at(job: &Job, place: u32) -> Result<Slot, u32> {
    let (slots, _) = holders(job);
    let found = slots.get(place as usize);
    found
        .copied()
        .ok_or(u32::try_from(slots.len()).unwrap_or(u32::MAX))
}
