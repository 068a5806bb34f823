//! Gangs that another scheduler starts: they need a `PodGroup`, and that scheduler may keep their pods waiting.
//!
//! Owns when the `PodGroup` is created and deleted. What is in it is
//! [`crate::launch`]'s, and whether it exists is observed as [`Grouping`].
//!
//! Invariant: no pod of such a gang is created before its `PodGroup` exists.

use super::{Action, Grouping, pass::Pass};
use crate::reason::Reason;

/// Keeps the `PodGroup` up to date; whether pods may be created in this pass.
pub(super) fn ensure_group(pass: &mut Pass<'_>) -> bool {
    let reason = match &pass.observed.grouping {
        Grouping::Unused => return true,
        Grouping::Unknown => Reason::CheckingPodGroup,
        Grouping::Unable(why) => Reason::NoPodGroup { why: why.clone() },
        Grouping::Taken(refusal) => refusal.reason(0),
        Grouping::Missing => {
            pass.actions.push(Action::ApplyGroup);
            Reason::CreatingPodGroup
        }
        Grouping::There { current, wait } => {
            if !current {
                pass.actions.push(Action::ApplyGroup);
            }
            match wait {
                None => return true,
                Some(why) => Reason::PodGroupWaits { why: why.clone() },
            }
        }
    };
    pass.say(reason);
    false
}

/// Deletes the `PodGroup`.
pub(super) fn delete_group(pass: &mut Pass<'_>) {
    if matches!(pass.observed.grouping, Grouping::There { .. }) {
        pass.actions.push(Action::DeleteGroup);
    }
}
