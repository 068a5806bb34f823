//! What a cell can show, with its word, its sign and its colours.

use serde::Serialize;

use crate::{chronicle::PodState, ledger::Phase};

/// What a job, or a pod of it, does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// See [`Phase::Training`]; and so on.
    Training,
    /// Held back by a scheduling gate.
    Queued,
    /// Waits for nodes.
    Placing,
    /// Pods and containers are created.
    Creating,
    /// Images are pulled.
    Pulling,
    /// Runs, and no step was reported yet.
    Starting,
    /// Saves a checkpoint.
    Saving,
    /// Runs, and reports no step.
    Stalled,
    /// The next attempt is not up.
    Restarting,
    /// Trains again what was trained before.
    Redoing,
    /// Suspended.
    Suspended,
    /// A phase of another version.
    Other,
    /// A pod or an attempt failed.
    Failed,
    /// The node of the pod does not respond.
    Lost,
    /// The pod ended well.
    Done,
    /// Nobody observed it.
    NotObserved,
    /// There is nothing: the job had not begun, or has ended.
    Nothing,
}

/// Colours of a state, as `rrggbb`. Every one has a contrast of at least 3.8 with white, or 6 with `0f1419`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Colours {
    /// On white.
    pub light: &'static str,
    /// On `0f1419`.
    pub dark: &'static str,
}

impl State {
    /// All of them; documents number them in this order.
    pub const ALL: [Self; 17] = [
        Self::Training,
        Self::Queued,
        Self::Placing,
        Self::Creating,
        Self::Pulling,
        Self::Starting,
        Self::Saving,
        Self::Stalled,
        Self::Restarting,
        Self::Redoing,
        Self::Suspended,
        Self::Other,
        Self::Failed,
        Self::Lost,
        Self::Done,
        Self::NotObserved,
        Self::Nothing,
    ];

    /// Its number in documents.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Its name, its sign in a terminal, and its colours.
    fn look(self) -> (&'static str, char, &'static str, &'static str) {
        match self {
            Self::Training => ("training", '█', "0b6e4f", "3fb68b"),
            Self::Queued => ("queued", '░', "767f8a", "8b949e"),
            Self::Placing => ("placing", '░', "6b6fb5", "8f94e0"),
            Self::Creating => ("creating", '▒', "3f7fbf", "5aa2e0"),
            Self::Pulling => ("pulling", '▒', "2f8ba0", "45b0c6"),
            Self::Starting => ("starting", '▒', "4a6fa5", "7f9fd6"),
            Self::Saving => ("saving", '▓', "5b7f1f", "9bbf4d"),
            Self::Stalled => ("stalled", '!', "c2410c", "ff8552"),
            Self::Restarting => ("restarting", '▒', "a15c00", "e0a030"),
            Self::Redoing => ("redoing", '▚', "9c3f86", "d97fc4"),
            Self::Suspended => ("suspended", '·', "8a8178", "a39a8f"),
            Self::Other => ("other", '?', "6f6f6f", "a8a8a8"),
            Self::Failed => ("failed", '╳', "b00020", "ff6b6b"),
            Self::Lost => ("lost", '?', "8f1d4f", "ff8fb0"),
            Self::Done => ("done", '=', "3d6b5c", "8fcfb5"),
            Self::NotObserved => ("notObserved", '‖', "737373", "a0a0a0"),
            Self::Nothing => ("nothing", ' ', "ffffff", "0f1419"),
        }
    }

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        self.look().0
    }

    /// Its sign in a terminal: a state is never shown by its colour alone.
    pub fn sign(self) -> char {
        self.look().1
    }

    /// Its colours.
    pub fn colours(self) -> Colours {
        let (_, _, light, dark) = self.look();
        Colours { light, dark }
    }

    /// What a pod shows by itself; nothing where it shows what its job does.
    pub(super) fn of_pod(state: PodState) -> Option<Self> {
        match state {
            PodState::Waiting => Some(Self::Placing),
            PodState::Creating => Some(Self::Creating),
            PodState::Pulling => Some(Self::Pulling),
            PodState::Succeeded => Some(Self::Done),
            PodState::Failed => Some(Self::Failed),
            PodState::Lost => Some(Self::Lost),
            PodState::Running | PodState::Gone | PodState::Other => None,
        }
    }
}

impl From<Phase> for State {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Queued => Self::Queued,
            Phase::Placing => Self::Placing,
            Phase::Creating => Self::Creating,
            Phase::Pulling => Self::Pulling,
            Phase::Starting => Self::Starting,
            Phase::Training => Self::Training,
            Phase::Saving => Self::Saving,
            Phase::Stalled => Self::Stalled,
            Phase::Restarting => Self::Restarting,
            Phase::Redoing => Self::Redoing,
            Phase::Suspended => Self::Suspended,
            Phase::Other => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of two colours, as WCAG 2 defines it.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| {
            let number = u32::from_str_radix(colour, 16).unwrap();
            let part = |shift: u32| {
                let value = f64::from(number >> shift & 0xff) / 255.0;
                if value <= 0.040_45 {
                    value / 12.92
                } else {
                    ((value + 0.055) / 1.055).powf(2.4)
                }
            };
            0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0)
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn colours_have_contrast() {
        for state in State::ALL
            .into_iter()
            .filter(|state| *state != State::Nothing)
        {
            let Colours { light, dark } = state.colours();
            assert!(
                contrast(light, "ffffff") >= 3.8,
                "{state:?} {}",
                contrast(light, "ffffff")
            );
            assert!(
                contrast(dark, "0f1419") >= 6.0,
                "{state:?} {}",
                contrast(dark, "0f1419")
            );
        }
    }

    #[test]
    fn states_are_numbered_in_order() {
        for (at, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(state.number()), at);
        }
    }
}
