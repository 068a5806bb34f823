//! The fabric of an attempt: settled before its first pod is created, and the same until its last.
//!
//! Owns when a job waits for its fabric and which one an attempt is on. What the fabric adds to the
//! pods is [`crate::fabric`]'s, and what the cluster has under its name is observed as [`SeenFabric`].
//!
//! Invariant: no pod of a job that names a fabric is created without it, and all pods of an attempt are on
//! the same one. An edit of the fabric, or of the name, counts from the next attempt.

use super::{EventKind, EventReason, FabricInUse, SeenFabric, pass::Pass};
use crate::{
    fabric::{self, Fabric},
    reason::Reason,
};

/// What the next attempt of a job is on, before any pod of it is created.
pub(super) fn next(
    named: Option<&String>,
    before: Option<FabricInUse>,
    seen: &SeenFabric,
) -> Option<FabricInUse> {
    let name = named?;
    let same = |known: &FabricInUse| match (seen, &known.spec) {
        (SeenFabric::There(spec), Some(known_spec)) => {
            known.name == *name && **spec == **known_spec
        }
        _ => false,
    };
    before.filter(same).or_else(|| {
        Some(FabricInUse {
            name: name.clone(),
            spec: None,
        })
    })
}

/// Settles what the attempt is on; why no pod may be created, where that is not known.
pub(super) fn settle(pass: &mut Pass<'_>) -> Option<Reason> {
    let awaited = pass.status.trainyard.fabric.as_ref()?;
    if awaited.spec.is_some() {
        return None;
    }
    let fabric = awaited.name.clone();
    match &pass.observed.fabric {
        SeenFabric::Unused => {
            pass.status.trainyard.fabric = None;
            None
        }
        SeenFabric::Unknown => Some(Reason::LookingUpFabric { fabric }),
        SeenFabric::Unable(why) => {
            let why = why.clone();
            let reason = Reason::NoFabric { fabric, why };
            let waiting = pass.observed.status.trainyard.waiting.as_ref();
            if waiting.is_none_or(|known| known.params.as_ref() != Some(&reason)) {
                pass.emit(
                    EventKind::Warning,
                    EventReason::WaitingForFabric,
                    reason.to_string(),
                );
            }
            Some(reason)
        }
        SeenFabric::There(spec) => {
            let (name, spec) = (fabric, spec.clone());
            let fitted = fabric::fit(
                pass.job,
                &Fabric {
                    name: name.clone(),
                    spec: (*spec).clone(),
                },
            );
            let added = fitted.added().unwrap_or_else(|| "nothing".to_owned());
            pass.emit(
                EventKind::Normal,
                EventReason::FabricAdded,
                format!("the fabric `{name}` adds {added}"),
            );
            if let Some(kept) = fitted.objections() {
                pass.emit(
                    EventKind::Warning,
                    EventReason::FabricDisagrees,
                    format!("the job overrides the fabric `{name}`: {kept}"),
                );
            }
            pass.status.trainyard.fabric = Some(FabricInUse {
                name,
                spec: Some(spec),
            });
            None
        }
    }
}
