//! What the API server admitted of a gang: the only priority that counts.
//!
//! Owns when a gang has to make its pods before it may ask for seats, and with what priority it asks. The number of a
//! pod was checked by admission and quota; what a job states itself is unchecked.
//!
//! Invariants: a gang asks with no more than the default of the cluster until every pod that wants a seat exists and
//! asks for at least what its template asks for. The seats that it holds are protected by the lowest priority of the
//! pods that it has, or had last.

use std::collections::BTreeSet;

use super::GangPod;
use crate::{
    gang::{Gang, PriorityClasses, Resources, Shape},
    spec::Role,
};

/// What is known of the pods of a gang.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Admission {
    /// The lowest priority of any of its pods.
    lowest: Option<i32>,
    /// Whether one of them never preempts.
    never_preempts: bool,
    /// Whether one of them asks for less than its template: its quota paid for less than the gang would get.
    is_short: bool,
    /// Whether every pod that is made before the gang starts exists.
    is_whole: bool,
    /// Whether a pod of this attempt exists.
    is_begun: bool,
}

/// The priority of a gang compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The priority that protects the seats that it holds.
    pub(super) priority: i32,
    /// The priority with which it asks for seats.
    pub(super) claim: i32,
    /// Whether all its pods exist as its templates ask for them.
    pub(super) is_admitted: bool,
    pub(super) never_preempts: bool,
}

impl Admission {
    /// Adds a pod that has not ended; `current` where it is of this attempt and stays.
    pub(super) fn add(&mut self, pod: &GangPod<'_>, shape: &Shape, current: bool) {
        let lowest = self.lowest.unwrap_or(pod.priority);
        self.lowest = Some(lowest.min(pod.priority));
        if !current {
            return;
        }
        self.is_begun = true;
        self.never_preempts |= pod.never_preempts;
        let covers = |requests: &Resources| {
            let mut wanted = shape.requests.iter();
            wanted.all(|(name, amount)| requests.get(name) >= amount)
        };
        self.is_short |= pod.requests.is_some_and(|requests| !covers(requests));
    }

    /// Completes what was added: `names` are the pods of this attempt that exist or have ended well, `before` is what
    /// was known until now.
    pub(super) fn settle(&mut self, gang: &Gang, names: &BTreeSet<&str>, before: &Self) {
        let mut first = gang.pods.iter().filter(|pod| pod.role != Role::Launcher);
        self.is_whole = first.all(|pod| names.contains(pod.name.as_str()));
        let mut launchers = gang.pods.iter().filter(|pod| pod.role == Role::Launcher);
        self.is_short |=
            launchers.any(|pod| !names.contains(pod.name.as_str()) && !is_minor(gang, pod.shape));
        // Between two attempts there may be no pod while the seats are kept.
        if self.lowest.is_none() && !gang.held.is_empty() {
            self.lowest = before.lowest;
        }
    }

    /// Whether placement has to look again since `before`, for a gang that waits or not.
    pub(super) fn affects_placement(&self, before: &Self, is_waiting: bool) -> bool {
        self != before && (is_waiting || self.lowest < before.lowest)
    }

    pub(super) fn standing(&self, gang: &Gang, classes: &PriorityClasses) -> Standing {
        let modest = classes.default_value().min(classes.lowest(&gang.classes));
        let priority = self.lowest.unwrap_or(modest);
        let is_admitted = self.is_whole && self.is_begun && !self.is_short;
        Standing {
            priority,
            claim: if is_admitted {
                priority
            } else {
                priority.min(modest)
            },
            is_admitted,
            never_preempts: self.never_preempts || classes.forbid_preemption(&gang.classes),
        }
    }

    /// Why the pods of `gang` have to exist before it may ask for seats; nothing where it may ask.
    pub(super) fn awaited(&self, gang: &Gang, classes: &PriorityClasses) -> Option<String> {
        if self.is_whole {
            return None;
        }
        if let Some(name) = classes.unknown(&gang.classes) {
            return Some(format!(
                "the cluster has no priority class `{name}`, so it counts as 0; creating the pods first"
            ));
        }
        if classes.lowest(&gang.classes) <= classes.default_value() {
            return None;
        }
        let names: Vec<String> = gang
            .classes
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        Some(format!(
            "creating the pods first: priority class {} counts once the API server has admitted them",
            names.join(", ")
        ))
    }
}

/// Whether a launcher, which is made when the others run, asks for so little that their priority counts for it: no
/// accelerator, and of nothing else more than all of them together.
fn is_minor(gang: &Gang, launcher: usize) -> bool {
    let mut others = Resources::default();
    for pod in gang.pods.iter().filter(|pod| pod.role != Role::Launcher) {
        others.add(&gang.shapes[pod.shape].requests);
    }
    let requests = &gang.shapes[launcher].requests;
    let mut amounts = requests.iter();
    requests.accelerators() == 0 && amounts.all(|(name, amount)| others.get(name) >= amount)
}
