//! Carrying out what was decided.

use std::time::Instant;

use trainyard_core::{
    job::{Action, Removal},
    spec::Slot,
};

use super::{Engine, table::Key};
use crate::HostError;

impl Engine<'_> {
    pub(super) fn carry_out(&mut self, action: Action) -> Result<(), HostError> {
        match action {
            Action::CreatePod { slot, attempt, .. } => {
                // It is decided again once the memory is free.
                if self.gpu_wait.holds(attempt, Instant::now()) {
                    return Ok(());
                }
                // It is decided again once the store of checkpoints was read.
                if self.checkpoints.holds(attempt, Instant::now()) {
                    return Ok(());
                }
                self.start_from_checkpoint(attempt);
                return self.start_pod(slot, attempt);
            }
            Action::DeletePod { slot, uid, removal } => {
                self.delete_pod(slot, &uid, removal);
                return Ok(());
            }
            Action::CreateService(slot) => self.stored.create_service(slot),
            Action::DeleteService(slot) => self.stored.delete_service(slot),
            Action::ApplyShared(inputs) => {
                self.site.create_shared(&inputs);
                self.site.update_files(&self.pods);
                self.stored.shared = Some(inputs);
            }
            Action::ApplyAutoscaler => {
                self.stored.autoscaler = true;
                let note =
                    "a single machine has no autoscaler: the number of workers does not change";
                self.outlet.note(note);
            }
            Action::DeleteAutoscaler => self.stored.autoscaler = false,
            // A run is over when its job is; there is no object to delete.
            // One machine needs no node assignment: there is no wait queue, and no PodGroup is created. Its pods have no supervisor.
            Action::DeleteJob
            | Action::ApplyGroup
            | Action::DeleteGroup
            | Action::RelabelPod { .. }
            | Action::SeatPod { .. }
            | Action::AskSeats
            | Action::ReleaseSeats { .. }
            | Action::StartPreflight { .. }
            | Action::EndPreflight { .. } => return Ok(()),
        }
        self.schedule.request();
        Ok(())
    }

    fn delete_pod(&mut self, slot: Slot, uid: &str, removal: Removal) {
        let found = self.pods.with_uid(uid);
        let Some((key, entry)) = found.filter(|(_, entry)| entry.slot == slot) else {
            return;
        };
        if entry.gone {
            self.pods.entries.remove(&key);
            self.schedule.request();
        } else if removal == Removal::Forced {
            self.pods.kill(key);
        } else {
            self.stop_pod(key);
        }
    }

    /// Asks a pod to end in its grace period. Asking again changes nothing.
    pub(super) fn stop_pod(&mut self, key: Key) {
        self.give_notice(key);
        if self.pods.stop(key) {
            self.schedule.request();
        }
    }
}
