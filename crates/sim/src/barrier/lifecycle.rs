//! What surrounds a barrier: a short stand-in for `job::decide`, of which only failures, new pods, suspension and sizes are needed.

use std::{collections::BTreeSet, time::Duration};

use trainyard_core::{
    barrier::{
        Barrier, Begin, EndedMember, FailureFacts, FailureKind, FailurePlace, Outcome, PodHealth,
        RestartWay, SlotSet, StopHow, Stored, TemplateChange, Wish, choose,
    },
    spec::{RestartIn, Slot},
};

use super::{
    coverage::Mark,
    operator::{Call, birth_of},
    world::{Rest, World},
};

/// A write of the status.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) stored: Stored,
    pub(super) rest: Rest,
    /// What it is written on top of.
    pub(super) version: u64,
    pub(super) charge: bool,
    pub(super) outcome: Option<Outcome>,
}

impl World {
    /// One pass without a barrier.
    pub(super) fn live(&mut self, ended: &[EndedMember], slots: &BTreeSet<Slot>) {
        let Some(operator) = &self.operator else {
            return;
        };
        let (wish, attempt) = (operator.wish, operator.stored.attempt);
        let rest = operator.rest.clone();
        if matches!(wish, Wish::Suspend | Wish::Delete) {
            self.delete_where(|_| true);
            if !rest.suspended {
                self.write_attempt(
                    attempt,
                    Rest {
                        suspended: true,
                        ..rest
                    },
                    false,
                );
            }
            return;
        }
        if rest.suspended {
            let rest = Rest {
                suspended: false,
                formed: 0,
                ..rest
            };
            return self.write_attempt(attempt + 1, rest, false);
        }
        if operator.size != rest.size {
            let rest = Rest {
                size: operator.size,
                formed: 0,
                ..rest
            };
            return self.write_attempt(attempt + 1, rest, false);
        }
        let old = operator.pods.values().any(|pod| pod.attempt < attempt);
        let forming = rest.formed != attempt && !old;
        let absent = slots.iter().filter(|_| forming);
        let absent = absent.filter(|slot| !operator.pods.contains_key(slot));
        let missing: Vec<Slot> = absent.copied().collect();
        if old {
            self.delete_where(|label| label < attempt);
        }
        if let Some((slot, kind, how)) = self.failure(ended, slots) {
            return self.recover(slot, kind, how);
        }
        if !forming {
            return;
        }
        if missing.is_empty() {
            let rest = Rest {
                formed: attempt,
                ..rest
            };
            return self.write_attempt(attempt, rest, false);
        }
        for slot in missing {
            let call = Call::Create {
                slot,
                attempt,
                begin: Begin::Run,
            };
            if !self.call(call) {
                return;
            }
        }
    }

    fn write_attempt(&mut self, attempt: u32, rest: Rest, charge: bool) {
        self.write(Write {
            stored: Stored {
                attempt,
                barrier: None,
            },
            rest,
            version: 0,
            charge,
            outcome: None,
        });
    }

    fn delete_where(&mut self, meant: impl Fn(u32) -> bool) {
        let Some(operator) = &self.operator else {
            return;
        };
        let doomed: Vec<u32> = operator
            .pods
            .values()
            .filter(|pod| meant(pod.attempt) && pod.health != PodHealth::Terminating)
            .map(|pod| birth_of(&pod.uid))
            .collect();
        for birth in doomed {
            if !self.call(Call::Delete { birth }) {
                return;
            }
        }
    }

    /// The failure of this attempt that is handled first.
    fn failure(
        &self,
        ended: &[EndedMember],
        slots: &BTreeSet<Slot>,
    ) -> Option<(Slot, FailureKind, StopHow)> {
        let operator = self.operator.as_ref()?;
        let attempt = operator.stored.attempt;
        let grace = StopHow::Grace(Duration::from_secs(5));
        let formed = operator.rest.formed == attempt;
        for slot in slots {
            let kind = match operator.pods.get(slot) {
                None if formed => FailureKind::Pod,
                Some(pod) if pod.attempt == attempt => match pod.health {
                    PodHealth::NodeLost => FailureKind::NodeLost,
                    PodHealth::Failed | PodHealth::Terminating => FailureKind::Pod,
                    PodHealth::Well | PodHealth::Starting => continue,
                },
                _ => continue,
            };
            return Some((*slot, kind, grace));
        }
        if let Some(ended) = ended.iter().find(|ended| ended.exit.container_code() != 0) {
            return Some((ended.slot, FailureKind::Program, grace));
        }
        let hangs = formed && self.api.hangs == Some(attempt);
        let first = slots.first().copied()?;
        hangs.then_some((first, FailureKind::Program, StopHow::Hang))
    }

    fn recover(&mut self, slot: Slot, kind: FailureKind, how: StopHow) {
        let Some(operator) = &self.operator else {
            return;
        };
        let attempt = operator.stored.attempt;
        let place = FailurePlace { attempt, slot };
        // A third failure at one place is rare enough to leave most restarts in place.
        let earlier = operator.rest.places.get(1..).unwrap_or_default();
        let facts = FailureFacts {
            restart_in: RestartIn::Place,
            unsupervised: None,
            leader_connected: operator.leader.is_some(),
            kind,
            place,
            earlier,
            unwell_node: None,
            template: TemplateChange::None,
        };
        let way = choose(&facts);
        let mut rest = operator.rest.clone();
        rest.places.insert(0, place);
        rest.places.truncate(4);
        match way {
            RestartWay::InPlace => {
                self.coverage.mark(Mark::Began);
                let why = format!("{slot} failed");
                let barrier = Barrier::begin(attempt, how, &why, SlotSet::default());
                self.write(Write {
                    stored: Stored {
                        attempt,
                        barrier: Some(barrier),
                    },
                    rest,
                    version: 0,
                    charge: false,
                    outcome: None,
                });
            }
            RestartWay::NewPods(_) => {
                self.coverage.mark(Mark::NewPodsChosen);
                rest.formed = 0;
                self.write_attempt(attempt + 1, rest, true);
            }
        }
    }
}
