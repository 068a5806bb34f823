//! From what was read of one machine to its checks.
//!
//! One file for each layer. What concerns several things of one kind, such as the GPUs of a machine, is one
//! check where all are well, and one for each that is not.

mod devices;
mod host;
mod network;
pub(super) mod rdma;
mod storage;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use super::{Check, Needs, Reading, catalogue::Entry};

/// The checks of one machine, in the order of the catalogue.
pub fn examine(reading: &Reading, needs: &Needs) -> Vec<Check> {
    let scene = Scene::new(reading, needs);
    let mut checks = Vec::new();
    host::examine(&scene, &mut checks);
    devices::examine(&scene, &mut checks);
    network::examine(&scene, &mut checks);
    rdma::examine(&scene, &mut checks);
    network::counters(&scene, &mut checks);
    storage::examine(&scene, &mut checks);
    checks
}

/// Whether something of the machine matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// The job does not work without it.
    Required,
    /// No job is named, and the machine has it.
    Present,
    /// It does not matter.
    No,
}

impl Want {
    /// The outcome of what is wrong with it: worse where a job needs it.
    fn bad(
        self,
        entry: &Entry,
        found: impl Into<String>,
        needed: impl Into<String>,
        cause: impl Into<String>,
        next: impl Into<String>,
    ) -> Check {
        entry.fail_if(self == Self::Required, found, needed, cause, next)
    }
}

/// A machine, and what is wanted of it.
struct Scene<'a> {
    reading: &'a Reading,
    needs: &'a Needs,
    gpus: Want,
    rdma: Want,
}

impl<'a> Scene<'a> {
    fn new(reading: &'a Reading, needs: &'a Needs) -> Self {
        let want = |is_needed: bool, is_there: bool| match (is_needed, &needs.asked_by) {
            (true, _) => Want::Required,
            (false, None) if is_there => Want::Present,
            (false, _) => Want::No,
        };
        let on_bus = reading
            .gpus_on_bus
            .value()
            .is_some_and(|bus| !bus.is_empty());
        let known = reading.gpus.value().is_some_and(|gpus| !gpus.is_empty());
        let ports = reading.rdma.value().is_some_and(|ports| !ports.is_empty());
        Self {
            reading,
            needs,
            gpus: want(needs.uses_gpus(), on_bus || known),
            rdma: want(needs.rdma(), ports),
        }
    }
}
