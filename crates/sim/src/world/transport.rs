//! The transports that ranks report: by attempt the required one, or another one.

use trainyard_core::{
    diagnose::TransportSeen,
    job::{PodPhase, ReportedTransports},
};

use super::World;
use crate::{coverage::Mark, dice::Dice};

/// The stream that says whether jobs require a transport, and what each attempt gets, begins here.
const STREAM: u64 = 3 << 41;
/// What jobs here require.
pub(crate) const REQUIRED: &str = "NET/IB";
/// What they get where they do not.
pub(crate) const WRONG: &str = "NET/Socket";

/// Whether the job of this seed requires a transport.
pub(crate) fn requires(seed: u64) -> bool {
    Dice::new(seed, STREAM).chance(15)
}

impl World {
    /// What the ranks of the attempt that a controller sees have reported so far: those whose pods it sees running.
    pub(super) fn read_transports(&mut self, number: usize) {
        let adapter = &self.controllers.adapters[number];
        if adapter.job.settings.require_transport.is_empty() {
            return;
        }
        let attempt = adapter.view.status.trainyard.attempt;
        let wrong = Dice::new(self.seed, STREAM + u64::from(attempt)).chance(25);
        let used = if wrong { WRONG } else { REQUIRED };
        let running = adapter.view.pods.iter().filter(|pod| {
            pod.attempt == attempt && pod.phase == PodPhase::Running && pod.deleted_at.is_none()
        });
        let ranks: Vec<TransportSeen> = running
            .map(|pod| TransportSeen {
                rank: None,
                host: None,
                source: adapter.job.pod_name(pod.slot),
                world: Some(adapter.job.total_replicas()),
                transports: std::iter::once(used.to_owned()).collect(),
            })
            .collect();
        let reported = (!ranks.is_empty()).then_some(ReportedTransports { attempt, ranks });
        if wrong && reported.is_some() {
            self.coverage.mark(Mark::WrongTransport);
            // It costs an attempt, as a failure does.
            for birth in self
                .cluster
                .births
                .iter_mut()
                .filter(|birth| birth.attempt == attempt)
            {
                birth.troubled = true;
            }
        }
        self.controllers.adapters[number].view.transports = reported;
    }
}
