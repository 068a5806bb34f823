//! The API beside the pods, and what an action does when it arrives.

use std::collections::BTreeMap;

use trainyard_core::{
    job::{Action, Autoscaler, IndexSet, SharedInputs},
    spec::{Role, Slot},
};

use super::World;
use crate::coverage::Mark;

/// The objects beside the pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Objects {
    pub(crate) services: BTreeMap<Role, IndexSet>,
    pub(crate) shared: Option<SharedInputs>,
    pub(crate) autoscaler: bool,
}

impl Objects {
    /// The autoscaler, which is always made from the spec as it is.
    pub(crate) fn autoscaler(&self) -> Autoscaler {
        if self.autoscaler {
            Autoscaler::Current
        } else {
            Autoscaler::Missing
        }
    }
}

impl World {
    /// An action reaches the API.
    pub(crate) fn apply(&mut self, action: &Action) {
        match action {
            Action::CreatePod {
                slot,
                attempt,
                seat,
                ..
            } => self.create_pod(*slot, *attempt, seat),
            Action::SeatPod { slot, uid, node } => match self.pod_at(*slot) {
                Some(at) if self.cluster.pods[at].shown.uid == *uid => self.seat_pod(at, node),
                _ => self.coverage.mark(Mark::ActionMissed),
            },
            // Of the controller's own memory: dealt with where it acts. No other scheduler lives here, and no supervisor.
            Action::AskSeats
            | Action::ReleaseSeats { .. }
            | Action::StartPreflight { .. }
            | Action::EndPreflight { .. }
            | Action::RelabelPod { .. }
            | Action::ApplyGroup
            | Action::DeleteGroup => {}
            Action::DeletePod { slot, uid, removal } => match self.pod_at(*slot) {
                Some(at) if self.cluster.pods[at].shown.uid == *uid => {
                    self.delete_pod(at, *removal);
                }
                _ => self.coverage.mark(Mark::ActionMissed),
            },
            Action::CreateService(slot) => self.change_service(*slot, true),
            Action::DeleteService(slot) => self.change_service(*slot, false),
            Action::ApplyShared(inputs) => {
                self.cluster.objects.shared = Some(inputs.clone());
                self.objects_changed();
            }
            Action::ApplyAutoscaler | Action::DeleteAutoscaler => {
                self.cluster.objects.autoscaler = *action == Action::ApplyAutoscaler;
                self.objects_changed();
            }
            Action::DeleteJob => self.delete_job(),
        }
        if !self.stored.exists {
            self.call_collector();
        }
    }

    fn change_service(&mut self, slot: Slot, wanted: bool) {
        let services = &mut self.cluster.objects.services;
        let there = services
            .get(&slot.role)
            .is_some_and(|indices| indices.contains(slot.index));
        if there == wanted {
            return;
        }
        let indices = services.entry(slot.role).or_default();
        if wanted {
            indices.insert(slot.index);
        } else {
            *indices = indices
                .iter()
                .filter(|index| *index != slot.index)
                .collect();
            if indices.is_empty() {
                services.remove(&slot.role);
            }
        }
        self.objects_changed();
    }
}
