//! What a run has met: a world in which nothing happens proves nothing.

use std::fmt;

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something a run may meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mark { $($(#[$doc])* $name,)* }

        impl Mark {
            /// Every mark.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

marks! {
    /// A barrier began.
    Began,
    /// A barrier ended in Go.
    WentInPlace,
    /// A barrier ended in Go with a pod that was replaced inside it.
    WentWithNewMember,
    /// A barrier ended in Go that another operator had begun.
    WentAfterCrash,
    /// A barrier ended in new pods because the leader was lost.
    LeaderLost,
    /// A barrier ended in new pods because the leader reported nothing.
    LeaderSilent,
    /// A barrier ended in new pods because no member could be kept.
    NobodyKept,
    /// A barrier ended in new pods because it lasted too long.
    TooLong,
    /// A barrier ended in new pods because the job was resized.
    ResizedInside,
    /// A barrier ended without pods.
    EndedWithoutPods,
    /// A failure got new pods from the start.
    NewPodsChosen,
    /// A member was lost because it did not stop.
    LostStopping,
    /// A member was lost because it was not ready.
    LostPreparing,
    /// The leader's pod was replaced inside a barrier that went on.
    LeaderReplaced,
    /// An operator crashed while programs were stopped.
    CrashedStopping,
    /// An operator crashed between the stored attempt and Go.
    CrashedPreparing,
    /// A write was refused.
    Conflict,
    /// A member received an older command.
    OldCommand,
    /// A leader received an older order.
    OldOrder,
    /// A message of another job arrived.
    Foreign,
    /// A message was lost.
    MessageLost,
    /// A message arrived twice.
    MessageTwice,
    /// A peer was given up because it was silent.
    SilentPeer,
    /// A member left after its hold.
    HeldOut,
    /// A member reported that it cannot stop.
    CannotStop,
    /// A program failed while a barrier was stored.
    FailedInside,
    /// A pod on a lost node was deleted by force.
    ForcedAway,
    /// A failed gang was kept for inspection.
    Held,
    /// A gang that was kept restarted in place.
    RestartedAfterHold,
    /// A member whose program ended stayed longer for that.
    StayedForHold,
    /// A node was lost while programs ran.
    NodeLostRunning,
    /// A node was lost while programs were stopped.
    NodeLostStopping,
    /// A node was lost while members waited for Go.
    NodeLostWaiting,
    /// A barrier began with pods to replace.
    BeganWithLost,
    /// A pod was deleted by force whose supervisor had stopped its program.
    GhostFenced,
    /// A pod was deleted by force whose program ran on.
    GhostRuns,
}

/// How often each was met.
#[derive(Clone, Default)]
pub struct Coverage(Vec<u64>);

impl Coverage {
    pub(super) fn mark(&mut self, mark: Mark) {
        self.0.resize(Mark::ALL.len(), 0);
        if let Some(count) = self.0.get_mut(mark as usize) {
            *count += 1;
        }
    }

    /// How often `mark` was met.
    pub fn count(&self, mark: Mark) -> u64 {
        self.0.get(mark as usize).copied().unwrap_or(0)
    }

    /// Adds what another run has met.
    pub fn add(&mut self, other: &Self) {
        self.0.resize(Mark::ALL.len(), 0);
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Mark::ALL.iter().map(|mark| (mark, self.count(*mark)));
        f.debug_map().entries(counts).finish()
    }
}
