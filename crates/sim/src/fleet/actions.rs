//! What an operator carries out for a job: one call after the other, each of which may be its last.
//!
//! Invariant: a call is made only by the leader. One that was made arrives, whatever has become of its operator.

use trainyard_core::{
    gang::{GangKey, PodKey},
    job::Action,
    spec::Slot,
};

use super::{World, coverage::Mark, jobs::StoredJob, world::Happening};

impl World {
    pub(super) fn begin_actions(
        &mut self,
        number: usize,
        key: &GangKey,
        view: &StoredJob,
        actions: Vec<Action>,
    ) {
        let starts = |action: &Action| matches!(action, Action::StartPreflight { .. });
        let ends = |action: &Action| matches!(action, Action::EndPreflight { .. });
        for action in actions.iter().filter(|action| starts(action)) {
            if let Action::StartPreflight { round, seats } = action {
                self.start_preflight(number, key, view, *round, seats);
            }
        }
        let (last, others): (Vec<Action>, Vec<Action>) = actions
            .into_iter()
            .filter(|action| !starts(action))
            .partition(ends);
        let queue = others.into_iter().chain(last).collect();
        self.operators[number].busy.insert(key.clone(), queue);
        self.act(number, key);
    }

    /// Carries out what concerns the operator alone, up to the next call.
    pub(super) fn act(&mut self, number: usize, key: &GangKey) {
        let now = self.timestamp();
        if !self.may_act(number) {
            self.operators[number].busy.remove(key);
            return;
        }
        loop {
            let operator = &mut self.operators[number];
            let Some(queue) = operator.busy.get_mut(key) else {
                return;
            };
            let Some(action) = queue.pop_front() else {
                break;
            };
            match action {
                Action::AskSeats => operator.fleet.queue.ask(key, now),
                Action::ReleaseSeats { avoid, .. } => {
                    operator.fleet.queue.release_seats(key, &avoid, now);
                    operator.facts.avoid(key, &avoid, now);
                }
                Action::EndPreflight { round } => self.end_preflight(number, key, round),
                Action::CreateService(slot) => self.change_service(number, key, slot, true),
                Action::DeleteService(slot) => self.change_service(number, key, slot, false),
                call @ (Action::CreatePod { .. }
                | Action::SeatPod { .. }
                | Action::DeletePod { .. }) => {
                    let delay = self.call();
                    let arrival = Happening::Arrive(number, key.clone(), Box::new(call));
                    self.after(delay, arrival);
                    // The call is under way, whatever becomes of the operator now.
                    self.crashes(number, Mark::CrashedBetweenActions);
                    return;
                }
                // No other scheduler, autoscaler or MPI job lives here, and no job has a TTL.
                _ => {}
            }
        }
        let operator = &mut self.operators[number];
        operator.busy.remove(key);
        if operator.again.remove(key) {
            self.want_pass(number, key, 4);
        }
        self.look_at_queue(number);
    }

    fn change_service(&mut self, number: usize, key: &GangKey, slot: Slot, wanted: bool) {
        let Some(stored) = self.jobs.get_mut(key) else {
            return;
        };
        let indices = stored.services.entry(slot.role).or_default();
        if wanted {
            indices.insert(slot.index);
        } else {
            let left = indices.iter().filter(|index| *index != slot.index);
            *indices = left.collect();
        }
        let services = stored.services.clone();
        if let Some(view) = self.operators[number].view.jobs.get_mut(key) {
            view.services = services;
        }
    }

    /// A call arrives.
    pub(super) fn arrive(&mut self, number: usize, key: &GangKey, action: &Action) {
        if !self.operators[number].alive || self.leader != Some(number) {
            self.coverage.mark(Mark::LateWrite);
        }
        let owner = self.jobs.get(key).map(|job| job.uid.clone());
        let seen = self.operators[number].view.jobs.get(key);
        let seen = seen.map(|job| job.uid.clone()).or(owner);
        let name = |slot: Slot| PodKey {
            namespace: key.namespace.clone(),
            name: format!("{}-{}-{}", key.name, slot.role.lower(), slot.index),
        };
        let touched = match action {
            Action::CreatePod {
                slot,
                attempt,
                seat,
                ..
            } => {
                let owner = seen.unwrap_or_default();
                self.create_pod(key, &owner, *slot, *attempt, seat);
                name(*slot)
            }
            Action::SeatPod { slot, uid, node } => {
                self.tie_pod(&name(*slot), uid, node);
                name(*slot)
            }
            Action::DeletePod { slot, uid, removal } => {
                self.delete_pod(&name(*slot), uid, *removal);
                // The answer to a deletion is not kept.
                return self.arrived(number, key);
            }
            _ => return self.arrived(number, key),
        };
        if self.operators[number].alive
            && let Some(pod) = self.pods.get(&touched)
        {
            let pod = pod.clone();
            self.operators[number].remember_pod(&touched, &pod);
        }
        self.arrived(number, key);
    }

    fn arrived(&mut self, number: usize, key: &GangKey) {
        if self.operators[number].alive && !self.crashes(number, Mark::CrashedBetweenActions) {
            self.act(number, key);
        }
    }
}
