//! What an API server would store of the job: its status, and the objects that only exist there.

use std::collections::BTreeMap;

use trainyard_core::{
    job::{self, ConditionStatus, ConditionType, IndexSet, JobStatus, NodeHealth, SharedInputs},
    spec::{Role, Slot},
};

#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) status: JobStatus,
    /// How often it was observed.
    pub(super) view: u64,
    /// Names resolve without them: the hosts file of a run holds them all.
    pub(super) services: BTreeMap<Role, IndexSet>,
    pub(super) shared: Option<SharedInputs>,
    pub(super) autoscaler: bool,
    /// The nodes that were lost by injection.
    pub(super) nodes: BTreeMap<String, NodeHealth>,
}

impl Stored {
    /// Whether the job has ended, as its status says.
    pub(super) fn has_ended(&self) -> bool {
        job::has_ended(&self.status)
    }

    pub(super) fn holds(&self, kind: ConditionType) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions
            .any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
    }

    pub(super) fn create_service(&mut self, slot: Slot) {
        let indices = self.services.entry(slot.role).or_default();
        indices.insert(slot.index);
    }

    pub(super) fn delete_service(&mut self, slot: Slot) {
        if let Some(indices) = self.services.get_mut(&slot.role) {
            let others = indices.iter().filter(|index| *index != slot.index);
            *indices = others.collect();
        }
    }
}
