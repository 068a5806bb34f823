//! Starts an attempt only when the memory of its GPUs is free of the attempt before.
//!
//! Invariants: the first attempt waits for nothing; each later one waits once, for at most [`WITHIN`]; without GPUs of its own a run never waits.

use std::time::{Duration, Instant};

use trainyard_probe::evidence::GpuMemory;

use super::Engine;
use crate::prepare::gpus::Gpus;

/// How long memory is waited for.
const WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked whether a wait is over.
const EVERY: Duration = Duration::from_millis(20);

/// What attempts wait for.
#[derive(Debug)]
pub(super) struct GpuWait {
    memory: Option<GpuMemory>,
    /// The latest attempt that may start.
    cleared: u32,
    /// The attempt that waits, and when it is looked next.
    waits: Option<(u32, Instant)>,
}

impl GpuWait {
    /// For the devices that the run gives to its containers.
    pub(super) fn new(gpus: &Gpus) -> Self {
        let devices = match gpus {
            Gpus::Given(given) => given.values().flatten().cloned().collect(),
            // What others use on devices that are not the run's own says nothing.
            Gpus::Untouched | Gpus::Hidden => Vec::new(),
        };
        Self {
            memory: (!devices.is_empty())
                .then(|| GpuMemory::start(Some(devices)))
                .flatten(),
            cleared: 0,
            waits: None,
        }
    }

    /// Whether the run has GPUs of its own.
    pub(super) fn has_gpus(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the pods of `attempt` must wait.
    pub(super) fn holds(&mut self, attempt: u32, now: Instant) -> bool {
        let is_first = self.cleared == 0;
        if attempt <= self.cleared {
            return false;
        }
        match &mut self.memory {
            Some(memory) if !is_first => {
                if self.waits.is_none() {
                    memory.wait(WITHIN);
                }
                self.waits = Some((attempt, now + EVERY));
                true
            }
            _ => {
                self.cleared = attempt;
                false
            }
        }
    }

    /// When it is looked next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waits.map(|(_, at)| at)
    }
}

impl Engine<'_> {
    /// Lets the attempt start whose wait is over.
    pub(super) fn end_gpu_wait(&mut self, now: Instant) {
        let Some((attempt, at)) = &mut self.gpu_wait.waits else {
            return;
        };
        if now < *at {
            return;
        }
        *at = now + EVERY;
        let attempt = *attempt;
        if let Some(waited) = self.gpu_wait.memory.as_mut().and_then(GpuMemory::take) {
            self.gpu_wait.waits = None;
            self.gpu_wait.cleared = attempt;
            self.outlet.note(waited.to_string());
            self.schedule.request();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_devices_nothing_waits() {
        let mut wait = GpuWait::new(&Gpus::Untouched);
        let now = Instant::now();
        for attempt in [1, 1, 2, 3] {
            assert!(!wait.holds(attempt, now));
        }
        assert_eq!(wait.due(), None);
    }
}
