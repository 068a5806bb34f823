//! How a ring breaks.

use thiserror::Error;

use crate::patience::Interruption;

/// How a rank was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Closed,
    Silent,
    Broken,
    Nonsense,
    GaveUp,
    Differs,
}

impl Loss {
    /// Every way, in the order of its number on the wire.
    const ALL: [Self; 6] = [
        Self::Closed,
        Self::Silent,
        Self::Broken,
        Self::Nonsense,
        Self::GaveUp,
        Self::Differs,
    ];

    pub(super) fn number(self) -> u64 {
        self as u64
    }

    pub(super) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|loss| loss.number() == number)
    }

    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Closed => "its connection closed",
            Self::Silent => "it sent nothing within the peer timeout",
            Self::Broken => "the network to it failed",
            Self::Nonsense => "it sent an invalid message",
            Self::GaveUp => "it gave up, see its own output",
            Self::Differs => "its weights differ from those of its neighbour",
        }
    }
}

impl From<&Interruption> for Loss {
    fn from(interruption: &Interruption) -> Self {
        match interruption {
            Interruption::Closed => Self::Closed,
            Interruption::Silent | Interruption::Asked => Self::Silent,
            Interruption::Broken => Self::Broken,
        }
    }
}

/// The ring is broken: a rank is lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("lost rank {rank}: {}{}", loss.sentence(), reporter(*reported_by))]
pub struct PeerLost {
    /// The rank that is lost.
    pub rank: usize,
    pub(crate) loss: Loss,
    /// The neighbour that reported it, where this rank did not see it itself.
    pub reported_by: Option<usize>,
}

fn reporter(by: Option<usize>) -> String {
    by.map_or_else(String::new, |rank| format!(", as rank {rank} reports"))
}

/// Why a collective operation failed.
#[derive(Debug)]
pub(crate) enum RingError {
    Lost(PeerLost),
    /// This process was asked to stop, and the others did not complete the step.
    Asked,
}
