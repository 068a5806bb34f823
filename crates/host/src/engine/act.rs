//! Carrying out what was decided.

use std::{
    os::fd::{AsRawFd as _, RawFd},
    time::{Duration, Instant},
};

use trainyard_core::{
    job::{Action, Removal, SharedInputs},
    launch,
    spec::Slot,
};

use super::{Engine, events::LATE, start, table::Key};
use crate::{HostError, channel, pod_spec, request::RunEvent, wire::Order};

impl Engine<'_> {
    pub(super) fn carry_out(&mut self, action: Action) -> Result<(), HostError> {
        match action {
            Action::CreatePod { slot, attempt, .. } => return self.start_pod(slot, attempt),
            Action::DeletePod { slot, uid, removal } => self.delete_pod(slot, &uid, removal),
            // Names resolve from the start: the hosts file of a run holds them all.
            Action::CreateService(slot) => {
                self.services
                    .entry(slot.role)
                    .or_default()
                    .insert(slot.index);
                self.changed = true;
            }
            Action::DeleteService(slot) => {
                if let Some(indices) = self.services.get_mut(&slot.role) {
                    *indices = indices
                        .iter()
                        .filter(|index| *index != slot.index)
                        .collect();
                }
                self.changed = true;
            }
            Action::ApplyShared(inputs) => {
                self.create_shared(&inputs);
                self.update_shared_files();
                self.shared = Some(inputs);
                self.changed = true;
            }
            Action::ApplyAutoscaler => {
                self.autoscaler = true;
                self.changed = true;
                let note =
                    "a single machine has no autoscaler: the number of workers does not change";
                (self.sink)(RunEvent::Note(note.to_owned()));
            }
            Action::DeleteAutoscaler => {
                self.autoscaler = false;
                self.changed = true;
            }
            // A run is over when its job is; there is no object to delete.
            // One machine needs no node assignment: there is no wait queue, and no PodGroup is created.
            Action::DeleteJob
            | Action::ApplyGroup
            | Action::DeleteGroup
            | Action::SeatPod { .. }
            | Action::AskSeats
            | Action::ReleaseSeats { .. }
            | Action::StartPreflight { .. }
            | Action::EndPreflight { .. } => {}
        }
        Ok(())
    }

    fn delete_pod(&mut self, slot: Slot, uid: &str, removal: Removal) {
        let found = self
            .pods
            .iter()
            .find(|(_, entry)| entry.slot == slot && entry.uid == uid)
            .map(|(key, _)| *key);
        let Some(key) = found else {
            return;
        };
        let Some(entry) = self.pods.get_mut(&key) else {
            return;
        };
        if entry.gone {
            self.pods.remove(&key);
            self.changed = true;
        } else if removal == Removal::Forced {
            entry.deleted_at.get_or_insert_with(start::now);
            entry.stopped |= !entry.ended_by_itself();
            self.keeper.end(key);
        } else {
            self.stop_pod(key);
        }
    }

    /// Asks a pod to end in its grace period. Asking again changes nothing.
    pub(super) fn stop_pod(&mut self, key: Key) {
        let Some(entry) = self.pods.get_mut(&key) else {
            return;
        };
        if entry.gone || entry.deleted_at.is_some() {
            return;
        }
        entry.deleted_at = Some(start::now());
        entry.stopped = !entry.ended_by_itself();
        self.changed = true;
        let grace = Duration::from_secs(u64::from(entry.grace_seconds));
        entry.kill_at = Some(Instant::now() + grace + LATE);
        let grace_millis = u64::from(entry.grace_seconds) * 1000;
        self.order(key, &Order::Stop { grace_millis }, &[]);
    }

    /// Gives an order to a pod init. One that cannot be reached is gone, or will be killed when
    /// its time is over.
    pub(super) fn order(&self, key: Key, order: &Order, descriptors: &[RawFd]) {
        if let Some(control) = self.pods.get(&key).and_then(|entry| entry.control.as_ref()) {
            drop(channel::send(control, order, descriptors));
        }
    }

    /// Makes the objects that all pods share.
    pub(super) fn create_shared(&mut self, inputs: &SharedInputs) {
        // Ranks are started without ssh here, so there are no keys; and without an agent, which alone
        // could be missing.
        let shared = launch::shared(self.job, inputs, None, &self.prepared.cluster);
        for object in shared.unwrap_or_default() {
            self.objects.add(object);
        }
    }

    /// Brings the files of pods that run up to date.
    fn update_shared_files(&self) {
        for (key, entry) in &self.pods {
            let Some(pod) = entry.pod.as_deref() else {
                continue;
            };
            let volumes = pod
                .spec
                .iter()
                .flat_map(|spec| spec.volumes.iter().flatten());
            for volume in volumes {
                let facts = self.facts(entry.slot, &entry.uid);
                let files = pod_spec::volume_files(pod, &volume.name, &facts, &self.objects);
                let Some(files) = files else {
                    continue;
                };
                if let Ok(memory) = channel::to_memory(&files) {
                    let order = Order::Update {
                        volume: volume.name.clone(),
                    };
                    self.order(*key, &order, &[memory.as_raw_fd()]);
                }
            }
        }
    }
}
