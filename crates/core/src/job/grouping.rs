//! Gangs that a scheduler of others starts: it is told of them, and may keep their pods waiting.
//!
//! Owns when the object that tells it is made and removed. What is in that object is
//! [`crate::launch`]'s, and whether there is one is observed as [`Grouping`].
//!
//! Invariant: no pod of such a gang is made before the scheduler was told of the gang.

use super::{Action, Grouping, pass::Pass};
use crate::reason::Code;

/// Tells the other scheduler of the gang; whether pods may be made in this pass.
pub(super) fn let_in(pass: &mut Pass<'_>) -> bool {
    let (code, message) = match &pass.observed.grouping {
        Grouping::Unused => return true,
        Grouping::Unknown => {
            let message = "what the scheduler was told of the gang is looked up".to_owned();
            (Code::WaitingForSeats, message)
        }
        Grouping::Unable(why) => (Code::Refused, why.clone()),
        Grouping::Missing => {
            pass.actions.push(Action::ApplyGroup);
            let message = "the scheduler that starts the gang is told of it".to_owned();
            (Code::WaitingForSeats, message)
        }
        Grouping::There { current, wait } => {
            if !current {
                pass.actions.push(Action::ApplyGroup);
            }
            match wait {
                None => return true,
                Some(why) => (Code::WaitingForSeats, why.clone()),
            }
        }
    };
    pass.say(code, message);
    false
}

/// Removes what the other scheduler was told.
pub(super) fn dissolve(pass: &mut Pass<'_>) {
    if matches!(pass.observed.grouping, Grouping::There { .. }) {
        pass.actions.push(Action::DeleteGroup);
    }
}
